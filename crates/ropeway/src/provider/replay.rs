//! A player: answers requests out of a recording, each with the first answer to it that is left.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;

use super::wire::Head;
use super::{
    Exchange, ExchangeEnd, HttpRequest, ProviderError, ProviderErrorKind, RecordedRequest, Recording, credentials,
};
use crate::json;
use crate::message::Dialect;
use crate::secret::Redactor;
use crate::sync::lock;

/// How much of a value is shown that differs.
const SHORT: usize = 80;

/// Answers requests out of a recording. Clones share their place in it.
#[derive(Clone)]
pub(super) struct Player(Arc<Mutex<Tape>>);

struct Tape {
    /// What was not played yet, each with its number.
    rest: VecDeque<(usize, Exchange)>,
    size: usize,
}

/// What is left of a recorded answer.
pub(super) struct Replayed {
    body: Option<String>,
    ending: ExchangeEnd,
}

impl Player {
    pub(super) fn new(recording: Recording) -> Self {
        let size = recording.exchanges.len();
        Self(Arc::new(Mutex::new(Tape { rest: (1..).zip(recording.exchanges).collect(), size })))
    }

    /// The recorded answer to this request: its head, and what is left of it.
    pub(super) fn answer(
        &self,
        request: &HttpRequest,
        dialect: Dialect,
        mask: &Redactor,
    ) -> Result<(Head, Replayed), ProviderError> {
        let unusable = |message: String| ProviderError::new(ProviderErrorKind::Unusable, dialect, message);
        let mut tape = lock(&self.0);
        let difference =
            |exchange: &Exchange| exchange.request.as_ref().and_then(|expected| difference(expected, request, mask));
        // Exchanges are recorded when they end: of several at a time, the first that was asked may be a later one.
        let place = tape.rest.iter().position(|(_, exchange)| difference(exchange).is_none());
        let Some((_, exchange)) = place.and_then(|place| tape.rest.remove(place)) else {
            let front = tape.rest.front().and_then(|(number, exchange)| Some((number, difference(exchange)?)));
            return Err(unusable(match front {
                Some((number, difference)) => {
                    format!("the request differs from exchange {number} of the recording: {difference}")
                }
                None => format!("the recording is over: it has {} exchanges", tape.size),
            }));
        };
        let Exchange { status, headers, body, ending, .. } = exchange;
        match status {
            Some(status) => Ok((Head { status, headers }, Replayed { body: Some(body), ending })),
            None => Err(Replayed { body: None, ending }.trouble(dialect)),
        }
    }
}

impl Replayed {
    /// The next piece of the answer; `None` at its end.
    pub(super) fn next(&mut self, dialect: Dialect) -> Result<Option<Bytes>, ProviderError> {
        match (self.body.take(), &self.ending) {
            (Some(body), _) if !body.is_empty() => Ok(Some(body.into())),
            (_, ExchangeEnd::Whole) => Ok(None),
            _ => Err(self.trouble(dialect)),
        }
    }

    fn trouble(&self, dialect: Dialect) -> ProviderError {
        match &self.ending {
            ExchangeEnd::Failed { kind, message, cause, should_retry } => {
                let (source, should_retry) = (cause.clone().map(Into::into), *should_retry);
                ProviderError { source, should_retry, ..ProviderError::new(*kind, dialect, message) }
            }
            _ => ProviderError::new(ProviderErrorKind::Connection, dialect, "the recorded answer breaks off here"),
        }
    }
}

/// Where a request is not the recorded one, if it is another.
fn difference(expected: &RecordedRequest, found: &HttpRequest, mask: &Redactor) -> Option<String> {
    let told = |what: &str, expected: &str, found: &str| {
        let (expected, found) = (mask.hide(expected), mask.hide(found));
        format!("the {what} was `{}` and is `{}`", short(&expected), short(&found))
    };
    if expected.method != found.method {
        return Some(told("method", &expected.method, found.method));
    }
    let (was, is) = (path(&expected.url), path(&found.url));
    if mask.hide(was) != mask.hide(is) {
        return Some(told("path", was, is));
    }
    let mut body = json::from_slice(&found.body).unwrap_or_default();
    let mut recorded = expected.body.clone();
    mask.hide_json(&mut body);
    mask.hide_json(&mut recorded);
    credentials::hide(&mut body);
    credentials::hide(&mut recorded);
    let (at, was, is) = first_difference(&recorded, &body)?;
    let shown =
        |value: Option<&Value>| value.map_or("nothing".to_owned(), |value| format!("`{}`", short(&value.to_string())));
    Some(format!("at `{at}` of its body there was {} and is {}", shown(was), shown(is)))
}

/// A URL's path, without host and query: those may hold keys, and do not say what is asked.
fn path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    path.split(['?', '#']).next().unwrap_or(path)
}

