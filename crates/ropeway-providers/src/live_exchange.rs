//! One exchange in progress, with its timeouts and its recorder.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ProviderError, ProviderErrorKind};
use super::error_mapping;
use super::http_message::ResponseHead;
use super::record::ExchangeRecorder;
use super::recording::ExchangeEnd;
use super::replay::ReplayedBody;
use ropeway_core::duration::format_duration;
use ropeway_core::message::Dialect;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::BoxError;
use ropeway_web::{self as web, TransportError};

/// Maximum bytes to read if a body is not a reply.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Maximum time to read an error's body; its status is already known.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to wait for the body to end after the reply has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Maximum time to wait for further events after the stop reason.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// A response whose head has arrived.
pub(super) struct LiveExchange {
    dialect: Dialect,
    redactor: Redactor,
    head: ResponseHead,
    body: ResponseBody,
    recorder: Option<ExchangeRecorder>,
    timeout: ReadTimeout,
}

pub(super) enum ResponseBody {
    Network(reqwest::Response),
    Replay(ReplayedBody),
}

/// When reading the next chunk times out.
enum ReadTimeout {
    /// At a fixed time: for the first byte, and for the data after the stop reason.
    Deadline { deadline: Instant, limit: Duration },
    /// After so long without data.
    Idle(Duration),
}

impl LiveExchange {
    /// Creates an exchange whose first byte must arrive before `deadline`; errors report `limit`.
    pub(super) fn new(
        dialect: Dialect,
        redactor: Redactor,
        head: ResponseHead,
        body: ResponseBody,
        recorder: Option<ExchangeRecorder>,
        deadline: Instant,
        limit: Duration,
    ) -> Self {
        Self { dialect, redactor, head, body, recorder, timeout: ReadTimeout::Deadline { deadline, limit } }
    }

    /// Returns `true` if the status is 2xx.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.head.status)
    }

    /// Returns `true` if the content type announces server-sent events.
    pub(super) fn is_event_stream(&self) -> bool {
        self.head.header("content-type").is_some_and(|value| value.trim_start().starts_with("text/event-stream"))
    }

    /// Reads the body's next chunk; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let next = self.body.next(self.dialect, &self.redactor);
        let in_time = match self.timeout {
            ReadTimeout::Deadline { deadline, limit } => {
                let late = || format!("no response from the provider within {}", format_duration(limit));
                timeout_at(deadline, next).await.map_err(|_| late())
            }
            ReadTimeout::Idle(limit) => {
                let late = || format!("the reply stalled: no data for {}", format_duration(limit));
                timeout(limit, next).await.map_err(|_| late())
            }
        };
        let next =
            in_time.unwrap_or_else(|late| Err(ProviderError::new(ProviderErrorKind::Timeout, self.dialect, late)));
        if let Some(recorder) = &mut self.recorder {
            match &next {
                Ok(Some(chunk)) => recorder.chunk(chunk),
                Ok(None) => recorder.end(ExchangeEnd::Whole),
                Err(error) => recorder.end(ExchangeEnd::failed(error)),
            }
        }
        next
    }

    /// Switches from the first-byte deadline to the idle timeout.
    pub(super) fn set_idle_timeout(&mut self, idle: Duration) {
        self.timeout = ReadTimeout::Idle(idle);
    }

    /// Shortens the timeout: the stop reason has arrived, and little follows it.
    pub(super) fn expect_end(&mut self, idle: Duration) {
        let limit = idle.min(TRAILING_EVENTS_TIMEOUT);
        self.timeout = ReadTimeout::Deadline { deadline: Instant::now() + limit, limit };
    }

    /// Ends an exchange whose reply is complete. Waits briefly for the body's end, so the connection can be reused.
    pub(super) async fn finish(mut self) {
        let drain = async { while let Ok(Some(_)) = self.chunk().await {} };
        let _ = timeout(DRAIN_TIMEOUT, drain).await;
        if let Some(recorder) = &mut self.recorder {
            recorder.complete();
        }
    }

    /// Reads a body that is not a reply, up to a limit. `body` holds the bytes read so far.
    pub(super) async fn read_error_body(&mut self, mut body: Vec<u8>) -> Vec<u8> {
        let read = async {
            while body.len() < MAX_ERROR_BODY
                && let Ok(Some(chunk)) = self.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        // A partial body is still useful.
        let _ = timeout(ERROR_BODY_TIMEOUT, read).await;
        body.truncate(MAX_ERROR_BODY);
        body
    }

    /// Reads the error that the provider responded with.
    pub(super) async fn into_error(mut self) -> ProviderError {
        let body = self.read_error_body(Vec::new()).await;
        let body = String::from_utf8_lossy(&body);
        // The body may have been truncated within a key.
        let body = self.redactor.redact_truncated(&body);
        if (300..400).contains(&self.head.status) {
            let to = self.head.header("location").map(|to| format!(" to `{}`", self.redactor.redact(to)));
            let message = format!("the provider redirected{}; redirects are not followed", to.unwrap_or_default());
            let error = ProviderError::new(ProviderErrorKind::NotFound, self.dialect, message);
            return ProviderError { status: Some(self.head.status), ..error };
        }
        let header = |name: &str| self.head.header(name).map(str::to_owned);
        error_mapping::from_response(self.dialect, self.head.status, &header, body.as_bytes(), SystemTime::now())
    }

    /// Adds the response's request id to an error that has none.
    pub(super) fn with_request_id(&self, mut error: ProviderError) -> ProviderError {
        let id = || self.head.headers.iter().find(|(name, _)| name.contains("request-id")).map(|(_, id)| id.clone());
        error.request_id = error.request_id.or_else(id);
        error
    }
}

impl ResponseBody {
    async fn next(&mut self, dialect: Dialect, redactor: &Redactor) -> Result<Option<Bytes>, ProviderError> {
        match self {
            Self::Network(response) => {
                let lost = |error| connection_error(error, "connection to the provider lost", dialect, redactor);
                response.chunk().await.map_err(lost)
            }
            Self::Replay(body) => body.next(dialect),
        }
    }
}

/// Maps an HTTP client error. Invalid certificates are not retried.
pub(super) fn connection_error(
    error: reqwest::Error,
    message: &str,
    dialect: Dialect,
    redactor: &Redactor,
) -> ProviderError {
    let error_of = |message: &str, source: BoxError| {
        ProviderError::new(ProviderErrorKind::Connection, dialect, message).with_source(source)
    };
    match TransportError::from_reqwest(error, redactor) {
        TransportError::Tls { trouble, source } => ProviderError {
            should_retry: (trouble != web::TlsError::Other).then_some(false),
            ..error_of("TLS connection to the provider failed", source)
        },
        TransportError::Other(source) => error_of(message, source),
    }
}
