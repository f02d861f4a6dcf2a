//! The bridge handle.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::config_watcher;
use super::context::context_of;
use super::error::BridgeError;
use super::health::{BridgeHealth, PING_TIMEOUT, ServerHealth};
use super::reload::ReloadReport;
use super::slot::ServerSlot;
use super::state::{BridgeState, start_all, stop_all};
use crate::registry::{ContextItem, ContextSource, Registry, ServerStatus, ToolSource};
use ropeway_config::lock::Difference;
use ropeway_config::{Config, Secrets};
use ropeway_core::error_chain::chain;
use ropeway_core::event::EventStream;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, BoxError, BoxFuture, CallError};
use ropeway_mcp::Mcp;

/// A bridge's tools, and each server's status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolListing {
    /// All servers' tools.
    pub registry: Registry,
    /// Each server's status, in configuration order.
    pub statuses: Vec<ServerStatus>,
    /// Differences from the lock, if the bridge [has one](super::BridgeBuilder::lock).
    pub differences: Vec<Difference>,
}

/// Connects to every server of a [`Config`] and keeps them connected.
///
/// [`Bridge::new`] only validates the configuration. [`start`](Self::start) connects to all servers concurrently and returns one
/// [`ServerStatus`] per server. A server that fails to start is retried in the background, unless it is marked `required`, in which
/// case `start` returns an error.
///
/// Cloning a bridge is cheap. Dropping the last clone closes all connections and terminates stdio servers, except those that
/// another bridge shares or an [`Mcp`] from this bridge still uses.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), ropeway::Error> {
/// let bridge = ropeway::Bridge::from_file("ropeway.yaml")?;
/// for status in bridge.start().await? {
///     println!("{status}");
/// }
/// let envelope = bridge.call("demo.calculate", serde_json::json!({"expression": "6 * 7"})).await;
/// println!("{envelope}");
/// bridge.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "dropping a bridge closes its connections"]
pub struct Bridge {
    pub(super) state: Arc<BridgeState>,
}

impl Bridge {
    /// Connects to all servers concurrently, and waits until each is connected or has failed.
    ///
    /// # Errors
    ///
    /// Returns an error if a required server fails. All servers are stopped then. Other servers that fail are retried in the
    /// background.
    pub async fn start(&self) -> Result<Vec<ServerStatus>, BridgeError> {
        let slots = {
            let mut servers = lock(&self.state.servers);
            servers.is_started = true;
            servers.slots.clone()
        };
        *lock(&self.state.failed) = None;
        self.state.shared.emit_notices();
        if let Err(error) = start_all(&slots).await {
            self.stop().await;
            if let BridgeError::Required { server, source } = &error {
                *lock(&self.state.failed) = Some((server.clone(), chain(&*source.cause)));
                self.state.shared.notify_changed();
            }
            return Err(error);
        }
        Ok(self.statuses())
    }

    /// Closes all connections, cancels calls in flight and stops [watching](Self::watch) the configuration file. The bridge can be
    /// started again.
    pub async fn stop(&self) {
        if let Some(watcher) = lock(&self.state.watcher).take() {
            watcher.abort();
        }
        let slots = {
            let mut servers = lock(&self.state.servers);
            servers.is_started = false;
            // A slot cannot be restarted. Replaced before the first await, in case this future is dropped.
            let renewed = servers.slots.iter().map(|slot| Arc::new(slot.renewed())).collect();
            std::mem::replace(&mut servers.slots, renewed)
        };
        *lock(&self.state.failed) = None;
        self.state.clear_reported();
        self.state.shared.reset_notices();
        stop_all(slots).await;
        let reloads = std::mem::take(&mut *lock(&self.state.reloads));
        reloads.join().await;
        self.state.shared.notify_changed();
    }

    fn slots(&self) -> Vec<Arc<ServerSlot>> {
        self.state.slots()
    }

    /// Returns the current tools, and each server's status. The registry is empty before [`start`](Self::start).
    pub fn tools(&self) -> ToolListing {
        let (registry, statuses) = self.state.registry();
        let differences = self.slots().iter().flat_map(|slot| slot.differences()).collect();
        ToolListing { registry, statuses, differences }
    }

