//! A gateway's background task: follows the servers and removes unused sessions and connections.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::client::clients::ChangedList;
use crate::request::principal_tools;
use crate::request::subscribe;
use crate::shared::GatewayShared;
use ropeway_core::tool::Alias;

/// Changes within this time become one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Time between two searches for unused sessions and connections, unless connections become unused sooner.
const SWEEP: Duration = Duration::from_secs(30);

/// Interval between token checks for servers that need a sign-in.
const TOKEN_INTERVAL: Duration = Duration::from_secs(3);

/// Minimum time between two searches.
const MIN_SWEEP: Duration = Duration::from_millis(100);

/// Work that may wait for servers, sign-ins or a keyring, kept apart so that it does not delay the rest. Dropping it ends the
/// work.
#[derive(Default)]
struct Background {
    tasks: JoinSet<Done>,
    is_refreshing: bool,
    is_looking_up: bool,
    /// Servers that are being connected with new tokens.
    reconnecting: HashSet<Alias>,
}

/// Finished background work.
enum Done {
    /// The principals' tools are refreshed.
    Refreshed,
    /// The look-up has found servers with new tokens.
    SignedIn(Vec<Alias>),
    Reconnected(Alias),
}

impl Background {
    /// Starts to look for changes to principals' tools, and for servers that have new tokens.
    fn start(&mut self, shared: Arc<GatewayShared>) {
        let bridge = shared.bridge.clone();
        if !self.is_looking_up {
            self.is_looking_up = true;
            let bridge = bridge.clone();
            self.tasks.spawn(async move { Done::SignedIn(bridge.signed_in_servers().await) });
        }
        if !self.is_refreshing && bridge.servers().iter().any(|server| bridge.needs_principal_list(server)) {
            self.is_refreshing = true;
            self.tasks.spawn(async move {
                principal_tools::refresh(shared).await;
                Done::Refreshed
            });
        }
    }

    /// Connects servers that have got tokens, after a look-up.
    fn finish(&mut self, shared: &GatewayShared, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Refreshed) => self.is_refreshing = false,
            Ok(Done::Reconnected(server)) => {
                self.reconnecting.remove(&server);
            }
            Ok(Done::SignedIn(servers)) => {
                self.is_looking_up = false;
                for server in servers {
                    if !self.reconnecting.insert(server.clone()) {
                        continue;
                    }
                    let bridge = shared.bridge.clone();
                    self.tasks.spawn(async move {
                        bridge.reconnect_with_tokens(&server).await;
                        Done::Reconnected(server)
                    });
                }
            }
            // A task that panicked does not say which one it was.
            Err(_) => *self = Self { tasks: std::mem::take(&mut self.tasks), ..Self::default() },
        }
    }
}

/// Starts the task. Not `async`, so that it is compiled here and not again in every crate that starts a gateway.
pub(crate) fn spawn(shared: Weak<GatewayShared>) -> AbortHandle {
    tokio::spawn(run(shared)).abort_handle()
}

/// Follows the servers until the gateway is dropped.
async fn run(shared: Weak<GatewayShared>) {
    let Some(strong) = shared.upgrade() else { return };
    let (mut changes, board) = (strong.bridge.changes(), strong.switchboard.clone());
    strong.rebuild_routes();
    // The limits do not change while the gateway runs.
    let isolated_idle = strong.settings().limits.isolated_idle;
    drop(strong);
    let mut sweep = tokio::time::interval(isolated_idle.clamp(MIN_SWEEP, SWEEP));
    let mut background = Background::default();
    let mut tokens = tokio::time::interval(TOKEN_INTERVAL);
    tokens.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                tokio::time::sleep(DEBOUNCE).await;
                changes.borrow_and_update();
                let Some(shared) = shared.upgrade() else { return };
                shared.rebuild_routes();
                subscribe::follow_servers(&shared);
            }
            lists = board.changes() => {
                tokio::time::sleep(DEBOUNCE).await;
                let Some(shared) = shared.upgrade() else { return };
                for (server, list) in lists {
                    if list == ChangedList::Tools {
                        // For servers with a shared account, the bridge follows the tools.
                        if shared.bridge.needs_principal_list(&server) {
                            shared.sign_ins.lists.set_changed(&server);
                        }
                        continue;
                    }
                    shared.catalog.invalidate(&server, list);
                    let routers = shared.routers();
                    shared.clients.notify_changed(list, |profile| {
                        routers.get(profile).is_some_and(|router| router.has_server(&server))
                    });
                }
            }
            () = board.asking().changed() => {
                let board = board.clone();
                // Only a panic makes it fail.
                let _ = tokio::task::spawn_blocking(move || board.asking().save()).await;
            }
            _ = tokens.tick() => {
                let Some(shared) = shared.upgrade() else { return };
                shared.observer.write_refusals(false);
                background.start(shared);
            }
            Some(done) = background.tasks.join_next() => {
                let Some(shared) = shared.upgrade() else { return };
                background.finish(&shared, done);
            }
            _ = sweep.tick() => {
                let Some(shared) = shared.upgrade() else { return };
                shared.auth.end_streams();
                shared.subscriptions.remove_ended();
                shared.sessions.evict_unused().iter().for_each(|client| shared.forget(client));
                shared.upstreams.close_idle();
                shared.streams.trim();
            }
        }
    }
}
