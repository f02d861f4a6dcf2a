//! Subscriptions of clients to resources.

use std::sync::{Arc, Weak};

use super::client::Client;
use super::errors::ErrorReply;
use super::exchange::{Dispatch, Outcome};
use super::reply::ResultExtras;
use super::requester::Requester;
use super::shared::GatewayShared;
use super::subscriptions::{SubscribedResource, Subscriber, SubscriberKey};
use super::uris::UriRoute;
use crate::protocol::ClientParams;

/// Handles `resources/subscribe`.
pub(crate) fn subscribe(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    change(shared, requester, params, true)
}

/// Handles `resources/unsubscribe`.
pub(crate) fn unsubscribe(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    change(shared, requester, params, false)
}

fn change(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
    is_wanted: bool,
) -> Result<Dispatch, ErrorReply> {
    let uri = params.target.as_ref().map(|(_, uri)| uri.to_string());
    let uri = uri.ok_or_else(|| ErrorReply::invalid_params("`uri` is missing"))?;
    let started = requester.start(shared, params)?;
    let info = shared.info_text();
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let client = &exchange.client;
        let key = SubscriberKey::Client(client.id);
        let changed = match is_wanted {
            true => add(&shared_, client, key, Subscriber::Client(Arc::downgrade(client)), &uri).await,
            false => remove(&shared_, client, key, &uri).await,
        };
        if let Err(error) = changed {
            return Outcome::Error(error);
        }
        if is_wanted {
            shared_.sessions.note_subscribed(client, &uri);
        } else {
            shared_.sessions.note_unsubscribed(client, &uri);
        }
        Outcome::composed("{}", ResultExtras::default(), &info)
    }))
}

/// Finds the server of a resource.
async fn find(shared: &GatewayShared, client: &Client, uri: &str) -> Result<SubscribedResource, ErrorReply> {
    let router = shared.router_of(client)?;
    let (server, uri) = match shared.catalog.route_uri(&shared.bridge, &router, uri).await {
        UriRoute::One(server, own_uri) => (server, own_uri),
        UriRoute::Try(servers) => {
            let first = servers.into_iter().next();
            (first.ok_or_else(|| ErrorReply::resource_not_found(uri, client.era))?, uri.to_owned())
        }
    };
    Ok(SubscribedResource { server, uri })
}

/// Subscribes to a resource, upstream only if it is the first subscription.
pub(crate) async fn add(
    shared: &Arc<GatewayShared>,
    client: &Arc<Client>,
    key: SubscriberKey,
    subscriber: Subscriber,
    uri: &str,
) -> Result<(), ErrorReply> {
    let resource = find(shared, client, uri).await?;
    if shared.upstreams.account(&resource.server, &client.principal).is_some() {
        return Err(ErrorReply::not_per_principal(&resource.server));
    }
    let added = shared.subscriptions.add(resource.clone(), key, subscriber, uri);
    if added.map_err(|_| ErrorReply::invalid_params("too many subscriptions"))? {
        shared.upstreams.subscribe(&resource.server, &resource.uri).await;
    }
    Ok(())
}

async fn remove(
    shared: &Arc<GatewayShared>,
    client: &Arc<Client>,
    key: SubscriberKey,
    uri: &str,
) -> Result<(), ErrorReply> {
    let resource = find(shared, client, uri).await?;
    if shared.subscriptions.remove(&resource, key) {
        shared.upstreams.unsubscribe(&resource.server, &resource.uri);
    }
    Ok(())
}

/// Restores the subscriptions of a session that was revived.
pub(crate) fn restore(shared: &Arc<GatewayShared>, client: &Arc<Client>, uris: impl IntoIterator<Item = String>) {
    let uris: Vec<String> = uris.into_iter().collect();
    if uris.is_empty() {
        return;
    }
    let (shared, client) = (Arc::downgrade(shared), Arc::downgrade(client));
    tokio::spawn(async move {
        for uri in uris {
            let (Some(shared), Some(client)) = (Weak::upgrade(&shared), client.upgrade()) else { return };
            let subscriber = Subscriber::Client(Arc::downgrade(&client));
            let key = SubscriberKey::Client(client.id);
            if let Err(error) = add(&shared, &client, key, subscriber, &uri).await {
                tracing::debug!("could not restore a subscription: {}", error.message);
            }
        }
    });
}

/// Ends all subscriptions of a subscriber, upstream where it was the last one.
pub(crate) fn remove_all(shared: &GatewayShared, key: SubscriberKey) {
    for resource in shared.subscriptions.remove_all(key) {
        shared.upstreams.unsubscribe(&resource.server, &resource.uri);
    }
}
