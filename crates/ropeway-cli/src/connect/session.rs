//! A session: one command's connections to its servers, from start to end, within its time.

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

/// How long a server has to end by itself, unless the command's time ends sooner.
const CLOSE: Duration = Duration::from_secs(1);

/// How long a server may take to say that it is alive, and how much of a command's time is kept for that.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// How long the name of a tool alone waits for all servers, since two of them may have a tool of that name.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

/// How much longer it waits for a server of which no tools are remembered.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(8);

/// Number of tools that differ from the lock and are reported.
const MOST_DIFFERENCES: usize = 20;

/// One command's connections to its servers.
pub(crate) struct Session {
    pub(crate) bridge: Bridge,
    pub(crate) names: ToolNames,
    pub(crate) advice: ServerAdvice,
    /// The one server without which the command makes no sense.
    single: Option<Alias>,
    /// Servers that could sleep are started.
    pub(crate) eager: bool,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) waiting: PendingServers,
    pub(crate) status: Status,
    /// What ropeway.lock says of the tools, where there is one.
    pub(crate) locked: Option<LoadedLock>,
    /// Differences from the lock that were reported.
    reported: RefCell<HashSet<String>>,
}

impl Session {
    /// Connects, does the work, and closes; `work` should print what it has, since closing takes its time.
    ///
    /// Where there is just one server, the work begins when it is there, and that it cannot be reached is a failure. Of
    /// many it is a verdict, and the work begins at once: [`Session::wait_for_servers`] waits for all of them.
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

