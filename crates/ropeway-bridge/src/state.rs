//! A bridge's servers, and the registry of their tools.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::task::{AbortHandle, JoinSet};

use super::error::BridgeError;
use super::reload::Reloads;
use super::shared::BridgeShared;
use super::slot::{ServerSlot, SlotSnapshot};
use super::tool::BridgeTool;
use crate::registry::{Predicate, Registry, ServerState, ServerStatus, ToolShape, ToolShapeError, Transformer};
use ropeway_config::{CollisionPolicy, Config, ServerEntry, ServerSettings};
use ropeway_core::error_chain::chain;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::ConnectError;

/// Bound on the reported collisions that are kept, since a server may rename its tools arbitrarily often.
const MAX_REPORTED_COLLISIONS: usize = 10_000;

/// State of a bridge, shared by its handles.
///
/// Every handle keeps the state alive. The config watcher refers to it weakly, and reload tasks own only slots and
/// [`BridgeShared`]. A start, a stop and a reload write `servers`; [`registry`](Self::registry) rebuilds `listing` when a slot
/// has changed.
///
/// The locks are std mutexes, since none is held across an `.await`: a method clones the slots and releases `servers` before it
/// waits. The order is `reloads`, `servers`, then a slot's `phase`; separately, `listing` comes before a slot's `tools` and
/// before `failed`. A reload holds `reloads` from its first check to its event, so that reloads apply one after the other.
///
/// Dropping the last handle aborts the watcher and the reload tasks, interrupts calls, and releases every connection without
/// waiting for it to close.
pub(super) struct BridgeState {
    pub(super) shared: Arc<BridgeShared>,
    pub(super) customization: ToolCustomization,
    pub(super) servers: Mutex<ServerSet>,
    listing: Mutex<CachedRegistry>,
    pub(super) watcher: Mutex<Option<AbortHandle>>,
    /// Locked before `servers`.
    pub(super) reloads: Mutex<Reloads>,
    /// The required server that made the last start fail, and the cause.
    pub(super) failed: Mutex<Option<(Alias, String)>>,
}

pub(super) struct ServerSet {
    pub(super) slots: Vec<Arc<ServerSlot>>,
    pub(super) collisions: CollisionPolicy,
    pub(super) is_started: bool,
}

/// The host's filters and transformers, which apply to all servers' tools.
#[derive(Clone, Default)]
pub(super) struct ToolCustomization {
    pub(super) transformers: Vec<Arc<dyn Transformer>>,
    pub(super) filters: Vec<Predicate>,
}

/// The last registry, and the key that it was built for.
#[derive(Default)]
struct CachedRegistry {
    registry: Registry,
    key: RegistryKey,
    /// Collisions that were reported.
    reported: HashSet<String>,
}

/// The collision policy, and for each slot its id, tool version and listed tool count.
type RegistryKey = (CollisionPolicy, Vec<(u64, u64, usize)>);

impl BridgeState {
    pub(super) fn new(
        config: Config,
        customization: ToolCustomization,
        shared: Arc<BridgeShared>,
    ) -> Result<Self, BridgeError> {
        let servers = ServerSet { slots: Vec::new(), collisions: config.collisions, is_started: false };
        let state = Self {
            shared,
            customization,
            servers: Mutex::new(servers),
            listing: Mutex::default(),
            watcher: Mutex::default(),
            reloads: Mutex::default(),
            failed: Mutex::default(),
        };
        let mut aliases = HashSet::new();
        let slot = |entry: ServerEntry| {
            if !aliases.insert(entry.alias.clone()) {
                return Err(BridgeError::DuplicateAlias { server: entry.alias });
            }
            state.new_slot(entry)
        };
        let slots = config.servers.into_iter().map(slot).collect::<Result<Vec<_>, _>>()?;
        state.announce(&slots, config.warnings);
        lock(&state.servers).slots = slots;
        Ok(state)
    }

    pub(super) fn new_slot(&self, mut entry: ServerEntry) -> Result<Arc<ServerSlot>, BridgeError> {
        if let Some(reason) = self.shared.start_refusal(&entry) {
            entry.settings = ServerSettings::Invalid { reason };
        }
        let settings =
            |error: ToolShapeError| BridgeError::Settings { server: entry.alias.clone(), source: error.into() };
        let mut shape = ToolShape::new(&entry).map_err(settings)?;
        for filter in &self.customization.filters {
            let filter = filter.clone();
            shape = shape.with_filter(move |definition| filter(definition));
        }
        for transformer in &self.customization.transformers {
            shape = shape.with_transformer(transformer.clone());
        }
        Ok(Arc::new(ServerSlot::new(entry, shape, BridgeTool::wrap, self.shared.clone())))
    }

