//! Answers requests from a recording.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;

use super::credentials;
use super::error::{ProviderError, ProviderErrorKind};
use super::http_message::{HttpRequest, ResponseHead};
use super::recording::{Exchange, ExchangeEnd, RecordedRequest, Recording};
use ropeway_core::json;
use ropeway_core::message::Dialect;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;

/// Maximum characters that a message shows from a value.
const MAX_SHOWN: usize = 80;

/// Answers each request with the first unused exchange that matches it. Clones share the recording.
#[derive(Clone)]
pub(super) struct Replayer(Arc<Mutex<ReplayQueue>>);

struct ReplayQueue {
    /// The unused exchanges, with their numbers.
    unused: VecDeque<(usize, Exchange)>,
    size: usize,
}

/// A recorded response's unread part.
pub(super) struct ReplayedBody {
    body: Option<String>,
    ending: ExchangeEnd,
}

impl Replayer {
    pub(super) fn new(recording: Recording) -> Self {
        let size = recording.exchanges.len();
        Self(Arc::new(Mutex::new(ReplayQueue { unused: (1..).zip(recording.exchanges).collect(), size })))
    }

    /// Returns the recorded response to this request.
    pub(super) fn answer(
        &self,
        request: &HttpRequest,
        dialect: Dialect,
        redactor: &Redactor,
    ) -> Result<(ResponseHead, ReplayedBody), ProviderError> {
        let mut queue = lock(&self.0);
        let difference = |exchange: &Exchange| {
            exchange.request.as_ref().and_then(|expected| difference(expected, request, redactor))
        };
        // Exchanges are recorded when they end, so concurrent ones may be in any order.
        let matching = queue.unused.iter().position(|(_, exchange)| difference(exchange).is_none());
        let Some((_, exchange)) = matching.and_then(|at| queue.unused.remove(at)) else {
            let front = queue.unused.front().and_then(|(number, exchange)| Some((number, difference(exchange)?)));
            let message = match front {
                Some((number, difference)) => {
                    format!("the request differs from exchange {number} of the recording: {difference}")
                }
                None => format!("the recording has no exchange left ({} used)", queue.size),
            };
            return Err(ProviderError::unusable(dialect, message));
        };
        let Exchange { status, headers, body, ending, .. } = exchange;
        match status {
            Some(status) => Ok((ResponseHead { status, headers }, ReplayedBody { body: Some(body), ending })),
            None => Err(ReplayedBody { body: None, ending }.error(dialect)),
        }
    }
}

impl ReplayedBody {
    /// Returns the body's next chunk; `None` at its end.
    pub(super) fn next(&mut self, dialect: Dialect) -> Result<Option<Bytes>, ProviderError> {
        match (self.body.take(), &self.ending) {
            (Some(body), _) if !body.is_empty() => Ok(Some(body.into())),
            (_, ExchangeEnd::Whole) => Ok(None),
            _ => Err(self.error(dialect)),
        }
    }

    fn error(&self, dialect: Dialect) -> ProviderError {
        match &self.ending {
            ExchangeEnd::Failed { kind, message, cause, should_retry } => {
                let (source, should_retry) = (cause.clone().map(Into::into), *should_retry);
                ProviderError { source, should_retry, ..ProviderError::new(*kind, dialect, message) }
            }
            _ => ProviderError::new(ProviderErrorKind::Connection, dialect, "the recorded response was cut off"),
        }
    }
}

/// Describes how a request differs from the recorded one, if it does.
fn difference(expected: &RecordedRequest, found: &HttpRequest, redactor: &Redactor) -> Option<String> {
    let differs = |what: &str, expected: &str, found: &str| {
        let (expected, found) = (redactor.redact(expected), redactor.redact(found));
        format!("expected {what} `{}`, found `{}`", shorten(&expected), shorten(&found))
    };
    if expected.method != found.method {
        return Some(differs("method", &expected.method, found.method));
    }
    let (was, is) = (path(&expected.url), path(&found.url));
    if redactor.redact(was) != redactor.redact(is) {
        return Some(differs("path", was, is));
    }
    let mut body = json::from_slice(&found.body).unwrap_or_default();
    let mut recorded = expected.body.clone();
    redactor.redact_json(&mut body);
    redactor.redact_json(&mut recorded);
    credentials::redact(&mut body);
    credentials::redact(&mut recorded);
    let (at, was, is) = first_difference(&recorded, &body)?;
    let shown = |value: Option<&Value>| {
        value.map_or("nothing".to_owned(), |value| format!("`{}`", shorten(&value.to_string())))
    };
    Some(format!("at `{at}` of the body: expected {}, found {}", shown(was), shown(is)))
}

/// Returns a URL's path. Host and query may contain keys, and do not identify the request.
fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    path.split(['?', '#']).next().unwrap_or(path)
}

