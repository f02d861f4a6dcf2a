//! A server's resources and prompts as tools, for models that know nothing else.

use std::sync::{Arc, Weak};

use serde_json::{Map, Value, json};

use super::slot::Slot;
use crate::content::ContentPart;
use crate::mcp::Prompt;
use crate::tool::{
    Annotations, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput,
};

/// What such a tool does.
#[derive(Clone, Debug)]
enum Deed {
    ListResources,
    ReadResource,
    GetPrompt(String),
}

/// A resource or a prompt of a server, as a tool.
struct Extra {
    definition: ToolDefinition,
    deed: Deed,
    slot: Weak<Slot>,
}

/// The tools for what the entry asks for and the server has, but for those that the server has itself.
pub(super) fn tools(
    slot: &Arc<Slot>,
    has_resources: bool,
    prompts: &[Prompt],
    own: &[Arc<dyn Tool>],
) -> Vec<Arc<dyn Tool>> {
    let mut tools = Vec::new();
    if slot.entry.resources.tools && has_resources {
        tools.extend([list_resources(slot), read_resource(slot)]);
    }
    if slot.entry.prompts.tools {
        tools.extend(prompts.iter().map(|prompt| get_prompt(slot, prompt)));
    }
    tools.retain(|tool| own.iter().all(|known| known.definition().name != tool.definition().name));
    tools
}

fn list_resources(slot: &Arc<Slot>) -> Arc<dyn Tool> {
    let description = format!("List the resources of server `{}`, and the templates of their URIs.", slot.alias());
    extra(slot, "list_resources", Deed::ListResources, ToolDefinition::new("").with_description(description))
}

fn read_resource(slot: &Arc<Slot>) -> Arc<dyn Tool> {
    let description = format!(
        "Read a resource of server `{}` by its URI: one that is listed, or one that an answer of its tools links to.",
        slot.alias()
    );
    let schema = json!({
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The URI of the resource."}},
        "required": ["uri"],
    });
    let definition = ToolDefinition::new("").with_description(description).with_input_schema(schema);
    extra(slot, "read_resource", Deed::ReadResource, definition)
}

fn get_prompt(slot: &Arc<Slot>, prompt: &Prompt) -> Arc<dyn Tool> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in &prompt.arguments {
        let mut property = json!({"type": "string"});
        if let Some(description) = &argument.description {
            property["description"] = json!(description);
        }
        properties.insert(argument.name.clone(), property);
        if argument.required {
            required.push(argument.name.clone());
        }
    }
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let mut description = format!("Get the prompt `{}` of server `{}`.", prompt.name, slot.alias());
    if let Some(more) = &prompt.description {
        description = format!("{description} {more}");
    }
    let definition = ToolDefinition::new("").with_description(description).with_input_schema(schema);
    extra(slot, &format!("get_prompt_{}", prompt.name), Deed::GetPrompt(prompt.name.clone()), definition)
}

fn extra(slot: &Arc<Slot>, name: &str, deed: Deed, mut definition: ToolDefinition) -> Arc<dyn Tool> {
    definition.name = name.to_owned();
    definition.origin = Origin::Server { server: slot.alias().clone(), tool: name.into() };
    definition.annotations = Annotations(Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]));
    definition.provenance.trust_hints = true;
    Arc::new(Extra { definition, deed, slot: Arc::downgrade(slot) })
}

impl Tool for Extra {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            let mcp = self.slot.upgrade().and_then(|slot| slot.mcp());
            let mcp = mcp.ok_or_else(|| match &self.definition.origin {
                Origin::Server { server, .. } => CallError::NotConnected { server: server.clone() },
                Origin::Local => CallError::Cancelled,
            })?;
            match &self.deed {
                Deed::ListResources => {
                    let resources = mcp.list_resources().await?;
                    let templates = mcp.list_resource_templates().await?;
                    Ok(ToolOutput::structured(json!({"resources": resources, "templates": templates})))
                }
                Deed::ReadResource => {
                    let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
                    let contents = mcp.read_resource(uri, cx).await?;
                    Ok(contents.into_iter().map(ContentPart::Resource).collect::<Vec<_>>().into())
                }
                Deed::GetPrompt(name) => {
                    let prompt = mcp.get_prompt(name, arguments, cx).await?;
                    Ok(prompt.messages.into_iter().map(|message| message.content).collect::<Vec<_>>().into())
                }
            }
        })
    }
}
