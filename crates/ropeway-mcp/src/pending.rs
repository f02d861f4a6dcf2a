//! Requests that wait for a server response.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::{ConnectErrorKind, RequestError};
use super::host::Host;
use super::raw_caller::{Callers, RawCaller, RequestTag};
use super::raw_response::RequestResult;
use super::request::Request;
use crate::protocol::{RpcError, TruncatedMessage};
use ropeway_core::sync::lock;
use ropeway_core::tool::CallContext;

/// How long a response without an id may still belong to a request that was given up.
const ABANDONED_FOR: Duration = Duration::from_secs(5 * 60);

/// Maximum abandoned requests to keep. The latest ones expire last.
const MAX_ABANDONED: usize = 64;

/// One link's pending requests.
///
/// The link shares it with the tasks that read its messages. A caller adds a request with [`register`](Self::register) and
/// removes it by dropping the [`ResponseReceiver`]. The task that reads a response resolves the request; over HTTP it may
/// be the caller's own. Once the link is closed, [`fail_all`](Self::fail_all) fails all remaining requests, and later ones
/// fail at once. An outcome is sent only by the task that removed the entry, so a request is resolved at most once.
///
/// The table's lock is a std mutex, because it is held for a few map operations and never across an `.await`. It is
/// released before an outcome is sent or a warning is emitted. Only the sign-in clock's lock is taken under it.
#[derive(Debug)]
pub(crate) struct PendingRequests {
    host: Arc<Host>,
    next_id: AtomicU64,
    table: Mutex<PendingTable>,
}

#[derive(Debug, Default)]
pub(super) struct PendingTable {
    requests: HashMap<u64, PendingRequest, BuildHasherDefault<IdHasher>>,
    standing: usize,
    /// Counts waiting callers, including those that have not taken their response yet.
    callers: usize,
    /// Set once the link is closed. New requests then fail at once.
    disconnected: Option<Arc<ConnectErrorKind>>,
    /// The last error without a request id that arrived while several requests were pending.
    unidentified: Option<(Instant, RpcError)>,
    /// Requests that were given up without a response, and when. An error without a request id may answer one.
    abandoned: VecDeque<(u64, Instant)>,
}

/// Hashes consecutive request ids with one multiplication.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The table uses the high bits as well as the low ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A request that waits for its response.
#[derive(Debug)]
pub(super) struct PendingRequest {
    sender: oneshot::Sender<RequestResult>,
    /// When the server last reported progress.
    pub(super) active_at: Instant,
    pub(super) progress: f64,
    pub(super) cx: CallContext,
    /// A raw request's sender.
    pub(super) caller: Option<Arc<dyn RawCaller>>,
    standing: bool,
    /// Whether the request waits for another token. Sign-in time does not count as idle.
    paused: bool,
}

impl PendingTable {
    fn insert(&mut self, id: u64, request: PendingRequest) {
        self.standing += usize::from(request.standing);
        self.requests.insert(id, request);
    }

    fn remove(&mut self, id: u64) -> Option<PendingRequest> {
        let request = self.requests.remove(&id)?;
        self.standing -= usize::from(request.standing);
        Some(request)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut PendingRequest> {
        self.requests.get_mut(&id)
    }

    /// Removes a request whose caller no longer waits.
    fn abandon(&mut self, id: u64) {
        if self.remove(id).is_some_and(|request| !request.standing) {
            if self.abandoned.len() == MAX_ABANDONED {
                self.abandoned.pop_front();
            }
            self.abandoned.push_back((id, Instant::now()));
        }
    }

    /// Returns the pending request's id if exactly one expects a response, and the response cannot belong to an abandoned one.
    fn only(&self) -> Option<u64> {
        if self.requests.len() - self.standing != 1 {
            return None;
        }
        if self.abandoned.back().is_some_and(|(_, since)| since.elapsed() < ABANDONED_FOR) {
            return None;
        }
        self.requests.iter().find(|(_, request)| !request.standing).map(|(id, _)| *id)
    }
}

impl PendingRequests {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self { host, next_id: AtomicU64::new(1), table: Mutex::default() }
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(super) fn table(&self) -> MutexGuard<'_, PendingTable> {
        lock(&self.table)
    }

