//! Replaces the configuration of a running bridge.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::error::BridgeError;
use super::shared::BridgeShared;
use super::slot::ServerSlot;
use super::state::{BridgeState, stop_all, warn_unavailable};
use crate::config::Config;
use crate::event::Event;
use crate::sync::lock;
use crate::tool::Alias;

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

/// Slots that are still to be started and stopped. Does not hold the bridge, so dropping the bridge stops them.
pub(super) struct PendingReload {
    /// New slots, each with the one that it replaces.
    new: Vec<(Option<Arc<ServerSlot>>, Arc<ServerSlot>)>,
    removed: Vec<Arc<ServerSlot>>,
    is_started: bool,
    shared: Arc<BridgeShared>,
    report: ReloadReport,
}

impl BridgeState {
    /// Returns `true` if the configuration differs from the current one.
    pub(super) fn differs(&self, config: &Config) -> bool {
        let servers = lock(&self.servers);
        let entries = servers.slots.iter().map(|slot| &slot.entry);
        servers.collisions != config.collisions || !entries.eq(&config.servers)
    }

    /// Replaces the configuration. [`PendingReload::finish`] starts and stops the servers.
    pub(super) fn replace_config(&self, config: Config) -> Result<PendingReload, BridgeError> {
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
        Ok(PendingReload { new, removed, is_started, shared: self.shared.clone(), report })
    }
}

impl PendingReload {
    /// Starts and stops servers concurrently, and emits the event.
    pub(super) async fn finish(self) -> ReloadReport {
        let mut changes = JoinSet::new();
        for (before, slot) in self.new {
            changes.spawn(replace(before, slot, self.is_started));
        }
        changes.spawn(stop_all(self.removed));
        while changes.join_next().await.is_some() {}
        let ReloadReport { started, stopped, restarted, .. } = self.report.clone();
        self.shared.events.emit(Event::Reloaded { started, stopped, restarted });
        self.shared.notify_changed();
        self.report
    }
}

/// Replaces one slot by another.
async fn replace(before: Option<Arc<ServerSlot>>, slot: Arc<ServerSlot>, start: bool) {
    // With equal settings both slots share a process: the new one joins before the old one leaves, and calls in flight continue.
    let is_shared = before.as_ref().is_some_and(|before| before.entry.settings == slot.entry.settings);
    if let Some(before) = before.as_ref().filter(|_| !is_shared) {
        before.stop().await;
    }
    if start && let Err(error) = slot.start().await {
        warn_unavailable(&slot, &error);
    }
    if let Some(before) = before.filter(|_| is_shared) {
        before.retire().await;
    }
}
