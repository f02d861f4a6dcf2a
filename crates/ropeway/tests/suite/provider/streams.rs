//! Decoded streams, compared with golden files.

use std::collections::BTreeMap;
use std::fs;

use ropeway::message::{Conversation, Dialect};
use ropeway::provider::{ProviderError, ProviderErrorKind, Reply, ReplyEvent};
use ropeway_providers::EncodedRequest;
use ropeway_web::SseParser;
use serde_json::{Value, json};

use super::case::{Case, tools};
use super::golden;

/// A recorded stream.
pub(crate) struct Stream {
    /// The dialect and name, such as `chat/tools`.
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    bytes: Vec<u8>,
}

/// The result of decoding a stream.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) events: Vec<ReplyEvent>,
    pub(crate) end: Result<Reply, ProviderError>,
}

/// Returns all streams.
pub(crate) fn streams() -> Vec<Stream> {
    let folder = golden::folder("streams");
    let files = golden::files(&folder, "sse");
    let read = |file: String| {
        let name = file.trim_end_matches(".sse").to_owned();
        let dialect = name.split('/').next().expect("a folder").parse().expect("a dialect");
        Stream { name, dialect, bytes: fs::read(folder.join(file)).expect("a stream") }
    };
    files.into_iter().map(read).collect()
}

/// Returns the stream with this name.
pub(super) fn stream(dialect: Dialect, name: &str) -> Stream {
    let name = format!("{dialect}/{name}");
    streams().into_iter().find(|stream| stream.name == name).expect("a stream")
}

/// Encodes a request that fits every stream.
fn question(dialect: Dialect) -> EncodedRequest {
    Case::new("question", Conversation::new().with("How is the wind?")).with_tools(tools()).encode(dialect)
}

/// Returns the events of a stream in these chunks.
fn frames<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut parser = SseParser::new(1 << 20);
    let mut frames = Vec::new();
    for chunk in chunks {
        parser.push(chunk, |event| frames.push(event.data.to_vec()));
    }
    // Events without data only keep the connection alive.
    frames.retain(|frame| !frame.is_empty());
    frames
}

fn decode(question: &EncodedRequest, frames: &[Vec<u8>]) -> Decoded {
    let mut decoder = question.decoder();
    let mut events = Vec::new();
    for frame in frames {
        if decoder.is_finished() {
            break;
        }
        if let Err(error) = decoder.frame(frame, &mut events) {
            return Decoded { events, end: Err(error) };
        }
    }
    let end = decoder.end(&mut events);
    Decoded { events, end }
}

impl Stream {
    pub(crate) fn decode(&self) -> Decoded {
        decode(&question(self.dialect), &self.frames())
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        frames([&self.bytes[..]])
    }
}

impl Decoded {
    fn seen(&self) -> Value {
        let events: Vec<Value> = self.events.iter().map(event).collect();
        match &self.end {
            Ok(reply) => json!({"events": events, "reply": reply}),
            Err(error) => {
                let kind = format!("{:?}", error.kind);
                let error = json!({"kind": kind, "message": error.message, "status": error.status, "code": error.code});
                json!({"events": events, "error": error})
            }
        }
    }
}

fn event(event: &ReplyEvent) -> Value {
    match event {
        ReplyEvent::Text(text) => json!({"text": text}),
        ReplyEvent::Reasoning(text) => json!({"reasoning": text}),
        ReplyEvent::ToolCallStarted { index, id, name } => json!({"call": index, "id": id, "name": name}),
        ReplyEvent::ToolCallDelta { index, json } => json!({"call": index, "delta": json}),
        ReplyEvent::ToolCall { index, call } => json!({"call": index, "whole": call}),
        ReplyEvent::Usage(usage) => json!({"usage": usage}),
        ReplyEvent::Warning(warning) => json!({"warning": warning}),
        other => panic!("no decoder gives {other:?}"),
    }
}

#[test]
fn every_stream_matches_its_golden_file() {
    let seen = streams().into_iter().map(|stream| (format!("{}.json", stream.name), stream.decode().seen()));
    golden::compare(&golden::folder("streams"), &seen.collect::<BTreeMap<_, _>>());
}

#[test]
fn events_add_up_to_the_reply() {
    for stream in streams() {
        let decoded = stream.decode();
        let Ok(reply) = &decoded.end else { continue };
        let (mut text, mut calls, mut usage) = (String::new(), Vec::new(), None);
        for event in &decoded.events {
            match event {
                ReplyEvent::Text(piece) => text.push_str(piece),
                ReplyEvent::ToolCall { call, .. } => calls.push(call.clone()),
                ReplyEvent::Usage(so_far) => usage = Some(*so_far),
                _ => {}
            }
        }
        let whole: Vec<_> = reply.message.calls().cloned().collect();
        let told = (text, calls, usage.unwrap_or_default());
        assert_eq!(told, (reply.message.to_text(), whole, reply.usage), "{}", stream.name);
    }
}

#[test]
fn a_stream_decodes_the_same_byte_by_byte() {
    for stream in streams() {
        assert_eq!(frames(stream.bytes.chunks(1)), stream.frames(), "{}", stream.name);
    }
}

#[test]
fn a_stream_decodes_the_same_in_two_chunks() {
    for stream in Dialect::ALL.into_iter().flat_map(|dialect| [stream(dialect, "tools"), stream(dialect, "text")]) {
        let whole = stream.frames();
        for cut in 0..stream.bytes.len() {
            let (first, second) = stream.bytes.split_at(cut);
            assert!(frames([first, second]) == whole, "{} cut at byte {cut}", stream.name);
        }
    }
}

#[test]
fn a_cut_off_stream_is_truncated_or_complete() {
    for stream in streams() {
        let (question, frames) = (question(stream.dialect), stream.frames());
        let whole = decode(&question, &frames).end;
        for end in 0..frames.len() {
            match (decode(&question, &frames[..end]).end, &whole) {
                // The error was already returned.
                (Err(error), Err(whole)) if error.kind == whole.kind => {}
                (Err(error), _) => {
                    assert_eq!(error.kind, ProviderErrorKind::Truncated, "{} after {end} frames: {error}", stream.name);
                }
                (Ok(reply), Ok(whole)) => {
                    assert_eq!(reply.message, whole.message, "{} after {end} frames", stream.name);
                }
                (Ok(reply), Err(error)) => panic!("{} after {end} frames: {reply:?}, not {error}", stream.name),
            }
        }
    }
}

#[test]
fn garbled_events_never_panic() {
    for dialect in Dialect::ALL {
        let (question, frames) = (question(dialect), stream(dialect, "tools").frames());
        for (at, frame) in frames.iter().enumerate() {
            for cut in (0..frame.len()).step_by(41) {
                let mut garbled = frames.clone();
                garbled[at].truncate(cut);
                let _ = decode(&question, &garbled);
                garbled[at] = frame.clone();
                garbled[at][cut] ^= 0x15;
                let _ = decode(&question, &garbled);
            }
            // Repeats and drops events.
            let mut doubled = frames.clone();
            doubled.insert(at, frame.clone());
            let _ = decode(&question, &doubled);
            let mut gap = frames.clone();
            gap.remove(at);
            let _ = decode(&question, &gap);
        }
        for odd in ["", "null", "[]", "0", "\"\"", "{}", "{\"type\":3}", "{\"choices\":{}}", "{\"candidates\":[null]}"]
        {
            let _ = decode(&question, &[odd.as_bytes().to_vec()]);
        }
    }
}
