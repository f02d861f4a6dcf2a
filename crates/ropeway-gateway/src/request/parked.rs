//! Modern clients' calls that wait for input. A legacy server has requested it, and the client answers with a retry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::client::Client;
use crate::client::running::RunningRequests;
use crate::client::seal::{KeyRing, SealKind};
use crate::client::shares::{Hold, Resource, Shares};
use crate::request::errors::ErrorReply;
use crate::request::exchange::{AttachedRequest, Exchange, OpenServerRequest, Outcome, Work};
use crate::request::reply::Reply;
use crate::request::request_identity::RequestIdentity;
use crate::request::task_ids::with_own_task;
use crate::upstream::switchboard::{WITHDRAWN, answer_in_place};
use ropeway_core::sync::lock;
use ropeway_mcp::{RequestTag, ServerRequestMethod};

/// The calls that wait for input.
///
/// The gateway owns the table, and the table owns each parked call: its exchange, its work in a task, and a task that expires it.
/// A call enters with [`park`](Self::park) and leaves when its client [retries](Self::retry), when it expires, or when the
/// gateway [closes](Self::close) or [ends](Self::end) it. A retry with missing answers parks it again under a new state. If the
/// work ends first, its open server requests are dismissed, and its outcome waits for the retry.
///
/// One mutex guards the table, and no `.await` happens under it. Calls are taken out and dropped after it is released: dropping
/// one aborts both tasks, which cancels the call on its server, and dismisses its open server requests.
pub(crate) struct ParkedCalls {
    keys: Arc<KeyRing>,
    shares: Shares,
    lifetime: Duration,
    next: AtomicU64,
    /// Identifies the configuration. Replicas have the same identity, and chained gateways have different ones.
    identity: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<u64, ParkedCall>,
    /// Whether the gateway stops, so that no call can wait.
    is_closed: bool,
}

/// The content of a `requestState`.
#[derive(Serialize, Deserialize)]
struct State {
    slot: u64,
    nonce: u64,
    /// The identity of the gateway that parked the call. One user's gateways have the same keys by default, so a gateway can open
    /// states from a server that is a gateway itself.
    #[serde(default)]
    gateway: u64,
}

/// A call that waits for its client's retry. Its work continues in a task.
struct ParkedCall {
    nonce: u64,
    exchange: Arc<Exchange>,
    asked: Vec<OpenServerRequest>,
    /// Whether the gateway has answered in place of the client.
    is_withdrawn: bool,
    work: RunningWork,
    hold: Option<Hold>,
    /// Ends the call if the client does not retry in time.
    expiry: AbortHandle,
}

/// Work that runs in a task. Dropping it ends the task.
struct RunningWork {
    outcome: oneshot::Receiver<Outcome>,
    task: AbortHandle,
}

impl RunningWork {
    fn spawn(work: Work) -> Self {
        let (sender, outcome) = oneshot::channel();
        let task = tokio::spawn(async move { drop(sender.send(work.await)) });
        Self { outcome, task: task.abort_handle() }
    }

