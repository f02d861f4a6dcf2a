//! Server latencies, measured at most every few seconds, however many pages are open.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use ropeway_bridge::{Bridge, BridgeHealth};
use ropeway_core::sync::lock;

/// Minimum time between two measurements.
const MAX_AGE: Duration = Duration::from_secs(4);

/// Maximum time that a response waits for a measurement. A server that responds later has no latency until the next one.
const MAX_WAIT: Duration = Duration::from_millis(300);

/// The latest measurement.
#[derive(Default)]
pub(crate) struct HealthCache {
    state: Mutex<CachedHealth>,
    /// Notified when a measurement ends.
    finished: watch::Sender<()>,
}

#[derive(Default)]
struct CachedHealth {
    latest: Option<(Instant, Arc<BridgeHealth>)>,
    is_measuring: bool,
}

impl HealthCache {
    /// Returns the latest measurement, and starts another one if it is too old.
    pub(crate) async fn get(self: &Arc<Self>, bridge: &Bridge) -> Option<Arc<BridgeHealth>> {
        let mut finished = self.finished.subscribe();
        if let Some(health) = self.recent(bridge) {
            return Some(health);
        }
        // The latest measurement is used if the next one takes too long.
        let _ = tokio::time::timeout(MAX_WAIT, finished.changed()).await;
        lock(&self.state).latest.as_ref().map(|(_, health)| health.clone())
    }

    /// Returns the latest measurement, unless it is too old: then starts another one.
    pub(crate) fn recent(self: &Arc<Self>, bridge: &Bridge) -> Option<Arc<BridgeHealth>> {
        let mut state = lock(&self.state);
        if let Some((at, health)) = &state.latest
            && at.elapsed() < MAX_AGE
        {
            return Some(health.clone());
        }
        if !std::mem::replace(&mut state.is_measuring, true) {
            tokio::spawn(Measurement(self.clone()).run(bridge.clone()));
        }
        None
    }
}

/// A measurement in progress. Dropping it lets another one start.
struct Measurement(Arc<HealthCache>);

impl Measurement {
    async fn run(self, bridge: Bridge) {
        let health = Arc::new(bridge.health_check().await);
        lock(&self.0.state).latest = Some((Instant::now(), health));
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        lock(&self.0.state).is_measuring = false;
        self.0.finished.send_replace(());
    }
}
