//! Server requests: sampling, elicitation and roots. Each goes to the client whose call caused it, or is refused.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Switchboard;
use super::links::{LinkView, UrlElicitation};
use crate::client::{Answer, Client, MAX_SERVER_REQUESTS, Unanswered};
use crate::request::exchange::Exchange;
use crate::request::task_ids::with_own_task;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::{Era, RpcError, code};
use ropeway_mcp::{AnswerSink, Callers, LinkKey, RequestTag, ServerRequest, ServerRequestMethod};

/// Maximum number of unanswered requests from all servers.
const MAX_OPEN: usize = 4096;

/// How long a server request may delay calls that its client has not made.
const PATIENCE: Duration = Duration::from_secs(3);

/// The error for a server request that was withdrawn, and for answers that come after that.
pub(crate) const WITHDRAWN: &str =
    "the request was withdrawn, because the client did not answer it while other calls waited";

/// Server requests without an answer, by link and id.
#[derive(Default)]
pub(super) struct OpenRequests(HashMap<(LinkKey, Box<str>), OpenRequest>);

/// A server request without an answer.
struct OpenRequest {
    /// The exchange whose client is asked. It waits for its own client.
    exchange: Option<RequestTag>,
    state: OpenState,
    /// Withdraws the request once it delays other calls. A task that waits for the answer does that itself.
    _watch: Option<Watch>,
}

/// Where a server request waits for its answer.
enum OpenState {
    /// A task waits for a legacy client's answer.
    Task(AbortHandle),
    /// The request is part of the next response to a modern client. `is_open` is alive until it is answered.
    ///
    /// The answer sink refers to the connection, which refers to the switchboard, and must not be kept alive.
    Exchange { exchange: Weak<Exchange>, is_open: Weak<AtomicBool>, answer: Weak<dyn AnswerSink> },
    /// The request waits for its client's next call.
    Held { server_request: Box<ServerRequest>, client: Weak<Client> },
}

/// A task that ends when this is dropped.
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl OpenRequest {
    fn is_open(&self) -> bool {
        match &self.state {
            OpenState::Task(task) => !task.is_finished(),
            OpenState::Exchange { exchange, is_open, .. } => {
                is_open.strong_count() > 0 && exchange.upgrade().is_some_and(|exchange| !exchange.has_ended())
            }
            OpenState::Held { server_request, .. } => !server_request.is_withdrawn(),
        }
    }
}

impl OpenRequests {
    /// Removes answered requests.
    fn trim(&mut self) {
        self.0.retain(|_, request| request.is_open());
    }

    /// Counts the requests that wait for answers to one modern call.
    fn count_of(&self, exchange: RequestTag) -> usize {
        let is_own = |request: &&OpenRequest| {
            request.exchange == Some(exchange) && matches!(request.state, OpenState::Exchange { .. })
        };
        self.0.values().filter(is_own).count()
    }
}

enum Recipient {
    /// The client whose request is in progress.
    Exchange(Arc<Exchange>),
    /// A client without a request.
    Client(Arc<Client>),
    /// A client that can only be asked during a request.
    Later(Arc<Client>),
    /// Several clients use the connection.
    Ambiguous,
    /// No client can answer.
    None,
}

/// Identifies a server request, and the client that it waits for.
#[derive(Clone)]
struct AskedClient {
    link: LinkKey,
    id: Box<str>,
    method: ServerRequestMethod,
    /// The client's user key.
    client: u64,
    exchange: Option<RequestTag>,
}

impl AskedClient {
    fn new(server_request: &ServerRequest, client: &Client, exchange: Option<RequestTag>) -> Self {
        let id = Box::from(server_request.id.get());
        Self { link: server_request.link, id, method: server_request.method, client: client.user_key, exchange }
    }

    fn key(&self) -> (LinkKey, Box<str>) {
        (self.link, self.id.clone())
    }
}

impl Switchboard {
    /// Returns the number of server requests without an answer.
    pub(crate) fn open_server_requests(&self) -> usize {
        let mut open = lock(&self.open);
        open.trim();
        open.0.len()
    }

