//! A player: answers requests out of a recording, in its order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use super::wire::Head;
use super::{Ending, ErrorKind, Exchange, HttpRequest, ProviderError, RecordedRequest, Recording};
use crate::message::Dialect;
use crate::secret::Mask;

/// How much of a value is shown that differs.
const SHORT: usize = 80;

/// Answers requests out of a recording. Clones share their place in it.
#[derive(Clone)]
pub(super) struct Player(Arc<Mutex<Tape>>);

struct Tape {
    rest: VecDeque<Exchange>,
    played: usize,
}

/// What is left of a recorded answer.
pub(super) struct Replayed {
    body: Option<String>,
    ending: Ending,
}

impl Player {
    pub(super) fn new(recording: Recording) -> Self {
        Self(Arc::new(Mutex::new(Tape { rest: recording.exchanges.into(), played: 0 })))
    }

    /// The recorded answer to this request: its head, and what is left of it.
    pub(super) fn answer(
        &self,
        request: &HttpRequest,
        dialect: Dialect,
        mask: &Mask,
    ) -> Result<(Head, Replayed), ProviderError> {
        let unusable = |message: String| ProviderError::new(ErrorKind::Unusable, dialect, message);
        let mut tape = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(exchange) = tape.rest.front() else {
            return Err(unusable(format!("the recording is over: it has {} exchanges", tape.played)));
        };
        if let Some(difference) = exchange.request.as_ref().and_then(|expected| difference(expected, request, mask)) {
            let number = tape.played + 1;
            return Err(unusable(format!("the request differs from exchange {number} of the recording: {difference}")));
        }
        let Some(exchange) = tape.rest.pop_front() else { return Err(unusable("the recording is over".to_owned())) };
        tape.played += 1;
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
            (_, Ending::Whole) => Ok(None),
            _ => Err(self.trouble(dialect)),
        }
    }

    fn trouble(&self, dialect: Dialect) -> ProviderError {
        match &self.ending {
            Ending::Failed { kind, message, cause } => {
                let source = cause.clone().map(Into::into);
                ProviderError { source, ..ProviderError::new(*kind, dialect, message) }
            }
            _ => ProviderError::new(ErrorKind::Connection, dialect, "the recorded answer breaks off here"),
        }
    }
}

/// Where a request is not the recorded one, if it is another.
fn difference(expected: &RecordedRequest, found: &HttpRequest, mask: &Mask) -> Option<String> {
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
    let mut body = serde_json::from_slice(&found.body).unwrap_or_default();
    let mut recorded = expected.body.clone();
    mask.hide_json(&mut body);
    mask.hide_json(&mut recorded);
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
        difference(&expected, &asked("http://127.0.0.1:8/v1/chat", &is), &Mask::default())
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
    fn a_request_to_another_path_is_told() {
        let expected = Exchange::new(200, "").to_request("https://a.example/v1/chat", json!({})).request.expect("one");
        let found = asked("https://a.example/v1/responses", &json!({}));
        let told = difference(&expected, &found, &Mask::default());
        assert_eq!(told.as_deref(), Some("the path was `/v1/chat` and is `/v1/responses`"));
    }

    #[test]
    fn a_key_is_no_difference_and_not_seen() {
        let mask = Mask::new(&[Secret::new("sk-12345678")]);
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
