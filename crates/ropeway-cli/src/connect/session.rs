//! A command's connections, from start to end.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_bridge::{Bridge, ToolListing};
use ropeway_config::lock::{Difference, DifferenceKind};
use ropeway_config::{LockPolicy, ServerEntry, ToolSettings, Transport};
use ropeway_core::event::Event;
use ropeway_core::tool::Alias;
use ropeway_mcp::{ConnectionState, Mcp, ServerInfo};
use tokio::time::Instant;

use crate::arguments::names::ToolNames;
use crate::connect::advice::{self, ServerAdvice};
use crate::connect::command_context::CommandContext;
use crate::connect::deadline::{Deadline, PendingServers};
use crate::connect::failure_memory::{FailureMemory, Outcome};
use crate::connect::lockfile::{self, LoadedLock};
use crate::connect::running_gateway::{self, AttachedGateway};
use crate::connect::servers::Servers;
use crate::connect::waiting::{SLOW_PATIENCE, Waiting};
use crate::failure::{Exit, Failure, exit_of_connect, worst_exit};
use crate::output::print::say;
use crate::sandbox;
use crate::secrets::redaction;
use crate::terminal::status::Status;
use crate::terminal::style::warning;

/// How long a server may take to shut down.
const CLOSE: Duration = Duration::from_secs(1);

/// Maximum warnings about tools that differ from the lock.
const MOST_DIFFERENCES: usize = 20;

