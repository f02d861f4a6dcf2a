//! `resources/subscribe` and `resources/unsubscribe`, and the connections that subscriptions are placed on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use tokio::time::Instant;

use crate::catalog::LOOKUP_TIMEOUT;
use crate::catalog::uris::UriRoute;
use crate::client::Client;
use crate::request::errors::{BUSY_WAIT, ErrorReply};
use crate::request::exchange::{Dispatch, Outcome};
use crate::request::reply::ResultExtras;
use crate::request::requester::Requester;
use crate::request::startup::add_starting;
use crate::shared::GatewayShared;
use crate::upstream::subscriptions::{GroupKey, SubscribedResource, Subscriber, SubscriberKey, SubscriptionLimit};
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::protocol::ClientParams;

/// Maximum time until a server has confirmed subscriptions. Clients wait for a response for 60 s and more.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(25);

/// Maximum resources per request whose server is looked up, because none has listed them. Each costs a request to each server.
const MAX_LOOKUPS: usize = 16;

/// Maximum time until the servers for restored subscriptions are found. They may be starting, too.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(120);

/// Handles `resources/subscribe`. The response follows the server's confirmation.
pub(crate) fn subscribe(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let uri = uri(params)?;
    let started = requester.start(shared, params)?;
    let info = shared.info_text();
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let client = &exchange.client;
        let subscribing = Subscribing::client(&shared_, client);
        if let Some(Err(refusal)) = subscribing.add_all(vec![uri.clone()]).await.pop() {
            exchange.note(|record| refusal.rule.into_iter().for_each(|rule| record.note_denied(rule)));
            return Outcome::Error(*refusal.error);
        }
        if shared_.subscriptions.is_noted(subscribing.key, &uri) {
            shared_.sessions.note_subscribed(client, &uri);
            // The client may have unsubscribed meanwhile.
            if !shared_.subscriptions.is_noted(subscribing.key, &uri) {
                shared_.sessions.note_unsubscribed(client, &uri);
            }
        }
        Outcome::composed("{}", ResultExtras::default(), &info)
    }))
}

/// Handles `resources/unsubscribe`. A subscription that is not confirmed yet ends, too.
pub(crate) fn unsubscribe(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let uri = uri(params)?;
    let started = requester.start(shared, params)?;
    let info = shared.info_text();
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let client = &exchange.client;
        if shared_.subscriptions.remove(SubscriberKey::Client(client.id), &uri) {
            shared_.sessions.note_unsubscribed(client, &uri);
        }
        Outcome::composed("{}", ResultExtras::default(), &info)
    }))
}

fn uri(params: &ClientParams<'_>) -> Result<Arc<str>, ErrorReply> {
    let uri = params.target.as_ref().map(|(_, uri)| Arc::from(&**uri));
    uri.ok_or_else(|| ErrorReply::invalid_params("`uri` is missing"))
}

/// Why a subscription was not made.
pub(crate) struct SubscriptionRefusal {
    pub(crate) error: Box<ErrorReply>,
    /// The limit that was reached.
    pub(crate) rule: Option<&'static str>,
}

impl From<ErrorReply> for SubscriptionRefusal {
    fn from(error: ErrorReply) -> Self {
        Self { error: Box::new(error), rule: None }
    }
}

impl From<SubscriptionLimit> for SubscriptionRefusal {
    fn from(limit: SubscriptionLimit) -> Self {
        let (status, rule) = match limit {
            SubscriptionLimit::Count => (429, "subscriptions_per_client"),
            SubscriptionLimit::Bytes => (429, "subscription_bytes_per_client"),
            SubscriptionLimit::Share(error) => (error.status(), error.rule()),
        };
        let error = ErrorReply { status, ..ErrorReply::limited(limit.to_string(), BUSY_WAIT) };
        Self { error: Box::new(error), rule: Some(rule) }
    }
}

