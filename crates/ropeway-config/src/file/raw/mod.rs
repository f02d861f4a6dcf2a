//! The records of a configuration file, key for key, before references are resolved.
//!
//! The doc comments of these types are the descriptions in `ropeway.schema.json`.

mod auth;
mod chat;
mod gateway;
mod gateway_auth;
mod gateway_observe;
mod oauth;
mod sandbox;
mod server;
mod shorthand;
mod values;

use std::borrow::Cow;
use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::auth::{RawAuth, RawBasic};
pub use self::chat::{RawApproval, RawChat, RawProvider, RawTemperature};
pub use self::gateway::{RawDrain, RawGateway, RawGatewayLimits, RawProfile, RawTls};
pub use self::gateway_auth::{RawAudience, RawGatewayAuth, RawJwt, RawOperators};
pub use self::gateway_observe::{RawAccessLog, RawAudit};
pub use self::oauth::{RawGrant, RawIdentityProvider, RawOAuth, RawPrivateKey, RawTokenCommand, RawTokenSource};
pub use self::sandbox::RawSandbox;
pub(super) use self::server::CONNECTION_KEYS;
pub use self::server::{
    RawLimits, RawPreset, RawPrompts, RawReconnect, RawResources, RawServer, RawTimeouts, RawTools, RawTransport,
};
pub use self::shorthand::RawShorthand;
pub use self::values::{RawByteSize, RawDuration, RawMap, RawRate, RawText};
use crate::settings::{CollisionPolicy, LockPolicy};

/// The keys of a server that `defaults` cannot set.
pub(super) const SERVER_ONLY_KEYS: [&str; 10] =
    ["alias", "transport", "command", "args", "env_file", "url", "headers", "auth", "trust_hints", "connection"];

/// The MCP servers of a project, how their tools are exposed, the model that `ropeway chat` uses, and the gateway that
/// `ropeway serve` runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "ropeway.yaml")]
#[non_exhaustive]
pub struct RawConfig {
    /// The path or URL of the JSON Schema of this file, for editors. Ignored by ropeway.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Defaults for all servers. A server overrides them key by key. Example: `{timeouts: {connect: 30s}}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<RawDefaults>,
    /// The MCP servers.
    #[serde(default)]
    pub servers: Vec<RawServer>,
    /// The aliases of the servers to start. Defaults to all. Example: `[github, files]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_servers: Option<Vec<String>>,
    /// An additional allowlist of tools: a list of globs for all servers, or a map of lists by alias. A tool must match it as well as
    /// the filters of its server. Example: `{files: [read_*]}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_allowlist: Option<RawShorthand<Vec<String>, RawMap<Vec<String>>>>,
    /// How tools with the same name are resolved. Defaults to `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collisions: Option<CollisionPolicy>,
    /// How tools that differ from `ropeway.lock` are handled. Defaults to `warn` if that file exists, otherwise to `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockPolicy>,
    /// A file with values for `${NAME}`: lines of `NAME=value`, or a YAML map if it ends in `.yaml`, `.yml` or `.json`. The path is
    /// relative to this file. The environment and `.env` take precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_file: Option<String>,
    /// The model that `ropeway chat` uses, and the tools that it may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<RawChat>,
    /// The gateway that `ropeway serve` runs: one MCP endpoint in front of all servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<RawGateway>,
}

/// Defaults for all servers: the keys of a server, except those that identify or connect it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawDefaults(pub Map<String, Value>);

impl fmt::Debug for RawDefaults {
    /// Redacts the values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl JsonSchema for RawDefaults {
    fn schema_name() -> Cow<'static, str> {
        "Defaults".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RawServer::json_schema(generator);
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !SERVER_ONLY_KEYS.contains(&name.as_str()));
        }
        schema.remove("required");
        schema.insert("description".into(), "Defaults for all servers. A server overrides them key by key.".into());
        schema
    }
}

/// Returns the JSON Schema of `ropeway.yaml`, for editors.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<RawConfig>().to_value()
}
