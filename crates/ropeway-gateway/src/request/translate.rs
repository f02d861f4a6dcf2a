//! Modern servers' input requests for legacy clients: each becomes a request to the client, and the call is repeated with
//! the answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::client::Unanswered;
use crate::request::errors::ErrorReply;
use crate::request::exchange::Exchange;
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{RawReply, ServerRequestMethod};

/// Maximum number of input requests in one round.
const MAX_INPUTS: usize = 16;

/// An input round that a modern server requests.
pub(crate) struct InputRound {
    requests: Map<String, Value>,
    state: Option<Value>,
}

impl InputRound {
    /// Reads a modern server's result, if it requests input from a legacy client.
    pub(crate) fn read(exchange: &Exchange, reply: &RawReply) -> Result<Option<Self>, ErrorReply> {
        if exchange.client.era != Era::Legacy || reply.info.era != Era::Modern {
            return Ok(None);
        }
        let kind = reply.result_type.clone().and_then(|range| reply.result.get(range));
        if kind != Some(br#""input_required""#) {
            return Ok(None);
        }
        let invalid = || ErrorReply::internal("the server sent an invalid input request");
        let mut result: Value = serde_json::from_slice(&reply.result).map_err(|_| invalid())?;
        let requests = match result["inputRequests"].take() {
            Value::Object(requests) if requests.len() <= MAX_INPUTS => requests,
            Value::Null => Map::new(),
            _ => return Err(invalid()),
        };
        Ok(Some(Self { requests, state: result.get("requestState").cloned() }))
    }

    /// Sends the client all server requests and returns the params for the repeated request.
    pub(crate) async fn answer(
        self,
        exchange: &Arc<Exchange>,
        params: &Bytes,
        round: usize,
    ) -> Result<Bytes, ErrorReply> {
        if self.requests.is_empty() {
            // Without input requests, the server only requests a retry.
            tokio::time::sleep(Duration::from_millis(50 << round.min(5))).await;
        }
        let asked = self
            .requests
            .iter()
            .map(|(key, request)| async move { Ok::<_, ErrorReply>((key.clone(), ask(exchange, request).await?)) });
        let answers = join_all(asked).await.into_iter().collect::<Result<Map<_, _>, _>>()?;
        let mut params = params.strip_suffix(b"}").unwrap_or(params).to_vec();
        if params.len() > 1 {
            params.push(b',');
        }
        params.extend_from_slice(format!(r#""inputResponses":{}"#, Value::Object(answers)).as_bytes());
        if let Some(state) = &self.state {
            params.extend_from_slice(format!(r#","requestState":{state}"#).as_bytes());
        }
        params.push(b'}');
        Ok(params.into())
    }
}

/// Sends one server request to a legacy client and returns its result.
async fn ask(exchange: &Arc<Exchange>, request: &Value) -> Result<Value, ErrorReply> {
    let mut params = request.get("params").cloned().unwrap_or_else(|| json!({}));
    let method = match request["method"].as_str() {
        Some("elicitation/create") => ServerRequestMethod::Elicit { url: params["mode"] == "url" },
        Some("sampling/createMessage") => ServerRequestMethod::Sample,
        Some("roots/list") => ServerRequestMethod::Roots,
        _ => return Err(ErrorReply::internal("the server sent an unknown input request")),
    };
    let is_elicitation = matches!(method, ServerRequestMethod::Elicit { .. });
    let unanswered = |reason: &str| match is_elicitation {
        // An elicitation has no error response, only `cancel`.
        true => Ok(json!({"action": "cancel"})),
        false => Err(ErrorReply::internal(format!("`{}` was not answered: {reason}", method.as_str()))),
    };
    if !exchange.client.capabilities.can_answer(method) {
        return unanswered("the client does not support it");
    }
    if method == (ServerRequestMethod::Elicit { url: true }) {
        // Legacy clients require an id.
        params["elicitationId"] = format!("rw-{:016x}", fastrand::u64(..)).into();
    }
    let Ok(params) = RawValue::from_string(params.to_string()) else { return unanswered("it is invalid") };
    match exchange.client.ask(&exchange.outbound, method.as_str(), &params).await {
        Ok(Ok(result)) => serde_json::from_str(result.get()).or_else(|_| unanswered("the answer is invalid")),
        Ok(Err(error)) => unanswered(error.get()),
        Err(Unanswered::TooMany) => unanswered("too many questions are waiting for the client"),
        Err(Unanswered::Gone) => unanswered("the client disconnected"),
        Err(Unanswered::Stopping) => unanswered("the gateway is stopping"),
    }
}
