//! Modern clients' retries, which answer a parked call's server requests.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::request::errors::ErrorReply;
use crate::request::exchange::Dispatch;
use crate::request::parked::Retry;
use crate::request::request_identity::RequestIdentity;
use crate::request::requester::Requester;
use crate::shared::GatewayShared;
use ropeway_mcp::protocol::{ClientParams, Era};

/// Continues a call that waits for input, if the request is its retry.
pub(crate) fn retry(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
    method: &'static str,
    target: &str,
    arguments: &Bytes,
) -> Result<Option<Dispatch>, ErrorReply> {
    if requester.client.era != Era::Modern {
        return Ok(None);
    }
    let Some(state) = params.get("requestState").and_then(|state| serde_json::from_str::<String>(state.get()).ok())
    else {
        return Ok(None);
    };
    if !shared.parked.is_own(&requester.client, &state) {
        // The state may come from a modern server, which checks it. The server may be a gateway with the same keys.
        return Ok(None);
    }
    let answers = params.get("inputResponses").map(|answers| serde_json::from_str::<Map<String, Value>>(answers.get()));
    let answers = match answers {
        None => Map::new(),
        Some(Ok(answers)) => answers,
        Some(Err(_)) => return Err(ErrorReply::invalid_params("`inputResponses` is not an object")),
    };
    let request = RequestIdentity { method, target: target.into(), arguments: arguments.clone() };
    let attached = requester.attach(shared, params)?;
    Ok(Some(match shared.parked.retry(&requester.client, &state, &request, attached, &answers)? {
        Retry::Continued { exchange, work } => {
            exchange.set_record(requester.record.take());
            Dispatch::Running { exchange, work }
        }
        Retry::Incomplete(reply) => {
            requester.record.note(|record| record.note_input_required());
            Dispatch::Done { status: 200, reply }
        }
    }))
}
