//! One client message, borrowed from its bytes and fully validated.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::code;
use super::scan::is_deeper_than;

/// Maximum length for an id or a progress token, as JSON text.
const MAX_ID: usize = 1 << 10;

/// Maximum method length.
const MAX_METHOD: usize = 256;

/// Maximum message nesting. Servers written with a recursive parser may fail at deeper messages, and clients share them.
const MAX_DEPTH: usize = 128;

/// A client message, whose parts are still raw JSON.
#[derive(Clone, Debug)]
pub enum ClientMessage<'a> {
    /// A request.
    Request {
        /// The id, a string or a number, to be echoed unchanged.
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
    /// A response to a request from this side.
    Response {
        /// The request's id.
        id: &'a RawValue,
        /// The result or the error.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
}

/// The [`read_client_message`] error, with the parts for the error response.
#[derive(Clone, Debug)]
pub struct InvalidMessage<'a> {
    /// The message's id, if it has a valid one.
    pub id: Option<&'a RawValue>,
    /// The JSON-RPC error code: [`code::PARSE`] or [`code::INVALID_REQUEST`].
    pub code: i64,
    /// The problem.
    pub message: String,
    /// Whether the message is an invalid response. Answering it on a pipe could start an endless exchange.
    pub is_response: bool,
}

impl InvalidMessage<'_> {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { id: None, code, message: message.into(), is_response: false }
    }
}

/// Parses one client message.
///
/// # Errors
///
/// Fails with [`code::PARSE`] if the text is not JSON, and with [`code::INVALID_REQUEST`] for batches, duplicate keys, ids
/// that are neither a string nor a number, values that are nested too deeply, and all other JSON that is not a JSON-RPC
/// message.
pub fn read_client_message(text: &[u8]) -> Result<ClientMessage<'_>, InvalidMessage<'_>> {
    let text = std::str::from_utf8(text).map_err(|_| InvalidMessage::new(code::PARSE, "the message is not UTF-8"))?;
    let not_json = |error| InvalidMessage::new(code::PARSE, format!("the message is not JSON: {error}"));
    if !text.trim_ascii_start().starts_with('{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(not_json)?;
        let is_batch = text.trim_ascii_start().starts_with('[');
        let problem = if is_batch { "batches are not supported" } else { "the message is not an object" };
        return Err(InvalidMessage::new(code::INVALID_REQUEST, problem));
    }
    let fields: Fields<'_> = serde_json::from_str(text).map_err(not_json)?;
    let id = fields.id.filter(|id| is_id(id) && !fields.is_duplicate("id"));
    let is_response = fields.method.is_none() && (fields.result.is_some() || fields.error.is_some());
    let too_deep = || format!("the message is nested deeper than {MAX_DEPTH} levels");
    let message = match is_deeper_than(text.as_bytes(), MAX_DEPTH) {
        true => Err(too_deep()),
        false => fields.into_message(),
    };
    message.map_err(|message| InvalidMessage { id, code: code::INVALID_REQUEST, message, is_response })
}

/// The top level of a message.
#[derive(Default)]
struct Fields<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    /// The keys that occur more than once.
    duplicates: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn is_duplicate(&self, key: &str) -> bool {
        self.duplicates.contains(&key)
    }

    fn into_message(self) -> Result<ClientMessage<'a>, String> {
        if let Some(key) = self.duplicates.first() {
            return Err(format!("duplicate key `{key}`"));
        }
        let is_supported = |version: &RawValue| version.get() == "\"2.0\"" || string(version).as_deref() == Some("2.0");
        if !self.jsonrpc.is_some_and(is_supported) {
            return Err("`jsonrpc` is not \"2.0\"".to_owned());
        }
        if let Some(id) = self.id
            && !is_id(id)
        {
            let is_long = id.get().len() > MAX_ID;
            return Err(if is_long { too_long("id", MAX_ID) } else { "`id` is not a string or a number".to_owned() });
        }
        // Some clients write an absent error or absent parameters as `null`.
        let error = self.error.filter(|error| error.get() != "null" || self.result.is_none());
        match (self.method, self.result, error) {
            (Some(method), None, None) => {
                let method = string(method).ok_or("`method` is not a string")?;
                if method.len() > MAX_METHOD {
                    return Err(too_long("method", MAX_METHOD));
                }
                let params = self.params.filter(|params| params.get() != "null");
                Ok(match self.id {
                    Some(id) => ClientMessage::Request { id, method, params },
                    None => ClientMessage::Notification { method, params },
                })
            }
            (None, Some(result), None) => Ok(ClientMessage::Response { id: self.response_id()?, outcome: Ok(result) }),
            (None, None, Some(error)) => Ok(ClientMessage::Response { id: self.response_id()?, outcome: Err(error) }),
            (None, None, None) => Err("the message has no `method`".to_owned()),
            _ => Err("the message has more than one of `method`, `result` and `error`".to_owned()),
        }
    }

    fn response_id(&self) -> Result<&'a RawValue, String> {
        self.id.ok_or_else(|| "the response has no `id`".to_owned())
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Field {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key()? {
            let (key, slot) = match field {
                Field::Jsonrpc => ("jsonrpc", &mut fields.jsonrpc),
                Field::Id => ("id", &mut fields.id),
                Field::Method => ("method", &mut fields.method),
                Field::Params => ("params", &mut fields.params),
                Field::Result => ("result", &mut fields.result),
                Field::Error => ("error", &mut fields.error),
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if slot.replace(map.next_value()?).is_some() && !fields.duplicates.contains(&key) {
                fields.duplicates.push(key);
            }
        }
        Ok(fields)
    }
}

