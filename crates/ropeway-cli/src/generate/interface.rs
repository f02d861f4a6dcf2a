//! A server as generated code sees it: its name, its tools and how to reach them.

use ropeway_core::tool::ToolDefinition;
use serde_json::Value;

/// A server and the selected tools.
#[derive(Clone, Debug)]
pub(crate) struct ServerInterface {
    /// The configured name.
    pub(crate) alias: String,
    /// The name and version that the server sent.
    pub(crate) title: String,
    /// `ropeway` options that select the server.
    pub(crate) options: Vec<String>,
    pub(crate) tools: Vec<ToolInterface>,
}

/// A tool of a server.
#[derive(Clone, Debug)]
pub(crate) struct ToolInterface {
    /// The name without the server, as gateways in front of one server show it.
    pub(crate) name: String,
    /// The name for `ropeway call`.
    pub(crate) call_name: String,
    /// The name for [`Bridge::call`](ropeway::Bridge::call).
    pub(crate) library_name: String,
    pub(crate) description: String,
    pub(crate) input: Value,
    pub(crate) output: Option<Value>,
}

impl ToolInterface {
    pub(crate) fn new(server: &str, name: &str, call_name: String, definition: &ToolDefinition) -> Self {
        Self {
            name: name.to_owned(),
            call_name,
            library_name: format!("{server}.{}", definition.own_name()),
            description: definition.description.clone().unwrap_or_default(),
            input: Value::clone(&definition.input_schema),
            output: definition.output_schema.as_deref().cloned(),
        }
    }
}
