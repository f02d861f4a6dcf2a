//! `subscriptions/listen`: a modern client waits for changes.

use std::sync::Arc;

use super::clients::{ListenFilter, listened};
use super::errors::ErrorReply;
use super::exchange::{Dispatch, Outcome};
use super::outbound::{Frame, FrameKind};
use super::reply::ResultExtras;
use super::requester::Requester;
use super::shared::GatewayShared;
use super::subscribe;
use super::subscriptions::{Subscriber, SubscriberKey};
use crate::protocol::{ClientParams, meta};
use crate::sync::OnDrop;

/// Maximum number of resources that one request listens for.
const MAX_RESOURCES: usize = 1000;

/// Handles `subscriptions/listen`. The request stays open until the client closes it or the gateway stops.
pub(crate) fn listen(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let invalid = || ErrorReply::invalid_params("`notifications` is missing or invalid");
    let filter = params.get("notifications").ok_or_else(invalid)?;
    let mut filter: ListenFilter = serde_json::from_str(filter.get()).map_err(|_| invalid())?;
    if filter.resource_subscriptions.len() > MAX_RESOURCES {
        return Err(ErrorReply::invalid_params(format!("more than {MAX_RESOURCES} resource subscriptions")));
    }
    let started = requester.start(shared, params)?;
    let info = shared.info_text();
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let key = SubscriberKey::Listener(exchange.key);
        let _subscriptions = OnDrop(|| subscribe::remove_all(&shared_, key));
        let mut honoured = Vec::new();
        for uri in std::mem::take(&mut filter.resource_subscriptions) {
            let subscriber = Subscriber::Listener(Arc::downgrade(&exchange));
            if subscribe::add(&shared_, &exchange.client, key, subscriber, &uri).await.is_ok() {
                honoured.push(uri);
            }
        }
        filter.resource_subscriptions = honoured;
        let acknowledged = serde_json::to_string(&filter).unwrap_or_else(|_| "{}".to_owned());
        shared_.clients.add_listener(&exchange, filter);
        let _listener = OnDrop(|| shared_.clients.remove_listener(exchange.key));
        let params = format!(r#""notifications":{acknowledged}"#);
        let message = listened("notifications/subscriptions/acknowledged", &params, &exchange.id());
        exchange.outbound.send(Frame::new(FrameKind::Question, message));
        let revoked = exchange.client.principal.revoked();
        tokio::select! {
            () = shared_.draining.cancelled() => {}
            () = revoked.cancelled() => {}
        }
        let result = format!(r#"{{"_meta":{{"{}":{}}}}}"#, meta::SUBSCRIPTION_ID, exchange.id().get());
        Outcome::composed(result, ResultExtras::default(), &info)
    }))
}