/// A command's connections to its servers.
///
/// The `with` functions own the session. They build the bridge and run three futures in one `select!` on the command's task:
/// `work`, the one that starts the servers, and the one that notes failures. `work` borrows the session, and the other two end
/// with it. Then the session stores for the next command which servers failed, reports differences from the lock, and closes:
/// servers may take [`CLOSE`] to end, or less if the deadline is near.
///
/// The session itself spawns no task, so its mutable parts are `RefCell`s instead of locks. No borrow is held across `.await`. If
/// the future is dropped, for example by Ctrl-C before a chat's first turn, nothing is stored or waited for: the dropped bridge
/// closes its connections.
pub(crate) struct Session {
    pub(crate) bridge: Bridge,
    pub(crate) names: ToolNames,
    pub(crate) advice: ServerAdvice,
    /// The command's only server, which must be available.
    single: Option<Alias>,
    /// Lazy servers are started, too.
    pub(crate) eager: bool,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) waiting: PendingServers,
    pub(crate) status: Status,
    /// The lock file, if any.
    pub(crate) locked: Option<LoadedLock>,
    /// Tool filters, for each server that has some.
    pub(crate) filters: Vec<(Alias, ToolSettings)>,
    /// Differences from the lock that were reported.
    reported: RefCell<HashSet<String>>,
    /// Servers that failed the last time and are not started.
    skipped: HashSet<Alias>,
    /// The socket at which a gateway runs servers for this command.
    pub(crate) gateway: Option<PathBuf>,
    began: Instant,
    /// When each server failed.
    failed_after: RefCell<HashMap<Alias, Duration>>,
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

    /// Like [`Session::with`], but a single server's connection error is not a failure.
    pub(crate) async fn with_any<T>(
        servers: Servers,
        context: &CommandContext,
        work: impl AsyncFnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Self::run(servers, None, context, work).await
    }

    /// Like [`Session::with`], for a list whose JSON form does not depend on how many servers are configured.
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
        // Verbose output shows the bridge's warnings.
        if !context.verbose {
            servers.show_warnings();
        }
        let locked = load_lock(&servers)?;
        if let Some(locked) = locked.as_ref().filter(|_| !context.verbose) {
            locked.sandbox_warnings(&servers.config).iter().for_each(|text| say(&warning(text)));
        }
        context.waiting.set(single.iter().cloned().collect());
        let deadline = context.deadline.clone();
        let mut servers = prepare(servers, deadline.as_ref());
        let names = ToolNames::new(&servers.config);
        let advice = ServerAdvice::new(servers.source.clone(), deadline.as_ref().map(Deadline::after));
        let configs = servers.config.servers.iter().filter_map(ServerEntry::config).cloned().collect();
        let has_filter =
            |tools: &ToolSettings| !(tools.allow.is_empty() && tools.allowlists.is_empty() && tools.deny.is_empty());
        let filtered = servers.config.servers.iter().filter(|entry| has_filter(&entry.tools));
        let filters = filtered.map(|entry| (entry.alias.clone(), entry.tools.clone())).collect();
        let memory = FailureMemory::load(&servers);
        // `--timeout` says how long to wait.
        let recent = memory.as_ref().filter(|_| deadline.is_none());
        if let Some(memory) = recent {
            limit_slow(&mut servers, memory);
        }
        let (gateway, starting) = match running_gateway::attach(&mut servers, context).await? {
            Some(AttachedGateway { socket, starting }) => (Some(socket), starting),
            None => (None, HashSet::new()),
        };
        let skipped = recent.map(|memory| memory.skip(&mut servers)).unwrap_or_default();
        let own: Vec<Alias> = servers.config.servers.iter().filter(|entry| is_own(entry)).map(alias_of).collect();
        let eager = servers.eager;
        let bridge = build_bridge(servers, locked.as_ref(), context)?;
        let advice = advice.with_servers(&bridge, configs).with_starting(starting);
        let (waiting, status) = (context.waiting.clone(), context.status.clone());
        let reported = RefCell::default();
        let (began, failed_after) = (Instant::now(), RefCell::default());
        let session = Self {
            bridge,
            names,
            advice,
            single,
            eager,
            deadline,
            waiting,
            status,
            locked,
            filters,
            reported,
            skipped,
            gateway,
            began,
            failed_after,
        };
        let done = tokio::select! {
            biased;
            done = work(&session) => done,
            never = session.start() => match never {},
            never = session.follow_failures() => match never {},
        };
        if let Some(memory) = memory {
            memory.update(session.outcomes(&own));
        }
        let done = done.map_err(|failure| session.explain(failure));
        if done.is_ok() {
            session.warn_differences();
        }
        session.close().await;
        done
    }

    /// Starts all servers. Their status reports errors.
    async fn start(&self) -> Infallible {
        // No server is `required`, so none is fatal.
        drop(self.bridge.start().await);
        std::future::pending().await
    }

    /// Notes when each server first fails.
    async fn follow_failures(&self) -> Infallible {
        let mut events = self.bridge.events();
        while let Some(event) = events.next().await {
            if let Event::Down { server, .. } = event {
                self.failed_after.borrow_mut().entry(server).or_insert(self.began.elapsed());
            }
        }
        std::future::pending().await
    }

    /// Returns the outcomes for the servers that this command started itself.
    fn outcomes(&self, own: &[Alias]) -> Vec<(Alias, Outcome)> {
        let failed_after = self.failed_after.borrow();
        let outcome = |ServerStatus { server, state, .. }: ServerStatus| {
            let outcome = match state {
                // It was not started.
                ServerState::Cached { .. } => return None,
                state if advice::is_available(&state) => Outcome::Available,
                ServerState::Connecting => Outcome::NotReady { after: self.began.elapsed() },
                ServerState::Down { cause } => Outcome::Failed { after: *failed_after.get(&server)?, cause },
                _ => return None,
            };
            Some((server, outcome))
        };
        let own = |status: &ServerStatus| own.contains(&status.server);
        self.bridge.statuses().into_iter().filter(own).filter_map(outcome).collect()
    }

    /// Returns `true` if a server is still connecting, or is not started because it failed the last time.
    pub(crate) fn is_late(&self, status: &ServerStatus) -> bool {
        advice::is_pending(&status.state) || self.skipped.contains(&status.server)
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

    /// Adds server output and advice to a failure.
    fn explain(&self, failure: Failure) -> Failure {
        match (&self.single, failure.exit()) {
            _ if failure.is_provider_failure() => failure,
            (Some(alias), Exit::NeedsAuth) => {
                // A proxy that requires authentication has its own fix.
                let for_status = || self.advice.for_status(&ServerStatus::new(alias.clone(), ServerState::NeedsAuth));
                let advice = self.advice.remedy(alias).or_else(for_status);
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

    /// Returns the command's only server, if it has exactly one.
    pub(crate) fn single(&self) -> Option<&Alias> {
        self.single.as_ref()
    }

    /// Returns the exit code for a server list: success if a server is available and none timed out.
    pub(crate) fn exit(&self, statuses: &[ServerStatus]) -> Exit {
        match advice::exit_code(statuses) {
            Exit::Unreachable => worst_exit(statuses.iter().map(|status| self.exit_of(status))),
            exit => exit,
        }
    }

    /// Returns the exit code for a server status. For `Down`, the cause decides.
    pub(crate) fn exit_of(&self, ServerStatus { server, state, .. }: &ServerStatus) -> Exit {
        let connection = self.server(server).map(|server| server.state().borrow().clone());
        match (state, connection) {
            (ServerState::Down { .. }, Some(ConnectionState::Down { cause, .. })) => exit_of_connect(&cause),
            (state, _) => advice::exit_of(state),
        }
    }

    /// Returns all tools and each server's status.
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

    /// Waits for a step on one server until the deadline.
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

    /// Returns the failure for a step that exceeds the deadline.
    pub(crate) fn timeout_failure(&self, what: &str) -> Failure {
        let names: Vec<String> = self.waiting.servers().iter().map(|server| format!("`{server}`")).collect();
        let names = names.join(", ");
        match &self.deadline {
            Some(deadline) => deadline.failure().hint(format!("stopped by --timeout while {what} {names}")),
            None => Failure::new(Exit::Timeout, format!("timed out while {what} {names}")),
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

/// Returns `true` if a command starts the server itself.
fn is_own(entry: &ServerEntry) -> bool {
    entry.enabled && entry.config().is_some_and(|config| !matches!(config.transport, Transport::Socket(_)))
}

fn alias_of(entry: &ServerEntry) -> Alias {
    entry.alias.clone()
}

/// Reads a command's lock, unless the command ignores it.
pub(crate) fn load_lock(servers: &Servers) -> Result<Option<LoadedLock>, Failure> {
    if servers.is_locked { lockfile::load(servers) } else { Ok(None) }
}

/// Builds a command's bridge. Every command that starts servers uses it, so that the lock, the stored sign-ins, the redaction and
/// the sandbox apply to all servers.
pub(crate) fn build_bridge(
    servers: Servers,
    locked: Option<&LoadedLock>,
    context: &CommandContext,
) -> Result<Bridge, Failure> {
    let builder = Bridge::builder(servers.config).handlers(servers.handlers).events(context.events.clone());
    let builder = builder.redact(redaction::redactor()).sandbox_launcher(sandbox::launcher());
    let builder = match locked {
        Some(locked) => builder.lock(locked.lock.clone(), locked.policy),
        None => builder,
    };
    builder.build().map_err(Failure::start)
}

/// Describes why a tool is hidden.
pub(super) fn hidden(difference: &Difference) -> String {
    format!("tool `{}.{}` is hidden: {}", difference.server, difference.tool, difference.reason())
}

/// Shortens the connection timeout for servers that were not ready the last time, unless the command needs them or nothing else
/// remains.
fn limit_slow(servers: &mut Servers, memory: &FailureMemory) {
    let was_late = |entry: &ServerEntry| memory.is_hopeless(entry, Waiting::Briefly(Duration::ZERO));
    let mut enabled = servers.config.servers.iter().filter(|entry| entry.enabled);
    if servers.waiting != Waiting::UnlessFailed || enabled.all(was_late) {
        return;
    }
    for entry in servers.config.servers.iter_mut().filter(|entry| was_late(entry)) {
        if let Some(config) = entry.config_mut() {
            config.timeouts.connect = config.timeouts.connect.min(SLOW_PATIENCE);
        }
    }
}

/// Adjusts the server settings for a command: one connection attempt, limited by the command's deadline.
fn prepare(mut servers: Servers, deadline: Option<&Deadline>) -> Servers {
    for entry in &mut servers.config.servers {
        entry.required = false;
        let Some(config) = entry.config_mut() else { continue };
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
