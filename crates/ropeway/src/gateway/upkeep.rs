//! The background task of a gateway: follows the servers and removes unused sessions and connections.

use std::sync::Weak;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::clients::ChangedList;
use super::principal_tools;
use super::shared::GatewayShared;

/// Changes within this time become one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Time between two searches for unused sessions and connections, unless connections become unused sooner.
const SWEEP: Duration = Duration::from_secs(30);

/// Interval between checks for tokens of servers that need a sign-in.
const TOKEN_INTERVAL: Duration = Duration::from_secs(3);

/// Minimum time between two searches.
const MIN_SWEEP: Duration = Duration::from_millis(100);

/// Starts the task. Not `async`, so that it is compiled here and not again in every crate that starts a gateway.
pub(super) fn spawn(shared: Weak<GatewayShared>) -> AbortHandle {
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
            }
            lists = board.changes() => {
                tokio::time::sleep(DEBOUNCE).await;
                let Some(shared) = shared.upgrade() else { return };
                for (server, list) in lists {
                    if list == ChangedList::Tools {
                        // The bridge follows the tools of servers with a shared account.
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
                let bridge = shared.bridge.clone();
                if bridge.servers().iter().any(|server| bridge.needs_principal_list(server)) {
                    tokio::spawn(principal_tools::refresh(shared));
                }
                for server in bridge.signed_in_servers().await {
                    let bridge = bridge.clone();
                    tokio::spawn(async move { bridge.reconnect_with_tokens(&server).await });
                }
            }
            _ = sweep.tick() => {
                let Some(shared) = shared.upgrade() else { return };
                shared.auth.end_streams();
                for client in shared.sessions.forget_idle() {
                    shared.forget(&client);
                }
                shared.upstreams.close_idle();
                shared.streams.trim();
            }
        }
    }
}
