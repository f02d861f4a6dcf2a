//! Settings: of one server, and of many in one file.

mod entry;
mod hidden;
mod server;

pub use self::entry::{
    Collisions, Config, PromptSettings, ResourceSettings, ServerEntry, Settings, Start, ToolOverride, ToolSettings,
};
pub(crate) use self::server::A_YEAR;
pub use self::server::{
    EraChoice, HttpServer, InProcessServer, Limits, Reconnect, ServerConfig, StdioServer, Timeouts, Transport,
};
pub use crate::secret::Secret;