/// A subscriber that adds subscriptions.
pub(crate) struct Subscribing<'a> {
    shared: &'a Arc<GatewayShared>,
    client: &'a Arc<Client>,
    key: SubscriberKey,
    subscriber: Subscriber,
    /// Number of resources whose server may still be looked up.
    lookups: AtomicUsize,
}

/// A subscription that ends unless it is kept, so that a cancelled request leaves nothing behind.
struct NewSubscription<'a> {
    shared: &'a GatewayShared,
    key: SubscriberKey,
    resource: SubscribedResource,
    /// Whether the subscription stays when this is dropped.
    is_kept: bool,
}

impl Drop for NewSubscription<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.subscriptions.remove(self.key, &self.resource.client_uri);
        }
    }
}

impl<'a> Subscribing<'a> {
    fn client(shared: &'a Arc<GatewayShared>, client: &'a Arc<Client>) -> Self {
        Self::new(shared, client, SubscriberKey::Client(client.id), Subscriber::Client(Arc::downgrade(client)))
    }

    /// Creates a subscriber that acts for a client.
    pub(crate) fn new(
        shared: &'a Arc<GatewayShared>,
        client: &'a Arc<Client>,
        key: SubscriberKey,
        subscriber: Subscriber,
    ) -> Self {
        Self { shared, client, key, subscriber, lookups: MAX_LOOKUPS.into() }
    }

    /// Subscribes to resources, and waits until their servers have confirmed that. Returns the outcomes in URI order.
    pub(crate) async fn add_all(&self, uris: Vec<Arc<str>>) -> Vec<Result<Arc<str>, SubscriptionRefusal>> {
        let deadline = Instant::now() + CONFIRM_TIMEOUT;
        let mut outcomes = Vec::with_capacity(uris.len());
        let mut groups: HashMap<GroupKey, Vec<(usize, NewSubscription<'_>)>> = HashMap::new();
        for (index, uri) in uris.into_iter().enumerate() {
            match self.add(uri.clone(), deadline).await {
                Ok(new) => {
                    groups.entry(new.resource.group.clone()).or_default().push((index, new));
                    outcomes.push(Ok(uri));
                }
                Err(refusal) => outcomes.push(Err(refusal)),
            }
        }
        for (group, added) in groups {
            for (index, error) in self.confirm(&group, added, deadline).await {
                outcomes[index] = Err(error.into());
            }
        }
        outcomes
    }

    /// Adds a subscription, without placing it. Its server is found by the deadline.
    async fn add(&self, uri: Arc<str>, deadline: Instant) -> Result<NewSubscription<'a>, SubscriptionRefusal> {
        self.shared.subscriptions.check_room(self.key, &uri)?;
        let resource = self.find(uri, deadline).await?;
        if self.shared.upstreams.account(&resource.group.server, &self.client.principal).is_some() {
            return Err(ErrorReply::not_per_principal(&resource.group.server).into());
        }
        let (subscriptions, shares) = (&self.shared.subscriptions, &self.shared.shares);
        let is_new = subscriptions.add(shares, self.key, &self.subscriber, self.client, &resource)?;
        Ok(NewSubscription { shared: self.shared, key: self.key, resource, is_kept: !is_new })
    }

    /// Finds a resource's server.
    async fn find(&self, client_uri: Arc<str>, deadline: Instant) -> Result<SubscribedResource, ErrorReply> {
        let (shared, client) = (self.shared, self.client);
        let router = shared.router_of(client)?;
        let (server, uri) = match shared.catalog.route_uri(&shared.bridge, &router, &client_uri).await {
            UriRoute::One(server, own) if *own == *client_uri => (server, client_uri.clone()),
            UriRoute::One(server, own) => (server, own.into()),
            UriRoute::Try(servers) => (self.find_owner(&client_uri, servers, deadline).await?, client_uri.clone()),
        };
        Ok(SubscribedResource { group: GroupKey { isolation_key: client.isolation_key, server }, uri, client_uri })
    }

