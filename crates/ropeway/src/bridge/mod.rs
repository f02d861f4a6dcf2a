//! Many servers under one roof: started together, listed together, and none of them hurts the others.

mod context;
mod discover;
mod eras;
mod extras;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
mod gate;
mod health;
mod memory;
mod pool;
mod private;
mod slot;
mod tool;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

pub use self::discover::{DiscoveredTool, connect_and_discover, discover_and_register};
pub use self::health::{BridgeHealth, ServerHealth};
pub use self::memory::{default_memory, remembered_tools};

use self::health::PATIENCE;
use self::memory::Memory;
use self::slot::{Roof, Slot, View, lock};
use crate::config::{CollisionPolicy, Config, LockPolicy, Secrets, ServerEntry};
use crate::event::{Event, EventStream, Events};
use crate::lock::{Difference, Lock};
use crate::mcp::{ConnectError, Handlers, Mcp};
use crate::registry::{
    ContextItem, ContextSource, Predicate, Registry, ServerState, ServerStatus, ToolShape, ToolShapeError, ToolSource,
    Transformer,
};
use crate::secret::Redactor;
use crate::tool::{Alias, BoxError, BoxFuture, CallError, ToolDefinition};

/// A bridge could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// Its settings make no sense.
    #[error("the settings of server `{server}` make no sense")]
    Settings {
        /// The server.
        server: Alias,
        /// Why.
        #[source]
        source: ToolShapeError,
    },
    /// Two servers have one name.
    #[error("two servers are called `{server}`")]
    DoubledAlias {
        /// The name.
        server: Alias,
    },
    /// A server without which nothing works is not there.
    #[error("server `{server}` is required")]
    Required {
        /// The server.
        server: Alias,
        /// Why it is not there.
        #[source]
        source: ConnectError,
    },
    /// A server without which nothing works lacks secrets.
    #[error("server `{server}` is required, and {} not set", names(.secrets))]
    RequiredSecrets {
        /// The server.
        server: Alias,
        /// The names of the secrets.
        secrets: Vec<String>,
    },
    /// The entry of a required server has a key that is not supported.
    #[error("server `{server}` is required, but {reason}")]
    RequiredInvalid {
        /// The server.
        server: Alias,
        /// The key, and where it is.
        reason: String,
    },
}

fn names(secrets: &[String]) -> String {
    let are = if secrets.len() == 1 { "is" } else { "are" };
    format!("`{}` {are}", secrets.join("`, `"))
}

/// The tools of a bridge, and of each server why they are there or not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolListing {
    /// The tools.
    pub registry: Registry,
    /// How each server stands, in the order of the configuration.
    pub verdicts: Vec<ServerStatus>,
    /// How the tools differ from the lock, if the bridge [has one](BridgeBuilder::lock).
    pub differences: Vec<Difference>,
}

/// What a new configuration has changed, by server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadReport {
    /// Servers that are new.
    pub started: Vec<Alias>,
    /// Servers that are gone.
    pub stopped: Vec<Alias>,
    /// Servers whose entry has changed.
    pub restarted: Vec<Alias>,
    /// Servers that were left alone.
    pub kept: Vec<Alias>,
}

/// Many servers under one roof.
///
/// Cheap to clone. Dropping the last clone closes every connection and ends every process that nobody else uses; whoever
/// holds an [`Mcp`] of it uses that connection.
#[derive(Clone)]
#[must_use = "dropping a bridge closes its connections"]
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    roof: Arc<Roof>,
    shaping: Shaping,
    crew: Mutex<Crew>,
    listing: Mutex<Assembled>,
    watcher: Mutex<Option<AbortHandle>>,
    /// The required server because of which the last start failed, and why.
    failed: Mutex<Option<(Alias, String)>>,
}

/// The servers, and whether they are to run.
struct Crew {
    slots: Vec<Arc<Slot>>,
    collisions: CollisionPolicy,
    is_started: bool,
}

