//! Targets for model replies: the four dialects' streams, recordings, saved conversations.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::chunks::ways;
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{Conversation, Dialect};
use ropeway_core::tool::ToolDefinition;
use ropeway_providers::{
    ChatRequest, EncodedRequest, ProviderError, ProviderErrorKind, ProviderSettings, Recording, Reply, ReplyEvent,
    RetryPolicy, encode,
};
use ropeway_web::SseParser;

/// Anthropic Messages stream tokens.
pub(super) const ANTHROPIC: &[&str] = &[
    "data: {\"type\":\"",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
    "\"index\":",
    "\"delta\":{",
    "text_delta",
    "thinking_delta",
    "signature_delta",
    "input_json_delta",
    "\"partial_json\":",
    "\"tool_use\"",
    "\"redacted_thinking\"",
    "\"stop_reason\":",
    "\"pause_turn\"",
    "\"usage\":{",
    "}\n\n",
    "\\ud83d",
];

/// Chat Completions stream tokens.
pub(super) const CHAT: &[&str] = &[
    "data: {\"choices\":[{",
    "\"index\":0",
    "\"delta\":{",
    "\"content\":",
    "\"reasoning_content\":",
    "\"reasoning_details\":[",
    "\"tool_calls\":[{",
    "\"function\":{",
    "\"name\":",
    "\"arguments\":",
    "\"finish_reason\":",
    "\"stop\"",
    "\"tool_calls\"",
    "\"length\"",
    "\"usage\":{",
    "data: [DONE]\n\n",
    "\"error\":{",
    "\"refusal\":",
    "\"id\":",
    "}}]}\n\n",
    "\\ud83d",
    "<think>",
    "</think>",
];

/// Gemini stream tokens.
pub(super) const GEMINI: &[&str] = &[
    "data: {\"candidates\":[{",
    "\"content\":{\"parts\":[",
    "\"text\":",
    "\"thought\":true",
    "\"thoughtSignature\":",
    "\"functionCall\":{",
    "\"name\":",
    "\"args\":{",
    "\"willContinue\":",
    "\"partialArgs\":[",
    "\"jsonPath\":\"$.",
    "\"stringValue\":",
    "\"finishReason\":",
    "\"STOP\"",
    "\"MALFORMED_FUNCTION_CALL\"",
    "\"usageMetadata\":{",
    "\"promptFeedback\":{",
    "\"blockReason\":",
    "\"error\":{",
    "}]}\n\n",
    "\"inlineData\":{",
];

/// OpenAI Responses stream tokens.
pub(super) const RESPONSES: &[&str] = &[
    "data: {\"type\":\"response.",
    "created",
    "in_progress",
    "completed",
    "incomplete",
    "failed",
    "output_item.added",
    "output_item.done",
    "output_text.delta",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "reasoning_summary_text.delta",
    "refusal.delta",
    "\"output_index\":",
    "\"content_index\":",
    "\"item_id\":",
    "\"item\":{",
    "\"delta\":",
    "\"call_id\":",
    "\"arguments\":",
    "\"response\":{",
    "\"output\":[",
    "\"status\":",
    "\"encrypted_content\":",
    "\"error\":{",
    "}\n\n",
    "data: [DONE]\n\n",
];

/// Recording tokens.
pub(super) const RECORDING: &[&str] = &[
    "{\"status\":200",
    "\"body\":\"",
    "\"ending\":\"whole\"",
    "\"ending\":\"cut_off\"",
    "\"ending\":{\"failed\":{",
    "\"kind\":",
    "\"message\":",
    "\"request\":{",
    "\"method\":\"POST\"",
    "\"url\":",
    "\"headers\":[[",
    "retry-after",
    "content-type",
    "text/event-stream",
    "}\n",
    "\r\n",
];

/// Saved conversation tokens.
pub(super) const CONVERSATION: &[&str] = &[
    "\"system\":",
    "\"messages\":[",
    "{\"role\":\"user\"",
    "{\"role\":\"assistant\"",
    "{\"role\":\"tool\"",
    "\"content\":[",
    "\"parts\":[",
    "\"type\":\"text\"",
    "\"type\":\"reasoning\"",
    "\"type\":\"private\"",
    "\"type\":\"tool_call\"",
    "\"type\":\"image\"",
    "\"arguments\":{",
    "\"broken_arguments\":{",
    "\"from\":{\"dialect\":\"",
    "anthropic",
    "responses",
    "gemini",
    "chat",
    "\"results\":[",
    "\"call\":",
    "\"tool\":",
    "\"is_error\":true",
    "\"extra\":{",
    "\"data\":\"AAAA\"",
    "\"mimeType\":",
    "\"id\":\"\"",
    "\\ud83d",
    "1e400",
];

