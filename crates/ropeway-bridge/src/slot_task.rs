//! Starts a server, and follows its connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::cache::CachedDefinitions;
use super::pool::SharedConnection;
use super::shared::BridgeShared;
use super::slot::{ListingState, Phase, ServerSlot};
use super::slot_tools::ServerFeatures;
use ropeway_config::{ServerConfig, StartMode};
use ropeway_core::error_chain::chain;
use ropeway_core::event::Event;
use ropeway_core::sync::{lock, sleep_until};
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::{Backoff, ConnectError, ConnectErrorKind, ConnectionState, Era, Mcp};

/// Minimum time between two list requests for which the server sends a `ttl`.
const MIN_TTL: Duration = Duration::from_secs(30);

/// First delay before a failed list request is repeated. It doubles up to [`MAX_DELAY`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);

/// First delay before a changed list is requested. It doubles up to [`MAX_DELAY`] while changes continue.
const FIRST_CHANGE_DELAY: Duration = Duration::from_millis(10);

const MAX_DELAY: Duration = Duration::from_secs(30);

impl ServerSlot {
    /// Connects to the server, or serves its tools from the cache if it is lazy. Returns the first attempt's error; further
    /// attempts are made in the background.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), ConnectError> {
        let Some(config) = self.config() else { return Ok(()) };
        {
            let mut phase = lock(&self.phase);
            if matches!(*phase, Phase::Idle | Phase::Queued) {
                let own = self.shared.connection_config(config);
                let BridgeShared { pool, handlers, .. } = &*self.shared;
                let connection = SharedConnection::new(pool, &own, self.alias(), handlers, self.events());
                let may_sleep = self.entry.start == StartMode::Lazy && !connection.mcp().is_connected();
                *phase = match may_sleep.then(|| self.load_definitions(config)).flatten() {
                    Some(CachedDefinitions { tools, has_resources, prompts }) => {
                        let tools = tools.into_iter().map(|tool| connection.mcp().detached_tool(tool)).collect();
                        self.expose(ServerFeatures { tools, has_resources, prompts, prompts_error: None });
                        Phase::Asleep(connection)
                    }
                    None => self.run(connection),
                };
            }
        }
        self.shared.notify_changed();
        self.first_attempt().await
    }

    pub(super) fn load_definitions(&self, config: &ServerConfig) -> Option<CachedDefinitions> {
        self.shared.cache.as_ref()?.load(config)
    }

    /// Spawns the task that connects, so that the connection is made even if the caller stops waiting for it.
    fn run(self: &Arc<Self>, connection: SharedConnection) -> Phase {
        let era = self.shared.cache.as_ref().zip(self.config()).and_then(|(cache, config)| cache.load_era(config));
        if let Some(era) = era {
            connection.mcp().assume_era(era);
        }
        if let Some(info) = connection.mcp().server_info() {
            // A shared connection is already established, and has emitted its event before.
            let (server, protocol_version) = (self.alias().clone(), info.protocol_version.clone());
            self.events().emit(Event::Ready { server, protocol_version });
        }
        let task = tokio::spawn(follow(Arc::downgrade(self), connection.mcp().clone())).abort_handle();
        Phase::Running { connection, task }
    }

    /// Waits for the first connection attempt. Returns `Ok` if the slot is stopped before.
    async fn first_attempt(&self) -> Result<(), ConnectError> {
        if !matches!(*lock(&self.phase), Phase::Queued | Phase::Running { .. }) {
            return Ok(());
        }
        let mut listing = self.listing.subscribe();
        let first = listing.wait_for(|listing| !matches!(listing, ListingState::Pending));
        match self.shutdown.guard(first).await {
            Ok(Ok(listing)) => match &*listing {
                ListingState::ConnectFailed(error) => Err(error.clone()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Starts the server if it is asleep, and waits for it.
    pub(super) async fn wake(self: &Arc<Self>) -> Result<(), CallError> {
        {
            let mut phase = lock(&self.phase);
            *phase = match std::mem::replace(&mut *phase, Phase::Stopped) {
                Phase::Asleep(connection) => self.run(connection),
                phase => phase,
            };
        }
        // After the first attempt, the call itself waits for the connection.
        if !matches!(*self.listing.borrow(), ListingState::Pending) {
            return Ok(());
        }
        self.shared.notify_changed();
        self.first_attempt().await.map_err(|error| call_error(self.alias(), error))
    }

    /// Stores the server's era, or removes it.
    fn store_era(&self, era: Option<Era>) {
        let Some((cache, config)) = self.shared.cache.as_ref().zip(self.config()) else { return };
        let stored = match era {
            Some(era) => cache.store_era(config, era),
            None => cache.remove_era(config),
        };
        if let Err(error) = stored {
            tracing::debug!(server = %self.alias(), "could not cache the era: {error}");
        }
    }
}

/// Returns the error for a call whose server could not be connected.
pub(super) fn call_error(server: &Alias, error: ConnectError) -> CallError {
    let server = server.clone();
    match &*error.cause {
        ConnectErrorKind::NeedsAuth { challenge } => CallError::NeedsAuth { server, challenge: challenge.clone() },
        _ => CallError::Unavailable { server, source: Box::new(error.cause) },
    }
}

/// Connects, and follows the connection: exposes changed tools and records failures.
///
/// Does not hold the slot while it waits, so the slot can be dropped.
async fn follow(slot: Weak<ServerSlot>, mcp: Mcp) {
    let (mut state, mut tools, mut prompts) = (mcp.state(), mcp.tools_version(), mcp.prompts_version());
    let mut connecting = std::pin::pin!(mcp.connect());
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(mcp.timeouts().bounded().connect / 2) => {
            // A server that stays silent this long may have been updated to another era. The next start probes it.
            slot.upgrade().iter().for_each(|slot| slot.store_era(None));
            connecting.await
        }
    };
    if let Err(error) = connected {
        let Some(slot) = slot.upgrade() else { return };
        slot.set_last_error(chain(&*error.cause));
        slot.listing.send_replace(ListingState::ConnectFailed(ConnectError { server: slot.alias().clone(), ..error }));
    }
    let mut failures = 0;
    let mut backoff = Backoff::new(FIRST_CHANGE_DELAY, MAX_DELAY);
    loop {
        tools.borrow_and_update();
        prompts.borrow_and_update();
        let is_ready = matches!(*state.borrow_and_update(), ConnectionState::Ready { .. });
        let with_prompts = {
            let Some(slot) = slot.upgrade() else { return };
            if let ConnectionState::Down { cause, .. } = &*state.borrow() {
                slot.set_last_error(chain(&**cause));
            }
            if is_ready {
                // Not always the session's era: a modern server that starts slowly is used as a legacy one until its next start.
                slot.store_era(mcp.remembered_era());
            }
            slot.shared.notify_changed();
            slot.entry.prompt_tools
        };
        let mut refresh_in = None;
        if is_ready {
            let features = ServerFeatures::request(&mcp, with_prompts).await;
            // A lost connection is reported by its state.
            if features.is_ok() || mcp.is_connected() {
                failures = if features.is_ok() { 0 } else { failures + 1 };
                let Some(slot) = slot.upgrade() else { return };
                slot.update_features(features);
            }
            refresh_in = match failures {
                0 => mcp.tools_ttl().map(|ttl| ttl.max(MIN_TTL)),
                _ => Some(FIRST_RETRY_DELAY.saturating_mul(1 << (failures - 1).min(16)).min(MAX_DELAY)),
            };
        }
        let refresh_at = refresh_in.and_then(|delay| Instant::now().checked_add(delay));
        let (is_alive, is_change) = tokio::select! {
            changed = state.changed() => (changed.is_ok(), false),
            changed = tools.changed() => (changed.is_ok(), true),
            changed = prompts.changed(), if with_prompts => (changed.is_ok(), true),
            () = sleep_until(refresh_at) => (true, false),
        };
        if !is_alive {
            return;
        }
        if is_change {
            // Further changes are coalesced. A lost connection is handled at once.
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                _ = state.changed() => {}
            }
        }
    }
}