    /// Registers a request and assigns its id, which is also its progress token.
    ///
    /// A standing request stays open by design. It does not count when requests that expect a response are counted.
    pub(crate) fn register(&self, request: &Request<'_>) -> Result<ResponseReceiver<'_>, RequestError> {
        let (standing, cx, caller) = (request.standing, request.cx.clone(), request.caller.cloned());
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if let Some(trace) = request.trace {
            trace.span.record("jsonrpc.request.id", id);
        }
        let (sender, response) = oneshot::channel();
        let started = Instant::now();
        let progress = f64::NEG_INFINITY;
        let request = PendingRequest { sender, active_at: started, progress, cx, caller, standing, paused: false };
        let mut table = self.table();
        if let Some(cause) = &table.disconnected {
            return Err(RequestError::Disconnected { started: false, cause: cause.clone() });
        }
        table.insert(id, request);
        table.callers += usize::from(!standing);
        Ok(ResponseReceiver { pending: self, id, started, response, standing, alone: table.callers == 1 })
    }

    /// Returns `true` if the request has no response yet.
    pub(crate) fn is_pending(&self, id: u64) -> bool {
        self.table().requests.contains_key(&id)
    }

    /// Returns the raw callers that a server message can belong to: the caller behind the request `owner`, whose stream
    /// carried the message, or without an owner all callers on the link.
    pub(crate) fn callers(&self, owner: Option<u64>) -> Callers {
        let mut table = self.table();
        let key = |request: &PendingRequest| Some(request.caller.as_ref()?.key());
        let mut keys: Vec<RequestTag> = match owner {
            Some(owner) => table.get_mut(owner).and_then(|request| key(request)).into_iter().collect(),
            None => table.requests.values().filter_map(key).collect(),
        };
        keys.sort_unstable();
        keys.dedup();
        Callers { keys, is_certain: owner.is_some() }
    }

    /// Marks a request as waiting for another token until the guard is dropped.
    pub(crate) fn pause(&self, id: u64) -> PausedRequest<'_> {
        if let Some(request) = self.table().get_mut(id) {
            request.paused = true;
        }
        PausedRequest { pending: self, id, before: self.sign_in_time() }
    }

    fn sign_in_time(&self) -> Duration {
        self.host.authorizer().map(|auth| auth.clock.total()).unwrap_or_default()
    }

    /// Returns when the request was last active: now, during a sign-in.
    fn active_at(&self, id: u64) -> Option<Instant> {
        let mut table = self.table();
        let request = table.get_mut(id)?;
        let is_waiting = request.paused && self.host.authorizer().is_some_and(|auth| auth.clock.is_running());
        Some(if is_waiting { Instant::now() } else { request.active_at })
    }

    /// Resolves the pending request with this id, if the caller is still waiting.
    pub(crate) fn complete(&self, id: u64, outcome: RequestResult) {
        let request = {
            let mut table = self.table();
            let request = table.remove(id);
            if request.is_none() {
                table.abandoned.retain(|(abandoned, _)| *abandoned != id);
            }
            request
        };
        match request {
            // Sending fails only if the caller has stopped waiting.
            Some(request) => drop(request.sender.send(outcome)),
            None => {
                tracing::debug!(server = %self.host.alias(), "ignored a response to request {id}, which is not pending")
            }
        }
    }

    /// Handles an error without a request id: fails the only pending request, or keeps the error as a hint for timeouts.
    pub(crate) fn complete_unidentified(&self, error: RpcError) {
        let mut table = self.table();
        match table.only().and_then(|id| table.remove(id)) {
            Some(request) => {
                drop(table);
                drop(request.sender.send(Err(RequestError::Refused(error))));
            }
            None => {
                table.unidentified = Some((Instant::now(), error.clone()));
                drop(table);
                self.host.warn(&format!("error without a request id: {error}"));
            }
        }
    }

    /// Handles a message that could not be read: fails the request that it answers, if it can be identified.
    pub(crate) fn fail_unreadable(&self, message: &TruncatedMessage, owner: Option<u64>, error: RequestError) {
        self.host.warn(&format!("ignored a message: {error}"));
        if !message.is_response() {
            return;
        }
        if let Some(id) = message.request_id().or(owner).or_else(|| self.table().only()) {
            self.complete(id, Err(error));
        }
    }

    /// Fails all pending requests and every later one, because the link is closed.
    pub(crate) fn fail_all(&self, cause: &Arc<ConnectErrorKind>) {
        let requests = {
            let mut table = self.table();
            if table.disconnected.is_none() {
                table.disconnected = Some(cause.clone());
            }
            table.standing = 0;
            std::mem::take(&mut table.requests)
        };
        for request in requests.into_values() {
            drop(request.sender.send(Err(RequestError::Disconnected { started: true, cause: cause.clone() })));
        }
    }
}

/// A request that waits for another token.
pub(crate) struct PausedRequest<'a> {
    pending: &'a PendingRequests,
    id: u64,
    /// Total sign-in time before the pause.
    before: Duration,
}

impl Drop for PausedRequest<'_> {
    fn drop(&mut self) {
        let had_sign_in = self.pending.sign_in_time() > self.before;
        if let Some(request) = self.pending.table().get_mut(self.id) {
            request.paused = false;
            if had_sign_in {
                request.active_at = Instant::now();
            }
        }
    }
}