    /// Delivers a server request to its client, or refuses it.
    pub(super) fn route_request(&self, mut server_request: ServerRequest) {
        let key = server_request.link;
        let link = self.link(key);
        let is_roots = server_request.method == ServerRequestMethod::Roots;
        let expected = if is_roots { self.on_roots_request(&mut server_request) } else { None };
        let recipient = match expected {
            Some(client) => reach(client, server_request.method),
            None => self.recipient(&server_request, link.as_ref()),
        };
        let (client, exchange) = match &recipient {
            Recipient::Exchange(exchange) => (Some(&exchange.client), Some(exchange.key)),
            Recipient::Client(client) | Recipient::Later(client) => (Some(client), None),
            Recipient::Ambiguous | Recipient::None => (None, None),
        };
        if let (Some(client), Some(link)) = (client, &link)
            && let Some(sealed) = self.with_sealed_task(client, link.server_of(exchange), &server_request.params)
        {
            server_request.params = sealed;
        }
        let checked = match &recipient {
            Recipient::Exchange(exchange) => self.check_limits(&server_request, exchange),
            Recipient::Client(_) | Recipient::Later(_) => self.check_unprompted(&server_request),
            Recipient::Ambiguous | Recipient::None => Ok(()),
        };
        if let Err(error) = checked {
            tracing::debug!(server = ?link.map(|link| link.names()), "{}", error.message);
            return server_request.answer(Err(error));
        }
        match recipient {
            Recipient::Exchange(exchange) => self.ask_during(server_request, exchange),
            Recipient::Client(client) => self.ask_legacy(server_request, client, None),
            Recipient::Later(client) => self.hold(server_request, &client),
            Recipient::Ambiguous => {
                self.set_asking(server_request.link, "refused a request that could belong to several clients");
                refuse(server_request, ": several clients use the connection");
            }
            Recipient::None => refuse(server_request, " by the client"),
        }
        if is_roots {
            self.on_roots_routed(key);
        }
    }

    /// Ends a request that its server has withdrawn.
    pub(super) fn end_withdrawn(&self, link: LinkKey, id: &RawValue) {
        let request = lock(&self.open).0.remove(&(link, Box::from(id.get())));
        match request.map(|request| request.state) {
            Some(OpenState::Task(task)) => task.abort(),
            Some(OpenState::Exchange { exchange, .. }) => {
                if let Some(exchange) = exchange.upgrade() {
                    exchange
                        .withdraw(|server_request| server_request.link == link && server_request.id.get() == id.get());
                }
            }
            Some(OpenState::Held { .. }) | None => {}
        }
    }

    pub(super) fn in_progress(&self, callers: &[RequestTag]) -> Vec<Arc<Exchange>> {
        callers.iter().filter_map(|key| self.exchanges.get(*key)).collect()
    }