pub(super) fn anthropic(data: &[u8]) {
    stream(Dialect::Anthropic, data);
}

pub(super) fn responses(data: &[u8]) {
    stream(Dialect::Responses, data);
}

pub(super) fn gemini(data: &[u8]) {
    stream(Dialect::Gemini, data);
}

pub(super) fn chat(data: &[u8]) {
    stream(Dialect::Chat, data);
}

/// The reply does not depend on how the stream is split and equals the sum of its events; a stream that breaks before
/// the model stopped is an error; and the reply can be sent in every dialect.
fn stream(dialect: Dialect, data: &[u8]) {
    let question = question(dialect);
    let frames = frames(&[data]);
    for chunks in ways(data) {
        assert_eq!(self::frames(&chunks), frames, "chunks {chunks:?}");
    }
    let mut decoder = question.decoder();
    let mut events = Vec::new();
    for frame in &frames {
        if decoder.frame(frame, &mut events).is_err() {
            check_events(&events, None, dialect);
            return;
        }
        if decoder.is_finished() {
            break;
        }
    }
    let has_stopped = decoder.is_finished() || decoder.has_stopped();
    match decoder.end(&mut events) {
        Ok(reply) => {
            assert!(has_stopped, "a stream that broke off became {reply:?}");
            check_events(&events, Some(&reply), dialect);
            let written = serde_json::to_vec(&reply).expect("a reply is JSON");
            assert_eq!(serde_json::from_slice::<Reply>(&written).expect("a reply"), reply);
            send_on(&Conversation::new().with("Go on.").with(reply.message));
        }
        Err(_) => check_events(&events, None, dialect),
    }
}

/// Returns each event's data.
fn frames(chunks: &[&[u8]]) -> Vec<Bytes> {
    let mut parser = SseParser::new(1 << 20);
    let mut frames = Vec::new();
    chunks.iter().for_each(|chunk| parser.push(chunk, |event| frames.push(event.data)));
    frames.retain(|frame| !frame.trim_ascii().is_empty());
    frames
}

/// Each call starts before it continues, ends once, and is part of the reply.
fn check_events(events: &[ReplyEvent], reply: Option<&Reply>, dialect: Dialect) {
    let mut started = Vec::new();
    let mut whole = Vec::new();
    let mut text = String::new();
    let mut usage = None;
    for event in events {
        match event {
            ReplyEvent::Text(piece) => text.push_str(piece),
            ReplyEvent::ToolCallStarted { index, .. } => {
                assert!(!started.contains(index), "call {index} is started twice");
                started.push(*index);
            }
            ReplyEvent::ToolCallDelta { index, .. } => {
                assert!(started.contains(index), "call {index} goes on before it is started");
                assert!(!whole.iter().any(|(other, _)| other == index), "call {index} goes on after its end");
            }
            ReplyEvent::ToolCall { index, call } => {
                // A call without a name is only reported when it is complete.
                assert!(started.contains(index) || call.name.is_empty(), "call {index} ends before it is started");
                assert!(!whole.iter().any(|(other, _)| other == index), "call {index} ends twice");
                whole.push((*index, call.clone()));
            }
            ReplyEvent::Usage(so_far) => usage = Some(*so_far),
            _ => {}
        }
    }
    if let Some(reply) = reply {
        // Blocks are sorted, and Responses repeats the text at its end, which takes precedence.
        if dialect != Dialect::Responses {
            assert_eq!(text.len(), reply.message.to_text().len());
        }
        whole.sort_by_key(|(index, _)| *index);
        let mut calls: Vec<_> = whole.into_iter().map(|(_, call)| call).collect();
        let mut kept: Vec<_> = reply.message.calls().cloned().collect();
        // Responses items that only appear at the end are inserted at their index.
        if dialect == Dialect::Responses {
            calls.sort_by_cached_key(|call| format!("{call:?}"));
            kept.sort_by_cached_key(|call| format!("{call:?}"));
        }
        assert_eq!(calls, kept);
        assert_eq!(usage.unwrap_or_default(), reply.usage);
    }
}

