//! One client's conversation: from what is heard to what is to be done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::script::{PagingStyle, SupportedEras, UnknownMethods};
use super::scripted::{Prod, ScriptedServer};
use super::spoil::spoil;
use super::task::TaskState;
use super::{shelf, tools};

pub(super) const MODERN: &str = "2026-07-28";
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The era that a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Modern,
}

/// Something to be done, this long after what comes before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Action {
    pub(super) after: Duration,
    pub(super) deed: Deed,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    /// Say a message; `to` is the request that it belongs to, if any.
    Say { text: String, to: Option<Value>, answer: bool },
    /// Write bytes that are no message.
    Raw { bytes: Vec<u8>, to: Option<Value> },
    /// Nothing more will be said to this request.
    Done { to: Value },
    /// Whatever is still to be done for this request is not to be done.
    Cancel { to: Value },
    /// Write so much to stderr.
    Stderr { bytes: usize },
    /// Write this line to stderr.
    StderrLine(String),
    /// Close the output and live on.
    CloseOutput,
    /// End.
    Exit(i32),
}

/// A request of the client's, with what is needed to answer it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    pub(super) era: Era,
    pub(super) version: String,
    pub(super) capabilities: Value,
    faults: Vec<Fault>,
}

impl Call {
    pub(super) fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    pub(super) fn progress_token(&self) -> Option<&Value> {
        self.meta("progressToken")
    }

    fn text(&self, key: &str) -> &str {
        self.params.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// What comes of a request.
pub(super) enum Outcome {
    /// This result.
    Answer(Value),
    /// This result, with nothing added to it.
    Raw(Value),
    /// This error.
    Refuse(Refusal),
    /// Waits and notifications, then this result.
    Steps { before: Vec<(Duration, Option<Value>)>, answer: Value },
    /// The client is asked first.
    Ask(Ask),
    /// No answer.
    Silence,
    /// The server ends.
    Exit(i32),
}

/// An error of the protocol.
pub(super) struct Refusal {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(super) fn message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

/// What a tool wants to know from the client before it answers.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) capability: &'static str,
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) rounds: u64,
}

/// A question that the client has not answered yet.
struct Asked {
    call: Call,
    ask: Ask,
    answers: Vec<Value>,
}

/// A `subscriptions/listen` that is open.
struct Listening {
    call: Call,
    wanted: Value,
}

/// What `initialize` agreed on.
struct Agreed {
    version: String,
    capabilities: Value,
}

/// One client's conversation.
pub(super) struct Session {
    scripted: ScriptedServer,
    /// Does every legacy request need an `initialize` before it?
    remembers: bool,
    agreed: Option<Agreed>,
    settled: Option<Era>,
    subscribed: HashSet<String>,
    listening: Vec<Listening>,
    asked: HashMap<String, Asked>,
    questions: u64,
}

impl Session {
    /// A conversation that goes on from message to message.
    pub(super) fn new(scripted: ScriptedServer) -> Self {
        Self {
            scripted,
            remembers: true,
            agreed: None,
            settled: None,
            subscribed: HashSet::new(),
            listening: Vec::new(),
            asked: HashMap::new(),
            questions: 0,
        }
    }

    /// A conversation of one message.
    pub(super) fn stateless(scripted: ScriptedServer) -> Self {
        Self { remembers: false, ..Self::new(scripted) }
    }

    /// What is done before anything is heard.
    pub(super) fn open(&mut self) -> Vec<Action> {
        let faults = self.scripted.faults("connect", None);
        spoil(&faults, None, None, None)
    }

    /// What is done about a message.
    pub(super) fn hear(&mut self, message: Value, faults: Vec<Fault>) -> Vec<Action> {
        if !message.is_object() {
            let code = if message.is_array() { -32600 } else { -32700 };
            let refusal = Refusal::new(code, "not one message of JSON-RPC").message(&Value::Null);
            return vec![say(&refusal, None, true)];
        }
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return self.hear_answer(&message);
        };
        let params = message["params"].as_object().cloned().unwrap_or_default();
        let Some(id) = message.get("id").cloned() else {
            return self.hear_notification(&method, &params, &faults);
        };
        let mut call =
            Call { id, method, params, era: Era::Legacy, version: String::new(), capabilities: Value::Null, faults };
        let outcome = match self.place(&mut call) {
            Ok(()) => self.outcome(&call),
            Err(refusal) => refusal.into(),
        };
        self.deliver(call, outcome)
    }

