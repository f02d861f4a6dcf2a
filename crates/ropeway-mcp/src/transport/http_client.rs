//! The HTTP client for both HTTP transports: headers, error responses and response bodies.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

use crate::error::{ConnectErrorKind, PROXY_AUTH, RequestError, redact_error};
use crate::host::Host;
use crate::oauth::{Authorizer, Challenge, Waiting};
use crate::protocol::{self, Incoming, RpcError};
use ropeway_config::HttpServer;
use ropeway_core::secret::{Redactor, SharedRedactor};
use ropeway_core::sync::{read, write};
use ropeway_core::tool::BoxError;
use ropeway_web::{SseEvent, SseParser, TransportError, brief, client, looks_like_sse, retry_after};

/// Maximum bytes to read from an error body.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Challenges and redirect targets are truncated to this many bytes. Both are shown.
const MAX_HEADER: usize = 4 << 10;

/// The accepted response types.
const ACCEPTED_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Sends requests to one server, with its configured headers.
pub(crate) struct HttpClient {
    client: RwLock<Client>,
    pub(crate) url: Url,
    headers: HeaderMap,
    pub(crate) limit: usize,
    redactor: Arc<SharedRedactor>,
    pub(super) auth: Option<Arc<Authorizer>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.redactor().redact(self.url.as_str())).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Creates a client. The `host` redactor redacts errors and response texts.
    pub(crate) fn new(server: &HttpServer, limit: usize, host: &Host) -> Result<Self, ConnectErrorKind> {
        let redactor = host.redactor();
        let invalid_address = |what: &str, source: BoxError| invalid_address(&redactor.redact(what), source);
        let url = Url::parse(&server.url).map_err(|error| invalid_address(&server.url, error.into()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid_address(&server.url, "only http and https are supported".into()));
        }
        let mut headers = HeaderMap::new();
        let has_auth = host.authorizer().is_some();
        for (name, value) in &server.headers {
            let header = HeaderName::try_from(name).map_err(|error| invalid_address(name, error.into()))?;
            // A request has one authorization.
            if has_auth && header == AUTHORIZATION {
                continue;
            }
            headers.append(header, sensitive_header(name, value.expose())?);
        }
        if let Some(token) = server.bearer.as_ref().filter(|_| !has_auth) {
            headers.insert(AUTHORIZATION, sensitive_header("authorization", &format!("Bearer {}", token.expose()))?);
        }
        let client = client(&url).build().map_err(|error| invalid_address("the HTTP client", error.into()))?;
        let (redactor, auth) = (host.shared_redactor().clone(), host.authorizer().cloned());
        Ok(Self { client: RwLock::new(client), url, headers, limit, redactor, auth })
    }

    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.current()
    }

    /// Creates a GET request for an event stream.
    pub(crate) fn get(&self) -> RequestBuilder {
        self.request(Method::GET, self.url.clone()).header(ACCEPT, "text/event-stream")
    }

    /// Creates a POST request with a message.
    pub(crate) fn post(&self, url: Url, message: Bytes) -> RequestBuilder {
        self.request(Method::POST, url)
            .header(ACCEPT, ACCEPTED_TYPES)
            .header(CONTENT_TYPE, "application/json")
            .body(message)
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let client = read(&self.client);
        client.request(method, url).headers(self.headers.clone())
    }

    /// Reads a response body.
    pub(crate) async fn body(&self, response: Response) -> Result<ResponseBody, RequestError> {
        ResponseBody::read(response, self.limit, &self.redactor()).await
    }

    /// Reads an error response.
    pub(crate) async fn error_response(&self, response: Response) -> ErrorResponse {
        ErrorResponse::read(response, &self.redactor()).await
    }

    /// Converts a reqwest error.
    pub(crate) fn connect_error(&self, error: reqwest::Error) -> ConnectErrorKind {
        connect_error(error, &self.redactor())
    }

    /// Drops all pooled connections. When one fails, the server may have restarted, and the others would fail as well.
    pub(crate) fn reset_connections(&self) {
        if let Ok(fresh) = client(&self.url).build() {
            *write(&self.client) = fresh;
        }
    }
}

fn invalid_address(what: &str, source: BoxError) -> ConnectErrorKind {
    ConnectErrorKind::Address { what: what.to_owned(), source }
}