/// What the host does to every server's tools, on top of what the configuration says.
#[derive(Clone, Default)]
struct Shaping {
    transformers: Vec<Arc<dyn Transformer>>,
    filters: Vec<Predicate>,
}

/// Collisions that were told are told again after so many others: a server that renames its tools again and again must not
/// fill the memory.
const MOST_TOLD: usize = 10_000;

/// The last registry that was made, and what it was made of.
#[derive(Default)]
struct Assembled {
    registry: Registry,
    /// By slot: its number, which version its tools have, how many of them are shown.
    made_of: (CollisionPolicy, Vec<(u64, u64, usize)>),
    /// Collisions that were told already.
    told: HashSet<String>,
}

/// Settings of a bridge beside its configuration.
#[derive(Clone)]
pub struct BridgeBuilder {
    config: Config,
    handlers: Handlers,
    events: Events,
    shaping: Shaping,
    memory: Option<PathBuf>,
    lock: Option<(Lock, LockPolicy)>,
    secrets: Redactor,
}

impl BridgeBuilder {
    /// Compares tools with those that a person accepted. With [`LockPolicy::Warn`] a difference is reported as a warning; with
    /// [`LockPolicy::Strict`] tools that are new or changed are neither listed nor called. [`ToolListing::differences`] has all of
    /// them.
    ///
    /// The bridge does not read the lock file: [`LockFile::read`](crate::lock::LockFile::read) does. `lock` of the configuration is
    /// for the host to follow.
    #[must_use]
    pub fn lock(mut self, lock: Lock, policy: LockPolicy) -> Self {
        self.lock = Some((lock, policy));
        self
    }

    /// Who answers what servers ask of the host.
    #[must_use]
    pub fn handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// Where events are told, for a host that gathers them.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Changes every tool, after what the configuration says.
    #[must_use]
    pub fn transformer(mut self, transformer: impl Transformer + 'static) -> Self {
        self.shaping.transformers.push(Arc::new(transformer));
        self
    }

    /// Hands out only tools that pass; the names are the servers' own.
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.shaping.filters.push(Arc::new(filter));
        self
    }

    /// Remembers servers in this folder instead of the [default one](default_memory): their tools, so that lazy servers need not be
    /// started to list them and [`remembered_tools`] knows those of all, and which servers speak the legacy era, so that those are
    /// not probed at every start.
    #[must_use]
    pub fn remember_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.memory = Some(folder.into());
        self
    }

    /// Remembers nothing of these secrets either. Those of the servers themselves are never remembered.
    #[must_use]
    pub fn redact(mut self, secrets: Redactor) -> Self {
        self.secrets = secrets;
        self
    }

    /// Neither reads nor writes anything about servers on disk. A lazy server is then started with the others.
    #[must_use]
    pub fn remember_nothing(mut self) -> Self {
        self.memory = None;
        self
    }

    /// Checks the settings. Nothing is started.
    pub fn build(self) -> Result<Bridge, BridgeError> {
        let Self { config, handlers, events, shaping, memory, lock, secrets } = self;
        let roof = Arc::new(Roof::new(handlers, events, memory.map(Memory::new), lock, secrets));
        let slots = slots(config.servers, &shaping, &roof)?;
        roof.set_secrets(&slots);
        roof.set_notices(config.warnings, &slots);
        let inner = Inner {
            roof,
            shaping,
            crew: Mutex::new(Crew { slots, collisions: config.collisions, is_started: false }),
            listing: Mutex::default(),
            watcher: Mutex::default(),
            failed: Mutex::default(),
        };
        Ok(Bridge { inner: Arc::new(inner) })
    }
}

fn slots(entries: Vec<ServerEntry>, shaping: &Shaping, roof: &Arc<Roof>) -> Result<Vec<Arc<Slot>>, BridgeError> {
    let mut aliases = HashSet::new();
    let slot = |entry: ServerEntry| {
        if !aliases.insert(entry.alias.clone()) {
            return Err(BridgeError::DoubledAlias { server: entry.alias });
        }
        new_slot(entry, shaping, roof)
    };
    entries.into_iter().map(slot).collect()
}