    /// Returns each server's status, in configuration order.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.slots().iter().map(|slot| self.state.status(slot, slot.snapshot())).collect()
    }

    /// Pings all servers concurrently, with a five-second timeout.
    pub async fn health_check(&self) -> BridgeHealth {
        self.health_check_within(PING_TIMEOUT).await
    }

    /// Pings all servers concurrently, with the given timeout.
    pub async fn health_check_within(&self, timeout: Duration) -> BridgeHealth {
        let slots = self.slots();
        BridgeHealth { servers: join_all(slots.iter().map(|slot| ServerHealth::of(slot, timeout))).await }
    }

    /// Returns all servers' events, from now on.
    ///
    /// [`start`](Self::start) and [`reload`](Self::reload) emit the configuration warnings, and one for each skipped server, as
    /// [`Event::Warning`](ropeway_core::event::Event::Warning). A stream that is opened after `start` begins with them.
    pub fn events(&self) -> EventStream {
        self.state.shared.listen()
    }

    /// Waits until `done` returns `true` for the current tools and statuses.
    pub async fn until(&self, done: impl FnMut(&ToolListing) -> bool) -> ToolListing {
        self.wait_for(|| self.tools(), done).await
    }

    /// Waits until `done` returns `true` for the current statuses.
    pub async fn until_statuses(&self, mut done: impl FnMut(&[ServerStatus]) -> bool) -> Vec<ServerStatus> {
        self.wait_for(|| self.statuses(), |statuses| done(statuses)).await
    }

    /// Calls `current` after every change until `done` returns `true`.
    async fn wait_for<T>(&self, current: impl Fn() -> T, mut done: impl FnMut(&T) -> bool) -> T {
        let mut changes = self.state.shared.changes();
        loop {
            changes.borrow_and_update();
            let value = current();
            // The sender lives as long as `self`.
            if done(&value) || changes.changed().await.is_err() {
                return value;
            }
        }
    }

    /// Returns the server aliases, in configuration order.
    pub fn servers(&self) -> Vec<Alias> {
        self.slots().iter().map(|slot| slot.alias().clone()).collect()
    }

    /// Returns the servers whose tools were listed at least once.
    pub fn listed_servers(&self) -> Vec<Alias> {
        let slots = self.slots();
        slots.iter().filter(|slot| slot.snapshot().version > 0).map(|slot| slot.alias().clone()).collect()
    }

    /// Returns the last error for each server that failed, even if it is connected again.
    pub fn last_failures(&self) -> Vec<(Alias, String)> {
        let slots = self.slots();
        slots.iter().filter_map(|slot| Some((slot.alias().clone(), slot.last_error()?.message))).collect()
    }

    /// Returns the connection to a server, once the bridge is started. Do not close it: other entries may share it.
    pub fn server(&self, alias: impl AsRef<str>) -> Option<Mcp> {
        self.slots().iter().find(|slot| slot.alias().as_str() == alias.as_ref()).and_then(|slot| slot.mcp())
    }

    /// Starts a lazy server that is not running yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is unknown or cannot be connected.
    pub async fn wake(&self, alias: impl AsRef<str>) -> Result<(), CallError> {
        let alias = alias.as_ref();
        let slot = self.slots().into_iter().find(|slot| slot.alias().as_str() == alias);
        slot.ok_or_else(|| CallError::NotConnected { server: alias.into() })?.wake().await
    }

    /// Replaces the configuration. Only servers whose entry has changed are started, stopped or restarted.
    ///
    /// The new configuration is in use, and [`Event::Reloaded`](ropeway_core::event::Event::Reloaded) emitted, as soon as this method is
    /// called; it returns when the changed servers are connected or have failed. If the future is dropped, they continue to start.
    ///
    /// # Errors
    ///
    /// Returns an error if the new configuration is invalid. The old one stays in use then.
    pub async fn reload(&self, config: Config) -> Result<ReloadReport, BridgeError> {
        Ok(self.state.replace_config(config)?.finished().await)
    }

    /// Replaces the configuration like [`reload`](Self::reload), without waiting for the servers.
    pub fn apply(&self, config: Config) -> Result<(), BridgeError> {
        self.state.replace_config(config).map(drop)
    }

    /// Reloads the configuration file whenever it changes, until [`stop`](Self::stop) or a failed [`start`](Self::start).
    ///
    /// An invalid file is reported as a warning, and the old configuration stays in use.
    pub fn watch(&self, file: impl Into<PathBuf>, secrets: Secrets) {
        self.watch_accepted(file, secrets, |_| Ok(()));
    }

    /// Reloads the configuration file like [`watch`](Self::watch), if `accept` returns `Ok` for its text.
    ///
    /// `accept` sees the text before it is parsed, and the bridge uses exactly that text. An error is reported as a warning, the
    /// old configuration stays in use, and `accept` is called again periodically.
    pub fn watch_accepted(
        &self,
        file: impl Into<PathBuf>,
        secrets: Secrets,
        accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
    ) {
        self.watch_prepared(file, secrets, accept, |config| config);
    }

    /// Like [`watch_accepted`](Self::watch_accepted), but changes each configuration with `prepare` before it is used.
    pub fn watch_prepared(
        &self,
        file: impl Into<PathBuf>,
        secrets: Secrets,
        accept: impl Fn(&str) -> Result<(), BoxError> + Send + Sync + 'static,
        prepare: impl Fn(Config) -> Config + Send + Sync + 'static,
    ) {
        let watch = config_watcher::watch(Arc::downgrade(&self.state), file.into(), secrets, accept, prepare);
        let task = tokio::spawn(watch).abort_handle();
        if let Some(before) = lock(&self.state.watcher).replace(task) {
            before.abort();
        }
    }
}

impl ToolSource for Bridge {
    fn registry(&self) -> Registry {
        self.state.registry().0
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        self.statuses()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let is_started = lock(&self.state.servers).is_started;
            if !is_started && let Err(error) = self.start().await {
                self.state.shared.warn(None, chain(&error));
            }
            // Another caller may have begun to start the servers: wait for the same attempts.
            for slot in self.slots().iter().filter(|_| is_started) {
                let _ = slot.start().await;
            }
        })
    }
}

impl ContextSource for Bridge {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        Box::pin(async {
            let slots = self.slots();
            join_all(slots.iter().map(context_of)).await.into_iter().flatten().collect()
        })
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").field("statuses", &self.statuses()).finish()
    }
}
