//! Routes questions and notifications of servers to the clients that they belong to.

mod notifications;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::client::{Client, ClientId, MAX_QUESTIONS, Unanswered};
use super::clients::{ChangedList, Clients};
use super::exchange::Exchange;
use super::exchanges::Exchanges;
use super::link_users::LinkUsers;
use super::seal::KeyRing;
use super::subscriptions::Subscriptions;
use super::task_ids::{with_own_task, with_sealed_task};
use crate::mcp::{Callers, ExchangeKey, LinkKey, Question, QuestionMethod, ServerTap};
use crate::protocol::{Era, RpcError, code};
use crate::sync::lock;
use crate::tool::Alias;

/// Maximum number of questions of all servers without an answer.
const MAX_OPEN_QUESTIONS: usize = 4096;

/// A connection to a server.
struct LinkOwner {
    server: Alias,
    /// The only client of an isolated connection.
    client: Option<Weak<Client>>,
    users: LinkUsers,
}

/// The state of a connection when a message arrives.
struct LinkView {
    server: Alias,
    /// The only client of an isolated connection.
    client: Option<Weak<Client>>,
    /// Whether a message without a request can belong to several clients.
    is_shared: bool,
    /// The only client that has ever used the connection.
    only_user: Option<ClientId>,
}

/// A request of a client on a connection. Dropping it ends the request.
pub(crate) struct LinkUse {
    board: Arc<Switchboard>,
    link: LinkKey,
    isolation_key: u64,
    is_answered: AtomicBool,
}

impl LinkUse {
    /// Records whether the server has answered all requests.
    pub(crate) fn set_answered(&self, is_answered: bool) {
        self.is_answered.store(is_answered, Ordering::Relaxed);
    }
}

impl Drop for LinkUse {
    fn drop(&mut self) {
        let is_answered = self.is_answered.load(Ordering::Relaxed);
        if let Some(owner) = lock(&self.board.links).get_mut(&self.link) {
            owner.users.end(self.isolation_key, is_answered);
        }
    }
}

/// The destination of a question of a server.
enum Asked {
    /// A task waits for the answer of a legacy client.
    Task(AbortHandle),
    /// The question is part of the next response to a modern client, and `is_open` is alive until it is answered.
    Exchange { exchange: Weak<Exchange>, is_open: Weak<()> },
}

/// Connects servers with clients for everything but responses.
pub(crate) struct Switchboard {
    own: Weak<Self>,
    /// Identifies the gateway, so that it does not connect to itself.
    gateway_id: String,
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
    /// Seals the ids of tasks that messages belong to.
    keys: OnceLock<Arc<KeyRing>>,
}

