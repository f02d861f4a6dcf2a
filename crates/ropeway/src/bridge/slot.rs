//! A slot: one server under the roof of a bridge, with its tools as they are handed out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context::Shelf;
use super::extras;
use super::gate::Gate;
use super::memory::{Memory, Remembered};
use super::pool::Lease;
use super::tool::BridgeTool;
use crate::checked::CheckedTool;
use crate::config::{LockPolicy, ServerConfig, ServerEntry, ServerSettings, StartMode};
use crate::event::{Event, EventStream, Events, Relay};
use crate::lock::{Difference, DifferenceKind, Lock};
use crate::mcp::{Backoff, ConnectError, ConnectErrorKind, ConnectionState, Era, Handlers, Mcp, Prompt, chain};
use crate::registry::{ServerState, ToolShape};
use crate::secret::Redactor;
use crate::tool::{Alias, CallError, Tool};

/// The shortest time between two looks at a list that the server itself calls short-lived.
const SHORTEST_LIFE: Duration = Duration::from_secs(30);

/// The pauses before a list that could not be fetched is asked for again: they double from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pauses before a list that has changed is taken over: they double while changes keep coming.
const FIRST_CHANGE: Duration = Duration::from_millis(10);

/// Number of tools of a server that differ from the lock and are told as warnings.
const MOST_WARNINGS: usize = 20;

/// What all slots of a bridge have in common.
#[derive(Debug)]
pub(super) struct Roof {
    pub(super) handlers: Handlers,
    pub(super) events: Events,
    pub(super) memory: Option<Memory>,
    /// What a person accepted, and what is done about tools that differ from it.
    pub(super) lock: Option<(Lock, LockPolicy)>,
    /// Counts every change of a slot's tools or state.
    changes: watch::Sender<u64>,
    notices: Mutex<Notices>,
    /// Secrets that are not the servers' own and are not remembered either.
    extra_secrets: Redactor,
    /// All secrets that are not remembered.
    secrets: Mutex<Redactor>,
}

/// Warnings of the configuration.
#[derive(Debug, Default)]
struct Notices {
    events: Vec<Event>,
    /// The bridge was started, and has told them.
    are_told: bool,
}

impl Roof {
    pub(super) fn new(
        handlers: Handlers,
        events: Events,
        memory: Option<Memory>,
        lock: Option<(Lock, LockPolicy)>,
        extra_secrets: Redactor,
    ) -> Self {
        let lock = lock.filter(|(_, policy)| *policy != LockPolicy::Off);
        let (changes, notices, secrets) = (watch::Sender::new(0), Mutex::default(), Mutex::default());
        Self { handlers, events, memory, lock, changes, notices, extra_secrets, secrets }
    }

    /// Takes the secrets of all servers: what one of them says is remembered without those of the others.
    pub(super) fn set_secrets(&self, slots: &[Arc<Slot>]) {
        let all = slots.iter().fold(self.extra_secrets.clone(), |all, slot| all.with(&slot.mask));
        *lock(&self.secrets) = all;
    }

    /// Are tools hidden that differ from the lock?
    pub(super) fn is_strict(&self) -> bool {
        matches!(self.lock, Some((_, LockPolicy::Strict)))
    }

    /// Something is not what it was.
    pub(super) fn change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes the warnings of a configuration, and which of its servers are not started. They are told when the bridge is started; at
    /// once if it is.
    pub(super) fn set_notices(&self, warnings: Vec<String>, slots: &[Arc<Slot>]) {
        let mut skipped: HashMap<String, Alias> =
            slots.iter().filter_map(|slot| Some((slot.entry.warning()?, slot.alias().clone()))).collect();
        let own = |message: String| Event::Warning { server: skipped.remove(&message), message };
        let mut events: Vec<Event> = warnings.into_iter().map(own).collect();
        // A configuration made in code has no such warnings.
        for slot in slots {
            if let Some(message) = slot.entry.warning().filter(|message| skipped.contains_key(message)) {
                events.push(Event::Warning { server: Some(slot.alias().clone()), message });
            }
        }
        let mut notices = lock(&self.notices);
        notices.events = events;
        if notices.are_told {
            self.tell_all(&notices.events);
        }
    }

