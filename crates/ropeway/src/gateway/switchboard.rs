//! Routes what servers send outside of responses: questions and notifications, to the clients that they belong to.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::client::{Client, ClientId, LogLevel, MAX_QUESTIONS, Unanswered};
use super::clients::{ChangedList, Clients};
use super::exchange::{Exchange, Exchanges};
use super::notification::notification;
use super::outbound::{Frame, FrameKind};
use super::subscriptions::Subscriptions;
use crate::mcp::{ExchangeKey, LinkKey, Question, QuestionMethod, ServerTap};
use crate::protocol::{Era, RpcError, code};
use crate::sync::lock;
use crate::tool::Alias;

/// A connection to a server.
#[derive(Clone)]
struct LinkOwner {
    server: Alias,
    /// The only client of an isolated connection.
    client: Option<Weak<Client>>,
    users: Users,
}

/// The clients that have sent requests on a connection.
#[derive(Clone, Copy, Default, PartialEq)]
enum Users {
    #[default]
    None,
    One(ClientId),
    Several,
}

/// Where a question of a server has gone.
enum Asked {
    /// A task waits for the answer of a legacy client.
    Task(AbortHandle),
    /// The question is part of the next response to a modern client, and `is_open` is alive until it is answered.
    Exchange { exchange: Weak<Exchange>, is_open: Weak<()> },
}

/// Connects servers with clients for everything but responses.
pub(crate) struct Switchboard {
    own: Weak<Self>,
    clients: Arc<Clients>,
    exchanges: Arc<Exchanges>,
    subscriptions: Arc<Subscriptions>,
    links: Mutex<HashMap<LinkKey, LinkOwner>>,
    /// Questions without an answer, by link and id.
    asked: Mutex<HashMap<(LinkKey, Box<str>), Asked>>,
    /// Servers that have asked while calls of several clients were in flight.
    ambiguous: Mutex<HashSet<Alias>>,
    changed: Mutex<HashSet<(Alias, ChangedList)>>,
    changed_notify: Notify,
}

