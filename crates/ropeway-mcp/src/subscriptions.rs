//! The resources that a connection subscribes to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::error::RequestError;
use crate::protocol::{RpcError, code};
use ropeway_core::sync::lock;

/// The requested subscriptions, and whether the server has confirmed them. Changes to a resource are reported reliably only
/// once its subscription is confirmed.
///
/// The host owns it, so it outlives sessions. Callers add and remove subscriptions. The supervisor's subscriber takes the
/// changes, and records failures and legacy confirmations. The tasks that read messages record modern ones. A status goes
/// from `Pending` to `Confirmed` or `Failed`, and back to `Pending` when the session or the `subscriptions/listen` request
/// ends, or when a caller requests a failed subscription again. Removing the last requester removes the subscription.
///
/// The table's lock is a std mutex, because it is held for a few map operations and never across an `.await`. Waiters are
/// notified while it is held, but no events are emitted and no handlers run under it.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    table: Mutex<SubscriptionTable>,
    changed: Notify,
    /// Counts acknowledged `subscriptions/listen` requests.
    acknowledged: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct SubscriptionTable {
    wanted: BTreeMap<Arc<str>, Subscription>,
    /// URIs that were added or removed since the supervisor last looked, while a session exists.
    changed: BTreeSet<Arc<str>>,
    has_session: bool,
}

/// A requested subscription.
#[derive(Debug)]
struct Subscription {
    /// Whether [`Mcp::subscribe`](super::Mcp::subscribe) requested it.
    is_explicit: bool,
    /// Counts the [holds](SubscriptionHold).
    holds: usize,
    status: SubscriptionStatus,
    /// Whether changes may have gone unnoticed, so that the next confirmation reports one.
    has_gap: bool,
    /// Notified when the status changes.
    settled: Arc<Notify>,
}

impl Subscription {
    /// Notes that changes may have gone unnoticed. Returns `true` if the subscription is confirmed.
    fn note_gap(&mut self) -> bool {
        let is_confirmed = matches!(self.status, SubscriptionStatus::Confirmed);
        self.has_gap = !is_confirmed;
        is_confirmed
    }
}

/// A subscription's status in the current session.
#[derive(Clone, Debug)]
enum SubscriptionStatus {
    Pending,
    Confirmed,
    Failed(Arc<RequestError>),
}

/// What a subscription's confirmation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The subscription is not requested.
    Unwanted,
    Seamless,
    /// Earlier changes may have gone unnoticed, so the caller has to report one.
    AfterGap,
}

