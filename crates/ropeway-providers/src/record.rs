//! Records exchanges with secrets redacted.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::Value;

use super::credentials;
use super::http_message::HttpRequest;
use super::recording::{Exchange, ExchangeEnd, RecordedRequest, Recording};
use ropeway_core::json;
use ropeway_core::secret::{self, Redactor};
use ropeway_core::sync::lock;
use ropeway_web as web;

/// Records a [`Provider`](super::Provider)'s exchanges. Clones write to the same recording.
///
/// Keys and other secrets in the settings are redacted. The conversation is not.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<RecordingSink>>);

enum RecordingSink {
    Memory(Recording),
    File { file: File, error: Option<io::Error> },
}

impl Recorder {
    /// Creates a recorder that keeps exchanges in memory.
    pub fn in_memory() -> Self {
        Self::new(RecordingSink::Memory(Recording::default()))
    }

    /// Creates a recorder that appends each finished exchange to a file, as one line of JSON.
    ///
    /// The file's permissions are set to 0600.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened for writing.
    pub fn to_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        #[cfg(unix)]
        if file.metadata()?.is_file() {
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
        Ok(Self::new(RecordingSink::File { file, error: None }))
    }

    fn new(sink: RecordingSink) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }

    /// Returns the exchanges in memory; empty for a recorder that writes to a file.
    pub fn recording(&self) -> Recording {
        match &*self.sink() {
            RecordingSink::Memory(recording) => recording.clone(),
            RecordingSink::File { .. } => Recording::default(),
        }
    }

    /// Returns the last write error since the previous call, if any.
    pub fn take_error(&self) -> Option<io::Error> {
        match &mut *self.sink() {
            RecordingSink::Memory(_) => None,
            RecordingSink::File { error, .. } => error.take(),
        }
    }

    fn sink(&self) -> MutexGuard<'_, RecordingSink> {
        lock(&self.0)
    }

    fn write(&self, exchange: Exchange) {
        match &mut *self.sink() {
            RecordingSink::Memory(recording) => recording.exchanges.push(exchange),
            // One write per line: several processes may append to one file.
            RecordingSink::File { file, error: last_error } => {
                if let Err(error) = file.write_all(exchange.to_line().as_bytes()) {
                    tracing::warn!("could not record an exchange: {error}");
                    *last_error = Some(error);
                }
            }
        }
    }

    /// Starts recording an exchange.
    pub(super) fn begin(&self, request: &HttpRequest, redactor: &Redactor) -> ExchangeRecorder {
        // The URL may contain a key that is not in the settings.
        let redactor = redactor.with(&Redactor::new(&secret::in_url(&request.url)));
        let body = String::from_utf8_lossy(&request.body);
        let mut body =
            if body.is_empty() { Value::Null } else { json::from_str(&body).unwrap_or_else(|_| Value::from(body)) };
        redactor.redact_json(&mut body);
        credentials::redact(&mut body);
        let headers = request.headers.iter().map(|(name, value)| {
            let value = value.expose();
            let own = Redactor::new(&secret::in_header(name, value));
            (name.clone(), own.redact(&redactor.redact(value)).into_owned())
        });
        let request = RecordedRequest {
            method: request.method.to_owned(),
            url: redactor.redact(&request.url).into_owned(),
            headers: headers.collect(),
            body,
        };
        let ending = ExchangeEnd::CutOff;
        let exchange =
            Exchange { request: Some(request), status: None, headers: Vec::new(), body: String::new(), ending };
        ExchangeRecorder { recorder: self.clone(), redactor, exchange: Some(exchange), body: Vec::new(), is_cut: true }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// Records one exchange, and writes it when dropped, complete or not.
pub(super) struct ExchangeRecorder {
    recorder: Recorder,
    redactor: Redactor,
    exchange: Option<Exchange>,
    body: Vec<u8>,
    /// The body may have been cut off.
    is_cut: bool,
}

impl ExchangeRecorder {
    /// Records the response's head.
    pub(super) fn head(&mut self, status: u16, headers: &[(String, String)]) {
        let now = SystemTime::now();
        let headers = headers.iter().map(|(name, value)| (name, relative_delay(name, value, now)));
        let redacted = headers.map(|(name, value)| (name.clone(), self.redactor.redact(&value).into_owned())).collect();
        if let Some(exchange) = &mut self.exchange {
            exchange.status = Some(status);
            exchange.headers = redacted;
        }
    }

    /// Records a body chunk.
    pub(super) fn chunk(&mut self, chunk: &[u8]) {
        self.body.extend_from_slice(chunk);
    }

    /// Marks the exchange as complete: the reply has ended, even if the body has not.
    pub(super) fn complete(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ending = ExchangeEnd::Whole;
        }
    }

    /// Records how the exchange ended.
    pub(super) fn end(&mut self, ending: ExchangeEnd) {
        self.is_cut = ending != ExchangeEnd::Whole;
        if let Some(exchange) = &mut self.exchange {
            exchange.ending = match ending {
                ExchangeEnd::Failed { kind, message, cause, should_retry } => {
                    let hide = |text: String| self.redactor.redact(&text).into_owned();
                    ExchangeEnd::Failed { kind, message: hide(message), cause: cause.map(hide), should_retry }
                }
                ending => ending,
            };
        }
    }
}