impl Switchboard {
    pub(crate) fn new(
        clients: Arc<Clients>,
        exchanges: Arc<Exchanges>,
        subscriptions: Arc<Subscriptions>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            clients,
            exchanges,
            subscriptions,
            links: Mutex::default(),
            asked: Mutex::default(),
            ambiguous: Mutex::default(),
            changed: Mutex::default(),
            changed_notify: Notify::new(),
        })
    }

    /// Records which server a connection leads to, and its only client if it is isolated.
    pub(crate) fn add_link(&self, link: LinkKey, server: &Alias, client: Option<&Arc<Client>>) {
        let mut links = lock(&self.links);
        let users = links.get(&link).map(|owner| owner.users).unwrap_or_default();
        links.insert(link, LinkOwner { server: server.clone(), client: client.map(Arc::downgrade), users });
    }

    /// Records that a client sends a request on a connection.
    pub(crate) fn add_user(&self, link: LinkKey, client: &Client) {
        let mut links = lock(&self.links);
        if let Some(owner) = links.get_mut(&link) {
            owner.users = match owner.users {
                Users::None if !client.is_anonymous => Users::One(client.id),
                Users::One(only) if only == client.id => Users::One(only),
                _ => Users::Several,
            };
        }
    }

    /// Forgets a connection.
    pub(crate) fn remove_link(&self, link: LinkKey) {
        lock(&self.links).remove(&link);
    }

    /// Returns `true` if a server has asked a question that could belong to several clients.
    pub(crate) fn is_ambiguous(&self, server: &Alias) -> bool {
        lock(&self.ambiguous).contains(server)
    }

    /// Returns the number of questions without an answer.
    pub(crate) fn open_questions(&self) -> usize {
        let mut asked = lock(&self.asked);
        asked.retain(|_, asked| asked.is_open());
        asked.len()
    }

    /// Waits for lists of servers that have changed.
    pub(crate) async fn changes(&self) -> HashSet<(Alias, ChangedList)> {
        loop {
            let changed = std::mem::take(&mut *lock(&self.changed));
            if !changed.is_empty() {
                return changed;
            }
            self.changed_notify.notified().await;
        }
    }

    /// Returns the number of open questions to the modern client of a request.
    fn open_questions_of(&self, exchange: &Exchange) -> usize {
        let is_own = |asked: &&Asked| match asked {
            Asked::Exchange { exchange: other, .. } => {
                other.upgrade().is_some_and(|other| other.client.isolation_key == exchange.client.isolation_key)
            }
            Asked::Task(_) => false,
        };
        let mut asked = lock(&self.asked);
        asked.retain(|_, asked| asked.is_open());
        asked.values().filter(is_own).count()
    }

    fn owner(&self, link: LinkKey) -> Option<LinkOwner> {
        lock(&self.links).get(&link).cloned()
    }

    fn in_progress(&self, callers: &[ExchangeKey]) -> Vec<Arc<Exchange>> {
        callers.iter().filter_map(|key| self.exchanges.get(*key)).collect()
    }

    /// Finds the request that a question belongs to.
    fn recipient(&self, question: &Question, owner: Option<&LinkOwner>) -> Recipient {
        let mut exchanges = self.in_progress(&question.callers);
        exchanges.retain(|exchange| exchange.client.capabilities.can_answer(question.method));
        let Some(newest) = exchanges.iter().max_by_key(|exchange| exchange.key).cloned() else {
            let client = owner.and_then(|owner| owner.client.as_ref()?.upgrade());
            let client = client.filter(|client| client.capabilities.can_answer(question.method));
            return client.filter(|client| client.era == Era::Legacy).map_or(Recipient::None, Recipient::Client);
        };
        if exchanges.iter().any(|exchange| exchange.client.isolation_key != newest.client.isolation_key) {
            return Recipient::Ambiguous;
        }
        Recipient::Exchange(newest)
    }

    /// Asks a legacy client in a task of its own.
    fn ask_legacy(&self, question: Question, client: Arc<Client>, exchange: Option<Arc<Exchange>>) {
        let key = (question.link, Box::from(question.id.get()));
        let board = self.own.clone();
        let mut asked = lock(&self.asked);
        let removed = key.clone();
        let task = tokio::spawn(async move {
            let (method, params) = (question.method.as_str(), question.params.clone());
            let answer = match &exchange {
                Some(exchange) => tokio::select! {
                    answer = client.ask(&exchange.outbound, method, &params) => answer,
                    () = exchange.ended() => Err(Unanswered::Gone),
                },
                None => client.ask(&client.outbound, method, &params).await,
            };
            answer_question(question, answer);
            if let Some(board) = board.upgrade() {
                lock(&board.asked).remove(&removed);
            }
        });
        asked.insert(key, Asked::Task(task.abort_handle()));
    }

    /// Delivers a log message to the client that it belongs to, if that client has asked for log messages.
    ///
    /// A message on the stream of a request belongs to that request. Other messages belong to the only client with requests in
    /// progress on the connection or, between requests, to the only client that has ever used it. All others are dropped, because
    /// they could tell one client about the calls of another.
    fn log(&self, owner: &LinkOwner, params: &RawValue, callers: &[ExchangeKey]) {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            level: Cow<'a, str>,
        }
        let message = serde_json::from_str::<Message<'_>>(params.get()).ok();
        // An unknown level is as severe as the most severe one.
        let level = message.and_then(|message| LogLevel::parse(&message.level)).unwrap_or(LogLevel::MAX);
        let frame = || Frame::new(FrameKind::Log, notification("notifications/message", params.get()));
        let mut exchanges = self.in_progress(callers);
        exchanges.sort_by_key(|exchange| exchange.key);
        let Some(newest) = exchanges.last() else {
            if let Some(client) = self.only_user(owner).filter(|client| client.wants_log(level)) {
                client.outbound.send(frame());
            }
            return;
        };
        let client = &newest.client;
        let is_ambiguous = client.is_anonymous && exchanges.len() > 1;
        if is_ambiguous || exchanges.iter().any(|exchange| exchange.client.id != client.id) {
            return tracing::debug!(server = %owner.server, "dropped a log message that could belong to several clients");
        }
        if let Some(exchange) = exchanges.iter().rev().find(|exchange| exchange.wants_log(level)) {
            exchange.outbound.send(frame());
        }
    }

    /// Returns the legacy client that is the only one to have used a connection.
    fn only_user(&self, owner: &LinkOwner) -> Option<Arc<Client>> {
        let Users::One(client) = owner.users else { return None };
        self.clients.get(client)
    }
}

