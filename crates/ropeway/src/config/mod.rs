//! Server settings, and the configuration files they are read from.
//!
//! [`ServerConfig`] describes one server: its [`Transport`] ([`StdioServer`] or [`HttpServer`]), timeouts and limits. [`Config`]
//! lists servers as [`ServerEntry`]s, which add names, filters and policies. All of them are plain records that a program can build
//! by hand. With the feature `bridge`, [`Config::load`] reads them from a `ropeway.yaml`, from a manifest, or from the file of
//! another MCP client.
//!
//! # Examples
//!
//! ```
//! use ropeway::config::{Config, HttpServer, ServerConfig, ServerEntry, StdioServer, ToolSettings};
//!
//! let files = ServerConfig::new("files", StdioServer::command("file-server").with_args(["/srv/docs"]));
//! let search = ServerConfig::new("search", HttpServer::new("https://example.com/mcp").with_bearer("s3cret"));
//! let config = Config::default()
//!     .with_server(ServerEntry::new(files).with_required(true))
//!     .with_server(ServerEntry::new(search).with_tools(ToolSettings::default().with_allow(["find_*".to_owned()])));
//! assert_eq!(config.servers.len(), 2);
//! ```

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
    ToolReferenceKind, TransportReview, ValueReference, content_digest, edit, is_manifest, open_regular, raw,
    read_foreign, read_foreign_in, read_regular, read_text, review, tool_references,
};
#[cfg(feature = "bridge")]
pub use self::file::{ConfigError, ConfigProblem, Secrets, json_schema};
#[cfg(feature = "mcp")]
pub(crate) use self::settings::MAX_TIMEOUT;
#[cfg(feature = "gateway")]
pub(crate) use self::settings::decode_gateway_key;
pub use self::settings::{
    AuditSettings, CollisionPolicy, Config, EraChoice, GatewayLimits, GatewaySettings, HttpServer, IdentityProvider,
    Isolation, JwtSettings, LockPolicy, OAuthGrant, OAuthSettings, OperatorTokens, PrefixMode, PrincipalLimits,
    PrivateKey, ProfileSettings, Rate, ReconnectPolicy, ResourceSettings, Sandbox, ServerConfig, ServerEntry,
    ServerLimits, ServerTimeouts, StartMode, StdioServer, TokenCommand, TokenSource, ToolOverride, ToolSettings,
    Transport,
};
// Hidden from the docs: methods of `GatewaySettings` set them; used by the binary and tests.
#[doc(hidden)]
pub use self::settings::{AuthSettings, LogTarget, TlsSettings};
// Hidden from the docs: selected automatically, unless a configuration file names one; used by tests.
#[doc(hidden)]
pub use self::settings::{ClientAuthMethod, JwtAlgorithm};
// Hidden from the docs: `Transport::in_process` and methods of `HttpServer` and `Sandbox` set them; used by the binary.
#[doc(hidden)]
pub use self::settings::{InProcessServer, SandboxMode, ServerAuth};
// Hidden from the docs: settings of the command `ropeway chat`, used by the binary.
#[doc(hidden)]
pub use self::settings::{ChatSettings, MissingChatSecrets, ProviderName, ToolApproval};
// Hidden from the docs: incomplete settings, settings of the command `ropeway serve` and the transport to it; used by the binary.
#[doc(hidden)]
pub use self::settings::{DrainSettings, ListenAddress, ServerSettings, SocketServer};
// Hidden from the docs: used by the binary, which starts servers in their sandbox.
#[doc(hidden)]
pub use self::settings::{
    CERTIFICATE_VARIABLES, SandboxChange, SandboxFailure, SandboxLauncher, SandboxPath, SandboxProfile, SandboxSummary,
};
#[cfg(feature = "bridge")]
pub(crate) use self::{file::Glob, settings::DEFAULT_PREFIX, settings::sandbox_changes};
pub use crate::secret::Secret;