fn new_slot(entry: ServerEntry, shaping: &Shaping, roof: &Arc<Roof>) -> Result<Arc<Slot>, BridgeError> {
    let settings = |source| BridgeError::Settings { server: entry.alias.clone(), source };
    let mut shape = ToolShape::new(&entry).map_err(settings)?;
    for filter in &shaping.filters {
        let filter = filter.clone();
        shape = shape.with_filter(move |definition| filter(definition));
    }
    for transformer in &shaping.transformers {
        shape = shape.with_transformer(transformer.clone());
    }
    Ok(Arc::new(Slot::new(entry, shape, roof.clone())))
}

impl Bridge {
    /// A bridge over the servers of a configuration. Nothing is started.
    pub fn new(config: Config) -> Result<Self, BridgeError> {
        Self::builder(config).build()
    }

    /// The same with further settings.
    pub fn builder(config: Config) -> BridgeBuilder {
        BridgeBuilder {
            config,
            handlers: Handlers::new(),
            events: Events::default(),
            shaping: Shaping::default(),
            memory: default_memory(),
            lock: None,
            secrets: Redactor::default(),
        }
    }

    /// Connects all servers at once and waits until each is there or has failed. A server that fails is tried again in
    /// the background; only a required one makes this an error, and then nothing is left running.
    pub async fn start(&self) -> Result<Vec<ServerStatus>, BridgeError> {
        let slots = {
            let mut crew = lock(&self.inner.crew);
            crew.is_started = true;
            crew.slots.clone()
        };
        *lock(&self.inner.failed) = None;
        self.inner.roof.tell_notices();
        if let Err(error) = start_all(&slots).await {
            self.stop().await;
            if let BridgeError::Required { server, source } = &error {
                *lock(&self.inner.failed) = Some((server.clone(), crate::mcp::chain(&*source.cause)));
                self.inner.roof.change();
            }
            return Err(error);
        }
        Ok(self.verdicts())
    }

    /// Closes every connection, cancels what is in flight, and does not follow a file any more. The bridge can be started
    /// again.
    pub async fn stop(&self) {
        if let Some(watcher) = lock(&self.inner.watcher).take() {
            watcher.abort();
        }
        let slots = {
            let mut crew = lock(&self.inner.crew);
            crew.is_started = false;
            // A slot ends once; the next start begins with new ones. First of all, so that nobody who gives up waiting
            // leaves the bridge with those that have ended.
            let fresh = crew.slots.iter().map(|slot| Arc::new(slot.renewed())).collect();
            std::mem::replace(&mut crew.slots, fresh)
        };
        *lock(&self.inner.failed) = None;
        lock(&self.inner.listing).told.clear();
        self.inner.roof.keep_notices();
        stop_all(slots).await;
        self.inner.roof.change();
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        lock(&self.inner.crew).slots.clone()
    }

    /// The tools as of now, and how each server stands. Before `start` there are none.
    pub fn tools(&self) -> ToolListing {
        let (slots, collisions) = {
            let crew = lock(&self.inner.crew);
            (crew.slots.clone(), crew.collisions)
        };
        let views: Vec<View> = slots.iter().map(|slot| slot.view()).collect();
        let parts = slots.iter().zip(&views);
        let made_of = parts.clone().map(|(slot, view)| (slot.number(), view.version, view.tools)).collect();
        let made_of = (collisions, made_of);
        let mut assembled = lock(&self.inner.listing);
        if assembled.made_of != made_of {
            let groups = parts.map(|(slot, view)| if view.tools > 0 { slot.tools() } else { Vec::new() });
            let (registry, found) = Registry::assemble(groups, collisions);
            if assembled.told.len() > MOST_TOLD {
                assembled.told.clear();
            }
            for collision in found {
                let message =
                    slots.iter().fold(collision.to_string(), |text, slot| slot.mask().hide(&text).into_owned());
                if assembled.told.insert(message.clone()) {
                    self.inner.roof.warn(None, message);
                }
            }
            let hidden = slots.iter().flat_map(|slot| slot.hidden());
            assembled.registry = registry.with_hidden(hidden.map(|hidden| (hidden.name, hidden.reason)));
            assembled.made_of = made_of;
        }
        let verdicts = slots.iter().zip(views).map(|(slot, view)| self.verdict(slot, view));
        let differences = slots.iter().flat_map(|slot| slot.differences()).collect();
        ToolListing { registry: assembled.registry.clone(), verdicts: verdicts.collect(), differences }
    }

