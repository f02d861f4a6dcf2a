//! The settings of servers, of `ropeway chat` and of the gateway, as a program uses them.

mod chat;
mod entry;
mod gateway;
mod provider_name;
mod redaction;
mod server;

pub use self::chat::{ChatSettings, MissingChatSecrets, ToolApproval};
pub use self::entry::{
    CollisionPolicy, Config, LockPolicy, ResourceSettings, ServerEntry, ServerSettings, StartMode, ToolOverride,
    ToolSettings,
};
pub use self::gateway::{GatewayLimits, GatewaySettings, Isolation, ListenAddress, PrefixMode, ProfileSettings};
pub use self::provider_name::ProviderName;
#[cfg(feature = "mcp")]
pub(crate) use self::server::MAX_TIMEOUT;
pub use self::server::{
    EraChoice, HttpServer, InProcessServer, ReconnectPolicy, ServerConfig, ServerLimits, ServerTimeouts, SocketServer,
    StdioServer, Transport,
};
#[cfg(feature = "bridge")]
pub(crate) use self::{
    entry::{DEFAULT_PREFIX, describe_missing},
    gateway::decode_gateway_key,
    redaction::PresetNames,
};
