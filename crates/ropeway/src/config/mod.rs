//! Server settings, and the configuration files they are read from.
//!
//! [`Config`] and the types it contains are plain records that a program can build by hand. With the feature `bridge`,
//! [`Config::load`] reads them from a `ropeway.yaml`, from a manifest, or from the file of another MCP client.

#[cfg(feature = "bridge")]
mod file;
mod setters;
mod settings;

#[cfg(feature = "testing")]
pub(crate) use self::file::fuzz;
#[cfg(feature = "bridge")]
// Hidden from the docs: used by the binary, the fuzz targets and test servers; not covered by semantic versioning.
#[doc(hidden)]
pub use self::file::{
    ChatReview, ConfigReview, ForeignConfig, ForeignServer, ServerReview, TokenCommandReview, ToolReference,
    ToolReferenceKind, TransportReview, ValueReference, edit, is_manifest, open_regular, raw, read_foreign,
    read_foreign_in, read_regular, read_text, review, tool_references,
};
#[cfg(feature = "bridge")]
pub use self::file::{ConfigError, ConfigProblem, Secrets, json_schema};
#[cfg(feature = "mcp")]
pub(crate) use self::settings::MAX_TIMEOUT;
// Hidden from the docs: settings of the command `ropeway chat`, used by the binary.
#[cfg(feature = "gateway")]
pub(crate) use self::settings::decode_gateway_key;
pub use self::settings::{
    AuditSettings, AuthSettings, ClientAuthMethod, CollisionPolicy, Config, EraChoice, GatewayLimits, GatewaySettings,
    HttpServer, IdentityProvider, InProcessServer, Isolation, JwtAlgorithm, JwtSettings, LockPolicy, LogTarget,
    OAuthGrant, OAuthSettings, PrefixMode, PrincipalLimits, PrivateKey, ProfileSettings, Rate, ReconnectPolicy,
    ResourceSettings, Sandbox, SandboxMode, ServerAuth, ServerConfig, ServerEntry, ServerLimits, ServerTimeouts,
    StartMode, StdioServer, TlsSettings, TokenCommand, TokenSource, ToolOverride, ToolSettings, Transport,
};
#[doc(hidden)]
pub use self::settings::{ChatSettings, MissingChatSecrets, ProviderName, ToolApproval};
// Hidden from the docs: incomplete settings, settings of the command `ropeway serve` and the transport to it; used by the binary.
#[doc(hidden)]
pub use self::settings::{DrainSettings, ListenAddress, ServerSettings, SocketServer};
// Hidden from the docs: used by the binary, which starts servers in their sandbox.
#[doc(hidden)]
pub use self::settings::{SandboxChange, SandboxFailure, SandboxLauncher, SandboxPath, SandboxProfile, SandboxSummary};
#[cfg(feature = "bridge")]
pub(crate) use self::{file::Glob, settings::DEFAULT_PREFIX, settings::sandbox_changes};
pub use crate::secret::Secret;
