//! The configuration file, key for key.

use std::borrow::Cow;
use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use serde_json::{Map, Value};

pub use super::auth::{RawAuth, RawBasic};
pub use super::chat::raw::{RawApproval, RawChat, RawProvider, RawTemperature};
use super::hidden::Preset;
pub use super::short::Short;
pub use super::unit::{Pairs, Size, Text, Wait};

/// What a server has of its own, and what therefore cannot be a default.
pub(super) const NO_DEFAULTS: [&str; 10] =
    ["alias", "transport", "command", "args", "env_file", "url", "headers", "auth", "trust_hints", "connection"];

/// The MCP servers that ropeway carries, what it does with them, and the model that it talks to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "ropeway.yaml")]
#[non_exhaustive]
pub struct RawConfig {
    /// Where editors find the schema of this file.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Settings for every server that does not say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<RawDefaults>,
    /// The servers.
    #[serde(default)]
    pub servers: Vec<RawServer>,
    /// The aliases of the servers that are used; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_servers: Option<Vec<String>>,
    /// The tools that servers may offer, on top of what each server's own entry says: globs for all servers, or for each server by its
    /// alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_allowlist: Option<Short<Vec<String>, Pairs<Vec<String>>>>,
    /// What happens when two tools have one name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collisions: Option<RawCollisions>,
    /// What is done about tools that differ from `ropeway.lock`; `warn` when absent and that file exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<RawLock>,
    /// A file with secrets for `${NAME}`: lines of `NAME=value`, or a YAML map. Relative to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_file: Option<String>,
    /// Which model `ropeway chat` talks to, how, and which tools it may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<RawChat>,
}

/// Settings for every server that does not say otherwise: those of a server, without what only one server can have.
#[derive(Clone, Default, PartialEq, Serialize, DeriveDeserialize)]
#[serde(transparent)]
pub struct RawDefaults(pub Map<String, Value>);

impl fmt::Debug for RawDefaults {
    /// Only the names: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl JsonSchema for RawDefaults {
    fn schema_name() -> Cow<'static, str> {
        "RawDefaults".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RawServer::json_schema(generator);
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !NO_DEFAULTS.contains(&name.as_str()));
        }
        schema.remove("required");
        schema.insert("description".into(), "Settings for every server that does not say otherwise.".into());
        schema
    }
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = with_connection)]
#[non_exhaustive]
pub struct RawServer {
    /// Our name for the server: letters, digits, `_`, `.` and `-`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$"))]
    pub alias: String,
    /// How the server is reached; follows from `command` or `url` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<RawTransport>,
    /// The program that is the server. It is run as it is: no shell, and no `${NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The arguments of the program; `${NAME}` stands for a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Text>,
    /// Variables for the program; `${NAME}` stands for a secret.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub env: Pairs<Text>,
    /// A file with more variables for the program, one `NAME=value` a line. Relative to this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    /// Give the program our whole environment instead of a minimal one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherit_env: Option<bool>,
    /// The folder that the program runs in. Relative to this file; `~` is the home folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where the server listens; `${NAME}` stands for a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Text>,
    /// Headers that go with every request; `${NAME}` stands for a secret.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub headers: Pairs<Text>,
    /// How we show the server who we are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<RawAuth>,
    /// Which of its tools are wanted, and how they are changed: a list of globs, or a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Short<Vec<String>, RawTools>>,
    /// Globs, one of which a tool must match besides `tools.allow`; an empty list hides all tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_allowlist: Option<Vec<String>>,
    /// What goes before the names of its tools; `{alias}` stands for the alias. May be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What goes before the descriptions of its tools; `{alias}` stands for the alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description_prefix: Option<String>,
    /// Switched off, the server is only named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Without it nothing works: that it cannot be reached is fatal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// When the server is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<RawStart>,
    /// How long to wait for what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<RawTimeouts>,
    /// How much to take from the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<RawLimits>,
    /// What to do when the server is lost: `false` to leave it so, or a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect: Option<Short<bool, RawReconnect>>,
    /// What is done with its resources: `true` for tools that list and read them, or a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Short<bool, RawResources>>,
    /// What is done with its prompts: `true` for a tool for each, or a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Short<bool, RawPrompts>>,
    /// Its instructions are added to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<bool>,
    /// Believe what the server says about the behaviour of its tools, such as `readOnlyHint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_hints: Option<bool>,
    /// Which era of the protocol to speak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub era: Option<RawEra>,
}

impl RawServer {
    /// A server of which only the alias is known.
    pub fn new(alias: impl Into<String>) -> Self {
        Self { alias: alias.into(), ..Self::default() }
    }
}

