//! Tests of providers through the public API: requests, sockets and replies.

mod case;
mod cases;
mod client;
mod content_table;
pub(crate) mod golden;
mod media;
mod models;
mod parts;
mod real_model;
mod record;
mod request_settings;
mod requests;
mod round_trip;
mod rules;
pub(crate) mod streams;

use std::time::Duration;

use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{ChatRequest, ProviderError, ProviderSettings, ReplyEvent, ReplyStream, RetryPolicy};
use ropeway::testing::ModelServer;
use serde_json::json;

/// The key, which must not appear in any output.
const KEY: &str = "sk-test-0123456789";

/// Settings for a local Chat Completions server, with short retries.
fn settings(server: &ModelServer) -> ProviderSettings {
    let retries = RetryPolicy { initial_backoff: Duration::from_millis(1), ..RetryPolicy::default() };
    ProviderSettings::new(Dialect::Chat)
        .with_base_url(format!("{}/v1", server.url()))
        .with_key(KEY)
        .with_retries(retries)
}

/// A conversation with one question.
fn question() -> Conversation {
    Conversation::new().with("Hello?")
}

fn request(conversation: &Conversation) -> ChatRequest<'_> {
    ChatRequest::new("test-model", conversation)
}

/// Returns a chunk of a Chat Completions stream with text.
fn word(word: &str) -> String {
    format!("data: {}\n\n", json!({"id": "a1", "model": "m", "choices": [{"index": 0, "delta": {"content": word}}]}))
}

/// Returns the events that end a Chat Completions stream.
fn end() -> String {
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    format!("data: {stop}\n\ndata: [DONE]\n\n")
}

/// Reads all remaining events.
async fn rest(stream: &mut ReplyStream) -> Vec<Result<ReplyEvent, ProviderError>> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

/// Fails if a future takes too long.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

/// Formats an error with its sources.
fn shown(error: &ProviderError) -> String {
    let mut text = format!("{error:?}\n{error:#?}");
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        text.push_str(&format!("\n{error}\n{error:?}"));
        next = error.source();
    }
    text
}
