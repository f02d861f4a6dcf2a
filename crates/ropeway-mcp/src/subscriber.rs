//! Keeps a session's subscriptions at its server, with the method that its era defines.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::connection::Connection;
use super::error::RequestError;
use super::host::Host;
use super::raw_response::RequestResult;
use super::request::Request;
use super::session::Session;
use super::subscriptions::{Confirmation, Subscriptions, not_acknowledged};
use super::timeouts::RequestTimeouts;
use crate::protocol::{Era, RpcError, code};
use ropeway_config::MAX_TIMEOUT;
use ropeway_core::sync::sleep_until;
use ropeway_core::tool::CallContext;

/// Delay before an ended or refused subscription is requested again, and its maximum.
const RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Maximum delay before subscriptions that a server does not accept are requested again. Each attempt replaces a working
/// `subscriptions/listen` request.
const MAX_UNACCEPTED_DELAY: Duration = Duration::from_secs(300);

/// Maximum time for the response to `resources/subscribe`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for the server to acknowledge `subscriptions/listen`. Changes wait for it.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum `resources/subscribe` and `resources/unsubscribe` requests in flight.
const MAX_IN_FLIGHT: usize = 64;

/// Subscribes to changes with the era's method, and again when the requested subscriptions change.
pub(super) async fn maintain_subscriptions(connection: &Arc<Connection>, session: &Arc<Session>) {
    match session.era() {
        Era::Legacy => LegacySubscriber::new(connection, session).run().await,
        Era::Modern => listen_for_changes(connection, session).await,
    }
}

/// A request about a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionRequest {
    Subscribe,
    Unsubscribe,
}

impl SubscriptionRequest {
    fn method(self) -> &'static str {
        match self {
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
        }
    }
}

/// What the server knows about a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerSide {
    Subscribed,
    /// The request was not answered, and the server may still handle it.
    Unknown,
}

/// The response to a request about a subscription.
struct SubscriptionResponse {
    uri: Arc<str>,
    request: SubscriptionRequest,
    outcome: RequestResult,
}

/// A legacy session's subscriptions. At most one request about a resource is in flight, so that the server handles them in
/// order.
///
/// The supervisor runs it while the session lasts and drops it with the session, which cancels the requests in flight. It
/// needs no lock: spawned requests only return their responses, and the loop in [`run`](Self::run) is the only one to
/// change a field. That loop does not replay changes. It compares each queued resource with [`Subscriptions`] and sends the
/// request that removes the difference. At the server, a resource is not subscribed (absent from `server_side`),
/// `Subscribed`, or `Unknown` after a request without an answer.
///
/// See [`resources/subscribe`](https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions).
struct LegacySubscriber<'a> {
    connection: &'a Arc<Connection>,
    session: &'a Arc<Session>,
    server_side: HashMap<Arc<str>, ServerSide>,
    in_flight: HashSet<Arc<str>>,
    /// Resources to compare with the requested subscriptions.
    queue: VecDeque<Arc<str>>,
    /// Failed subscriptions, which are requested again at `retry_at`.
    failed: HashSet<Arc<str>>,
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The requests in flight. They are cancelled when the session ends.
    requests: JoinSet<SubscriptionResponse>,
}

impl<'a> LegacySubscriber<'a> {
    fn new(connection: &'a Arc<Connection>, session: &'a Arc<Session>) -> Self {
        Self {
            connection,
            session,
            server_side: HashMap::new(),
            in_flight: HashSet::new(),
            queue: connection.host.subscriptions.begin_session().into_iter().collect(),
            failed: HashSet::new(),
            retry_at: None,
            backoff: Backoff::new(RETRY_DELAY, MAX_RETRY_DELAY),
            requests: JoinSet::new(),
        }
    }