/// Encodes a conversation in each dialect: the body is JSON, and the same each time.
fn send_on(conversation: &Conversation) {
    for dialect in Dialect::ALL {
        let settings = ProviderSettings::new(dialect).with_base_url("https://model.example");
        let request = ChatRequest::new("m", conversation);
        let encoded = match encode(&settings, &request) {
            Ok(encoded) => encoded,
            Err(error) => {
                assert_eq!(error.kind, ProviderErrorKind::Unusable, "{error}");
                continue;
            }
        };
        assert!(serde_json::from_slice::<Value>(&encoded.request.body).is_ok(), "{dialect:?}: not JSON");
        let again = encode(&settings, &request).expect("a request");
        assert_eq!(again.request.body, encoded.request.body, "{dialect:?}: encoding twice differs");
    }
}

/// Returns a request with two tools, encoded once per dialect.
fn question(dialect: Dialect) -> &'static EncodedRequest {
    static QUESTIONS: [OnceLock<EncodedRequest>; Dialect::ALL.len()] = [const { OnceLock::new() }; Dialect::ALL.len()];
    let at = Dialect::ALL.iter().position(|other| *other == dialect).unwrap_or_default();
    QUESTIONS[at].get_or_init(|| encode_question(dialect))
}

fn encode_question(dialect: Dialect) -> EncodedRequest {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}});
    let tools = ["echo", "files.read"].map(|name| ToolDefinition::new(name).with_input_schema(schema.clone()));
    let tools = Toolset::new(tools);
    let conversation = Conversation::new().with("Hello?");
    let settings = ProviderSettings::new(dialect).with_base_url("https://model.example");
    encode(&settings, &ChatRequest::new("m", &conversation).with_tools(&tools)).expect("a request")
}

/// A recording round-trips, and an error names an existing line.
pub(super) fn recording(data: &[u8]) {
    let text = super::input::text(data);
    match Recording::read(&text) {
        Ok(recording) => {
            let lines = recording.to_lines();
            assert_eq!(lines.lines().count(), recording.exchanges.len());
            assert_eq!(Recording::read(&lines).expect("a recording"), recording);
            replay(recording);
        }
        Err(error) => {
            let line = error.to_string().split(' ').nth(1).and_then(|line| line.parse().ok()).unwrap_or_default();
            assert!((1..=text.lines().count()).contains(&line), "line {line} of {}", text.lines().count());
        }
    }
}

/// A replayed stream ends with a reply or an error, and nothing follows.
fn replay(recording: Recording) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    let exchanges = recording.exchanges.len();
    for dialect in Dialect::ALL {
        let retries = RetryPolicy { max_retries: 0, initial_backoff: Duration::ZERO, ..RetryPolicy::default() };
        let settings = ProviderSettings::new(dialect).with_base_url("https://model.example").with_retries(retries);
        let provider = ropeway_providers::Provider::replaying(settings, recording.clone());
        let conversation = Conversation::new().with("Hello?");
        runtime.block_on(async {
            for _ in 0..exchanges.min(4) {
                let mut stream = provider.stream(&ChatRequest::new("m", &conversation));
                let mut last: Option<Result<ReplyEvent, ProviderError>> = None;
                while let Some(event) = stream.next().await {
                    assert!(!matches!(last, Some(Err(_) | Ok(ReplyEvent::Finished(_)))), "{event:?} after the end");
                    last = Some(event);
                }
                assert!(matches!(last, Some(Err(_) | Ok(ReplyEvent::Finished(_)))), "a stream without an end");
            }
        });
    }
}

/// A conversation round-trips, and can be sent in every dialect.
pub(super) fn conversation(data: &[u8]) {
    let Ok(conversation) = serde_json::from_slice::<Conversation>(data) else { return };
    let saved = serde_json::to_vec(&conversation).expect("a conversation is JSON");
    assert_eq!(serde_json::from_slice::<Conversation>(&saved).expect("a conversation"), conversation);
    send_on(&conversation);
}