impl Subscriptions {
    fn table(&self) -> MutexGuard<'_, SubscriptionTable> {
        lock(&self.table)
    }

    /// Starts a session and returns all requested subscriptions, none yet confirmed.
    pub(crate) fn begin_session(&self) -> BTreeSet<Arc<str>> {
        let mut table = self.table();
        table.has_session = true;
        table.changed.clear();
        table.wanted.keys().cloned().collect()
    }

    /// Returns the requested subscriptions, including all changes so far.
    pub(crate) fn wanted(&self) -> BTreeSet<Arc<str>> {
        let mut table = self.table();
        table.changed.clear();
        table.wanted.keys().cloned().collect()
    }

    /// Returns `true` if a subscription is requested.
    pub(crate) fn is_wanted(&self, uri: &str) -> bool {
        self.table().wanted.contains_key(uri)
    }

    /// Returns `true` if a requested subscription has neither been confirmed nor failed.
    pub(crate) fn has_pending(&self) -> bool {
        self.table().wanted.values().any(|subscription| matches!(subscription.status, SubscriptionStatus::Pending))
    }

    /// Requests a subscription until [`remove`](Self::remove).
    pub(crate) fn add(&self, uri: &str) {
        self.request(&Arc::from(uri), |subscription| subscription.is_explicit = true);
    }

    /// Ends the [`add`](Self::add) request.
    pub(crate) fn remove(&self, uri: &str) {
        self.release(uri, |subscription| subscription.is_explicit = false);
    }

    /// Adds a requester. A failed subscription is requested again.
    fn request(&self, uri: &Arc<str>, add: impl FnOnce(&mut Subscription)) {
        let mut table = self.table();
        let is_new = !table.wanted.contains_key(uri);
        let subscription = table.wanted.entry(uri.clone()).or_insert_with(|| Subscription {
            is_explicit: false,
            holds: 0,
            status: SubscriptionStatus::Pending,
            has_gap: false,
            settled: Arc::default(),
        });
        add(subscription);
        let has_failed = matches!(subscription.status, SubscriptionStatus::Failed(_));
        if has_failed {
            subscription.status = SubscriptionStatus::Pending;
        }
        if is_new || has_failed {
            self.note_change(&mut table, uri.clone());
        }
    }

    /// Removes a requester, and the subscription with its last one.
    fn release(&self, uri: &str, remove: impl FnOnce(&mut Subscription)) {
        let mut table = self.table();
        let Some(subscription) = table.wanted.get_mut(uri) else { return };
        remove(subscription);
        if !subscription.is_explicit && subscription.holds == 0 {
            let removed = table.wanted.remove_entry(uri);
            removed.into_iter().for_each(|(uri, _)| self.note_change(&mut table, uri));
        }
    }

    fn note_change(&self, table: &mut SubscriptionTable, uri: Arc<str>) {
        // Without a session, nothing takes the changes, and the next session begins with all subscriptions.
        if table.has_session {
            table.changed.insert(uri);
            self.changed.notify_one();
        }
    }

    /// Waits until subscriptions are added or removed, and returns their URIs. Cancel-safe.
    pub(crate) async fn changed(&self) -> BTreeSet<Arc<str>> {
        loop {
            let changed = std::mem::take(&mut self.table().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.changed.notified().await;
        }
    }

    /// Returns the number of `subscriptions/listen` requests that the server has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    /// Waits until the server has acknowledged this many `subscriptions/listen` requests.
    pub(crate) async fn acknowledges(&self, number: u64) {
        // The sender lives as long as `self`.
        let _ = self.acknowledged.subscribe().wait_for(|acknowledged| *acknowledged >= number).await;
    }

    /// Returns `true` if the server has confirmed the subscription in the current session.
    pub(crate) fn is_confirmed(&self, uri: &str) -> bool {
        let table = self.table();
        table.wanted.get(uri).is_some_and(|it| matches!(it.status, SubscriptionStatus::Confirmed))
    }

    /// Records that the server accepted a subscription.
    pub(crate) fn confirm(&self, uri: &str) -> Confirmation {
        let mut table = self.table();
        let Some(subscription) = table.wanted.get_mut(uri) else { return Confirmation::Unwanted };
        subscription.status = SubscriptionStatus::Confirmed;
        subscription.settled.notify_waiters();
        if std::mem::take(&mut subscription.has_gap) { Confirmation::AfterGap } else { Confirmation::Seamless }
    }

    /// Records that a subscription could not be made.
    pub(crate) fn fail(&self, uri: &str, error: &Arc<RequestError>) {
        let mut table = self.table();
        let Some(subscription) = table.wanted.get_mut(uri) else { return };
        subscription.status = SubscriptionStatus::Failed(error.clone());
        subscription.settled.notify_waiters();
    }

    /// Notes that changes to all resources may have gone unnoticed. Returns those with a confirmed subscription: the caller
    /// reports a change to each. For the others, the confirmation does.
    pub(crate) fn note_gaps(&self) -> Vec<Arc<str>> {
        let mut table = self.table();
        let noted = table.wanted.iter_mut().map(|(uri, subscription)| (uri, subscription.note_gap()));
        noted.filter(|(_, is_confirmed)| *is_confirmed).map(|(uri, _)| uri.clone()).collect()
    }

    /// Notes that changes to a resource may have gone unnoticed. Returns `true` if its subscription is confirmed, in which
    /// case the caller reports a change. Otherwise the confirmation does.
    fn note_gap(&self, uri: &str) -> bool {
        self.table().wanted.get_mut(uri).is_some_and(Subscription::note_gap)
    }

    /// Records that a `subscriptions/listen` request's unconfirmed subscriptions have failed. Returns `true` if any has.
    pub(crate) fn fail_unconfirmed(&self, uris: &BTreeSet<Arc<str>>, error: &Arc<RequestError>) -> bool {
        let mut table = self.table();
        let mut has_failed = false;
        for uri in uris {
            if let Some(subscription) = table.wanted.get_mut(uri)
                && !matches!(subscription.status, SubscriptionStatus::Confirmed)
            {
                subscription.status = SubscriptionStatus::Failed(error.clone());
                subscription.settled.notify_waiters();
                has_failed = true;
            }
        }
        has_failed
    }

    /// Handles `notifications/subscriptions/acknowledged`, which lists the subscriptions that the server accepts. Returns the
    /// resources whose changes may have gone unnoticed.
    ///
    /// See [subscriptions](https://modelcontextprotocol.io/specification/2026-07-28/basic/subscriptions).
    pub(crate) fn acknowledge(&self, params: &Value) -> Vec<String> {
        let accepted = params["notifications"]["resourceSubscriptions"].as_array();
        let mut missed = Vec::new();
        for uri in accepted.into_iter().flatten().filter_map(Value::as_str) {
            // Servers that parse URLs may add or remove the last slash.
            let spellings = [uri.to_owned(), uri.trim_end_matches('/').to_owned(), format!("{uri}/")];
            let mut confirmed = spellings.into_iter().map(|uri| (self.confirm(&uri), uri));
            let wanted = confirmed.find(|(confirmation, _)| *confirmation != Confirmation::Unwanted);
            missed.extend(wanted.filter(|(it, _)| *it == Confirmation::AfterGap).map(|(_, uri)| uri));
        }
        self.acknowledged.send_modify(|acknowledged| *acknowledged += 1);
        missed
    }

    /// Discards all confirmations, because the session or the `subscriptions/listen` request has ended.
    pub(crate) fn reset(&self) {
        for subscription in self.table().wanted.values_mut() {
            subscription.has_gap |= matches!(subscription.status, SubscriptionStatus::Confirmed);
            subscription.status = SubscriptionStatus::Pending;
        }
    }

    /// Ends the session.
    pub(crate) fn end_session(&self) {
        self.reset();
        let mut table = self.table();
        table.has_session = false;
        table.changed.clear();
    }

    fn status(&self, uri: &str) -> Option<(SubscriptionStatus, Arc<Notify>)> {
        let table = self.table();
        table.wanted.get(uri).map(|subscription| (subscription.status.clone(), subscription.settled.clone()))
    }

    /// Waits until the server has confirmed a subscription, or until it has failed.
    async fn confirmed(&self, uri: &str) -> Result<(), Arc<RequestError>> {
        let Some((_, settled)) = self.status(uri) else { return Ok(()) };
        loop {
            let notified = settled.notified();
            tokio::pin!(notified);
            // A change between the check and the wait must not be missed.
            notified.as_mut().enable();
            match self.status(uri) {
                Some((SubscriptionStatus::Pending, _)) => notified.await,
                Some((SubscriptionStatus::Failed(error), _)) => return Err(error),
                Some((SubscriptionStatus::Confirmed, _)) | None => return Ok(()),
            }
        }
    }
}