    async fn run(mut self) {
        loop {
            self.send_requests();
            tokio::select! {
                Some(response) = self.requests.join_next(), if !self.requests.is_empty() => {
                    // A panic has been reported already.
                    response.into_iter().for_each(|response| self.receive(response));
                }
                changed = self.connection.host.subscriptions.changed() => self.queue.extend(changed),
                () = sleep_until(self.retry_at) => {
                    self.retry_at = None;
                    self.queue.extend(self.failed.iter().cloned());
                }
            }
        }
    }

    /// Sends the requests that the subscriptions in the queue need.
    fn send_requests(&mut self) {
        while self.requests.len() < MAX_IN_FLIGHT
            && let Some(uri) = self.queue.pop_front()
        {
            // Its response puts it into the queue again.
            if self.in_flight.contains(&uri) {
                continue;
            }
            let is_wanted = self.connection.host.subscriptions.is_wanted(&uri);
            let request = match (is_wanted, self.server_side.get(&uri)) {
                (true, None | Some(ServerSide::Unknown)) => SubscriptionRequest::Subscribe,
                (false, Some(_)) => SubscriptionRequest::Unsubscribe,
                (false, None) => {
                    self.failed.remove(&uri);
                    continue;
                }
                (true, Some(ServerSide::Subscribed)) => {
                    // Perhaps it was removed and requested again before this task ran.
                    self.confirm(&uri);
                    continue;
                }
            };
            self.in_flight.insert(uri.clone());
            let limit = self.connection.config.timeouts.idle.min(ANSWER_TIMEOUT);
            self.requests.spawn(send(self.session.clone(), uri, request, limit));
        }
    }

    fn receive(&mut self, SubscriptionResponse { uri, request, outcome }: SubscriptionResponse) {
        let host = &self.connection.host;
        self.in_flight.remove(&uri);
        match (request, outcome) {
            (SubscriptionRequest::Subscribe, Ok(_)) => {
                self.confirm(&uri);
                self.failed.remove(&uri);
                self.server_side.insert(uri.clone(), ServerSide::Subscribed);
            }
            (SubscriptionRequest::Unsubscribe, outcome) => {
                if let Err(error) = outcome {
                    tracing::debug!(server = %host.alias(), "`{}` failed: {error}", request.method());
                }
                self.failed.remove(&uri);
                self.server_side.remove(&uri);
            }
            (SubscriptionRequest::Subscribe, Err(error)) => return self.retry(uri, error),
        }
        // The subscription may have been removed or requested again meanwhile.
        self.queue.push_back(uri);
    }

    /// Confirms a subscription, and reports a change if earlier ones may have gone unnoticed.
    fn confirm(&self, uri: &Arc<str>) {
        let host = &self.connection.host;
        if host.subscriptions.confirm(uri) == Confirmation::AfterGap {
            host.mark_resource_changed(uri);
        }
    }

    /// Reports a failed subscription, and requests it again later.
    fn retry(&mut self, uri: Arc<str>, error: RequestError) {
        let host = &self.connection.host;
        let is_first = !self.failed.contains(&uri);
        if is_first && host.subscriptions.is_wanted(&uri) {
            host.warn(&format!("`{}` of `{uri}` failed: {error}", SubscriptionRequest::Subscribe.method()));
        }
        let is_unsupported = is_method_not_found(&error);
        if matches!(error, RequestError::Refused(_)) {
            self.server_side.remove(&uri);
        } else {
            self.server_side.insert(uri.clone(), ServerSide::Unknown);
        }
        host.subscriptions.fail(&uri, &Arc::new(error));
        if !host.subscriptions.is_wanted(&uri) {
            return self.queue.push_back(uri);
        }
        if !is_unsupported {
            self.failed.insert(uri);
            self.retry_at.get_or_insert_with(|| Instant::now() + self.backoff.next_wait());
        }
    }
}

async fn send(
    session: Arc<Session>,
    uri: Arc<str>,
    request: SubscriptionRequest,
    limit: Duration,
) -> SubscriptionResponse {
    let params = json!({"uri": uri}).to_string();
    let cx = CallContext::default().in_background();
    let sent = Request::new(request.method(), params.as_bytes(), &cx, RequestTimeouts::within(limit));
    let outcome = session.request(&Request { idempotent: true, ..sent }).await;
    SubscriptionResponse { uri, request, outcome }
}

