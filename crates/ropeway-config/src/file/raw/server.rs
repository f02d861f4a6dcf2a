//! The entry of a server, key for key.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};
use serde_json::{Map, Value};

use super::auth::RawAuth;
use super::sandbox::RawSandbox;
use super::shorthand::RawShorthand;
use super::values::{RawByteSize, RawDuration, RawMap, RawRate, RawText, record};
use crate::settings::{EraChoice, Isolation, PresetNames, StartMode};

record! {
    /// An MCP server: how to connect to it, and how its tools are exposed. Needs an `alias`, and either a `command` or a `url`.
    #[schemars(rename = "Server", transform = with_connection)]
    pub struct RawServer {
        /// The unique name of the server in this file: up to 64 letters, digits, `_`, `.` and `-`. Example: `github`.
        #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$"))]
        pub alias: String,
        /// The transport. Defaults to `stdio` for a `command` and to `streamable-http` for a `url`, where a legacy HTTP+SSE server is
        /// detected.
        pub transport: Option<RawTransport>,
        /// The program to run as a stdio server. It is executed directly, without a shell, and must not contain `${NAME}` references.
        /// Example: `npx`.
        pub command: Option<String>,
        /// The arguments of `command`. `${NAME}` is replaced by the value of a secret or variable. Example:
        /// `[-y, "@modelcontextprotocol/server-filesystem", /srv]`.
        #[serde(default)]
        pub args: Vec<RawText>,
        /// Environment variables of the program, in addition to the inherited ones. `${NAME}` is replaced by the value of a secret or
        /// variable. Example: `{GITHUB_TOKEN: "${GITHUB_TOKEN}"}`.
        #[serde(default)]
        pub env: RawMap<RawText>,
        /// A file with further environment variables of the program, one `NAME=value` per line. Variables in `env` take precedence. The
        /// path is relative to this file.
        pub env_file: Option<String>,
        /// Whether the program inherits the whole environment of ropeway. Defaults to `false`: it inherits only basic variables such as
        /// `PATH` and `HOME`.
        pub inherit_env: Option<bool>,
        /// The working directory of the program, relative to this file. `~` is the home directory. Defaults to the directory of this
        /// file.
        pub cwd: Option<String>,
        /// What the process of the program may use: `true` for only the files of the system and of the program, `false` for everything, or a
        /// map. Defaults to `false`. Needs Linux. Example: `{read: [./docs], network: true}`.
        #[serde(default, deserialize_with = "super::shorthand::not_null")]
        pub sandbox: Option<RawShorthand<bool, RawSandbox>>,
        /// The URL of the MCP endpoint. `${NAME}` is replaced by the value of a secret or variable. Example:
        /// `https://api.githubcopilot.com/mcp/`.
        pub url: Option<RawText>,
        /// HTTP headers of every request. `${NAME}` is replaced by the value of a secret or variable. Example: `{X-Team: blue}`.
        #[serde(default)]
        pub headers: RawMap<RawText>,
        /// The credentials for the `Authorization` header of every request, or how they are obtained: `oauth`, or a map. Defaults to
        /// OAuth for a server that asks for it. Example: `{bearer: "${TOKEN}"}`.
        pub auth: Option<RawAuth>,
        /// Which tools of the server are exposed, and how they are changed: a list of globs of allowed tools, or a map. Defaults to all
        /// tools, unchanged. Example: `[read_*, list_*]`.
        pub tools: Option<RawShorthand<Vec<String>, RawTools>>,
        /// An additional allowlist: a tool must match one of these globs as well as `tools.allow`. An empty list hides all tools.
        pub tool_allowlist: Option<Vec<String>>,
        /// The prefix of tool names, in which `{alias}` is replaced by the alias. May be empty. Defaults to `mcp_{alias}_`.
        pub prefix: Option<String>,
        /// The prefix of tool descriptions, in which `{alias}` is replaced by the alias. Example: `"[{alias}] "`.
        pub description_prefix: Option<String>,
        /// Whether the server is started. Defaults to `true`. A disabled server is listed without tools.
        pub enabled: Option<bool>,
        /// Whether startup fails if the server is unavailable. Defaults to `false`: other servers are used without it, and it is retried
        /// in the background.
        pub required: Option<bool>,
        /// When the server is started. Defaults to `eager`.
        pub start: Option<StartMode>,
        /// Timeouts of the connection and of calls. Example: `{connect: 30s, total: 5m}`.
        pub timeouts: Option<RawTimeouts>,
        /// Limits on the size of messages and lists. Example: `{message_bytes: 16M}`.
        pub limits: Option<RawLimits>,
        /// How a lost connection is reestablished: `false` to disable reconnection, or a map. Defaults to `true`.
        pub reconnect: Option<RawShorthand<bool, RawReconnect>>,
        /// How the resources of the server are exposed: `true` to add tools that list and read them, or a map. Defaults to `false`.
        pub resources: Option<RawShorthand<bool, RawResources>>,
        /// How the prompts of the server are exposed: `true` to add a tool for each prompt, or a map. Defaults to `false`.
        pub prompts: Option<RawShorthand<bool, RawPrompts>>,
        /// Whether the instructions of the server are added to the system prompt. Defaults to `false`.
        pub instructions: Option<bool>,
        /// Whether tool annotations such as `readOnlyHint` are trusted when deciding which calls need approval. Defaults to `false`.
        pub trust_hints: Option<bool>,
        /// The era of the MCP protocol to use. Defaults to `auto`.
        pub era: Option<EraChoice>,
        /// Whether the clients of a gateway share the connection to the server. Defaults to `auto`.
        pub isolation: Option<Isolation>,
    }
}

