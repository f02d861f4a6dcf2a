//! Routes what servers send outside of responses: questions and notifications, to the clients that they belong to.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::client::{Client, LogLevel, MAX_QUESTIONS, Unanswered};
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
}

/// Where a question of a server has gone.
enum Asked {
    /// A task waits for the answer of a legacy client.
    Task(AbortHandle),
    /// The question is part of the next response to a modern client.
    Exchange(Weak<Exchange>),
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
        let owner = LinkOwner { server: server.clone(), client: client.map(Arc::downgrade) };
        lock(&self.links).insert(link, owner);
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
            Asked::Exchange(other) => {
                other.upgrade().is_some_and(|other| other.client.isolation_key == exchange.client.isolation_key)
            }
            Asked::Task(_) => false,
        };
        lock(&self.asked).values().filter(is_own).count()
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

    /// Delivers a log message to the clients that it can belong to.
    fn log(&self, owner: &LinkOwner, params: &RawValue, callers: &[ExchangeKey]) {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            level: Cow<'a, str>,
        }
        let message = serde_json::from_str::<Message<'_>>(params.get()).ok();
        // An unknown level is as severe as the most severe one.
        let level = message.and_then(|message| LogLevel::parse(&message.level)).unwrap_or(LogLevel::MAX);
        let text = notification("notifications/message", params.get());
        let mut exchanges = self.in_progress(callers);
        exchanges.sort_by_key(|exchange| exchange.key);
        if exchanges.iter().any(|exchange| exchange.client.principal != exchanges[0].client.principal) {
            return tracing::debug!(server = %owner.server, "dropped a log message that could belong to several clients");
        }
        if exchanges.is_empty() {
            let client = owner.client.as_ref().and_then(Weak::upgrade);
            let clients = client.map_or_else(|| self.clients.legacy(), |client| vec![client]);
            for client in clients.into_iter().filter(|client| client.log_level() <= level) {
                client.outbound.send(Frame::new(FrameKind::Log, text.clone()));
            }
            return;
        }
        let mut informed = HashSet::new();
        for exchange in exchanges.iter().rev().filter(|exchange| exchange.wants_log(level)) {
            if informed.insert(exchange.client.id) {
                exchange.outbound.send(Frame::new(FrameKind::Log, text.clone()));
            }
        }
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
                let mut asked = lock(&self.asked);
                asked.retain(|_, asked| asked.is_open());
                asked.insert(key, Asked::Exchange(Arc::downgrade(&exchange)));
                drop(asked);
                exchange.ask(question);
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
            Some(Asked::Exchange(exchange)) => {
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
            Self::Exchange(exchange) => exchange.strong_count() > 0,
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
