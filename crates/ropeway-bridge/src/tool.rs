//! A server's tool, as the bridge exposes it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::shutdown::ShutdownSignal;
use super::slot::ServerSlot;
use ropeway_core::error_chain::chain;
use ropeway_core::event::Event;
use ropeway_core::tool::{
    Alias, ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput,
};

/// A tool that starts a sleeping server and fails once the bridge is stopped. It does not keep the server connected.
pub(super) struct BridgeTool {
    server: Alias,
    /// `None` if it equals the connection's own definition.
    definition: Option<ToolDefinition>,
    tool: Arc<dyn Tool>,
    shutdown: Arc<ShutdownSignal>,
    slot: Weak<ServerSlot>,
}

impl BridgeTool {
    /// Wraps a tool from the slot's connection.
    pub(super) fn wrap(tool: Arc<dyn Tool>, slot: &Arc<ServerSlot>) -> Arc<dyn Tool> {
        // A shared connection may have been made under another alias.
        let definition = match &tool.definition().origin {
            Origin::Server { server, tool: name } if server != slot.alias() => {
                let origin = Origin::Server { server: slot.alias().clone(), tool: name.clone() };
                Some(ToolDefinition { origin, ..tool.definition().clone() })
            }
            _ => None,
        };
        let (server, shutdown) = (slot.alias().clone(), slot.shutdown.clone());
        Arc::new(Self { server, definition, tool, shutdown, slot: Arc::downgrade(slot) })
    }

    async fn forward(&self, arguments: Arguments, cx: &CallContext) -> Result<ToolOutput, CallError> {
        // Without a slot, another slot has taken over the connection.
        let (mut is_strict, mut timeouts, mut _relay) = (false, None, None);
        if let Some(slot) = self.slot.upgrade() {
            let own_name = self.definition().own_name();
            slot.wake().await.inspect_err(|error| report_failure(&slot, own_name, cx, error))?;
            if let Some(error) = slot.refusal(own_name) {
                report_failure(&slot, own_name, cx, &error);
                return Err(error);
            }
            (is_strict, timeouts, _relay) = (slot.shared.is_strict(), slot.timeouts(), slot.relay());
        }
        // The slot is not held during the call, so dropping the bridge ends it.
        let cx = with_timeouts(cx, timeouts).with_stop(self.shutdown.token());
        let cx = if is_strict { cx.require_unchanged() } else { cx };
        self.tool.call(arguments, &cx).await
    }
}

/// Emits the event for a call that does not reach the connection, which emits the others.
pub(super) fn report_failure(slot: &ServerSlot, own_name: &str, cx: &CallContext, error: &CallError) {
    slot.events().emit(Event::ToolFailed {
        server: slot.alias().clone(),
        tool: own_name.to_owned(),
        call: cx.id().clone(),
        took: Duration::ZERO,
        cause: chain(error),
        arguments: None,
    });
}

impl Tool for BridgeTool {
    fn definition(&self) -> &ToolDefinition {
        self.definition.as_ref().unwrap_or_else(|| self.tool.definition())
    }

    fn argument_mapping(&self) -> ArgumentMapping {
        self.tool.argument_mapping()
    }

    fn map_arguments(&self, arguments: &mut Arguments) {
        self.tool.map_arguments(arguments);
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            // Events from the bridge and from the connection have the same call id.
            let cx = &cx.for_call();
            match self.shutdown.guard(self.forward(arguments, cx)).await {
                Ok(outcome) => outcome.map_err(|error| error.with_server(&self.server)),
                Err(interrupted) => Err(interrupted.into_error(self.server.clone())),
            }
        })
    }
}

/// Sets a call's idle and total timeout, unless the caller has set an idle timeout.
pub(super) fn with_timeouts(cx: &CallContext, timeouts: Option<(Duration, Duration)>) -> CallContext {
    let Some((idle, total)) = timeouts else { return cx.clone() };
    // The clone must have the same id, which may not be generated yet.
    cx.id();
    let cx = cx.clone().with_total(total);
    if cx.idle_timeout().is_none() { cx.with_idle_timeout(idle) } else { cx }
}
