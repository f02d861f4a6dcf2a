//! The connections of one command, from start to end.

use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ropeway::bridge::{Bridge, BridgeHealth, ToolListing};
use ropeway::checked::CheckedTool;
use ropeway::config::{LockPolicy, ServerEntry, ServerSettings};
use ropeway::envelope::Envelope;
use ropeway::lock::{Difference, DifferenceKind};
use ropeway::mcp::{ConnectionState, Mcp, ServerInfo};
use ropeway::registry::{ServerState, ServerStatus};
use ropeway::tool::{Alias, Arguments, CallContext, CallError, ToolDefinition};
use tokio::time::Instant;

use crate::arguments::argument::mistyped;
use crate::arguments::names::{ToolNames, server_of};
use crate::connect::advice::{self, ServerAdvice, is_pending, is_unavailable};
use crate::connect::command_context::CommandContext;
use crate::connect::deadline::{Deadline, PendingServers};
use crate::connect::fan_out::{Reply, query_servers};
use crate::connect::likely_servers::RememberedTools;
use crate::connect::lockfile::{self, LoadedLock};
use crate::connect::servers::Servers;
use crate::failure::{Exit, Failure, exit_of_connect, worst_exit};
use crate::output::print::say;
use crate::secrets::redaction;
use crate::terminal::status::Status;
use crate::terminal::style::warning;
use crate::terminal::text::clean_line;

/// How long a server may take to shut down.
const CLOSE: Duration = Duration::from_secs(1);

/// Time limit of a health check, and the time reserved for it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// How long a plain tool name waits for all servers, which may have the same tool.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

/// Additional wait for servers without cached tools.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(8);

/// Maximum warnings about tools that differ from the lock.
const MOST_DIFFERENCES: usize = 20;

/// The connections of one command.
pub(crate) struct Session {
    pub(crate) bridge: Bridge,
    pub(crate) names: ToolNames,
    pub(crate) advice: ServerAdvice,
    /// The only server of the command, which must be available.
    single: Option<Alias>,
    /// Lazy servers are started, too.
    pub(crate) eager: bool,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) waiting: PendingServers,
    pub(crate) status: Status,
    /// The lock file, if any.
    pub(crate) locked: Option<LoadedLock>,
    /// Differences from the lock that were reported.
    reported: RefCell<HashSet<String>>,
}

