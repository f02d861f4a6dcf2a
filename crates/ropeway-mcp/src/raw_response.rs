//! A request's result as received bytes, decoded once its type is known.

use std::hash::Hasher;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::RequestError;
use super::host::Host;
use crate::protocol::{self, Incoming};
use ropeway_core::json;
use ropeway_core::tool::ToolOutput;

/// A type that a result can be decoded as.
pub(crate) trait FromResponse: DeserializeOwned {
    /// Decodes a result from JSON.
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Decodes a result that another result contains.
    fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value)
    }
}

impl FromResponse for Value {}
impl FromResponse for Map<String, Value> {}
impl FromResponse for Box<RawValue> {}

impl FromResponse for ToolOutput {
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        Self::read(json)
    }

    fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        match value {
            Value::Object(fields) => Ok(Self::from_fields(fields)),
            invalid => serde_json::from_value(invalid),
        }
    }
}

/// How a request ends.
pub(crate) type RequestResult = Result<RawResponse, RequestError>;

/// A result that is not decoded yet.
#[derive(Clone, Debug)]
pub(crate) struct RawResponse {
    result: Bytes,
    /// The whole message, if the result was located by [`protocol::quick_response`], which may be wrong.
    message: Option<Bytes>,
}

impl RawResponse {
    /// A result that was located by parsing the message.
    pub(crate) fn parsed(result: Bytes) -> Self {
        Self { result, message: None }
    }

    /// A result that was located by [`protocol::quick_response`].
    pub(crate) fn unverified(result: Bytes, message: Bytes) -> Self {
        Self { result, message: Some(message) }
    }

    /// Hashes the result's bytes, to compare results without decoding them.
    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        hasher.write(&self.result);
    }

    /// Decodes the result.
    pub(crate) fn read<T: FromResponse>(&self, host: &Host) -> Result<T, serde_json::Error> {
        match T::from_json(&self.result) {
            Ok(value) => Ok(value),
            Err(error) => self.read_repaired(host).unwrap_or(Err(error)),
        }
    }

    /// Returns the result as one JSON object in valid UTF-8. If it already is one, its bytes are not copied.
    pub(crate) fn into_raw(self, host: &Host) -> Result<RawObject, serde_json::Error> {
        if let Some(object) = RawObject::of(&self.result) {
            return Ok(object);
        }
        let repaired: Box<RawValue> = self.read(host)?;
        let text = Bytes::from(String::from(Box::<str>::from(repaired)));
        RawObject::of(&text).ok_or_else(|| serde::de::Error::custom("the result is not an object"))
    }

    /// Decodes the result from a message that has to be repaired or has an unusual layout.
    #[cold]
    fn read_repaired<T: FromResponse>(&self, host: &Host) -> Option<Result<T, serde_json::Error>> {
        let message = self.message.as_ref().unwrap_or(&self.result);
        let repaired = json::repair(message).map(Bytes::from);
        if std::str::from_utf8(message).is_err() {
            host.warn("replaced invalid UTF-8 in a response");
        }
        if self.message.is_none() {
            return Some(T::from_json(&repaired?));
        }
        let message = repaired.as_ref().unwrap_or(message);
        let mut found = None;
        protocol::read(message, |incoming| {
            if let Incoming::Response { outcome: Ok(result), .. } = incoming {
                found = Some(T::from_json(&message.slice_ref(result.get().as_bytes())));
            }
        })
        .ok()?;
        found
    }
}

/// A valid JSON object's text.
#[derive(Debug)]
pub(crate) struct RawObject {
    pub(crate) text: Bytes,
    /// Whether `isError` is `true`.
    pub(crate) is_error: bool,
    /// Where the text holds the `resultType` value, if present.
    pub(crate) result_type: Option<std::ops::Range<usize>>,
}

impl RawObject {
    /// Returns `None` if the text is not exactly one object in valid UTF-8.
    pub(crate) fn of(text: &Bytes) -> Option<Self> {
        let text = text.slice_ref(text.trim_ascii());
        let (mut is_error, mut result_type) = (false, None);
        protocol::scan_object(&text, |key, member| match key {
            b"isError" => is_error = &text[member.value] == b"true",
            b"resultType" => result_type = Some(member.value),
            _ => {}
        })
        .ok()?;
        std::str::from_utf8(&text).ok()?;
        Some(Self { text, is_error, result_type })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::handlers::Handlers;
    use ropeway_core::event::Events;
    use ropeway_core::secret::Redactor;

    fn quick(message: &'static [u8]) -> Result<Value, serde_json::Error> {
        let (_, range) = protocol::quick_response(message).expect("a usual layout");
        let message = Bytes::from_static(message);
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        RawResponse::unverified(message.slice(range), message).read(&host)
    }

    #[test]
    fn a_result_followed_by_other_fields_is_decoded() {
        let message = br#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null,"x":[2]}"#;
        assert_eq!(quick(message).expect("a result"), json!({"a": 1}));
    }

    #[test]
    fn invalid_utf8_in_a_result_is_replaced() {
        let message = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\"}}";
        assert_eq!(quick(message).expect("a result"), json!({"a": "\u{fffd}"}));
    }

    #[test]
    fn broken_json_is_an_error() {
        assert!(quick(br#"{"jsonrpc":"2.0","id":1,"result":{"a":}}"#).is_err());
    }

    #[test]
    fn a_result_that_is_malformed_inside_is_not_forwarded() {
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        let forwarded = |result: &str| {
            let message = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
            let (_, range) = protocol::quick_response(&message).expect("a usual layout");
            RawResponse::unverified(message.slice(range), message).into_raw(&host).ok().map(|object| object.text)
        };
        for malformed in [r#"{"a":[1 2]}"#, r#"{"a":{"b" 1}}"#, r#"{"a":"\x"}"#, r#"{"a":01}"#, r#"{"a":[}]}"#, "[]"] {
            assert_eq!(forwarded(malformed), None, "{malformed}");
        }
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(300_000), "]".repeat(300_000));
        for valid in [r#"{"a":[1,{"b":-1.5e+3}]}"#, &deep] {
            assert_eq!(forwarded(valid).as_deref(), Some(valid.as_bytes()));
        }
    }
}
