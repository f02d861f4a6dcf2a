//! The state that all parts of a gateway share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::catalog::profile::Selector;
use crate::catalog::router::{Router, RouterSet};
use crate::catalog::{Catalog, ListKind, ListSource, Listing};
use crate::client::auth::Auth;
use crate::client::clients::{ChangedList, Clients, ModernClients};
use crate::client::replay::Streams;
use crate::client::seal::KeyRing;
use crate::client::session::{Evicted, Sessions};
use crate::client::shares::{Hold, Resource, ShareError, Shares};
use crate::client::{Client, ClientDescription, LogLevel, Principal};
use crate::listener::connections::Connections;
use crate::observe::{GatewayStats, Observer};
use crate::request::errors::ErrorReply;
use crate::request::exchanges::Exchanges;
use crate::request::limits::Limits;
use crate::request::parked::ParkedCalls;
use crate::request::reply::ServerInfoText;
use crate::upstream::Upstreams;
use crate::upstream::health_cache::HealthCache;
use crate::upstream::restart_limit::RestartLimit;
use crate::upstream::server_limits::ServerLimiters;
use crate::upstream::sign_in::SignIns;
use crate::upstream::subscriptions::{SubscriberKey, Subscriptions};
use crate::upstream::switchboard::{SharedLink, Switchboard};
use ropeway_bridge::{Bridge, ServerView};
use ropeway_config::GatewaySettings;
use ropeway_core::sync::{lock, read, write};
use ropeway_core::tool::{Alias, CancelToken};
use ropeway_mcp::ServerInfo;
use ropeway_mcp::protocol::{Era, meta};

/// Maximum size for all servers' instructions together.
const MAX_INSTRUCTIONS_BYTES: usize = 16 << 10;

/// A gateway's state.
///
/// The [`Gateway`](crate::Gateway), its listeners and the requests in progress own it together. The upkeep task, the metrics
/// exporter and the access callbacks hold a `Weak`, so that they do not keep it alive.
///
/// `settings` and `routers` hold snapshots: a writer replaces the `Arc`, and a reader clones it and releases the lock.
/// [`rebuild_routes`](Self::rebuild_routes) holds `routers` while it reads `settings`, so `routers` is always taken first. The
/// roots callback reads `routers` under the lock around legacy clients, so that lock is never taken under `routers`. No lock is
/// held across an `.await`.
///
/// `started`, `leaving` and `draining` are cancelled once, and mark the gateway's states. Dropping the state drops the bridge,
/// which stops the servers unless the program holds another clone.
pub(crate) struct GatewayShared {
    pub(crate) bridge: Bridge,
    pub(crate) settings: RwLock<Arc<GatewaySettings>>,
    pub(crate) routers: RwLock<Arc<RouterSet>>,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) auth: Auth,
    pub(crate) clients: Arc<Clients>,
    pub(crate) modern_clients: ModernClients,
    pub(crate) exchanges: Arc<Exchanges>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) switchboard: Arc<Switchboard>,
    pub(crate) upstreams: Upstreams,
    pub(crate) sign_ins: SignIns,
    /// The configuration file for suggested commands, unless `ropeway` finds it by itself.
    pub(crate) config_file: Option<PathBuf>,
    /// The web page's origin, for links that send clients there.
    pub(crate) page_origin: OnceLock<String>,
    pub(crate) catalog: Catalog,
    pub(crate) parked: Arc<ParkedCalls>,
    pub(crate) sessions: Sessions,
    pub(crate) streams: Streams,
    pub(crate) limits: Limits,
    pub(crate) connections: Connections,
    pub(crate) shares: Shares,
    pub(crate) observer: Arc<Observer>,
    pub(crate) health: Arc<HealthCache>,
    pub(crate) server_limits: ServerLimiters,
    pub(crate) restart_limit: RestartLimit,
    /// The most verbose log level that a modern client has requested.
    pub(crate) modern_log_level: Mutex<Option<LogLevel>>,
    /// When servers were started for the first time, or were added.
    pub(crate) started_at: Mutex<Option<Instant>>,
    /// Cancelled when all servers have been started.
    pub(crate) started: CancelToken,
    /// Cancelled when clients should use another gateway. They are still served.
    pub(crate) leaving: CancelToken,
    /// Cancelled when the gateway accepts no new work.
    pub(crate) draining: CancelToken,
    /// Cancelled when a client requests the gateway to stop.
    pub(crate) stop_requested: CancelToken,
}

/// A gateway's description for a client.
pub(crate) struct GatewayDescription {
    pub(crate) info: Value,
    pub(crate) capabilities: Value,
    pub(crate) instructions: Option<String>,
    /// The server, if the profile has only one.
    pub(crate) only_server: Option<Arc<ServerInfo>>,
}

