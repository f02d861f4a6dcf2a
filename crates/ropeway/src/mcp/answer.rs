//! An answer: the result of a request as the bytes that came, read when it is known what it should be.

use std::borrow::Cow;
use std::hash::Hasher;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::host::Host;
use crate::protocol::{self, Incoming};
use crate::tool::ToolOutput;

/// What a result can be read as.
pub(crate) trait FromAnswer: DeserializeOwned {
    /// Reads the result's JSON.
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

impl FromAnswer for Value {}
impl FromAnswer for Map<String, Value> {}
impl FromAnswer for Box<RawValue> {}

impl FromAnswer for ToolOutput {
    fn from_json(json: &Bytes) -> Result<Self, serde_json::Error> {
        Self::read(json)
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
        let error = match T::from_json(&self.result) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        self.message.as_ref().and_then(|message| read_whole(message, host)).unwrap_or(Err(error))
    }
}

/// Reads the result of a message that is laid out in an unusual way, or is not quite UTF-8.
#[cold]
fn read_whole<T: DeserializeOwned>(message: &Bytes, host: &Host) -> Option<Result<T, serde_json::Error>> {
    let mended = String::from_utf8_lossy(message);
    if matches!(mended, Cow::Owned(_)) {
        host.warn("an answer that is not UTF-8 was mended");
    }
    let mut found = None;
    protocol::read(mended.as_bytes(), |incoming| {
        if let Incoming::Answer { outcome: Ok(result), .. } = incoming {
            found = Some(serde_json::from_str(result.get()));
        }
    })
    .ok()?;
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Events;
    use crate::mcp::host::Handlers;
    use crate::secret::Mask;

    fn quick(message: &'static [u8]) -> Result<Value, serde_json::Error> {
        let (_, range) = protocol::quick_answer(message).expect("a usual beginning");
        let message = Bytes::from_static(message);
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Mask::default());
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