    /// How each server stands; the tools are not put together for it.
    pub fn verdicts(&self) -> Vec<ServerStatus> {
        self.slots().iter().map(|slot| self.verdict(slot, slot.view())).collect()
    }

    fn verdict(&self, slot: &Slot, view: View) -> ServerStatus {
        let outcome = match (view.outcome, &*lock(&self.inner.failed)) {
            // Nothing is left running after a start that failed, but the reason stays known.
            (ServerState::NotStarted, Some((server, cause))) if server == slot.alias() => {
                ServerState::Down { cause: cause.clone() }
            }
            (outcome, _) => outcome,
        };
        ServerStatus::new(slot.alias().clone(), outcome).with_note(view.note).with_required(slot.entry.required)
    }

    /// Asks every server at once whether it is alive.
    pub async fn health_check(&self) -> BridgeHealth {
        self.health_check_within(PATIENCE).await
    }

    /// The same, when there is only so much time for the answers.
    pub async fn health_check_within(&self, patience: Duration) -> BridgeHealth {
        let mut checks = JoinSet::new();
        let slots = self.slots();
        for (number, slot) in slots.iter().cloned().enumerate() {
            checks.spawn(async move { (number, ServerHealth::of(&slot, patience).await) });
        }
        let mut servers = checks.join_all().await;
        servers.sort_by_key(|(number, _)| *number);
        BridgeHealth { servers: servers.into_iter().map(|(_, health)| health).collect() }
    }

    /// Returns the events of all servers, from now on.
    ///
    /// [`start`](Self::start) and [`reload`](Self::reload) tell the warnings of the configuration, and which servers are skipped and why, as
    /// [`Event::Warning`]. A stream that is opened after `start` begins with them, so that they are seen either way, and once.
    pub fn events(&self) -> EventStream {
        self.inner.roof.listen()
    }

    /// Waits until `done` says of the tools and verdicts that they are as wanted.
    pub async fn until(&self, mut done: impl FnMut(&ToolListing) -> bool) -> ToolListing {
        let mut changes = self.inner.roof.changes();
        loop {
            changes.borrow_and_update();
            let listing = self.tools();
            // The sender lives as long as `self`.
            if done(&listing) || changes.changed().await.is_err() {
                return listing;
            }
        }
    }

    /// Waits until `done` says of the verdicts that they are as wanted.
    pub async fn until_verdicts(&self, mut done: impl FnMut(&[ServerStatus]) -> bool) -> Vec<ServerStatus> {
        let mut changes = self.inner.roof.changes();
        loop {
            changes.borrow_and_update();
            let verdicts = self.verdicts();
            // The sender lives as long as `self`.
            if done(&verdicts) || changes.changed().await.is_err() {
                return verdicts;
            }
        }
    }

    /// The names of the servers, in the order of the configuration.
    pub fn servers(&self) -> Vec<Alias> {
        self.slots().iter().map(|slot| slot.alias().clone()).collect()
    }

    /// The connection to a server, once the bridge is started. It may be shared with others: do not close it.
    pub fn server(&self, alias: &Alias) -> Option<Mcp> {
        self.slots().iter().find(|slot| slot.alias() == alias).and_then(|slot| slot.mcp())
    }

    /// Starts a server that sleeps; one that does not is left alone.
    pub async fn wake(&self, alias: &Alias) -> Result<(), CallError> {
        let slot = self.slots().into_iter().find(|slot| slot.alias() == alias);
        slot.ok_or_else(|| CallError::NotConnected { server: alias.clone() })?.wake().await
    }

