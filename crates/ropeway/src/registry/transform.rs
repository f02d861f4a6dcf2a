//! Transformers of tool definitions and arguments.

use serde_json::{Map, Value};

use super::schema_arguments;
use crate::tool::{Arguments, ToolDefinition};

/// Changes the definition of a tool, and maps arguments back. Closures from `ToolDefinition` to `Option<ToolDefinition>` implement
/// it.
pub trait Transformer: Send + Sync {
    /// Returns the changed definition, or `None` to leave the tool out.
    fn transform(&self, definition: ToolDefinition) -> Option<ToolDefinition>;

    /// Returns the names of arguments that models do not see. They are removed from calls before validation.
    fn hidden_arguments(&self) -> Vec<String> {
        Vec::new()
    }

    /// Maps arguments for the changed definition to arguments of the tool.
    fn transform_arguments(&self, _arguments: &mut Arguments) {}

    /// Returns `false` if the arguments stay as they are.
    #[doc(hidden)]
    fn maps_arguments(&self) -> bool {
        true
    }
}

impl<F: Fn(ToolDefinition) -> Option<ToolDefinition> + Send + Sync> Transformer for F {
    fn transform(&self, definition: ToolDefinition) -> Option<ToolDefinition> {
        self(definition)
    }

    fn maps_arguments(&self) -> bool {
        false
    }
}

/// Adds a prefix to the name of a tool.
#[derive(Clone, Debug)]
pub struct PrefixName(String);

impl PrefixName {
    /// Creates a transformer that prepends `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self(prefix.into())
    }
}

impl Transformer for PrefixName {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        definition.name.insert_str(0, &self.0);
        Some(definition)
    }

    fn maps_arguments(&self) -> bool {
        false
    }
}

/// Replaces the name of a tool.
#[derive(Clone, Debug)]
pub struct Rename(String);

impl Rename {
    /// Creates a transformer that sets the name to `name`.
    pub fn to(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl Transformer for Rename {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        definition.name.clone_from(&self.0);
        Some(definition)
    }

    fn maps_arguments(&self) -> bool {
        false
    }
}

/// Changes the description of a tool.
#[derive(Clone, Debug)]
pub enum Describe {
    /// Prepends text, such as `[MCP: web] `.
    Prefix(String),
    /// Replaces the description.
    Replace(String),
}

impl Transformer for Describe {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        definition.description = Some(match (self, definition.description) {
            (Self::Prefix(text), Some(description)) => format!("{text}{description}"),
            (Self::Prefix(text), None) => text.trim_end().to_owned(),
            (Self::Replace(text), _) => text.clone(),
        });
        Some(definition)
    }

    fn maps_arguments(&self) -> bool {
        false
    }
}

/// Hides arguments from models. Calls cannot set them.
#[derive(Clone, Debug)]
pub struct HideArguments(Vec<String>);

impl HideArguments {
    /// Creates a transformer that hides the arguments with these names.
    pub fn new<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl Transformer for HideArguments {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        schema_arguments::hide(&mut definition.input_schema, &self.0);
        Some(definition)
    }

    fn hidden_arguments(&self) -> Vec<String> {
        self.0.clone()
    }
}

/// Sets arguments to fixed values, and hides them from models.
#[derive(Clone, Debug)]
pub struct PresetArguments(Map<String, Value>);

impl PresetArguments {
    /// Creates a transformer that sets these arguments.
    pub fn new(values: Map<String, Value>) -> Self {
        Self(values)
    }
}

impl Transformer for PresetArguments {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        schema_arguments::hide(&mut definition.input_schema, &self.hidden_arguments());
        Some(definition)
    }

    fn hidden_arguments(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn transform_arguments(&self, arguments: &mut Arguments) {
        arguments.extend(self.0.clone());
    }
}

/// Sets provider-specific options of a tool, such as `strict`.
#[derive(Clone, Debug)]
pub struct ProviderOptions {
    provider: String,
    options: Value,
}

impl ProviderOptions {
    /// Creates a transformer that sets `options` for a provider. Objects are merged key by key.
    pub fn new(provider: impl Into<String>, options: Value) -> Self {
        Self { provider: provider.into(), options }
    }
}

impl Transformer for ProviderOptions {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        match (definition.provider_options.get_mut(&self.provider), &self.options) {
            (Some(Value::Object(before)), Value::Object(options)) => before.extend(options.clone()),
            (Some(before), options) => before.clone_from(options),
            (None, options) => {
                definition.provider_options.insert(self.provider.clone(), options.clone());
            }
        }
        Some(definition)
    }

    fn maps_arguments(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look() -> ToolDefinition {
        ToolDefinition::new("look").with_description("Looks.")
    }

    fn described(description: &str) -> Option<ToolDefinition> {
        Some(look().with_description(description))
    }

    #[test]
    fn names_are_prefixed_and_replaced() {
        assert_eq!(PrefixName::new("web-").transform(look()).map(|tool| tool.name).as_deref(), Some("web-look"));
        assert_eq!(Rename::to("see").transform(look()).map(|tool| tool.name).as_deref(), Some("see"));
    }

    #[test]
    fn descriptions_are_prefixed_and_replaced() {
        assert_eq!(Describe::Prefix("[MCP: web] ".into()).transform(look()), described("[MCP: web] Looks."));
        assert_eq!(Describe::Replace("Sees.".into()).transform(look()), described("Sees."));
        let bare = Describe::Prefix("[MCP: web] ".into()).transform(ToolDefinition::new("look"));
        assert_eq!(bare, described("[MCP: web]"));
    }

    #[test]
    fn provider_options_are_merged_by_provider() {
        let strict = ProviderOptions::new("openai", json!({"strict": true, "a": 1}));
        let loose = ProviderOptions::new("openai", json!({"strict": false}));
        let other = ProviderOptions::new("anthropic", json!({"cache_control": {"type": "ephemeral"}}));
        let definition = strict.transform(look()).and_then(|tool| loose.transform(tool));
        let definition = definition.and_then(|tool| other.transform(tool)).expect("a tool");
        assert_eq!(
            Value::Object(definition.provider_options),
            json!({"openai": {"strict": false, "a": 1}, "anthropic": {"cache_control": {"type": "ephemeral"}}})
        );
    }

    #[test]
    fn a_closure_is_a_transformer() {
        let nothing: &dyn Transformer = &|_: ToolDefinition| None;
        assert_eq!(nothing.transform(look()), None);
        assert_eq!(nothing.hidden_arguments(), [""; 0]);
    }
}
