//! One client's session: turns messages into actions.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::action::{Action, TimedAction, immediate, send};
use super::apply_faults::apply_faults;
use super::call::{CallOutcome, ClientCall, ClientRequest, MODERN, ScriptedError};
use super::fault::Fault;
use super::script::SupportedEras;
use super::scripted::{Command, ScriptedServer};
use super::tools;
use ropeway_mcp::protocol::Era;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A request to the client that is not answered yet.
struct PendingRequest {
    call: ClientCall,
    request: ClientRequest,
    answers: Vec<Value>,
}

/// An open `subscriptions/listen`.
pub(super) struct Subscription {
    pub(super) call: ClientCall,
    pub(super) wanted: Value,
}

/// What `initialize` negotiated.
pub(super) struct Negotiated {
    pub(super) version: String,
    pub(super) capabilities: Value,
}

/// One client's session.
pub(super) struct ScriptedSession {
    pub(super) scripted: ScriptedServer,
    /// Whether legacy requests require an `initialize` first.
    is_stateful: bool,
    pub(super) negotiated: Option<Negotiated>,
    pipe_era: Option<Era>,
    pub(super) subscribed: HashSet<String>,
    pub(super) listening: Vec<Subscription>,
    pending: HashMap<String, PendingRequest>,
    requests_sent: u64,
}

impl ScriptedSession {
    /// Creates a session for several messages.
    pub(super) fn new(scripted: ScriptedServer) -> Self {
        Self {
            scripted,
            is_stateful: true,
            negotiated: None,
            pipe_era: None,
            subscribed: HashSet::new(),
            listening: Vec::new(),
            pending: HashMap::new(),
            requests_sent: 0,
        }
    }

    /// Creates a session for one message.
    pub(super) fn stateless(scripted: ScriptedServer) -> Self {
        Self { is_stateful: false, ..Self::new(scripted) }
    }

    /// Returns a new connection's actions.
    pub(super) fn open(&mut self) -> Vec<TimedAction> {
        let faults = self.scripted.faults("connect", None);
        apply_faults(&faults, None, None, None)
    }

    /// Returns the actions for a client message.
    pub(super) fn receive(&mut self, message: Value, faults: Vec<Fault>) -> Vec<TimedAction> {
        if !message.is_object() {
            let code = if message.is_array() { -32600 } else { -32700 };
            let error = ScriptedError::new(code, "not one message of JSON-RPC").message(&Value::Null);
            return vec![send(&error, None, true)];
        }
        let Some(method) = message["method"].as_str().map(str::to_owned) else {
            return self.receive_response(&message);
        };
        let params = message["params"].as_object().cloned().unwrap_or_default();
        let Some(id) = message.get("id").cloned() else {
            return self.receive_notification(&method, &params, &faults);
        };
        let mut call = ClientCall {
            id,
            method,
            params,
            era: Era::Legacy,
            version: String::new(),
            capabilities: Value::Null,
            faults,
        };
        let outcome = match self.negotiate(&mut call) {
            Ok(()) => self.handle(&call),
            Err(error) => error.into(),
        };
        self.deliver(call, outcome)
    }

