//! `subscriptions/listen`: a modern client waits for changes.

use std::sync::Arc;

use crate::client::clients::{ListenFilter, listened};
use crate::client::outbound::{Frame, FrameKind};
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Dispatch, Exchange, Outcome};
use crate::request::reply::ResultExtras;
use crate::request::requester::Requester;
use crate::request::subscribe::{Subscribing, SubscriptionRefusal};
use crate::shared::GatewayShared;
use crate::upstream::subscriptions::{
    MAX_PER_SUBSCRIBER, MAX_SUBSCRIBER_BYTES, Subscriber, SubscriberKey, SubscriptionLimit,
};
use ropeway_core::sync::OnDrop;
use ropeway_mcp::protocol::{ClientParams, meta};

/// Maximum bytes in a filter. A URI byte takes up to six bytes as JSON.
const MAX_FILTER_BYTES: usize = 6 * MAX_SUBSCRIBER_BYTES + (64 << 10);

/// Handles `subscriptions/listen`. The request stays open until the client closes it or the gateway stops. Like other streams, it
/// does not count as a call.
pub(crate) fn listen(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let filter = read_filter(params).map_err(|SubscriptionRefusal { error, rule }| {
        requester.record.note(|record| rule.into_iter().for_each(|rule| record.note_denied(rule)));
        *error
    })?;
    let (started, stream) = requester.start_stream(shared, params)?;
    let info = shared.info_text();
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let _stream = stream;
        let key = SubscriberKey::Listener(exchange.key);
        let _subscriptions = OnDrop(|| shared_.subscriptions.remove_all(key));
        let _listener = OnDrop(|| shared_.clients.remove_listener(exchange.key));
        let revoked = exchange.client.principal.revoked();
        let refused = async {
            if let Err(SubscriptionRefusal { error, rule }) = acknowledge(&shared_, &exchange, filter).await {
                exchange.note(|record| rule.into_iter().for_each(|rule| record.note_denied(rule)));
                return *error;
            }
            std::future::pending().await
        };
        tokio::select! {
            error = refused => return Outcome::Error(error),
            () = shared_.draining.cancelled() => {}
            () = revoked.cancelled() => {}
        }
        let result = format!(r#"{{"_meta":{{"{}":{}}}}}"#, meta::SUBSCRIPTION_ID, exchange.id().get());
        Outcome::composed(result, ResultExtras::default(), &info)
    }))
}

fn read_filter(params: &ClientParams<'_>) -> Result<ListenFilter, SubscriptionRefusal> {
    let invalid = || ErrorReply::invalid_params("`notifications` is missing or invalid");
    let filter = params.get("notifications").ok_or_else(invalid)?;
    if filter.get().len() > MAX_FILTER_BYTES {
        return Err(SubscriptionLimit::Bytes.into());
    }
    let filter: ListenFilter = serde_json::from_str(filter.get()).map_err(|_| invalid())?;
    let uris = &filter.resource_subscriptions;
    if uris.len() > MAX_PER_SUBSCRIBER {
        let message = format!("more than {MAX_PER_SUBSCRIBER} resource subscriptions");
        return Err(ErrorReply::invalid_params(message).into());
    }
    if uris.iter().map(|uri| uri.len()).sum::<usize>() > MAX_SUBSCRIBER_BYTES {
        return Err(SubscriptionLimit::Bytes.into());
    }
    Ok(filter)
}

/// Subscribes to a filter's resources, and acknowledges those that their servers have confirmed. Fails if a limit is reached.
async fn acknowledge(
    shared: &Arc<GatewayShared>,
    exchange: &Arc<Exchange>,
    mut filter: ListenFilter,
) -> Result<(), SubscriptionRefusal> {
    let key = SubscriberKey::Listener(exchange.key);
    let subscribing = Subscribing::new(shared, &exchange.client, key, Subscriber::Listener(Arc::downgrade(exchange)));
    let mut confirmed = Vec::new();
    for outcome in subscribing.add_all(std::mem::take(&mut filter.resource_subscriptions)).await {
        match outcome {
            Ok(uri) => confirmed.push(uri),
            Err(refusal) if refusal.rule.is_some() => return Err(refusal),
            Err(refusal) => tracing::debug!("could not subscribe: {}", refusal.error.message),
        }
    }
    // The subscription table has the resources.
    let lists = filter.clone();
    filter.resource_subscriptions = confirmed;
    let acknowledged = serde_json::to_string(&filter).unwrap_or_else(|_| "{}".to_owned());
    let params = format!(r#""notifications":{acknowledged}"#);
    let message = listened("notifications/subscriptions/acknowledged", &params, &exchange.id());
    shared.clients.add_listener(exchange, lists, Frame::new(FrameKind::ServerRequest, message));
    shared.subscriptions.begin_notifying(key);
    Ok(())
}