/// The recipient of a question.
enum Recipient {
    /// The request whose client is asked.
    Exchange(Arc<Exchange>),
    /// The only client of a connection, without a request.
    Client(Arc<Client>),
    /// Requests of several clients are in flight.
    Ambiguous,
    /// No client can answer.
    None,
}

/// Passes the answer of a legacy client to the server.
fn answer_question(question: Question, answer: Result<Result<Box<RawValue>, Box<RawValue>>, Unanswered>) {
    match answer {
        Ok(Ok(result)) => question.answer(Ok(&result)),
        Ok(Err(error)) => question.answer(Err(read_error(&error))),
        Err(Unanswered::TooMany) => {
            question.answer(Err(refusal(code::INTERNAL, "too many questions wait for the client")))
        }
        Err(Unanswered::Gone) => question.answer(Err(refusal(code::INTERNAL, "the client is gone"))),
        Err(Unanswered::Stopping) => question.answer(Err(refusal(code::INTERNAL, "the gateway is stopping"))),
    }
}

/// Reads the error object of a client.
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

impl ServerTap for Switchboard {
    fn capabilities(&self, era: Era) -> Value {
        all_capabilities(era)
    }

    fn on_question(&self, question: Question) {
        let owner = self.owner(question.link);
        match self.recipient(&question, owner.as_ref()) {
            Recipient::Exchange(exchange) if self.open_questions_of(&exchange) >= MAX_QUESTIONS => {
                let message = "too many questions wait for the client";
                tracing::debug!(server = ?owner.map(|owner| owner.server), "{message}");
                question.answer(Err(refusal(code::INTERNAL, message)));
            }
            Recipient::Exchange(exchange) if exchange.client.era == Era::Modern => {
                let key = (question.link, Box::from(question.id.get()));
                let is_open = exchange.ask(question);
                lock(&self.asked).insert(key, Asked::Exchange { exchange: Arc::downgrade(&exchange), is_open });
            }
            Recipient::Exchange(exchange) => self.ask_legacy(question, exchange.client.clone(), Some(exchange)),
            Recipient::Client(client) => self.ask_legacy(question, client, None),
            Recipient::Ambiguous => {
                if let Some(LinkOwner { server, .. }) = owner {
                    tracing::warn!(%server, "a question could belong to several clients; clients that can answer now get \
                        connections of their own");
                    lock(&self.ambiguous).insert(server);
                }
                question.answer(Err(refusal(code::INTERNAL, "calls of several clients are in progress")));
            }
            Recipient::None if question.method == QuestionMethod::Roots => {
                let roots = RawValue::from_string(r#"{"roots":[]}"#.to_owned());
                question.answer(roots.as_deref().map_err(|_| refusal(code::INTERNAL, "no roots")));
            }
            Recipient::None => {
                let message = format!("`{}` is not supported by the client", question.method.as_str());
                question.answer(Err(refusal(code::METHOD_NOT_FOUND, message)));
            }
        }
    }

    fn on_withdrawn(&self, link: LinkKey, id: &RawValue) {
        match lock(&self.asked).remove(&(link, Box::from(id.get()))) {
            Some(Asked::Task(task)) => task.abort(),
            Some(Asked::Exchange { exchange, .. }) => {
                if let Some(exchange) = exchange.upgrade() {
                    exchange.withdraw(|question| question.link == link && question.id.get() == id.get());
                }
            }
            None => {}
        }
    }

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Vec<ExchangeKey>) {
        let Some(owner) = self.owner(link) else { return };
        let changed = match method {
            "notifications/tools/list_changed" => Some(ChangedList::Tools),
            "notifications/prompts/list_changed" => Some(ChangedList::Prompts),
            "notifications/resources/list_changed" => Some(ChangedList::Resources),
            _ => None,
        };
        if let Some(list) = changed {
            lock(&self.changed).insert((owner.server, list));
            return self.changed_notify.notify_one();
        }
        match (method, params) {
            ("notifications/resources/updated", Some(params)) => {
                let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
                if let Some(uri) = params["uri"].as_str() {
                    self.subscriptions.notify(&owner.server, uri);
                }
            }
            ("notifications/message", Some(params)) => self.log(&owner, params, &callers),
            // It answers the gateway's own subscription, which may begin during the request of a client.
            ("notifications/subscriptions/acknowledged", _) => {}
            // Other notifications go to the client whose request they belong to, if that is certain.
            (method, params) => {
                if let [exchange] = self.in_progress(&callers).as_slice() {
                    let text = notification(method, params.map_or("{}", RawValue::get));
                    exchange.outbound.send(Frame::new(FrameKind::Log, text));
                }
            }
        }
    }
}