impl Drop for ExchangeRecorder {
    fn drop(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            // Redacted as a whole: a key may be split between two chunks.
            let body = String::from_utf8_lossy(&self.body);
            let redacted =
                if self.is_cut { self.redactor.redact_truncated(&body) } else { self.redactor.redact(&body) };
            exchange.body = redacted.into_owned();
            self.recorder.write(exchange);
        }
    }
}

/// Converts a `retry-after` header's date to seconds from now, which mean the same in a replay.
fn relative_delay<'a>(name: &str, value: &'a str, now: SystemTime) -> Cow<'a, str> {
    if name != "retry-after" || value.trim().parse::<f64>().is_ok() {
        return Cow::Borrowed(value);
    }
    match web::retry_after(value, now) {
        Some(delay) => Cow::Owned(delay.as_secs_f64().ceil().to_string()),
        None => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{ProviderError, ProviderErrorKind};
    use ropeway_core::message::Dialect;
    use ropeway_core::secret::Secret;

    fn recorded(body: &Value, listen: impl FnOnce(&mut ExchangeRecorder)) -> Exchange {
        let recorder = Recorder::in_memory();
        let url = "https://a.example/v1".to_owned();
        let request = HttpRequest { method: "POST", url, headers: Vec::new(), body: body.to_string().into() };
        let mut exchange_recorder = recorder.begin(&request, &Redactor::new(&[Secret::new("sk-12345678")]));
        listen(&mut exchange_recorder);
        drop(exchange_recorder);
        recorder.recording().exchanges.remove(0)
    }

    #[test]
    fn half_a_key_is_redacted_in_a_truncated_body() {
        let body = |end: &dyn Fn(&mut ExchangeRecorder)| {
            let listen = |exchange_recorder: &mut ExchangeRecorder| {
                exchange_recorder.chunk(b"it is sk-123");
                end(exchange_recorder);
            };
            recorded(&json!({}), listen).body
        };
        let broken = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "broken");
        assert_eq!(body(&|_| {}), "it is ***");
        assert_eq!(body(&|exchange_recorder| exchange_recorder.end(ExchangeEnd::failed(&broken))), "it is ***");
        assert_eq!(body(&ExchangeRecorder::complete), "it is ***");
        assert_eq!(body(&|exchange_recorder| exchange_recorder.end(ExchangeEnd::Whole)), "it is sk-123");
    }

    #[test]
    fn a_retry_date_is_recorded_in_seconds() {
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1_000));
        let headers = |value: &str| {
            let header = ("retry-after".to_owned(), value.to_owned());
            recorded(&json!({}), |exchange_recorder| exchange_recorder.head(429, &[header])).headers.remove(0).1
        };
        let seconds: u64 = headers(&date).parse().expect("seconds");
        assert!((990..=1_000).contains(&seconds), "{seconds}");
        assert_eq!(["7", "1.5", "soon"].map(headers), ["7", "1.5", "soon"]);
    }
}
