//! What both HTTP transports share: the client, the headers, the reading of answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

use crate::config::HttpServer;
use crate::mcp::fault::{ConnectErrorKind, Fault, hidden};
use crate::protocol::{self, Incoming, RpcError};
use crate::secret::Redactor;
use crate::sync::{read, write};
use crate::tool::BoxError;
use crate::web::{Broken, SseEvent, SseParser, brief, client, looks_like_events, retry_after};

/// How much of a refusal's body is read.
const REFUSAL: usize = 64 << 10;

/// What an answer may be.
const ANSWERS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A server's URL and all that goes with every request to it.
pub(crate) struct Web {
    client: RwLock<Client>,
    pub(crate) url: Url,
    headers: HeaderMap,
    pub(crate) limit: usize,
    pub(crate) mask: Redactor,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("url", &self.mask.hide(self.url.as_str())).finish_non_exhaustive()
    }
}

impl Web {
    /// A way to a server; `mask` hides what must not be seen of it and of what it says.
    pub(crate) fn new(server: &HttpServer, limit: usize, mask: Redactor) -> Result<Self, ConnectErrorKind> {
        let unusable = |what: &str, source: BoxError| unusable(&mask.hide(what), source);
        let url = Url::parse(&server.url).map_err(|error| unusable(&server.url, error.into()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unusable(&server.url, "only http and https are spoken here".into()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &server.headers {
            let header = HeaderName::try_from(name).map_err(|error| unusable(name, error.into()))?;
            headers.append(header, secret(name, value.expose())?);
        }
        if let Some(token) = &server.bearer {
            headers.insert(AUTHORIZATION, secret("authorization", &format!("Bearer {}", token.expose()))?);
        }
        let client = client(&url).build().map_err(|error| unusable("the HTTP client", error.into()))?;
        Ok(Self { client: RwLock::new(client), url, headers, limit, mask })
    }

    /// A request for an event stream.
    pub(crate) fn get(&self) -> RequestBuilder {
        self.request(Method::GET, self.url.clone()).header(ACCEPT, "text/event-stream")
    }

    /// A message for the server.
    pub(crate) fn post(&self, url: Url, message: Bytes) -> RequestBuilder {
        self.request(Method::POST, url).header(ACCEPT, ANSWERS).header(CONTENT_TYPE, "application/json").body(message)
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let client = read(&self.client);
        client.request(method, url).headers(self.headers.clone())
    }

    /// Reads the body of an answer.
    pub(crate) async fn body(&self, response: Response) -> Result<Body, Fault> {
        Body::read(response, self.limit, &self.mask).await
    }

    /// Reads what there is to know of a refusal.
    pub(crate) async fn refused(&self, response: Response) -> Refused {
        Refused::read(response, &self.mask).await
    }

    /// What went wrong on the way to the server.
    pub(crate) fn broken(&self, error: reqwest::Error) -> ConnectErrorKind {
        broken(error, &self.mask)
    }

    /// Lets go of all kept connections. When one breaks, the server may have gone, and the others with it: the next
    /// request must not meet one of them.
    pub(crate) fn forget_connections(&self) {
        if let Ok(fresh) = client(&self.url).build() {
            *write(&self.client) = fresh;
        }
    }
}

fn unusable(what: &str, source: BoxError) -> ConnectErrorKind {
    ConnectErrorKind::Address { what: what.to_owned(), source }
}

fn secret(name: &str, value: &str) -> Result<HeaderValue, ConnectErrorKind> {
    let mut value = HeaderValue::try_from(value).map_err(|error| unusable(name, error.into()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn broken(error: reqwest::Error, mask: &Redactor) -> ConnectErrorKind {
    match Broken::of(error, mask) {
        Broken::Tls { trouble, source } => ConnectErrorKind::Tls { trouble, source },
        Broken::Other(source) => ConnectErrorKind::Broken(source),
    }
}

/// An answer with a status that says no.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) challenge: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) rpc: Option<RpcError>,
    /// Which request of ours that error answers, when it says so.
    pub(crate) answers: Option<u64>,
    pub(crate) body: String,
}

impl Refused {
    async fn read(mut response: Response, mask: &Redactor) -> Self {
        let status = response.status();
        let header =
            |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let challenge = header(WWW_AUTHENTICATE).map(|challenge| mask.hide(&challenge).into_owned());
        let retry_after = header(RETRY_AFTER).and_then(|value| retry_after(&value, SystemTime::now()));
        let location = header(reqwest::header::LOCATION);
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = response.chunk().await
                && body.len() < REFUSAL
            {
                body.extend_from_slice(&chunk);
            }
        };
        // The status is known; a body that does not come is not waited for.
        let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
        body.truncate(REFUSAL);
        let (mut rpc, mut answers) = (None, None);
        let _ = protocol::read(&body, |message| {
            if let Incoming::Answer { id, outcome: Err(error) } = message {
                rpc = Some(hidden(error, mask));
                answers = id;
            }
        });
        let body = match location {
            Some(location) if status.is_redirection() => format!("a redirect to {}", mask.hide(&location)),
            _ => brief(&body, mask),
        };
        Self { status, challenge, retry_after, rpc, answers, body }
    }

    /// The server wants to know who is asking.
    pub(crate) fn needs_auth(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || (self.status == StatusCode::FORBIDDEN && self.challenge.is_some())
    }

    /// The server has too much to do right now.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The refusal as the end of a request.
    pub(crate) fn into_fault(self) -> Fault {
        let busy = self.is_busy();
        if self.needs_auth() {
            return Fault::Lost {
                started: false,
                cause: Arc::new(ConnectErrorKind::NeedsAuth { challenge: self.challenge }),
            };
        }
        match self.rpc {
            // The words of a server that is busy are about itself and not about the request.
            Some(error) if !busy => Fault::Refused(error),
            _ => {
                let said = Some(self.body).filter(|body| !body.is_empty());
                let cause = Arc::new(ConnectErrorKind::Status { status: self.status.as_u16(), said });
                Fault::Lost { started: true, cause }
            }
        }
    }
}

/// A body, told by its first bytes: servers lie about its type.
pub(crate) enum Body {
    /// Nothing at all.
    Empty,
    /// One JSON text.
    Json(Bytes),
    /// Events, as they come.
    Events(Box<Events>),
}

/// A stream of events.
pub(crate) struct Events {
    response: Response,
    parser: SseParser,
    ready: VecDeque<SseEvent>,
    ended: bool,
    mask: Redactor,
}

impl Body {
    /// Reads a JSON body whole, and an event stream's beginning.
    pub(crate) async fn read(mut response: Response, limit: usize, mask: &Redactor) -> Result<Self, Fault> {
        let said_events = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.trim_start().starts_with("text/event-stream"));
        // Later it would be the length of the rest.
        let length = response.content_length().and_then(|length| usize::try_from(length).ok());
        let mut start = Bytes::new();
        while start.trim_ascii().is_empty() {
            match response.chunk().await {
                Ok(Some(chunk)) => start = chunk,
                Ok(None) => {
                    let none = || Self::Events(Box::new(Events::new(response, limit, true, mask)));
                    return Ok(if said_events { none() } else { Self::Empty });
                }
                Err(error) => return Err(cut_off(error, mask)),
            }
        }
        match start.trim_ascii_start().first() {
            Some(b'{' | b'[') => Ok(Self::Json(whole(response, start, length, limit, mask).await?)),
            _ if said_events || looks_like_events(&start) => {
                let mut events = Events::new(response, limit, false, mask);
                events.take(&start);
                Ok(Self::Events(Box::new(events)))
            }
            _ => {
                let body = whole(response, start, None, limit.min(REFUSAL), mask).await.unwrap_or_default();
                let said = brief(&body, mask);
                Err(if is_web_page(&body) {
                    Fault::WebPage(said)
                } else {
                    Fault::Unreadable(format!("neither JSON nor an event stream: `{said}`"))
                })
            }
        }
    }
}

/// Returns true for HTML: a login page of a proxy, or a URL whose path is wrong.
fn is_web_page(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start(), [b'<', tag, ..] if *tag == b'!' || tag.is_ascii_alphabetic())
}

async fn whole(
    mut response: Response,
    start: Bytes,
    length: Option<usize>,
    limit: usize,
    mask: &Redactor,
) -> Result<Bytes, Fault> {
    if length.is_some_and(|length| length > limit) || start.len() > limit {
        return Err(Fault::TooLarge { limit });
    }
    if length == Some(start.len()) {
        return Ok(start);
    }
    let mut body = BytesMut::with_capacity(length.unwrap_or_default());
    body.extend_from_slice(&start);
    while let Some(chunk) = response.chunk().await.map_err(|error| cut_off(error, mask))? {
        if body.len() + chunk.len() > limit {
            return Err(Fault::TooLarge { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn cut_off(error: reqwest::Error, mask: &Redactor) -> Fault {
    Fault::Lost { started: true, cause: Arc::new(broken(error, mask)) }
}

impl Events {
    fn new(response: Response, limit: usize, ended: bool, mask: &Redactor) -> Self {
        let (parser, ready) = (SseParser::new(limit), VecDeque::new());
        Self { response, parser, ready, ended, mask: mask.clone() }
    }

    fn take(&mut self, chunk: &[u8]) {
        let ready = &mut self.ready;
        self.parser.push(chunk, |event| ready.push_back(event));
    }

    /// The next event; `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, Fault> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.take(&chunk),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(cut_off(error, &self.mask));
                }
            }
        }
    }

    /// Reads on for a moment after the answer, so that the TCP connection can be used again.
    pub(crate) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        let _ = tokio::time::timeout(Duration::from_millis(100), rest).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_not_http_is_refused_with_its_name() {
        let web = |server: HttpServer| Web::new(&server, 1, Redactor::default());
        let error = web(HttpServer::new("ftp://example.com")).expect_err("not http");
        assert_eq!(error.to_string(), "`ftp://example.com` cannot be used");
        assert!(web(HttpServer::new("http://a").with_header("bad name", "x")).is_err());
    }
}
