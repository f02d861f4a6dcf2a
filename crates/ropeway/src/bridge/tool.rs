//! A server's tool, as the bridge hands it out: it ends with the bridge and can wake a server that sleeps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::gate::{Gate, Shut};
use super::slot::Slot;
use crate::event::Event;
use crate::mcp::chain;
use crate::tool::{Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput};

/// A server's tool. It does not keep the server: a registry that outlives its bridge holds tools that say so.
pub(super) struct BridgeTool {
    /// Where it differs from the connection's.
    definition: Option<ToolDefinition>,
    tool: Arc<dyn Tool>,
    gate: Arc<Gate>,
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
        Self { definition, tool, gate: slot.gate().clone(), slot: Arc::downgrade(slot) }
    }

    async fn pass(&self, arguments: Arguments, cx: &CallContext) -> Result<ToolOutput, CallError> {
        // Where there is no slot any more but the gate is open, another one has taken over the connection.
        let (mut is_strict, mut clocks, mut _relay) = (false, None, None);
        if let Some(slot) = self.slot.upgrade() {
            slot.wake().await.inspect_err(|error| self.tell(&slot, cx, error))?;
            if let Some(error) = slot.refusal(self.definition().own_name()) {
                self.tell(&slot, cx, &error);
                return Err(error);
            }
            (is_strict, clocks, _relay) = (slot.is_strict(), slot.clocks(), slot.relay());
        }
        // The slot is not held while the tool works: dropping the bridge must end the call.
        let cx = with_clocks(cx, clocks).with_stop(self.gate.closing());
        // What was accepted is called, and not what the server is just making of it.
        let cx = if is_strict { cx.only_unchanged() } else { cx };
        self.tool.call(arguments, &cx).await
    }

    /// The connection itself tells of calls that reach it.
    fn tell(&self, slot: &Slot, cx: &CallContext, error: &CallError) {
        if let Origin::Server { server, tool } = &self.definition().origin {
            slot.events().emit(Event::ToolFailed {
                server: server.clone(),
                tool: tool.to_string(),
                call: cx.id().clone(),
                took: Duration::ZERO,
                cause: chain(error),
                arguments: None,
            });
        }
    }

    /// A shared connection may know the server by another name.
    fn named(&self, error: CallError) -> CallError {
        match &self.definition().origin {
            Origin::Server { server, .. } => error.of_server(server),
            Origin::Local => error,
        }
    }

    fn gone(&self, shut: Shut) -> CallError {
        match (&self.definition().origin, shut) {
            (Origin::Server { server, .. }, Shut::Before) => CallError::NotConnected { server: server.clone() },
            (Origin::Server { server, .. }, Shut::During) => CallError::Stopped { server: server.clone() },
            (Origin::Local, _) => CallError::Cancelled,
        }
    }
}

impl Tool for BridgeTool {
    fn definition(&self) -> &ToolDefinition {
        self.definition.as_ref().unwrap_or_else(|| self.tool.definition())
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            // The events of the bridge and those of the connection name the same call.
            let cx = &cx.for_call();
            match self.gate.pass(self.pass(arguments, cx)).await {
                Ok(outcome) => outcome.map_err(|error| self.named(error)),
                Err(shut) => Err(self.gone(shut)),
            }
        })
    }
}

/// A shared connection has the clocks of whoever made it; ours are said with the call.
fn with_clocks(cx: &CallContext, clocks: Option<(Duration, Duration)>) -> CallContext {
    let Some((idle, total)) = clocks else { return cx.clone() };
    // The call keeps the name that it has, also one that is yet to be made up.
    cx.id();
    let cx = cx.clone().with_total(total);
    if cx.idle_timeout().is_none() { cx.with_idle_timeout(idle) } else { cx }
}
