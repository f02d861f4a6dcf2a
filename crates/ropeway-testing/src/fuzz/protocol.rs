//! Targets for JSON-RPC and MCP messages: frames, lists, results, header parameters.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::chunks::ways;
use ropeway_core::content::ContentPart;
use ropeway_core::tool::{Alias, ToolOutput};
use ropeway_mcp::fuzz::answers;
use ropeway_mcp::protocol::{
    HeaderParams, Incoming, Page, TruncatedMessage, decode_header_value, encode_error, encode_result, header_value,
    quick_response, read, tool_definition, wire_definition,
};

/// MCP message tokens.
pub(super) const TOKENS: &[&str] = &[
    "\"jsonrpc\":\"2.0\"",
    "\"id\":",
    "\"method\":",
    "\"params\":",
    "\"result\":",
    "\"error\":",
    "\"code\":",
    "\"message\":",
    "\"data\":",
    "\"tools\":",
    "\"name\":",
    "\"inputSchema\":",
    "\"outputSchema\":",
    "\"annotations\":",
    "\"_meta\":",
    "\"nextCursor\":",
    "\"ttlMs\":",
    "\"content\":",
    "\"type\":",
    "\"text\"",
    "\"image\"",
    "\"audio\"",
    "\"resource\"",
    "\"resource_link\"",
    "\"uri\":",
    "\"blob\":",
    "\"mimeType\":",
    "\"structuredContent\":",
    "\"isError\":",
    "\"resultType\":",
    "null",
    "true",
    "1e400",
    "-0",
    "\\ud83d",
    "{}",
    "[]",
];

/// A sent message's id.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

/// The fast path agrees with the full parser, and a request is answered with its own id.
pub(super) fn frame(data: &[u8]) {
    let mut messages = Vec::new();
    let outcome = read(data, |message| messages.push(message));
    assert!(outcome.is_ok() != messages.is_empty(), "{} messages, {outcome:?}", messages.len());
    if let Some((id, range)) = quick_response(data) {
        let result = &data[range];
        // The fast path parses the result next; only if that succeeds, the two must agree.
        if let (Ok(result), [Incoming::Response { id: full, outcome: Ok(raw) }]) =
            (std::str::from_utf8(result), messages.as_slice())
            && serde_json::from_str::<&RawValue>(result).is_ok()
        {
            assert_eq!((Some(id), result.trim_ascii()), (*full, raw.get()));
        }
    }
    let message = TruncatedMessage::of(data);
    let mut parts = TruncatedMessage::default();
    data.chunks(7).for_each(|part| parts.push(part));
    assert_eq!(message, parts);
    let _ = (message.request_id(), message.is_response());
    for message in &messages {
        if let Incoming::Request { id, .. } = message {
            for sent in [encode_result(id, &Value::Null), encode_error(id, -32601, "no")] {
                let sent: Sent<'_> = serde_json::from_slice(&sent).expect("a message is JSON");
                assert_eq!(sent.id.get(), id.get());
            }
        }
    }
}

/// The responses do not depend on how the bytes are split.
pub(super) fn lines(data: &[u8]) {
    for limit in [256, 1 << 20] {
        let whole = answers(&[data], limit);
        for chunks in ways(data) {
            assert_eq!(answers(&chunks, limit), whole, "limit {limit}, chunks {chunks:?}");
        }
    }
}

/// A page keeps every entry, and a definition round-trips.
pub(super) fn list(data: &[u8]) {
    let Ok(result) = serde_json::from_slice::<&RawValue>(data) else { return };
    let page = Page::read(result, "tools");
    let server = Alias::new("server");
    let entries = page.items.iter().map(|item| &**item).chain([result]);
    for entry in entries {
        let Ok(tool) = tool_definition(&server, entry) else { continue };
        assert!(!tool.name.is_empty());
        let written = serde_json::value::to_raw_value(&wire_definition(&tool)).expect("a definition is JSON");
        let again = tool_definition(&server, &written).expect("a definition");
        // A schema that is too deep to be read is not written either.
        if tool.input_schema.parse_error().is_none()
            && tool.output_schema.as_ref().is_none_or(|schema| schema.parse_error().is_none())
        {
            assert_eq!(again, tool);
        }
    }
    if let Ok(mut values) = serde_json::from_slice::<Map<String, Value>>(data)
        && let Some(Value::Array(items)) = values.remove("tools")
    {
        assert_eq!(page.items.len(), items.len());
    }
}

/// Stored definitions round-trip.
pub(super) fn memory(data: &[u8]) {
    ropeway_bridge::fuzz::cache(data);
}

/// A result is read with any fields, and round-trips.
pub(super) fn tool_output(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let is_object = serde_json::from_slice::<Map<String, Value>>(data).is_ok();
    let output = ToolOutput::read(&bytes);
    assert!(output.is_ok() || !is_object, "{output:?}");
    let Ok(output) = output else { return };
    if is_object {
        assert_eq!(serde_json::from_slice::<ToolOutput>(data).expect("a result"), output);
    }
    let written = serde_json::to_vec(&output).expect("a result is JSON");
    let again: ToolOutput = serde_json::from_slice(&written).expect("a result");
    // An invalid `isError` is kept next to its meaning, and only the meaning is written.
    let mut meant = output.clone();
    meant.extra.shift_remove("isError");
    assert_eq!(again, meant);
    let _ = output.plain_text();
    for part in &output.content {
        match part {
            ContentPart::Image(blob) | ContentPart::Audio(blob) => drop(blob.bytes()),
            ContentPart::ResourceLink(link) => drop(link.describe()),
            _ => {}
        }
    }
}

/// Header values are visible ASCII, round-trip, and match the arguments that they mirror.
pub(super) fn header_params(data: &[u8]) {
    let text = super::input::text(data);
    let (schema, arguments) = super::input::split_input(&text);
    let value = header_value(&text);
    let is_visible = |value: &str| value.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
    assert!(is_visible(&value), "{value:?}");
    assert_eq!(decode_header_value(&value).as_deref(), Some(&*text));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(params) = HeaderParams::read(&schema) else { return };
    let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(arguments) else { return };
    let headers = params.headers(&arguments);
    let find = |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    assert_eq!(params.check(&arguments, find), Ok(()));
    for (name, value) in &headers {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name:?}");
        assert!(is_visible(value), "{value:?}");
    }
}