impl Switchboard {
    pub(crate) fn new(
        clients: Arc<Clients>,
        exchanges: Arc<Exchanges>,
        subscriptions: Arc<Subscriptions>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            gateway_id: format!("{:032x}", fastrand::u128(..)),
            clients,
            exchanges,
            subscriptions,
            links: Mutex::default(),
            asked: Mutex::default(),
            ambiguous: Mutex::default(),
            changed: Mutex::default(),
            changed_notify: Notify::new(),
            keys: OnceLock::new(),
        })
    }

    /// Sets the keys that seal the ids of tasks.
    pub(crate) fn set_keys(&self, keys: Arc<KeyRing>) {
        // A gateway sets them once.
        let _ = self.keys.set(keys);
    }

    /// Returns the params of a message with the task id that its recipient knows.
    fn with_sealed_task(&self, client: &Client, server: &Alias, params: &RawValue) -> Option<Box<RawValue>> {
        with_sealed_task(self.keys.get()?, &client.principal, server, params)
    }

    /// Records which server a connection leads to, and its only client if it is isolated.
    pub(crate) fn add_link(&self, link: LinkKey, server: &Alias, client: Option<&Arc<Client>>) {
        let mut links = lock(&self.links);
        let users = links.remove(&link).map(|owner| owner.users).unwrap_or_default();
        links.insert(link, LinkOwner { server: server.clone(), client: client.map(Arc::downgrade), users });
    }

    /// Records that a client sends a request on a connection, until the guard is dropped.
    pub(crate) fn use_link(&self, link: LinkKey, client: &Client) -> Option<LinkUse> {
        let board = self.own.upgrade()?;
        lock(&self.links).get_mut(&link)?.users.begin(client);
        Some(LinkUse { board, link, isolation_key: client.isolation_key, is_answered: AtomicBool::new(true) })
    }

    /// Removes a connection.
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

    /// Refuses a question to the client of a request if too many are open, or if the server has asked the user too often during
    /// the request.
    fn check_limits(&self, question: &Question, exchange: &Exchange) -> Result<(), RpcError> {
        let is_own = |asked: &&Asked| match asked {
            Asked::Exchange { exchange: other, .. } => other.upgrade().is_some_and(|other| other.key == exchange.key),
            Asked::Task(_) => false,
        };
        if self.open_questions() >= MAX_OPEN_QUESTIONS
            || lock(&self.asked).values().filter(is_own).count() >= MAX_QUESTIONS
        {
            return Err(too_many_open());
        }
        match question.method {
            QuestionMethod::Elicit { .. } if !exchange.take_elicitation(question.limit) => {
                Err(too_many_elicitations(question.limit))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a question to the client of a connection, without a request, if there were too many of them.
    fn check_unprompted(&self, question: &Question) -> Result<(), RpcError> {
        if self.open_questions() >= MAX_OPEN_QUESTIONS {
            return Err(too_many_open());
        }
        let mut links = lock(&self.links);
        let is_allowed = match (question.method, links.get_mut(&question.link)) {
            (QuestionMethod::Elicit { .. }, Some(owner)) => owner.users.take_unprompted(question.limit),
            _ => true,
        };
        if is_allowed { Ok(()) } else { Err(too_many_elicitations(question.limit)) }
    }

    fn link(&self, link: LinkKey) -> Option<LinkView> {
        let links = lock(&self.links);
        let LinkOwner { server, client, users } = links.get(&link)?;
        let (server, client) = (server.clone(), client.clone());
        Some(LinkView { server, client, is_shared: users.is_shared(), only_user: users.only() })
    }

    fn in_progress(&self, callers: &[ExchangeKey]) -> Vec<Arc<Exchange>> {
        callers.iter().filter_map(|key| self.exchanges.get(*key)).collect()
    }

    /// Finds the request that a question belongs to. A question that can belong to several clients has no recipient, whether or
    /// not they can answer it.
    fn recipient(&self, question: &Question, link: Option<&LinkView>) -> Recipient {
        let Callers { keys, is_certain } = &question.callers;
        let mut exchanges = self.in_progress(keys);
        let is_other = |exchange: &Arc<Exchange>| exchange.client.id != exchanges[0].client.id;
        if (!is_certain && link.is_some_and(|link| link.is_shared)) || exchanges.iter().any(is_other) {
            return Recipient::Ambiguous;
        }
        exchanges.retain(|exchange| exchange.client.capabilities.can_answer(question.method));
        if let Some(newest) = exchanges.into_iter().max_by_key(|exchange| exchange.key) {
            return Recipient::Exchange(newest);
        }
        let client = link.and_then(|link| link.client.as_ref()?.upgrade());
        let can_answer = |client: &Arc<Client>| client.capabilities.can_answer(question.method);
        let client = client.filter(|client| can_answer(client) && client.era == Era::Legacy);
        client.map_or(Recipient::None, Recipient::Client)
    }

    /// Asks a legacy client in a separate task.
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
            // The server may use the id again as soon as it has the answer.
            let mut answer = answer;
            if let Some(board) = board.upgrade() {
                lock(&board.asked).remove(&removed);
                if let (Some(keys), Ok(Ok(result))) = (board.keys.get(), &mut answer)
                    && let Some(own) = with_own_task(keys, &client.principal, result)
                {
                    *result = own;
                }
            }
            answer_question(question, answer);
        });
        asked.insert(key, Asked::Task(task.abort_handle()));
    }
}

/// The recipient of a question.
enum Recipient {
    /// The request whose client is asked.
    Exchange(Arc<Exchange>),
    /// The only client of a connection, without a request.
    Client(Arc<Client>),
    /// Several clients use the connection.
    Ambiguous,
    /// No client can answer.
    None,
}

