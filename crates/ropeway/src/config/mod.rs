//! Settings: of one server, and of many in one file.

#[cfg(feature = "bridge")]
mod auth;
#[cfg(feature = "bridge")]
mod callback;
mod chat;
#[cfg(feature = "bridge")]
mod credential;
#[cfg(feature = "bridge")]
mod decode;
#[cfg(feature = "bridge")]
pub mod edit;
#[cfg(feature = "bridge")]
mod emit;
mod entry;
#[cfg(feature = "bridge")]
mod file;
#[cfg(feature = "bridge")]
mod foreign;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
#[cfg(feature = "bridge")]
mod glob;
mod hidden;
#[cfg(feature = "bridge")]
mod import;
#[cfg(feature = "bridge")]
mod json;
#[cfg(feature = "bridge")]
mod manifest;
#[cfg(feature = "bridge")]
mod node;
#[cfg(feature = "bridge")]
mod problem;
#[cfg(feature = "bridge")]
pub mod raw;
#[cfg(feature = "bridge")]
mod read;
#[cfg(feature = "bridge")]
mod reference;
#[cfg(feature = "bridge")]
mod resolve;
#[cfg(feature = "bridge")]
mod review;
#[cfg(feature = "bridge")]
mod secrets;
mod server;
#[cfg(feature = "bridge")]
mod short;
#[cfg(all(test, feature = "bridge"))]
mod tests;
#[cfg(feature = "bridge")]
mod toml;
#[cfg(feature = "bridge")]
mod tool_reference;
#[cfg(feature = "bridge")]
mod unit;
#[cfg(feature = "bridge")]
mod yaml;

pub use self::chat::{ChatSettings, MissingSecretsError, ProviderName, ToolApproval, UnknownProviderError};
#[cfg(feature = "bridge")]
pub(crate) use self::entry::PREFIX;
pub use self::entry::{
    CollisionPolicy, Config, LockPolicy, PromptSettings, ResourceSettings, ServerEntry, ServerSettings, StartMode,
    ToolOverride, ToolSettings,
};
#[cfg(feature = "bridge")]
pub use self::file::{open_regular, read_regular};
#[cfg(feature = "bridge")]
pub(crate) use self::glob::Glob;
#[cfg(feature = "bridge")]
pub use self::import::{ForeignConfig, ForeignServer, is_manifest, read_foreign, read_foreign_in};
#[cfg(feature = "bridge")]
pub use self::problem::{ConfigError, ConfigProblem};
#[cfg(feature = "bridge")]
pub use self::raw::json_schema;
#[cfg(feature = "bridge")]
pub use self::read::read_text;
#[cfg(feature = "bridge")]
pub use self::review::{ChatReview, ConfigReview, ServerReview, TransportReview, ValueReference, review};
#[cfg(feature = "bridge")]
pub use self::secrets::Secrets;
#[cfg(feature = "mcp")]
pub(crate) use self::server::A_YEAR;
pub use self::server::{
    EraChoice, HttpServer, InProcessServer, ReconnectPolicy, ServerConfig, ServerLimits, ServerTimeouts, StdioServer,
    Transport,
};
#[cfg(feature = "bridge")]
pub use self::tool_reference::{ToolReference, ToolReferenceKind, tool_references};
pub use crate::secret::Secret;
