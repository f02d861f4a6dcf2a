//! Waits for servers that are still starting.
//!
//! A list waits for them briefly, and longer if it would be empty. A call waits for the server that its tool belongs to. Clients learn
//! about servers that take longer from `list_changed`.

use std::time::Duration;

use tokio::time::Instant;

use crate::catalog::router::Router;
use crate::client::Client;
use crate::request::errors::ErrorReply;
use crate::shared::GatewayShared;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Maximum time for a list while no server is connected. The official SDKs allow 60 s for a request, and several hosts 30 s.
const FIRST_SERVER: Duration = Duration::from_secs(25);

/// Maximum time for a call while its server starts, below the 60 s that the official SDKs allow.
const CALL_WAIT: Duration = Duration::from_secs(50);

/// Lists wait for a server during this many list timeouts after its start: one that downloads for minutes does not delay each list.
const LIST_TIMEOUTS: u32 = 5;

impl GatewayShared {
    /// Records that servers are started for the first time, or added.
    pub(crate) fn note_start(&self) {
        *lock(&self.started_at) = Some(Instant::now());
    }

    /// Returns the servers in these routes that are connecting for the first time, or are about to.
    pub(crate) fn starting(&self, router: &Router) -> Vec<Alias> {
        router.starting(&self.bridge, self.started.is_cancelled())
    }

    /// Waits for the servers in a client's list that are still starting, up to the list timeout. If no server is connected then,
    /// waits for the first one. The list names servers that are not connected in time.
    pub(crate) async fn wait_for_list(&self, client: &Client) {
        let timeout = self.settings().list_timeout;
        let (begun, router) = (Instant::now(), || self.router_of(client).ok());
        let is_waited_for = |router: &Router| !self.starting(router).is_empty();
        self.wait_while(self.list_deadline(begun, timeout), || router().is_some_and(|router| is_waited_for(&router)))
            .await;
        if timeout.is_zero() {
            return;
        }
        let is_empty = |router: &Router| is_waited_for(router) && !router.has_connected(&self.bridge);
        self.wait_while(begun + timeout.max(FIRST_SERVER), || router().is_some_and(|router| is_empty(&router))).await;
    }

    /// Returns when a list stops waiting for servers, as long as it has entries from others.
    fn list_deadline(&self, begun: Instant, timeout: Duration) -> Instant {
        let started = lock(&self.started_at).unwrap_or(begun);
        (begun + timeout).min(started + timeout * LIST_TIMEOUTS).max(begun)
    }

    /// Waits until a profile's servers have described themselves or have failed once, up to the list timeout.
    pub(crate) async fn wait_for_descriptions(&self, profile: &str) {
        let is_described = |server: &Alias| self.upstreams.info(server).is_some();
        let deadline = Instant::now() + self.settings().list_timeout;
        let is_missing = || {
            let router = self.routers().get(profile);
            router.is_some_and(|router| self.starting(&router).iter().any(|server| !is_described(server)))
        };
        self.wait_while(deadline, is_missing).await;
    }

    /// Waits while servers start that may have a tool or prompt with this name, unless `is_found`.
    ///
    /// A name that belongs to a starting server by its prefix, or by the tools that the server listed before, waits until the server is
    /// connected or has failed; any other name waits as long as a list.
    pub(crate) async fn wait_for_name(&self, client: &Client, name: &str, is_found: impl Fn(&Router) -> bool) {
        let begun = Instant::now();
        let Ok(router) = self.router_of(client) else { return };
        let is_remembered = |server: &&Alias| self.bridge.remembers_tool(server, name);
        let remembered: Vec<Alias> = self.starting(&router).iter().filter(is_remembered).cloned().collect();
        let may_come = |is_certain: bool| {
            let Ok(router) = self.current_router_of(client) else { return false };
            let mut owners = router.owners(name, &self.starting(&router)).into_iter();
            !is_found(&router)
                && owners.any(|owner| owner.is_certain || !is_certain || remembered.contains(owner.server))
        };
        self.wait_while(self.list_deadline(begun, self.settings().list_timeout), || may_come(false)).await;
        self.wait_while(begun + CALL_WAIT, || may_come(true)).await;
    }

    /// Waits until a server has started or has failed once, as long as a list that was requested at `begun`. Returns `false` if it is
    /// still starting.
    pub(crate) async fn wait_for_server(&self, router: &Router, server: &Alias, begun: Instant) -> bool {
        let is_starting = || self.starting(router).contains(server);
        self.wait_while(self.list_deadline(begun, self.settings().list_timeout), is_starting).await;
        !is_starting()
    }

    /// Adds the starting servers that may have a tool or prompt to the error for an unknown one.
    pub(crate) fn name_starting(&self, router: &Router, name: &str, error: &mut ErrorReply) {
        let starting = self.starting(router);
        add_starting(error, router.owners(name, &starting).iter().map(|owner| owner.server));
    }

    /// Waits for server changes while a condition holds, until the deadline.
    async fn wait_while(&self, deadline: Instant, condition: impl Fn() -> bool) {
        let mut changes = self.bridge.changes();
        let settled = async {
            loop {
                changes.borrow_and_update();
                let has_started = self.started.is_cancelled();
                if !condition() {
                    return;
                }
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = self.started.cancelled(), if !has_started => {}
                }
            }
        };
        let _ = tokio::time::timeout_at(deadline, settled).await;
    }
}

/// Adds the servers to an error that may have what was not found.
pub(crate) fn add_starting<'a>(error: &mut ErrorReply, servers: impl Iterator<Item = &'a Alias>) {
    let servers: Vec<String> = servers.map(|alias| format!("`{alias}`")).collect();
    match &servers[..] {
        [] => {}
        [one] => error.message.push_str(&format!("; server {one} is still starting, try again later")),
        several => {
            error.message.push_str(&format!("; servers {} are still starting, try again later", several.join(", ")));
        }
    }
}