    /// Shares the new slots' secrets, and emits their configuration warnings.
    pub(super) fn announce(&self, slots: &[Arc<ServerSlot>], mut warnings: Vec<String>) {
        let widened = slots.iter().filter_map(|slot| Some((slot.alias(), self.shared.widened_sandbox(&slot.entry)?)));
        warnings.extend(widened.map(|(alias, reason)| format!("server `{alias}`: {reason}")));
        self.shared.set_secrets(slots.iter().map(|slot| &slot.redactor));
        let skipped = slots.iter().filter_map(|slot| Some((slot.alias().clone(), slot.entry.warning()?)));
        self.shared.set_notices(warnings, skipped.collect());
    }

    pub(super) fn slots(&self) -> Vec<Arc<ServerSlot>> {
        lock(&self.servers).slots.clone()
    }

    /// Returns the registry and each server's status. The registry is rebuilt only if a slot has changed.
    pub(super) fn registry(&self) -> (Registry, Vec<ServerStatus>) {
        let (slots, collisions) = {
            let servers = lock(&self.servers);
            (servers.slots.clone(), servers.collisions)
        };
        let snapshots: Vec<SlotSnapshot> = slots.iter().map(|slot| slot.snapshot()).collect();
        let versions = slots.iter().zip(&snapshots).map(|(slot, snapshot)| (slot.id, snapshot.version, snapshot.tools));
        let key = (collisions, versions.collect());
        let mut listing = lock(&self.listing);
        if listing.key != key {
            let tools = slots.iter().zip(&snapshots);
            let groups = tools.map(|(slot, snapshot)| if snapshot.tools > 0 { slot.tools() } else { Vec::new() });
            let (registry, found) = Registry::assemble(groups, collisions);
            if listing.reported.len() > MAX_REPORTED_COLLISIONS {
                listing.reported.clear();
            }
            for collision in found {
                let message =
                    slots.iter().fold(collision.to_string(), |text, slot| slot.redactor.redact(&text).into_owned());
                if listing.reported.insert(message.clone()) {
                    self.shared.warn(None, message);
                }
            }
            let hidden = slots.iter().flat_map(|slot| slot.hidden_tools());
            listing.registry = registry.with_hidden(hidden.map(|hidden| (hidden.name, hidden.reason)));
            listing.key = key;
        }
        let statuses = slots.iter().zip(snapshots).map(|(slot, snapshot)| self.status(slot, snapshot)).collect();
        (listing.registry.clone(), statuses)
    }

    /// Makes the next registry report all collisions again.
    pub(super) fn clear_reported(&self) {
        lock(&self.listing).reported.clear();
    }

    pub(super) fn status(&self, slot: &ServerSlot, snapshot: SlotSnapshot) -> ServerStatus {
        let state = match (snapshot.state, &*lock(&self.failed)) {
            // The server was stopped when the start failed; its status keeps the cause.
            (ServerState::NotStarted, Some((server, cause))) if server == slot.alias() => {
                ServerState::Down { cause: cause.clone() }
            }
            (state, _) => state,
        };
        ServerStatus::new(slot.alias().clone(), state).with_note(snapshot.note).with_required(slot.entry.required)
    }
}

impl Drop for BridgeState {
    fn drop(&mut self) {
        if let Some(watcher) = lock(&self.watcher).take() {
            watcher.abort();
        }
        // A call in flight may still hold its slot.
        for slot in lock(&self.servers).slots.drain(..) {
            slot.abort();
        }
    }
}

/// Starts all servers concurrently. Returns the error from the first required server that fails.
pub(super) async fn start_all(slots: &[Arc<ServerSlot>]) -> Result<(), BridgeError> {
    for slot in slots.iter().filter(|slot| slot.entry.required && slot.entry.enabled) {
        let server = slot.alias().clone();
        if let Some(secrets) = slot.missing_secrets() {
            return Err(BridgeError::RequiredSecrets { server, secrets });
        }
        if let Some(reason) = slot.invalid_reason() {
            return Err(BridgeError::RequiredInvalid { server, reason: reason.to_owned() });
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
        warn_unavailable(&slot, &source);
    }
    Ok(())
}

pub(super) async fn stop_all(slots: Vec<Arc<ServerSlot>>) {
    let mut stops = JoinSet::new();
    for slot in slots {
        stops.spawn(async move { slot.stop().await });
    }
    while stops.join_next().await.is_some() {}
}

/// Warns that a server is not available. It is retried in the background.
pub(super) fn warn_unavailable(slot: &ServerSlot, error: &ConnectError) {
    slot.warn(&format!("not available, retrying: {}", chain(&*error.cause)));
}