fn is_method_not_found(error: &RequestError) -> bool {
    matches!(error, RequestError::Refused(RpcError { code: code::METHOD_NOT_FOUND, .. }))
}

/// How a `subscriptions/listen` request ends.
enum ListenEnd {
    /// The server has refused it.
    Refused(RequestError),
    /// It ended otherwise, such as with its link.
    Ended,
    /// Other subscriptions are requested.
    Changed,
}

/// Keeps one `subscriptions/listen` request open, and replaces it when the requested subscriptions change.
///
/// See [subscriptions](https://modelcontextprotocol.io/specification/2026-07-28/basic/subscriptions).
async fn listen_for_changes(connection: &Arc<Connection>, session: &Arc<Session>) {
    let subscriptions = &connection.host.subscriptions;
    subscriptions.begin_session();
    let mut backoff = Backoff::new(RETRY_DELAY, MAX_RETRY_DELAY);
    let mut listening = Listening::new(&connection.host);
    loop {
        let uris = subscriptions.wanted();
        let Some(filter) = filter(session, &uris) else {
            listening.replaced = None;
            subscriptions.changed().await;
            continue;
        };
        let overlaps = listening.replaced.is_some();
        let params = json!({"notifications": filter}).to_string();
        let mut request: ListenRequest = Box::pin(listen(session.clone(), params));
        let error = match listening.wait(&mut request, uris).await {
            ListenEnd::Changed => {
                // It stays open until the next one is acknowledged, so that no change is missed.
                listening.replaced = Some(request);
                continue;
            }
            ListenEnd::Refused(error) => Arc::new(error),
            ListenEnd::Ended => {
                listening.replaced = None;
                listening.gap = Gap::Open;
                subscriptions.reset();
                tokio::time::sleep(backoff.next_wait()).await;
                continue;
            }
        };
        listening.replaced = None;
        // The server may allow only one request at a time.
        if overlaps {
            listening.gap = Gap::Open;
            subscriptions.reset();
            continue;
        }
        subscriptions.fail_unconfirmed(&subscriptions.wanted(), &error);
        if is_method_not_found(&error) {
            return refuse_all(subscriptions, &error).await;
        }
        tracing::debug!(server = %connection.alias(), "`subscriptions/listen` was refused: {error}");
        tokio::select! {
            () = tokio::time::sleep(backoff.next_wait()) => {}
            () = requested(subscriptions) => {}
        }
    }
}

/// Waits until a subscription is requested.
async fn requested(subscriptions: &Subscriptions) {
    loop {
        subscriptions.changed().await;
        if subscriptions.has_pending() {
            return;
        }
    }
}

/// Fails all subscriptions, because the server has no `subscriptions/listen`.
async fn refuse_all(subscriptions: &Subscriptions, error: &Arc<RequestError>) {
    loop {
        let changed = subscriptions.changed().await;
        subscriptions.fail_unconfirmed(&changed, error);
    }
}

/// Returns the `notifications` for a `subscriptions/listen` request, or `None` if they are empty.
fn filter(session: &Session, uris: &BTreeSet<Arc<str>>) -> Option<Map<String, Value>> {
    let mut filter = Map::new();
    for (capability, name) in
        [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")]
    {
        if session.info.has_capability(&[capability, "listChanged"]) {
            filter.insert(name.to_owned(), true.into());
        }
    }
    if !uris.is_empty() {
        filter.insert("resourceSubscriptions".to_owned(), json!(uris));
    }
    (!filter.is_empty()).then_some(filter)
}

type ListenRequest = std::pin::Pin<Box<dyn Future<Output = RequestResult> + Send>>;

/// A period without an acknowledged request, in which changes may go unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    Open,
    /// Changes were reported, and are reported again when the gap ends.
    Reported,
}