/// A gateway's counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GatewayStatus {
    /// Open client connections.
    pub connections: usize,
    /// Legacy client sessions in memory.
    pub sessions: usize,
    /// Requests in progress.
    pub requests: usize,
    /// Calls that wait for client input.
    pub parked: usize,
    /// Unanswered server requests.
    pub questions: usize,
    /// Legacy client event streams that are read, or that may still get events.
    pub streams: usize,
    /// Modern clients that listen for changes.
    pub listeners: usize,
    /// Resources with subscribers.
    pub subscriptions: usize,
    /// Connections to servers that belong to one client.
    pub isolated: usize,
    /// Request body bytes in memory.
    pub body_bytes: usize,
}

/// Time after which a client may try again if there are too many sessions.
const SESSION_WAIT: Duration = Duration::from_secs(1);

/// Maximum characters from a client's text in an error.
const MAX_SHOWN_NAME: usize = 64;

/// Returns the routes that a principal may use.
pub(crate) fn permitted(router: Arc<Router>, principal: &Principal) -> Arc<Router> {
    match principal.tools() {
        Some(access) => router.restricted(&access),
        None => router,
    }
}

impl GatewayShared {
    /// Returns the current settings.
    pub(crate) fn settings(&self) -> Arc<GatewaySettings> {
        read(&self.settings).clone()
    }

    /// Replaces the settings.
    pub(crate) fn set_settings(&self, settings: GatewaySettings) {
        self.auth.reload(&settings);
        *write(&self.settings) = Arc::new(settings);
    }

    pub(crate) fn routers(&self) -> Arc<RouterSet> {
        read(&self.routers).clone()
    }

    /// Returns the profile that a path selects, by name.
    pub(crate) fn profile(&self, selector: &Selector) -> Result<Arc<str>, ErrorReply> {
        self.routers().select(selector).ok_or_else(|| {
            let name: String = selector.name().chars().take(MAX_SHOWN_NAME).collect();
            ErrorReply::refused(404, format!("unknown server or profile `{name}`"))
        })
    }

    /// Returns a profile's routes.
    pub(crate) fn router(&self, profile: &str) -> Result<Arc<Router>, ErrorReply> {
        self.routers().get(profile).ok_or_else(|| ErrorReply::refused(404, "the profile was removed"))
    }

    /// Returns the routes that a client may use.
    pub(crate) fn router_of(&self, client: &Client) -> Result<Arc<Router>, ErrorReply> {
        Ok(permitted(self.router(&client.profile)?, &client.principal))
    }

    /// Returns `true` if a tool exists, and the client may not use it.
    pub(crate) fn is_forbidden_tool(&self, client: &Client, name: &str) -> bool {
        let exists = || self.router(&client.profile).is_ok_and(|router| router.tool(name).is_some());
        client.principal.is_restricted()
            && exists()
            && self.router_of(client).is_ok_and(|router| router.tool(name).is_none())
    }

    /// Withholds resource notifications from clients that have lost access to the server.
    pub(crate) fn guard_subscriptions(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.subscriptions.set_access(Box::new(move |client, server| {
            shared.upgrade().is_some_and(|shared| shared.may_use(client, server))
        }));
    }

    /// Lets servers use their only client's roots, unless clients are authenticated: one principal must not use another's roots.
    pub(crate) fn guard_roots(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.switchboard.set_roots_access(move |client, server| {
            shared.upgrade().is_some_and(|shared| !shared.auth.is_required() && shared.may_use(client, server))
        });
    }

    /// Returns `true` if a client may currently use a server.
    fn may_use(&self, client: &Client, server: &Alias) -> bool {
        let is_allowed = client.principal.allows_profile(&client.profile);
        is_allowed && self.router_of(client).is_ok_and(|router| router.has_server(server))
    }

    /// Returns the routes that a client may use, rebuilt if its servers have changed.
    pub(crate) fn current_router_of(&self, client: &Client) -> Result<Arc<Router>, ErrorReply> {
        if self.router(&client.profile)?.is_outdated(&self.bridge.views()) {
            self.rebuild_routes();
        }
        self.router_of(client)
    }