fn sensitive_header(name: &str, value: &str) -> Result<HeaderValue, ConnectErrorKind> {
    let mut value = HeaderValue::try_from(value).map_err(|error| invalid_address(name, error.into()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn connect_error(error: reqwest::Error, redactor: &Redactor) -> ConnectErrorKind {
    match TransportError::from_reqwest(error, redactor) {
        TransportError::Tls { trouble, source } => ConnectErrorKind::Tls { trouble, source },
        // The text that hyper-util's private `TunnelError` displays.
        TransportError::Other(source) if source.to_string().contains("proxy authorization required") => {
            ConnectErrorKind::Status { status: PROXY_AUTH, said: None }
        }
        TransportError::Other(source) => ConnectErrorKind::Broken(source),
    }
}

/// A response with an error status.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub(crate) status: StatusCode,
    pub(crate) challenge: Option<String>,
    /// Whether the credentials are valid, but lack a scope that this request needs.
    lacks_scope: bool,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) rpc: Option<RpcError>,
    /// The id of the request that the error answers, if it has one.
    pub(crate) request_id: Option<u64>,
    pub(crate) body: String,
}

impl ErrorResponse {
    async fn read(mut response: Response, redactor: &Redactor) -> Self {
        let status = response.status();
        let header =
            |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let challenge = header(WWW_AUTHENTICATE).map(|challenge| redactor.redact_beginning(&challenge, MAX_HEADER));
        let lacks_scope = status == StatusCode::FORBIDDEN && is_insufficient_scope(response.headers());
        let retry_after = header(RETRY_AFTER).and_then(|value| retry_after(&value, SystemTime::now()));
        let location = header(reqwest::header::LOCATION);
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = response.chunk().await
                && body.len() < MAX_ERROR_BODY
            {
                body.extend_from_slice(&chunk);
            }
        };
        // The status is known, so a slow body is cut short.
        let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
        body.truncate(MAX_ERROR_BODY);
        let (mut rpc, mut request_id) = (None, None);
        let _ = protocol::read(&body, |message| {
            if let Incoming::Response { id, outcome: Err(error) } = message {
                rpc = Some(redact_error(error, redactor));
                request_id = id;
            }
        });
        let body = match location {
            Some(location) if status.is_redirection() => {
                format!("a redirect to {}", redactor.redact_beginning(&location, MAX_HEADER))
            }
            _ => brief(&body, redactor),
        };
        Self { status, challenge, lacks_scope, retry_after, rpc, request_id, body }
    }

    /// Returns `true` if the server requires authentication.
    pub(crate) fn needs_auth(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || (self.status == StatusCode::FORBIDDEN && self.challenge.is_some())
    }

    /// Returns `true` if the server is overloaded.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// Converts the response to the error for a request that a caller waits for. A missing scope fails only that request,
    /// and not the session that others share. The request was not executed.
    pub(crate) fn into_call_error(self, waiting: Waiting) -> RequestError {
        if self.lacks_scope && waiting == Waiting::Call {
            return RequestError::disconnected(true, ConnectErrorKind::NeedsAuth { challenge: self.challenge });
        }
        self.into_request_error()
    }

    /// Converts the response to a request error.
    pub(crate) fn into_request_error(self) -> RequestError {
        let busy = self.is_busy();
        if self.needs_auth() {
            return RequestError::disconnected(false, ConnectErrorKind::NeedsAuth { challenge: self.challenge });
        }
        match self.rpc {
            // An overloaded server's error is not about the request.
            Some(error) if !busy => RequestError::Refused(error),
            _ => {
                let said = Some(self.body).filter(|body| !body.is_empty());
                RequestError::disconnected(true, ConnectErrorKind::Status { status: self.status.as_u16(), said })
            }
        }
    }
}

/// Returns `true` if a challenge requests further scopes.
fn is_insufficient_scope(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    Challenge::parse(lines).is_some_and(|challenge| challenge.is_insufficient_scope())
}

/// A response body, classified by its first bytes, because some servers send a wrong `Content-Type`.
pub(crate) enum ResponseBody {
    /// An empty body.
    Empty,
    /// One JSON text.
    Json(Bytes),
    /// An event stream.
    Events(Box<SseStream>),
}

