//! An answer: the result of a request as the bytes that came, read when it is known what it should be.

use std::hash::Hasher;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::host::Host;
use crate::json;
use crate::protocol::{self, Incoming};
use crate::tool::ToolOutput;

/// What a result can be read as.
pub(crate) trait FromAnswer: DeserializeOwned {
    /// Reads the result's JSON.
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Reads a result that was a part of another one.
    fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value)
    }
}

impl FromAnswer for Value {}
impl FromAnswer for Map<String, Value> {}
impl FromAnswer for Box<RawValue> {}

impl FromAnswer for ToolOutput {
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        Self::read(json)
    }

    fn from_value(value: Value) -> Result<Self, serde_json::Error> {
        match value {
            Value::Object(fields) => Ok(Self::from_fields(fields)),
            odd => serde_json::from_value(odd),
        }
    }
}

/// A result that is not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    result: Bytes,
    /// The whole message, where the result was found by a quick look that may have been mistaken.
    message: Option<Bytes>,
}

impl Answer {
    /// A result that was found by reading the message.
    pub(crate) fn certain(result: Bytes) -> Self {
        Self { result, message: None }
    }

    /// A result that was found by a quick look at the message.
    pub(crate) fn likely(result: Bytes, message: Bytes) -> Self {
        Self { result, message: Some(message) }
    }

    /// Feeds the result, as it came, to a hasher: equal results are then told without reading them.
    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        hasher.write(&self.result);
    }

    /// Reads the result as what it should be.
    pub(crate) fn read<T: FromAnswer>(&self, host: &Host) -> Result<T, serde_json::Error> {
        match T::from_json(&self.result) {
            Ok(value) => Ok(value),
            Err(error) => self.read_repaired(host).unwrap_or(Err(error)),
        }
    }

    /// Reads the result of a message that has to be repaired, or is laid out in an unusual way.
    #[cold]
    fn read_repaired<T: FromAnswer>(&self, host: &Host) -> Option<Result<T, serde_json::Error>> {
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
            if let Incoming::Answer { outcome: Ok(result), .. } = incoming {
                found = Some(T::from_json(&message.slice_ref(result.get().as_bytes())));
            }
        })
        .ok()?;
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Events;
    use crate::mcp::host::Handlers;
    use crate::secret::Redactor;

    fn quick(message: &'static [u8]) -> Result<Value, serde_json::Error> {
        let (_, range) = protocol::quick_answer(message).expect("a usual beginning");
        let message = Bytes::from_static(message);
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        Answer::likely(message.slice(range), message).read(&host)
    }

    #[test]
    fn a_result_with_further_fields_behind_it_is_read_all_the_same() {
        let message = br#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null,"x":[2]}"#;
        assert_eq!(quick(message).expect("a result"), json!({"a": 1}));
    }

    #[test]
    fn a_result_that_is_not_quite_utf8_is_mended() {
        let message = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\"}}";
        assert_eq!(quick(message).expect("a result"), json!({"a": "\u{fffd}"}));
    }

    #[test]
    fn broken_json_is_an_error() {
        assert!(quick(br#"{"jsonrpc":"2.0","id":1,"result":{"a":}}"#).is_err());
    }
}
