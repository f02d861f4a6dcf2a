//! The wire: requests go out and answers come in, over a socket or out of a recording.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use tokio::time::{Instant, timeout, timeout_at};

use super::record::Tap;
use super::replay::{Player, Replayed};
use super::{
    ExchangeEnd, HttpRequest, Provider, ProviderError, ProviderErrorKind, ProviderSettings, Proxy, Recording, trouble,
};
use crate::duration::format_duration;
use crate::message::Dialect;
use crate::secret::Redactor;
use crate::tool::BoxError;
use crate::web::{self, TransportError};

/// How much is read of an answer that is none.
const REFUSAL: usize = 64 << 10;

/// How long the words of a refusal are waited for: the status is known.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long the end of a body is waited for whose answer is over.
const LAST_BYTES: Duration = Duration::from_millis(50);

/// How long more is waited for of an answer that has said why it stopped.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// More than anybody waits, and less than a clock can hold.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Where requests go.
#[derive(Clone)]
pub(super) enum Wire {
    Socket(Client),
    Recording(Player),
}

impl Wire {
    /// A wire to the provider of the settings.
    pub(super) fn open(settings: &ProviderSettings) -> Result<Self, ProviderError> {
        let dialect = settings.dialect;
        let url = url(&settings.base_url, dialect)?;
        for (name, value) in &settings.headers {
            header(name, value.expose(), dialect)?;
        }
        let client = web::client(&url).connect_timeout(settings.timeouts.connect);
        let unusable = |what: &str, error: reqwest::Error| unusable(dialect, what, error.without_url().into());
        let client = match &settings.proxy {
            Proxy::Environment => client,
            Proxy::None => client.no_proxy(),
            Proxy::Url(proxy) => {
                let proxy = reqwest::Proxy::all(proxy.expose()).map_err(|error| unusable("the proxy", error))?;
                client.proxy(proxy)
            }
        };
        Ok(Self::Socket(client.build().map_err(|error| unusable("the HTTP client", error))?))
    }

    /// A wire that leads nowhere: the answers were recorded.
    pub(super) fn replaying(recording: Recording) -> Self {
        Self::Recording(Player::new(recording))
    }
}

fn unusable(dialect: Dialect, what: &str, source: BoxError) -> ProviderError {
    let message = format!("{what} cannot be used");
    ProviderError { source: Some(source), ..ProviderError::new(ProviderErrorKind::Unusable, dialect, message) }
}

fn url(text: &str, dialect: Dialect) -> Result<Url, ProviderError> {
    let url = Url::parse(text).map_err(|error| unusable(dialect, &format!("the URL `{text}`"), error.into()))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(unusable(dialect, &format!("the URL `{text}`"), "only http and https are spoken here".into())),
    }
}