impl RawServer {
    /// Creates an entry with only an alias.
    pub fn new(alias: impl Into<String>) -> Self {
        Self { alias: alias.into(), ..Self::default() }
    }
}

/// The keys that may also be in a map under `connection`.
pub(crate) const CONNECTION_KEYS: [&str; 10] =
    ["transport", "command", "args", "env", "env_file", "inherit_env", "cwd", "url", "headers", "auth"];

/// Adds the key `connection` to the schema. The keys of its map are equivalent to the same keys next to it.
fn with_connection(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let grouped = properties.iter().filter(|(key, _)| CONNECTION_KEYS.contains(&key.as_str()));
    let grouped: Map<String, Value> = grouped.map(|(key, value)| (key.clone(), value.clone())).collect();
    let connection = serde_json::json!({
        "description": "Groups the keys of the connection. They can be written next to `alias` instead.",
        "type": ["object", "null"],
        "properties": grouped,
        "additionalProperties": false,
    });
    properties.insert("connection".to_owned(), connection);
}

/// The transport of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawTransport {
    /// A child process, over its standard input and output.
    Stdio,
    /// Legacy HTTP+SSE.
    Sse,
    /// Streamable HTTP. `http` is accepted as an alias.
    StreamableHttp,
    /// Treated as Streamable HTTP, because MCP defines no WebSocket transport.
    Websocket,
}

impl<'de> Deserialize<'de> for RawTransport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match name.as_str() {
            "stdio" => Ok(Self::Stdio),
            "sse" => Ok(Self::Sse),
            "streamable-http" | "http" => Ok(Self::StreamableHttp),
            "websocket" => Ok(Self::Websocket),
            _ => Err(de::Error::unknown_variant(&name, &["stdio", "sse", "streamable-http"])),
        }
    }
}

impl JsonSchema for RawTransport {
    fn schema_name() -> Cow<'static, str> {
        "Transport".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["stdio", "sse", "streamable-http", "http", "websocket"] })
    }
}

record! {
    /// Timeouts, as durations such as `500ms`, `30s`, `2m` or `1h`, or as a number of seconds.
    #[derive(Copy, Eq)]
    #[schemars(rename = "Timeouts")]
    pub struct RawTimeouts {
        /// Maximum time from start to a completed handshake. Defaults to `60s`.
        pub connect: Option<RawDuration>,
        /// The `connect` timeout of a package runner such as `npx` or `uvx` that makes progress downloading the server. Defaults to
        /// `connect` if that is set, otherwise to `10m`.
        pub download: Option<RawDuration>,
        /// Time to wait for the response to the era probe before `initialize` is sent as well. Defaults to `5s`.
        pub probe: Option<RawDuration>,
        /// Maximum time of a call without a response or a progress notification. Defaults to `60s`.
        pub idle: Option<RawDuration>,
        /// Maximum total time of a call. Defaults to `30m`.
        pub total: Option<RawDuration>,
        /// Time for the server process to exit before it is killed. Defaults to `3s`.
        pub close: Option<RawDuration>,
        /// Maximum time that a call waits for a reconnection. Defaults to `5s`.
        pub grace: Option<RawDuration>,
    }
}