/// Passes the answer of a legacy client to the server.
fn answer_question(question: Question, answer: Result<Result<Box<RawValue>, Box<RawValue>>, Unanswered>) {
    match answer {
        Ok(Ok(result)) => question.answer(Ok(&result)),
        Ok(Err(error)) => question.answer(Err(read_error(&error))),
        Err(Unanswered::TooMany) => question.answer(Err(too_many_open())),
        Err(Unanswered::Gone) => question.answer(Err(refusal(code::INTERNAL, "the client disconnected"))),
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

fn too_many_open() -> RpcError {
    refusal(code::INTERNAL, "too many questions are waiting for the client")
}

fn too_many_elicitations(limit: usize) -> RpcError {
    refusal(code::INTERNAL, format!("too many questions: at most {limit} per call"))
}

/// Answers a question without a recipient, as a client without the capability would.
fn refuse(question: Question, reason: &str) {
    if question.method == QuestionMethod::Roots {
        let roots = RawValue::from_string(r#"{"roots":[]}"#.to_owned());
        return question.answer(roots.as_deref().map_err(|_| refusal(code::INTERNAL, "no roots")));
    }
    let message = format!("`{}` is not supported{reason}", question.method.as_str());
    question.answer(Err(refusal(code::METHOD_NOT_FOUND, message)));
}

impl ServerTap for Switchboard {
    fn gateway_id(&self) -> &str {
        &self.gateway_id
    }

    fn capabilities(&self, era: Era) -> Value {
        all_capabilities(era)
    }

    fn on_question(&self, mut question: Question) {
        let link = self.link(question.link);
        let recipient = self.recipient(&question, link.as_ref());
        let client = match &recipient {
            Recipient::Exchange(exchange) => Some(&exchange.client),
            Recipient::Client(client) => Some(client),
            Recipient::Ambiguous | Recipient::None => None,
        };
        if let (Some(client), Some(link)) = (client, &link)
            && let Some(sealed) = self.with_sealed_task(client, &link.server, &question.params)
        {
            question.params = sealed;
        }
        let checked = match &recipient {
            Recipient::Exchange(exchange) => self.check_limits(&question, exchange),
            Recipient::Client(_) => self.check_unprompted(&question),
            Recipient::Ambiguous | Recipient::None => Ok(()),
        };
        if let Err(error) = checked {
            tracing::debug!(server = ?link.map(|link| link.server), "{}", error.message);
            return question.answer(Err(error));
        }
        match recipient {
            Recipient::Exchange(exchange) if exchange.client.era == Era::Modern => {
                let key = (question.link, Box::from(question.id.get()));
                let is_open = exchange.ask(question);
                lock(&self.asked).insert(key, Asked::Exchange { exchange: Arc::downgrade(&exchange), is_open });
            }
            Recipient::Exchange(exchange) => self.ask_legacy(question, exchange.client.clone(), Some(exchange)),
            Recipient::Client(client) => self.ask_legacy(question, client, None),
            Recipient::Ambiguous => {
                if let Some(LinkView { server, .. }) = link
                    && lock(&self.ambiguous).insert(server.clone())
                {
                    tracing::warn!(%server, "refused a question that could belong to several clients; set `isolation: client` \
                        for the server");
                }
                refuse(question, ": several clients use the connection");
            }
            Recipient::None => refuse(question, " by the client"),
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

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Callers) {
        self.route_notification(link, method, params, &callers);
    }
}

impl Asked {
    fn is_open(&self) -> bool {
        match self {
            Self::Task(task) => !task.is_finished(),
            Self::Exchange { exchange, is_open } => {
                is_open.strong_count() > 0 && exchange.upgrade().is_some_and(|exchange| !exchange.has_ended())
            }
        }
    }
}

/// The tap of a connection that belongs to one client: it declares the capabilities of the client.
pub(crate) struct IsolatedTap {
    pub(crate) board: Arc<Switchboard>,
    pub(crate) client: Weak<Client>,
}

impl ServerTap for IsolatedTap {
    fn gateway_id(&self) -> &str {
        self.board.gateway_id()
    }

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

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Callers) {
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

    fn sample(number: u64, exchange: &Exchange, answer: &Refusals) -> Question {
        let id = RawValue::from_string(number.to_string()).expect("an id");
        let params = RawValue::from_string("{}".to_owned()).expect("params");
        let callers = Callers { keys: vec![exchange.key], is_certain: false };
        Question::new((LinkKey(1), id), QuestionMethod::Sample, params, (callers, 10), Box::new(answer.clone()))
    }

    #[test]
    fn open_questions_of_a_modern_call_are_limited() {
        let exchanges = Arc::<Exchanges>::default();
        let board = Switchboard::new(Arc::default(), exchanges.clone(), Arc::default());
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
            board.on_question(sample(number, exchange, &refusals));
            lock(&refusals.0).len()
        };
        for _ in 0..MAX_QUESTIONS {
            assert_eq!(ask(&first), 0);
        }
        assert_eq!(ask(&first), 1);
        assert_eq!(*lock(&refusals.0), [code::INTERNAL]);
        for _ in 0..MAX_QUESTIONS - 1 {
            assert_eq!(ask(&second), 1, "another call of a client with the same description");
        }
        assert_eq!(board.open_questions(), 2 * MAX_QUESTIONS - 1);
        // Questions without an answer are refused when they are dropped.
        assert!(second.withdraw(|_| true));
        assert_eq!(ask(&second), MAX_QUESTIONS, "answered questions do not count, although their request goes on");
        assert_eq!(board.open_questions(), MAX_QUESTIONS + 1);
        drop(in_progress);
        assert_eq!(board.open_questions(), 1, "a call has ended");
    }
}