    /// Takes over a new configuration: only servers whose entry has changed are started, stopped or restarted.
    pub async fn reload(&self, config: Config) -> Result<ReloadReport, BridgeError> {
        let (reloaded, change) = self.inner.swap(config)?;
        change.carry_out().await;
        self.inner.roof.change();
        Ok(reloaded)
    }

    /// Follows a configuration file: when it changes, so does the bridge. A file that makes no sense is told as a
    /// warning, and the old configuration stays. [`Bridge::stop`] ends it, also the one after a start that failed.
    pub fn watch(&self, file: impl Into<PathBuf>, secrets: Secrets) {
        self.watch_accepted(file, secrets, |_| Ok(()));
    }

    /// Follows a configuration file like [`watch`](Self::watch), but only as far as `accept` agrees.
    ///
    /// `accept` gets the text of the changed file before anything in it is looked at. The text that it accepts is the text that is
    /// used. An error is reported as a warning, the old configuration stays, and `accept` is asked again from time to time.
    pub fn watch_accepted(
        &self,
        file: impl Into<PathBuf>,
        secrets: Secrets,
        accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
    ) {
        let follow = watch::follow(Arc::downgrade(&self.inner), file.into(), secrets, accept);
        let task = tokio::spawn(follow).abort_handle();
        if let Some(before) = lock(&self.inner.watcher).replace(task) {
            before.abort();
        }
    }
}

impl Inner {
    /// Does a configuration say something else than what is in place?
    fn differs(&self, config: &Config) -> bool {
        let crew = lock(&self.crew);
        let entries = crew.slots.iter().map(|slot| &slot.entry);
        crew.collisions != config.collisions || !entries.eq(&config.servers)
    }

    /// Puts the servers of a new configuration in place; what is to be started and stopped is left to be done.
    fn swap(&self, config: Config) -> Result<(ReloadReport, Change), BridgeError> {
        let Config { servers, collisions, warnings, .. } = config;
        let mut crew = lock(&self.crew);
        let mut reloaded = ReloadReport::default();
        let mut old = crew.slots.clone();
        let (mut new, mut fresh) = (Vec::new(), Vec::new());
        let mut aliases = HashSet::new();
        for entry in servers {
            if !aliases.insert(entry.alias.clone()) {
                return Err(BridgeError::DoubledAlias { server: entry.alias });
            }
            let alias = entry.alias.clone();
            let before = old.iter().position(|slot| *slot.alias() == alias).map(|at| old.remove(at));
            match before {
                Some(slot) if slot.entry == entry => {
                    reloaded.kept.push(alias);
                    new.push(slot);
                }
                before => {
                    let slot = new_slot(entry, &self.shaping, &self.roof)?;
                    // What could not run before, or cannot now, was not running.
                    match (before.as_ref().is_some_and(|slot| slot.config().is_some()), slot.config().is_some()) {
                        (true, true) => reloaded.restarted.push(alias),
                        (true, false) => reloaded.stopped.push(alias),
                        (false, true) => reloaded.started.push(alias),
                        (false, false) => reloaded.kept.push(alias),
                    }
                    fresh.push((before, slot.clone()));
                    new.push(slot);
                }
            }
        }
        let gone = old.iter().filter(|slot| slot.config().is_some());
        reloaded.stopped.extend(gone.map(|slot| slot.alias().clone()));
        let slots = new.clone();
        crew.slots = new;
        crew.collisions = collisions;
        let change =
            Change { fresh, old, is_started: crew.is_started, roof: self.roof.clone(), reloaded: reloaded.clone() };
        drop(crew);
        self.roof.set_secrets(&slots);
        self.roof.set_notices(warnings, &slots);
        Ok((reloaded, change))
    }
}

/// What a new configuration leaves to be done. It does not hold the bridge: dropping that ends all of it.
struct Change {
    /// Slots that are new, each with the one whose place it takes.
    fresh: Vec<(Option<Arc<Slot>>, Arc<Slot>)>,
    old: Vec<Arc<Slot>>,
    is_started: bool,
    roof: Arc<Roof>,
    reloaded: ReloadReport,
}

