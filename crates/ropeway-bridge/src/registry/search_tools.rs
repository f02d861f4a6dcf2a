//! Tool search: the built-in tools `find_tools` and `call_tool`, for more tools than a request can list.

use serde_json::{Value, json};

use super::tools::Registry;
use ropeway_core::tool::{Annotations, Arguments, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput};

/// The name for the tool that finds tools, unless another tool has it.
pub const FIND_TOOLS: &str = "find_tools";

/// The name for the tool that calls found tools, unless another tool has it.
pub const CALL_TOOL: &str = "call_tool";

/// Default and maximum search result counts.
const DEFAULT_RESULTS: usize = 5;
const MAX_RESULTS: usize = 20;

/// Searches tools by keywords.
pub struct FindTools {
    definition: ToolDefinition,
    tools: Registry,
}

impl FindTools {
    /// Creates the tool. `unlisted` counts the tools that only a search finds.
    pub fn new(name: &str, call_tool: &str, tools: Registry, unlisted: usize) -> Self {
        let description = format!(
            "Find tools by what they do. {unlisted} tools are available that are not listed here. Returns the names, descriptions \
             and input schemas of the best matches; call them with `{call_tool}`."
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words for what the tool should do, such as `create github issue`."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": format!("Maximum number of tools; {DEFAULT_RESULTS} by default.")},
            },
            "required": ["query"],
        });
        let mut definition = ToolDefinition::new(name).with_description(description).with_input_schema(schema);
        definition.annotations =
            Annotations(serde_json::Map::from_iter([("readOnlyHint".to_owned(), Value::Bool(true))]));
        Self { definition, tools }
    }

    /// Returns this tool, restricted to some of the tools.
    pub fn restricted(&self, name: &str, call_tool: &str, has: impl Fn(&str) -> bool) -> Self {
        let tools = self.tools.filter(|definition| has(&definition.name));
        let count = tools.len();
        Self::new(name, call_tool, tools, count)
    }

    /// Returns the best matches as text for a model.
    pub fn find(&self, arguments: &Arguments) -> String {
        let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
        let limit = arguments.get("limit").and_then(Value::as_u64).map_or(DEFAULT_RESULTS, |limit| limit as usize);
        let hits = self.tools.search(query, limit.clamp(1, MAX_RESULTS));
        if hits.is_empty() {
            let servers: Vec<&str> = self.tools.servers().into_iter().map(|server| server.as_str()).collect();
            let hint = if servers.is_empty() { String::new() } else { format!(" Servers: {}.", servers.join(", ")) };
            return format!("No tool matches `{query}`. Try other words.{hint}");
        }
        let found: Vec<Value> = hits.iter().map(|(tool, _)| describe(tool.definition())).collect();
        Value::Array(found).to_string()
    }
}

/// Returns a search result as JSON.
fn describe(definition: &ToolDefinition) -> Value {
    let mut description = json!({"name": definition.name});
    if let Some(text) = &definition.description {
        description["description"] = json!(text);
    }
    description["input_schema"] = definition.input_schema.read().into_owned();
    description
}

impl Tool for FindTools {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        Some(format!("Find tools for {}", arguments.get("query")?))
    }

    fn call<'a>(&'a self, arguments: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move { Ok(ToolOutput::text(self.find(&arguments))) })
    }
}

/// Calls a tool by name. Only its definition is used: agents and gateways resolve its calls to the named tool.
pub struct CallTool(ToolDefinition);

impl CallTool {
    /// Creates the tool, which models use after `find_tools`.
    pub fn new(name: &str, find_tools: &str) -> Self {
        let description = format!("Call a tool found with `{find_tools}`.");
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name of the tool."},
                "arguments": {"type": "object", "description": "Arguments that match the tool's input schema."},
            },
            "required": ["name", "arguments"],
        });
        Self(ToolDefinition::new(name).with_description(description).with_input_schema(schema))
    }
}

impl Tool for CallTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let error = CallError::UnknownTool { tool: self.0.name.clone(), nearest: Vec::new() };
        Box::pin(std::future::ready(Err(error)))
    }
}
