//! Recorded exchanges with a provider, as values and as JSON lines.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{ProviderError, ProviderErrorKind};
use ropeway_core::json;
use ropeway_core::parse_error::ParseError;

/// Exchanges with a provider, in order.
///
/// A [`Recorder`](super::Recorder) redacts secrets. A recording that is built by hand is not redacted.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// The exchanges, in the order they ended.
    pub exchanges: Vec<Exchange>,
}

/// One request and its response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exchange {
    /// The request; `None` matches any request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordedRequest>,
    /// The HTTP status; `None` if no response arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The response's relevant headers, with lowercase names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The response's body.
    #[serde(default)]
    pub body: String,
    /// How the exchange ended.
    pub ending: ExchangeEnd,
}

/// A recorded [`Exchange`]'s request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: String,
    /// The URL, with secrets redacted.
    pub url: String,
    /// The headers, with secrets redacted.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body; `null` if it is empty.
    pub body: Value,
}

/// How a recorded exchange ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeEnd {
    /// The response was complete.
    Whole,
    /// The client stopped reading before the end.
    CutOff,
    /// The exchange failed.
    Failed {
        /// The error's kind.
        kind: ProviderErrorKind,
        /// The error's message.
        message: String,
        /// The error's source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// Whether to retry, if the provider specified it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        should_retry: Option<bool>,
    },
}

impl Recording {
    /// Creates a recording from these exchanges.
    pub fn new(exchanges: impl IntoIterator<Item = Exchange>) -> Self {
        Self { exchanges: exchanges.into_iter().collect() }
    }

    /// Reads a file with one exchange per line.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or if a line is not an exchange.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ParseError> {
        let path = path.as_ref();
        let unreadable = || ParseError::new(format!("could not read recording `{}`", path.display()));
        Self::read(&std::fs::read_to_string(path).map_err(|error| unreadable().with_source(error))?)
    }

    /// Parses text with one exchange per line.
    ///
    /// # Errors
    ///
    /// Fails if a line is not an exchange.
    pub fn read(text: &str) -> Result<Self, ParseError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let exchange = |(at, line): (usize, &str)| {
            let invalid = || ParseError::new(format!("line {} of the recording is not an exchange", at + 1));
            json::from_str(line).map_err(|error| invalid().with_source(error))
        };
        Ok(Self { exchanges: lines.map(exchange).collect::<Result<_, _>>()? })
    }

    /// Serializes the recording, one exchange per line.
    pub fn to_lines(&self) -> String {
        self.exchanges.iter().map(Exchange::to_line).collect()
    }
}

impl Exchange {
    /// Creates a response with this status, to any request.
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { request: None, status: Some(status), headers: Vec::new(), body: body.into(), ending: ExchangeEnd::Whole }
    }

    /// Creates a successful response with an event stream, to any request.
    pub fn events(body: impl Into<String>) -> Self {
        Self::new(200, body).with_header("content-type", "text/event-stream")
    }

    /// Creates a failed exchange without a response, for any request.
    pub fn failed(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        let ending = ExchangeEnd::Failed { kind, message: message.into(), cause: None, should_retry: None };
        Self { status: None, ending, ..Self::new(200, "") }
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets how the exchange ended.
    #[must_use]
    pub fn with_ending(mut self, ending: ExchangeEnd) -> Self {
        self.ending = ending;
        self
    }

    /// Limits the exchange to requests with this URL's path and this body.
    #[must_use]
    pub fn to_request(mut self, url: impl Into<String>, body: Value) -> Self {
        let (method, url) = ("POST".to_owned(), url.into());
        self.request = Some(RecordedRequest { method, url, headers: Vec::new(), body });
        self
    }

    /// Serializes the exchange as one line of JSON, including the line break.
    pub(super) fn to_line(&self) -> String {
        // Strings, numbers and JSON values always serialize.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

impl ExchangeEnd {
    /// Returns the end for an exchange that failed with this error.
    pub fn failed(error: &ProviderError) -> Self {
        let cause = error.source.as_ref().map(ToString::to_string);
        Self::Failed { kind: error.kind, message: error.message.clone(), cause, should_retry: error.should_retry }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::message::Dialect;

    #[test]
    fn a_recording_survives_a_round_trip() {
        let mut late = ProviderError::new(ProviderErrorKind::Timeout, Dialect::Chat, "late");
        (late.source, late.should_retry) = (Some("x".into()), Some(false));
        let ending = ExchangeEnd::failed(&late);
        let recording = Recording::new([
            Exchange::events("data: {}\n\n").to_request("https://a.example/v1/x", json!({"a": [1, "ü\n"]})),
            Exchange::new(503, "<html>").with_header("Retry-After", "3"),
            Exchange::events("data: {").with_ending(ending),
            Exchange::failed(ProviderErrorKind::Connection, "no"),
            Exchange::events("").with_ending(ExchangeEnd::CutOff),
        ]);
        let text = recording.to_lines();
        assert_eq!(text.lines().count(), 5);
        assert_eq!(Recording::read(&text).expect("a recording"), recording);
    }

    #[test]
    fn an_invalid_line_is_reported_by_its_number() {
        let text = format!("{}\n\nnonsense\n", Exchange::new(200, "").to_line());
        let error = Recording::read(&text).expect_err("not an exchange");
        assert_eq!(error.to_string(), "line 4 of the recording is not an exchange");
        let error = Recording::load("/nowhere/x.jsonl").expect_err("no file");
        assert_eq!(error.to_string(), "could not read recording `/nowhere/x.jsonl`");
    }
}
