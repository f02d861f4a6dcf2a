//! Server settings, and the configuration files they are read from.
//!
//! [`ServerConfig`] describes one server: its [`Transport`] ([`StdioServer`] or [`HttpServer`]), timeouts and limits. [`Config`]
//! lists servers as [`ServerEntry`]s, which add names, filters and policies. All are plain records that a program can build
//! by hand. [`Config::load`] reads them from a `ropeway.yaml`, from a manifest, or from another MCP client's file.
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

pub use ropeway_config::{
    AuditSettings, CollisionPolicy, Config, ConfigError, ConfigProblem, EraChoice, GatewayLimits, GatewaySettings,
    HttpServer, IdentityProvider, Isolation, JwtSettings, LockPolicy, OAuthGrant, OAuthSettings, OperatorTokens,
    PrefixMode, PrincipalLimits, PrivateKey, ProfileSettings, Rate, ReconnectPolicy, ResourceSettings, Sandbox, Secret,
    Secrets, ServerConfig, ServerEntry, ServerLimits, ServerTimeouts, StartMode, StdioServer, TokenCommand,
    TokenSource, ToolOverride, ToolSettings, Transport, json_schema,
};
