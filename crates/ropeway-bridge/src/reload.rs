//! Replaces a running bridge's configuration.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::error::BridgeError;
use super::slot::ServerSlot;
use super::state::{BridgeState, stop_all, warn_unavailable};
use ropeway_config::Config;
use ropeway_core::event::Event;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Servers that [`Bridge::reload`](super::Bridge::reload) started, stopped, restarted and kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadReport {
    /// Servers that were added or enabled.
    pub started: Vec<Alias>,
    /// Servers that were removed or disabled.
    pub stopped: Vec<Alias>,
    /// Servers whose entry has changed.
    pub restarted: Vec<Alias>,
    /// Servers whose entry is unchanged.
    pub kept: Vec<Alias>,
}

/// A configuration that is in use, while a bridge task starts and stops its servers.
pub(super) struct StartedReload {
    report: ReloadReport,
    /// Closed when all servers are stopped, and started or have failed.
    finished: oneshot::Receiver<()>,
}

/// Slots that are still to be started and stopped. Does not hold the bridge, so dropping the bridge stops them.
struct SlotChanges {
    /// New slots, each with the one that it replaces.
    new: Vec<(Option<Arc<ServerSlot>>, Arc<ServerSlot>)>,
    removed: Vec<Arc<ServerSlot>>,
    is_started: bool,
    turn: ReloadTurn,
}

/// A reload's turn. Reloads stop their servers one after the other, so that no server starts before the one that it replaces has
/// stopped, even if several reloads follow each other.
#[derive(Clone)]
struct ReloadTurn {
    /// Closed when the previous reload has stopped its servers.
    previous: Option<watch::Receiver<()>>,
    /// Dropped by each change in this reload when it has stopped its server.
    _stopped: watch::Sender<()>,
}

impl ReloadTurn {
    async fn wait(&mut self) {
        if let Some(previous) = &mut self.previous {
            // Nothing is sent.
            while previous.changed().await.is_ok() {}
        }
    }
}

impl BridgeState {
    /// Returns `true` if the configuration differs from the current one.
    pub(super) fn differs(&self, config: &Config) -> bool {
        let servers = lock(&self.servers);
        let entries = servers.slots.iter().map(|slot| &slot.entry);
        servers.collisions != config.collisions || !entries.eq(&config.servers)
    }

    /// Replaces the configuration, and emits the event. A bridge task starts and stops the servers.
    pub(super) fn replace_config(&self, config: Config) -> Result<StartedReload, BridgeError> {
        // Events are emitted in reload order.
        let mut reloads = lock(&self.reloads);
        let Config { servers: entries, collisions, warnings, .. } = config;
        let mut servers = lock(&self.servers);
        let mut report = ReloadReport::default();
        let mut removed = servers.slots.clone();
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        let mut aliases = HashSet::new();
        for entry in entries {
            if !aliases.insert(entry.alias.clone()) {
                return Err(BridgeError::DuplicateAlias { server: entry.alias });
            }
            let alias = entry.alias.clone();
            let before = removed.iter().position(|slot| *slot.alias() == alias).map(|at| removed.remove(at));
            match before {
                Some(slot) if slot.entry == entry => {
                    report.kept.push(alias);
                    slots.push(slot);
                }
                before => {
                    let slot = self.new_slot(entry)?;
                    // A disabled or invalid entry was not running, or will not be.
                    match (before.as_ref().is_some_and(|slot| slot.config().is_some()), slot.config().is_some()) {
                        (true, true) => report.restarted.push(alias),
                        (true, false) => report.stopped.push(alias),
                        (false, true) => report.started.push(alias),
                        (false, false) => report.kept.push(alias),
                    }
                    if servers.is_started {
                        slot.queue();
                    }
                    new.push((before, slot.clone()));
                    slots.push(slot);
                }
            }
        }
        let stopped = removed.iter().filter(|slot| slot.config().is_some());
        report.stopped.extend(stopped.map(|slot| slot.alias().clone()));
        servers.slots.clone_from(&slots);
        servers.collisions = collisions;
        let is_started = servers.is_started;
        drop(servers);
        self.announce(&slots, warnings);
        let (stopped, is_stopped) = watch::channel(());
        let turn = ReloadTurn { previous: reloads.last_turn.replace(is_stopped), _stopped: stopped };
        let changes = SlotChanges { new, removed, is_started, turn };
        let (done, finished) = oneshot::channel();
        while reloads.tasks.try_join_next().is_some() {}
        let shared = self.shared.clone();
        reloads.tasks.spawn(async move {
            changes.finish().await;
            shared.notify_changed();
            drop(done);
        });
        self.shared.notify_changed();
        let ReloadReport { started, stopped, restarted, .. } = report.clone();
        self.shared.events.emit(Event::Reloaded { started, stopped, restarted });
        Ok(StartedReload { report, finished })
    }
}

impl StartedReload {
    /// Waits until the servers are stopped, and started or have failed.
    pub(super) async fn finished(self) -> ReloadReport {
        // Closed without a value.
        let _ = self.finished.await;
        self.report
    }
}

/// The tasks that start and stop servers after a reload.
#[derive(Default)]
pub(super) struct Reloads {
    tasks: JoinSet<()>,
    /// Closed when the last reload has stopped its servers.
    last_turn: Option<watch::Receiver<()>>,
}

impl Reloads {
    /// Waits for all tasks.
    pub(super) async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl SlotChanges {
    /// Starts and stops servers concurrently.
    async fn finish(self) {
        let mut changes = JoinSet::new();
        for (before, slot) in self.new {
            changes.spawn(replace(before, slot, self.is_started, self.turn.clone()));
        }
        let (removed, mut turn) = (self.removed, self.turn);
        changes.spawn(async move {
            turn.wait().await;
            stop_all(removed).await;
        });
        while changes.join_next().await.is_some() {}
    }
}

/// Replaces one slot by another.
async fn replace(before: Option<Arc<ServerSlot>>, slot: Arc<ServerSlot>, start: bool, mut turn: ReloadTurn) {
    turn.wait().await;
    // With equal settings both slots share a process: the new one joins before the old one leaves, and calls in flight continue.
    let is_shared = before.as_ref().is_some_and(|before| before.entry.settings == slot.entry.settings);
    if let Some(before) = before.as_ref().filter(|_| !is_shared) {
        before.stop().await;
    }
    drop(turn);
    if start && let Err(error) = slot.start().await {
        warn_unavailable(&slot, &error);
    }
    if let Some(before) = before.filter(|_| is_shared) {
        before.retire().await;
    }
}
