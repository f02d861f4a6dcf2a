//! The settings of servers and of `ropeway chat`, as a program uses them.

mod chat;
mod entry;
mod provider_name;
mod redaction;
mod server;

pub use self::chat::{ChatSettings, MissingChatSecrets, ToolApproval};
pub use self::entry::{
    CollisionPolicy, Config, LockPolicy, ResourceSettings, ServerEntry, ServerSettings, StartMode, ToolOverride,
    ToolSettings,
};
pub use self::provider_name::{ProviderName, UnknownProviderError};
#[cfg(feature = "mcp")]
pub(crate) use self::server::MAX_TIMEOUT;
pub use self::server::{
    EraChoice, HttpServer, InProcessServer, ReconnectPolicy, ServerConfig, ServerLimits, ServerTimeouts, StdioServer,
    Transport,
};
#[cfg(feature = "bridge")]
pub(crate) use self::{
    entry::{DEFAULT_PREFIX, describe_missing},
    redaction::PresetNames,
};
