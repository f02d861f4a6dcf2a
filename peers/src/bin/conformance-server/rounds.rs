//! Input rounds in the modern era: input requests in a result, responses in the repeated request.

use serde_json::{Map, Value, json};

use crate::call::{Call, Interrupt};
use crate::server::Server;
use crate::wire::{INVALID_PARAMS, RpcError};

/// A question for the client.
#[derive(Clone)]
pub struct Question {
    pub key: &'static str,
    pub method: &'static str,
    pub params: Value,
}

impl Question {
    /// Creates a form with one required field.
    pub fn form(key: &'static str, message: &str, field: &str, kind: &str) -> Self {
        let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
        Self::elicitation(key, message, schema)
    }

    pub fn elicitation(key: &'static str, message: &str, schema: Value) -> Self {
        let params = json!({ "message": message, "requestedSchema": schema });
        Self { key, method: "elicitation/create", params }
    }

    pub fn sampling(key: &'static str, prompt: &str, max_tokens: u32) -> Self {
        let messages = json!([{ "role": "user", "content": { "type": "text", "text": prompt } }]);
        let params = json!({ "messages": messages, "maxTokens": max_tokens });
        Self { key, method: "sampling/createMessage", params }
    }

    pub fn roots(key: &'static str) -> Self {
        Self { key, method: "roots/list", params: json!({}) }
    }

    /// Returns the capability that the client needs.
    pub fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }

    /// Returns the request as JSON.
    pub fn request(&self) -> Value {
        json!({ "method": self.method, "params": self.params })
    }

    /// Returns `true` if the answer has the form that the question asks for.
    pub fn accepts(&self, answer: &Value) -> bool {
        match self.capability() {
            "elicitation" => match answer["action"].as_str() {
                Some("accept") => {
                    let required = self.params["requestedSchema"]["required"].as_array().into_iter().flatten();
                    required.filter_map(Value::as_str).all(|name| answer["content"].get(name).is_some())
                }
                Some("decline" | "cancel") => true,
                _ => false,
            },
            "sampling" => answer["content"].is_object() || answer["content"].is_array(),
            _ => answer["roots"].is_array(),
        }
    }
}

/// Returns the answers to the questions, or the result that asks for those that are missing.
pub fn answers(
    call: &Call,
    known: &mut Map<String, Value>,
    questions: &[Question],
) -> Result<Map<String, Value>, Interrupt> {
    if let Some(state) = call.params.get("requestState").and_then(Value::as_str) {
        known.extend(open(&call.server, state)?);
    }
    let given = call.params.get("inputResponses");
    let mut missing = Map::new();
    for question in questions {
        if known.contains_key(question.key) {
            continue;
        }
        match given.and_then(|given| given.get(question.key)).filter(|answer| question.accepts(answer)) {
            Some(answer) => drop(known.insert(question.key.to_owned(), answer.clone())),
            None => drop(missing.insert(question.key.to_owned(), question.request())),
        }
    }
    if missing.is_empty() {
        return Ok(known.clone());
    }
    Err(Interrupt::InputRequired(json!({
        "resultType": "input_required",
        "inputRequests": missing,
        "requestState": seal(&call.server, known.clone()),
    })))
}

/// Returns the answers as text with a tag that shows changes.
fn seal(server: &Server, answers: Map<String, Value>) -> String {
    let text = Value::Object(answers).to_string();
    format!("{}.{text}", server.tag(&text))
}

fn open(server: &Server, state: &str) -> Result<Map<String, Value>, RpcError> {
    let invalid = || RpcError::new(INVALID_PARAMS, "`requestState` was not issued by this server");
    let (tag, text) = state.split_once('.').ok_or_else(invalid)?;
    if tag != server.tag(text) {
        return Err(invalid());
    }
    serde_json::from_str(text).map_err(|_| invalid())
}
