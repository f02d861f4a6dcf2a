//! Lists over a profile's servers: tools, prompts, resources and resource templates.

pub(crate) mod cursor;
pub(crate) mod entry_rules;
pub(crate) mod list_kind;
pub(crate) mod names;
pub(crate) mod profile;
pub(crate) mod router;
pub(crate) mod server_list;
pub(crate) mod uris;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;

pub(crate) use crate::catalog::list_kind::ListKind;
use crate::catalog::names::NameTable;
use crate::catalog::router::{Entry, MissingServer, RoutedServer, Router, describe_left_out, missing_server};
use crate::catalog::server_list::{ServerEntries, ServerList, replace_member};
use crate::catalog::uris::{KnownUris, UriRoute};
use crate::client::clients::ChangedList;
use ropeway_bridge::Bridge;
use ropeway_bridge::registry::ServerState;
use ropeway_core::duration::format_duration;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::one_line;
use ropeway_mcp::{ConnectionState, Mcp};

/// Maximum time that a request waits for lists, to find a prompt's or resource's server.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Servers' lists, kept until a server reports a change or a list expires.
///
/// The gateway owns the catalog, and requests fill it. `lists` is locked to find or add a list, and a list's own lock may be
/// taken under it. `known_uris` is locked alone. Neither is held across an `.await`: a request clones the list's `Arc` and
/// fetches without a lock.
#[derive(Default)]
pub(crate) struct Catalog {
    lists: Mutex<HashMap<(Alias, ListKind), Arc<ServerList>>>,
    known_uris: Mutex<HashMap<Arc<str>, CachedUris>>,
}

/// A profile's known URIs, and the lists that they were built from.
struct CachedUris {
    router: u64,
    lists: Vec<Option<Arc<ServerEntries>>>,
    known: Arc<KnownUris>,
}

/// A list over all servers in a profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// The servers whose entries are missing.
    pub(crate) missing: Vec<MissingServer>,
    /// How long clients may cache the list.
    pub(crate) ttl_ms: u64,
}

/// A list entry, and the server that it belongs to.
struct RoutedEntry {
    entry: Entry,
    server: Alias,
    /// The server's own name or URI.
    own: Box<str>,
}

/// The connection to a server that a client's list uses.
pub(crate) enum ListSource {
    /// The connection that clients share.
    Shared,
    /// The client's own connection.
    Isolated(Mcp),
    /// Resources on the shared connection belong to another account, and are left out.
    OtherAccount,
}

/// One server's entries, or the reason why they are missing.
type Fetched<'a> = (&'a RoutedServer, Result<Arc<ServerEntries>, MissingServer>);

impl Catalog {
    /// Lists the entries from all servers in a profile. Servers are queried concurrently, each for up to `timeout`. `source`
    /// states which connection to a server the client uses.
    pub(crate) async fn list(
        &self,
        bridge: &Bridge,
        router: &Router,
        (kind, timeout): (ListKind, Duration),
        source: impl Fn(&Alias) -> ListSource,
    ) -> Listing {
        if kind == ListKind::Tools {
            return list_tools(bridge, router);
        }
        let fetched = self.fetch_from(bridge, router, kind, timeout, source).await;
        let mut missing = fetched.iter().filter_map(|(_, entries)| entries.as_ref().err().cloned()).collect::<Vec<_>>();
        let ttls =
            fetched.iter().filter_map(|(_, entries)| entries.as_ref().ok()).map(|entries| entries.remaining_ttl());
        let ttl = if missing.is_empty() { ttls.min().unwrap_or_default() } else { Duration::ZERO };
        missing.extend(fetched.iter().filter_map(|(server, entries)| {
            let reason = Some(describe_left_out(kind.names().noun, &entries.as_ref().ok()?.left_out)?);
            Some(MissingServer { alias: server.alias.clone(), state: "ready", reason })
        }));
        let entries = routed_entries(router, kind, &fetched).into_iter().map(|routed| routed.entry).collect();
        Listing { entries, missing, ttl_ms: ttl.as_millis().try_into().unwrap_or(u64::MAX) }
    }