    /// Returns the actions for a test command.
    pub(super) fn command(&mut self, command: Command) -> Vec<TimedAction> {
        match command {
            Command::Send(message) => vec![send(&message, None, false)],
            Command::ListChanged(list) => {
                let wanted = format!("{list}ListChanged");
                let message = json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") });
                self.notify(message, true, |filter| filter[&wanted] == true)
            }
            Command::ResourceUpdated(uri) => {
                let subscribed = self.subscribed.contains(&uri);
                let message =
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } });
                self.notify(message, subscribed, |filter| {
                    filter["resourceSubscriptions"].as_array().is_some_and(|uris| uris.iter().any(|it| *it == uri))
                })
            }
            Command::EndListening => {
                let listening = std::mem::take(&mut self.listening);
                listening.into_iter().flat_map(|it| self.end_listening(it.call)).collect()
            }
        }
    }

    /// Returns the actions for a request that the client cancelled.
    pub(super) fn cancel(&mut self, id: &Value) -> Vec<TimedAction> {
        self.scripted.record_cancelled(id.clone());
        self.listening.retain(|listening| listening.call.id != *id);
        self.pending.retain(|_, pending| pending.call.id != *id);
        vec![immediate(Action::Cancel { to: id.clone() }), immediate(Action::Done { to: id.clone() })]
    }

    /// Reports a change to a legacy client, and to the modern subscriptions for which `wanted` returns `true`.
    fn notify(&self, message: Value, legacy: bool, wanted: impl Fn(&Value) -> bool) -> Vec<TimedAction> {
        let mut actions = Vec::new();
        if legacy && self.negotiated.is_some() {
            actions.push(send(&message, None, false));
        }
        for listening in self.listening.iter().filter(|listening| wanted(&listening.wanted)) {
            let mut message = message.clone();
            if message.get("params").is_none() {
                message["params"] = json!({});
            }
            message["params"]["_meta"] = json!({ SUBSCRIPTION: listening.call.id });
            actions.push(send(&message, Some(&listening.call.id), false));
        }
        actions
    }

    /// Determines a request's era and version, and checks that they are supported.
    fn negotiate(&mut self, call: &mut ClientCall) -> Result<(), ScriptedError> {
        let script = self.scripted.script();
        let version = call.meta(VERSION).and_then(Value::as_str).map(str::to_owned);
        call.era = match script.eras {
            SupportedEras::Both if version.is_some() => Era::Modern,
            SupportedEras::Modern => Era::Modern,
            SupportedEras::Both | SupportedEras::Legacy => Era::Legacy,
        };
        if script.first_message_settles_era && *self.pipe_era.get_or_insert(call.era) != call.era {
            return Err(match call.era {
                Era::Legacy => unsupported(call.text("protocolVersion")),
                Era::Modern => ScriptedError::new(-32601, format!("unknown method `{}`", call.method)),
            });
        }
        match (call.era, version) {
            (Era::Legacy, _) => self.negotiate_legacy(call),
            (Era::Modern, None) if call.method == "initialize" => Err(unsupported(call.text("protocolVersion"))),
            (Era::Modern, None) => Err(ScriptedError::new(-32602, format!("`_meta` has no `{VERSION}`"))),
            (Era::Modern, Some(version)) if version != MODERN => Err(unsupported(&version)),
            (Era::Modern, Some(version)) => {
                let capabilities = call.meta(CAPABILITIES).filter(|capabilities| capabilities.is_object()).cloned();
                let missing = || ScriptedError::new(-32602, format!("`_meta` has no `{CAPABILITIES}`"));
                call.capabilities = capabilities.ok_or_else(missing)?;
                call.version = version;
                Ok(())
            }
        }
    }

    fn negotiate_legacy(&self, call: &mut ClientCall) -> Result<(), ScriptedError> {
        match &self.negotiated {
            Some(negotiated) => {
                call.version.clone_from(&negotiated.version);
                call.capabilities = negotiated.capabilities.clone();
                Ok(())
            }
            // A modern client's probe is an unknown method here.
            None if !self.is_stateful || ["initialize", "ping", "server/discover"].contains(&call.method.as_str()) => {
                Ok(())
            }
            None => Err(ScriptedError::new(-32600, "`initialize` must come first")),
        }
    }

    /// Turns a request's outcome into actions.
    fn deliver(&mut self, call: ClientCall, outcome: CallOutcome) -> Vec<TimedAction> {
        match outcome {
            CallOutcome::Answer(result) => respond(&call, self.build_response(&call, result)),
            CallOutcome::Raw(result) => respond(&call, json!({ "jsonrpc": "2.0", "id": call.id, "result": result })),
            CallOutcome::Error(error) => respond(&call, error.message(&call.id)),
            CallOutcome::Steps { before, answer } => {
                let mut wait = Duration::ZERO;
                let mut actions = Vec::new();
                for (after, message) in before {
                    wait += after;
                    if let Some(message) = message {
                        let action = send(&message, Some(&call.id), false).action;
                        actions.push(TimedAction { after: std::mem::take(&mut wait), action });
                    }
                }
                let mut last = respond(&call, self.build_response(&call, answer));
                if let Some(first) = last.first_mut() {
                    first.after += wait;
                }
                actions.extend(last);
                actions
            }
            CallOutcome::ClientRequest(request) => self.request(call, request),
            // A fault makes it an error.
            CallOutcome::Silence if call.faults.iter().any(|fault| matches!(fault, Fault::Error(_))) => {
                respond(&call, json!({ "jsonrpc": "2.0", "id": call.id }))
            }
            CallOutcome::Silence if call.method == "subscriptions/listen" => {
                let wanted = call.params.get("notifications").cloned().unwrap_or_else(|| json!({}));
                let acknowledged = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": { "_meta": { SUBSCRIPTION: call.id }, "notifications": wanted } });
                let mut actions = vec![send(&acknowledged, Some(&call.id), false)];
                actions.extend(apply_faults(&call.faults, Some(&call.id), None, None));
                actions
            }
            CallOutcome::Silence => apply_faults(&call.faults, Some(&call.id), None, None),
            CallOutcome::Exit(code) => vec![immediate(Action::Exit(code))],
        }
    }

    /// Builds the response, with the fields that the modern era requires in every result.
    fn build_response(&self, call: &ClientCall, mut result: Value) -> Value {
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

    fn request(&mut self, call: ClientCall, request: ClientRequest) -> Vec<TimedAction> {
        if call.capabilities.get(request.capability).is_none() {
            let outcome = match call.era {
                Era::Legacy => CallOutcome::Answer(json!({ "isError": true, "content": [
                    { "type": "text", "text": format!("the client does not offer {}", request.capability) }] })),
                Era::Modern => {
                    ScriptedError::new(-32021, format!("the client does not offer `{}`", request.capability))
                        .with(json!({ "requiredCapabilities": { request.capability: {} } }))
                        .into()
                }
            };
            return self.deliver(call, outcome);
        }
        if call.era == Era::Legacy {
            return self.send_client_request(PendingRequest { call, request, answers: Vec::new() });
        }
        // The retry's state contains how many rounds there were so far.
        let state = call.text("requestState");
        let round = if state.is_empty() { 0 } else { state.trim_start_matches("round-").parse().unwrap_or(u64::MAX) };
        let answer = call.params.get("inputResponses").and_then(|responses| responses.get("answer"));
        let outcome = match (round, answer) {
            (u64::MAX, _) => ScriptedError::new(-32602, "`requestState` is not one that was given out").into(),
            (1.., None) => ScriptedError::new(-32602, "`inputResponses` has no `answer`").into(),
            (round, Some(answer)) if round >= request.rounds => CallOutcome::Answer(tools::text(&answer.to_string())),
            (round, _) => CallOutcome::Answer(json!({
                "resultType": "input_required", "requestState": format!("round-{}", round + 1),
                "inputRequests": { "answer": { "method": request.method, "params": request.params } },
            })),
        };
        self.deliver(call, outcome)
    }

    /// Sends a request to the client, in the legacy era.
    fn send_client_request(&mut self, pending: PendingRequest) -> Vec<TimedAction> {
        self.requests_sent += 1;
        let id = json!(format!("question-{}", self.requests_sent));
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": pending.request.method, "params": pending.request.params });
        let action = send(&message, Some(&pending.call.id), false);
        self.pending.insert(id.to_string(), pending);
        vec![action]
    }

    fn receive_response(&mut self, message: &Value) -> Vec<TimedAction> {
        let Some(mut pending) = self.pending.remove(&message["id"].to_string()) else {
            return Vec::new();
        };
        if let Some(error) = message.get("error") {
            let result = json!({ "isError": true, "content": [{ "type": "text", "text": error.to_string() }] });
            return self.deliver(pending.call, CallOutcome::Answer(result));
        }
        pending.answers.push(message["result"].clone());
        if (pending.answers.len() as u64) < pending.request.rounds {
            return self.send_client_request(pending);
        }
        self.deliver(pending.call, CallOutcome::Answer(tools::text(&message["result"].to_string())))
    }

    fn receive_notification(
        &mut self,
        method: &str,
        params: &Map<String, Value>,
        faults: &[Fault],
    ) -> Vec<TimedAction> {
        let mut actions = match (method, params.get("requestId")) {
            ("notifications/cancelled", Some(id)) => self.cancel(id),
            _ => Vec::new(),
        };
        actions.extend(apply_faults(faults, None, None, None));
        actions
    }

    fn end_listening(&self, call: ClientCall) -> Vec<TimedAction> {
        let mut answer = self.build_response(&call, json!({}));
        answer["result"]["_meta"][SUBSCRIPTION] = call.id.clone();
        respond(&call, answer)
    }
}

fn unsupported(requested: &str) -> ScriptedError {
    ScriptedError::new(-32022, "unsupported protocol version")
        .with(json!({ "supported": [MODERN], "requested": requested }))
}

fn respond(call: &ClientCall, answer: Value) -> Vec<TimedAction> {
    apply_faults(&call.faults, Some(&call.id), call.progress_token(), Some(answer))
}