    /// Rebuilds the routes, and notifies the clients whose tools have changed.
    pub(crate) fn rebuild_routes(&self) {
        let views = self.bridge.views();
        let shared_link = |view: &ServerView| {
            let (server, identity) = (view.alias.clone(), view.process_identity());
            view.mcp.as_ref().map(|mcp| SharedLink { link: mcp.link(), server, identity })
        };
        self.switchboard.set_shared_links(&views.iter().filter_map(shared_link).collect::<Vec<_>>());
        self.observer.set_secrets(self.bridge.secrets());
        self.parked.set_identity(views.iter().fold(0, |sum: u64, view| sum.wrapping_add(view.identity())));
        self.update_log_levels();
        let mut routers = write(&self.routers);
        let before = routers.clone();
        let after = Arc::new(RouterSet::build(&self.settings(), &views, Some(&before)));
        *routers = after.clone();
        drop(routers);
        self.catalog.retain(&views.iter().map(|view| view.alias.clone()).collect::<Vec<_>>());
        let has_changed = |profile: &str| match (before.get(profile), after.get(profile)) {
            (Some(before), Some(after)) => !before.has_same_tools(&after),
            (before, after) => before.is_some() != after.is_some(),
        };
        self.clients.notify_changed(ChangedList::Tools, has_changed);
        for view in views.iter().filter(|view| after.is_connected(&view.alias) && !before.is_connected(&view.alias)) {
            self.announce_lists(&view.alias, &after);
        }
    }

    /// Announces a newly connected server's prompts and resources, which earlier lists do not include.
    fn announce_lists(&self, server: &Alias, routers: &RouterSet) {
        let Some(info) = self.upstreams.info(server) else { return };
        for list in [ChangedList::Prompts, ChangedList::Resources] {
            self.catalog.invalidate(server, list);
            if info.has_capability(&[list.name()]) {
                let has_server = |profile: &str| routers.get(profile).is_some_and(|router| router.has_server(server));
                self.clients.notify_changed(list, has_server);
            }
        }
    }

    /// Finds a session, and restores its state if it was not in memory. Returns its client, and the subscriptions to restore.
    pub(crate) fn session(
        self: &Arc<Self>,
        id: &str,
        principal: &Principal,
    ) -> Result<(Arc<Client>, Vec<String>), ErrorReply> {
        let mut evicted = Evicted::new();
        let found = self.sessions.find(id, principal, &mut evicted);
        let found = self.release(evicted, found)?.ok_or_else(ErrorReply::session_not_found)?;
        let Some(notes) = found.revived else { return Ok((found.client, Vec::new())) };
        self.clients.add(&found.client);
        if found.client.log_level().is_some() {
            self.update_log_levels();
        }
        self.announce_missed_changes(&found.client);
        Ok((found.client, notes.subscriptions.into_iter().map(String::from).collect()))
    }

    /// Starts a session. Returns its id and its client.
    pub(crate) fn create_session(
        &self,
        description: &ClientDescription,
        principal: &Principal,
        profile: &Arc<str>,
    ) -> Result<(Arc<str>, Arc<Client>), ErrorReply> {
        let mut evicted = Evicted::new();
        let created = self.sessions.create(description, principal, profile, &mut evicted);
        let (id, client) = self.release(evicted, created)?;
        self.clients.add(&client);
        Ok((id, client))
    }

    /// Counts against the session limit, for a client whose stream is its session.
    pub(crate) fn reserve_session(&self, principal: &Principal) -> Result<Hold, ErrorReply> {
        let mut evicted = Evicted::new();
        let hold = self.sessions.reserve(principal, &mut evicted);
        self.release(evicted, hold)
    }

    /// Releases clients whose sessions made room for another.
    fn release<T>(&self, evicted: Evicted, result: Result<T, ShareError>) -> Result<T, ErrorReply> {
        evicted.iter().for_each(|client| self.forget(client));
        result.map_err(|error| ErrorReply {
            status: error.status(),
            ..ErrorReply::limited(error.to_string(), SESSION_WAIT)
        })
    }

    /// Notifies a reconnected client that all lists may have changed.
    fn announce_missed_changes(&self, client: &Client) {
        let capabilities = self.describe(&client.profile, &client.principal, client.era).capabilities;
        for list in ChangedList::ALL.into_iter().filter(|list| capabilities.get(list.name()).is_some()) {
            client.outbound.send(list.frame());
        }
    }

    /// Releases a client's resources.
    pub(crate) fn forget(&self, client: &Client) {
        client.close();
        self.clients.remove(client.id);
        self.streams.close_client(client.id);
        self.subscriptions.remove_all(SubscriberKey::Client(client.id));
        self.upstreams.forget(client);
    }

    /// Returns the gateway's name and version.
    pub(crate) fn info_text(&self) -> ServerInfoText {
        ServerInfoText::new(&self.settings().name, env!("CARGO_PKG_VERSION"))
    }

