//! Responses to clients, assembled from slices of the server's message.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr2;
use serde_json::json;
use serde_json::value::RawValue;

use crate::request::errors::ErrorReply;
use ropeway_core::json;
use ropeway_mcp::protocol::{Era, ScanError, encode_error_with, is_key, meta, scan_object};

/// Maximum size of a response that is copied into one buffer. Larger ones are written piece by piece.
const MAX_JOINED: usize = 4 << 10;

/// Maximum size of a slice that is copied even if the response is large.
const MAX_COPIED: usize = 256;

/// One JSON-RPC response without line breaks.
#[derive(Clone, Debug)]
pub(crate) struct Reply(Vec<Bytes>);

/// Members that a modern client expects in a result, and that a legacy server does not send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResultExtras {
    /// A cacheable result's `ttlMs`. The result also gets `cacheScope: private`.
    pub(crate) ttl_ms: Option<u64>,
}

impl ResultExtras {
    /// The members that a cacheable result gets.
    pub(crate) fn cacheable(ttl_ms: u64) -> Self {
        Self { ttl_ms: Some(ttl_ms) }
    }
}

/// A server's name and version as JSON text, written once and shared by its responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerInfoText(Arc<str>);

impl ServerInfoText {
    pub(crate) fn new(name: &str, version: &str) -> Self {
        Self(json!({"name": name, "version": version}).to_string().into())
    }
}

impl Reply {
    /// Responds with a result, which has to be one JSON object that [`scan_object`] accepts.
    pub(crate) fn result(id: &RawValue, result: Bytes) -> Self {
        let mut assembly = Assembly::start(id, &result);
        assembly.slice(0, result.len());
        assembly.finish()
    }

    /// Responds with a server's result, adapted to the client's era.
    ///
    /// A modern client gets `resultType`, the members in `extras`, and `server` in `_meta`. A legacy client does not get
    /// `resultType`. All other members keep their bytes. If server and client have the same era, nothing changes.
    pub(crate) fn for_client(
        id: &RawValue,
        result: Bytes,
        from: Era,
        to: Era,
        extras: ResultExtras,
        server: Option<&ServerInfoText>,
    ) -> Self {
        let adapted = match (from, to) {
            (Era::Legacy, Era::Modern) => modernized(id, &result, extras, server),
            (Era::Modern, Era::Legacy) => without_result_type(id, &result),
            (Era::Legacy, Era::Legacy) | (Era::Modern, Era::Modern) => return Self::result(id, result),
        };
        // Results are scanned when they are received, so this does not happen.
        adapted.unwrap_or_else(|error| Self::error(Some(id), &ErrorReply::internal(format!("invalid result: {error}"))))
    }

    /// Responds with an error. Without an id, the error answers a message whose id is unknown.
    pub(crate) fn error(id: Option<&RawValue>, error: &ErrorReply) -> Self {
        let ErrorReply { code, message, data, .. } = error;
        let text = encode_error_with(id.unwrap_or(RawValue::NULL), *code, message, data.as_ref());
        Self(vec![text.into()])
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the response in one buffer.
    pub(crate) fn into_bytes(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        }
    }

    /// Returns the response's pieces, for a vectored write. A small response has one.
    pub(crate) fn pieces(self) -> Vec<Bytes> {
        self.0
    }
}

/// The result members that a client gets, and the position of `_meta`.
#[derive(Default)]
struct KeptMembers {
    /// Ranges that cover consecutive members, with the commas between them.
    runs: Vec<(usize, usize)>,
    /// The last `_meta` value.
    meta: Option<(usize, usize)>,
    last_is_kept: bool,
}

impl KeptMembers {
    /// Scans a result and leaves out the members for which `is_cut` returns `true`.
    fn scan(result: &[u8], is_cut: impl Fn(&[u8], &[u8]) -> bool) -> Result<Self, ScanError> {
        let mut kept = Self::default();
        scan_object(result, |key, member| {
            let (span, value) = (member.span(), member.value);
            if is_cut(key, &result[value.clone()]) {
                kept.last_is_kept = false;
                return;
            }
            match kept.runs.last_mut().filter(|_| kept.last_is_kept) {
                Some(run) => run.1 = span.end,
                None => kept.runs.push((span.start, span.end)),
            }
            kept.last_is_kept = true;
            if is_key(key, "_meta") {
                kept.meta = Some((value.start, value.end));
            }
        })?;
        Ok(kept)
    }
}

