//! Server entries: connection settings, tool filters and naming for each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::chat::ChatSettings;
use super::gateway::{GatewaySettings, Isolation};
use super::sandbox::Sandbox;
use super::server::{ServerConfig, StdioServer, Transport};
use ropeway_core::tool::Alias;

/// Default tool name prefix.
pub const DEFAULT_PREFIX: &str = "mcp_{alias}_";

/// Default for [`ResourceSettings::context_bytes`].
const CONTEXT_BYTES: usize = 64 << 10;

/// Servers with their settings: a configuration file's resolved contents.
///
/// # Examples
///
/// ```
/// use ropeway::config::{Config, HttpServer, ServerConfig, ServerEntry, StdioServer};
///
/// let time = ServerConfig::new("time", StdioServer::command("uvx").with_args(["mcp-server-time"]));
/// let docs = ServerConfig::new("docs", HttpServer::new("https://example.com/mcp").with_bearer("token"));
/// let config = Config::new([time]).with_server(ServerEntry::new(docs).with_required(true));
/// assert_eq!(config.servers.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[doc(alias = "mcpServers")]
pub struct Config {
    /// The servers, in file order.
    pub servers: Vec<ServerEntry>,
    /// The servers that `enabled_servers` lists. `None` enables all servers.
    pub enabled_servers: Option<Vec<Alias>>,
    /// How tools with the same name are resolved.
    pub collisions: CollisionPolicy,
    /// The `chat` settings, if the file has any.
    pub chat: Option<ChatSettings>,
    /// Gateway settings.
    pub gateway: GatewaySettings,
    /// The lock policy, if the file sets one.
    pub lock: Option<LockPolicy>,
    /// Warnings about the file that do not prevent its use.
    pub warnings: Vec<String>,
    /// The other files that the configuration depends on, such as `.env` and `secrets_file`, whether or not they exist.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// Creates a configuration with default settings for these servers.
    pub fn new(servers: impl IntoIterator<Item = ServerConfig>) -> Self {
        Self { servers: servers.into_iter().map(ServerEntry::new).collect(), ..Self::default() }
    }

    /// Adds a server.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<ServerEntry>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Returns `true` if `enabled_servers` is set and does not list this server.
    pub fn excludes(&self, server: &Alias) -> bool {
        self.enabled_servers.as_ref().is_some_and(|enabled| !enabled.contains(server))
    }
}

/// A server in a [`Config`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerEntry {
    /// The server's name in this configuration.
    pub alias: Alias,
    /// The connection settings.
    pub settings: ServerSettings,
    /// Whether the server is started. A disabled server is listed without its tools.
    pub enabled: bool,
    /// Whether startup fails if the server is unavailable.
    pub required: bool,
    /// When the server is started.
    pub start: StartMode,
    /// Tool name prefix; `{alias}` is replaced by the alias. May be empty.
    pub prefix: String,
    /// Tool description prefix; `{alias}` is replaced by the alias.
    pub description_prefix: Option<String>,
    /// Filters and overrides for its tools.
    pub tools: ToolSettings,
    /// How its resources are exposed.
    pub resources: ResourceSettings,
    /// Whether each prompt is exposed as a tool.
    pub prompt_tools: bool,
    /// Whether its instructions are added to the system prompt.
    pub instructions: bool,
    /// Whether tool annotations such as `readOnlyHint` are trusted.
    pub trust_hints: bool,
    /// Whether a gateway's clients share the connection to the server.
    pub isolation: Isolation,
}

impl ServerEntry {
    /// Creates an enabled entry with default settings.
    pub fn new(config: ServerConfig) -> Self {
        Self::with_settings(config.alias.clone(), ServerSettings::Known(Box::new(config)))
    }

    /// Creates an enabled entry whose connection settings may be incomplete.
    pub fn with_settings(alias: impl Into<Alias>, settings: ServerSettings) -> Self {
        Self {
            alias: alias.into(),
            settings,
            enabled: true,
            required: false,
            start: StartMode::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            description_prefix: None,
            tools: ToolSettings::default(),
            resources: ResourceSettings::default(),
            prompt_tools: false,
            instructions: false,
            trust_hints: false,
            isolation: Isolation::default(),
        }
    }

    /// Returns the connection settings, or `None` if they are incomplete or invalid; see [`warning`](Self::warning).
    pub fn config(&self) -> Option<&ServerConfig> {
        match &self.settings {
            ServerSettings::Known(config) => Some(config),
            _ => None,
        }
    }

    /// Returns the connection settings to change them, or `None` if they are incomplete or invalid.
    pub fn config_mut(&mut self) -> Option<&mut ServerConfig> {
        match &mut self.settings {
            ServerSettings::Known(config) => Some(config),
            _ => None,
        }
    }