    async fn finish(mut self) -> Outcome {
        let lost = || Outcome::Error(ErrorReply::internal("the call ended without a result"));
        (&mut self.outcome).await.unwrap_or_else(|_| lost())
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ParkedCall {
    /// Returns `true` if the gateway has answered a server request in place of the client.
    fn has_withdrawn(&self) -> bool {
        self.asked.iter().any(OpenServerRequest::is_withdrawn_by_gateway)
    }
}

impl Drop for ParkedCall {
    fn drop(&mut self) {
        self.expiry.abort();
        for open in self.asked.drain(..) {
            dismiss(open);
        }
    }
}

/// Answers a server request that the client will not answer.
fn dismiss(open: OpenServerRequest) {
    match open.server_request.method {
        ServerRequestMethod::Elicit { .. } => {
            let cancelled = RawValue::from_string(r#"{"action":"cancel"}"#.to_owned());
            if let Ok(cancelled) = cancelled {
                open.server_request.answer(Ok(&cancelled));
            }
        }
        ServerRequestMethod::Roots => answer_in_place(open.server_request),
        // Dropping the server request answers it with an error.
        ServerRequestMethod::Sample => {}
    }
}

/// The outcome of a retry.
pub(crate) enum Retry {
    /// The call continues.
    Continued { exchange: Arc<Exchange>, work: Work },
    /// Answers are missing. The client gets the remaining server requests again.
    Incomplete(Reply),
}

impl ParkedCalls {
    pub(crate) fn new(keys: Arc<KeyRing>, shares: Shares, lifetime: Duration) -> Arc<Self> {
        let (next, identity, table) = (AtomicU64::new(1), AtomicU64::new(0), Mutex::default());
        Arc::new(Self { keys, shares, lifetime, next, identity, table })
    }

    /// Sets the gateway's identity, which is the same for all replicas of a configuration.
    pub(crate) fn set_identity(&self, identity: u64) {
        self.identity.store(identity, Ordering::Relaxed);
    }

    /// Returns the number of calls that wait for input.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).calls.len()
    }

    /// Ends all calls that wait for input, and every later one that would. Their states are invalid from then on.
    pub(crate) fn close(&self) {
        let calls = {
            let mut table = lock(&self.table);
            table.is_closed = true;
            std::mem::take(&mut table.calls)
        };
        drop(calls);
    }

    /// Ends a closed pipe's calls.
    pub(crate) fn close_of(&self, pipe: &Arc<RunningRequests>) {
        let is_own = |_: &u64, call: &mut ParkedCall| Arc::ptr_eq(&call.exchange.client.requests, pipe);
        let calls: Vec<_> = lock(&self.table).calls.extract_if(is_own).collect();
        drop(calls);
    }

    /// Returns `true` if all these calls wait for input.
    pub(crate) fn are_parked(&self, exchanges: &[RequestTag]) -> bool {
        let table = lock(&self.table);
        exchanges.iter().all(|key| table.calls.values().any(|call| call.exchange.key == *key))
    }

    /// Ends calls that wait for input. Their states are invalid from then on.
    pub(crate) fn end(&self, exchanges: &[RequestTag]) {
        let is_ended = |_: &u64, call: &mut ParkedCall| exchanges.contains(&call.exchange.key);
        let calls: Vec<_> = lock(&self.table).calls.extract_if(is_ended).collect();
        drop(calls);
    }

    /// Keeps a call for its client's retry, and returns the response with the server requests.
    pub(crate) fn park(self: &Arc<Self>, exchange: Arc<Exchange>, work: Work, asked: Vec<OpenServerRequest>) -> Reply {
        match self.shares.take(Resource::Parked, exchange.client.principal.holdings(), 1) {
            Ok(hold) => self.insert(exchange, RunningWork::spawn(work), asked, Some(hold)),
            Err(error) => {
                exchange.detach();
                // Cancels the call, which could not be continued.
                drop(work);
                asked.into_iter().for_each(dismiss);
                Reply::error(Some(&exchange.id()), &ErrorReply::internal(error.to_string()))
            }
        }
    }

    fn insert(
        self: &Arc<Self>,
        exchange: Arc<Exchange>,
        work: RunningWork,
        asked: Vec<OpenServerRequest>,
        hold: Option<Hold>,
    ) -> Reply {
        exchange.detach();
        exchange.withhold_progress();
        let id = exchange.id();
        let slot = self.next.fetch_add(1, Ordering::Relaxed);
        let nonce = fastrand::u64(..);
        let gateway = self.identity.load(Ordering::Relaxed);
        let state = serde_json::to_vec(&State { slot, nonce, gateway }).unwrap_or_default();
        let state = self.keys.seal(SealKind::RequestState, exchange.client.principal.id(), self.lifetime, &state);
        let result = input_required(&asked, &state);
        let expiry = tokio::spawn({
            let (parked, expires_at) = (Arc::downgrade(self), Instant::now() + self.lifetime);
            let exchange = Arc::downgrade(&exchange);
            async move {
                if let Some(exchange) = exchange.upgrade()
                    && tokio::time::timeout_at(expires_at, exchange.ended()).await.is_ok()
                {
                    // The server has answered without waiting for the client.
                    let asked = parked.upgrade().map(|parked| parked.take_server_requests(slot));
                    asked.into_iter().flatten().for_each(dismiss);
                }
                tokio::time::sleep_until(expires_at).await;
                let expired = parked.upgrade().and_then(|parked| lock(&parked.table).calls.remove(&slot));
                drop(expired);
            }
        });
        let expiry = expiry.abort_handle();
        let call = ParkedCall { nonce, exchange, asked, is_withdrawn: false, work, hold, expiry };
        let mut table = lock(&self.table);
        if table.is_closed {
            drop(table);
            drop(call);
            return Reply::error(Some(&id), &ErrorReply::internal("the gateway is stopping; the call was cancelled"));
        }
        table.calls.insert(slot, call);
        Reply::result(&id, result.into())
    }

    /// Returns a parked call's server requests. The call then waits for its retry only.
    fn take_server_requests(&self, slot: u64) -> Vec<OpenServerRequest> {
        let mut table = lock(&self.table);
        let Some(call) = table.calls.get_mut(&slot) else { return Vec::new() };
        call.is_withdrawn |= call.has_withdrawn();
        std::mem::take(&mut call.asked)
    }

    /// Returns `true` if this gateway, or its replica, created a request state for the principal. A state from a server that is a
    /// gateway with the same keys does not count.
    pub(crate) fn is_own(&self, client: &Client, state: &str) -> bool {
        // The identity changes with the configuration, but a call that is still parked is known.
        let is_parked =
            |state: &State| lock(&self.table).calls.get(&state.slot).is_some_and(|call| call.nonce == state.nonce);
        let state = self.open(client, state);
        state.is_some_and(|state| state.gateway == self.identity.load(Ordering::Relaxed) || is_parked(&state))
    }

    fn open(&self, client: &Client, state: &str) -> Option<State> {
        let payload = self.keys.open(SealKind::RequestState, client.principal.id(), state).ok()?;
        serde_json::from_slice(&payload).ok()
    }

    /// Continues a parked call with its client's answers. A state can be used once.
    pub(crate) fn retry(
        self: &Arc<Self>,
        client: &Client,
        state: &str,
        request: &RequestIdentity,
        attached: AttachedRequest,
        answers: &Map<String, Value>,
    ) -> Result<Retry, ErrorReply> {
        let invalid = ErrorReply::invalid_state;
        let State { slot, nonce, .. } = self.open(client, state).ok_or_else(invalid)?;
        let mut table = lock(&self.table);
        let call = table.calls.get_mut(&slot).filter(|call| call.nonce == nonce).ok_or_else(invalid)?;
        if call.exchange.client.profile != client.profile {
            return Err(invalid());
        }
        if !call.exchange.request.get().is_some_and(|parked| parked.is_same(request)) {
            return Err(ErrorReply::invalid_params("`requestState` belongs to another request"));
        }
        if call.is_withdrawn || call.has_withdrawn() {
            let call = table.calls.remove(&slot);
            drop(table);
            drop(call);
            return Err(ErrorReply::internal(format!("{WITHDRAWN}; send the request again, without `requestState`")));
        }
        // Server requests that the server has withdrawn are not sent again.
        call.asked.retain(|open| !open.server_request.is_withdrawn());
        for open in &call.asked {
            if let Some(answer) = answers.get(&*open.key) {
                check_answer(open, answer)?;
            }
        }
        let Some(mut call) = table.calls.remove(&slot) else { return Err(invalid()) };
        drop(table);
        call.expiry.abort();
        call.exchange.reattach(attached);
        let mut missing = Vec::new();
        for open in std::mem::take(&mut call.asked) {
            match answers.get(&*open.key).map(|answer| RawValue::from_string(answer.to_string())) {
                Some(Ok(answer)) => {
                    let own = with_own_task(&self.keys, &client.principal, &answer);
                    open.server_request.answer(Ok(own.as_deref().unwrap_or(&answer)));
                }
                _ => missing.push(open),
            }
        }
        let exchange = call.exchange.clone();
        let work = std::mem::replace(&mut call.work, RunningWork::spawn(Box::pin(std::future::ready(Outcome::Silent))));
        if !missing.is_empty() {
            let hold = call.hold.take();
            return Ok(Retry::Incomplete(self.insert(exchange, work, missing, hold)));
        }
        exchange.release_progress();
        Ok(Retry::Continued { exchange, work: Box::pin(work.finish()) })
    }
}

/// Checks an answer's shape. The server checks its content.
fn check_answer(open: &OpenServerRequest, answer: &Value) -> Result<(), ErrorReply> {
    let invalid =
        |expected: &str| Err(ErrorReply::invalid_params(format!("`inputResponses.{}` must be {expected}", open.key)));
    match open.server_request.method {
        _ if !answer.is_object() => invalid("an object"),
        ServerRequestMethod::Elicit { .. } => match (answer["action"].as_str(), answer.get("content")) {
            (Some("accept"), None | Some(Value::Object(_))) | (Some("decline" | "cancel"), _) => Ok(()),
            (Some("accept"), Some(_)) => invalid("an answer whose `content` is an object"),
            _ => invalid("an answer with `action`: accept, decline or cancel"),
        },
        ServerRequestMethod::Sample | ServerRequestMethod::Roots => Ok(()),
    }
}

/// Writes the result that requests input from a modern client.
fn input_required(asked: &[OpenServerRequest], state: &str) -> String {
    let mut requests = Map::new();
    for open in asked {
        let mut params: Value = serde_json::from_str(open.server_request.params.get()).unwrap_or_default();
        if let (ServerRequestMethod::Elicit { url: true }, Some(params)) =
            (open.server_request.method, params.as_object_mut())
        {
            // Modern servers have no ids for elicitations.
            params.shift_remove("elicitationId");
        }
        let request = serde_json::json!({"method": open.server_request.method.as_str(), "params": params});
        requests.insert(open.key.to_string(), request);
    }
    serde_json::json!({"resultType": "input_required", "inputRequests": requests, "requestState": state}).to_string()
}