/// Adapts a legacy server's result to a modern client.
fn modernized(
    id: &RawValue,
    result: &Bytes,
    extras: ResultExtras,
    server: Option<&ServerInfoText>,
) -> Result<Reply, ScanError> {
    let kept = KeptMembers::scan(result, |key, value| {
        is_key(key, "resultType")
            || extras.ttl_ms.is_some() && (is_key(key, "ttlMs") || is_key(key, "cacheScope"))
            || server.is_some() && is_key(key, "_meta") && !value.starts_with(b"{")
    })?;
    let meta_insert = match (server, kept.meta) {
        (Some(server), Some(meta)) => info_insert(result, meta, server)?,
        _ => None,
    };
    let mut assembly = Assembly::start(id, result);
    assembly.text("{\"resultType\":\"complete\"");
    if let Some(ttl) = extras.ttl_ms {
        assembly.text(&format!(",\"ttlMs\":{ttl},\"cacheScope\":\"private\""));
    }
    if let (Some(ServerInfoText(server)), None) = (server, kept.meta) {
        assembly.text(&format!(",\"_meta\":{{\"{}\":{server}}}", meta::SERVER_INFO));
    }
    for (start, end) in kept.runs {
        assembly.text(",");
        match &meta_insert {
            Some((at, text)) if (start..end).contains(at) => {
                assembly.slice(start, *at);
                assembly.text(text);
                assembly.slice(*at, end);
            }
            _ => assembly.slice(start, end),
        }
    }
    assembly.text("}");
    Ok(assembly.finish())
}

/// Returns the text to insert into `_meta`, and its position, unless `_meta` describes the server already.
fn info_insert(
    result: &[u8],
    (start, end): (usize, usize),
    server: &ServerInfoText,
) -> Result<Option<(usize, String)>, ScanError> {
    let (mut is_empty, mut is_described) = (true, false);
    scan_object(&result[start..end], |key, _| {
        is_empty = false;
        is_described |= is_key(key, meta::SERVER_INFO);
    })?;
    let comma = if is_empty { "" } else { "," };
    let insert = || (start + 1, format!("\"{}\":{}{comma}", meta::SERVER_INFO, server.0));
    Ok((!is_described).then(insert))
}

/// Adapts a modern server's result to a legacy client.
fn without_result_type(id: &RawValue, result: &Bytes) -> Result<Reply, ScanError> {
    let kept = KeptMembers::scan(result, |key, _| is_key(key, "resultType"))?;
    let mut assembly = Assembly::start(id, result);
    assembly.text("{");
    for (index, (start, end)) in kept.runs.into_iter().enumerate() {
        assembly.text(if index == 0 { "" } else { "," });
        assembly.slice(start, end);
    }
    assembly.text("}");
    Ok(assembly.finish())
}

/// A response under construction: own text, and result slices that are copied only if they are small.
struct Assembly<'a> {
    result: &'a Bytes,
    done: Vec<Bytes>,
    open: Vec<u8>,
    is_small: bool,
}

impl<'a> Assembly<'a> {
    /// Starts a response with everything up to the result.
    fn start(id: &RawValue, result: &'a Bytes) -> Self {
        let is_small = result.len() <= MAX_JOINED;
        let room = 256 + id.get().len() + if is_small { result.len() } else { 0 };
        let mut assembly = Self { result, done: Vec::new(), open: Vec::with_capacity(room), is_small };
        assembly.text("{\"jsonrpc\":\"2.0\",\"id\":");
        match memchr2(b'\n', b'\r', id.get().as_bytes()) {
            None => assembly.text(id.get()),
            Some(_) => assembly.text(&json::compact(id.get())),
        }
        assembly.text(",\"result\":");
        assembly
    }

    fn text(&mut self, text: &str) {
        self.open.extend_from_slice(text.as_bytes());
    }

    /// Appends a result slice. Line breaks, which JSON allows only between tokens, become spaces.
    fn slice(&mut self, start: usize, end: usize) {
        let slice = &self.result[start..end];
        let has_break = memchr2(b'\n', b'\r', slice).is_some();
        if !has_break && !self.is_small && slice.len() > MAX_COPIED {
            if !self.open.is_empty() {
                self.done.push(std::mem::take(&mut self.open).into());
            }
            self.done.push(self.result.slice(start..end));
        } else if has_break {
            let spaced = slice.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
            self.open.extend(spaced);
        } else {
            self.open.extend_from_slice(slice);
        }
    }

