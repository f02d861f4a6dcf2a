//! Clients that call tools whose servers ask them something, and answer.

use std::time::Instant;

use anyhow::Result;
use ropeway_peers::http_client::{LoadClient, LoadEra};
use ropeway_peers::message_stream::MessageStream;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{Counts, Planned, TIMEOUT, now, open, print_failure};

/// Calls in a session before it ends.
const CALLS: u32 = 50;
/// Maximum rounds per call.
const ROUNDS: u32 = 5;

/// Calls a tool that asks, until the end.
pub async fn run(url: String, era: LoadEra, planned: Planned, end: Instant) -> Result<Counts> {
    let mut counts = Counts::default();
    let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} });
    let mut client = LoadClient::new(&url, era)?.with_identity("asked", capabilities);
    while Instant::now() < end {
        open(&mut client, &mut counts).await?;
        counts.sessions += 1;
        for _ in 0..CALLS {
            if Instant::now() >= end {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let started = now();
            counts.calls += 1;
            let called = if era == LoadEra::Modern {
                timeout(TIMEOUT, rounds(&mut client, &planned, &mut counts)).await
            } else {
                timeout(TIMEOUT, stream(&mut client, &planned, &mut counts)).await
            };
            let Err(reason) = called.unwrap_or_else(|_| Err(format!("no response in {TIMEOUT:?}"))) else { continue };
            counts.failed += 1;
            counts.unanswered += u64::from(reason.starts_with(super::UNANSWERED));
            print_failure(&planned.server, era, started, &reason);
            if reason.contains("HTTP 404") {
                break;
            }
        }
        // The gateway may be restarting.
        let _ = client.close().await;
    }
    Ok(counts)
}

/// Makes a modern call: an `input_required` result is answered with the next request.
async fn rounds(client: &mut LoadClient, planned: &Planned, counts: &mut Counts) -> Result<(), String> {
    let mut params = json!({ "name": planned.tool, "arguments": planned.arguments });
    for _ in 0..ROUNDS {
        let request = client.request_bytes("tools/call", &planned.tool, &params);
        let mut response = send(client, &request).await?;
        let message = response_of(&mut response).await?;
        let result = &message["result"];
        if result["resultType"] != "input_required" {
            return check(&message, response.status, planned);
        }
        let requests = result["inputRequests"].as_object().cloned().unwrap_or_default();
        let answers: Map<String, Value> = requests.iter().map(|(key, asked)| (key.clone(), answer(asked))).collect();
        counts.answers += answers.len() as u64;
        params = json!({ "name": planned.tool, "arguments": planned.arguments, "inputResponses": answers });
        if let Some(state) = result.get("requestState") {
            params["requestState"] = state.clone();
        }
    }
    Err(format!("asked in {ROUNDS} rounds"))
}

/// Makes a legacy call: server requests arrive on its stream and are answered with separate messages.
async fn stream(client: &mut LoadClient, planned: &Planned, counts: &mut Counts) -> Result<(), String> {
    let params = json!({ "name": planned.tool, "arguments": planned.arguments });
    let request = client.request_bytes("tools/call", &planned.tool, &params);
    let mut response = send(client, &request).await?;
    while let Some(message) = response.next().await.map_err(|error| error.to_string())? {
        if message.get("method").is_none() {
            return check(&message, response.status, planned);
        }
        let Some(id) = message.get("id") else { continue };
        let reply = json!({ "jsonrpc": "2.0", "id": id, "result": answer(&message) });
        let sent = send(client, &client.message_bytes(&reply)).await?;
        if sent.status >= 300 {
            return Err(format!("the answer got HTTP {}", sent.status));
        }
        counts.answers += 1;
    }
    Err(format!("{}: HTTP {}", super::UNANSWERED, response.status))
}

async fn send(client: &LoadClient, request: &[u8]) -> Result<MessageStream, String> {
    MessageStream::open(client.authority(), request).await.map_err(|error| error.to_string())
}

/// Returns the response message from a stream, after its notifications.
async fn response_of(response: &mut MessageStream) -> Result<Value, String> {
    while let Some(message) = response.next().await.map_err(|error| error.to_string())? {
        if message.get("method").is_none() {
            return Ok(message);
        }
    }
    Err(format!("{}: HTTP {}", super::UNANSWERED, response.status))
}

fn answer(asked: &Value) -> Value {
    match asked["method"].as_str().unwrap_or_default() {
        "sampling/createMessage" => {
            json!({ "role": "assistant", "model": "soak", "content": { "type": "text", "text": "soaked" } })
        }
        "roots/list" => json!({ "roots": [{ "uri": "file:///soak", "name": "soak" }] }),
        _ => {
            json!({ "action": "accept", "content": { "username": "soaked", "email": "soak@example.com", "name": "soaked" } })
        }
    }
}

fn check(message: &Value, status: u16, planned: &Planned) -> Result<(), String> {
    let text = message.to_string();
    if status == 200 && message.get("result").is_some() && text.contains(&planned.expect) {
        return Ok(());
    }
    Err(format!("HTTP {status} {text:.300}"))
}