    /// Describes a profile to a client. A profile with one server is described as that server.
    pub(crate) fn describe(&self, profile: &str, principal: &Principal, era: Era) -> GatewayDescription {
        let settings = self.settings();
        let router = self.routers().get(profile);
        let servers = router.as_ref().map(|router| router.servers()).unwrap_or_default();
        let used = router.map(|router| permitted(router, principal).servers()).unwrap_or_default();
        let known: Vec<_> = servers
            .iter()
            .filter(|server| used.contains(server))
            .filter_map(|server| Some((server, self.upstreams.info(server)?)))
            .collect();
        let is_complete = known.len() == used.len();
        let info = match known.as_slice() {
            [(_, info)] if servers.len() == 1 => json!({"name": info.name, "version": info.version}),
            _ => json!({"name": settings.name, "version": env!("CARGO_PKG_VERSION")}),
        };
        let instructions = settings.instructions.clone().or_else(|| {
            let texts = known.iter().filter_map(|(server, info)| {
                let text = info.instructions.as_deref()?;
                Some(if servers.len() == 1 { text.to_owned() } else { format!("{server}: {text}") })
            });
            let mut joined = texts.collect::<Vec<_>>().join("\n\n");
            joined.truncate(joined.floor_char_boundary(MAX_INSTRUCTIONS_BYTES));
            (!joined.is_empty()).then_some(joined)
        });
        let has = |path: &[&str]| known.iter().any(|(_, info)| info.has_capability(path));
        let mut capabilities = Map::new();
        // A server that connects later may have any of these, and clients request the capabilities only once.
        let mut add = |name: &str, value: Value, is_there: bool| {
            if is_there {
                capabilities.insert(name.to_owned(), value);
            }
        };
        add("tools", json!({"listChanged": true}), true);
        add("prompts", json!({"listChanged": true}), has(&["prompts"]) || !is_complete);
        let subscribe = has(&["resources", "subscribe"]) || era == Era::Modern || !is_complete;
        let resources =
            if subscribe { json!({"listChanged": true, "subscribe": true}) } else { json!({"listChanged": true}) };
        add("resources", resources, has(&["resources"]) || !is_complete);
        add("completions", json!({}), has(&["completions"]) || !is_complete);
        add("logging", json!({}), has(&["logging"]) || !is_complete);
        let has_tasks = has(&["extensions", meta::TASKS_EXTENSION]);
        add("extensions", json!({meta::TASKS_EXTENSION: {}}), era == Era::Modern && has_tasks);
        let legacy_tasks = known.iter().find_map(|(_, info)| info.capabilities.get("tasks").cloned());
        add("tasks", legacy_tasks.clone().unwrap_or_default(), era == Era::Legacy && legacy_tasks.is_some());
        let only_server = match known.as_slice() {
            [(_, info)] if servers.len() == 1 => Some(info.clone()),
            _ => None,
        };
        GatewayDescription { info, capabilities: Value::Object(capabilities), instructions, only_server }
    }

    /// Lists the entries from all servers in the client's profile.
    pub(crate) async fn list(&self, client: &Client, kind: ListKind) -> Result<Listing, ErrorReply> {
        let router = self.current_router_of(client)?;
        let source = |server: &Alias| match self.upstreams.isolated_of(server, client) {
            _ if self.upstreams.account(server, &client.principal).is_some() => ListSource::OtherAccount,
            Some(mcp) => ListSource::Isolated(mcp),
            None => ListSource::Shared,
        };
        Ok(self.catalog.list(&self.bridge, &router, (kind, self.settings().list_timeout), source).await)
    }

    /// Sets all servers' log level to the most verbose one that a client has requested.
    pub(crate) fn update_log_levels(&self) {
        let modern = *lock(&self.modern_log_level);
        if let Some(level) = modern.into_iter().chain(self.clients.log_level()).min() {
            self.upstreams.set_log_level(level.name());
        }
    }

    /// Lets legacy servers send messages at the level in a modern request. Modern servers receive the level with the request.
    pub(crate) fn want_log_level(&self, level: LogLevel) {
        let mut wanted = lock(&self.modern_log_level);
        if wanted.is_none_or(|wanted| level < wanted) {
            *wanted = Some(level);
            drop(wanted);
            self.update_log_levels();
        }
    }

    /// Returns the counts for all requests and for the work in progress.
    pub(crate) fn stats(&self) -> GatewayStats {
        let status = self.status();
        let mut stats = GatewayStats::new(&self.observer.metrics(), self.observer.uptime());
        (stats.connections, stats.sessions, stats.requests) = (status.connections, status.sessions, status.requests);
        (stats.dropped_lines, stats.dropped_spans) = (self.observer.dropped_lines().0, self.observer.dropped_spans());
        stats.servers = self.bridge.statuses();
        stats
    }

    /// Returns the counts for the work in progress.
    pub(crate) fn status(&self) -> GatewayStatus {
        GatewayStatus {
            connections: self.connections.len(),
            sessions: self.sessions.len(),
            requests: self.exchanges.len(),
            parked: self.parked.len(),
            questions: self.switchboard.open_server_requests(),
            streams: self.streams.live(),
            listeners: self.clients.listeners(),
            subscriptions: self.subscriptions.len(),
            isolated: self.upstreams.isolated(),
            body_bytes: self.shares.held(Resource::BodyBytes),
        }
    }
}
