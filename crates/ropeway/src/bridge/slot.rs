//! A slot: one server under the roof of a bridge, with its tools as they are handed out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context::Shelf;
use super::extras;
use super::gate::Gate;
use super::memory::Memory;
use super::pool::Lease;
use super::tool::BridgeTool;
use crate::checked::CheckedTool;
use crate::config::{ServerConfig, ServerEntry, Settings, Start};
use crate::event::{Event, Events};
use crate::mcp::{ConnectFailed, Handlers, Mcp, State, chain};
use crate::registry::{Outcome, Shape};
use crate::tool::{Alias, CallError, Tool};

/// The shortest time between two looks at a list that the server itself calls short-lived.
const SHORTEST_LIFE: Duration = Duration::from_secs(30);

/// What all slots of a bridge have in common.
#[derive(Debug)]
pub(super) struct Roof {
    pub(super) handlers: Handlers,
    pub(super) events: Events,
    pub(super) memory: Option<Memory>,
    /// Counts every change of a slot's tools or state.
    changes: watch::Sender<u64>,
}

impl Roof {
    pub(super) fn new(handlers: Handlers, events: Events, memory: Option<Memory>) -> Self {
        Self { handlers, events, memory, changes: watch::Sender::new(0) }
    }

    /// Something is not what it was.
    pub(super) fn change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Tells an oddity that was dealt with.
    pub(super) fn warn(&self, server: Option<&Alias>, message: String) {
        tracing::warn!(server = server.map(Alias::as_str), "{message}");
        self.events.tell(Event::Warning { server: server.cloned(), message });
    }
}

/// One server under the roof.
pub(super) struct Slot {
    /// No two slots of a program have the same.
    number: u64,
    pub(super) entry: ServerEntry,
    shape: Shape,
    roof: Arc<Roof>,
    gate: Arc<Gate>,
    lease: Mutex<Option<Lease>>,
    tools: Mutex<Tools>,
    last_error: Mutex<Option<LastError>>,
    /// The tool list could not be fetched from a server that is there.
    unlisted: Mutex<Option<String>>,
    /// The tools have been fetched once.
    listed: AtomicBool,
    /// Remembered tools are handed out, and the server is not started.
    asleep: AtomicBool,
    follower: Mutex<Option<AbortHandle>>,
    shelf: Shelf,
    /// Changes with the tools, not with the state.
    version: AtomicU64,
}

/// A server's tools as the bridge hands them out.
#[derive(Default)]
struct Tools {
    /// As the connection has them, before filters and changes.
    sources: Vec<Arc<dyn Tool>>,
    handed_out: Vec<CheckedTool>,
}