    /// Ends the response after the result.
    fn finish(mut self) -> Reply {
        self.text("}");
        self.done.push(self.open.into());
        Reply(self.done)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;
    use ropeway_mcp::protocol::{code, quick_response};

    fn id(text: &str) -> &RawValue {
        serde_json::from_str(text).expect("an id")
    }

    fn server() -> ServerInfoText {
        ServerInfoText::new("demo", "1.0")
    }

    fn text(reply: Reply) -> String {
        assert_eq!(reply.len(), reply.clone().pieces().concat().len());
        String::from_utf8(reply.into_bytes().to_vec()).expect("UTF-8")
    }

    fn adapted(result: &str, from: Era, to: Era) -> String {
        let result = Bytes::copy_from_slice(result.as_bytes());
        let text = text(Reply::for_client(id("1"), result, from, to, ResultExtras::default(), Some(&server())));
        let inner = text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#).and_then(|text| text.strip_suffix('}'));
        inner.expect("a response").to_owned()
    }

    #[test]
    fn a_result_is_answered_under_the_id_of_the_client() {
        let result = Bytes::from_static(br#"{"content":[ ]}"#);
        assert_eq!(text(Reply::result(id("\"a\""), result)), r#"{"jsonrpc":"2.0","id":"a","result":{"content":[ ]}}"#);
        let error = ErrorReply { code: code::PARSE, ..ErrorReply::invalid_request("not JSON") };
        assert_eq!(
            text(Reply::error(None, &error)),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}"#
        );
    }

    #[test]
    fn a_large_result_is_not_copied() {
        let result = Bytes::from(format!("{{\"resultType\":\"complete\",\"text\":\"{}\"}}", "x".repeat(MAX_JOINED)));
        let inside = |piece: &Bytes| result.as_ptr_range().contains(&piece.as_ptr());
        for to in [Era::Legacy, Era::Modern] {
            let reply = Reply::for_client(id("1"), result.clone(), Era::Modern, to, ResultExtras::default(), None);
            let pieces = reply.pieces();
            assert!(pieces.iter().any(|piece| piece.len() > MAX_JOINED && inside(piece)), "{to:?}");
            assert!(pieces.len() <= 3);
        }
    }

    #[test]
    fn a_result_of_a_legacy_server_gets_the_members_of_the_modern_era() {
        let info = r#""io.modelcontextprotocol/serverInfo":{"name":"demo","version":"1.0"}"#;
        for (result, expected) in [
            ("{}", format!(r#"{{"resultType":"complete","_meta":{{{info}}}}}"#)),
            (r#" { "a" : 1 } "#, format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a" : 1}}"#)),
            (r#"{"_meta":{},"a":1}"#, format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":1}}"#)),
            (r#"{"_meta":{"b":2}}"#, format!(r#"{{"resultType":"complete","_meta":{{{info},"b":2}}}}"#)),
            (r#"{"_meta":null,"a":1}"#, format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":1}}"#)),
            (
                r#"{"a":1,"resultType":"x","b":2}"#,
                format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":1,"b":2}}"#),
            ),
            (r#"{"result\u0054ype":"input_required"}"#, format!(r#"{{"resultType":"complete","_meta":{{{info}}}}}"#)),
            (
                r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}"#,
                r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}"#.to_owned(),
            ),
        ] {
            assert_eq!(adapted(result, Era::Legacy, Era::Modern), expected, "{result}");
        }
        let reply = Reply::for_client(
            id("1"),
            Bytes::from_static(br#"{"ttlMs":9,"contents":[]}"#),
            Era::Legacy,
            Era::Modern,
            ResultExtras::cacheable(0),
            None,
        );
        assert_eq!(
            text(reply),
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}}"#
        );
    }

    #[test]
    fn a_legacy_client_does_not_get_a_result_type() {
        for (result, expected) in [
            (r#"{"resultType":"complete"}"#, "{}"),
            (r#"{ "resultType":"complete", "a":1 }"#, r#"{"a":1}"#),
            (r#"{"a":1,"resultType":"complete","b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1,"resultType":"complete"}"#, r#"{"a":1}"#),
            (r#"{"a":{"resultType":1},"b":2}"#, r#"{"a":{"resultType":1},"b":2}"#),
        ] {
            assert_eq!(adapted(result, Era::Modern, Era::Legacy), expected, "{result}");
        }
        assert_eq!(adapted(r#"{ "resultType":"x" }"#, Era::Modern, Era::Modern), r#"{ "resultType":"x" }"#);
    }

    #[test]
    fn a_result_cannot_carry_a_second_id() {
        // The fast path only guesses where the result ends.
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"result":{},"id":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"id":7,"result":{}}"#,
            r#"{"result":{},"id":7,"b":{},"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":"\\"},"id":7,"b":"{\""}"#,
        ] {
            let (_, range) = quick_response(line.as_bytes()).expect("a response of the usual layout");
            assert_eq!(scan_object(&line.as_bytes()[range.clone()], |_, _| ()), Err(ScanError), "{line}");
            for (from, to) in [(Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy)] {
                let reply = adapted_or_error(&line[range.clone()], from, to);
                assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(1), &json!(code::INTERNAL)), "{line}");
            }
        }
    }

    fn adapted_or_error(result: &str, from: Era, to: Era) -> Value {
        let result = Bytes::copy_from_slice(result.as_bytes());
        let reply = Reply::for_client(id("1"), result, from, to, ResultExtras::default(), None);
        serde_json::from_slice(&reply.into_bytes()).expect("a response")
    }

    #[test]
    fn a_response_is_one_line_and_one_event() {
        let result = json!({"text": "a\nb", "list": [1, 2], "long": "x".repeat(MAX_JOINED)});
        let pretty = serde_json::to_string_pretty(&result).expect("JSON").replace('\n', "\r\n");
        for (from, to) in [(Era::Legacy, Era::Legacy), (Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy)] {
            let text = adapted(&pretty, from, to);
            assert!(!text.contains(['\n', '\r']));
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")["list"], result["list"]);
        }
    }

    /// A result with any members, including those that a splice inspects.
    fn any_result() -> impl Strategy<Value = Map<String, Value>> {
        let key = prop_oneof![
            Just("resultType".to_owned()),
            Just("ttlMs".to_owned()),
            Just("cacheScope".to_owned()),
            Just("content".to_owned()),
            "[a-c\"\\\\{},]{0,3}",
        ];
        let value = prop_oneof![
            any::<i64>().prop_map(Value::from),
            r#"[ -~\n"\\]{0,8}"#.prop_map(Value::from),
            Just(json!({"a": [1, {"resultType": "x", "_meta": {}}], "}": "]"})),
            Just(Value::from("long ".repeat(1000))),
        ];
        let meta = prop_oneof![
            Just(None),
            Just(Some(Value::Null)),
            Just(Some(json!([1]))),
            Just(Some(json!({}))),
            Just(Some(json!({"a": {"b": 1}, "c": "}"}))),
            Just(Some(json!({"a": 1, meta::SERVER_INFO: {"name": "own"}}))),
        ];
        (prop::collection::vec((key, value), 0..6), meta, any::<prop::sample::Index>()).prop_map(
            |(members, meta, at)| {
                let mut members: Vec<(String, Value)> = members;
                if let Some(meta) = meta {
                    members.insert(at.index(members.len() + 1), ("_meta".to_owned(), meta));
                }
                members.into_iter().collect()
            },
        )
    }

    /// Returns the adapted result, by way of the parsed value.
    fn edited(
        mut result: Map<String, Value>,
        from: Era,
        to: Era,
        extras: ResultExtras,
        server: Option<&ServerInfoText>,
    ) -> Value {
        if from != to {
            result.shift_remove("resultType");
        }
        if (from, to) == (Era::Legacy, Era::Modern) {
            result.insert("resultType".into(), json!("complete"));
            if let Some(ttl) = extras.ttl_ms {
                result.insert("ttlMs".into(), json!(ttl));
                result.insert("cacheScope".into(), json!("private"));
            }
            if let Some(ServerInfoText(server)) = server {
                let meta = result.entry("_meta").or_insert(Value::Null);
                if !meta.is_object() {
                    *meta = json!({});
                }
                if meta.get(meta::SERVER_INFO).is_none() {
                    meta[meta::SERVER_INFO] = serde_json::from_str(server).expect("JSON");
                }
            }
        }
        Value::Object(result)
    }

    proptest! {
        #[test]
        fn a_spliced_result_is_what_the_parser_would_write(
            result in any_result(),
            pretty: bool,
            from_legacy: bool,
            to_legacy: bool,
            ttl_ms in proptest::option::of(any::<u64>()),
            with_server: bool,
        ) {
            let era = |legacy| if legacy { Era::Legacy } else { Era::Modern };
            let (from, to, extras) = (era(from_legacy), era(to_legacy), ResultExtras { ttl_ms });
            let server = with_server.then(server);
            let text = if pretty { serde_json::to_vec_pretty(&result) } else { serde_json::to_vec(&result) };
            let reply = Reply::for_client(id("\"x\""), text.expect("JSON").into(), from, to, extras, server.as_ref());
            let length = reply.len();
            let bytes = reply.into_bytes();
            prop_assert_eq!(length, bytes.len());
            prop_assert!(memchr2(b'\n', b'\r', &bytes).is_none());
            let reply: Value = serde_json::from_slice(&bytes).expect("a response");
            let expected = edited(result, from, to, extras, server.as_ref());
            prop_assert_eq!(reply, json!({"jsonrpc": "2.0", "id": "x", "result": expected}));
            // Members are not repeated.
            let mut keys = Vec::new();
            scan_object(&bytes, |_, member| {
                let _ = scan_object(&bytes[member.value], |key, _| keys.push(key.to_vec()));
            }).expect("an object");
            let count = keys.len();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), count);
        }
    }
}