    /// Finds the server for a resource that no server has listed: the first one that can read it. Servers that are starting are
    /// waited for, because others accept a subscription to any URI.
    async fn find_owner(&self, uri: &str, servers: Vec<Alias>, deadline: Instant) -> Result<Alias, ErrorReply> {
        let info = |server: &Alias| self.shared.upstreams.info(server);
        let (connected, late): (Vec<Alias>, Vec<Alias>) =
            servers.into_iter().partition(|server| info(server).is_some());
        let may_look_up = self.lookups.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if may_look_up {
            match tokio::time::timeout_at(deadline, self.look_up(uri, &connected, &late)).await {
                Ok(Some(owner)) => return Ok(owner),
                // All have answered or failed.
                Ok(None) => {}
                Err(_) => {
                    let mut error = ErrorReply::resource_not_found(uri, self.client.era);
                    add_starting(&mut error, late.iter().filter(|server| info(server).is_none()));
                    return Err(error);
                }
            }
        }
        // The resource may not exist yet.
        let can_subscribe =
            |server: &&Alias| info(server).is_some_and(|info| info.has_capability(&["resources", "subscribe"]));
        let all = || connected.iter().chain(&late);
        let found = all().find(can_subscribe).or_else(|| all().next()).cloned();
        found.ok_or_else(|| ErrorReply::resource_not_found(uri, self.client.era))
    }

    /// Returns the first server that can read a resource: a connected one, in their order, or else the first to answer among the
    /// others.
    async fn look_up(&self, uri: &str, connected: &[Alias], late: &[Alias]) -> Option<Alias> {
        let has = join_all(connected.iter().map(|server| self.has_resource(server, uri))).await;
        let first = connected.iter().zip(has).find(|(_, has)| *has).map(|(server, _)| server.clone());
        if first.is_some() || late.is_empty() {
            return first;
        }
        let read = |server| Box::pin(async move { self.has_resource(server, uri).await.then_some(server).ok_or(()) });
        select_ok(late.iter().map(read)).await.ok().map(|(server, _)| server.clone())
    }

    /// Returns `true` if a server can read a resource, once it is connected.
    async fn has_resource(&self, server: &Alias, uri: &str) -> bool {
        // Resources in a principal's own account cannot be subscribed to.
        if self.shared.upstreams.account(server, &self.client.principal).is_some() {
            return false;
        }
        let Ok(lease) = self.shared.bridge.connect_for(server, None).await else { return false };
        let read = tokio::time::timeout(LOOKUP_TIMEOUT, lease.mcp.read_resource(uri)).await;
        read.is_ok_and(|read| read.is_ok())
    }