/// What went wrong last.
#[derive(Clone, Debug)]
pub(super) struct LastError {
    pub(super) at: SystemTime,
    pub(super) message: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    pub(super) fn new(entry: ServerEntry, shape: Shape, roof: Arc<Roof>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            entry,
            shape,
            roof,
            gate: Arc::new(Gate::new()),
            lease: Mutex::default(),
            tools: Mutex::default(),
            last_error: Mutex::default(),
            unlisted: Mutex::default(),
            listed: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            follower: Mutex::default(),
            shelf: Shelf::default(),
            version: AtomicU64::new(0),
        }
    }

    /// The same slot before its start.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.entry.clone(), self.shape.clone(), self.roof.clone())
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The secrets without which the server cannot be started.
    pub(super) fn missing(&self) -> Option<Vec<String>> {
        match &self.entry.settings {
            Settings::Missing { secrets } => Some(secrets.clone()),
            Settings::Known(_) => None,
        }
    }

    pub(super) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub(super) fn alias(&self) -> &Alias {
        &self.entry.alias
    }

    pub(super) fn roof(&self) -> &Roof {
        &self.roof
    }

    pub(super) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    /// The settings, when the server is wanted and nothing is missing.
    pub(super) fn config(&self) -> Option<&ServerConfig> {
        match &self.entry.settings {
            Settings::Known(config) if self.entry.enabled => Some(config),
            _ => None,
        }
    }

    /// The clocks of a call, where the connection has others: those of whoever made it.
    pub(super) fn clocks(&self) -> Option<(Duration, Duration)> {
        let ours = &self.config()?.timeouts;
        let lease = lock(&self.lease);
        let theirs = lease.as_ref()?.mcp().timeouts();
        ((ours.idle, ours.total) != (theirs.idle, theirs.total)).then_some((ours.idle, ours.total))
    }

    /// The connection, once the bridge is started.
    pub(super) fn mcp(&self) -> Option<Mcp> {
        lock(&self.lease).as_ref().map(|lease| lease.mcp().clone())
    }

    /// How many share the server's process.
    pub(super) fn users(&self) -> usize {
        lock(&self.lease).as_ref().map_or(0, Lease::users)
    }

    pub(super) fn last_error(&self) -> Option<LastError> {
        lock(&self.last_error).clone()
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Connects, unless the server may sleep. That the first try fails is an error; further ones are made behind it.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), ConnectFailed> {
        let Some(config) = self.config() else { return Ok(()) };
        let mcp = {
            let mut lease = lock(&self.lease);
            let lease =
                lease.get_or_insert_with(|| Lease::new(config, self.alias(), &self.roof.handlers, &self.roof.events));
            lease.mcp().clone()
        };
        if let Some(info) = mcp.server_info() {
            // Somebody else has made the connection: we have not heard it being made.
            let (server, protocol_version) = (self.alias().clone(), info.protocol_version.clone());
            self.roof.events.tell(Event::Ready { server, protocol_version });
        } else if self.entry.start == Start::Lazy && self.remember(&mcp) {
            return Ok(());
        }
        self.connect(&mcp).await
    }

    async fn connect(self: &Arc<Self>, mcp: &Mcp) -> Result<(), ConnectFailed> {
        // First of all: whoever waits here may give up, and the rest is done all the same.
        self.follow(mcp);
        let connected = mcp.connect().await;
        match &connected {
            Ok(()) => self.fetch(mcp).await,
            Err(failed) => drop(self.failed(chain(&*failed.cause))),
        }
        self.roof.change();
        connected.map_err(|failed| ConnectFailed { server: self.alias().clone(), ..failed })
    }

    /// Hands out the tools that the server had the last time; false when they are not remembered.
    fn remember(self: &Arc<Self>, mcp: &Mcp) -> bool {
        let (Some(memory), Some(config)) = (&self.roof.memory, self.config()) else { return false };
        let Some(definitions) = memory.recall(config) else { return false };
        let tools = definitions.into_iter().map(|definition| mcp.loose_tool(definition)).collect();
        self.asleep.store(true, Ordering::Release);
        self.hand_out(tools);
        self.roof.change();
        true
    }

    /// Starts the server if it sleeps.
    pub(super) async fn wake(self: &Arc<Self>) -> Result<(), CallError> {
        if !self.asleep.load(Ordering::Acquire) {
            return Ok(());
        }
        let server = self.alias().clone();
        let Some(mcp) = self.mcp() else { return Err(CallError::NotConnected { server }) };
        let connected = self.connect(&mcp).await;
        self.asleep.store(false, Ordering::Release);
        connected.map_err(|failed| CallError::Unavailable { server, source: Box::new(failed.cause) })
    }

    /// Keeps the tools as the server has them, until the slot goes.
    fn follow(self: &Arc<Self>, mcp: &Mcp) {
        let mut follower = lock(&self.follower);
        if follower.as_ref().is_none_or(AbortHandle::is_finished) {
            *follower = Some(tokio::spawn(follow(Arc::downgrade(self), mcp.clone())).abort_handle());
        }
    }

    /// Fetches the tools, or takes those that the connection knows already.
    async fn fetch(self: &Arc<Self>, mcp: &Mcp) {
        match mcp.loose_tools().await {
            Ok(mut tools) => {
                let own = tools.len();
                tools.extend(extras::tools(self, mcp).await);
                *lock(&self.unlisted) = None;
                self.listed.store(true, Ordering::Release);
                self.asleep.store(false, Ordering::Release);
                if self.hand_out(tools) {
                    self.keep(own);
                }
            }
            // A connection that is lost says so itself.
            Err(_) if !mcp.is_connected() => {}
            Err(error) => {
                let cause = chain(&error);
                self.failed(cause.clone());
                *lock(&self.unlisted) = Some(cause);
            }
        }
        self.roof.change();
    }

    /// Remembers the first so many tools, if the server may sleep the next time.
    fn keep(&self, own: usize) {
        if self.entry.start == Start::Lazy
            && let (Some(memory), Some(config)) = (&self.roof.memory, self.config())
            && let Err(error) =
                memory.keep(config, lock(&self.tools).sources[..own].iter().map(|tool| tool.definition()))
        {
            tracing::debug!(server = %self.alias(), "the tools could not be remembered: {error}");
        }
    }

    /// Filters and changes tools and hands them out; false when they are what they were.
    fn hand_out(self: &Arc<Self>, tools: Vec<Arc<dyn Tool>>) -> bool {
        let defined = |tools: &[Arc<dyn Tool>], other: &[Arc<dyn Tool>]| {
            tools.iter().map(|tool| tool.definition()).eq(other.iter().map(|tool| tool.definition()))
        };
        if defined(&lock(&self.tools).sources, &tools) {
            return false;
        }
        let bridged = tools.iter().map(|tool| Arc::new(BridgeTool::new(tool.clone(), self)) as Arc<dyn Tool>);
        let handed_out = self.shape.apply_all(bridged);
        *lock(&self.tools) = Tools { sources: tools, handed_out };
        if self.version.fetch_add(1, Ordering::AcqRel) > 0 {
            self.roof.events.tell(Event::ToolsChanged { server: self.alias().clone() });
        }
        true
    }

    /// Keeps what went wrong.
    pub(super) fn failed(&self, message: String) -> LastError {
        let error = LastError { at: SystemTime::now(), message };
        *lock(&self.last_error) = Some(error.clone());
        error
    }

    /// The tools, and how the server does.
    pub(super) fn view(&self) -> View {
        let tools = lock(&self.tools);
        let (count, of) = (tools.handed_out.len(), tools.sources.len());
        let outcome = self.outcome(count, of);
        let are_shown = match &outcome {
            Outcome::Ready { .. } | Outcome::Cached { .. } | Outcome::Connecting => true,
            // Its calls may work again any moment: a vanished server fails its call, not the list.
            Outcome::Down { .. } => self.mcp().is_some_and(|mcp| will_be_tried_again(&mcp)),
            _ => false,
        };
        View { outcome, tools: if are_shown { count } else { 0 }, version: self.version() }
    }

    /// The tools themselves.
    pub(super) fn tools(&self) -> Vec<CheckedTool> {
        lock(&self.tools).handed_out.clone()
    }

    /// How the server does.
    pub(super) fn verdict(&self) -> Outcome {
        let tools = lock(&self.tools);
        self.outcome(tools.handed_out.len(), tools.sources.len())
    }

    fn outcome(&self, tools: usize, of: usize) -> Outcome {
        if !self.entry.enabled {
            return Outcome::Disabled;
        }
        if let Settings::Missing { secrets } = &self.entry.settings {
            return Outcome::Skipped { secrets: secrets.clone() };
        }
        let Some(mcp) = self.mcp() else { return Outcome::NotStarted };
        if self.asleep.load(Ordering::Acquire) {
            return if tools == 0 && of > 0 { Outcome::FilteredToZero { of } } else { Outcome::Cached { tools } };
        }
        match &*mcp.state().borrow() {
            State::Ready { .. } => match lock(&self.unlisted).clone() {
                Some(cause) => Outcome::Down { cause },
                None if !self.listed.load(Ordering::Acquire) => Outcome::Connecting,
                None if tools == 0 && of > 0 => Outcome::FilteredToZero { of },
                None => Outcome::Ready { tools },
            },
            State::Connecting { .. } => Outcome::Connecting,
            State::NeedsAuth { .. } => Outcome::NeedsAuth,
            State::Down { cause, .. } => Outcome::Down { cause: chain(&**cause) },
            State::Closed => Outcome::NotStarted,
        }
    }

    /// Ends the calls and gives the connection back.
    pub(super) async fn stop(&self) {
        if let Some(lease) = self.end() {
            lease.release().await;
        }
        self.roof.change();
    }

    /// Ends the calls and the task; gives what is left to be closed.
    pub(super) fn end(&self) -> Option<Lease> {
        self.gate.shut();
        if let Some(follower) = lock(&self.follower).take() {
            follower.abort();
        }
        lock(&self.lease).take()
    }
}