    /// Finds a prompt's server, and the server's own prompt name.
    pub(crate) async fn prompt(&self, bridge: &Bridge, router: &Router, name: &str) -> Option<(Alias, String)> {
        if let Some(only) = router.transparent() {
            return Some((only.clone(), name.to_owned()));
        }
        let find = |fetched: &[Fetched<'_>]| {
            let mut entries = routed_entries(router, ListKind::Prompts, fetched).into_iter();
            entries.find(|routed| *routed.entry.name == *name).map(|routed| (routed.server, routed.own.into_string()))
        };
        let known = self.known(bridge, router, ListKind::Prompts);
        if known.iter().all(|(_, entries)| entries.is_ok())
            && let Some(found) = find(&known)
        {
            return Some(found);
        }
        if let Some(found) = find(&self.fetch_all(bridge, router, ListKind::Prompts, LOOKUP_TIMEOUT).await) {
            return Some(found);
        }
        // A server that is started on demand may have the prompt.
        let asleep = router.routed.iter().filter(|server| is_asleep(bridge, &server.alias));
        let woken =
            join_all(asleep.map(|server| tokio::time::timeout(LOOKUP_TIMEOUT, bridge.wake(&server.alias)))).await;
        if woken.is_empty() {
            return None;
        }
        find(&self.fetch_all(bridge, router, ListKind::Prompts, LOOKUP_TIMEOUT).await)
    }

    /// Finds the servers that may have a resource.
    pub(crate) async fn route_uri(&self, bridge: &Bridge, router: &Router, uri: &str) -> UriRoute {
        let servers = router.servers();
        let qualified = uris::split_qualified(uri, &servers);
        if let Some(only) = router.transparent() {
            // The server's other URIs may look like this, if it is a gateway.
            let own = qualified.filter(|(_, own)| !uris::is_absolute(own)).map(|(_, own)| own);
            return UriRoute::One(only.clone(), own.unwrap_or_else(|| uri.to_owned()));
        }
        if let Some((server, own)) = qualified {
            return UriRoute::One(server, own);
        }
        let known = self.known_uris(bridge, router);
        if known.owner(uri).is_some() {
            return uris::route_uri(uri, &servers, &known);
        }
        self.fetch_uris(bridge, router).await;
        uris::route_uri(uri, &servers, &self.known_uris(bridge, router))
    }

    /// Finds a resource template's server, and the server's own template.
    pub(crate) async fn route_template(
        &self,
        bridge: &Bridge,
        router: &Router,
        template: &str,
    ) -> Option<(Alias, String)> {
        if let Some(only) = router.transparent() {
            return Some((only.clone(), template.to_owned()));
        }
        let servers = router.servers();
        if let Some(found) = uris::split_qualified(template, &servers) {
            return Some(found);
        }
        if self.known_uris(bridge, router).template_owner(template).is_none() {
            self.fetch_uris(bridge, router).await;
        }
        let known = self.known_uris(bridge, router);
        if let Some(owner) = known.template_owner(template) {
            return Some((owner.clone(), template.to_owned()));
        }
        // A client may complete a resource's URI as well.
        match uris::route_uri(template, &servers, &known) {
            UriRoute::One(server, own) => Some((server, own)),
            UriRoute::Try(servers) => servers.into_iter().next().map(|server| (server, template.to_owned())),
        }
    }

    /// Marks a server's list as changed. The next request fetches it again.
    pub(crate) fn invalidate(&self, server: &Alias, list: ChangedList) {
        let kinds: &[ListKind] = match list {
            ChangedList::Tools => &[],
            ChangedList::Prompts => &[ListKind::Prompts],
            ChangedList::Resources => &[ListKind::Resources, ListKind::Templates],
        };
        for kind in kinds {
            if let Some(list) = lock(&self.lists).get(&(server.clone(), *kind)) {
                list.invalidate();
            }
        }
    }

    /// Removes lists whose servers are not in the configuration.
    pub(crate) fn retain(&self, servers: &[Alias]) {
        lock(&self.lists).retain(|(server, _), _| servers.contains(server));
    }

    fn list_of(&self, server: &Alias, kind: ListKind) -> Arc<ServerList> {
        lock(&self.lists).entry((server.clone(), kind)).or_default().clone()
    }

    async fn fetch_uris(&self, bridge: &Bridge, router: &Router) {
        tokio::join!(
            self.fetch_all(bridge, router, ListKind::Resources, LOOKUP_TIMEOUT),
            self.fetch_all(bridge, router, ListKind::Templates, LOOKUP_TIMEOUT),
        );
    }