    /// What is done because the test says so.
    pub(super) fn prod(&mut self, prod: Prod) -> Vec<Action> {
        match prod {
            Prod::Push(message) => vec![say(&message, None, false)],
            Prod::Changed(list) => {
                let wanted = format!("{list}ListChanged");
                let message = json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") });
                self.tell(message, true, |filter| filter[&wanted] == true)
            }
            Prod::Touched(uri) => {
                let subscribed = self.subscribed.contains(&uri);
                let message =
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } });
                self.tell(message, subscribed, |filter| {
                    filter["resourceSubscriptions"].as_array().is_some_and(|uris| uris.iter().any(|it| *it == uri))
                })
            }
            Prod::EndListening => {
                let listening = std::mem::take(&mut self.listening);
                listening.into_iter().flat_map(|it| self.end_listening(it.call)).collect()
            }
        }
    }

    /// What is done when a client has gone away from a request, or has said that it no longer wants it.
    pub(super) fn cancel(&mut self, id: &Value) -> Vec<Action> {
        self.scripted.record_cancelled(id.clone());
        self.listening.retain(|listening| listening.call.id != *id);
        self.asked.retain(|_, asked| asked.call.id != *id);
        vec![now(Deed::Cancel { to: id.clone() }), now(Deed::Done { to: id.clone() })]
    }

    /// Tells a change to a legacy client, and to the modern subscriptions that want to know.
    fn tell(&self, message: Value, legacy: bool, wanted: impl Fn(&Value) -> bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if legacy && self.agreed.is_some() {
            actions.push(say(&message, None, false));
        }
        for listening in self.listening.iter().filter(|listening| wanted(&listening.wanted)) {
            let mut message = message.clone();
            if message.get("params").is_none() {
                message["params"] = json!({});
            }
            message["params"]["_meta"] = json!({ SUBSCRIPTION: listening.call.id });
            actions.push(say(&message, Some(&listening.call.id), false));
        }
        actions
    }

    /// Finds out which era and version a request is in, and whether that is spoken here.
    fn place(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let script = self.scripted.script();
        let version = call.meta(VERSION).and_then(Value::as_str).map(str::to_owned);
        call.era = match script.eras {
            SupportedEras::Both if version.is_some() => Era::Modern,
            SupportedEras::Modern => Era::Modern,
            SupportedEras::Both | SupportedEras::Legacy => Era::Legacy,
        };
        if script.first_message_settles_era && *self.settled.get_or_insert(call.era) != call.era {
            return Err(match call.era {
                Era::Legacy => unsupported(call.text("protocolVersion")),
                Era::Modern => Refusal::new(-32601, format!("unknown method `{}`", call.method)),
            });
        }
        match (call.era, version) {
            (Era::Legacy, _) => self.place_legacy(call),
            (Era::Modern, None) if call.method == "initialize" => Err(unsupported(call.text("protocolVersion"))),
            (Era::Modern, None) => Err(Refusal::new(-32602, format!("`_meta` has no `{VERSION}`"))),
            (Era::Modern, Some(version)) if version != MODERN => Err(unsupported(&version)),
            (Era::Modern, Some(version)) => {
                let capabilities = call.meta(CAPABILITIES).filter(|capabilities| capabilities.is_object()).cloned();
                let missing = || Refusal::new(-32602, format!("`_meta` has no `{CAPABILITIES}`"));
                call.capabilities = capabilities.ok_or_else(missing)?;
                call.version = version;
                Ok(())
            }
        }
    }

    fn place_legacy(&self, call: &mut Call) -> Result<(), Refusal> {
        match &self.agreed {
            Some(agreed) => {
                call.version.clone_from(&agreed.version);
                call.capabilities = agreed.capabilities.clone();
                Ok(())
            }
            // The probe of a modern client is an unknown method like any other.
            None if !self.remembers || ["initialize", "ping", "server/discover"].contains(&call.method.as_str()) => {
                Ok(())
            }
            None => Err(Refusal::new(-32600, "`initialize` must come first")),
        }
    }

    fn outcome(&mut self, call: &Call) -> Outcome {
        match (call.method.as_str(), call.era) {
            ("initialize", Era::Legacy) => self.initialize(call),
            ("ping", Era::Legacy) | ("logging/setLevel", Era::Legacy) => Outcome::Answer(json!({})),
            ("server/discover", Era::Modern) => self.discover(),
            ("tools/list", _) => {
                let script = self.scripted.script();
                let builtin =
                    if script.builtin_tools { tools::definitions(call.era, &call.version) } else { Vec::new() };
                let extra = script.extra_tools.into_iter().map(|tool| tool.definition);
                self.page(call, "tools", builtin.into_iter().chain(extra).collect())
            }
            ("tools/call", _) => tools::call(&self.scripted, call),
            ("resources/list", _) => self.page(call, "resources", shelf::resources()),
            ("resources/templates/list", _) => self.page(call, "resourceTemplates", shelf::templates()),
            ("resources/read", _) => {
                let code = if call.era == Era::Modern { -32602 } else { -32002 };
                let unknown = || Refusal::new(code, "resource not found").with(json!({ "uri": call.text("uri") }));
                shelf::read(call.text("uri")).map_or_else(|| unknown().into(), Outcome::Answer)
            }
            ("resources/subscribe", Era::Legacy) => {
                self.subscribed.insert(call.text("uri").to_owned());
                Outcome::Answer(json!({}))
            }
            ("resources/unsubscribe", Era::Legacy) => {
                self.subscribed.remove(call.text("uri"));
                Outcome::Answer(json!({}))
            }
            ("prompts/list", _) => self.page(call, "prompts", shelf::prompts()),
            ("prompts/get", _) => {
                let arguments = call.params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
                let unknown = || Refusal::new(-32602, "no such prompt, or an argument is missing");
                shelf::prompt(call.text("name"), &arguments).map_or_else(|| unknown().into(), Outcome::Answer)
            }
            ("completion/complete", _) => Outcome::Answer(shelf::complete(&call.params)),
            ("subscriptions/listen", Era::Modern) => {
                let wanted = call.params.get("notifications").cloned().unwrap_or_else(|| json!({}));
                self.listening.push(Listening { call: call.clone(), wanted: wanted.clone() });
                Outcome::Silence
            }
            ("tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" | "tasks/list", _) => self.task(call),
            _ => match self.scripted.script().unknown_methods {
                UnknownMethods::MethodNotFound => {
                    Refusal::new(-32601, format!("unknown method `{}`", call.method)).into()
                }
                UnknownMethods::InvalidParams => Refusal::new(-32602, "Invalid request parameters").into(),
                UnknownMethods::Silence => Outcome::Silence,
                UnknownMethods::Exit => Outcome::Exit(1),
            },
        }
    }

    fn initialize(&mut self, call: &Call) -> Outcome {
        let script = self.scripted.script();
        let asked_for = call.text("protocolVersion");
        let version = script.legacy_versions.iter().find(|version| *version == asked_for);
        let version = version.or(script.legacy_versions.first()).cloned().unwrap_or_default();
        let mut capabilities = capabilities();
        capabilities["logging"] = json!({});
        if version == "2025-11-25" {
            capabilities["tasks"] = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        let mut result = json!({ "protocolVersion": version, "capabilities": capabilities,
            "serverInfo": { "name": script.name, "version": "1.0.0" } });
        if let Some(instructions) = script.instructions {
            result["instructions"] = json!(instructions);
        }
        let capabilities = call.params.get("capabilities").cloned().unwrap_or_default();
        self.agreed = Some(Agreed { version, capabilities });
        Outcome::Answer(result)
    }

    fn discover(&self) -> Outcome {
        let script = self.scripted.script();
        let mut capabilities = capabilities();
        capabilities["extensions"] = json!({ TASKS: {} });
        let mut result = json!({ "supportedVersions": [MODERN], "capabilities": capabilities });
        if let Some(instructions) = script.instructions {
            result["instructions"] = json!(instructions);
        }
        Outcome::Answer(result)
    }

    /// One page of a list.
    fn page(&self, call: &Call, key: &str, items: Vec<Value>) -> Outcome {
        let script = self.scripted.script();
        let size = script.page_size.unwrap_or(usize::MAX).max(1);
        let page = match call.params.get("cursor") {
            None => Some(0),
            Some(Value::String(cursor)) => cursor.strip_prefix("page-").and_then(|page| page.parse().ok()),
            Some(cursor) => cursor.as_u64().and_then(|page| usize::try_from(page).ok()),
        };
        let Some(page) = page else {
            return Refusal::new(-32602, "no such cursor").into();
        };
        let endless = matches!(script.paging, PagingStyle::Endless | PagingStyle::Repeated);
        let begin = if endless { 0 } else { page.saturating_mul(size) };
        let shown: Vec<Value> = items.iter().skip(begin).take(size).cloned().collect();
        let mut result = json!({ key: shown });
        if endless || begin.saturating_add(size) < items.len() {
            result["nextCursor"] = match script.paging {
                PagingStyle::Repeated => json!("page-1"),
                PagingStyle::NumericCursors => json!(page + 1),
                PagingStyle::Honest | PagingStyle::Endless => json!(format!("page-{}", page + 1)),
            };
        }
        Outcome::Answer(result)
    }

    fn task(&self, call: &Call) -> Outcome {
        if call.method == "tasks/list" {
            let tasks: Vec<Value> = self.scripted.tasks(|tasks| tasks.values().map(|task| task.legacy()).collect());
            return Outcome::Answer(json!({ "tasks": tasks }));
        }
        let task = self.scripted.tasks(|tasks| {
            let task = tasks.get_mut(call.text("taskId"))?;
            match call.method.as_str() {
                "tasks/cancel" => task.state = TaskState::Cancelled,
                "tasks/update" if task.state == TaskState::Asking => task.state = TaskState::Running,
                _ => {}
            }
            Some(task.clone())
        });
        let Some(task) = task else {
            return Refusal::new(-32602, format!("no task `{}`", call.text("taskId"))).into();
        };
        match (call.method.as_str(), call.era) {
            ("tasks/get", Era::Modern) => Outcome::Answer(task.modern_detailed()),
            ("tasks/cancel" | "tasks/update", Era::Modern) => Outcome::Answer(json!({})),
            ("tasks/get" | "tasks/cancel", Era::Legacy) => Outcome::Answer(task.legacy()),
            ("tasks/result", Era::Legacy) => match task.state {
                TaskState::Cancelled => Refusal::new(-32602, "the task was cancelled").into(),
                TaskState::Failing => Refusal::new(-32603, "the task failed").into(),
                TaskState::Running | TaskState::Asking => {
                    let mut answer = task.result.clone();
                    answer["_meta"] = json!({ "io.modelcontextprotocol/related-task": { "taskId": task.id } });
                    Outcome::Steps { before: vec![(task.remaining(), None)], answer }
                }
            },
            _ => Refusal::new(-32601, format!("unknown method `{}`", call.method)).into(),
        }
    }

    /// From what comes of a request to what is done.
    fn deliver(&mut self, call: Call, outcome: Outcome) -> Vec<Action> {
        match outcome {
            Outcome::Answer(result) => finish(&call, self.complete(&call, result)),
            Outcome::Raw(result) => finish(&call, json!({ "jsonrpc": "2.0", "id": call.id, "result": result })),
            Outcome::Refuse(refusal) => finish(&call, refusal.message(&call.id)),
            Outcome::Steps { before, answer } => {
                let mut wait = Duration::ZERO;
                let mut actions = Vec::new();
                for (after, message) in before {
                    wait += after;
                    if let Some(message) = message {
                        let deed = say(&message, Some(&call.id), false).deed;
                        actions.push(Action { after: std::mem::take(&mut wait), deed });
                    }
                }
                let mut last = finish(&call, self.complete(&call, answer));
                if let Some(first) = last.first_mut() {
                    first.after += wait;
                }
                actions.extend(last);
                actions
            }
            Outcome::Ask(ask) => self.ask(call, ask),
            Outcome::Silence if call.method == "subscriptions/listen" => {
                let wanted = call.params.get("notifications").cloned().unwrap_or_else(|| json!({}));
                let acknowledged = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": { "_meta": { SUBSCRIPTION: call.id }, "notifications": wanted } });
                let mut actions = vec![say(&acknowledged, Some(&call.id), false)];
                actions.extend(spoil(&call.faults, Some(&call.id), None, None));
                actions
            }
            Outcome::Silence => spoil(&call.faults, Some(&call.id), None, None),
            Outcome::Exit(code) => vec![now(Deed::Exit(code))],
        }
    }

    /// The answer, with what the modern era wants in every result.
    fn complete(&self, call: &Call, mut result: Value) -> Value {
        if call.era == Era::Modern {
            let script = self.scripted.script();
            if result.get("resultType").is_none() {
                result["resultType"] = json!("complete");
            }
            if call.method == "server/discover" || call.method == "resources/read" || call.method.ends_with("/list") {
                result["ttlMs"] = json!(script.ttl_ms);
                result["cacheScope"] = json!("private");
            }
            if result.get("_meta").is_none() {
                result["_meta"] = json!({});
            }
            result["_meta"][SERVER_INFO] = json!({ "name": script.name, "version": "1.0.0" });
        }
        json!({ "jsonrpc": "2.0", "id": call.id, "result": result })
    }

    fn ask(&mut self, call: Call, ask: Ask) -> Vec<Action> {
        if call.capabilities.get(ask.capability).is_none() {
            let outcome = match call.era {
                Era::Legacy => Outcome::Answer(json!({ "isError": true, "content": [
                    { "type": "text", "text": format!("the client does not offer {}", ask.capability) }] })),
                Era::Modern => Refusal::new(-32021, format!("the client does not offer `{}`", ask.capability))
                    .with(json!({ "requiredCapabilities": { ask.capability: {} } }))
                    .into(),
            };
            return self.deliver(call, outcome);
        }
        if call.era == Era::Legacy {
            return self.question(Asked { call, ask, answers: Vec::new() });
        }
        // The rounds so far are in the state that comes back with the retry.
        let state = call.text("requestState");
        let round = if state.is_empty() { 0 } else { state.trim_start_matches("round-").parse().unwrap_or(u64::MAX) };
        let answer = call.params.get("inputResponses").and_then(|responses| responses.get("answer"));
        let outcome = match (round, answer) {
            (u64::MAX, _) => Refusal::new(-32602, "`requestState` is not one that was given out").into(),
            (1.., None) => Refusal::new(-32602, "`inputResponses` has no `answer`").into(),
            (round, Some(answer)) if round >= ask.rounds => Outcome::Answer(tools::text(&answer.to_string())),
            (round, _) => Outcome::Answer(json!({
                "resultType": "input_required", "requestState": format!("round-{}", round + 1),
                "inputRequests": { "answer": { "method": ask.method, "params": ask.params } },
            })),
        };
        self.deliver(call, outcome)
    }

    /// Asks the client, in the legacy era.
    fn question(&mut self, asked: Asked) -> Vec<Action> {
        self.questions += 1;
        let id = json!(format!("question-{}", self.questions));
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": asked.ask.method, "params": asked.ask.params });
        let action = say(&message, Some(&asked.call.id), false);
        self.asked.insert(id.to_string(), asked);
        vec![action]
    }

    fn hear_answer(&mut self, message: &Value) -> Vec<Action> {
        let Some(mut asked) = self.asked.remove(&message["id"].to_string()) else {
            return Vec::new();
        };
        if let Some(error) = message.get("error") {
            let result = json!({ "isError": true, "content": [{ "type": "text", "text": error.to_string() }] });
            return self.deliver(asked.call, Outcome::Answer(result));
        }
        asked.answers.push(message["result"].clone());
        if (asked.answers.len() as u64) < asked.ask.rounds {
            return self.question(asked);
        }
        self.deliver(asked.call, Outcome::Answer(tools::text(&message["result"].to_string())))
    }

    fn hear_notification(&mut self, method: &str, params: &Map<String, Value>, faults: &[Fault]) -> Vec<Action> {
        let mut actions = match (method, params.get("requestId")) {
            ("notifications/cancelled", Some(id)) => self.cancel(id),
            _ => Vec::new(),
        };
        actions.extend(spoil(faults, None, None, None));
        actions
    }

    fn end_listening(&self, call: Call) -> Vec<Action> {
        let mut answer = self.complete(&call, json!({}));
        answer["result"]["_meta"][SUBSCRIPTION] = call.id.clone();
        finish(&call, answer)
    }
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
        "completions": {},
    })
}

fn unsupported(requested: &str) -> Refusal {
    Refusal::new(-32022, "unsupported protocol version").with(json!({ "supported": [MODERN], "requested": requested }))
}

fn now(deed: Deed) -> Action {
    Action { after: Duration::ZERO, deed }
}

fn say(message: &Value, to: Option<&Value>, answer: bool) -> Action {
    now(Deed::Say { text: message.to_string(), to: to.cloned(), answer })
}

fn finish(call: &Call, answer: Value) -> Vec<Action> {
    spoil(&call.faults, Some(&call.id), call.progress_token(), Some(answer))
}