fn will_be_tried_again(mcp: &Mcp) -> bool {
    matches!(*mcp.state().borrow(), State::Down { retry_at: Some(_), .. })
}

/// How much a slot hands out, and how its server does.
#[derive(Debug)]
pub(super) struct View {
    pub(super) outcome: Outcome,
    /// How many tools are listed.
    pub(super) tools: usize,
    /// Which version of them.
    pub(super) version: u64,
}

/// Follows the connection: new tools are handed out, and what goes wrong is kept. Holds no slot while it waits.
async fn follow(slot: Weak<Slot>, mcp: Mcp) {
    let (mut state, mut tools) = (mcp.state(), mcp.tools_version());
    loop {
        // Where both happen at once, one look at the tools is enough.
        let fetch = matches!(*state.borrow_and_update(), State::Ready { .. });
        tools.borrow_and_update();
        {
            let Some(slot) = slot.upgrade() else { return };
            if let State::Down { cause, .. } = &*state.borrow() {
                slot.failed(chain(&**cause));
            }
            slot.roof.change();
        }
        if fetch {
            let Some(slot) = slot.upgrade() else { return };
            slot.fetch(&mcp).await;
        }
        let life = mcp.tools_life().map(|life| life.max(SHORTEST_LIFE));
        let expired = async {
            match life {
                Some(life) => tokio::time::sleep(life).await,
                None => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = state.changed() => changed.is_ok(),
            changed = tools.changed() => changed.is_ok(),
            () = expired => true,
        };
        if !changed {
            return;
        }
    }
}