    /// Refuses a request to a call's client if too many are open, or if the server has asked the user too often during the call.
    fn check_limits(&self, server_request: &ServerRequest, exchange: &Exchange) -> Result<(), RpcError> {
        if self.open_server_requests() >= MAX_OPEN || lock(&self.open).count_of(exchange.key) >= MAX_SERVER_REQUESTS {
            return Err(too_many_open());
        }
        match server_request.method {
            ServerRequestMethod::Elicit { .. } if !exchange.take_elicitation(server_request.limit) => {
                Err(too_many_elicitations(server_request.limit))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a request to a connection's client, without a call, if there were too many.
    fn check_unprompted(&self, server_request: &ServerRequest) -> Result<(), RpcError> {
        if self.open_server_requests() >= MAX_OPEN {
            return Err(too_many_open());
        }
        let mut links = lock(&self.links);
        let is_allowed = match (server_request.method, links.get_mut(&server_request.link)) {
            (ServerRequestMethod::Elicit { .. }, Some(owner)) => owner.users.take_unprompted(server_request.limit),
            _ => true,
        };
        if is_allowed { Ok(()) } else { Err(too_many_elicitations(server_request.limit)) }
    }

    /// Finds the client that a request belongs to. A request that can belong to several clients has no recipient, whether or not
    /// they can answer it.
    fn recipient(&self, server_request: &ServerRequest, link: Option<&LinkView>) -> Recipient {
        let Callers { keys, is_certain } = &server_request.callers;
        let is_roots = server_request.method == ServerRequestMethod::Roots;
        let mut exchanges = self.in_progress(keys);
        let is_other = |exchange: &Arc<Exchange>| exchange.client.user_key != exchanges[0].client.user_key;
        if (!is_certain && link.is_some_and(|link| link.is_shared)) || exchanges.iter().any(is_other) {
            return Recipient::Ambiguous;
        }
        let has_caller = !exchanges.is_empty();
        exchanges.retain(|exchange| exchange.client.capabilities.can_answer(server_request.method));
        if let Some(newest) = exchanges.into_iter().max_by_key(|exchange| exchange.key) {
            if is_roots && !is_certain {
                self.own_roots(server_request.link, &newest.client);
            }
            return Recipient::Exchange(newest);
        }
        let isolated = link.and_then(|link| link.client.as_ref()?.upgrade());
        let client = match isolated {
            None if is_roots && !has_caller => self.shared_roots_client(server_request.link),
            isolated => isolated,
        };
        client.map_or(Recipient::None, |client| reach(client, server_request.method))
    }

    /// Asks a call's client: a modern one with the response to the call, a legacy one on the call's stream.
    fn ask_during(&self, server_request: ServerRequest, exchange: Arc<Exchange>) {
        if exchange.client.era == Era::Legacy {
            return self.ask_legacy(server_request, exchange.client.clone(), Some(exchange));
        }
        self.ask_modern(server_request, &exchange);
    }

    fn ask_modern(&self, server_request: ServerRequest, exchange: &Arc<Exchange>) {
        let Some(answer) = server_request.sink().map(|answer| Arc::downgrade(&answer)) else { return };
        let asked = AskedClient::new(&server_request, &exchange.client, Some(exchange.key));
        let is_open = exchange.ask(server_request);
        let state = OpenState::Exchange { exchange: Arc::downgrade(exchange), is_open, answer };
        self.insert_watched(asked, state);
    }

    /// Keeps a request for its client's next call.
    fn hold(&self, server_request: ServerRequest, client: &Arc<Client>) {
        let asked = AskedClient::new(&server_request, client, None);
        let state = OpenState::Held { server_request: Box::new(server_request), client: Arc::downgrade(client) };
        self.insert_watched(asked, state);
    }

    /// Adds an open request, which is withdrawn once it delays other calls.
    fn insert_watched(&self, asked: AskedClient, state: OpenState) {
        let (board, watched) = (self.own.clone(), asked.clone());
        let watch = tokio::spawn(async move {
            wait_for_delay(&board, &watched).await;
            if let Some(board) = board.upgrade() {
                board.withdraw_delaying(&watched);
            }
        });
        let watch = Some(Watch(watch.abort_handle()));
        lock(&self.open).0.insert(asked.key(), OpenRequest { exchange: asked.exchange, state, _watch: watch });
    }

    /// Answers a request in place of its client, because it delays other calls.
    fn withdraw_delaying(&self, asked: &AskedClient) {
        let Some(request) = lock(&self.open).0.remove(&asked.key()).filter(OpenRequest::is_open) else { return };
        self.set_asking(asked.link, "withdrew a request that delayed other calls");
        match request.state {
            OpenState::Held { server_request, .. } => answer_in_place(*server_request),
            OpenState::Exchange { is_open, answer, .. } => {
                if let Some(is_withdrawn) = is_open.upgrade() {
                    is_withdrawn.store(true, Ordering::Release);
                }
                if let Some(answer) = answer.upgrade() {
                    let roots = no_roots().filter(|_| asked.method == ServerRequestMethod::Roots);
                    answer.send(roots.as_deref().ok_or_else(|| refusal(code::INTERNAL, WITHDRAWN)));
                }
            }
            OpenState::Task(task) => task.abort(),
        }
    }

    /// Sends the requests that wait for this client's next call to the call's client.
    pub(super) fn release_held(&self, link: LinkKey, exchange: &Arc<Exchange>) {
        let is_held = |(of, _): &(LinkKey, Box<str>), request: &mut OpenRequest| match &request.state {
            OpenState::Held { client, .. } => {
                let client = client.upgrade();
                *of == link && client.is_some_and(|client| client.isolation_key == exchange.client.isolation_key)
            }
            _ => false,
        };
        let held: Vec<OpenRequest> = lock(&self.open).0.extract_if(is_held).map(|(_, request)| request).collect();
        for request in held {
            match request.state {
                OpenState::Held { server_request, .. } if server_request.is_withdrawn() => {}
                OpenState::Held { server_request, .. } if exchange.client.era == Era::Modern => {
                    self.ask_modern(*server_request, exchange);
                }
                OpenState::Held { mut server_request, .. } => {
                    // The call did not cause the request, and may end before the client answers.
                    server_request.callers = Callers::default();
                    self.ask_legacy(*server_request, exchange.client.clone(), Some(exchange.clone()));
                }
                OpenState::Task(_) | OpenState::Exchange { .. } => {}
            }
        }
    }

    /// Asks a legacy client in a separate task, on a call's stream if one is given. A call that caused the request ends it.
    fn ask_legacy(&self, server_request: ServerRequest, client: Arc<Client>, exchange: Option<Arc<Exchange>>) {
        let asked = AskedClient::new(&server_request, &client, exchange.as_ref().map(|exchange| exchange.key));
        self.note_url_elicitation(&server_request, &client, asked.exchange);
        let (board, key, call) = (self.own.clone(), asked.key(), asked.exchange);
        let mut open = lock(&self.open);
        let task = tokio::spawn(async move {
            let (method, params) = (server_request.method.as_str(), server_request.params.clone());
            let stream = exchange.as_ref().map_or(&client.outbound, |exchange| &exchange.outbound);
            let cause = exchange.as_deref().filter(|exchange| server_request.callers.keys.contains(&exchange.key));
            let mut answer = tokio::select! {
                answer = client.ask(stream, method, &params) => Some(answer),
                () = ended(cause) => Some(Err(Unanswered::Gone)),
                () = wait_for_delay(&board, &asked) => None,
            };
            // The server may use the id again as soon as it has the answer.
            if let Some(board) = board.upgrade() {
                lock(&board.open).0.remove(&asked.key());
                if let (Some(keys), Some(Ok(Ok(result)))) = (board.keys.get(), &mut answer)
                    && let Some(own) = with_own_task(keys, &client.principal, result)
                {
                    *result = own;
                }
                if answer.is_none() {
                    board.set_asking(asked.link, "withdrew a request that delayed other calls");
                }
            }
            match answer {
                Some(answer) => answer_server_request(server_request, answer),
                None => answer_in_place(server_request),
            }
        });
        let state = OpenState::Task(task.abort_handle());
        open.0.insert(key, OpenRequest { exchange: call, state, _watch: None });
    }

    /// Records a URL elicitation's id, which the server later reports as complete.
    fn note_url_elicitation(&self, server_request: &ServerRequest, client: &Arc<Client>, exchange: Option<RequestTag>) {
        if server_request.method != (ServerRequestMethod::Elicit { url: true }) {
            return;
        }
        let params: Value = serde_json::from_str(server_request.params.get()).unwrap_or_default();
        if let Some(id) = params["elicitationId"].as_str() {
            let elicitation = UrlElicitation { id: id.into(), client: Arc::downgrade(client), exchange };
            self.add_url_elicitation(server_request.link, elicitation);
        }
    }

    /// Records the URL elicitations in an error that a legacy client gets (code -32042).
    pub(crate) fn note_required_elicitations(&self, link: LinkKey, data: &Value, exchange: &Exchange) {
        if exchange.client.era != Era::Legacy {
            return;
        }
        let elicitations = data["elicitations"].as_array().into_iter().flatten();
        for id in elicitations.filter_map(|elicitation| elicitation["elicitationId"].as_str()).take(MAX_SERVER_REQUESTS)
        {
            let client = Arc::downgrade(&exchange.client);
            self.add_url_elicitation(link, UrlElicitation { id: id.into(), client, exchange: None });
        }
    }

    /// Returns when the first call began that a request may delay. Calls that wait for their own clients do not count.
    fn delayed_since(&self, asked: &AskedClient) -> Option<Instant> {
        let waiting: HashSet<RequestTag> = {
            let open = lock(&self.open);
            let of_link = open.0.iter().filter(|((link, _), _)| *link == asked.link);
            of_link.filter_map(|(_, request)| request.exchange).collect()
        };
        let links = lock(&self.links);
        links.get(&asked.link)?.users.waiting_since(|request| {
            // Clients answer requests for roots without their users, so that even their own calls should not wait for them.
            let is_delayed = request.client != asked.client
                || (asked.method == ServerRequestMethod::Roots && Some(request.exchange) != asked.exchange);
            is_delayed && !waiting.contains(&request.exchange)
        })
    }
}

/// Decides how a client without a request is asked.
fn reach(client: Arc<Client>, method: ServerRequestMethod) -> Recipient {
    if !client.capabilities.can_answer(method) {
        return Recipient::None;
    }
    match client.era {
        // If the client opens no stream, the next call carries it.
        Era::Legacy if method == ServerRequestMethod::Roots && !client.has_stream() => Recipient::Later(client),
        Era::Legacy => Recipient::Client(client),
        Era::Modern if method == ServerRequestMethod::Roots => Recipient::Later(client),
        Era::Modern => Recipient::None,
    }
}

/// Waits until a call ends; forever without one.
async fn ended(exchange: Option<&Exchange>) {
    match exchange {
        Some(exchange) => exchange.ended().await,
        None => pending().await,
    }
}

/// Waits until a server request has delayed other calls for too long.
async fn wait_for_delay(board: &Weak<Switchboard>, asked: &AskedClient) {
    let asked_at = Instant::now();
    let activity = board.upgrade().and_then(|board| {
        let links = lock(&board.links);
        links.get(&asked.link).map(|owner| owner.activity.subscribe())
    });
    let Some(mut activity) = activity else { return pending().await };
    loop {
        activity.borrow_and_update();
        let since = board.upgrade().and_then(|board| board.delayed_since(asked));
        let expires_at = since.map(|since| since.max(asked_at) + PATIENCE);
        if expires_at.is_some_and(|at| at <= Instant::now()) {
            return;
        }
        let expired = async {
            match expires_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = expired => {}
            changed = activity.changed() => {
                if changed.is_err() {
                    // The connection has been removed.
                    return pending().await;
                }
            }
        }
    }
}

/// Passes a legacy client's answer to the server.
fn answer_server_request(server_request: ServerRequest, answer: Result<Answer, Unanswered>) {
    match answer {
        Ok(Ok(result)) => server_request.answer(Ok(&result)),
        Ok(Err(error)) => server_request.answer(Err(read_error(&error))),
        Err(Unanswered::TooMany) => server_request.answer(Err(too_many_open())),
        Err(Unanswered::Gone) => server_request.answer(Err(refusal(code::INTERNAL, "the client disconnected"))),
        Err(Unanswered::Stopping) => server_request.answer(Err(refusal(code::INTERNAL, "the gateway is stopping"))),
    }
}

/// Reads a client's error object.
fn read_error(error: &RawValue) -> RpcError {
    let value: Value = serde_json::from_str(error.get()).unwrap_or_default();
    RpcError {
        code: value["code"].as_i64().unwrap_or(code::INTERNAL),
        message: value["message"].as_str().unwrap_or("the client reported an error").to_owned(),
        data: value.get("data").cloned(),
    }
}

fn refusal(code: i64, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into(), data: None }
}

fn too_many_open() -> RpcError {
    refusal(code::INTERNAL, "too many questions are waiting for the client")
}

fn too_many_elicitations(limit: usize) -> RpcError {
    refusal(code::INTERNAL, format!("too many questions: at most {limit} per call"))
}

/// Answers a request that its client has not answered in time.
pub(crate) fn answer_in_place(server_request: ServerRequest) {
    let roots = no_roots().filter(|_| server_request.method == ServerRequestMethod::Roots);
    server_request.answer(roots.as_deref().ok_or_else(|| refusal(code::INTERNAL, WITHDRAWN)));
}

/// Returns the answer for a client without roots.
fn no_roots() -> Option<Box<RawValue>> {
    RawValue::from_string(r#"{"roots":[]}"#.to_owned()).ok()
}

/// Answers a request without a recipient, as a client without the capability would.
fn refuse(server_request: ServerRequest, reason: &str) {
    if server_request.method == ServerRequestMethod::Roots {
        return answer_in_place(server_request);
    }
    let message = format!("`{}` is not supported{reason}", server_request.method.as_str());
    server_request.answer(Err(refusal(code::METHOD_NOT_FOUND, message)));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::client::{ClientDescription, Principal};
    use crate::request::exchange::AttachedRequest;
    use crate::request::exchanges::Exchanges;
    use crate::upstream::asking_servers::AskingServers;
    use ropeway_mcp::MessageHandler as _;

    /// Keeps the codes from error answers.
    #[derive(Clone, Default)]
    struct Refusals(Arc<Mutex<Vec<i64>>>);

    impl AnswerSink for Refusals {
        fn send(&self, outcome: Result<&RawValue, RpcError>) {
            lock(&self.0).extend(outcome.err().map(|error| error.code));
        }

        fn is_awaited(&self) -> bool {
            true
        }
    }

    fn modern_client(isolation_key: u64) -> Arc<Client> {
        let capabilities = r#"{"sampling":{}}"#.into();
        let description = ClientDescription { version: "2026-07-28".into(), capabilities, info: "{}".into() };
        let principal = Principal::from("");
        Arc::new(Client::new(Era::Modern, description, principal, "default".into(), Some(isolation_key)))
    }

    fn sample(number: u64, exchange: &Exchange, answer: &Refusals) -> ServerRequest {
        let id = RawValue::from_string(number.to_string()).expect("an id");
        let params = RawValue::from_string("{}".to_owned()).expect("params");
        let callers = Callers { keys: vec![exchange.key], is_certain: false };
        ServerRequest::new(
            (LinkKey(1), id),
            ServerRequestMethod::Sample,
            params,
            (callers, 10),
            Arc::new(answer.clone()),
        )
    }

    #[tokio::test]
    async fn open_questions_of_a_modern_call_are_limited() {
        let exchanges = Arc::<Exchanges>::default();
        let board =
            Switchboard::new(Arc::default(), exchanges.clone(), &Arc::default(), AskingServers::default(), false);
        let client = modern_client(1);
        let [first, second] = [(); 2].map(|()| {
            let id = RawValue::from_string("1".to_owned()).expect("an id");
            Exchange::new(client.clone(), AttachedRequest { id, token: None, log_level: None, running: None })
        });
        let [in_progress, _other] = [&first, &second].map(|exchange| exchanges.enter(exchange));
        let refusals = Refusals::default();
        let mut number = 0;
        let mut ask = |exchange: &Exchange| {
            number += 1;
            board.on_request(sample(number, exchange, &refusals));
            lock(&refusals.0).len()
        };
        for _ in 0..MAX_SERVER_REQUESTS {
            assert_eq!(ask(&first), 0);
        }
        assert_eq!(ask(&first), 1);
        assert_eq!(*lock(&refusals.0), [code::INTERNAL]);
        for _ in 0..MAX_SERVER_REQUESTS - 1 {
            assert_eq!(ask(&second), 1, "another call of a client with the same description");
        }
        assert_eq!(board.open_server_requests(), 2 * MAX_SERVER_REQUESTS - 1);
        // Unanswered server requests are refused when they are dropped.
        assert!(second.withdraw(|_| true));
        assert_eq!(
            ask(&second),
            MAX_SERVER_REQUESTS,
            "answered questions do not count, although their request goes on"
        );
        assert_eq!(board.open_server_requests(), MAX_SERVER_REQUESTS + 1);
        drop(in_progress);
        assert_eq!(board.open_server_requests(), 1, "a call has ended");
    }
}
