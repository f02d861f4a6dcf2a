//! Providers from the outside: what is sent in each dialect, what goes over a socket, what is read in what comes back.

mod case;
mod cases;
mod content_table;
pub(crate) mod golden;
mod http;
mod media;
mod models;
mod parts;
mod real_model;
mod record;
mod requests;
mod round_trip;
mod rules;
pub(crate) mod streams;
mod wishes;

use std::time::Duration;

use ropeway::content::ContentPart;
use ropeway::message::{Conversation, Dialect, UserMessage};
use ropeway::provider::{ChatRequest, ProviderError, ProviderSettings, ReplyEvent, ReplyStream, RetryPolicy};
use ropeway::testing::ModelServer;
use serde_json::json;

/// The key that nobody may see.
const KEY: &str = "sk-test-0123456789";

/// Settings for a server on this machine that speaks Chat Completions, and is asked again without much of a pause.
fn settings(server: &ModelServer) -> ProviderSettings {
    let mut retries = RetryPolicy::default();
    retries.first_pause = Duration::from_millis(1);
    ProviderSettings::new(Dialect::Chat)
        .with_base_url(format!("{}/v1", server.url()))
        .with_key(KEY)
        .with_retries(retries)
}

/// A conversation of one question.
fn question() -> Conversation {
    Conversation::new().with(UserMessage { content: vec![ContentPart::text("Hello?")] })
}

fn request(conversation: &Conversation) -> ChatRequest<'_> {
    ChatRequest::new("test-model", conversation)
}

/// The frame of a Chat Completions stream that says a word.
fn word(word: &str) -> String {
    format!("data: {}\n\n", json!({"id": "a1", "model": "m", "choices": [{"index": 0, "delta": {"content": word}}]}))
}

/// The frames that end a Chat Completions stream.
fn end() -> String {
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    format!("data: {stop}\n\ndata: [DONE]\n\n")
}

/// Reads on to the end.
async fn rest(stream: &mut ReplyStream) -> Vec<Result<ReplyEvent, ProviderError>> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

/// What must happen soon; what does not is a failure, not a hang.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

/// Everything that an error shows.
fn shown(error: &ProviderError) -> String {
    let mut text = format!("{error:?}\n{error:#?}");
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        text.push_str(&format!("\n{error}\n{error:?}"));
        next = error.source();
    }
    text
}
