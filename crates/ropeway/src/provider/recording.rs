//! A recording: exchanges with a provider, as values and as lines of JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ProviderError, ProviderErrorKind};
use crate::json;

/// Exchanges with a provider, in their order. It holds no secrets if it was recorded; whoever makes one by hand sees to that
/// himself.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
}

/// One request, and what came back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exchange {
    /// What was asked; nothing where any request gets this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RecordedRequest>,
    /// The HTTP status; nothing when no answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The headers of the answer that matter, with lowercase names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body of the answer as it came.
    #[serde(default)]
    pub body: String,
    /// How it ended.
    pub ending: ExchangeEnd,
}

/// A request as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExchangeEnd {
    /// With the end of the answer.
    Whole,
    /// Before it: whoever asked did not want more.
    CutOff,
    /// With trouble on the way.
    #[non_exhaustive]
    Failed {
        /// What kind of trouble.
        kind: ProviderErrorKind,
        /// What was known of it.
        message: String,
        /// What it came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// Whether it was known that to try again is worth it, or is not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        should_retry: Option<bool>,
    },
}

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be read.
    #[error("the recording `{}` could not be read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line is not an exchange.
    #[error("line {line} of the recording is not an exchange")]
    Line {
        /// Which one, counted from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Recording {
    /// A recording of these exchanges.
    pub fn new(exchanges: impl IntoIterator<Item = Exchange>) -> Self {
        Self { exchanges: exchanges.into_iter().collect() }
    }

    /// Reads a file of one exchange per line.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path);
        Self::read(&text.map_err(|source| RecordingError::File { path: path.to_owned(), source })?)
    }

    /// Reads a text of one exchange per line.
    pub fn read(text: &str) -> Result<Self, RecordingError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let exchange = |(at, line): (usize, &str)| {
            json::from_str(line).map_err(|source| RecordingError::Line { line: at + 1, source })
        };
        Ok(Self { exchanges: lines.map(exchange).collect::<Result<_, _>>()? })
    }

    /// The text of it, one exchange per line.
    pub fn to_lines(&self) -> String {
        self.exchanges.iter().map(Exchange::to_line).collect()
    }
}

impl Exchange {
    /// An answer of this status, to whatever is asked.
    pub fn new(status: u16, body: impl Into<String>) -> Self {
        Self { request: None, status: Some(status), headers: Vec::new(), body: body.into(), ending: ExchangeEnd::Whole }
    }

    /// An answer that is a stream of events, to whatever is asked.
    pub fn events(body: impl Into<String>) -> Self {
        Self::new(200, body).with_header("content-type", "text/event-stream")
    }

    /// No answer at all, whatever is asked.
    pub fn failed(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        let ending = ExchangeEnd::Failed { kind, message: message.into(), cause: None, should_retry: None };
        Self { status: None, ending, ..Self::new(200, "") }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets how it ended.
    #[must_use]
    pub fn with_ending(mut self, ending: ExchangeEnd) -> Self {
        self.ending = ending;
        self
    }

    /// Answers only this request.
    #[must_use]
    pub fn to_request(mut self, url: impl Into<String>, body: Value) -> Self {
        let (method, url) = ("POST".to_owned(), url.into());
        self.request = Some(RecordedRequest { method, url, headers: Vec::new(), body });
        self
    }

    /// The exchange as one line of JSON, its end included.
    pub(super) fn to_line(&self) -> String {
        // Text, numbers and JSON can always be written.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

impl ExchangeEnd {
    /// The end of an exchange that failed so.
    pub fn failed(error: &ProviderError) -> Self {
        let cause = error.source.as_ref().map(ToString::to_string);
        Self::Failed { kind: error.kind, message: error.message.clone(), cause, should_retry: error.should_retry }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::Dialect;

    #[test]
    fn a_recording_is_the_same_after_it_was_written_and_read() {
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
    fn a_line_that_is_no_exchange_is_told_by_its_number() {
        let text = format!("{}\n\nnonsense\n", Exchange::new(200, "").to_line());
        let error = Recording::read(&text).expect_err("not an exchange");
        assert_eq!(error.to_string(), "line 4 of the recording is not an exchange");
        let error = Recording::load("/nowhere/x.jsonl").expect_err("no file");
        assert_eq!(error.to_string(), "the recording `/nowhere/x.jsonl` could not be read");
    }
}
