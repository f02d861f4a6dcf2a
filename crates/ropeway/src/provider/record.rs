//! The recorder: exchanges are written down while they go on, without what must not be seen.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::Value;

use super::{Exchange, ExchangeEnd, HttpRequest, RecordedRequest, Recording, credentials};
use crate::json;
use crate::secret::{self, Redactor};
use crate::sync::lock;
use crate::web;

/// Writes exchanges down while they go on. Cheap to clone; clones write to the same place.
///
/// Keys, and other values of the settings that look like secrets, are hidden. What is said in a conversation is not.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Place>>);

enum Place {
    Memory(Recording),
    File { file: File, trouble: Option<io::Error> },
}

impl Recorder {
    /// Keeps exchanges in memory.
    pub fn in_memory() -> Self {
        Self::at(Place::Memory(Recording::default()))
    }

    /// Adds exchanges to a file, one line for each when it is over. The file is for its owner only, whatever it was before.
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
        Ok(Self::at(Place::File { file, trouble: None }))
    }

    fn at(place: Place) -> Self {
        Self(Arc::new(Mutex::new(place)))
    }

    /// What is in memory so far; nothing if it goes to a file.
    pub fn recording(&self) -> Recording {
        match &*self.place() {
            Place::Memory(recording) => recording.clone(),
            Place::File { .. } => Recording::default(),
        }
    }

    /// Why an exchange could not be written down, if that was so since this was last asked.
    pub fn trouble(&self) -> Option<io::Error> {
        match &mut *self.place() {
            Place::Memory(_) => None,
            Place::File { trouble, .. } => trouble.take(),
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        lock(&self.0)
    }

    fn write(&self, exchange: Exchange) {
        match &mut *self.place() {
            Place::Memory(recording) => recording.exchanges.push(exchange),
            // One write for the whole line: several processes may add to one file.
            Place::File { file, trouble } => {
                if let Err(error) = file.write_all(exchange.to_line().as_bytes()) {
                    tracing::warn!("an exchange with a provider could not be recorded: {error}");
                    *trouble = Some(error);
                }
            }
        }
    }

    /// Begins to record an exchange.
    pub(super) fn tap(&self, request: &HttpRequest, mask: &Redactor) -> Tap {
        // A key may stand in a URL that was not made out of the settings.
        let mask = mask.with(&Redactor::new(&secret::in_url(&request.url)));
        let body = String::from_utf8_lossy(&request.body);
        let mut body = match body.is_empty() {
            true => Value::Null,
            false => json::from_str(&body).unwrap_or_else(|_| Value::from(body)),
        };
        mask.hide_json(&mut body);
        credentials::hide(&mut body);
        let headers = request.headers.iter().map(|(name, value)| {
            let value = value.expose();
            let own = Redactor::new(&secret::in_header(name, value));
            (name.clone(), own.hide(&mask.hide(value)).into_owned())
        });
        let request = RecordedRequest {
            method: request.method.to_owned(),
            url: mask.hide(&request.url).into_owned(),
            headers: headers.collect(),
            body,
        };
        let ending = ExchangeEnd::CutOff;
        let exchange =
            Exchange { request: Some(request), status: None, headers: Vec::new(), body: String::new(), ending };
        Tap { recorder: self.clone(), mask, exchange: Some(exchange), body: Vec::new(), is_cut: true }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// An exchange that is being recorded. It is written down when it is dropped, however far it came.
pub(super) struct Tap {
    recorder: Recorder,
    mask: Redactor,
    exchange: Option<Exchange>,
    body: Vec<u8>,
    /// Might more have come?
    is_cut: bool,
}

impl Tap {
    /// The head of the answer came.
    pub(super) fn head(&mut self, status: u16, headers: &[(String, String)]) {
        let now = SystemTime::now();
        let lasting = headers.iter().map(|(name, value)| (name, lasting(name, value, now)));
        let hidden = lasting.map(|(name, value)| (name.clone(), self.mask.hide(&value).into_owned())).collect();
        if let Some(exchange) = &mut self.exchange {
            exchange.status = Some(status);
            exchange.headers = hidden;
        }
    }

    /// A piece of the answer came.
    pub(super) fn chunk(&mut self, chunk: &[u8]) {
        self.body.extend_from_slice(chunk);
    }

    /// The answer has said that it is over: nobody asks whether more would have come.
    pub(super) fn enough(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.ending = ExchangeEnd::Whole;
        }
    }

    /// It ended so.
    pub(super) fn end(&mut self, ending: ExchangeEnd) {
        self.is_cut = ending != ExchangeEnd::Whole;
        if let Some(exchange) = &mut self.exchange {
            exchange.ending = match ending {
                ExchangeEnd::Failed { kind, message, cause, should_retry } => {
                    let hide = |text: String| self.mask.hide(&text).into_owned();
                    ExchangeEnd::Failed { kind, message: hide(message), cause: cause.map(hide), should_retry }
                }
                ending => ending,
            };
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            // Hidden as a whole: a key may come in two pieces.
            let body = String::from_utf8_lossy(&self.body);
            let hidden = if self.is_cut { self.mask.hide_cut(&body) } else { self.mask.hide(&body) };
            exchange.body = hidden.into_owned();
            self.recorder.write(exchange);
        }
    }
}

/// A header that means the same later: a date to come back at is told in seconds from now.
fn lasting<'a>(name: &str, value: &'a str, now: SystemTime) -> Cow<'a, str> {
    if name != "retry-after" || value.trim().parse::<f64>().is_ok() {
        return Cow::Borrowed(value);
    }
    match web::retry_after(value, now) {
        Some(wish) => Cow::Owned(wish.as_secs_f64().ceil().to_string()),
        None => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::message::Dialect;
    use crate::provider::{ProviderError, ProviderErrorKind};
    use crate::secret::Secret;

    fn recorded(body: &Value, listen: impl FnOnce(&mut Tap)) -> Exchange {
        let recorder = Recorder::in_memory();
        let url = "https://a.example/v1".to_owned();
        let request = HttpRequest { method: "POST", url, headers: Vec::new(), body: body.to_string().into() };
        let mut tap = recorder.tap(&request, &Redactor::new(&[Secret::new("sk-12345678")]));
        listen(&mut tap);
        drop(tap);
        recorder.recording().exchanges.remove(0)
    }

    #[test]
    fn half_a_key_is_hidden_where_an_answer_was_cut_off() {
        let body = |end: &dyn Fn(&mut Tap)| {
            let listen = |tap: &mut Tap| {
                tap.chunk(b"it is sk-123");
                end(tap);
            };
            recorded(&json!({}), listen).body
        };
        let broken = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "broken");
        assert_eq!(body(&|_| {}), "it is ***");
        assert_eq!(body(&|tap| tap.end(ExchangeEnd::failed(&broken))), "it is ***");
        assert_eq!(body(&Tap::enough), "it is ***");
        assert_eq!(body(&|tap| tap.end(ExchangeEnd::Whole)), "it is sk-123");
    }

    #[test]
    fn a_date_to_come_back_at_is_recorded_in_seconds() {
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1_000));
        let headers = |value: &str| {
            let header = ("retry-after".to_owned(), value.to_owned());
            recorded(&json!({}), |tap| tap.head(429, &[header])).headers.remove(0).1
        };
        let seconds: u64 = headers(&date).parse().expect("seconds");
        assert!((990..=1_000).contains(&seconds), "{seconds}");
        assert_eq!(["7", "1.5", "soon"].map(headers), ["7", "1.5", "soon"]);
    }
}
