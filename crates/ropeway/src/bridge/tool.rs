//! A server's tool, as the bridge hands it out: it ends with the bridge and can wake a server that sleeps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::slot::Slot;
use crate::tool::{Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput};

/// A server's tool. It does not keep the server: a registry that outlives its bridge holds tools that say so.
pub(super) struct BridgeTool {
    /// Where it differs from the connection's.
    definition: Option<ToolDefinition>,
    tool: Arc<dyn Tool>,
    slot: Weak<Slot>,
}

impl BridgeTool {
    /// `tool` is the connection's, `slot` the place that it comes from.
    pub(super) fn new(tool: Arc<dyn Tool>, slot: &Arc<Slot>) -> Self {
        // A shared connection may have been made under another name.
        let definition = match &tool.definition().origin {
            Origin::Server { server, tool: name } if server != slot.alias() => {
                let origin = Origin::Server { server: slot.alias().clone(), tool: name.clone() };
                Some(ToolDefinition { origin, ..tool.definition().clone() })
            }
            _ => None,
        };
        Self { definition, tool, slot: Arc::downgrade(slot) }
    }

    /// A shared connection may know the server by another name.
    fn named(&self, error: CallError) -> CallError {
        match &self.definition().origin {
            Origin::Server { server, .. } => error.of_server(server),
            Origin::Local => error,
        }
    }

    fn gone(&self) -> CallError {
        match &self.definition().origin {
            Origin::Server { server, .. } => CallError::NotConnected { server: server.clone() },
            Origin::Local => CallError::UnknownTool { tool: self.definition().name.clone(), nearest: Vec::new() },
        }
    }
}

impl Tool for BridgeTool {
    fn definition(&self) -> &ToolDefinition {
        self.definition.as_ref().unwrap_or_else(|| self.tool.definition())
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            let slot = self.slot.upgrade().ok_or_else(|| self.gone())?;
            let (gate, clocks) = (slot.gate(), slot.clocks());
            let call = async move {
                slot.wake().await?;
                // Not held while the tool works: dropping the bridge must end the call.
                drop(slot);
                self.tool.call(arguments, &with_clocks(cx, clocks)).await
            };
            match gate.pass(call).await {
                Some(outcome) => outcome.map_err(|error| self.named(error)),
                None => Err(self.gone()),
            }
        })
    }
}

/// A shared connection has the clocks of whoever made it; ours are said with the call.
fn with_clocks(cx: &CallContext, clocks: Option<(Duration, Duration)>) -> CallContext {
    let Some((idle, total)) = clocks else { return cx.clone() };
    // The call keeps the name that it has, also one that is yet to be made up.
    cx.id();
    let mut cx = cx.clone();
    if cx.idle_timeout().is_none() {
        cx = cx.with_idle_timeout(idle);
    }
    let deadline = tokio::time::Instant::now() + total;
    if cx.deadline().is_none_or(|at| at > deadline) {
        cx = cx.with_deadline(deadline);
    }
    cx
}