/// The error for a subscription that the server's acknowledgement does not list.
pub(crate) fn not_acknowledged() -> RequestError {
    let message = "the server did not accept the subscription".to_owned();
    RequestError::Refused(RpcError { code: code::INVALID_PARAMS, message, data: None })
}

/// A connection's subscription. It ends when its last hold is dropped, unless [`Mcp::subscribe`](super::Mcp::subscribe)
/// requested it, too. A hold does not keep the connection open.
#[derive(Debug)]
pub struct SubscriptionHold {
    host: Arc<super::host::Host>,
    uri: Arc<str>,
}

impl SubscriptionHold {
    pub(super) fn new(host: Arc<super::host::Host>, uri: Arc<str>) -> Self {
        host.subscriptions.request(&uri, |subscription| subscription.holds += 1);
        Self { host, uri }
    }

    /// Returns the resource's URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Reports a change once the server has confirmed the subscription, because earlier ones may have gone unnoticed.
    /// Returns `true`, and reports nothing, if it is already confirmed.
    pub fn note_gap(&self) -> bool {
        self.host.subscriptions.note_gap(&self.uri)
    }

    /// Waits until the server has confirmed the subscription.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the subscription or does not answer. The subscription is retried until it is dropped.
    pub async fn confirmed(&self) -> Result<(), ropeway_core::tool::CallError> {
        let confirmed = self.host.subscriptions.confirmed(&self.uri).await;
        confirmed.map_err(|error| RequestError::clone(&error).into_call_error(self.host.alias()))
    }
}

impl Clone for SubscriptionHold {
    fn clone(&self) -> Self {
        Self::new(self.host.clone(), self.uri.clone())
    }
}

impl Drop for SubscriptionHold {
    fn drop(&mut self) {
        self.host.subscriptions.release(&self.uri, |subscription| subscription.holds -= 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_wanted_subscriptions_are_confirmed() {
        let subscriptions = Subscriptions::default();
        subscriptions.add("a:1");
        for params in [json!(null), json!([1]), json!({"notifications": {"resourceSubscriptions": ["a:2", 3]}})] {
            subscriptions.acknowledge(&params);
        }
        assert!(!subscriptions.is_confirmed("a:1") && !subscriptions.is_confirmed("a:2"));
        subscriptions.acknowledge(&json!({"notifications": {"resourceSubscriptions": ["a:1"]}}));
        assert!(subscriptions.is_confirmed("a:1"));
        subscriptions.remove("a:1");
        assert!(!subscriptions.is_confirmed("a:1"));
    }

    #[tokio::test]
    async fn a_failed_subscription_is_pending_again_when_it_is_requested_again() {
        let subscriptions = Subscriptions::default();
        subscriptions.begin_session();
        subscriptions.add("a:1");
        assert_eq!(subscriptions.changed().await.len(), 1);
        subscriptions.fail("a:1", &Arc::new(not_acknowledged()));
        assert!(subscriptions.confirmed("a:1").await.is_err() && !subscriptions.has_pending());
        subscriptions.add("a:1");
        assert!(subscriptions.has_pending());
        assert_eq!(subscriptions.changed().await.len(), 1);
        subscriptions.confirm("a:1");
        subscriptions.confirmed("a:1").await.expect("a confirmation");
    }

    #[test]
    fn changes_without_a_session_take_no_memory() {
        let subscriptions = Subscriptions::default();
        for number in 0..100 {
            subscriptions.add(&format!("a:{number}"));
            subscriptions.remove(&format!("a:{number}"));
        }
        assert!(lock(&subscriptions.table).changed.is_empty());
        subscriptions.add("a:1");
        assert_eq!(subscriptions.begin_session().len(), 1);
    }
}
