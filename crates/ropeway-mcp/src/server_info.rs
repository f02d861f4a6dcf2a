//! A server's self-description.

use serde::Serialize;
use serde_json::{Map, Value};

use super::host::Host;
use crate::protocol::{Era, meta};

/// Maximum size for a server's name, version or capability name.
const MAX_NAME_BYTES: usize = 1 << 10;

/// Maximum size for a server's instructions, which all go to the model.
const MAX_INSTRUCTIONS_BYTES: usize = 64 << 10;

/// Maximum capabilities at each level, and maximum levels.
const MAX_CAPABILITIES: usize = 256;
const MAX_CAPABILITY_DEPTH: usize = 6;

/// A server's self-description, from the handshake.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The server's name; the alias if it sent none.
    pub name: String,
    /// The server's version; empty if it sent none.
    pub version: String,
    /// The connection's protocol era.
    pub era: Era,
    /// The server's own protocol era, which differs behind a `ropeway up` gateway.
    #[serde(skip)]
    pub server_era: Era,
    /// The server's protocol version: the negotiated one, or behind a `ropeway up` gateway the one that the gateway negotiated.
    pub protocol_version: String,
    /// The declared capabilities.
    pub capabilities: Map<String, Value>,
    /// The server's instructions for the model.
    pub instructions: Option<String>,
}

impl ServerInfo {
    /// Returns `true` if the server declares a capability, such as `["tools", "listChanged"]`.
    pub fn has_capability(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let capability = self.capabilities.get(*first);
        let found = rest.iter().fold(capability, |found, key| found.and_then(|value| value.get(key)));
        found.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    }

    /// Reads an `initialize` or `server/discover` result. All texts are redacted and truncated.
    pub(crate) fn read(host: &Host, result: &Map<String, Value>, era: Era, protocol_version: String) -> Self {
        let stamped = result.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO));
        let server = result.get("serverInfo").or(stamped).unwrap_or(&Value::Null);
        let text = |value: &Value, most: usize| value.as_str().map(|text| host.redact(&truncate(text, most)));
        let instructions = result.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(length) = instructions.map(str::len).filter(|length| *length > MAX_INSTRUCTIONS_BYTES) {
            let message = format!("instructions of {length} bytes were truncated to {MAX_INSTRUCTIONS_BYTES}");
            host.warn(&message);
        }
        let empty = Map::new();
        let capabilities = result.get("capabilities").and_then(Value::as_object).unwrap_or(&empty);
        Self {
            name: text(&server["name"], MAX_NAME_BYTES).unwrap_or_else(|| host.alias().to_string()),
            version: text(&server["version"], MAX_NAME_BYTES).unwrap_or_default(),
            era,
            server_era: era,
            protocol_version,
            capabilities: truncate_capabilities(capabilities, MAX_CAPABILITY_DEPTH),
            instructions: instructions.map(|text| host.redact(&truncate(text, MAX_INSTRUCTIONS_BYTES))),
        }
    }

    /// Takes the server's era and version from the handshake with the gateway in front of it.
    pub(crate) fn behind_gateway(mut self, result: &Map<String, Value>) -> Self {
        let Some(protocol) = result.get("_meta").and_then(|meta| meta.get(meta::SERVER_PROTOCOL)) else { return self };
        self.server_era = if protocol["era"] == Era::Legacy.as_str() { Era::Legacy } else { Era::Modern };
        if let Some(version) = protocol["version"].as_str() {
            self.protocol_version = truncate(version, MAX_NAME_BYTES);
        }
        self
    }
}

/// Truncates a text to `most` bytes, at a character boundary.
fn truncate(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// Truncates capabilities, which are kept as long as the connection.
fn truncate_capabilities(capabilities: &Map<String, Value>, levels: usize) -> Map<String, Value> {
    let keep = |value: &Value| match value {
        Value::Object(inner) if levels > 1 => Value::Object(truncate_capabilities(inner, levels - 1)),
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(items) => {
            let plain = |item: &&Value| !item.is_object() && !item.is_array();
            let items = items.iter().filter(plain).take(MAX_CAPABILITIES);
            items
                .map(|item| item.as_str().map_or_else(|| item.clone(), |text| truncate(text, MAX_NAME_BYTES).into()))
                .collect()
        }
        Value::String(text) => truncate(text, MAX_NAME_BYTES).into(),
        plain => plain.clone(),
    };
    let entries = capabilities.iter().take(MAX_CAPABILITIES);
    entries.map(|(name, value)| (truncate(name, MAX_NAME_BYTES), keep(value))).collect()
}