/// The keys that may also be in a map under `connection`.
pub(super) const CONNECTION: [&str; 10] =
    ["transport", "command", "args", "env", "env_file", "inherit_env", "cwd", "url", "headers", "auth"];

/// Adds `connection`, which groups keys of the entry; they are read as if they were beside it.
fn with_connection(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let grouped = properties.iter().filter(|(key, _)| CONNECTION.contains(&key.as_str()));
    let grouped: Map<String, Value> = grouped.map(|(key, value)| (key.clone(), value.clone())).collect();
    let connection = serde_json::json!({
        "description": "Groups the keys that say how the server is reached; the same keys can be beside it instead.",
        "type": ["object", "null"],
        "properties": grouped,
        "additionalProperties": false,
    });
    properties.insert("connection".to_owned(), connection);
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawTransport {
    /// A child process that speaks on its standard input and output.
    Stdio,
    /// Legacy HTTP+SSE.
    Sse,
    /// Streamable HTTP; `http` and `websocket` are other names for it.
    StreamableHttp,
}

impl<'de> Deserialize<'de> for RawTransport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match name.as_str() {
            "stdio" => Ok(Self::Stdio),
            "sse" => Ok(Self::Sse),
            "streamable-http" | "http" | "websocket" => Ok(Self::StreamableHttp),
            _ => Err(de::Error::unknown_variant(&name, &["stdio", "sse", "streamable-http"])),
        }
    }
}

impl JsonSchema for RawTransport {
    fn schema_name() -> Cow<'static, str> {
        "RawTransport".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["stdio", "sse", "streamable-http", "http", "websocket"] })
    }
}

/// When a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawStart {
    /// With all others.
    Eager,
    /// At the first call of one of its tools.
    Lazy,
}

/// Which era of the protocol to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawEra {
    /// Ask the server.
    Auto,
    /// `initialize`, up to 2025-11-25.
    Legacy,
    /// Stateless, 2026-07-28.
    Modern,
}

/// What happens when two tools have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawCollisions {
    /// It is an error.
    Error,
    /// The later tool is used.
    LastWins,
    /// The later tool gets a number at the end of its name.
    Suffix,
}

/// What is done about tools that differ from `ropeway.lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawLock {
    /// Nothing.
    Off,
    /// They are listed and called, with a warning.
    Warn,
    /// They are hidden until `ropeway lock` accepts them.
    Strict,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawTimeouts {
    /// From start to ready (60s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Wait>,
    /// From start to ready for a package runner such as npx or uvx that makes progress; `connect` if that is set (10m).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download: Option<Wait>,
    /// How long a server may leave the era probe unanswered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Wait>,
    /// How long nothing may be heard of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Wait>,
    /// How long a call may take as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Wait>,
    /// How long a server has to end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close: Option<Wait>,
    /// How long a call waits for a server that is being connected again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Wait>,
}

/// How much to take from a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawLimits {
    /// The largest message, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<Size>,
    /// The most pages of one list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
    /// Maximum entries of one list, over all pages (10000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_entries: Option<u32>,
    /// Maximum bytes of one list, over all pages (32M).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_bytes: Option<Size>,
    /// The most rounds in which a call may ask for more input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_rounds: Option<u32>,
    /// The most questions that the server may ask the user during one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<u32>,
    /// How many bytes of the program's stderr are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_bytes: Option<Size>,
}

/// What to do when a server is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawReconnect {
    /// Connect again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The wait before the second try; it doubles from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Wait>,
    /// The longest wait between two tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<Wait>,
}

/// What is done with a server's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawResources {
    /// Tools that list and read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// URIs, or globs of URIs, that go before every conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// How many bytes of them at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<Size>,
}

/// What is done with a server's prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawPrompts {
    /// A tool for each prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
}

/// Which tools of a server are wanted, and how they are changed. Keys are globs over the server's own names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawTools {
    /// Only tools that match one of these globs; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// No tool that matches one of these globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Names that take the place of the server's.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub rename: Pairs<String>,
    /// Descriptions that take the place of the server's.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub describe: Pairs<String>,
    /// What goes before the descriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description_prefix: Option<String>,
    /// Arguments that the model does not see.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub hide: Pairs<Vec<String>>,
    /// Arguments that are always set so, and that the model does not see.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub preset: Pairs<RawPreset>,
    /// Settings for a provider's tool JSON: by glob, then by provider.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub provider_options: Pairs<Map<String, Value>>,
}

/// Arguments by their names, and what they are set to.
#[derive(Clone, Default, PartialEq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct RawPreset(pub Map<String, Value>);

impl fmt::Debug for RawPreset {
    /// Only the names: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Preset(&self.0).fmt(f)
    }
}

/// The JSON Schema of `ropeway.yaml`, for editors.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<RawConfig>().to_value()
}