impl Session {
    /// Connects, runs `work` and closes the connections. `work` prints its result, because closing takes time.
    ///
    /// With a single server, `work` starts once it is connected, and a connection error is a failure. With several,
    /// `work` starts at once and [`Session::wait_for_servers`] waits for them.
    pub(crate) async fn with<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let single = servers.single().map(|entry| entry.alias.clone());
        let alone = single.is_some();
        let arrived = async |session: &Self| {
            if alone {
                session.wait_for_servers().await?;
            }
            work(session).await
        };
        Self::run(servers, single, context, arrived).await
    }

    /// Like [`Session::with`], but always starts `work` at once.
    pub(crate) async fn with_early<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let single = servers.single().map(|entry| entry.alias.clone());
        Self::run(servers, single, context, work).await
    }

    /// Like [`Session::with`], but a connection error of a single server is not a failure.
    pub(crate) async fn with_any<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(servers, None, context, work).await
    }

    /// Like [`Session::with`], for a list whose JSON form does not depend on the number of servers.
    pub(crate) async fn with_list<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if context.json {
            Self::with_any(servers, context, work).await
        } else {
            Self::with(servers, context, work).await
        }
    }

    async fn run<T>(
        servers: Servers,
        single: Option<Alias>,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // Verbose output shows the warnings of the bridge.
        if !context.verbose {
            servers.show_warnings();
        }
        let locked = if servers.is_locked { lockfile::load(&servers)? } else { None };
        context.waiting.set(single.iter().cloned().collect());
        let deadline = context.deadline.clone();
        let servers = prepare(servers, deadline.as_ref());
        let names = ToolNames::new(&servers.config);
        let advice = ServerAdvice::new(servers.source.clone(), deadline.as_ref().map(Deadline::after));
        let known = |entry: &ServerEntry| match &entry.settings {
            ServerSettings::Known(config) => Some((**config).clone()),
            _ => None,
        };
        let configs = servers.config.servers.iter().filter_map(known).collect();
        let mut builder = Bridge::builder(servers.config).handlers(servers.handlers).events(context.events.clone());
        builder = builder.redact(redaction::redactor());
        if let Some(locked) = &locked {
            builder = builder.lock(locked.lock.clone(), locked.policy);
        }
        let bridge = builder.build().map_err(Failure::start)?;
        let advice = advice.with_servers(&bridge, configs);
        let (waiting, status, eager) = (context.waiting.clone(), context.status.clone(), servers.eager);
        let reported = RefCell::default();
        let session = Self { bridge, names, advice, single, eager, deadline, waiting, status, locked, reported };
        let done = tokio::select! {
            biased;
            done = work(&session) => done,
            never = session.start() => match never {},
        };
        let done = done.map_err(|failure| session.explain(failure));
        if done.is_ok() {
            session.warn_differences();
        }
        session.close().await;
        done
    }

    /// Starts all servers. Errors are part of their status.
    async fn start(&self) -> Infallible {
        // No server is `required`, so none is fatal.
        drop(self.bridge.start().await);
        std::future::pending().await
    }

    /// Waits until every server is connected or failed, or the deadline passes.
    pub(crate) async fn wait_for_servers(&self) -> Result<(), Failure> {
        let until = self.deadline.as_ref().map(Deadline::at);
        let answers = query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let (Some(alias), [(verdict, answer)]) = (&self.single, &answers[..]) else { return Ok(()) };
        match answer {
            Reply::TimedOut => {
                Err(self.timeout_failure(if self.server(alias).is_some_and(|server| server.is_connected()) {
                    "listing the tools of"
                } else {
                    "connecting to"
                }))
            }
            _ => self.refuse(alias, verdict).await,
        }
    }

    /// Warns once about each tool that differs from ropeway.lock.
    pub(crate) fn warn_differences(&self) {
        let Some(locked) = &self.locked else { return };
        let listing = self.bridge.tools();
        let is_strict = locked.policy == LockPolicy::Strict;
        let mut reported = self.reported.borrow_mut();
        let (mut shown, mut more) = (0, 0);
        for difference in &listing.differences {
            let words = match &difference.kind {
                DifferenceKind::New if is_strict => hidden(difference),
                DifferenceKind::Changed(_) if is_strict => hidden(difference),
                DifferenceKind::Changed(_) => difference.to_string(),
                _ => continue,
            };
            if reported.insert(words.clone()) {
                if shown < MOST_DIFFERENCES {
                    say(&warning(&words))
                } else {
                    more += 1
                }
                shown += 1;
            }
        }
        if more > 0 {
            say(&warning(&format!("{more} more tools differ from ropeway.lock; see `ropeway lock --check`")));
        }
    }

    /// Returns a failure if the only server of the command is not available.
    async fn refuse(&self, alias: &Alias, verdict: &ServerStatus) -> Result<(), Failure> {
        match &verdict.outcome {
            ServerState::Ready { .. }
            | ServerState::Cached { .. }
            | ServerState::FilteredToZero { .. }
            | ServerState::Hidden { .. } => {
                return Ok(());
            }
            ServerState::Disabled | ServerState::Skipped { .. } | ServerState::Invalid { .. } => {
                let failure = Failure::usage(verdict.to_string());
                return Err(self.advice.for_status(verdict).into_iter().fold(failure, Failure::hint));
            }
            _ => {}
        }
        let server = self.server(alias);
        let state = server.as_ref().map(|server| server.state().borrow().clone());
        Err(match (state, server) {
            (Some(ConnectionState::Down { cause, .. }), _) => Failure::connect(alias, cause),
            (Some(ConnectionState::NeedsAuth { challenge }), _) if self.advice.sends_token(alias) => {
                let failure = Failure::new(Exit::NeedsAuth, format!("server `{alias}` rejected the token"));
                let says = challenge.map(|challenge| format!("server response: {}", clean_line(&challenge)));
                says.into_iter().fold(failure, Failure::hint)
            }
            (Some(ConnectionState::NeedsAuth { challenge }), _) => {
                CallError::NeedsAuth { server: alias.clone(), challenge }.into()
            }
            // The server is connected but did not list its tools: listing again returns the full error.
            (Some(ConnectionState::Ready { .. }), Some(server)) => {
                match self.step("listing the tools of", alias, server.refresh_tools()).await? {
                    Ok(_) => return Ok(()),
                    Err(error) => Failure::listing(&error),
                }
            }
            _ => Failure::new(Exit::Unreachable, verdict.to_string()),
        })
    }

    /// Adds server output and advice to a failure.
    fn explain(&self, failure: Failure) -> Failure {
        match (&self.single, failure.exit()) {
            _ if failure.is_provider_failure() => failure,
            (Some(alias), Exit::NeedsAuth) => {
                let advice = self.advice.for_status(&ServerStatus::new(alias.clone(), ServerState::NeedsAuth));
                advice.into_iter().fold(failure, Failure::hint)
            }
            (Some(alias), exit) if failure.needs_server_output() => {
                let failure = failure.with_stderr(self.stderr_tail(alias));
                let failure = self.advice.remedy(alias).into_iter().fold(failure, Failure::hint);
                let down = ServerStatus::new(alias.clone(), ServerState::Down { cause: String::new() });
                let advice = self.advice.for_status(&down).filter(|_| exit == Exit::Unreachable);
                advice.into_iter().fold(failure, Failure::hint)
            }
            _ => failure,
        }
    }

    /// Returns the only server of the command, if it has exactly one.
    pub(crate) fn single(&self) -> Option<&Alias> {
        self.single.as_ref()
    }

    /// Returns the exit code of a list of servers: success if one is available and none timed out.
    pub(crate) fn exit(&self, verdicts: &[ServerStatus]) -> Exit {
        match advice::exit_code(verdicts) {
            Exit::Unreachable => worst_exit(verdicts.iter().map(|verdict| self.exit_of(verdict))),
            exit => exit,
        }
    }

    /// Returns the exit code for a server status. For `Down`, the cause decides.
    pub(crate) fn exit_of(&self, ServerStatus { server, outcome, .. }: &ServerStatus) -> Exit {
        let state = self.server(server).map(|server| server.state().borrow().clone());
        match (outcome, state) {
            (ServerState::Down { .. }, Some(ConnectionState::Down { cause, .. })) => exit_of_connect(&cause),
            (outcome, _) => advice::exit_of(outcome),
        }
    }

    /// Returns all tools and the status of each server.
    pub(crate) fn listing(&self) -> ToolListing {
        self.bridge.tools()
    }

    /// Returns the server information from the handshake.
    pub(crate) fn server_info(&self, alias: &Alias) -> Option<Arc<ServerInfo>> {
        self.server(alias)?.server_info()
    }

    /// Returns the connection to a server.
    pub(crate) fn server(&self, alias: &Alias) -> Option<Mcp> {
        self.bridge.server(alias)
    }

    fn stderr_tail(&self, alias: &Alias) -> Vec<String> {
        self.server(alias).map(|server| server.stderr_tail()).unwrap_or_default()
    }

    /// Checks the health of every server. Slow servers do not delay the others.
    pub(crate) async fn health(&self) -> BridgeHealth {
        let until = self.deadline.as_ref().map(|deadline| deadline.at() - LAST_LOOK.min(deadline.after() / 4));
        query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let left = self.deadline.as_ref().map(|deadline| deadline.at().saturating_duration_since(Instant::now()));
        let patience = left.map_or(SIGN_OF_LIFE, |left| left.min(SIGN_OF_LIFE));
        let label = || "checking connections".to_owned();
        self.status.during_labelled(label, self.bridge.health_check_within(patience)).await
    }

    /// Waits for the tool with this name, but only briefly for servers that are not ready while another one has it.
    ///
    /// A server that is still connecting may have a tool of the same name. It gets more time unless its cached tools are
    /// known; if those include the name, nothing is called.
    pub(crate) async fn find_tool(&self, name: &str, remembered: &RememberedTools) -> Result<CheckedTool, Failure> {
        let late = |listing: &ToolListing| -> Vec<Alias> {
            let late = listing.verdicts.iter().filter(|verdict| is_pending(&verdict.outcome));
            late.map(|verdict| verdict.server.clone()).collect()
        };
        let choose = |listing: &ToolListing| {
            let tools: Vec<&ToolDefinition> = listing.registry.definitions().collect();
            self.names.choose(&tools, name)
        };
        let is_known = |server: &Alias| remembered.has(server, name, &self.names).is_some();
        let found = async {
            tokio::time::sleep(CALL_PATIENCE).await;
            let known = self.bridge.until(|listing| choose(listing).is_ok() && late(listing).iter().all(is_known));
            tokio::select! {
                listing = known => listing,
                () = tokio::time::sleep(UNKNOWN_PATIENCE) => self.bridge.until(|listing| choose(listing).is_ok()).await,
            }
        };
        let listing = tokio::select! {
            biased;
            arrived = self.wait_for_servers() => {
                arrived?;
                return self.tool(name);
            }
            listing = found => listing,
        };
        let chosen = choose(&listing)?;
        let tools: Vec<&CheckedTool> = listing.registry.tools().collect();
        let tool = self.names.dotted(tools[chosen].definition());
        let late = late(&listing);
        if let Some(server) = late.iter().find(|server| remembered.has(server, name, &self.names) == Some(true)) {
            let message = format!("tool `{name}` is ambiguous: server `{server}` had it too and is still connecting");
            return Err(Failure::usage(message).hint(format!("name the server: `{tool}` or `{server}.{name}`")));
        }
        if !late.is_empty() {
            let names: Vec<String> = late.iter().map(|server| format!("`{server}`")).collect();
            let (many, are) = if late.len() == 1 { ("", "is") } else { ("s", "are") };
            say(&warning(&format!("calling `{tool}`; server{many} {} {are} still connecting", names.join(", "))));
        }
        Ok(tools[chosen].clone())
    }

    /// Returns the tool with this name.
    pub(crate) fn tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        let listing = self.listing();
        let late = |verdict: &&ServerStatus| verdict.outcome == ServerState::Connecting;
        if self.deadline.is_some() && listing.verdicts.iter().any(|verdict| late(&verdict)) {
            // No time is left for a call, and the pending server may have a tool of that name.
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
            if tools.is_empty() && !listing.verdicts.iter().any(|verdict| is_unavailable(&verdict.outcome)) {
                failure.hint("no tools available")
            } else {
                self.advice.add_unavailable(failure, &listing.verdicts)
            }
        })
    }

    /// Calls a tool. A result with `isError` is not a failure.
    pub(crate) async fn call(&self, tool: &CheckedTool, arguments: Arguments) -> Result<Envelope, Failure> {
        let status = self.status.clone();
        let context = CallContext::default().with_progress(move |progress| status.progress(progress));
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
            Some(error) => Err(Failure::from(error).rename_tool(&definition.name, &self.names.shown(definition).name)),
        }
    }

    /// Waits for a step of one server until the deadline.
    pub(crate) async fn step<T>(
        &self,
        what: &str,
        server: &Alias,
        step: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        self.waiting.set(vec![server.clone()]);
        let step = self.status.during_labelled(|| format!("{what} {server}"), step);
        match &self.deadline {
            None => Ok(step.await),
            Some(deadline) => {
                tokio::time::timeout_at(deadline.at(), step).await.map_err(|_| self.timeout_failure(what))
            }
        }
    }

    /// Returns the failure of a step that exceeds the deadline.
    pub(crate) fn timeout_failure(&self, what: &str) -> Failure {
        let them = if self.waiting.servers().len() > 1 { "them" } else { "it" };
        match &self.deadline {
            Some(deadline) => deadline.failure().hint(format!("while {what} {them}")),
            None => Failure::new(Exit::Timeout, format!("no response while {what} {them}")),
        }
    }

    async fn close(&self) {
        let patience = Instant::now() + CLOSE + Duration::from_millis(500);
        let until = self.deadline.as_ref().map_or(patience, |deadline| {
            // After the deadline, servers are still asked to stop, but not waited for.
            patience.min(deadline.at().max(Instant::now() + Duration::from_millis(100)))
        });
        // The caller kills the remaining processes.
        let _ = tokio::time::timeout_at(until, self.bridge.stop()).await;
    }
}

/// Describes why a tool is hidden.
fn hidden(difference: &Difference) -> String {
    format!("tool `{}.{}` is hidden: {}", difference.server, difference.tool, difference.reason())
}

/// Adjusts the server settings for a command: one connection attempt, limited by the deadline of the command.
fn prepare(mut servers: Servers, deadline: Option<&Deadline>) -> Servers {
    for entry in &mut servers.config.servers {
        entry.required = false;
        let ServerSettings::Known(config) = &mut entry.settings else { continue };
        config.reconnect.enabled &= servers.reconnecting;
        config.timeouts.close = CLOSE;
        if let Some(after) = deadline.map(Deadline::after) {
            config.timeouts.connect = after;
            config.timeouts.download = after;
            config.timeouts.idle = after;
            config.timeouts.total = after;
        }
    }
    servers
}