impl Change {
    async fn carry_out(self) {
        let mut changes = JoinSet::new();
        for (before, slot) in self.fresh {
            changes.spawn(replace(before, slot, self.is_started));
        }
        changes.spawn(stop_all(self.old));
        while changes.join_next().await.is_some() {}
        let ReloadReport { started, stopped, restarted, .. } = self.reloaded;
        self.roof.events.emit(Event::Reloaded { started, stopped, restarted });
    }
}

/// Puts a slot in the place of another.
async fn replace(before: Option<Arc<Slot>>, slot: Arc<Slot>, start: bool) {
    // What only looks different is the same process: the new one joins before the old one leaves, and a turn that is under
    // way goes on with it.
    let same = before.as_ref().is_some_and(|before| before.entry.settings == slot.entry.settings);
    if let Some(before) = before.as_ref().filter(|_| !same) {
        before.stop().await;
    }
    if start && let Err(failed) = slot.start().await {
        left_out(&slot, &failed);
    }
    if let Some(before) = before.filter(|_| same) {
        before.retire().await;
    }
}

/// A server that cannot be had is left out, and tried again behind it.
fn left_out(slot: &Slot, failed: &ConnectError) {
    slot.warn(&format!("it is left out for now: {}", crate::mcp::chain(&*failed.cause)));
}

/// Starts all at once; the first required one that fails is the error.
async fn start_all(slots: &[Arc<Slot>]) -> Result<(), BridgeError> {
    for slot in slots.iter().filter(|slot| slot.entry.required && slot.entry.enabled) {
        if let Some(secrets) = slot.missing() {
            return Err(BridgeError::RequiredSecrets { server: slot.alias().clone(), secrets });
        }
        if let Some(reason) = slot.invalid() {
            return Err(BridgeError::RequiredInvalid { server: slot.alias().clone(), reason: reason.to_owned() });
        }
    }
    let mut starts = JoinSet::new();
    for slot in slots.iter().cloned() {
        starts.spawn(async move {
            let started = slot.start().await;
            (slot, started)
        });
    }
    while let Some(joined) = starts.join_next().await {
        let Ok((slot, Err(source))) = joined else { continue };
        if slot.entry.required {
            return Err(BridgeError::Required { server: slot.alias().clone(), source });
        }
        left_out(&slot, &source);
    }
    Ok(())
}

async fn stop_all(slots: Vec<Arc<Slot>>) {
    let mut ends = JoinSet::new();
    for slot in slots {
        ends.spawn(async move { slot.stop().await });
    }
    while ends.join_next().await.is_some() {}
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(watcher) = lock(&self.watcher).take() {
            watcher.abort();
        }
        // A call that is under way may still hold its slot.
        for slot in lock(&self.crew).slots.drain(..) {
            slot.end();
        }
    }
}

impl ToolSource for Bridge {
    fn registry(&self) -> Registry {
        self.tools().registry
    }

    fn verdicts(&self) -> Vec<ServerStatus> {
        self.verdicts()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let is_started = lock(&self.inner.crew).is_started;
            if !is_started && let Err(error) = self.start().await {
                self.inner.roof.warn(None, crate::mcp::chain(&error));
            }
            // Somebody else may have begun to start it: whoever comes second waits for the same tries.
            for slot in self.slots().iter().filter(|_| is_started) {
                let _ = slot.start().await;
            }
        })
    }
}

impl ContextSource for Bridge {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        Box::pin(async {
            let mut readers = JoinSet::new();
            for (number, slot) in self.slots().into_iter().enumerate() {
                readers.spawn(async move { (number, context::of(&slot).await) });
            }
            let mut items = readers.join_all().await;
            items.sort_by_key(|(number, _)| *number);
            items.into_iter().flat_map(|(_, items)| items).collect()
        })
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("verdicts", &self.tools().verdicts).finish()
    }
}