/// A pending request's receiving side. Dropping it removes the request.
#[derive(Debug)]
pub(crate) struct ResponseReceiver<'a> {
    pending: &'a PendingRequests,
    id: u64,
    started: Instant,
    response: oneshot::Receiver<RequestResult>,
    standing: bool,
    alone: bool,
}

impl ResponseReceiver<'_> {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns `true` if no other caller was waiting when this request was registered.
    ///
    /// A caller counts until it takes its response. When many responses arrive at once, the first caller is not alone, and
    /// the requests that follow are written together.
    pub(crate) fn alone(&self) -> bool {
        self.alone
    }

    /// Waits for the response, a cancellation or a timeout.
    pub(crate) async fn recv(&mut self, request: &Request<'_>) -> RequestResult {
        let Request { cx, timeouts, .. } = *request;
        let timer = tokio::time::sleep_until(timeouts.deadline.min(self.started + timeouts.idle));
        let mut timer = std::pin::pin!(timer);
        loop {
            tokio::select! {
                biased;
                response = &mut self.response => {
                    // The sender is dropped unused only with the whole table.
                    let closed = || RequestError::disconnected(true, ConnectErrorKind::Closed);
                    return response.unwrap_or_else(|_| Err(closed()));
                }
                () = cx.cancelled(), if cx.cancel().is_some() => return Err(RequestError::Cancelled),
                () = &mut timer => {
                    let now = Instant::now();
                    let active_at = self.pending.active_at(self.id).unwrap_or(self.started);
                    let waited_until = self.pending.host.elicitations.waited_until();
                    let active_at = waited_until.map_or(active_at, |until| active_at.max(until));
                    let unidentified = || self.pending.table().unidentified.clone();
                    // An error that arrived before this request is about another one.
                    let hint = || unidentified().filter(|(at, _)| *at >= self.started).map(|(_, error)| error);
                    // The error may be about another client's request.
                    let hint = || if request.caller.is_some() { None } else { hint() };
                    if now >= timeouts.deadline {
                        let after = timeouts.deadline - timeouts.started;
                        return Err(RequestError::Timeout { after, idle: false, hint: hint() });
                    }
                    if now >= active_at + timeouts.idle {
                        return Err(RequestError::Timeout { after: timeouts.idle, idle: true, hint: hint() });
                    }
                    timer.as_mut().reset(timeouts.deadline.min(active_at + timeouts.idle));
                }
            }
        }
    }
}

impl Drop for ResponseReceiver<'_> {
    fn drop(&mut self) {
        let mut table = self.pending.table();
        table.abandon(self.id);
        table.callers -= usize::from(!self.standing);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::handlers::Handlers;
    use crate::raw_response::RawResponse;
    use crate::timeouts::RequestTimeouts;
    use ropeway_core::event::Events;
    use ropeway_core::secret::Redactor;

    #[tokio::test(start_paused = true)]
    async fn an_error_without_an_id_may_belong_to_a_request_that_was_given_up() {
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        let pending = PendingRequests::new(Arc::new(host));
        let cx = CallContext::default();
        let request = Request::new("ping", b"{}", &cx, RequestTimeouts::within(Duration::from_secs(1)));
        let register = || pending.register(&request).expect("an open link");
        let refusal = || RpcError { code: -32603, message: "about the first".to_owned(), data: None };
        let first = register();
        let first_id = first.id();
        drop(first);
        let mut second = register();
        pending.complete_unidentified(refusal());
        assert!(pending.is_pending(second.id()), "the error may answer the first request");
        assert!(matches!(second.recv(&request).await, Err(RequestError::Timeout { .. })));
        drop(second);

        // Late responses, and time, make the only request certain again.
        let third = register();
        for id in [first_id, first_id + 1] {
            pending.complete(id, Ok(RawResponse::parsed(Bytes::from_static(b"{}"))));
        }
        pending.complete_unidentified(refusal());
        assert!(!pending.is_pending(third.id()));
        drop(register());
        tokio::time::advance(ABANDONED_FOR).await;
        let fourth = register();
        pending.complete_unidentified(refusal());
        assert!(!pending.is_pending(fourth.id()));
    }

    #[test]
    fn a_caller_counts_until_it_takes_its_response() {
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        let pending = PendingRequests::new(Arc::new(host));
        let cx = CallContext::default();
        let request = Request::new("ping", b"{}", &cx, RequestTimeouts::within(Duration::from_secs(1)));
        let register = || pending.register(&request).expect("an open link");
        let (first, second) = (register(), register());
        assert!(first.alone() && !second.alone());
        for receiver in [&first, &second] {
            pending.complete(receiver.id(), Ok(RawResponse::parsed(Bytes::from_static(b"{}"))));
        }
        drop(first);
        let third = register();
        assert!(!third.alone(), "the second has not taken its response yet");
        drop((second, third));
        assert!(register().alone());
    }
}
