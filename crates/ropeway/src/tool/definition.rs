//! A definition: a tool's name, description and schemas.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "bridge")]
use super::digest::Digest;
use super::schema::Schema;

/// Our short name for a server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Alias(Arc<str>);

impl Alias {
    /// Wraps a name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
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

impl From<&str> for Alias {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Alias {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// Where a tool comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Origin {
    /// A function of the host.
    #[serde(serialize_with = "local")]
    Local,
    /// A server's tool, with the server's own name for it.
    Server {
        /// Our name for the server.
        server: Alias,
        /// The server's name for the tool.
        tool: Arc<str>,
    },
}

fn local<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("local")
}

/// What a server says about a tool's behaviour. Hints from outside: never a reason to trust.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Annotations(pub Map<String, Value>);

impl Annotations {
    fn hint(&self, name: &str, default: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// The tool changes nothing.
    pub fn read_only(&self) -> bool {
        self.hint("readOnlyHint", false)
    }

    /// The tool may destroy something; assumed unless denied.
    pub fn destructive(&self) -> bool {
        !self.read_only() && self.hint("destructiveHint", true)
    }

    /// Calling it twice does no more than calling it once.
    pub fn idempotent(&self) -> bool {
        self.read_only() || self.hint("idempotentHint", false)
    }

    /// The tool reaches out to a world of its own; assumed unless denied.
    pub fn open_world(&self) -> bool {
        self.hint("openWorldHint", true)
    }
}

/// What the host knows about where a definition comes from. Neither models nor files see it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Provenance {
    /// Whether the host believes the server's [annotations](ToolDefinition::annotations).
    pub trust_hints: bool,
    /// What stands before the server's own name in the name that a model calls the tool by; empty when nothing does.
    pub prefix: Arc<str>,
    /// The command or URL that the server is reached by.
    #[cfg(feature = "bridge")]
    pub server: Option<Digest>,
    /// The definition as the server wrote it, where the host changed more than its name.
    pub original: Option<Arc<ToolDefinition>>,
}

/// A tool's name, description and schemas, as a model is told of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name that a model calls it by.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does and when to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments, untouched.
    pub input_schema: Schema,
    /// The JSON Schema of the structured result; absent means unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// Hints about behaviour.
    pub annotations: Annotations,
    /// Where the tool comes from.
    pub origin: Origin,
    /// Settings for a provider's tool JSON, by provider.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub provider_options: Map<String, Value>,
    /// The server's `_meta` for the tool.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// Every other field that the server sent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// Where the definition comes from, and how far it is believed.
    #[serde(skip)]
    pub provenance: Provenance,
}

impl ToolDefinition {
    /// A local tool that takes any object.
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

    /// Returns the definition as its server wrote it.
    pub fn original(&self) -> &Self {
        self.provenance.original.as_deref().unwrap_or(self)
    }

    /// Returns the server's own name for the tool; of a local tool its only one.
    pub fn own_name(&self) -> &str {
        match &self.origin {
            Origin::Server { tool, .. } => tool,
            Origin::Local => &self.name,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the schema of the arguments.
    #[must_use]
    pub fn with_input_schema(mut self, schema: Value) -> Self {
        self.input_schema = schema.into();
        self
    }

    /// Sets the schema of the structured result.
    #[must_use]
    pub fn with_output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema.into());
        self
    }

    /// The name to show to people: the title, the title among the annotations, or the name.
    pub fn display_name(&self) -> &str {
        let annotated = || self.annotations.0.get("title").and_then(Value::as_str);
        self.title.as_deref().or_else(annotated).unwrap_or(&self.name)
    }
}

/// Returns whether two definitions say the same: title, description, schemas and annotations. Names do not count.
pub fn is_same_definition(old: &ToolDefinition, new: &ToolDefinition) -> bool {
    old.title == new.title
        && old.description == new.description
        && old.input_schema == new.input_schema
        && old.output_schema == new.output_schema
        && old.annotations == new.annotations
}