    /// Tells the warnings of the configuration, once after each start.
    pub(super) fn tell_notices(&self) {
        let mut notices = lock(&self.notices);
        if !std::mem::replace(&mut notices.are_told, true) {
            self.tell_all(&notices.events);
        }
    }

    /// The next start tells the warnings again.
    pub(super) fn keep_notices(&self) {
        lock(&self.notices).are_told = false;
    }

    fn tell_all(&self, events: &[Event]) {
        for event in events {
            if let Event::Warning { server, message } = event {
                self.warn(server.as_ref(), message.clone());
            }
        }
    }

    /// Listens. After a start, the stream begins with the warnings that the start has told.
    pub(super) fn listen(&self) -> EventStream {
        let notices = lock(&self.notices);
        let earlier = if notices.are_told { notices.events.clone() } else { Vec::new() };
        self.events.subscribe_after(earlier)
    }

    /// Tells an oddity that was dealt with.
    pub(super) fn warn(&self, server: Option<&Alias>, message: String) {
        tracing::warn!(server = server.map(Alias::as_str), "{message}");
        self.events.emit(Event::Warning { server: server.cloned(), message });
    }
}

/// One server under the roof.
pub(super) struct Slot {
    /// No two slots of a program have the same.
    number: u64,
    pub(super) entry: ServerEntry,
    shape: ToolShape,
    mask: Redactor,
    roof: Arc<Roof>,
    gate: Arc<Gate>,
    phase: Mutex<Phase>,
    progress: watch::Sender<Progress>,
    tools: Mutex<Tools>,
    last_error: Mutex<Option<LastError>>,
    shelf: Shelf,
}

/// Where a slot is in its life.
enum Phase {
    /// Nobody has asked for it.
    Idle,
    /// Remembered tools are handed out; the server is started when one of them is called.
    Asleep(Lease),
    /// A task connects, lists, and follows what becomes of the server.
    Running { lease: Lease, follower: AbortHandle },
    /// It was, and is not to be again.
    Ended,
}

impl Phase {
    fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Asleep(lease) | Self::Running { lease, .. } => Some(lease),
            Self::Idle | Self::Ended => None,
        }
    }
}

/// What has become of the first try, and of the last look at the tools.
#[derive(Clone, Debug)]
enum Progress {
    /// The first try is under way.
    Trying,
    /// It failed; others follow.
    Failed(ConnectError),
    /// The tools are those of the server.
    Listed,
    /// The server is there, but its tools could not be had. They are asked for again.
    Unlisted(String),
}

/// A server's tools as the bridge hands them out.
#[derive(Default)]
struct Tools {
    /// As the connection has them, before filters and changes.
    sources: Vec<Arc<dyn Tool>>,
    handed_out: Vec<CheckedTool>,
    /// How they differ from the lock.
    differences: Vec<Difference>,
    /// Tools that are not handed out, by the names that they would have and that the server has for them, each with the reason.
    hidden: Vec<Hidden>,
    /// Changes with them.
    version: u64,
}

/// A tool that is not handed out until a person accepts it.
#[derive(Clone)]
pub(super) struct Hidden {
    pub(super) name: String,
    own: String,
    pub(super) reason: String,
}

/// What a server has.
struct Found {
    tools: Vec<Arc<dyn Tool>>,
    has_resources: bool,
    prompts: Vec<Prompt>,
    /// Why the prompts are not known.
    problem: Option<String>,
}