    /// The same, but the work always begins at once.
    pub(crate) async fn with_early<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let single = servers.single().map(|entry| entry.alias.clone());
        Self::run(servers, single, context, work).await
    }

    /// The same, but also of one server that it cannot be reached is only a verdict.
    pub(crate) async fn with_any<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(servers, None, context, work).await
    }

    /// The same for a list: whoever reads it as JSON gets one document of one form, however many servers there are.
    pub(crate) async fn with_list<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match context.json {
            true => Self::with_any(servers, context, work).await,
            false => Self::with(servers, context, work).await,
        }
    }

    async fn run<T>(
        servers: Servers,
        single: Option<Alias>,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // Verbose output has them from the bridge.
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

    /// Starts all servers; what becomes of them are their verdicts.
    async fn start(&self) -> Infallible {
        // None is required, so that none is fatal.
        drop(self.bridge.start().await);
        std::future::pending().await
    }

    /// Waits until every server is there or has failed, or the time is over.
    pub(crate) async fn wait_for_servers(&self) -> Result<(), Failure> {
        let until = self.deadline.as_ref().map(Deadline::at);
        let answers = query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let (Some(alias), [(verdict, answer)]) = (&self.single, &answers[..]) else { return Ok(()) };
        match answer {
            Reply::TimedOut => {
                Err(self.timeout_failure(match self.server(alias).is_some_and(|server| server.is_connected()) {
                    true => "listing the tools of",
                    false => "connecting to",
                }))
            }
            _ => self.refuse(alias, verdict).await,
        }
    }

    /// Warns about tools that differ from ropeway.lock, once about each.
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
                match shown < MOST_DIFFERENCES {
                    true => say(&warning(&words)),
                    false => more += 1,
                }
                shown += 1;
            }
        }
        if more > 0 {
            say(&warning(&format!("{more} more tools differ from ropeway.lock; see `ropeway lock --check`")));
        }
    }

    /// A failure where the one server of a command is not there.
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
            // It is there, but has not reported its tools: asked once more, it says why in full.
            (Some(ConnectionState::Ready { .. }), Some(server)) => {
                match self.step("listing the tools of", alias, server.refresh_tools()).await? {
                    Ok(_) => return Ok(()),
                    Err(error) => Failure::listing(&error),
                }
            }
            _ => Failure::new(Exit::Unreachable, verdict.to_string()),
        })
    }

    /// A failure with all that helps to understand it.
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

    /// The one server of the command, when there is just one.
    pub(crate) fn single(&self) -> Option<&Alias> {
        self.single.as_ref()
    }

    /// The exit code of a list of servers: done where some are there and none is late, else that of the worst of them.
    pub(crate) fn exit(&self, verdicts: &[ServerStatus]) -> Exit {
        match advice::exit_code(verdicts) {
            Exit::Unreachable => worst_exit(verdicts.iter().map(|verdict| self.exit_of(verdict))),
            exit => exit,
        }
    }

    /// The exit code of a server that is not as it should be. Of one that is down, the cause decides.
    pub(crate) fn exit_of(&self, ServerStatus { server, outcome, .. }: &ServerStatus) -> Exit {
        let state = self.server(server).map(|server| server.state().borrow().clone());
        match (outcome, state) {
            (ServerState::Down { .. }, Some(ConnectionState::Down { cause, .. })) => exit_of_connect(&cause),
            (outcome, _) => advice::exit_of(outcome),
        }
    }

    /// The tools, and how each server stands.
    pub(crate) fn listing(&self) -> ToolListing {
        self.bridge.tools()
    }

    /// What a server says about itself.
    pub(crate) fn server_info(&self, alias: &Alias) -> Option<Arc<ServerInfo>> {
        self.server(alias)?.server_info()
    }

    /// The connection to a server.
    pub(crate) fn server(&self, alias: &Alias) -> Option<Mcp> {
        self.bridge.server(alias)
    }

    fn stderr_tail(&self, alias: &Alias) -> Vec<String> {
        self.server(alias).map(|server| server.stderr_tail()).unwrap_or_default()
    }

    /// How every server does. Those that are late do not keep us from looking after the others.
    pub(crate) async fn health(&self) -> BridgeHealth {
        let until = self.deadline.as_ref().map(|deadline| deadline.at() - LAST_LOOK.min(deadline.after() / 4));
        query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let left = self.deadline.as_ref().map(|deadline| deadline.at().saturating_duration_since(Instant::now()));
        let patience = left.map_or(SIGN_OF_LIFE, |left| left.min(SIGN_OF_LIFE));
        let label = || "checking connections".to_owned();
        self.status.during_labelled(label, self.bridge.health_check_within(patience)).await
    }

    /// Waits for the tool that a person means by a name, but not for long for servers that do not become ready while another has it.
    ///
    /// A server that is still connecting may have a tool of the same name. It is waited for longer unless its remembered tools are
    /// known, and if they have the name, nothing is called.
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

    /// The tool that a person means by a name.
    pub(crate) fn tool(&self, name: &str) -> Result<CheckedTool, Failure> {
        let listing = self.listing();
        let late = |verdict: &&ServerStatus| verdict.outcome == ServerState::Connecting;
        if self.deadline.is_some() && listing.verdicts.iter().any(|verdict| late(&verdict)) {
            // Nothing is left of the time for a call, and the late one may have a tool of that name, too.
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
            match tools.is_empty() && !listing.verdicts.iter().any(|verdict| is_unavailable(&verdict.outcome)) {
                true => failure.hint("no tools available"),
                false => self.advice.add_unavailable(failure, &listing.verdicts),
            }
        })
    }

    /// Calls a tool. An answer in which the tool reports a failure is an answer.
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

    /// Waits for one step of one server, but no longer than the command may take.
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

    /// What to say when the time is over during a step.
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
            // A server whose time is up is still reported to stop, but not waited for.
            patience.min(deadline.at().max(Instant::now() + Duration::from_millis(100)))
        });
        // Whoever is still there after this is killed by the caller.
        let _ = tokio::time::timeout_at(until, self.bridge.stop()).await;
    }
}

/// That a tool is hidden, and why.
fn hidden(difference: &Difference) -> String {
    format!("tool `{}.{}` is hidden: {}", difference.server, difference.tool, difference.reason())
}

/// The settings of a command: it makes one try, and its own timeout, which began earlier, is the clock that counts.
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