record! {
    /// Limits on the size of messages and lists. Sizes are bytes, with an optional unit: `512K`, `64M`, `1G`.
    #[derive(Copy, Eq)]
    #[schemars(rename = "Limits")]
    pub struct RawLimits {
        /// Maximum bytes of a message. Defaults to `64M`.
        pub message_bytes: Option<RawByteSize>,
        /// Maximum pages of a list. Defaults to 1000.
        pub pages: Option<u32>,
        /// Maximum entries of a list over all pages. Further entries are dropped with a warning. Defaults to 10000.
        pub list_entries: Option<u32>,
        /// Maximum bytes of a list over all pages. Defaults to `32M`.
        pub list_bytes: Option<RawByteSize>,
        /// Maximum rounds in which a call may request more input. Defaults to 10.
        pub input_rounds: Option<u32>,
        /// Maximum questions that the server may ask the user during a call. Defaults to 10.
        pub questions: Option<u32>,
        /// Maximum bytes of the program's stderr output that are kept for error messages. Defaults to `64K`.
        pub stderr_bytes: Option<RawByteSize>,
        /// Maximum concurrent requests of all clients of the gateway to the server. Not limited by default.
        #[schemars(range(min = 1, max = 1000000))]
        pub calls: Option<u32>,
        /// Maximum requests per time of all clients of the gateway to the server: `10/s`, `600/m`, `1000/h`. Not limited by default.
        pub rate: Option<RawRate>,
    }
}

record! {
    /// How a lost connection is reestablished.
    #[derive(Copy, Eq)]
    #[schemars(rename = "Reconnect")]
    pub struct RawReconnect {
        /// Whether to reconnect automatically. Defaults to `true`.
        pub enabled: Option<bool>,
        /// The delay before the second attempt, which doubles with every attempt. At least `20ms`. Defaults to `250ms`.
        #[serde(alias = "first")]
        pub initial_delay: Option<RawDuration>,
        /// The maximum delay between two attempts. Defaults to `30s`.
        #[serde(alias = "longest")]
        pub max_delay: Option<RawDuration>,
    }
}

record! {
    /// How the resources of a server are exposed.
    #[derive(Eq)]
    #[schemars(rename = "Resources")]
    pub struct RawResources {
        /// Whether to add tools that list and read resources. Defaults to `false`.
        pub tools: Option<bool>,
        /// URIs, or globs of URIs, of resources that are added to the context of every conversation. Example: `["file:///notes/*"]`.
        #[serde(default)]
        pub context: Vec<String>,
        /// Maximum bytes of resources in the context. Defaults to `64K`.
        pub context_bytes: Option<RawByteSize>,
    }
}

record! {
    /// How the prompts of a server are exposed.
    #[derive(Copy, Eq)]
    #[schemars(rename = "Prompts")]
    pub struct RawPrompts {
        /// Whether to add a tool for each prompt. Defaults to `false`.
        pub tools: Option<bool>,
    }
}

record! {
    /// Which tools of a server are exposed, and how they are changed. Globs match the server's own tool names.
    #[serde(default)]
    #[schemars(rename = "Tools")]
    pub struct RawTools {
        /// Globs of allowed tools. Defaults to all. Example: `[read_*]`.
        pub allow: Vec<String>,
        /// Globs of denied tools, which take precedence over `allow`. Example: `["*_delete"]`.
        pub deny: Vec<String>,
        /// New names by glob; the prefix is still added. Example: `{read_file: read}`.
        pub rename: RawMap<String>,
        /// New descriptions by glob. Example: `{read_file: Read a text file.}`.
        pub describe: RawMap<String>,
        /// The prefix of the descriptions of all tools of the server.
        pub description_prefix: Option<String>,
        /// Arguments that are hidden from the model, by glob. Example: `{search: [page_size]}`.
        pub hide: RawMap<Vec<String>>,
        /// Arguments with fixed values, which are hidden from the model, by glob. Example: `{search: {region: eu}}`.
        pub preset: RawMap<RawPreset>,
        /// Additional fields of the tool JSON, by glob, then by provider. Example: `{"*": {openai: {strict: true}}}`.
        pub provider_options: RawMap<Map<String, Value>>,
    }
}

/// The fixed values of arguments, by name.
#[derive(Clone, Default, PartialEq, Serialize, DeriveDeserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct RawPreset(pub Map<String, Value>);

impl fmt::Debug for RawPreset {
    /// Redacts the values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PresetNames(&self.0).fmt(f)
    }
}