/// Tracks `subscriptions/listen` acknowledgements.
///
/// Owned by the loop in [`listen_for_changes`], which the supervisor drops with the session. Dropping it cancels the
/// replaced request.
struct Listening<'a> {
    host: &'a Host,
    gap: Gap,
    /// The request that the current one replaces, until the current one is acknowledged.
    replaced: Option<ListenRequest>,
    /// The current request is acknowledged once the server has sent this many acknowledgements.
    acknowledgement: u64,
    unaccepted: Backoff,
}

impl<'a> Listening<'a> {
    fn new(host: &'a Host) -> Self {
        let unaccepted = Backoff::new(RETRY_DELAY, MAX_UNACCEPTED_DELAY);
        Self { host, gap: Gap::None, replaced: None, acknowledgement: 0, unaccepted }
    }

    /// Reports changes that may have gone unnoticed so far.
    fn report_gap(&mut self) {
        if self.gap == Gap::Open {
            self.host.mark_all_changed();
            self.gap = Gap::Reported;
        }
    }

    /// Reports changes that may have gone unnoticed until the acknowledgement.
    fn close_gap(&mut self) {
        if std::mem::replace(&mut self.gap, Gap::None) != Gap::None {
            self.host.mark_all_changed();
        }
    }

    /// Waits until a request for these resources ends, or until others are requested after its acknowledgement.
    async fn wait(&mut self, request: &mut ListenRequest, uris: BTreeSet<Arc<str>>) -> ListenEnd {
        let subscriptions = &self.host.subscriptions;
        // The replaced request's acknowledgement may still arrive late.
        let earlier = if self.replaced.is_some() { self.acknowledgement } else { subscriptions.acknowledged() };
        self.acknowledgement = earlier.max(subscriptions.acknowledged()) + 1;
        let mut is_acknowledged = false;
        let mut answer_by = Some(Instant::now() + ACKNOWLEDGE_TIMEOUT);
        let mut retry_at = None;
        loop {
            tokio::select! {
                outcome = &mut *request => {
                    self.report_gap();
                    return match outcome {
                        Err(error @ RequestError::Refused(_)) if !is_acknowledged => ListenEnd::Refused(error),
                        _ => ListenEnd::Ended,
                    };
                }
                () = subscriptions.acknowledges(self.acknowledgement), if !is_acknowledged => {
                    (is_acknowledged, answer_by, self.replaced) = (true, None, None);
                    self.close_gap();
                    if subscriptions.fail_unconfirmed(&uris, &Arc::new(not_acknowledged())) {
                        retry_at = Some(Instant::now() + self.unaccepted.next_wait());
                    }
                }
                () = sleep_until(answer_by), if answer_by.is_some() => {
                    answer_by = None;
                    self.report_gap();
                    let error = RequestError::Timeout { after: ACKNOWLEDGE_TIMEOUT, idle: false, hint: None };
                    subscriptions.fail_unconfirmed(&uris, &Arc::new(error));
                }
                // Before the acknowledgement, changes are collected for the next request.
                _ = subscriptions.changed(), if answer_by.is_none() => {
                    if subscriptions.wanted() != uris || subscriptions.has_pending() {
                        return ListenEnd::Changed;
                    }
                }
                () = sleep_until(retry_at), if retry_at.is_some() => return ListenEnd::Changed,
                () = until_ended(&mut self.replaced) => self.replaced = None,
            }
        }
    }
}

/// Sends a `subscriptions/listen` request and waits for its end. The request stays open by design.
async fn listen(session: Arc<Session>, params: String) -> RequestResult {
    let cx = CallContext::default().in_background();
    let timeouts = RequestTimeouts::within(MAX_TIMEOUT);
    let request = Request::new("subscriptions/listen", params.as_bytes(), &cx, timeouts);
    session.request(&Request { standing: true, ..request }).await
}

/// Waits until a request ends, or forever if it is absent.
async fn until_ended<F: Future + Unpin>(request: &mut Option<F>) {
    match request {
        Some(request) => drop(request.await),
        None => std::future::pending().await,
    }
}
