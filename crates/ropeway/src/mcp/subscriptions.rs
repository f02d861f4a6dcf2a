//! The resources that a connection subscribes to.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::sync::lock;

/// The requested subscriptions, and those that the server has confirmed. Changes to a resource are reported reliably only once
/// its subscription is confirmed.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    uris: Mutex<SubscribedUris>,
    changed: Notify,
    /// Number of acknowledged `subscriptions/listen` requests.
    acknowledged: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct SubscribedUris {
    wanted: BTreeSet<String>,
    confirmed: BTreeSet<String>,
}

impl Subscriptions {
    fn uris(&self) -> MutexGuard<'_, SubscribedUris> {
        lock(&self.uris)
    }

    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        self.uris().wanted.clone()
    }

    pub(crate) fn add(&self, uri: String) {
        if self.uris().wanted.insert(uri) {
            self.changed.notify_one();
        }
    }

    pub(crate) fn remove(&self, uri: &str) {
        let mut uris = self.uris();
        uris.confirmed.remove(uri);
        if uris.wanted.remove(uri) {
            self.changed.notify_one();
        }
    }

    /// Waits until the requested subscriptions change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the number of `subscriptions/listen` requests that the server has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    /// Waits until the server has acknowledged this number of `subscriptions/listen` requests.
    pub(crate) async fn acknowledges(&self, number: u64) {
        // The sender lives as long as `self`.
        let _ = self.acknowledged.subscribe().wait_for(|acknowledged| *acknowledged >= number).await;
    }

    /// Returns `true` if the server has confirmed the subscription in the current session.
    #[cfg(feature = "bridge")]
    pub(crate) fn is_confirmed(&self, uri: &str) -> bool {
        self.uris().confirmed.contains(uri)
    }

    /// Records that the server accepted a subscription.
    pub(crate) fn confirm(&self, uri: &str) {
        let mut uris = self.uris();
        if uris.wanted.contains(uri) {
            uris.confirmed.insert(uri.to_owned());
        }
    }

    /// Handles `notifications/subscriptions/acknowledged`, which lists the subscriptions that the server accepts.
    pub(crate) fn acknowledge(&self, params: &Value) {
        let accepted = params["notifications"]["resourceSubscriptions"].as_array();
        accepted.into_iter().flatten().filter_map(Value::as_str).for_each(|uri| self.confirm(uri));
        self.acknowledged.send_modify(|acknowledged| *acknowledged += 1);
    }

    /// Discards the confirmations of an ended session.
    pub(crate) fn reset(&self) {
        self.uris().confirmed.clear();
    }
}

#[cfg(all(test, feature = "bridge"))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_wanted_subscriptions_are_confirmed() {
        let subscriptions = Subscriptions::default();
        subscriptions.add("a:1".into());
        for params in [json!(null), json!([1]), json!({"notifications": {"resourceSubscriptions": ["a:2", 3]}})] {
            subscriptions.acknowledge(&params);
        }
        assert!(!subscriptions.is_confirmed("a:1") && !subscriptions.is_confirmed("a:2"));
        subscriptions.acknowledge(&json!({"notifications": {"resourceSubscriptions": ["a:1"]}}));
        assert!(subscriptions.is_confirmed("a:1"));
        subscriptions.remove("a:1");
        assert!(!subscriptions.is_confirmed("a:1"));
    }
}
