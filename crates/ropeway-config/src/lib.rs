//! Server settings, and the configuration files they are read from.

mod file;
/// The lock file `ropeway.lock`: accepted tool definitions.
pub mod lock;
mod setters;
mod settings;

pub use self::file::fuzz;
pub use self::file::{
    ChatReview, ConfigReview, ForeignConfig, ForeignServer, ServerReview, TokenCommandReview, ToolReference,
    ToolReferenceKind, TransportReview, ValueReference, content_digest, dotenv_variables, edit, is_manifest,
    open_regular, raw, read_foreign, read_foreign_in, read_regular, read_text, review, tool_references,
};
pub use self::file::{ConfigError, ConfigProblem, Secrets, json_schema};
pub use self::settings::MAX_TIMEOUT;
pub use self::settings::decode_gateway_key;
pub use self::settings::{
    AuditSettings, CollisionPolicy, Config, EraChoice, GatewayLimits, GatewaySettings, HttpServer, IdentityProvider,
    Isolation, JwtSettings, LockPolicy, OAuthGrant, OAuthSettings, OperatorTokens, PrefixMode, PrincipalLimits,
    PrivateKey, ProfileSettings, Rate, ReconnectPolicy, ResourceSettings, Sandbox, ServerConfig, ServerEntry,
    ServerLimits, ServerTimeouts, StartMode, StdioServer, TokenCommand, TokenSource, ToolOverride, ToolSettings,
    Transport,
};
pub use self::settings::{AuthSettings, LogTarget, TlsSettings};
pub use self::settings::{
    CERTIFICATE_VARIABLES, SandboxChange, SandboxFailure, SandboxLauncher, SandboxPath, SandboxProfile, SandboxSummary,
};
pub use self::settings::{ChatSettings, MissingChatSecrets, ProviderName, ToolApproval};
pub use self::settings::{ClientAuthMethod, JwtAlgorithm};
pub use self::settings::{DrainSettings, ListenAddress, ServerSettings, SocketServer};
pub use self::settings::{InProcessServer, SandboxMode, ServerAuth};
pub use self::{file::Glob, settings::DEFAULT_PREFIX, settings::sandbox_changes};
pub use ropeway_core::secret::Secret;
