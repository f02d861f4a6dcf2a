//! JSON-RPC messages: parsed leniently, encoded strictly ([JSON-RPC 2.0](https://www.jsonrpc.org/specification)).

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::field::first_entries;
use super::scan::{is_key, scan_object};
use ropeway_core::json;
use ropeway_web::HeadTail;

/// Maximum messages in a batch. Further ones are ignored.
const MAX_BATCH: usize = 10_000;

/// A received message, whose parts are still raw JSON.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// A response to a request from this side.
    Response {
        /// The request's id, if the response has a valid one.
        id: Option<u64>,
        /// The result or the error.
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// A request from the peer.
    Request {
        /// The peer's request id, to be echoed unchanged.
        id: &'a RawValue,
        /// The requested method.
        method: Cow<'a, str>,
        /// The parameters.
        params: Option<&'a RawValue>,
    },
    /// A notification, which gets no response.
    Notification {
        /// The notification's method.
        method: Cow<'a, str>,
        /// The parameters.
        params: Option<&'a RawValue>,
    },
}

/// A JSON-RPC error from the peer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("error {code}: {message}")]
pub struct RpcError {
    /// The error code.
    pub code: i64,
    /// The peer's message.
    pub message: String,
    /// Additional data.
    pub data: Option<Value>,
}

/// The error of [`read`]: the text is not a JSON-RPC message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The text is not JSON.
    #[error("not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The JSON is neither a request nor a response.
    #[error("JSON, but not a JSON-RPC message")]
    NotRpc,
}

/// The top level of a message. Its parts are parsed later.
#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Distinguishes an explicit `null` from a missing field.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses a message, or each message in a batch, and passes it to `take`.
///
/// # Errors
///
/// Fails if the text contains no JSON-RPC message. Invalid messages in a batch are skipped.
pub fn read<'a>(text: &'a [u8], mut take: impl FnMut(Incoming<'a>)) -> Result<(), FrameError> {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => {
            let (batch, _) = first_entries(text, MAX_BATCH).map_err(FrameError::NotJson)?;
            // An invalid message does not affect the others.
            let messages = batch.iter().filter_map(|raw| incoming(serde_json::from_str(raw.get()).ok()?).ok());
            let mut none = true;
            for message in messages {
                none = false;
                take(message);
            }
            if none {
                return Err(FrameError::NotRpc);
            }
        }
        _ => take(incoming(serde_json::from_slice(text).map_err(FrameError::NotJson)?)?),
    }
    Ok(())
}

