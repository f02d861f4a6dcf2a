//! Tools on servers where only principals have signed in: listed with the tokens of the first principal that signs in or requests
//! them, and again after later sign-ins and changes.
//!
//! Other servers list their tools with the shared account. In both cases, all principals see the same list.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Listing;
use crate::client::Client;
use crate::request::sign_in_offer::sign_in_advice;
use crate::shared::GatewayShared;
use crate::upstream::sign_in::AccountKey;
use ropeway_core::error_chain::chain;
use ropeway_core::tool::Alias;

/// Maximum time for a list. A client waits for it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Lists the tools of servers that are not listed yet, with the tokens of a client's principal, if it has any.
pub(crate) async fn list_own(shared: &GatewayShared, client: &Client) {
    let mut is_listed = false;
    for key in accounts(shared, client) {
        if shared.bridge.is_unlisted(&key.0) {
            is_listed |= list_with(shared, &key).await;
        }
    }
    if is_listed {
        shared.rebuild_routes();
    }
}

/// Refreshes lists in the background: for servers that have reported a change, and for servers that a connected client's
/// principal has signed in to elsewhere, such as with `ropeway login`. Clients are notified when a list changes.
pub(crate) async fn refresh(shared: Arc<GatewayShared>) {
    let lists = &shared.sign_ins.lists;
    let Ok(_refreshing) = lists.refreshing.try_lock() else { return };
    let work = async {
        for server in lists.take_changed() {
            list_again(&shared, &server, None).await;
        }
        let (mut principals, mut keys) = (HashSet::new(), HashSet::new());
        for client in shared.clients.connected() {
            if principals.insert((client.principal.shared_id(), client.profile.clone())) {
                keys.extend(accounts(&shared, &client));
            }
        }
        // One list is enough for all principals that have signed in since the last run.
        let mut listed = HashSet::new();
        for key in &keys {
            if listed.contains(&key.0) {
                set_tried(&shared, key);
            } else if list_with(&shared, key).await {
                listed.insert(key.0.clone());
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.draining.cancelled() => {}
    }
}

/// Returns the accounts that a client's principal has at servers that only principals can list.
fn accounts(shared: &GatewayShared, client: &Client) -> Vec<AccountKey> {
    let Ok(router) = shared.router_of(client) else { return Vec::new() };
    let servers = router.servers().into_iter().filter(|server| shared.bridge.needs_principal_list(server));
    let key = |server: Alias| {
        let account = shared.upstreams.account(&server, &client.principal)?;
        Some((server, Some(account)))
    };
    servers.filter_map(key).collect()
}

/// Lists a server's tools after an account has signed in, unless its tokens were tried. Returns `true` if the tools were listed.
pub(crate) async fn list_with(shared: &GatewayShared, key: &AccountKey) -> bool {
    let (server, Some(account)) = key else { return false };
    let target = shared.bridge.sign_in_target(server).filter(|_| shared.bridge.needs_principal_list(server));
    let Some(target) = target else { return false };
    let (store, lists) = (&shared.sign_ins.store, &shared.sign_ins.lists);
    let stamp = || store.stamp(&target.url, Some(account));
    let before = stamp();
    if lists.was_tried(key, &before) {
        return false;
    }
    match store.load(&target.url, Some(account)).await {
        Ok(Some(_)) => {}
        Ok(None) => {
            lists.set_tried(key, before);
            return false;
        }
        Err(_) => return false,
    }
    let is_listed = list_again(shared, server, Some(account)).await;
    // Taken now, because the attempt may have refreshed the tokens.
    lists.set_tried(key, stamp());
    is_listed
}

/// Remembers an account's current tokens as tried.
fn set_tried(shared: &GatewayShared, key: &AccountKey) {
    if let Some(target) = shared.bridge.sign_in_target(&key.0) {
        let stamp = shared.sign_ins.store.stamp(&target.url, key.1.as_deref());
        shared.sign_ins.lists.set_tried(key, stamp);
    }
}

/// Lists a server's tools with the account that has listed them before, so that they do not depend on the last sign-in. If that
/// fails, lists them with `account`.
async fn list_again(shared: &GatewayShared, server: &Alias, account: Option<&Arc<str>>) -> bool {
    let lists = &shared.sign_ins.lists;
    let before = lists.lister(server);
    let other = account.filter(|account| before.as_ref() != Some(account));
    for account in before.iter().chain(other) {
        let listed = tokio::time::timeout(TIMEOUT, shared.bridge.list_with_account(server, account)).await;
        let problem = match listed {
            Ok(Ok(())) => {
                lists.set_lister(server, account);
                return true;
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => "timeout".to_owned(),
        };
        tracing::debug!(%server, "could not list the tools with the tokens of a principal: {problem}");
    }
    false
}

/// Adds how the client's principal can sign in to the servers whose entries are missing for that reason. Removes reasons that
/// quote errors, the configuration or a server's standard error, unless the principal is an operator.
pub(crate) fn add_advice(shared: &GatewayShared, client: &Client, listing: &mut Listing) {
    let is_operator = client.principal.is_operator();
    for server in &mut listing.missing {
        match server.state {
            "needs_auth" => {
                let advice = sign_in_advice(shared, &client.principal, &server.alias);
                server.reason = Some(format!("needs a sign-in: {advice}"));
            }
            "down" | "skipped" | "invalid" | "hidden" if !is_operator => server.reason = None,
            _ => {}
        }
    }
}