/// Finds the first difference between two values: its JSON pointer (RFC 6901) and both values.
fn first_difference<'a>(was: &'a Value, is: &'a Value) -> Option<(String, Option<&'a Value>, Option<&'a Value>)> {
    let at = |key: &str| format!("/{}", key.replace('~', "~0").replace('/', "~1"));
    let below = |key: &str, was: Option<&'a Value>, is: Option<&'a Value>| match (was, is) {
        (Some(was), Some(is)) => {
            first_difference(was, is).map(|(rest, was, is)| (format!("{}{rest}", at(key)), was, is))
        }
        _ => Some((at(key), was, is)),
    };
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let changed = was.iter().find_map(|(key, value)| below(key, Some(value), is.get(key)));
            let is_new = |(key, _): &(&String, &Value)| !was.contains_key(*key);
            changed.or_else(|| is.iter().find(is_new).and_then(|(key, value)| below(key, None, Some(value))))
        }
        (Value::Array(was), Value::Array(is)) => {
            let mut indexes = 0..was.len().max(is.len());
            indexes.find_map(|at| below(&at.to_string(), was.get(at), is.get(at)))
        }
        _ => (was != is).then(|| (String::new(), Some(was), Some(is))),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::secret::Secret;

    fn request(url: &str, body: &Value) -> HttpRequest {
        HttpRequest { method: "POST", url: url.to_owned(), headers: Vec::new(), body: body.to_string().into() }
    }

    fn body_difference(was: Value, is: Value) -> Option<String> {
        let expected = Exchange::new(200, "").to_request("https://a.example/v1/chat?key=x", was).request?;
        difference(&expected, &request("http://127.0.0.1:8/v1/chat", &is), &Redactor::default())
    }

    #[test]
    fn the_first_difference_is_described() {
        let at = |pointer: &str, was: &str, is: &str| {
            Some(format!("at `{pointer}` of the body: expected {was}, found {is}"))
        };
        assert_eq!(body_difference(json!({"a": 1, "b": [2]}), json!({"b": [2], "a": 1})), None);
        assert_eq!(
            body_difference(json!({"a/b": {"c~": [1, 2]}}), json!({"a/b": {"c~": [1, 3]}})),
            at("/a~1b/c~0/1", "`2`", "`3`")
        );
        assert_eq!(body_difference(json!({"a": [1]}), json!({"a": [1, {}]})), at("/a/1", "nothing", "`{}`"));
        assert_eq!(body_difference(json!({"a": 1, "b": "x"}), json!({"a": 1})), at("/b", "`\"x\"`", "nothing"));
        assert_eq!(body_difference(json!({"a": 1}), json!({"a": 1, "b": null})), at("/b", "nothing", "`null`"));
        assert_eq!(body_difference(json!([1]), json!({})), at("", "`[1]`", "`{}`"));
        let long = body_difference(json!("ü".repeat(200)), json!(1)).expect("a difference");
        assert_eq!(long, at("", &format!("`\"{}…`", "ü".repeat(79)), "`1`").expect("text"));
    }

    #[test]
    fn concurrent_requests_are_answered_in_any_order() {
        let exchange = |number: u16| Exchange::new(number, "").to_request("https://a.example/v1", json!({"n": number}));
        let player = Replayer::new(Recording::new([1, 2, 3, 2].map(exchange)));
        let answer = |number: u16| {
            let request = request("https://a.example/v1", &json!({"n": number}));
            let answer = player.answer(&request, Dialect::Chat, &Redactor::default());
            answer.map(|(head, _)| head.status).map_err(|error| error.to_string())
        };
        let differs = |number: u16, was: u16, is: u16| {
            Err(format!(
                "the request differs from exchange {number} of the recording: at `/n` of the body: expected `{was}`, found `{is}`"
            ))
        };
        assert_eq!([2, 1].map(answer), [Ok(2), Ok(1)]);
        assert_eq!(answer(1), differs(3, 3, 1));
        assert_eq!([2, 3].map(answer), [Ok(2), Ok(3)]);
        assert_eq!(answer(3), Err("the recording has no exchange left (4 used)".to_owned()));
    }

    #[test]
    fn a_final_error_is_final_in_a_replay() {
        let mut broken = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "no secure connection");
        broken.should_retry = Some(false);
        let exchange = Exchange::failed(ProviderErrorKind::Connection, "").with_ending(ExchangeEnd::failed(&broken));
        let recording = Recording::read(&Recording::new([exchange]).to_lines()).expect("a recording");
        let answer = Replayer::new(recording).answer(
            &request("https://a.example", &json!({})),
            Dialect::Chat,
            &Redactor::default(),
        );
        let error = answer.map(|(head, _)| head.status).expect_err("an error");
        assert!(!error.is_retryable());
    }

    #[test]
    fn credentials_in_the_body_do_not_differ() {
        let body = |token: &str| json!({"tools": [{"type": "mcp", "authorization": token}]});
        assert_eq!(body_difference(body("***"), body("ya29.abcdefgh")), None);
        assert_eq!(body_difference(body("ya29.12345678"), body("ya29.abcdefgh")), None);
    }

    #[test]
    fn a_different_path_is_described() {
        let expected = Exchange::new(200, "").to_request("https://a.example/v1/chat", json!({})).request.expect("one");
        let found = request("https://a.example/v1/responses", &json!({}));
        let described = difference(&expected, &found, &Redactor::default());
        assert_eq!(described.as_deref(), Some("expected path `/v1/chat`, found `/v1/responses`"));
    }

    #[test]
    fn keys_do_not_differ_and_are_redacted() {
        let redactor = Redactor::new(&[Secret::new("sk-12345678")]);
        let expected = Exchange::new(200, "").to_request("https://a.example/k/***", json!({"a": "***"}));
        let expected = expected.request.expect("one");
        let found = |a: &str| request("https://a.example/k/sk-12345678", &json!({"a": a}));
        assert_eq!(difference(&expected, &found("sk-12345678"), &redactor), None);
        assert_eq!(
            difference(&expected, &found("x sk-12345678"), &redactor).as_deref(),
            Some("at `/a` of the body: expected `\"***\"`, found `\"x ***\"`")
        );
    }
}
