//! One server among many: how it is reached, which of its tools are wanted, and under which names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ChatSettings, ServerConfig};
use crate::tool::Alias;

/// The prefix of tool names where nothing else is said.
pub(crate) const PREFIX: &str = "mcp_{alias}_";

/// How many bytes of resources go before a conversation where nothing else is said.
const CONTEXT_BYTES: usize = 64 << 10;

/// Many servers: what a configuration file means.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The servers, in the order of the file.
    pub servers: Vec<ServerEntry>,
    /// The servers that the file says are used; all when absent.
    pub enabled_servers: Option<Vec<Alias>>,
    /// What happens when two tools have one name.
    pub collisions: CollisionPolicy,
    /// Which model is talked to, and how, where the file says something of it.
    pub chat: Option<ChatSettings>,
    /// What is done about tools that differ from the lock, where the file says something of it.
    pub lock: Option<LockPolicy>,
    /// What is odd about the file but was dealt with.
    pub warnings: Vec<String>,
    /// The other files that were looked into: those with secrets and variables.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// These servers, with the usual settings.
    pub fn new(servers: impl IntoIterator<Item = ServerConfig>) -> Self {
        Self { servers: servers.into_iter().map(ServerEntry::new).collect(), ..Self::default() }
    }

    /// Adds a server.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<ServerEntry>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Is the server switched off because the file names those that are used, and not this one?
    pub fn leaves_out(&self, server: &Alias) -> bool {
        self.enabled_servers.as_ref().is_some_and(|enabled| !enabled.contains(server))
    }
}

/// One server among many.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerEntry {
    /// Our name for the server.
    pub alias: Alias,
    /// How it is reached.
    pub settings: ServerSettings,
    /// Switched off, it is only named.
    pub enabled: bool,
    /// Without it nothing works: that it cannot be reached is fatal.
    pub required: bool,
    /// When it is started.
    pub start: StartMode,
    /// What goes before the names of its tools; `{alias}` stands for the alias. May be empty.
    pub prefix: String,
    /// What goes before the descriptions of its tools; `{alias}` stands for the alias.
    pub description_prefix: Option<String>,
    /// Which of its tools are wanted, and how they are changed.
    pub tools: ToolSettings,
    /// What is done with its resources.
    pub resources: ResourceSettings,
    /// What is done with its prompts.
    pub prompts: PromptSettings,
    /// Its instructions are added to the system prompt.
    pub instructions: bool,
    /// Believe what it says about the behaviour of its tools, such as `readOnlyHint`.
    pub trust_hints: bool,
}

impl ServerEntry {
    /// A server with the usual settings.
    pub fn new(config: ServerConfig) -> Self {
        Self::with_settings(config.alias.clone(), ServerSettings::Known(Box::new(config)))
    }

    /// The same for a server that may lack something.
    pub fn with_settings(alias: impl Into<Alias>, settings: ServerSettings) -> Self {
        Self {
            alias: alias.into(),
            settings,
            enabled: true,
            required: false,
            start: StartMode::default(),
            prefix: PREFIX.to_owned(),
            description_prefix: None,
            tools: ToolSettings::default(),
            resources: ResourceSettings::default(),
            prompts: PromptSettings::default(),
            instructions: false,
            trust_hints: false,
        }
    }
}

impl ServerEntry {
    /// Returns why the server is not started although it is enabled: the words of [`Config::warnings`].
    pub fn warning(&self) -> Option<String> {
        let alias = &self.alias;
        match &self.settings {
            _ if !self.enabled => None,
            ServerSettings::Known(_) => None,
            ServerSettings::Missing { secrets } => Some(format!("server `{alias}` is skipped: {}", not_set(secrets))),
            ServerSettings::Invalid { reason } => Some(format!("server `{alias}` is not started: {reason}")),
        }
    }
}

/// Which secrets are not set, in words.
pub(super) fn not_set(secrets: &[String]) -> String {
    let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
    let (word, verb) = if names.len() == 1 { ("secret", "is") } else { ("secrets", "are") };
    format!("{word} {} {verb} not set", names.join(", "))
}

impl From<ServerConfig> for ServerEntry {
    fn from(config: ServerConfig) -> Self {
        Self::new(config)
    }
}

/// How a server is reached, if all that takes is known.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerSettings {
    /// All that is needed is there.
    Known(Box<ServerConfig>),
    /// Secrets are missing; the server is skipped.
    Missing {
        /// Their names.
        secrets: Vec<String>,
    },
    /// The entry of another client has a key that restricts or authenticates and that is not supported; the server is not started.
    Invalid {
        /// The key, and where it is.
        reason: String,
    },
}

/// When a server is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartMode {
    /// With all others.
    #[default]
    Eager,
    /// At the first call of one of its tools, when its tools are remembered.
    Lazy,
}

/// What happens when two tools have one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollisionPolicy {
    /// The later tool is used, with a warning.
    #[default]
    LastWins,
    /// It is an error. A list that already runs keeps the tool that was there first, with a warning.
    Error,
    /// The later tool gets a number at the end of its name.
    Suffix,
}

/// What is done about tools that differ from the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LockPolicy {
    /// Nothing.
    #[default]
    Off,
    /// They are listed and called, with a warning.
    Warn,
    /// They are hidden until they are accepted.
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

/// Which tools of a server are wanted, and how they are changed. Names are the server's own; globs match them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolSettings {
    /// Only tools that match one of these; all when empty.
    pub allow: Vec<String>,
    /// Further lists: a tool must also match a glob of each of them. An empty list matches no tool.
    pub allowlists: Vec<Vec<String>>,
    /// No tool that matches one of these.
    pub deny: Vec<String>,
    /// What is changed, by glob, in this order; several may match one tool.
    pub overrides: Vec<(String, ToolOverride)>,
}

/// What is changed about a tool. Its `Debug` does not show the values of presets.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOverride {
    /// The name that takes the place of the server's; the prefix still goes before it.
    pub name: Option<String>,
    /// The description that takes the place of the server's.
    pub description: Option<String>,
    /// What goes before the description.
    pub description_prefix: Option<String>,
    /// Arguments that the model does not see.
    pub hide: Vec<String>,
    /// Arguments that are always set so, and that the model does not see.
    pub preset: Map<String, Value>,
    /// Settings for a provider's tool JSON, by provider.
    pub provider_options: BTreeMap<String, Value>,
}

/// What is done with a server's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceSettings {
    /// Tools that list and read them.
    pub tools: bool,
    /// URIs, or globs of URIs, that go before every conversation.
    pub context: Vec<String>,
    /// How many bytes of them at most.
    pub context_bytes: usize,
}

impl Default for ResourceSettings {
    fn default() -> Self {
        Self { tools: false, context: Vec::new(), context_bytes: CONTEXT_BYTES }
    }
}

/// What is done with a server's prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptSettings {
    /// A tool for each prompt.
    pub tools: bool,
}