impl Asked {
    fn is_open(&self) -> bool {
        match self {
            Self::Task(task) => !task.is_finished(),
            Self::Exchange { is_open, .. } => is_open.strong_count() > 0,
        }
    }
}

/// The tap of a connection that belongs to one client: it declares what the client has declared.
pub(crate) struct IsolatedTap {
    pub(crate) board: Arc<Switchboard>,
    pub(crate) client: Weak<Client>,
}

impl ServerTap for IsolatedTap {
    fn capabilities(&self, _: Era) -> Value {
        let client = self.client.upgrade();
        client
            .and_then(|client| serde_json::from_str(&client.description.capabilities).ok())
            .unwrap_or_else(|| json!({}))
    }

    fn on_question(&self, question: Question) {
        self.board.on_question(question);
    }

    fn on_withdrawn(&self, link: LinkKey, id: &RawValue) {
        self.board.on_withdrawn(link, id);
    }

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Vec<ExchangeKey>) {
        self.board.on_notification(link, method, params, callers);
    }
}

/// Returns the capabilities of a connection that clients share: everything that one of them may have.
fn all_capabilities(era: Era) -> Value {
    match era {
        Era::Legacy => json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}),
        // A request of a modern client carries its own capabilities.
        Era::Modern => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::client::{ClientDescription, Principal};
    use crate::gateway::exchange::AttachedRequest;
    use crate::mcp::AnswerSink;

    /// Keeps the codes of error answers.
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

    #[test]
    fn open_questions_of_a_modern_client_are_limited() {
        let exchanges = Arc::<Exchanges>::default();
        let board = Switchboard::new(Arc::default(), exchanges.clone(), Arc::default());
        let [first, second, other] = [1, 1, 2].map(|key| {
            let id = RawValue::from_string("1".to_owned()).expect("an id");
            Exchange::new(modern_client(key), AttachedRequest { id, token: None, log_level: None, running: None })
        });
        let _in_progress = [&first, &second, &other].map(|exchange| exchanges.enter(exchange));
        let refusals = Refusals::default();
        let mut number = 0;
        let mut ask = |exchange: &Exchange| {
            number += 1;
            let id = RawValue::from_string(number.to_string()).expect("an id");
            let params = RawValue::from_string("{}".to_owned()).expect("params");
            let answer = Box::new(refusals.clone());
            let link = (LinkKey(1), id);
            board.on_question(Question::new(link, QuestionMethod::Sample, params, vec![exchange.key], answer));
            lock(&refusals.0).len()
        };
        for _ in 0..MAX_QUESTIONS / 2 {
            assert_eq!((ask(&first), ask(&second)), (0, 0));
        }
        assert_eq!(ask(&first), 1, "both requests are of the same client");
        assert_eq!(*lock(&refusals.0), [code::INTERNAL]);
        assert_eq!(ask(&other), 1);
        assert_eq!(board.open_questions(), MAX_QUESTIONS + 1);
        // Questions without an answer are refused when they are dropped.
        assert!(second.withdraw(|_| true));
        let refused = 1 + MAX_QUESTIONS / 2;
        assert_eq!(ask(&first), refused, "answered questions do not count, although their request goes on");
        assert_eq!(board.open_questions(), MAX_QUESTIONS / 2 + 2);
    }
}