    /// Returns a stdio server's sandbox.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.stdio()?.sandbox.as_ref()
    }

    /// Returns a stdio server's command.
    pub fn stdio(&self) -> Option<&StdioServer> {
        match self.config()?.transport.original() {
            Transport::Stdio(server) => Some(server),
            _ => None,
        }
    }

    /// Returns why an enabled server is not started, as in [`Config::warnings`].
    pub fn warning(&self) -> Option<String> {
        let alias = &self.alias;
        match &self.settings {
            _ if !self.enabled => None,
            ServerSettings::Known(_) | ServerSettings::Down { .. } => None,
            ServerSettings::Missing { secrets } => {
                Some(format!("server `{alias}` is skipped: {}", describe_missing(secrets)))
            }
            ServerSettings::Invalid { reason } => Some(format!("server `{alias}` is not started: {reason}")),
        }
    }
}

/// Formats missing secret names: "secret `A` is not set".
pub(crate) fn describe_missing(secrets: &[String]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
    let (word, verb) = if names.len() == 1 { ("secret", "is") } else { ("secrets", "are") };
    format!("{word} {} {verb} not set", names.join(", "))
}

impl From<ServerConfig> for ServerEntry {
    fn from(config: ServerConfig) -> Self {
        Self::new(config)
    }
}

/// A server's connection settings, if they are complete and supported.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerSettings {
    /// Complete settings.
    Known(Box<ServerConfig>),
    /// The settings refer to secrets that are not set. The server is skipped.
    Missing {
        /// Secret names.
        secrets: Vec<String>,
    },
    /// An entry in another client's file has an unsupported key that restricts or authenticates. The server is skipped.
    Invalid {
        /// The key, its position and the problem with it.
        reason: String,
    },
    /// The host knows that the server is down, and does not start it.
    Down {
        /// Why it is down.
        cause: String,
    },
}

/// When a server is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Start")]
pub enum StartMode {
    /// Start the server with ropeway.
    #[default]
    Eager,
    /// Start the server at the first call of one of its tools, or with ropeway if its tools are not cached.
    #[schemars(
        description = "Start the server at the first call of one of its tools. Its tools are listed from a cache."
    )]
    Lazy,
}

/// How tools with the same name are resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Collisions")]
pub enum CollisionPolicy {
    /// Startup fails. A collision that appears later keeps the first tool, with a warning.
    #[schemars(description = "Fail at startup.")]
    Error,
    /// The tool of the later server replaces the other, with a warning.
    #[default]
    #[schemars(description = "Use the tool of the later server.")]
    LastWins,
    /// Add a number to the name of the later tool.
    Suffix,
}

/// How tools that differ from `ropeway.lock` are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Lock")]
pub enum LockPolicy {
    /// Ignore the lock file.
    #[default]
    Off,
    /// Use changed tools, with a warning.
    Warn,
    /// Hide changed tools until `ropeway lock` accepts them.
    Strict,
}

impl fmt::Display for LockPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Strict => "strict",
        })
    }
}

/// Filters and overrides for a server's tools. Globs match the server's own tool names.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolSettings {
    /// Globs for allowed tools. Empty allows all.
    pub allow: Vec<String>,
    /// Additional allowlists: a tool must match at least one glob in each. An empty list matches no tool.
    pub allowlists: Vec<Vec<String>>,
    /// Globs for denied tools. Takes precedence over `allow`.
    pub deny: Vec<String>,
    /// Overrides by glob, applied in order. Several may match one tool.
    pub overrides: Vec<(String, ToolOverride)>,
}

/// Overrides for a tool. The `Debug` output redacts preset values.
#[derive(Clone, Default, PartialEq)]
pub struct ToolOverride {
    /// Replaces the name. The server's prefix is still added.
    pub name: Option<String>,
    /// Name prefix, between the server's prefix and the name.
    pub name_prefix: Option<String>,
    /// Replaces the description.
    pub description: Option<String>,
    /// Description prefix.
    pub description_prefix: Option<String>,
    /// Arguments that are hidden from the model.
    pub hide: Vec<String>,
    /// Arguments with fixed values, hidden from the model.
    pub preset: Map<String, Value>,
    /// Additional fields in the tool JSON, by provider.
    pub provider_options: BTreeMap<String, Value>,
}

/// How a server's resources are exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceSettings {
    /// Whether tools that list and read resources are added.
    pub tools: bool,
    /// Resource URIs, or globs over URIs. These resources are added to every conversation's context.
    pub context: Vec<String>,
    /// Maximum resource bytes in the context.
    pub context_bytes: usize,
}

impl Default for ResourceSettings {
    fn default() -> Self {
        Self { tools: false, context: Vec::new(), context_bytes: CONTEXT_BYTES }
    }
}
