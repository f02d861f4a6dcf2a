//! Settings for servers, `ropeway chat` and the gateway, as a program uses them.

pub(crate) mod alias;
mod chat;
mod entry;
mod gateway;
mod gateway_auth;
mod gateway_observe;
mod provider_name;
mod redaction;
mod sandbox;
mod sandbox_summary;
mod server;
mod server_auth;
mod server_limits;

pub use self::chat::{ChatSettings, MissingChatSecrets, ToolApproval};
pub use self::entry::{
    CollisionPolicy, Config, LockPolicy, ResourceSettings, ServerEntry, ServerSettings, StartMode, ToolOverride,
    ToolSettings,
};
pub use self::gateway::{
    DrainSettings, GatewayLimits, GatewaySettings, Isolation, ListenAddress, PrefixMode, ProfileSettings, TlsSettings,
};
pub use self::gateway_auth::{AuthSettings, JwtAlgorithm, JwtSettings, OperatorTokens, PrincipalLimits, Rate};
pub use self::gateway_observe::{AuditSettings, LogTarget};
pub use self::provider_name::ProviderName;
pub use self::sandbox::{
    CERTIFICATE_VARIABLES, Sandbox, SandboxFailure, SandboxLauncher, SandboxMode, SandboxPath, SandboxProfile,
};
pub use self::sandbox_summary::{SandboxChange, SandboxSummary};
pub use self::server::{EraChoice, HttpServer, InProcessServer, ServerConfig, SocketServer, StdioServer, Transport};
pub use self::server_auth::{
    ClientAuthMethod, IdentityProvider, OAuthGrant, OAuthSettings, PrivateKey, ServerAuth, TokenCommand, TokenSource,
};
pub use self::server_limits::{MAX_TIMEOUT, ReconnectPolicy, ServerLimits, ServerTimeouts};
pub use self::{entry::DEFAULT_PREFIX, gateway::decode_gateway_key, sandbox_summary::sandbox_changes};
pub(crate) use self::{entry::describe_missing, redaction::PresetNames};