/// A string that is borrowed unless it contains escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Decodes a string. Returns `None` for other values and for lone surrogates.
pub(super) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(value.get()).ok().map(|Text(text)| text)
}

/// Returns `true` for strings and numbers that are not too long.
pub(super) fn is_id(value: &RawValue) -> bool {
    value.get().len() <= MAX_ID && value.get().starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}

pub(super) fn too_long(key: &str, limit: usize) -> String {
    format!("`{key}` is longer than {limit} bytes")
}

/// Passes each object member to `take`, until one fails.
pub(super) fn members<'a>(
    object: &'a RawValue,
    take: impl FnMut(Cow<'a, str>, &'a RawValue) -> Result<(), String>,
) -> Result<(), String> {
    let mut problem = None;
    let mut json = serde_json::Deserializer::from_str(object.get());
    let visitor = MembersVisitor { take, problem: &mut problem };
    let outcome = serde::Deserializer::deserialize_map(&mut json, visitor);
    match (problem, outcome) {
        (Some(problem), _) => Err(problem),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(())) => Ok(()),
    }
}

struct MembersVisitor<'p, F> {
    take: F,
    problem: &'p mut Option<String>,
}

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue) -> Result<(), String>> Visitor<'de> for MembersVisitor<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Text(key), value)) = map.next_entry()? {
            if let Err(problem) = (self.take)(key, value) {
                *self.problem = Some(problem);
                return Err(A::Error::custom("invalid member"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClientMessage<'_>, InvalidMessage<'_>> {
        read_client_message(text.as_bytes())
    }

    fn problem(text: &str) -> (Option<&str>, i64, String) {
        let error = read(text).expect_err(text);
        (error.id.map(RawValue::get), error.code, error.message)
    }

    #[test]
    fn requests_notifications_and_responses_are_distinguished() {
        let text = r#" {"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{ "x":1 },"other":[1]} "#;
        let Ok(ClientMessage::Request { id, method, params: Some(params) }) = read(text) else { panic!("a request") };
        assert_eq!((id.get(), &*method, params.get()), (r#""a\u0062""#, "tools/call", r#"{ "x":1 }"#));
        assert!(matches!(method, Cow::Borrowed(_)));

        let text = r#"{"method":"notifications\/x","jsonrpc":"\u0032.0","params":null}"#;
        let Ok(ClientMessage::Notification { method, params: None }) = read(text) else { panic!("a notification") };
        assert_eq!(method, "notifications/x");

        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Ok("null")),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, Ok("{}")),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, Err(r#"{"code":1}"#)),
        ] {
            let Ok(ClientMessage::Response { id, outcome }) = read(text) else { panic!("a response: {text}") };
            assert_eq!((id.get(), outcome.map(RawValue::get).map_err(RawValue::get)), ("1", expected));
        }
    }

    #[test]
    fn an_id_of_a_client_is_a_string_or_a_number() {
        for id in ["0", "-7", "1.5", "1e400", "18446744073709551616", "\"\"", r#""\ud83d""#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Ok(ClientMessage::Request { id: found, .. }) = read(&text) else { panic!("a request: {text}") };
            assert_eq!(found.get(), id);
        }
        let long = format!("\"{}\"", "x".repeat(MAX_ID));
        for id in ["null", "{}", "[1]", "true", &long] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let (echoed, code, message) = problem(&text);
            assert_eq!((echoed, code), (None, code::INVALID_REQUEST), "{message}");
        }
    }

    #[test]
    fn broken_json_is_a_parse_error() {
        for text in [
            "",
            "{",
            "x",
            "[1",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"} x",
            "{\"a\":\"\n\"}",
            "\u{feff}{}",
            "{\"id\":01}",
            "{\"a\":1,}",
        ] {
            assert_eq!(problem(text).1, code::PARSE, "{text}");
        }
        assert_eq!(read_client_message(b"{\"a\":\"\xff\"}").expect_err("not UTF-8").code, code::PARSE);
    }

    #[test]
    fn json_that_is_not_a_message_is_an_invalid_request() {
        for (text, id, message) in [
            ("[]", None, "batches are not supported"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, None, "batches are not supported"),
            ("3", None, "the message is not an object"),
            ("{}", None, "`jsonrpc` is not \"2.0\""),
            (r#"{"id":3,"method":"a"}"#, Some("3"), "`jsonrpc` is not \"2.0\""),
            (r#"{"jsonrpc":"1.0","id":3,"method":"a"}"#, Some("3"), "`jsonrpc` is not \"2.0\""),
            (r#"{"jsonrpc":"2.0","id":3}"#, Some("3"), "the message has no `method`"),
            (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, Some("3"), "`method` is not a string"),
            (r#"{"jsonrpc":"2.0","id":3,"method":"\ud83d"}"#, Some("3"), "`method` is not a string"),
            (r#"{"jsonrpc":"2.0","result":1}"#, None, "the response has no `id`"),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"a","result":1}"#,
                Some("3"),
                "the message has more than one of `method`, `result` and `error`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"error":{},"result":1}"#,
                Some("3"),
                "the message has more than one of `method`, `result` and `error`",
            ),
        ] {
            assert_eq!(problem(text), (id, code::INVALID_REQUEST, message.to_owned()), "{text}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"{}"}}"#, "x".repeat(MAX_METHOD + 1));
        assert_eq!(problem(&long), (Some("3"), code::INVALID_REQUEST, "`method` is longer than 256 bytes".into()));
    }

    #[test]
    fn a_duplicate_key_is_refused_even_if_it_is_escaped() {
        let text = r#"{"jsonrpc":"2.0","id":3,"method":"a","\u006dethod":"b"}"#;
        assert_eq!(problem(text), (Some("3"), code::INVALID_REQUEST, "duplicate key `method`".into()));
        let text = r#"{"jsonrpc":"2.0","id":3,"method":"a","id":4}"#;
        assert_eq!(problem(text), (None, code::INVALID_REQUEST, "duplicate key `id`".into()));
    }

    #[test]
    fn an_invalid_response_is_not_answered() {
        assert!(read(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#).expect_err("no id").is_response);
        assert!(!read(r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#).expect_err("no id").is_response);
    }

    #[test]
    fn a_message_that_is_nested_too_deeply_is_refused() {
        let nested = |depth: usize| {
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"a":{deep}}}}}"#)
        };
        assert!(matches!(read(&nested(MAX_DEPTH - 2)), Ok(ClientMessage::Request { .. })));
        for depth in [MAX_DEPTH - 1, 300_000] {
            let expected =
                (Some("1"), code::INVALID_REQUEST, "the message is nested deeper than 128 levels".to_owned());
            assert_eq!(problem(&nested(depth)), expected);
        }
        let answer = nested(300_000).replace(r#""method":"a","params""#, r#""result""#);
        assert!(read(&answer).expect_err("an answer").is_response);
    }

    #[test]
    fn malformed_json_inside_of_values_is_refused() {
        for malformed in ["[1 2]", "[1,]", "{\"a\" 1}", "{\"a\":01}", "[nul]", "\"\\x\"", "[\"\\u12\"]", "[1}", "[+1]"]
        {
            for member in ["params", "result", "other"] {
                let text = format!(r#"{{"jsonrpc":"2.0","id":1,"{member}":{{"a":{malformed}}}}}"#);
                assert_eq!(problem(&text).1, code::PARSE, "{text}");
            }
        }
    }
}
