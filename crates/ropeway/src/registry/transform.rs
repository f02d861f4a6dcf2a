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

    /// Returns `false` if arguments are never hidden or mapped, so that a gateway can pass them on as they are.
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

/// A common change of a tool, as a [`Transformer`].
///
/// # Examples
///
/// ```
/// use ropeway::registry::{ToolTransform, Transformer};
/// use ropeway::tool::ToolDefinition;
///
/// let renamed = ToolTransform::rename("see").transform(ToolDefinition::new("look"));
/// assert_eq!(renamed.map(|tool| tool.name).as_deref(), Some("see"));
/// ```
#[derive(Clone, Debug)]
pub struct ToolTransform(TransformKind);

#[derive(Clone, Debug)]
enum TransformKind {
    PrefixName(String),
    Rename(String),
    Describe(String),
    PrefixDescription(String),
    HideArguments(Vec<String>),
    PresetArguments(Map<String, Value>),
    ProviderOptions { provider: String, options: Value },
}

impl ToolTransform {
    /// Adds a prefix to the name of a tool.
    pub fn prefix_name(prefix: impl Into<String>) -> Self {
        Self(TransformKind::PrefixName(prefix.into()))
    }

    /// Replaces the name of a tool.
    pub fn rename(name: impl Into<String>) -> Self {
        Self(TransformKind::Rename(name.into()))
    }

    /// Replaces the description of a tool.
    pub fn describe(description: impl Into<String>) -> Self {
        Self(TransformKind::Describe(description.into()))
    }

    /// Prepends text, such as `[MCP: web] `, to the description of a tool.
    pub fn prefix_description(prefix: impl Into<String>) -> Self {
        Self(TransformKind::PrefixDescription(prefix.into()))
    }

    /// Hides arguments from models. Calls cannot set them.
    pub fn hide_arguments<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self(TransformKind::HideArguments(names.into_iter().map(Into::into).collect()))
    }

    /// Sets arguments to fixed values, and hides them from models.
    pub fn preset_arguments(values: Map<String, Value>) -> Self {
        Self(TransformKind::PresetArguments(values))
    }

    /// Sets options of a tool for one provider, such as `strict`. Objects are merged key by key.
    pub fn provider_options(provider: impl Into<String>, options: Value) -> Self {
        Self(TransformKind::ProviderOptions { provider: provider.into(), options })
    }
}

impl Transformer for ToolTransform {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        match &self.0 {
            TransformKind::PrefixName(prefix) => definition.name.insert_str(0, prefix),
            TransformKind::Rename(name) => definition.name.clone_from(name),
            TransformKind::Describe(description) => definition.description = Some(description.clone()),
            TransformKind::PrefixDescription(prefix) => {
                definition.description = Some(match definition.description {
                    Some(description) => format!("{prefix}{description}"),
                    None => prefix.trim_end().to_owned(),
                });
            }
            TransformKind::HideArguments(_) | TransformKind::PresetArguments(_) => {
                schema_arguments::hide(&mut definition.input_schema, &self.hidden_arguments());
            }
            TransformKind::ProviderOptions { provider, options } => {
                match (definition.provider_options.get_mut(provider), options) {
                    (Some(Value::Object(before)), Value::Object(options)) => before.extend(options.clone()),
                    (Some(before), options) => before.clone_from(options),
                    (None, options) => {
                        definition.provider_options.insert(provider.clone(), options.clone());
                    }
                }
            }
        }
        Some(definition)
    }

    fn hidden_arguments(&self) -> Vec<String> {
        match &self.0 {
            TransformKind::HideArguments(names) => names.clone(),
            TransformKind::PresetArguments(values) => values.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    fn transform_arguments(&self, arguments: &mut Arguments) {
        if let TransformKind::PresetArguments(values) = &self.0 {
            arguments.extend(values.clone());
        }
    }

    fn maps_arguments(&self) -> bool {
        matches!(self.0, TransformKind::HideArguments(_) | TransformKind::PresetArguments(_))
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
        assert_eq!(
            ToolTransform::prefix_name("web-").transform(look()).map(|tool| tool.name).as_deref(),
            Some("web-look")
        );
        assert_eq!(ToolTransform::rename("see").transform(look()).map(|tool| tool.name).as_deref(), Some("see"));
    }

    #[test]
    fn descriptions_are_prefixed_and_replaced() {
        assert_eq!(ToolTransform::prefix_description("[MCP: web] ").transform(look()), described("[MCP: web] Looks."));
        assert_eq!(ToolTransform::describe("Sees.").transform(look()), described("Sees."));
        let bare = ToolTransform::prefix_description("[MCP: web] ").transform(ToolDefinition::new("look"));
        assert_eq!(bare, described("[MCP: web]"));
    }

    #[test]
    fn provider_options_are_merged_by_provider() {
        let strict = ToolTransform::provider_options("openai", json!({"strict": true, "a": 1}));
        let loose = ToolTransform::provider_options("openai", json!({"strict": false}));
        let other = ToolTransform::provider_options("anthropic", json!({"cache_control": {"type": "ephemeral"}}));
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