fn header(name: &str, value: &str, dialect: Dialect) -> Result<(HeaderName, HeaderValue), ProviderError> {
    let unusable = |source: BoxError| unusable(dialect, &format!("the header `{name}`"), source);
    let header = HeaderName::try_from(name).map_err(|error| unusable(error.into()))?;
    let mut value = HeaderValue::try_from(value).map_err(|error| unusable(error.into()))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// The head of an answer: its status, and those of its headers that matter, with lowercase names.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl Head {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// One exchange as it goes on, watched by the clocks and by the recorder.
pub(super) struct Exchanging {
    dialect: Dialect,
    mask: Redactor,
    head: Head,
    body: Body,
    tap: Option<Tap>,
    patience: Patience,
}

enum Body {
    Socket(reqwest::Response),
    Recording(Replayed),
}

/// How long the next piece is waited for.
enum Patience {
    /// Until then: nothing of the answer was seen yet, or nearly everything.
    Until { deadline: Instant, given: Duration },
    /// So long.
    For(Duration),
}

impl Provider {
    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(&self, request: &HttpRequest) -> Result<Exchanging, ProviderError> {
        let mut tap = self.recorder.as_ref().map(|recorder| recorder.tap(request, &self.mask));
        let given = self.settings.timeouts.first_byte;
        let deadline = Instant::now() + given.min(FOREVER);
        let sent = match timeout_at(deadline, self.pass_on(request)).await {
            Ok(sent) => sent,
            Err(_) => Err(self.trouble(
                ProviderErrorKind::Timeout,
                format!("the provider did not answer within {}", format_duration(given)),
            )),
        };
        let (head, body) = sent.inspect_err(|error| {
            if let Some(tap) = &mut tap {
                tap.end(ExchangeEnd::failed(error));
            }
        })?;
        if let Some(tap) = &mut tap {
            tap.head(head.status, &head.headers);
        }
        let patience = Patience::Until { deadline, given };
        Ok(Exchanging { dialect: self.dialect(), mask: self.mask.clone(), head, body, tap, patience })
    }

    async fn pass_on(&self, request: &HttpRequest) -> Result<(Head, Body), ProviderError> {
        let dialect = self.dialect();
        match &self.wire {
            Wire::Recording(player) => {
                let (head, replayed) = player.answer(request, dialect, &self.mask)?;
                Ok((head, Body::Recording(replayed)))
            }
            Wire::Socket(client) => {
                let method = Method::from_bytes(request.method.as_bytes())
                    .map_err(|error| unusable(dialect, &format!("the method `{}`", request.method), error.into()))?;
                let mut headers = HeaderMap::new();
                for (name, value) in &request.headers {
                    let (name, value) = header(name, value.expose(), dialect)?;
                    headers.append(name, value);
                }
                // As a whole they take the place of what is made out of credentials in the URL.
                let builder = client.request(method, url(&request.url, dialect)?).headers(headers);
                let response =
                    builder.body(request.body.clone()).send().await.map_err(|error| self.unreached(error))?;
                let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers = response.headers().iter().filter(|(name, _)| matters(name.as_str()));
                let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
                let head = Head { status: response.status().as_u16(), headers };
                Ok((head, Body::Socket(response)))
            }
        }
    }

    /// What went wrong before there was an answer.
    fn unreached(&self, error: reqwest::Error) -> ProviderError {
        if error.is_connect() && error.is_timeout() {
            let given = self.settings.timeouts.connect;
            return self.trouble(
                ProviderErrorKind::Timeout,
                format!("the provider could not be reached within {}", format_duration(given)),
            );
        }
        let message = match error.is_connect() {
            true => "the provider could not be reached",
            false => "the connection to the provider broke",
        };
        broken(error, message, self.dialect(), &self.mask)
    }

    fn trouble(&self, kind: ProviderErrorKind, message: String) -> ProviderError {
        ProviderError::new(kind, self.dialect(), message)
    }
}

fn broken(error: reqwest::Error, message: &str, dialect: Dialect, mask: &Redactor) -> ProviderError {
    let trouble = |message: &str, source| ProviderError {
        source: Some(source),
        ..ProviderError::new(ProviderErrorKind::Connection, dialect, message)
    };
    match TransportError::from_reqwest(error, mask) {
        // A certificate does not get better.
        TransportError::Tls { trouble: tls, source } => ProviderError {
            should_retry: (tls != web::TlsError::Other).then_some(false),
            ..trouble("no secure connection to the provider could be made", source)
        },
        TransportError::Other(source) => trouble(message, source),
    }
}

/// Is this header of an answer worth keeping? All others are not looked at, so that a recording has all that we know.
fn matters(name: &str) -> bool {
    matches!(name, "content-type" | "location" | "x-should-retry" | "cf-ray")
        || name.starts_with("retry-after")
        || name.contains("request-id")
        || name.contains("ratelimit")
}

impl Exchanging {
    /// Did the provider agree to answer?
    pub(super) fn is_accepted(&self) -> bool {
        (200..300).contains(&self.head.status)
    }

    /// Does it say itself that events will come?
    pub(super) fn promises_events(&self) -> bool {
        self.head.header("content-type").is_some_and(|value| value.trim_start().starts_with("text/event-stream"))
    }

    /// The next piece of the answer; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let next = self.body.next(self.dialect, &self.mask);
        let in_time = match self.patience {
            Patience::Until { deadline, given } => {
                let late = || format!("the provider did not answer within {}", format_duration(given));
                timeout_at(deadline, next).await.map_err(|_| late())
            }
            Patience::For(pause) => {
                let late = || format!("the answer stalled: nothing came for {}", format_duration(pause));
                timeout(pause, next).await.map_err(|_| late())
            }
        };
        let next =
            in_time.unwrap_or_else(|late| Err(ProviderError::new(ProviderErrorKind::Timeout, self.dialect, late)));
        if let Some(tap) = &mut self.tap {
            match &next {
                Ok(Some(chunk)) => tap.chunk(chunk),
                Ok(None) => tap.end(ExchangeEnd::Whole),
                Err(error) => tap.end(ExchangeEnd::failed(error)),
            }
        }
        next
    }

    /// The first byte was seen: from now on each piece has its own time.
    pub(super) fn has_begun(&mut self, idle: Duration) {
        self.patience = Patience::For(idle);
    }

    /// The answer has said why it stopped: little more will come, and soon.
    pub(super) fn has_stopped(&mut self, idle: Duration) {
        let given = idle.min(LAST_EVENTS);
        self.patience = Patience::Until { deadline: Instant::now() + given, given };
    }

    /// The answer has said that it is over. For a moment the end of the body is waited for: then the connection can be
    /// used again.
    pub(super) async fn done(mut self) {
        let rest = async { while let Ok(Some(_)) = self.chunk().await {} };
        let _ = timeout(LAST_BYTES, rest).await;
        if let Some(tap) = &mut self.tap {
            tap.enough();
        }
    }

    /// Reads on for a while, as far as it takes to know what a body is about that is no answer.
    pub(super) async fn rest(&mut self, mut body: Vec<u8>) -> Vec<u8> {
        let read = async {
            while body.len() < REFUSAL
                && let Ok(Some(chunk)) = self.chunk().await
            {
                body.extend_from_slice(&chunk);
            }
        };
        // What came is better than nothing.
        let _ = timeout(LAST_WORDS, read).await;
        body.truncate(REFUSAL);
        body
    }

    /// Why the provider does not answer.
    pub(super) async fn refusal(mut self) -> ProviderError {
        let body = self.rest(Vec::new()).await;
        // It may have been cut already, within a key.
        let body = String::from_utf8_lossy(&body);
        let body = self.mask.hide_cut(&body);
        if (300..400).contains(&self.head.status) {
            let to = self.head.header("location").map(|to| format!(" to `{}`", self.mask.hide(to))).unwrap_or_default();
            let message = format!("the address of the provider is a redirect{to}, which is not followed");
            let error = ProviderError::new(ProviderErrorKind::NotFound, self.dialect, message);
            return ProviderError { status: Some(self.head.status), ..error };
        }
        let header = |name: &str| self.head.header(name).map(str::to_owned);
        trouble::in_reply(self.dialect, self.head.status, &header, body.as_bytes(), SystemTime::now())
    }

    /// Adds the provider's name for the exchange to trouble in its middle.
    pub(super) fn name(&self, mut error: ProviderError) -> ProviderError {
        let id = || self.head.headers.iter().find(|(name, _)| name.contains("request-id")).map(|(_, id)| id.clone());
        error.request_id = error.request_id.or_else(id);
        error
    }
}

impl Body {
    async fn next(&mut self, dialect: Dialect, mask: &Redactor) -> Result<Option<Bytes>, ProviderError> {
        match self {
            Self::Socket(response) => {
                let broken = |error| broken(error, "the connection to the provider broke", dialect, mask);
                response.chunk().await.map_err(broken)
            }
            Self::Recording(replayed) => replayed.next(dialect),
        }
    }
}
