//! A provider's transport: sends requests over HTTP, or answers them from a recording.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use tokio::time::{Instant, timeout_at};

use super::error::{ProviderError, ProviderErrorKind};
use super::http_message::{HttpRequest, ResponseHead};
use super::live_exchange::{LiveExchange, ResponseBody, connection_error};
use super::record::Recorder;
use super::recording::{ExchangeEnd, Recording};
use super::replay::Replayer;
use super::settings::{ProviderSettings, Proxy};
use ropeway_core::duration::format_duration;
use ropeway_core::message::Dialect;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::BoxError;
use ropeway_web as web;

/// Longer than any useful timeout, and short enough to be added to an `Instant`.
const MAX_TIMEOUT: Duration = Duration::from_secs(1 << 30);

/// Sends requests and returns the exchanges they start.
#[derive(Clone)]
pub(super) struct Transport {
    pub(super) settings: Arc<ProviderSettings>,
    /// Redacts the settings' secrets in everything that is reported or recorded.
    pub(super) redactor: Redactor,
    pub(super) recorder: Option<Recorder>,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Network(Client),
    Replay(Replayer),
}

impl Transport {
    /// Builds an HTTP client from the settings, and validates their URLs and headers.
    pub(super) fn connect(settings: ProviderSettings) -> Result<Self, ProviderError> {
        let redactor = settings.secrets();
        let client = build_client(&settings).map_err(|error| error.redacted(&redactor))?;
        Ok(Self { settings: Arc::new(settings), redactor, recorder: None, backend: Backend::Network(client) })
    }

    /// Creates a transport that answers from a recording.
    pub(super) fn replay(settings: ProviderSettings, recording: Recording) -> Self {
        let redactor = settings.secrets();
        let backend = Backend::Replay(Replayer::new(recording));
        Self { settings: Arc::new(settings), redactor, recorder: None, backend }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.settings.dialect
    }

    /// Creates an error without a source.
    pub(super) fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(kind, self.dialect(), message)
    }

    /// Sends a request and waits for the response's head.
    pub(super) async fn send(&self, request: &HttpRequest) -> Result<LiveExchange, ProviderError> {
        let mut recorder = self.recorder.as_ref().map(|recorder| recorder.begin(request, &self.redactor));
        let limit = self.settings.timeouts.first_byte;
        let deadline = Instant::now() + limit.min(MAX_TIMEOUT);
        let sent = match timeout_at(deadline, self.dispatch(request)).await {
            Ok(sent) => sent,
            Err(_) => {
                let message = format!("no response from the provider within {}", format_duration(limit));
                Err(self.error(ProviderErrorKind::Timeout, message))
            }
        };
        let (head, body) = sent.inspect_err(|error| {
            if let Some(recorder) = &mut recorder {
                recorder.end(ExchangeEnd::failed(error));
            }
        })?;
        if let Some(recorder) = &mut recorder {
            recorder.head(head.status, &head.headers);
        }
        Ok(LiveExchange::new(self.dialect(), self.redactor.clone(), head, body, recorder, deadline, limit))
    }

    async fn dispatch(&self, request: &HttpRequest) -> Result<(ResponseHead, ResponseBody), ProviderError> {
        let dialect = self.dialect();
        match &self.backend {
            Backend::Replay(replayer) => {
                let (head, body) = replayer.answer(request, dialect, &self.redactor)?;
                Ok((head, ResponseBody::Replay(body)))
            }
            Backend::Network(client) => {
                let method = Method::from_bytes(request.method.as_bytes())
                    .map_err(|error| invalid(dialect, &format!("method `{}`", request.method), error.into()))?;
                let mut headers = HeaderMap::new();
                for (name, value) in &request.headers {
                    let (name, value) = parse_header(name, value.expose(), dialect)?;
                    headers.append(name, value);
                }
                // Replaces the `Authorization` header that reqwest derives from credentials in the URL.
                let builder = client.request(method, parse_url(&request.url, dialect)?).headers(headers);
                let response =
                    builder.body(request.body.clone()).send().await.map_err(|error| self.connect_error(error))?;
                let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers = response.headers().iter().filter(|(name, _)| is_relevant(name.as_str()));
                let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
                let head = ResponseHead { status: response.status().as_u16(), headers };
                Ok((head, ResponseBody::Network(response)))
            }
        }
    }

    /// Describes a failure before the response's head.
    fn connect_error(&self, error: reqwest::Error) -> ProviderError {
        if error.is_connect() && error.is_timeout() {
            let limit = format_duration(self.settings.timeouts.connect);
            let message = format!("could not connect to the provider within {limit}");
            return self.error(ProviderErrorKind::Timeout, message);
        }
        let message =
            if error.is_connect() { "could not connect to the provider" } else { "connection to the provider lost" };
        connection_error(error, message, self.dialect(), &self.redactor)
    }
}

fn build_client(settings: &ProviderSettings) -> Result<Client, ProviderError> {
    let dialect = settings.dialect;
    let url = parse_url(&settings.base_url, dialect)?;
    for (name, value) in &settings.headers {
        parse_header(name, value.expose(), dialect)?;
    }
    let client = web::client(&url).connect_timeout(settings.timeouts.connect);
    let invalid = |what: &str, error: reqwest::Error| invalid(dialect, what, error.without_url().into());
    let client = match &settings.proxy {
        Proxy::Environment => client,
        Proxy::None => client.no_proxy(),
        Proxy::Url(proxy) => {
            client.proxy(reqwest::Proxy::all(proxy.expose()).map_err(|error| invalid("proxy URL", error))?)
        }
    };
    client.build().map_err(|error| invalid("HTTP client settings", error))
}

fn invalid(dialect: Dialect, what: &str, source: BoxError) -> ProviderError {
    ProviderError::unusable(dialect, format!("invalid {what}")).with_source(source)
}

fn parse_url(text: &str, dialect: Dialect) -> Result<Url, ProviderError> {
    let invalid = |source: BoxError| invalid(dialect, &format!("URL `{text}`"), source);
    let url = Url::parse(text).map_err(|error| invalid(error.into()))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(invalid(format!("unsupported scheme `{scheme}`: expected http or https").into())),
    }
}

fn parse_header(name: &str, value: &str, dialect: Dialect) -> Result<(HeaderName, HeaderValue), ProviderError> {
    let invalid = |source: BoxError| invalid(dialect, &format!("header `{name}`"), source);
    let header = HeaderName::try_from(name).map_err(|error| invalid(error.into()))?;
    let mut value = HeaderValue::try_from(value).map_err(|error| invalid(error.into()))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// Returns `true` for response headers that are kept. All others are ignored, so a recording holds everything that is used.
fn is_relevant(name: &str) -> bool {
    matches!(name, "content-type" | "location" | "x-should-retry" | "cf-ray")
        || name.starts_with("retry-after")
        || name.contains("request-id")
        || name.contains("ratelimit")
}
