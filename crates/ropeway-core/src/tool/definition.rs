//! Tool definition: name, description, schemas and annotations.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::digest::Digest;
use super::schema::Schema;

use crate::conversions::conversions;
use crate::setters::setters;

/// A server's name in the configuration.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Alias(Arc<str>);

impl Alias {
    /// Creates an alias.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the alias as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Alias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for Alias {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

conversions!(Alias {
    name: &str => Self::new(name);
    name: String => Self::new(name);
});

/// Where a tool comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Origin {
    /// A host function.
    #[serde(serialize_with = "local")]
    Local,
    /// An MCP server's tool.
    Server {
        /// The server's alias.
        server: Alias,
        /// The server's own name for the tool.
        tool: Arc<str>,
    },
}

fn local<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("local")
}

/// A tool's annotations (<https://modelcontextprotocol.io/specification/2025-06-18/schema#toolannotations>). They are the
/// server's hints and must not be relied on for security.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Annotations(pub Map<String, Value>);

impl Annotations {
    fn hint(&self, name: &str, default: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// Returns the `readOnlyHint`; `false` by default.
    pub fn read_only(&self) -> bool {
        self.hint("readOnlyHint", false)
    }

    /// Returns the `destructiveHint`; `true` by default, `false` for read-only tools.
    pub fn destructive(&self) -> bool {
        !self.read_only() && self.hint("destructiveHint", true)
    }

    /// Returns the `idempotentHint`; `false` by default, `true` for read-only tools.
    pub fn idempotent(&self) -> bool {
        self.read_only() || self.hint("idempotentHint", false)
    }

    /// Returns the `openWorldHint`; `true` by default.
    pub fn open_world(&self) -> bool {
        self.hint("openWorldHint", true)
    }
}

/// A definition's source, as recorded by the host. Never serialized.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provenance {
    /// Whether the host trusts the server's [annotations](ToolDefinition::annotations).
    pub trust_hints: bool,
    /// The server's prefix in [`ToolDefinition::name`].
    pub prefix: Arc<str>,
    /// Digest of the server's command or URL.
    pub server: Option<Digest>,
    /// The server's definition, if the host changed more than the name.
    pub original: Option<Arc<ToolDefinition>>,
}

/// A tool as models see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolDefinition {
    /// Name that models call the tool by.
    pub name: String,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does and when to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema for the arguments, as sent by the server.
    pub input_schema: Schema,
    /// JSON Schema for the structured result, if the server sent one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// The server's annotations.
    pub annotations: Annotations,
    /// The tool's origin.
    pub origin: Origin,
    /// Provider-specific options, by provider.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub provider_options: Map<String, Value>,
    /// The `_meta` that the server sent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// Other fields that the server sent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// The definition's source.
    #[serde(skip)]
    pub provenance: Provenance,
}

impl ToolDefinition {
    /// Creates a local tool's definition that accepts any object.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: Schema::default(),
            output_schema: None,
            annotations: Annotations::default(),
            origin: Origin::Local,
            provider_options: Map::new(),
            meta: None,
            extra: Map::new(),
            provenance: Provenance::default(),
        }
    }

    /// Returns the server's definition, before the host changed it.
    pub fn original(&self) -> &Self {
        self.provenance.original.as_deref().unwrap_or(self)
    }

    /// Returns the server's own name for the tool, or a local tool's name.
    pub fn own_name(&self) -> &str {
        match &self.origin {
            Origin::Server { tool, .. } => tool,
            Origin::Local => &self.name,
        }
    }

    /// Returns the name to display: the title, the title in the annotations, or the name.
    pub fn display_name(&self) -> &str {
        let annotated = || self.annotations.0.get("title").and_then(Value::as_str);
        self.title.as_deref().or_else(annotated).unwrap_or(&self.name)
    }
}

setters!(ToolDefinition {
    /// Sets the name that models call the tool by. The server still hears its [own name](Self::own_name).
    with_name(name: impl Into<String>) => name = name.into();
    /// Sets the description.
    with_description(description: impl Into<String>) => description = Some(description.into());
    /// Sets the schema of the arguments.
    with_input_schema(schema: Value) => input_schema = schema.into();
    /// Sets the schema of the structured result.
    with_output_schema(schema: Value) => output_schema = Some(schema.into());
});

/// Returns `true` if title, description, schemas and annotations are equal. Names are ignored.
pub fn is_same_definition(old: &ToolDefinition, new: &ToolDefinition) -> bool {
    old.title == new.title
        && old.description == new.description
        && old.input_schema == new.input_schema
        && old.output_schema == new.output_schema
        && old.annotations == new.annotations
}
