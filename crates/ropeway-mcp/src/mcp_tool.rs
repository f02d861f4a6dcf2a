//! A server's tool, for a model to call.

use std::sync::Arc;

use super::call;
use super::connection::Connection;
use super::tools;
use ropeway_core::tool::{
    ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput, is_same_definition,
};

/// Adds a prefix to a tool's name.
pub(crate) fn with_prefix(definition: &Arc<ToolDefinition>, prefix: Option<&str>) -> Arc<ToolDefinition> {
    let mut definition = definition.clone();
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        let renamed = Arc::make_mut(&mut definition);
        renamed.name = format!("{prefix}_{}", renamed.name);
    }
    definition
}

/// A server's tool, for a model to call.
pub(crate) struct McpTool<K> {
    pub(crate) definition: Arc<ToolDefinition>,
    pub(crate) connection: Arc<Connection>,
    /// Keeps the connection open, unless it is `()`.
    pub(crate) _keep_alive: K,
}

/// Fails if the server's tool definition differs from this one. Fetches the tool list if it is stale.
pub(crate) async fn check_unchanged(
    connection: &Arc<Connection>,
    definition: &ToolDefinition,
    cx: &CallContext,
) -> Result<(), CallError> {
    let current = tools::list(connection, cx).await?;
    let tool = || definition.name.clone();
    match current.get(definition.own_name()) {
        Some(listed) if is_same_definition(&listed.definition, definition) => Ok(()),
        Some(_) => Err(CallError::Changed { tool: tool() }),
        None => Err(CallError::UnknownTool { tool: tool(), nearest: Vec::new() }),
    }
}

impl<K: Send + Sync + 'static> Tool for McpTool<K> {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        ArgumentMapping::Verbatim
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let name = self.definition.own_name();
        Box::pin(async move {
            if cx.requires_unchanged() {
                check_unchanged(&self.connection, &self.definition, cx).await?;
            }
            call::call_tool(&self.connection, name, arguments, cx).await
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Mcp;
    use ropeway_config::ServerConfig;
    use ropeway_core::tool::{Arguments, CallContext, CallError};
    use ropeway_testing::{self as testing, Script};

    #[tokio::test]
    async fn a_detached_tool_does_not_keep_the_connection_open() {
        let server = Mcp::new(ServerConfig::new("s", testing::in_process(Script::default())));
        server.connect().await.expect("a connection");
        let tools = server.detached_tools().await.expect("tools");
        let echo = tools.iter().find(|tool| tool.definition().name == "echo").expect("a tool");
        let call = async || {
            let arguments = Arguments::from_iter([("message".to_owned(), "hi".into())]);
            echo.call(arguments, &CallContext::default()).await
        };
        assert_eq!(call().await.expect("an answer").plain_text().as_deref(), Some("hi"));
        let mut state = server.state();
        drop(server);
        while state.changed().await.is_ok() && !matches!(*state.borrow(), crate::ConnectionState::Closed) {}
        assert!(matches!(call().await, Err(CallError::NotConnected { .. })));
    }
}