/// Locates the result in a response with a common layout, without parsing the result.
///
/// Two layouts are recognized: the result last, or the result first and the id last. The range is the result if the text is
/// valid JSON without further fields. If parsing the range fails, the caller has to use [`read`].
pub fn quick_response(text: &[u8]) -> Option<(u64, Range<usize>)> {
    if let Some(rest) = text.strip_prefix(br#"{"jsonrpc":"2.0","id":"#) {
        let (id, rest) = leading_number(rest)?;
        let result = rest.strip_prefix(br#","result":"#)?.strip_suffix(b"}")?;
        let start = text.len() - 1 - result.len();
        return Some((id, start..text.len() - 1));
    }
    if text.starts_with(br#"{"result":"#) {
        let rest = text.strip_suffix(b"}")?;
        let digits = rest.iter().rev().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let (rest, id) = rest.split_at(rest.len() - digits);
        let (id, _) = leading_number(id)?;
        let rest = rest.strip_suffix(br#","jsonrpc":"2.0","id":"#)?;
        return Some((id, br#"{"result":"#.len()..rest.len()));
    }
    None
}

/// Parses the integer that a text starts with. Returns it and the rest.
fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let (digits, rest) = text.split_at(digits);
    let number =
        digits.iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    Some((number, rest))
}

fn incoming(wire: RawMessage<'_>) -> Result<Incoming<'_>, FrameError> {
    let RawMessage { id, method, params, result, error } = wire;
    // A `null` id identifies no request.
    let id = id.filter(|id| id.get() != "null");
    match (method, error, result) {
        (Some(method), ..) => Ok(match id {
            Some(id) => Incoming::Request { id, method, params },
            None => Incoming::Notification { method, params },
        }),
        (None, Some(error), _) => Ok(Incoming::Response { id: id.and_then(number), outcome: Err(rpc_error(error)) }),
        (None, None, Some(result)) => Ok(Incoming::Response { id: id.and_then(number), outcome: Ok(result) }),
        (None, None, None) => Err(FrameError::NotRpc),
    }
}

/// Parses a response id. Servers echo it as `3`, `"3"` or `3.0`.
fn number(id: &RawValue) -> Option<u64> {
    let text = id.get().trim_matches('"');
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    })
}

fn rpc_error(raw: &RawValue) -> RpcError {
    let error = json::from_str(raw.get()).unwrap_or_else(|_| readable_members(raw));
    let code = match &error["code"] {
        // Codes outside i64 have no meaning.
        Value::Number(code) => code.as_i64().or_else(|| code.as_f64().map(|code| code as i64)).unwrap_or_default(),
        Value::String(code) => code.parse().unwrap_or_default(),
        _ => 0,
    };
    let message = match (&error["message"], &error) {
        (Value::String(message), _) => message.clone(),
        (Value::Null, Value::String(message)) => message.clone(),
        (Value::Null, _) => "(no message)".to_owned(),
        (invalid, _) => invalid.to_string(),
    };
    let data = error.get("data").filter(|data| !data.is_null()).cloned();
    RpcError { code, message, data }
}

/// Reads an error's members one by one. One that is nested too deeply is left out.
fn readable_members(raw: &RawValue) -> Value {
    let text = raw.get().as_bytes();
    let mut members = Map::new();
    let scanned = scan_object(text, |key, member| {
        let name = ["code", "message", "data"].into_iter().find(|name| is_key(key, name));
        if let (Some(name), Ok(value)) = (name, json::from_slice(&text[member.value])) {
            members.insert(name.to_owned(), value);
        }
    });
    scanned.map_or(Value::Null, |()| Value::Object(members))
}

/// The beginning and the end of a message that is too large or invalid, to find the request that it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TruncatedMessage(HeadTail);

impl From<HeadTail> for TruncatedMessage {
    fn from(parts: HeadTail) -> Self {
        Self(parts)
    }
}

impl TruncatedMessage {
    /// Keeps the beginning and the end of a message.
    pub fn of(message: &[u8]) -> Self {
        let mut truncated = Self::default();
        truncated.push(message);
        truncated
    }

    /// Appends the next part of the message.
    pub fn push(&mut self, part: &[u8]) {
        self.0.push(part);
    }

    /// Returns the id of the request that the message answers, if it can be found.
    pub fn request_id(&self) -> Option<u64> {
        let find = |part: &[u8], last: bool| {
            let text = String::from_utf8_lossy(part);
            let at = if last { text.rfind("\"id\"") } else { text.find("\"id\"") }?;
            let rest = text[at + 4..].trim_start().strip_prefix(':')?.trim_start();
            let digits = rest.strip_prefix('"').unwrap_or(rest);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        };
        // Only the part before the result is searched, because an `id` inside the result is data.
        let head = self.0.head();
        let own = match head.windows(8).position(|window| window == b"\"result\"") {
            Some(at) => &head[..at],
            None => head,
        };
        find(own, false).or_else(|| find(self.0.tail(), true))
    }

    /// Returns `true` unless the message has a method or parameters, as requests and notifications do.
    pub fn is_response(&self) -> bool {
        let find = |key: &[u8]| memchr::memmem::find(self.0.head(), key).unwrap_or(usize::MAX);
        let own = find(b"\"method\"").min(find(b"\"params\""));
        own == usize::MAX || find(b"\"result\"").min(find(b"\"error\"")) < own
    }
}

/// Encodes the result for a peer's request.
pub fn encode_result(id: &RawValue, result: &Value) -> Vec<u8> {
    // The id is echoed as text, because not every JSON id can be represented as a `Value`.
    let id = json::compact(id.get());
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// Encodes the error response to a peer's request.
pub fn encode_error(id: &RawValue, code: i64, message: &str) -> Vec<u8> {
    encode_error_with(id, code, message, None)
}

/// Encodes the error response to a peer's request, with additional data.
pub fn encode_error_with(id: &RawValue, code: i64, message: &str, data: Option<&Value>) -> Vec<u8> {
    let (id, message) = (json::compact(id.get()), Value::from(message));
    let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#).into_bytes()
}

/// Encodes a notification.
pub fn encode_notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Result<Vec<Incoming<'_>>, FrameError> {
        let mut messages = Vec::new();
        read(text, |message| messages.push(message)).map(|()| messages)
    }

    fn answer(text: &str) -> (Option<u64>, Result<String, RpcError>) {
        match all(text.as_bytes()).expect("a message").remove(0) {
            Incoming::Response { id, outcome } => (id, outcome.map(|raw| raw.get().to_owned())),
            other => panic!("an answer, not {other:?}"),
        }
    }

    #[test]
    fn a_response_id_may_be_a_number_a_string_or_a_float() {
        for id in ["3", "\"3\"", "3.0"] {
            assert_eq!(answer(&format!("{{\"id\":{id},\"result\":{{}}}}")), (Some(3), Ok("{}".into())));
        }
        assert_eq!(answer(r#"{"id":null,"result":1}"#).0, None);
        assert_eq!(answer(r#"{"id":"x","result":1}"#).0, None);
    }

    #[test]
    fn a_null_error_is_ignored_and_jsonrpc_may_be_missing() {
        assert_eq!(answer(r#"{"id":1,"error":null,"result":{"a":1}}"#), (Some(1), Ok("{\"a\":1}".into())));
        assert_eq!(answer(r#"{"result":null,"id":1}"#), (Some(1), Ok("null".into())));
    }

    #[test]
    fn an_error_keeps_its_code_if_its_data_is_nested_too_deeply() {
        let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
        let expected = RpcError { code: -5, message: "no".into(), data: None };
        let text = format!(r#"{{"id":1,"error":{{"code":-5,"data":{deep},"message":"no"}}}}"#);
        assert_eq!(answer(&text), (Some(1), Err(expected)));
        let text = format!(r#"{{"id":1,"error":{{"code":-5,"message":{deep},"data":1}}}}"#);
        let expected = RpcError { code: -5, message: "(no message)".into(), data: Some(1.into()) };
        assert_eq!(answer(&text), (Some(1), Err(expected)));
    }

    #[test]
    fn an_error_is_read_with_any_fields() {
        let error = |text: &str| answer(text).1.expect_err("an error");
        assert_eq!(error(r#"{"id":1,"error":{"code":-32000,"message":"no"}}"#).code, -32000);
        assert_eq!(
            error(r#"{"id":1,"error":{"code":"-5"}}"#),
            RpcError { code: -5, message: "(no message)".into(), data: None }
        );
        assert_eq!(error(r#"{"id":1,"error":{"code":99999999999,"message":{"a":1}}}"#).message, "{\"a\":1}");
        assert_eq!(error(r#"{"id":1,"error":"broken"}"#).message, "broken");
        assert_eq!(
            error(r#"{"id":1,"error":{"code":1e300,"message":"m","data":[1]}}"#).data,
            Some(serde_json::json!([1]))
        );
    }

    #[test]
    fn an_id_of_the_peer_is_echoed_unchanged() {
        for id in ["1e400", "18446744073709551616", "-0", "1.10", r#""\ud83d""#, r#"{"a": [1]}"#] {
            let request = format!(r#"{{"id":{id},"method":"ping"}}"#);
            let messages = all(request.as_bytes()).expect("a message");
            let Incoming::Request { id: found, .. } = &messages[0] else { panic!("a request") };
            let id = id.replace(' ', "");
            let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            assert_eq!(text(encode_result(found, &serde_json::json!({}))), answer);
            let refusal = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"\"no\""}}}}"#);
            assert_eq!(text(encode_error(found, -1, "\"no\"")), refusal);
            let refusal = refusal.replace("}}", r#","data":[1]}}"#);
            assert_eq!(text(encode_error_with(found, -1, "\"no\"", Some(&serde_json::json!([1])))), refusal);
        }
    }

    #[test]
    fn a_batch_is_read_message_by_message() {
        let batch = all(br#" [7,{},{"id":1,"result":{}},{"method":"notifications/x"},{"id":"a","method":"ping"}]"#)
            .expect("a batch");
        assert!(matches!(batch[0], Incoming::Response { id: Some(1), .. }));
        assert!(matches!(&batch[1], Incoming::Notification { method, .. } if method == "notifications/x"));
        assert!(matches!(&batch[2], Incoming::Request { id, .. } if id.get() == "\"a\""));
    }

    #[test]
    fn the_result_of_a_usual_response_is_located_without_parsing_it() {
        let found = |text: &str| quick_response(text.as_bytes()).map(|(id, range)| (id, text[range].to_owned()));
        let result = || r#"{"content":[]}"#.to_owned();
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":17,"result":{"content":[]}}"#), Some((17, result())));
        assert_eq!(found(r#"{"result":{"content":[]},"jsonrpc":"2.0","id":17}"#), Some((17, result())));
        for unusual in [
            r#"{"jsonrpc":"2.0","id":"17","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":17,"error":{"code":1}}"#,
            r#"{"jsonrpc":"2.0","id":,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":17,"result":{}"#.trim_end_matches('}'),
            r#"{"result":{},"id":17}"#,
            r#"{"result":{},"jsonrpc":"2.0","id":99999999999999999999999}"#,
            r#"{"method":"ping"}"#,
            "{\"result\":}",
            "",
        ] {
            assert_eq!(found(unusual), None, "{unusual}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_quick_path_agrees_with_the_parser(id: u32, text in ".*", last: bool) {
            let result = serde_json::json!({"content": [{"type": "text", "text": text}], "id": 3, "jsonrpc": "2.0"});
            let line = if last {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            } else {
                format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#)
            };
            let (quick, range) = quick_response(line.as_bytes()).expect("a usual response");
            let (full, outcome) = answer(&line);
            proptest::prop_assert_eq!((Some(u64::from(id)), Some(quick)), (full, full));
            proptest::prop_assert_eq!(&line[range], outcome.expect("a result"));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_quick_path(text in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..60)) {
            let _ = quick_response(&text);
        }
    }

    #[test]
    fn noise_is_distinguished_from_messages() {
        assert!(matches!(all(b"Server started on port 3"), Err(FrameError::NotJson(_))));
        assert!(matches!(all(b"{\"level\":\"info\"}"), Err(FrameError::NotRpc)));
        assert!(matches!(all(b""), Err(FrameError::NotJson(_))));
        let deep = "[".repeat(100_000);
        assert!(all(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_request_id_is_found_at_either_end_of_a_truncated_message() {
        let id = |message: &str| TruncatedMessage::of(message.as_bytes()).request_id();
        let long = "x".repeat(100_000);
        assert_eq!(id(&format!(r#"{{"jsonrpc":"2.0","id": 17,"result":{{"id":3,"a":"{long}"#)), Some(17));
        assert_eq!(id(&format!(r#"{{"jsonrpc":"2.0","result":{{"id":3,"a":"{long}"}},"id":"18"}}"#)), Some(18));
        assert_eq!(id(&format!(r#"{{"jsonrpc":"2.0","result":{{"id":3,"a":"{long}"#)), None);
    }

    #[test]
    fn a_truncated_response_is_recognized_by_its_beginning() {
        let is_response = |message: &[u8]| TruncatedMessage::of(message).is_response();
        assert!(is_response(br#"{"jsonrpc":"2.0","id":1,"result":{"method":"#));
        assert!(is_response(br#"{"error":{"code":1,"data":{"params":"#));
        assert!(is_response(br#"{"jsonrpc":"2.0","id":1"#));
        assert!(!is_response(br#"{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"result":"#));
        assert!(!is_response(br#"{"params":{"data":"xxxx"#));
    }
}
