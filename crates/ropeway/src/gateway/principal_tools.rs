//! Tools of servers where only principals have signed in: listed with the tokens of the first principal that asks for them.
//!
//! Other servers list their tools with the shared account. In both cases, all principals see the same list.

use std::time::Duration;

use super::catalog::Listing;
use super::client::Client;
use super::shared::GatewayShared;
use super::sign_in::AccountKey;
use super::sign_in_offer::sign_in_advice;
use crate::error_chain::chain;
use crate::sync::lock;
use crate::tool::Alias;

/// Maximum time of a list. A client waits for it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of accounts whose attempts are remembered.
const MAX_TRIED: usize = 10_000;

/// Lists the tools of servers that are not listed yet with the tokens of a client's principal, if it has some.
pub(super) async fn list_own(shared: &GatewayShared, client: &Client) {
    shared.wait_for_first_attempts(&client.profile).await;
    let Ok(router) = shared.router_of(client) else { return };
    let unlisted: Vec<Alias> =
        router.servers().into_iter().filter(|server| shared.bridge.is_unlisted(server)).collect();
    let mut is_listed = false;
    for server in unlisted {
        if let Some(account) = shared.upstreams.account(&server, &client.principal) {
            is_listed |= list_with(shared, &(server, Some(account))).await;
        }
    }
    if is_listed {
        shared.rebuild_routes();
    }
}

/// Lists the tools of a server with the tokens of an account, unless they are known. Returns `true` if the tools are new.
pub(super) async fn list_with(shared: &GatewayShared, key: &AccountKey) -> bool {
    let (server, Some(account)) = key else { return false };
    let Some(target) = shared.bridge.sign_in_target(server).filter(|_| shared.bridge.is_unlisted(server)) else {
        return false;
    };
    let (store, tried) = (&shared.sign_ins.store, &shared.sign_ins.tried);
    let stamp = || store.stamp(&target.url, Some(account));
    let was_tried = lock(tried).get(key) == Some(&stamp());
    if was_tried || !matches!(store.load(&target.url, Some(account)).await, Ok(Some(_))) {
        return false;
    }
    let listed = tokio::time::timeout(TIMEOUT, shared.bridge.list_with_account(server, account)).await;
    let problem = match listed {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => chain(&error),
        Err(_) => "timeout".to_owned(),
    };
    tracing::debug!(%server, "could not list the tools with the tokens of a principal: {problem}");
    // Taken now, because the attempt may have refreshed the tokens.
    let stamp = stamp();
    let mut tried = lock(tried);
    if tried.len() >= MAX_TRIED {
        tried.clear();
    }
    tried.insert(key.clone(), stamp);
    false
}

/// Adds how the client's principal can sign in to the servers whose entries are missing for that reason.
pub(super) fn add_advice(shared: &GatewayShared, client: &Client, listing: &mut Listing) {
    for server in listing.missing.iter_mut().filter(|server| server.state == "needs_auth") {
        server.reason = Some(format!("needs a sign-in: {}", sign_in_advice(shared, &client.principal, &server.alias)));
    }
}
