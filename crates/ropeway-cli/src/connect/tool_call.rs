//! Tool lookup and calls in a session.

use ropeway_bridge::ToolListing;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_config::LockPolicy;
use ropeway_config::lock::{Difference, DifferenceKind};
use ropeway_core::checked::CheckedTool;
use ropeway_core::envelope::Envelope;
use ropeway_core::tool::{Alias, Arguments, CallError, ToolDefinition};

use crate::arguments::argument::mistyped;
use crate::arguments::names::server_of;
use crate::connect::advice::{is_pending, is_unavailable};
use crate::connect::likely_servers::RememberedTools;
use crate::connect::session::{Session, hidden};
use crate::connect::trace_variable::call_context;
use crate::connect::waiting::BRIEF_PATIENCE;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::terminal::text::clean_line;

impl Session {
    /// Waits for the tool with this name, but only briefly for servers that are not ready while another one has it.
    ///
    /// A server that is still connecting may have a tool with the same name: a warning names it. If its cached tools
    /// include the name, nothing is called.
    pub(crate) async fn find_tool(&self, name: &str, remembered: &RememberedTools) -> Result<CheckedTool, Failure> {
        let late = |listing: &ToolListing| -> Vec<Alias> {
            let late = listing.statuses.iter().filter(|status| is_pending(&status.state));
            late.map(|status| status.server.clone()).collect()
        };
        let choose = |listing: &ToolListing| {
            let tools: Vec<&ToolDefinition> = listing.registry.definitions().collect();
            self.names.choose(&tools, name)
        };
        let found = async {
            tokio::time::sleep(BRIEF_PATIENCE).await;
            self.bridge.until(|listing| choose(listing).is_ok()).await
        };
        let listing = tokio::select! {
            biased;
            arrived = self.wait_for_servers() => {
                arrived?;
                return self.known_tool(name).await;
            }
            listing = found => listing,
        };
        let chosen = choose(&listing)?;
        let tools: Vec<&CheckedTool> = listing.registry.tools().collect();
        let tool = self.names.dotted(tools[chosen].definition());
        let late = late(&listing);
        if let Some(server) = late.iter().find(|server| remembered.has(server, name, &self.names) == Some(true)) {
            let message =
                format!("tool `{name}` is ambiguous: server `{server}` is still connecting and may have it too");
            return Err(Failure::usage(message).hint(format!("name the server: `{tool}` or `{server}.{name}`")));
        }
        if !late.is_empty() {
            let names: Vec<String> = late.iter().map(|server| format!("`{server}`")).collect();
            let (many, are) = if late.len() == 1 { ("", "is") } else { ("s", "are") };
            say(&warning(&format!("calling `{tool}`; server{many} {} {are} still connecting", names.join(", "))));
        }
        Ok(tools[chosen].clone())
    }

    /// Returns the tool with this name. A tool that a filter hides has its own failure.
    pub(crate) async fn known_tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        match self.tool(name) {
            Ok(tool) => Ok(tool),
            Err(failure) => Err(self.explain_filtered(name, failure).await),
        }
    }

    /// Returns the tool with this name.
    pub(crate) fn tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        let listing = self.listing();
        let late = |status: &&ServerStatus| status.state == ServerState::Connecting;
        if self.deadline.is_some() && listing.statuses.iter().any(|status| late(&status)) {
            // No time is left for a call, and the pending server may have a tool with that name.
            return Err(self.timeout_failure("connecting to").hint("try `SERVER.TOOL` to start only that server"));
        }
        let tools: Vec<&CheckedTool> = listing.registry.tools().collect();
        let definitions: Vec<&ToolDefinition> = tools.iter().map(|tool| tool.definition()).collect();
        self.names.choose(&definitions, name).map(|chosen| tools[chosen].clone()).map_err(|failure| {
            let is_strict = self.locked.as_ref().is_some_and(|locked| locked.policy == LockPolicy::Strict);
            let is_meant = |difference: &&Difference| {
                let Difference { server, tool, .. } = difference;
                let dotted = format!("{server}.{tool}");
                difference.kind != DifferenceKind::Gone
                    && (name == tool
                        || name == dotted
                        || listing.registry.hidden().any(|(hidden, reason)| {
                            hidden == name && reason == difference.reason() && hidden.ends_with(tool.as_str())
                        }))
            };
            if let Some(difference) = listing.differences.iter().find(is_meant).filter(|_| is_strict) {
                return Failure::usage(clean_line(&hidden(difference)));
            }
            if tools.is_empty() && !listing.statuses.iter().any(|status| is_unavailable(&status.state)) {
                failure.hint("no tools available")
            } else {
                self.advice.add_unavailable(failure, &listing.statuses)
            }
        })
    }

    /// Calls a tool. A result with `isError` is not a failure.
    pub(crate) async fn call(&self, tool: &CheckedTool, arguments: Arguments) -> Result<Envelope, Failure> {
        let status = self.status.clone();
        let context = call_context().with_progress(move |progress| status.progress(progress));
        let definition = tool.definition();
        let local = Alias::from(definition.name.as_str());
        let server = server_of(definition).unwrap_or(&local);
        let mistyped = mistyped(definition, &arguments);
        let envelope = self.step("waiting for", server, tool.call(arguments, &context)).await?;
        match envelope.error.as_deref() {
            None => Ok(envelope),
            Some(CallError::InvalidArguments { problems, .. }) => {
                let shown = self.names.shown(definition);
                let error = CallError::InvalidArguments { tool: shown.name.clone(), problems: problems.clone() };
                Err(mistyped.into_iter().fold(Failure::from(error), Failure::hint).about(&shown))
            }
            Some(error) => {
                // The command's time limit ends the call, or the wait for it: whichever is noticed first.
                if matches!(error, CallError::Timeout { .. }) && self.deadline.is_some() {
                    return Err(self.timeout_failure("waiting for"));
                }
                Err(Failure::from(error).rename_tool(&definition.name, &self.names.shown(definition).name))
            }
        }
    }
}
