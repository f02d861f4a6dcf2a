//! Transformers for tool definitions and arguments.

use serde_json::Value;

use super::schema_arguments;
use ropeway_config::ToolOverride;
use ropeway_core::tool::{Arguments, ToolDefinition};

/// Changes a tool's definition, and maps arguments back. Closures from `ToolDefinition` to `Option<ToolDefinition>`
/// implement it, and so does [`ToolOverride`] for common changes.
///
/// # Examples
///
/// ```
/// use ropeway::config::ToolOverride;
/// use ropeway::registry::Transformer;
/// use ropeway::tool::ToolDefinition;
///
/// let renamed = ToolOverride::default().with_name("see".to_owned()).transform(ToolDefinition::new("look"));
/// assert_eq!(renamed.map(|tool| tool.name).as_deref(), Some("see"));
/// ```
#[doc(alias("ToolTransformer", "PrefixToolTransformer"))]
pub trait Transformer: Send + Sync {
    /// Returns the changed definition, or `None` to leave the tool out.
    fn transform(&self, definition: ToolDefinition) -> Option<ToolDefinition>;

    /// Returns the argument names that models do not see. They are removed from calls before validation.
    fn hidden_arguments(&self) -> Vec<String> {
        Vec::new()
    }

    /// Maps arguments for the changed definition to the tool's own arguments.
    fn transform_arguments(&self, _arguments: &mut Arguments) {}

    /// Returns `false` if arguments are never hidden or mapped, so that a gateway can forward them unchanged.
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

/// Applies the override to every tool.
impl Transformer for ToolOverride {
    fn transform(&self, mut definition: ToolDefinition) -> Option<ToolDefinition> {
        if let Some(name) = &self.name {
            definition.name.clone_from(name);
        }
        if let Some(prefix) = &self.name_prefix {
            definition.name.insert_str(0, prefix);
        }
        if let Some(description) = &self.description {
            definition.description = Some(description.clone());
        }
        if let Some(prefix) = &self.description_prefix {
            prefix_description(&mut definition, prefix);
        }
        if self.maps_arguments() {
            schema_arguments::hide(&mut definition.input_schema, &self.hidden_arguments());
        }
        for (provider, options) in &self.provider_options {
            match (definition.provider_options.get_mut(provider), options) {
                (Some(Value::Object(before)), Value::Object(options)) => before.extend(options.clone()),
                (Some(before), options) => before.clone_from(options),
                (None, options) => {
                    definition.provider_options.insert(provider.clone(), options.clone());
                }
            }
        }
        Some(definition)
    }

    fn hidden_arguments(&self) -> Vec<String> {
        self.hide.iter().chain(self.preset.keys()).cloned().collect()
    }

    fn transform_arguments(&self, arguments: &mut Arguments) {
        arguments.extend(self.preset.clone());
    }

    fn maps_arguments(&self) -> bool {
        !self.hide.is_empty() || !self.preset.is_empty()
    }
}

/// Prepends text, such as `[MCP: web] `, to a tool's description.
pub(super) fn prefix_description(definition: &mut ToolDefinition, prefix: &str) {
    definition.description = Some(match &definition.description {
        Some(description) => format!("{prefix}{description}"),
        None => prefix.trim_end().to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn look() -> ToolDefinition {
        ToolDefinition::new("look").with_description("Looks.")
    }

    fn described(description: &str) -> Option<ToolDefinition> {
        Some(look().with_description(description))
    }

    #[test]
    fn names_are_replaced_and_prefixed() {
        let name = |change: ToolOverride| change.transform(look()).map(|tool| tool.name);
        let renamed = ToolOverride::default().with_name("see".to_owned());
        assert_eq!(name(renamed.clone()).as_deref(), Some("see"));
        assert_eq!(name(renamed.with_name_prefix("eye_".to_owned())).as_deref(), Some("eye_see"));
        assert_eq!(name(ToolOverride::default().with_name_prefix("eye_".to_owned())).as_deref(), Some("eye_look"));
    }

    #[test]
    fn descriptions_are_prefixed_and_replaced() {
        let prefix = ToolOverride::default().with_description_prefix("[MCP: web] ".to_owned());
        assert_eq!(prefix.transform(look()), described("[MCP: web] Looks."));
        assert_eq!(prefix.transform(ToolDefinition::new("look")), described("[MCP: web]"));
        let sees = ToolOverride::default().with_description("Sees.".to_owned());
        assert_eq!(sees.transform(look()), described("Sees."));
        let both = prefix.with_description("Sees.".to_owned());
        assert_eq!(both.transform(look()), described("[MCP: web] Sees."));
    }

    #[test]
    fn provider_options_are_merged_by_provider() {
        let options = |provider: &str, options: Value| {
            ToolOverride::default().with_provider_options(BTreeMap::from([(provider.to_owned(), options)]))
        };
        let strict = options("openai", json!({"strict": true, "a": 1}));
        let loose = options("openai", json!({"strict": false}));
        let other = options("anthropic", json!({"cache_control": {"type": "ephemeral"}}));
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