/// A stream of server-sent events.
pub(crate) struct SseStream {
    response: Response,
    parser: SseParser,
    ready: VecDeque<SseEvent>,
    ended: bool,
    redactor: Redactor,
}

impl ResponseBody {
    /// Reads a whole JSON body, or the beginning of an event stream.
    pub(crate) async fn read(mut response: Response, limit: usize, redactor: &Redactor) -> Result<Self, RequestError> {
        let said_events = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.trim_start().starts_with("text/event-stream"));
        // Must be read before the first chunk.
        let length = response.content_length().and_then(|length| usize::try_from(length).ok());
        let mut start = Bytes::new();
        while start.trim_ascii().is_empty() {
            match response.chunk().await {
                Ok(Some(chunk)) => start = chunk,
                Ok(None) => {
                    let none = || Self::Events(Box::new(SseStream::new(response, limit, true, redactor)));
                    return Ok(if said_events { none() } else { Self::Empty });
                }
                Err(error) => return Err(interrupted(error, redactor)),
            }
        }
        match start.trim_ascii_start().first() {
            Some(b'{' | b'[') => Ok(Self::Json(read_all(response, start, length, limit, redactor).await?)),
            _ if said_events || looks_like_sse(&start) => {
                let mut events = SseStream::new(response, limit, false, redactor);
                events.parse(&start);
                Ok(Self::Events(Box::new(events)))
            }
            _ => {
                let body =
                    read_all(response, start, None, limit.min(MAX_ERROR_BODY), redactor).await.unwrap_or_default();
                let said = brief(&body, redactor);
                Err(if is_web_page(&body) {
                    RequestError::WebPage(said)
                } else {
                    RequestError::Unreadable(format!("neither JSON nor an event stream: `{said}`"))
                })
            }
        }
    }
}

/// Returns `true` for HTML, such as a proxy's login page or an error page for a wrong path.
fn is_web_page(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start(), [b'<', tag, ..] if *tag == b'!' || tag.is_ascii_alphabetic())
}

async fn read_all(
    mut response: Response,
    start: Bytes,
    length: Option<usize>,
    limit: usize,
    redactor: &Redactor,
) -> Result<Bytes, RequestError> {
    if length.is_some_and(|length| length > limit) || start.len() > limit {
        return Err(RequestError::TooLarge { limit });
    }
    if length == Some(start.len()) {
        return Ok(start);
    }
    let mut body = BytesMut::with_capacity(length.unwrap_or_default());
    body.extend_from_slice(&start);
    while let Some(chunk) = response.chunk().await.map_err(|error| interrupted(error, redactor))? {
        if body.len() + chunk.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn interrupted(error: reqwest::Error, redactor: &Redactor) -> RequestError {
    RequestError::disconnected(true, connect_error(error, redactor))
}

impl SseStream {
    fn new(response: Response, limit: usize, ended: bool, redactor: &Redactor) -> Self {
        let (parser, ready) = (SseParser::new(limit), VecDeque::new());
        Self { response, parser, ready, ended, redactor: redactor.clone() }
    }

    fn parse(&mut self, chunk: &[u8]) {
        let ready = &mut self.ready;
        self.parser.push(chunk, |event| ready.push_back(event));
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, RequestError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.parse(&chunk),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(interrupted(error, &self.redactor));
                }
            }
        }
    }

    /// Reads the rest of the stream for a moment, to make the TCP connection reusable.
    pub(crate) async fn drain(mut self) {
        let rest = async { while let Ok(Some(_)) = self.next().await {} };
        let _ = tokio::time::timeout(Duration::from_millis(100), rest).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::Handlers;
    use ropeway_core::event::Events;

    #[test]
    fn an_invalid_url_is_named_in_the_error() {
        let host = Host::new("s".into(), Handlers::new(), Events::default(), Redactor::default());
        let web = |server: HttpServer| HttpClient::new(&server, 1, &host);
        let error = web(HttpServer::new("ftp://example.com")).expect_err("not http");
        assert_eq!(error.to_string(), "`ftp://example.com` cannot be used");
        assert!(web(HttpServer::new("http://a").with_header("bad name", "x")).is_err());
    }
}
