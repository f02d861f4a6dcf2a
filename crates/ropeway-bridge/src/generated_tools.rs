//! Tools with which models access a server's resources and prompts.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use ropeway_config::ServerEntry;
use ropeway_core::content::ContentPart;
use ropeway_core::tool::{
    Alias, Annotations, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput,
};
use ropeway_mcp::{Mcp, Prompt};

/// Returns the server's connection, if it is started.
pub(super) type Connection = Arc<dyn Fn() -> Option<Mcp> + Send + Sync>;

#[derive(Clone, Debug)]
enum ToolAction {
    ListResources,
    ReadResource,
    GetPrompt(String),
}

/// A bridge tool for a server's resource or prompt.
struct GeneratedTool {
    definition: ToolDefinition,
    server: Alias,
    action: ToolAction,
    connection: Connection,
}

/// Returns the tools that the entry enables. A server tool with the same name takes precedence.
pub(super) fn generate(
    entry: &ServerEntry,
    connection: &Connection,
    has_resources: bool,
    prompts: &[Prompt],
    server_tools: &[Arc<dyn Tool>],
) -> Vec<Arc<dyn Tool>> {
    let mut tools = Vec::new();
    if entry.resources.tools && has_resources {
        tools.extend([list_resources(&entry.alias), read_resource(&entry.alias)]);
    }
    if entry.prompt_tools {
        tools.extend(prompts.iter().map(|prompt| get_prompt(&entry.alias, prompt)));
    }
    let is_free = |(definition, _): &(ToolDefinition, ToolAction)| {
        server_tools.iter().all(|tool| tool.definition().name != definition.name)
    };
    let tool = |(mut definition, action): (ToolDefinition, ToolAction)| -> Arc<dyn Tool> {
        let server = entry.alias.clone();
        definition.origin = Origin::Server { server: server.clone(), tool: definition.name.as_str().into() };
        definition.annotations = Annotations(Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]));
        definition.provenance.trust_hints = true;
        Arc::new(GeneratedTool { definition, server, action, connection: connection.clone() })
    };
    tools.into_iter().filter(is_free).map(tool).collect()
}

fn list_resources(server: &Alias) -> (ToolDefinition, ToolAction) {
    let description = format!("List the resources of server `{server}`, and the templates of their URIs.");
    (ToolDefinition::new("list_resources").with_description(description), ToolAction::ListResources)
}

fn read_resource(server: &Alias) -> (ToolDefinition, ToolAction) {
    let description = format!(
        "Read a resource of server `{server}` by its URI: one that is listed, or one that an answer of its tools links to."
    );
    let schema = json!({
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "The URI of the resource."}},
        "required": ["uri"],
    });
    let definition = ToolDefinition::new("read_resource").with_description(description).with_input_schema(schema);
    (definition, ToolAction::ReadResource)
}

fn get_prompt(server: &Alias, prompt: &Prompt) -> (ToolDefinition, ToolAction) {
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
    let mut description = format!("Get the prompt `{}` of server `{server}`.", prompt.name);
    if let Some(more) = &prompt.description {
        description = format!("{description} {more}");
    }
    let definition = ToolDefinition::new(format!("get_prompt_{}", prompt.name));
    let definition = definition.with_description(description).with_input_schema(schema);
    (definition, ToolAction::GetPrompt(prompt.name.clone()))
}

impl Tool for GeneratedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            let mcp = (self.connection)();
            let mcp = mcp.ok_or_else(|| CallError::NotConnected { server: self.server.clone() })?;
            match &self.action {
                ToolAction::ListResources => {
                    let resources = mcp.list_resources().await?;
                    let templates = mcp.list_resource_templates().await?;
                    Ok(ToolOutput::structured(json!({"resources": resources, "templates": templates})))
                }
                ToolAction::ReadResource => {
                    let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
                    let contents = mcp.read_resource_with(uri, cx).await?;
                    Ok(contents.into_iter().map(ContentPart::Resource).collect::<Vec<_>>().into())
                }
                ToolAction::GetPrompt(name) => {
                    let prompt = mcp.get_prompt_with(name, arguments, cx).await?;
                    Ok(prompt.messages.into_iter().map(|message| message.content).collect::<Vec<_>>().into())
                }
            }
        })
    }
}