/// What went wrong last.
#[derive(Clone, Debug)]
pub(super) struct LastError {
    pub(super) at: SystemTime,
    pub(super) message: String,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    pub(super) fn new(entry: ServerEntry, shape: ToolShape, roof: Arc<Roof>) -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mask = match &entry.settings {
            ServerSettings::Known(config) => config.secrets(),
            ServerSettings::Missing { .. } | ServerSettings::Invalid { .. } => Redactor::default(),
        };
        Self {
            number: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            entry,
            shape,
            mask,
            roof,
            gate: Arc::new(Gate::new()),
            phase: Mutex::new(Phase::Idle),
            progress: watch::Sender::new(Progress::Trying),
            tools: Mutex::default(),
            last_error: Mutex::default(),
            shelf: Shelf::default(),
        }
    }

    /// The same slot before its start.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.entry.clone(), self.shape.clone(), self.roof.clone())
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn alias(&self) -> &Alias {
        &self.entry.alias
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub(super) fn mask(&self) -> &Redactor {
        &self.mask
    }

    pub(super) fn events(&self) -> &Events {
        &self.roof.events
    }

    /// The secrets without which the server cannot be started.
    pub(super) fn missing(&self) -> Option<Vec<String>> {
        match &self.entry.settings {
            ServerSettings::Missing { secrets } => Some(secrets.clone()),
            ServerSettings::Known(_) | ServerSettings::Invalid { .. } => None,
        }
    }

    /// Why the entry of the server cannot be used.
    pub(super) fn invalid(&self) -> Option<&str> {
        match &self.entry.settings {
            ServerSettings::Invalid { reason } => Some(reason),
            ServerSettings::Known(_) | ServerSettings::Missing { .. } => None,
        }
    }

    /// The settings, when the server is wanted and nothing is missing.
    pub(super) fn config(&self) -> Option<&ServerConfig> {
        match &self.entry.settings {
            ServerSettings::Known(config) if self.entry.enabled => Some(config),
            _ => None,
        }
    }

    /// The clocks of a call, where the connection has others: those of whoever made it.
    pub(super) fn clocks(&self) -> Option<(Duration, Duration)> {
        let ours = self.config()?.timeouts.bounded();
        let theirs = lock(&self.phase).lease()?.mcp().timeouts();
        ((ours.idle, ours.total) != (theirs.idle, theirs.total)).then_some((ours.idle, ours.total))
    }

    /// The connection, once the bridge is started.
    pub(super) fn mcp(&self) -> Option<Mcp> {
        lock(&self.phase).lease().map(|lease| lease.mcp().clone())
    }

    /// Returns what forwards the events of the connection, once the bridge is started.
    pub(super) fn relay(&self) -> Option<Arc<Relay>> {
        lock(&self.phase).lease().map(Lease::relay)
    }

    /// How many share the server's process.
    pub(super) fn users(&self) -> usize {
        lock(&self.phase).lease().map_or(0, Lease::users)
    }

    /// Returns the latest of what went wrong here and on the connection.
    pub(super) fn last_error(&self) -> Option<LastError> {
        let own = lock(&self.last_error).clone();
        let lost = self.mcp().and_then(|mcp| mcp.last_failure());
        let lost = lost.map(|(at, cause)| LastError { at, message: chain(&*cause) });
        own.into_iter().chain(lost).max_by_key(|error| error.at)
    }

    /// Tells an oddity about the server; words of its own are shown without secrets.
    pub(super) fn warn(&self, message: &str) {
        self.roof.warn(Some(self.alias()), self.mask.hide(message).into_owned());
    }

    /// Connects, unless the server may sleep. That the first try fails is an error; further ones are made behind it.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), ConnectError> {
        let Some(config) = self.config() else { return Ok(()) };
        {
            let mut phase = lock(&self.phase);
            if matches!(*phase, Phase::Idle) {
                let lease = Lease::new(config, self.alias(), &self.roof.handlers, self.events());
                let may_sleep = self.entry.start == StartMode::Lazy && !lease.mcp().is_connected();
                *phase = match may_sleep.then(|| self.recall(config)).flatten() {
                    Some(remembered) => {
                        let Remembered { tools, has_resources, prompts } = remembered;
                        let tools = tools.into_iter().map(|definition| lease.mcp().detached_tool(definition)).collect();
                        self.hand_out(Found { tools, has_resources, prompts, problem: None });
                        Phase::Asleep(lease)
                    }
                    None => self.running(lease),
                };
            }
        }
        self.roof.change();
        self.settled().await
    }

    fn recall(&self, config: &ServerConfig) -> Option<Remembered> {
        self.roof.memory.as_ref()?.recall(config)
    }

    /// Begins to follow the server. Whoever waits for it may give up, and all the same it is done.
    fn running(self: &Arc<Self>, lease: Lease) -> Phase {
        let era = self.roof.memory.as_ref().zip(self.config()).and_then(|(memory, config)| memory.recall_era(config));
        if let Some(era) = era {
            lease.mcp().assume_era(era);
        }
        if let Some(info) = lease.mcp().server_info() {
            // Somebody else has made the connection: we have not heard it being made.
            let (server, protocol_version) = (self.alias().clone(), info.protocol_version.clone());
            self.events().emit(Event::Ready { server, protocol_version });
        }
        let follower = tokio::spawn(follow(Arc::downgrade(self), lease.mcp().clone())).abort_handle();
        Phase::Running { lease, follower }
    }

    /// Waits until the first try is over.
    async fn settled(&self) -> Result<(), ConnectError> {
        if !matches!(*lock(&self.phase), Phase::Running { .. }) {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        let first = self.gate.pass(progress.wait_for(|progress| !matches!(progress, Progress::Trying))).await;
        match first {
            Ok(Ok(progress)) => match &*progress {
                Progress::Failed(failed) => Err(failed.clone()),
                _ => Ok(()),
            },
            // It was stopped meanwhile.
            _ => Ok(()),
        }
    }

    /// Starts the server if it sleeps, and waits for it.
    pub(super) async fn wake(self: &Arc<Self>) -> Result<(), CallError> {
        {
            let mut phase = lock(&self.phase);
            *phase = match std::mem::replace(&mut *phase, Phase::Ended) {
                Phase::Asleep(lease) => self.running(lease),
                phase => phase,
            };
        }
        // A server that has failed once is waited for by the call itself, as long as that makes sense.
        if !matches!(*self.progress.borrow(), Progress::Trying) {
            return Ok(());
        }
        self.roof.change();
        let server = self.alias().clone();
        self.settled().await.map_err(|failed| match &*failed.cause {
            ConnectErrorKind::NeedsAuth { challenge } => CallError::NeedsAuth { server, challenge: challenge.clone() },
            _ => CallError::Unavailable { server, source: Box::new(failed.cause) },
        })
    }

    /// What is to be asked of the server besides its tools.
    fn wants_prompts(&self) -> bool {
        self.entry.prompts.tools
    }

    /// Takes over what the server has, or why that is not known.
    fn take(self: &Arc<Self>, found: Result<Found, CallError>) {
        match found {
            Ok(found) => {
                if let Some(problem) = &found.problem {
                    self.warn(&format!("its prompts could not be listed: {problem}"));
                }
                let remembered = self.remembered(&found);
                let is_new = self.hand_out(found);
                if let (true, Some(remembered)) = (is_new, remembered) {
                    self.keep(&remembered);
                }
                if is_new {
                    self.check_schemas();
                }
                let before = self.progress.send_replace(Progress::Listed);
                // At the first try whoever started it is told by the verdict.
                if is_new && !matches!(before, Progress::Trying) {
                    self.events().emit(Event::ToolsChanged { server: self.alias().clone() });
                }
            }
            Err(error) => {
                let cause = chain(&error);
                self.warn(&format!("its tools could not be listed: {cause}"));
                self.failed(cause.clone());
                self.progress.send_replace(Progress::Unlisted(cause));
            }
        }
        self.roof.change();
    }

    /// What there is to remember: a lazy server sleeps the next time, and of any other one the tools are known before it is started.
    fn remembered(&self, found: &Found) -> Option<Remembered> {
        self.roof.memory.is_some().then(|| Remembered {
            tools: found.tools.iter().map(|tool| tool.definition().clone()).collect(),
            has_resources: found.has_resources,
            prompts: found.prompts.clone(),
        })
    }

    fn keep(&self, remembered: &Remembered) {
        if let (Some(memory), Some(config)) = (&self.roof.memory, self.config())
            && let Err(error) = memory.keep(config, remembered, &lock(&self.roof.secrets).clone())
        {
            tracing::debug!(server = %self.alias(), "the tools could not be remembered: {error}");
        }
    }

    /// Warns about tools whose input schemas cannot be compiled, if anyone listens. Compiling takes a while, so it happens in the
    /// background and stops when the slot is gone.
    fn check_schemas(self: &Arc<Self>) {
        if !self.events().has_listeners() {
            return;
        }
        let (slot, tools) = (Arc::downgrade(self), self.tools());
        tokio::task::spawn_blocking(move || {
            let mut warned = 0;
            for tool in tools {
                let Some(slot) = slot.upgrade().filter(|_| warned < MOST_WARNINGS) else { return };
                if let Some(warning) = tool.schema_warning() {
                    slot.warn(&warning);
                    warned += 1;
                }
            }
        });
    }

    /// Keeps the era that the server speaks, or forgets it.
    fn keep_era(&self, era: Option<Era>) {
        let Some((memory, config)) = self.roof.memory.as_ref().zip(self.config()) else { return };
        let kept = match era {
            Some(era) => memory.keep_era(config, era),
            None => memory.forget_era(config),
        };
        if let Err(error) = kept {
            tracing::debug!(server = %self.alias(), "the era could not be remembered: {error}");
        }
    }

    /// Filters and changes tools and hands them out; false when they are what they were.
    fn hand_out(self: &Arc<Self>, found: Found) -> bool {
        let Found { tools: own, has_resources, prompts, .. } = found;
        let extras = extras::tools(self, has_resources, &prompts, &own);
        let mut tools = lock(&self.tools);
        let definitions = tools.sources.iter().map(|tool| tool.definition());
        if tools.version > 0 && definitions.eq(own.iter().chain(&extras).map(|tool| tool.definition())) {
            return false;
        }
        let bridged = |tool: &Arc<dyn Tool>| Arc::new(BridgeTool::new(tool.clone(), self)) as Arc<dyn Tool>;
        let mut handed_out = self.shape.apply_all(own.iter().map(bridged));
        // Whoever allows some of a server's tools has not spoken of these.
        handed_out.extend(self.shape.allowing_all().apply_all(extras.iter().map(bridged)));
        let (differences, hidden) = self.apply_lock(&mut handed_out);
        tools.handed_out = handed_out;
        tools.differences = differences;
        tools.hidden = hidden;
        tools.sources = own;
        tools.sources.extend(extras);
        tools.version += 1;
        true
    }

    /// Compares tools with the lock. A tool that differs is reported as a warning, and taken out where the lock is strict.
    fn apply_lock(&self, tools: &mut Vec<CheckedTool>) -> (Vec<Difference>, Vec<Hidden>) {
        let Some((lock, policy)) = &self.roof.lock else { return Default::default() };
        let differences = lock.compare(self.alias(), tools.iter().map(|tool| tool.definition()));
        let is_told = |kind: &DifferenceKind| match kind {
            DifferenceKind::Changed(_) => true,
            DifferenceKind::New => *policy == LockPolicy::Strict,
            DifferenceKind::Gone => false,
        };
        for difference in differences.iter().filter(|it| is_told(&it.kind)).take(MOST_WARNINGS) {
            self.warn(&difference.to_string());
        }
        if *policy != LockPolicy::Strict {
            return (differences, Vec::new());
        }
        let reasons: HashMap<&str, String> =
            differences.iter().map(|difference| (difference.tool.as_str(), difference.reason())).collect();
        let mut hidden = Vec::new();
        tools.retain(|tool| {
            let definition = tool.definition();
            let Some(reason) = reasons.get(definition.own_name()) else { return true };
            let (name, own) = (definition.name.clone(), definition.own_name().to_owned());
            hidden.push(Hidden { name, own, reason: reason.clone() });
            false
        });
        (differences, hidden)
    }

    /// Returns how the tools differ from the lock.
    pub(super) fn differences(&self) -> Vec<Difference> {
        lock(&self.tools).differences.clone()
    }

    /// Returns the tools that are not handed out until a person accepts them.
    pub(super) fn hidden(&self) -> Vec<Hidden> {
        lock(&self.tools).hidden.clone()
    }

    /// Returns why a call of a tool must not be made: the tool may have been handed out before it changed.
    pub(super) fn refusal(&self, own: &str) -> Option<CallError> {
        let tools = lock(&self.tools);
        let hidden = tools.hidden.iter().find(|hidden| hidden.own == own)?;
        Some(CallError::Hidden { tool: hidden.name.clone(), reason: hidden.reason.clone() })
    }

    /// Are tools hidden that differ from the lock?
    pub(super) fn is_strict(&self) -> bool {
        self.roof.is_strict()
    }

    /// Keeps what went wrong.
    pub(super) fn failed(&self, message: String) -> LastError {
        let error = LastError { at: SystemTime::now(), message };
        *lock(&self.last_error) = Some(error.clone());
        error
    }

    /// How much is handed out, and how the server does.
    pub(super) fn view(&self) -> View {
        let (tools, of, hidden, version) = {
            let tools = lock(&self.tools);
            (tools.handed_out.len(), tools.sources.len(), tools.hidden.len(), tools.version)
        };
        let (outcome, are_listed) = match self.standing(tools, of) {
            (ServerState::FilteredToZero { .. }, are_listed) if hidden > 0 => {
                (ServerState::Hidden { of: hidden }, are_listed)
            }
            standing => standing,
        };
        let note = self.mcp().and_then(|mcp| mcp.tools_truncation()).filter(|_| are_listed);
        View { outcome, tools: if are_listed { tools } else { 0 }, version, note }
    }

    /// The tools themselves.
    pub(super) fn tools(&self) -> Vec<CheckedTool> {
        lock(&self.tools).handed_out.clone()
    }

    /// How the server does with so many tools, and whether they are listed.
    ///
    /// Those of a server that may be back any moment are: a vanished server fails its call, not the list.
    fn standing(&self, tools: usize, of: usize) -> (ServerState, bool) {
        if !self.entry.enabled {
            return (ServerState::Disabled, false);
        }
        if let Some(secrets) = self.missing() {
            return (ServerState::Skipped { secrets }, false);
        }
        if let Some(reason) = self.invalid() {
            return (ServerState::Invalid { reason: reason.to_owned() }, false);
        }
        let filtered = tools == 0 && of > 0;
        let mcp = match &*lock(&self.phase) {
            Phase::Idle | Phase::Ended => return (ServerState::NotStarted, false),
            Phase::Asleep(_) if filtered => return (ServerState::FilteredToZero { of }, false),
            Phase::Asleep(_) => return (ServerState::Cached { tools }, true),
            Phase::Running { lease, .. } => lease.mcp().clone(),
        };
        match (&*mcp.state().borrow(), &*self.progress.borrow()) {
            (ConnectionState::Ready { .. }, Progress::Unlisted(cause)) if of == 0 => {
                (ServerState::Down { cause: cause.clone() }, false)
            }
            (ConnectionState::Ready { .. }, Progress::Listed | Progress::Unlisted(_)) if filtered => {
                (ServerState::FilteredToZero { of }, false)
            }
            (ConnectionState::Ready { .. }, Progress::Listed | Progress::Unlisted(_)) => {
                (ServerState::Ready { tools }, true)
            }
            (ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }, _) => (ServerState::Connecting, true),
            (ConnectionState::NeedsAuth { .. }, _) => (ServerState::NeedsAuth, false),
            (ConnectionState::Down { cause, retry_at }, _) => {
                (ServerState::Down { cause: chain(&**cause) }, retry_at.is_some())
            }
            // The task has not begun yet.
            (ConnectionState::Closed, Progress::Trying) => (ServerState::Connecting, true),
            (ConnectionState::Closed, _) => (ServerState::NotStarted, false),
        }
    }

    /// Ends the calls and gives the connection back.
    pub(super) async fn stop(&self) {
        self.gate.shut();
        self.retire().await;
    }

    /// Gives the connection back to those who still have it, and lets calls go on that are under way.
    pub(super) async fn retire(&self) {
        if let Some(lease) = self.leave() {
            lease.release().await;
        }
        self.roof.change();
    }

    /// Ends the calls and the task at once; what is to be closed closes by itself.
    pub(super) fn end(&self) {
        self.gate.shut();
        drop(self.leave());
    }

    fn leave(&self) -> Option<Lease> {
        match std::mem::replace(&mut *lock(&self.phase), Phase::Ended) {
            Phase::Running { lease, follower } => {
                follower.abort();
                Some(lease)
            }
            Phase::Asleep(lease) => Some(lease),
            Phase::Idle | Phase::Ended => None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// How much a slot hands out, and how its server does.
#[derive(Debug)]
pub(super) struct View {
    pub(super) outcome: ServerState,
    /// How many tools are listed.
    pub(super) tools: usize,
    /// Which version of them.
    pub(super) version: u64,
    /// What else is to be known of them.
    pub(super) note: Option<String>,
}

/// Connects, and follows the connection: new tools are handed out, and what goes wrong is kept.
///
/// It does not hold the slot while it waits, so that the slot can go.
async fn follow(slot: Weak<Slot>, mcp: Mcp) {
    let (mut state, mut tools, mut prompts) = (mcp.state(), mcp.tools_version(), mcp.prompts_version());
    let mut connecting = std::pin::pin!(mcp.connect());
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(mcp.timeouts().bounded().connect / 2) => {
            // A server that is silent for so long may speak another era by now. The next start probes it.
            slot.upgrade().iter().for_each(|slot| slot.keep_era(None));
            connecting.await
        }
    };
    if let Err(failed) = connected {
        let Some(slot) = slot.upgrade() else { return };
        slot.failed(chain(&*failed.cause));
        slot.progress.send_replace(Progress::Failed(ConnectError { server: slot.alias().clone(), ..failed }));
    }
    let mut failures = 0;
    let mut backoff = Backoff::new(FIRST_CHANGE, LONGEST_PAUSE);
    loop {
        tools.borrow_and_update();
        prompts.borrow_and_update();
        let is_ready = matches!(*state.borrow_and_update(), ConnectionState::Ready { .. });
        let wants_prompts = {
            let Some(slot) = slot.upgrade() else { return };
            if let ConnectionState::Down { cause, .. } = &*state.borrow() {
                slot.failed(chain(&**cause));
            }
            if let ConnectionState::Ready { server } = &*state.borrow() {
                slot.keep_era(Some(server.era));
            }
            slot.roof.change();
            slot.wants_prompts()
        };
        let mut again = None;
        if is_ready {
            let found = find(&mcp, wants_prompts).await;
            // A connection that is lost says so itself.
            if found.is_ok() || mcp.is_connected() {
                failures = if found.is_ok() { 0 } else { failures + 1 };
                let Some(slot) = slot.upgrade() else { return };
                slot.take(found);
            }
            again = match failures {
                0 => mcp.tools_ttl().map(|life| life.max(SHORTEST_LIFE)),
                _ => Some(FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE)),
            };
        }
        let expired = async {
            match again {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let (goes_on, is_change) = tokio::select! {
            changed = state.changed() => (changed.is_ok(), false),
            changed = tools.changed() => (changed.is_ok(), true),
            changed = prompts.changed(), if wants_prompts => (changed.is_ok(), true),
            () = expired => (true, false),
        };
        if !goes_on {
            return;
        }
        if is_change {
            // What changes meanwhile is seen after it; a server that goes is seen at once.
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                _ = state.changed() => {}
            }
        }
    }
}

/// What the server has: as the connection knows it, or asked for.
async fn find(mcp: &Mcp, wants_prompts: bool) -> Result<Found, CallError> {
    let tools = mcp.cached_tools().await?;
    let has_resources = mcp.server_info().is_some_and(|info| info.has_capability(&["resources"]));
    let prompts = if wants_prompts { mcp.list_prompts().await } else { Ok(Vec::new()) };
    // Without its prompts a server is still worth having.
    let problem = prompts.as_ref().err().map(|error| chain(error));
    Ok(Found { tools, has_resources, prompts: prompts.unwrap_or_default(), problem })
}