    /// Fetches a list from each server, on the shared connections.
    async fn fetch_all<'a>(
        &self,
        bridge: &Bridge,
        router: &'a Router,
        kind: ListKind,
        timeout: Duration,
    ) -> Vec<Fetched<'a>> {
        self.fetch_from(bridge, router, kind, timeout, |_| ListSource::Shared).await
    }

    /// Fetches a list from each server, on the connections that a client uses.
    async fn fetch_from<'a>(
        &self,
        bridge: &Bridge,
        router: &'a Router,
        kind: ListKind,
        timeout: Duration,
        source: impl Fn(&Alias) -> ListSource,
    ) -> Vec<Fetched<'a>> {
        let one = |server: &'a RoutedServer| {
            let source = source(&server.alias);
            async move {
                match source {
                    ListSource::OtherAccount if kind == ListKind::Resources => (server, Ok(Arc::default())),
                    ListSource::Isolated(mcp) => (server, fetch_isolated(server, &mcp, kind, timeout).await),
                    ListSource::Shared | ListSource::OtherAccount => {
                        (server, fetch(bridge, server, &self.list_of(&server.alias, kind), kind, timeout).await)
                    }
                }
            }
        };
        join_all(router.routed.iter().filter(|server| server.entry.enabled).map(one)).await
    }

    /// Returns the cached lists.
    fn known<'a>(&self, bridge: &Bridge, router: &'a Router, kind: ListKind) -> Vec<Fetched<'a>> {
        let one = |server: &'a RoutedServer| {
            let link = bridge.server(&server.alias).map(|mcp| mcp.link());
            let entries = self.list_of(&server.alias, kind).known().filter(|entries| Some(entries.link) == link);
            (server, entries.ok_or_else(|| unavailable(server, "connecting", None)))
        };
        router.routed.iter().filter(|server| server.entry.enabled).map(one).collect()
    }

    /// Returns the URIs and templates that a profile's servers have listed.
    fn known_uris(&self, bridge: &Bridge, router: &Router) -> Arc<KnownUris> {
        let resources = self.known(bridge, router, ListKind::Resources);
        let templates = self.known(bridge, router, ListKind::Templates);
        let lists: Vec<Option<Arc<ServerEntries>>> =
            resources.iter().chain(&templates).map(|(_, entries)| entries.as_ref().ok().cloned()).collect();
        let is_same = |cached: &&CachedUris| {
            let same = |(one, other): (&Option<Arc<ServerEntries>>, &Option<Arc<ServerEntries>>)| match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            cached.router == router.id && cached.lists.len() == lists.len() && cached.lists.iter().zip(&lists).all(same)
        };
        if let Some(cached) = lock(&self.known_uris).get(&router.profile.name).filter(is_same) {
            return cached.known.clone();
        }
        let mut known = KnownUris::default();
        for (server, entries) in &resources {
            for entry in entries.iter().flat_map(|entries| &entries.entries) {
                known.add(&entry.id, &server.alias);
            }
        }
        for (server, entries) in &templates {
            for entry in entries.iter().flat_map(|entries| &entries.entries) {
                known.add_template(&entry.id, &server.alias);
            }
        }
        for (uri, server) in &router.ui_uris {
            known.add(uri, server);
        }
        for server in router.routed.iter().filter(|server| may_have(bridge, &server.alias, ListKind::Resources)) {
            known.add_server(&server.alias);
        }
        let known = Arc::new(known);
        let cached = CachedUris { router: router.id, lists, known: known.clone() };
        // Which servers have resources is unknown until all are connected.
        if router.routed.iter().all(|server| bridge.server(&server.alias).is_some_and(|mcp| mcp.is_connected())) {
            lock(&self.known_uris).insert(router.profile.name.clone(), cached);
        }
        known
    }
}

/// Lists a profile's tools, including changes that are not in the router yet.
fn list_tools(bridge: &Bridge, router: &Router) -> Listing {
    let views = bridge.views();
    let current;
    let router = if router.is_outdated(&views) {
        current = router.rebuilt(&views);
        &current
    } else {
        router
    };
    let ttl = router.transparent().and_then(|only| bridge.server(only)?.tools_ttl()).unwrap_or_default();
    Listing {
        entries: router.tool_entries().to_vec(),
        missing: router.missing_tools(),
        ttl_ms: ttl.as_millis().try_into().unwrap_or(u64::MAX),
    }
}

/// Fetches a list from one server, unless the cached list is up to date.
async fn fetch(
    bridge: &Bridge,
    server: &RoutedServer,
    list: &Arc<ServerList>,
    kind: ListKind,
    timeout: Duration,
) -> Result<Arc<ServerEntries>, MissingServer> {
    let Some(mcp) = bridge.server(&server.alias) else { return Err(unavailable(server, "not_started", None)) };
    if !may_have(bridge, &server.alias, kind) {
        return Ok(Arc::default());
    }
    let known = list.known().filter(|entries| entries.link == mcp.link());
    if !can_answer(&mcp, server) {
        // A reconnecting server's entries stay listed. The caller has waited for a server that is starting.
        return known.ok_or_else(|| unavailable(server, state_of(&mcp), None));
    }
    match list.fetch(&mcp, kind, timeout).await {
        Ok(entries) => Ok(entries),
        Err(problem) => known.ok_or_else(|| unavailable(server, state_of(&mcp), Some(problem))),
    }
}