    /// Places subscriptions to one server on the connection for the client's calls, and waits until the server has confirmed
    /// them. Returns those that failed, which have ended.
    async fn confirm(
        &self,
        group: &GroupKey,
        added: Vec<(usize, NewSubscription<'_>)>,
        deadline: Instant,
    ) -> Vec<(usize, ErrorReply)> {
        let placing = self.shared.upstreams.subscription_place(&group.server, self.client);
        let place = tokio::time::timeout_at(deadline, placing).await;
        let mut place = match place {
            Ok(Ok(place)) => place,
            Ok(Err(error)) => return fail_all(&added, &self.refusal(&error)),
            Err(_) => return fail_all(&added, &self.late(&group.server)),
        };
        if let Err(error) = std::mem::replace(&mut place.started, Ok(())) {
            return fail_all(&added, &self.refusal(&error));
        }
        let mcp = place.mcp.clone();
        let uris: Vec<Arc<str>> = added.iter().map(|(_, new)| new.resource.uri.clone()).collect();
        // What has moved stays at its former connection until the new one has confirmed it.
        let _placed = self.shared.subscriptions.place(group, place, &uris);
        let mut failed = Vec::new();
        for (index, mut new) in added {
            let hold = mcp.hold_subscription(&new.resource.uri);
            match tokio::time::timeout_at(deadline, hold.confirmed()).await {
                Ok(Ok(())) => new.is_kept = true,
                Ok(Err(error)) => failed.push((index, self.refusal(&error))),
                Err(_) => failed.push((index, self.late(&group.server))),
            }
        }
        failed
    }

    fn refusal(&self, error: &CallError) -> ErrorReply {
        ErrorReply::for_client(error, self.client)
    }

    /// Returns the error for a subscription that a server does not confirm in time.
    fn late(&self, server: &Alias) -> ErrorReply {
        let server = server.clone();
        self.refusal(&CallError::Timeout { server, after: CONFIRM_TIMEOUT, idle: false, hint: None })
    }
}

/// Returns the same error for all subscriptions.
fn fail_all(added: &[(usize, NewSubscription<'_>)], error: &ErrorReply) -> Vec<(usize, ErrorReply)> {
    added.iter().map(|(index, _)| (*index, error.clone())).collect()
}

/// Restores a revived session's subscriptions. Servers that are not connected confirm them later.
pub(crate) fn restore(shared: &Arc<GatewayShared>, client: &Arc<Client>, uris: impl IntoIterator<Item = String>) {
    let uris: Vec<Arc<str>> = uris.into_iter().map(Into::into).collect();
    if uris.is_empty() {
        return;
    }
    spawn(shared, client, async move |shared, client| {
        // All were accepted before.
        let subscribing = Subscribing { lookups: uris.len().into(), ..Subscribing::client(&shared, &client) };
        let deadline = Instant::now() + RESTORE_TIMEOUT;
        let mut servers: HashMap<Alias, Vec<Arc<str>>> = HashMap::new();
        for uri in uris {
            match subscribing.add(uri, deadline).await {
                Ok(mut new) => {
                    new.is_kept = true;
                    let SubscribedResource { group, uri, .. } = &new.resource;
                    servers.entry(group.server.clone()).or_default().push(uri.clone());
                }
                Err(refusal) => tracing::warn!("could not restore a subscription: {}", refusal.error.message),
            }
        }
        for (server, uris) in servers {
            let group = GroupKey { isolation_key: client.isolation_key, server };
            move_group(&shared, &group, &client, &uris).await;
        }
    });
}

/// Moves subscriptions whose server was replaced, such as by a configuration reload, to its new connection.
pub(crate) fn follow_servers(shared: &Arc<GatewayShared>) {
    let link = |server: &Alias| shared.bridge.server(server).map(|mcp| mcp.link());
    for (group, client) in shared.subscriptions.take_outdated(|server| shared.bridge.slot_id(server), link) {
        spawn(shared, &client, async move |shared, client| move_group(&shared, &group, &client, &[]).await);
    }
}

/// Runs a task for a client, which ends when the gateway stops.
fn spawn<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<GatewayShared>,
    client: &Arc<Client>,
    task: impl FnOnce(Arc<GatewayShared>, Arc<Client>) -> F,
) {
    let (draining, task) = (shared.draining.clone(), task(shared.clone(), client.clone()));
    shared.subscriptions.spawn(async move {
        tokio::select! {
            () = draining.cancelled() => {}
            () = task => {}
        }
    });
}

/// Places a group, or its `restored` subscriptions if it is placed already, on the connection that its clients' calls currently
/// use, whether or not that is established yet. Reports a change in each resource to the clients once the server has confirmed
/// its subscription, because earlier ones may have gone unnoticed.
async fn move_group(shared: &GatewayShared, group: &GroupKey, client: &Arc<Client>, restored: &[Arc<str>]) {
    match shared.upstreams.subscription_place(&group.server, client).await {
        Ok(place) => {
            let placed = shared.subscriptions.place(group, place, restored);
            if !placed.has_gap && !restored.is_empty() {
                shared.subscriptions.report_gap(group, &placed.holds);
            }
            let confirmed = join_all(placed.holds.iter().map(|hold| hold.confirmed()));
            // Those that fail are requested again.
            let _ = tokio::time::timeout(CONFIRM_TIMEOUT, confirmed).await;
        }
        Err(error) => {
            let error = ropeway_core::error_chain::chain(&error);
            tracing::debug!(server = %group.server, "could not place subscriptions: {error}");
        }
    }
}
