//! Targets for messages from gateway clients, and for results that the gateway forwards unparsed.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use ropeway_core::json::without_lone_surrogates;
use ropeway_mcp::protocol::{
    ClientMessage, ClientParams, Member, code, encode_error, is_key, read_client_message, scan_object,
};

/// Request and result tokens.
pub(super) const TOKENS: &[&str] = &[
    "{\"jsonrpc\":\"2.0\",",
    "\"id\":1,",
    "\"id\":null",
    "\"id\":",
    "\"method\":\"tools/call\",",
    "\"\\u006dethod\":",
    "\"params\":{",
    "\"name\":\"a\"",
    "\"uri\":",
    "\"taskId\":",
    "\"arguments\":{",
    "\"_meta\":{",
    "\"progressToken\":",
    "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"",
    "\"io.modelcontextprotocol/clientCapabilities\":{}",
    "\"result\":",
    "\"result\\u0054ype\":",
    "\"resultType\":\"complete\"",
    "\"error\":{\"code\":",
    "},\"id\":7",
    "\\\"",
    "\\\\",
    "\\ud83d",
    "\"\\",
    "[[[[",
    "]]]]",
    "{\"a\":[{\"b\":",
    "}]}",
    "1e400",
    "-0",
    "null",
    "\n",
    "\u{2028}",
    "\u{feff}",
];

/// The values by which a message is recognized, read by the full parser.
#[derive(Deserialize)]
struct Parsed<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// A message is rejected with the right code, keeps its parts unchanged, and its parameters lose nothing.
pub(super) fn message(data: &[u8]) {
    let text = std::str::from_utf8(data);
    let is_json = text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let message = match read_client_message(data) {
        Ok(message) => message,
        Err(error) => {
            assert!(matches!(error.code, code::PARSE | code::INVALID_REQUEST));
            assert!(is_json || error.code == code::PARSE, "{}", error.message);
            // A key with half a surrogate pair is JSON that a string cannot hold.
            let has_lone_surrogate = text.is_ok_and(|text| matches!(without_lone_surrogates(text), Cow::Owned(_)));
            assert!(!is_json || has_lone_surrogate || error.code == code::INVALID_REQUEST, "{}", error.message);
            if let Some(id) = error.id {
                let reply = encode_error(id, error.code, &error.message);
                assert!(serde_json::from_slice::<Parsed<'_>>(&reply).is_ok_and(|reply| reply.id.is_some()));
            }
            return;
        }
    };
    assert!(is_json);
    let parsed: Parsed<'_> = serde_json::from_slice(data).expect("a message without duplicates");
    let (id, method, params) = match message {
        ClientMessage::Request { id, method, params } => (Some(id), method, params),
        ClientMessage::Notification { method, params } => (None, method, params),
        ClientMessage::Response { id, .. } => (Some(id), "".into(), None),
    };
    assert_eq!(id.map(RawValue::get), parsed.id.map(RawValue::get));
    assert!(method.len() <= 256 && id.is_none_or(|id| id.get().len() <= 1 << 10));
    for target in [None, Some("name"), Some("uri"), Some("taskId")] {
        if let Ok(read) = ClientParams::read(params, target) {
            keeps_all(params, &read);
        }
    }
}

/// Every parameter member is in one of the parts, with the same value.
fn keeps_all(params: Option<&RawValue>, read: &ClientParams<'_>) {
    let parse = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    let Some(Value::Object(mut whole)) = params.and_then(parse) else { return };
    let meta = whole.remove("_meta").unwrap_or_default();
    if let Some((key, target)) = &read.target {
        assert_eq!(whole.remove(*key).as_ref().and_then(Value::as_str), Some(&**target));
    }
    assert_eq!(whole.remove("arguments").filter(|value| !value.is_null()), read.arguments.and_then(parse));
    let object = |members: &[(Cow<'_, str>, &RawValue)]| -> Map<String, Value> {
        members.iter().filter_map(|(key, value)| Some((key.to_string(), parse(value)?))).collect()
    };
    assert_eq!(object(&read.rest), whole);
    let others = object(&read.meta.others);
    let known = meta.as_object().map_or(0, Map::len) - others.len();
    assert!(known <= 5, "{known} members of `_meta` are lost");
    assert!(others.iter().all(|(key, value)| meta.get(key) == Some(value)));
}

/// Exactly the objects that the full parser accepts are accepted, with the same members in order.
pub(super) fn scan(data: &[u8]) {
    let mut members: Vec<Member> = Vec::new();
    let outcome = scan_object(data, |key, member| {
        assert_eq!(key, &data[member.key.clone()]);
        assert!(member.key.end < member.value.start && !member.value.is_empty());
        assert!(members.last().is_none_or(|last| last.value.end < member.span().start));
        members.push(member);
    });
    if outcome.is_ok() {
        let trimmed = data.trim_ascii();
        assert!(trimmed.starts_with(b"{") && trimmed.ends_with(b"}"));
        // Line breaks occur only between tokens, where a space means the same.
        for member in &members {
            assert!(data[member.key.clone()].iter().all(|byte| *byte >= 0x20));
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let is_object = text.trim_ascii().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok();
    assert_eq!(is_object, outcome.is_ok(), "the scanner and the parser disagree");
    if let (true, Ok(parsed)) = (is_object, serde_json::from_str::<Map<String, Value>>(text)) {
        for (key, value) in &parsed {
            // The last of several members with the same key counts.
            let last = members.iter().rev().find(|member| is_key(&data[member.key.clone()], key));
            let range = last.expect("a member of the parser").value.clone();
            assert_eq!(serde_json::from_str::<Value>(&text[range]).ok().as_ref(), Some(value));
        }
        let keys: BTreeSet<&[u8]> = members.iter().map(|member| &data[member.key.clone()]).collect();
        assert!(parsed.len() <= keys.len());
    }
}