/// Fetches a list on one client's connection, whose process may have other entries than the shared one. The list is not cached.
async fn fetch_isolated(
    server: &RoutedServer,
    mcp: &Mcp,
    kind: ListKind,
    timeout: Duration,
) -> Result<Arc<ServerEntries>, MissingServer> {
    let fetched = tokio::time::timeout(timeout, ServerEntries::request(mcp, kind)).await;
    let late = || format!("no response within {}", format_duration(timeout));
    let entries = fetched.unwrap_or_else(|_| Err(late()));
    entries.map(Arc::new).map_err(|problem| unavailable(server, state_of(mcp), Some(problem)))
}

/// Returns `true` if a server answers requests, or is being reconnected.
fn can_answer(mcp: &Mcp, server: &RoutedServer) -> bool {
    match *mcp.state().borrow() {
        ConnectionState::Ready { .. } => true,
        ConnectionState::Connecting { .. } => server.has_tools(),
        _ => false,
    }
}

fn state_of(mcp: &Mcp) -> &'static str {
    match *mcp.state().borrow() {
        ConnectionState::Ready { .. } => "ready",
        ConnectionState::Connecting { .. } => "connecting",
        ConnectionState::NeedsAuth { .. } => "needs_auth",
        ConnectionState::Down { .. } => "down",
        ConnectionState::Closed => "not_started",
    }
}

/// Returns `true` if a server waits for the first request to be started.
fn is_asleep(bridge: &Bridge, alias: &Alias) -> bool {
    let is_cached = |outcome: &ServerState| matches!(outcome, ServerState::Cached { .. });
    bridge.statuses().iter().any(|status| status.server == *alias && is_cached(&status.state))
}

/// Returns `true` unless the server has declared that it does not have a list.
fn may_have(bridge: &Bridge, alias: &Alias, kind: ListKind) -> bool {
    let info = bridge.server(alias).and_then(|mcp| mcp.server_info());
    info.is_none_or(|info| info.capabilities.is_empty() || info.has_capability(&[kind.names().capability]))
}

/// Describes why a server's entries are missing.
fn unavailable(server: &RoutedServer, state: &'static str, reason: Option<String>) -> MissingServer {
    let described = missing_server(server.status()).filter(|described| reason.is_none() && described.reason.is_some());
    let state = if matches!(server.status().state, ServerState::Cached { .. }) { "cached" } else { state };
    described.unwrap_or_else(|| MissingServer { alias: server.alias.clone(), state, reason })
}

/// Gives all servers' entries the names and URIs that clients see, in configuration order.
fn routed_entries(router: &Router, kind: ListKind, fetched: &[Fetched<'_>]) -> Vec<RoutedEntry> {
    let mut names = NameTable::new(router.profile.is_prefixed());
    let mut known = KnownUris::default();
    let mut routed = Vec::new();
    for (server, entries) in fetched {
        let Ok(entries) = entries else { continue };
        for entry in &entries.entries {
            let is_first = match kind {
                ListKind::Tools | ListKind::Prompts => true,
                ListKind::Resources => known.add(&entry.id, &server.alias),
                ListKind::Templates => known.add_template(&entry.id, &server.alias),
            };
            let name = match kind {
                ListKind::Tools | ListKind::Prompts => names.assign(&server.entry, &entry.id),
                ListKind::Resources if !uris::is_absolute(&entry.id) => {
                    uris::qualify_relative(&server.alias, &entry.id)
                }
                _ if is_first => entry.id.to_string(),
                _ => uris::qualify(&server.alias, &entry.id),
            };
            let json = if *name == *entry.id { entry.json.clone() } else { renamed(&entry.json, kind, &name) };
            let entry_of_client = Entry { name: name.into(), json, legacy: None };
            routed.push(RoutedEntry { entry: entry_of_client, server: server.alias.clone(), own: entry.id.clone() });
        }
    }
    routed
}

/// Returns an entry under another name or URI.
fn renamed(json: &Arc<str>, kind: ListKind, name: &str) -> Arc<str> {
    let value = serde_json::Value::from(name).to_string();
    replace_member(json, kind.names().id, &value).map_or_else(|| json.clone(), |text| one_line(text.into()).into())
}

#[cfg(test)]
mod tests;
