//! SHA-256 digest of a tool definition.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Origin, ToolDefinition};

/// The name of the hash function, as it stands before the digits.
const PREFIX: &str = "sha256:";

/// A SHA-256 digest, shown as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `sha256:` and 64 hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// Returns the digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new("bytes");
        hasher.field(bytes);
        hasher.finish()
    }

    /// Returns the digest of a definition as its server wrote it: the alias of the server, the server's own name for the tool,
    /// title, description, schemas and annotations.
    ///
    /// The order of keys in schemas and annotations does not count, the order of arrays does. The name that models call the tool
    /// by takes no part: it is the host's.
    pub fn of_source(definition: &ToolDefinition) -> Self {
        let definition = definition.source();
        let ToolDefinition { title, description, input_schema, output_schema, annotations, .. } = definition;
        let mut hasher = Hasher::new("ropeway tool definition 1");
        match &definition.origin {
            Origin::Local => {
                hasher.field(b"local");
                hasher.field(definition.name.as_bytes());
            }
            Origin::Server { server, tool } => {
                hasher.field(b"server");
                hasher.field(server.as_str().as_bytes());
                hasher.field(tool.as_bytes());
            }
        }
        hasher.optional(title.as_deref());
        hasher.optional(description.as_deref());
        hasher.json(&input_schema.read());
        hasher.optional_json(output_schema.as_ref().map(|schema| schema.read()).as_deref());
        hasher.object(&annotations.0);
        hasher.finish()
    }

    /// Returns the digest of a definition as a person approves it: [as its server wrote it](Self::of_source), as the
    /// configuration changed it, and the server that it came from.
    pub fn of_approved(definition: &ToolDefinition) -> Self {
        let mut hasher = Hasher::new("ropeway approved tool 1");
        hasher.field(&Self::of_source(definition).0);
        match definition.provenance.server {
            Some(server) => hasher.field(&server.0),
            None => hasher.field(b""),
        }
        // What the model is told differs from what the server wrote.
        if definition.provenance.original.is_some() {
            let ToolDefinition { title, description, input_schema, output_schema, annotations, .. } = definition;
            hasher.optional(title.as_deref());
            hasher.optional(description.as_deref());
            hasher.json(&input_schema.read());
            hasher.optional_json(output_schema.as_ref().map(|schema| schema.read()).as_deref());
            hasher.object(&annotations.0);
        }
        hasher.finish()
    }
}

/// A hash over fields, each with its length, so that no two sequences of fields are the same bytes.
pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new(domain: &str) -> Self {
        let mut hasher = Self(Context::new(&SHA256));
        hasher.field(domain.as_bytes());
        hasher
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn optional(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.0.update(b"+");
                self.field(text.as_bytes());
            }
            None => self.0.update(b"-"),
        }
    }

    fn optional_json(&mut self, value: Option<&Value>) {
        match value {
            Some(value) => {
                self.0.update(b"+");
                self.json(value);
            }
            None => self.0.update(b"-"),
        }
    }

    /// A value in its canonical form. Text that is nested too deeply to be read never gets here, so recursion is bounded.
    fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(true) => self.0.update(b"t"),
            Value::Bool(false) => self.0.update(b"f"),
            Value::Number(number) => {
                self.0.update(b"#");
                self.field(number.to_string().as_bytes());
            }
            Value::String(text) => {
                self.0.update(b"s");
                self.field(text.as_bytes());
            }
            Value::Array(items) => {
                self.0.update(b"[");
                self.0.update(&(items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| self.json(item));
            }
            Value::Object(fields) => self.object(fields),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| name.as_str());
        self.0.update(b"{");
        self.0.update(&(sorted.len() as u64).to_be_bytes());
        for (name, value) in sorted {
            self.field(name.as_bytes());
            self.json(value);
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.strip_prefix(PREFIX).ok_or(DigestError)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(DigestError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            });
            *byte = high.ok_or(DigestError)? << 4 | low.ok_or(DigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::Annotations;

    fn note() -> ToolDefinition {
        let mut definition = ToolDefinition::new("note")
            .with_description("Writes a note")
            .with_input_schema(json!({"type": "object", "properties": {"text": {"type": "string"}}}));
        definition.origin = Origin::Server { server: "files".into(), tool: "note".into() };
        definition
    }

    #[test]
    fn the_order_of_keys_does_not_count_and_the_order_of_arrays_does() {
        let with = |schema| Digest::of_source(&note().with_input_schema(schema));
        assert_eq!(with(json!({"a": 1, "b": {"c": 2, "d": 3}})), with(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(with(json!({"required": ["a", "b"]})), with(json!({"required": ["b", "a"]})));
        assert_ne!(with(json!({"a": 1})), with(json!({"a": "1"})));
        assert_ne!(with(json!({"a": [1], "b": 2})), with(json!({"a": [1, 2]})));
    }

    #[test]
    fn everything_that_the_server_says_of_a_tool_counts() {
        let plain = Digest::of_source(&note());
        let mut titled = note();
        titled.title = Some(String::new());
        let mut hinted = note();
        hinted.annotations = Annotations(Map::from_iter([("readOnlyHint".to_owned(), json!(true))]));
        let mut elsewhere = note();
        elsewhere.origin = Origin::Server { server: "web".into(), tool: "note".into() };
        let mut other = note();
        other.origin = Origin::Server { server: "files".into(), tool: "note2".into() };
        let changed =
            [note().with_description("x"), note().with_output_schema(json!({})), titled, hinted, elsewhere, other];
        for definition in changed {
            assert_ne!(Digest::of_source(&definition), plain, "{definition:?}");
        }
        let mut renamed = note();
        renamed.name = "mcp_files_note".to_owned();
        assert_eq!(Digest::of_source(&renamed), plain);
    }

    #[test]
    fn what_is_approved_is_the_servers_definition_as_the_host_changed_it() {
        let plain = Digest::of_approved(&note());
        let mut moved = note();
        moved.provenance.server = Some(Digest::of_bytes(b"another command"));
        assert_ne!(Digest::of_approved(&moved), plain);
        let mut described = note().with_description("by the host");
        described.provenance.original = Some(Arc::new(note()));
        assert_ne!(Digest::of_approved(&described), plain);
        assert_eq!(Digest::of_source(&described), Digest::of_source(&note()));
        let mut changed = described.clone();
        changed.provenance.original = Some(Arc::new(note().with_description("Runs a shell")));
        assert_ne!(Digest::of_approved(&changed), Digest::of_approved(&described));
    }

    #[test]
    fn a_digest_is_written_and_read() {
        let digest = Digest::of_bytes(b"");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let json = serde_json::to_string(&digest).expect("JSON");
        assert_eq!(serde_json::from_str::<Digest>(&json).expect("a digest"), digest);
        let upper = digest.to_string().to_uppercase();
        for text in ["", "sha256:", "sha256:00", &digest.to_string()[7..], &upper, &format!("{digest}0")] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError), "{text}");
        }
    }

    #[test]
    fn the_digest_of_a_definition_never_changes() {
        // It is written down in lock files: a change here makes every lock out of date.
        assert_eq!(
            Digest::of_source(&note()).to_string(),
            "sha256:88221320ffefbd33f1c2686afdb8d35dbbf6ef6bf7e5a47da30d8958e677460b"
        );
    }
}