/// Where two values begin to differ, as a JSON pointer, and what is there in each.
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
            let gone_or_other = was.iter().find_map(|(key, value)| below(key, Some(value), is.get(key)));
            let is_new = |(key, _): &(&String, &Value)| !was.contains_key(*key);
            gone_or_other.or_else(|| is.iter().find(is_new).and_then(|(key, value)| below(key, None, Some(value))))
        }
        (Value::Array(was), Value::Array(is)) => {
            let places = 0..was.len().max(is.len());
            places.into_iter().find_map(|place| below(&place.to_string(), was.get(place), is.get(place)))
        }
        _ => (was != is).then(|| (String::new(), Some(was), Some(is))),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::secret::Secret;

    fn asked(url: &str, body: &Value) -> HttpRequest {
        HttpRequest { method: "POST", url: url.to_owned(), headers: Vec::new(), body: body.to_string().into() }
    }

    fn told(was: Value, is: Value) -> Option<String> {
        let expected = Exchange::new(200, "").to_request("https://a.example/v1/chat?key=x", was).request?;
        difference(&expected, &asked("http://127.0.0.1:8/v1/chat", &is), &Redactor::default())
    }

    #[test]
    fn a_request_that_differs_is_told_where() {
        let at = |pointer: &str, was: &str, is: &str| {
            Some(format!("at `{pointer}` of its body there was {was} and is {is}"))
        };
        assert_eq!(told(json!({"a": 1, "b": [2]}), json!({"b": [2], "a": 1})), None);
        assert_eq!(
            told(json!({"a/b": {"c~": [1, 2]}}), json!({"a/b": {"c~": [1, 3]}})),
            at("/a~1b/c~0/1", "`2`", "`3`")
        );
        assert_eq!(told(json!({"a": [1]}), json!({"a": [1, {}]})), at("/a/1", "nothing", "`{}`"));
        assert_eq!(told(json!({"a": 1, "b": "x"}), json!({"a": 1})), at("/b", "`\"x\"`", "nothing"));
        assert_eq!(told(json!({"a": 1}), json!({"a": 1, "b": null})), at("/b", "nothing", "`null`"));
        assert_eq!(told(json!([1]), json!({})), at("", "`[1]`", "`{}`"));
        let long = told(json!("ü".repeat(200)), json!(1)).expect("a difference");
        assert_eq!(long, at("", &format!("`\"{}…`", "ü".repeat(79)), "`1`").expect("told"));
    }

    #[test]
    fn requests_at_the_same_time_are_answered_in_any_order() {
        let exchange = |number: u16| Exchange::new(number, "").to_request("https://a.example/v1", json!({"n": number}));
        let player = Player::new(Recording::new([1, 2, 3, 2].map(exchange)));
        let answer = |number: u16| {
            let request = asked("https://a.example/v1", &json!({"n": number}));
            let answer = player.answer(&request, Dialect::Chat, &Redactor::default());
            answer.map(|(head, _)| head.status).map_err(|error| error.to_string())
        };
        let differs = |number: u16, was: u16, is: u16| {
            Err(format!(
                "the request differs from exchange {number} of the recording: at `/n` of its body there was `{was}` and is `{is}`"
            ))
        };
        assert_eq!([2, 1].map(answer), [Ok(2), Ok(1)]);
        assert_eq!(answer(1), differs(3, 3, 1));
        assert_eq!([2, 3].map(answer), [Ok(2), Ok(3)]);
        assert_eq!(answer(3), Err("the recording is over: it has 4 exchanges".to_owned()));
    }

    #[test]
    fn what_was_not_worth_another_try_is_not_when_it_is_heard_again() {
        let mut broken = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "no secure connection");
        broken.should_retry = Some(false);
        let exchange = Exchange::failed(ProviderErrorKind::Connection, "").with_ending(ExchangeEnd::failed(&broken));
        let recording = Recording::read(&Recording::new([exchange]).to_lines()).expect("a recording");
        let answer =
            Player::new(recording).answer(&asked("https://a.example", &json!({})), Dialect::Chat, &Redactor::default());
        let error = answer.map(|(head, _)| head.status).expect_err("trouble");
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_credential_in_the_body_is_no_difference() {
        let body = |token: &str| json!({"tools": [{"type": "mcp", "authorization": token}]});
        assert_eq!(told(body("***"), body("ya29.abcdefgh")), None);
        assert_eq!(told(body("ya29.12345678"), body("ya29.abcdefgh")), None);
    }

    #[test]
    fn a_request_to_another_path_is_told() {
        let expected = Exchange::new(200, "").to_request("https://a.example/v1/chat", json!({})).request.expect("one");
        let found = asked("https://a.example/v1/responses", &json!({}));
        let told = difference(&expected, &found, &Redactor::default());
        assert_eq!(told.as_deref(), Some("the path was `/v1/chat` and is `/v1/responses`"));
    }

    #[test]
    fn a_key_is_no_difference_and_not_seen() {
        let mask = Redactor::new(&[Secret::new("sk-12345678")]);
        let expected = Exchange::new(200, "").to_request("https://a.example/k/***", json!({"a": "***"}));
        let expected = expected.request.expect("one");
        let found = |a: &str| asked("https://a.example/k/sk-12345678", &json!({"a": a}));
        assert_eq!(difference(&expected, &found("sk-12345678"), &mask), None);
        assert_eq!(
            difference(&expected, &found("x sk-12345678"), &mask).as_deref(),
            Some("at `/a` of its body there was `\"***\"` and is `\"x ***\"`")
        );
    }
}
