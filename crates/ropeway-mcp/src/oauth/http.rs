//! OAuth HTTP requests: bounded in size and time, without redirects, and only to URLs that the guard allows.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::{Map, Value};

use super::address::AddressClass;
use super::challenge::Challenge;
use super::dpop_nonces::DpopNonces;
use super::error::OAuthError;
use super::guard::{BlockedAddress, OutboundGuard};
use super::server_clock::ServerClocks;
use super::text::{shown, shown_url};
use ropeway_config::OAuthSettings;
use ropeway_core::secret::Redactor;
use ropeway_web::{self as web, TransportError, brief};

/// Maximum request time, including the response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum response size, in bytes. A larger response is an error.
const MAX_BYTES: usize = 1 << 20;

/// The header with a nonce for the next proof.
pub(crate) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

/// Sends one server's OAuth requests. Clones share connections.
#[derive(Clone)]
pub(crate) struct OAuthHttp(Arc<Shared>);

struct Shared {
    guard: OutboundGuard,
    redactor: Redactor,
    /// The client for this machine, which uses no proxy.
    local: OnceLock<Client>,
    /// The client for all other machines.
    remote: OnceLock<Client>,
    nonces: DpopNonces,
    clocks: ServerClocks,
}

impl std::fmt::Debug for OAuthHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthHttp").finish_non_exhaustive()
    }
}

/// A response: its status, and the JSON object in its body.
#[derive(Debug)]
pub(super) struct JsonResponse {
    url: Url,
    pub(super) status: StatusCode,
    /// The object, or a description if the body is something else.
    pub(super) body: Result<Map<String, Value>, String>,
}

impl JsonResponse {
    /// Returns a successful response's object.
    pub(super) fn into_object(self) -> Result<Map<String, Value>, OAuthError> {
        match self.body {
            Ok(object) if self.status.is_success() => Ok(object),
            Ok(_) => Err(invalid(&self.url, format!("HTTP {}", self.status.as_u16()))),
            Err(reason) => Err(invalid(&self.url, reason)),
        }
    }

    /// Returns `true` if the document does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.status.is_client_error() && self.status != StatusCode::TOO_MANY_REQUESTS
    }
}

/// Creates the error for an invalid response.
pub(super) fn invalid(url: &Url, reason: impl Into<String>) -> OAuthError {
    OAuthError::Invalid { url: shown_url(url), reason: reason.into() }
}

impl OAuthHttp {
    /// Creates a client for the requests that a server causes. `redactor` redacts server texts in errors.
    pub(crate) fn new(server: &Url, allow_private: &[String], redactor: Redactor) -> Self {
        Self(Arc::new(Shared {
            guard: OutboundGuard::new(server, allow_private),
            redactor,
            local: OnceLock::new(),
            remote: OnceLock::new(),
            nonces: DpopNonces::default(),
            clocks: ServerClocks::default(),
        }))
    }

    /// Creates a client with a server's settings. An authorization server that they name may have a private address.
    pub(crate) fn for_settings(server: &Url, settings: &OAuthSettings, redactor: &Redactor) -> Self {
        let issuer = settings.issuer.as_deref().and_then(|issuer| Url::parse(issuer).ok());
        let host = issuer.as_ref().and_then(Url::host_str).map(str::to_owned);
        let allowed: Vec<String> = settings.allow_private.iter().cloned().chain(host).collect();
        Self::new(server, &allowed, settings.secrets().with(redactor))
    }

    pub(crate) fn guard(&self) -> &OutboundGuard {
        &self.0.guard
    }

    pub(super) fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// Returns the nonces that authorization servers sent.
    pub(super) fn nonces(&self) -> &DpopNonces {
        &self.0.nonces
    }

    /// Returns the current time on a URL's host, corrected by the last known clock skew.
    pub(crate) fn time_at(&self, url: &Url) -> SystemTime {
        self.0.clocks.time_at(url, SystemTime::now())
    }

    /// Returns `true` if the clock on a URL's host is known to differ.
    pub(super) fn knows_clock_of(&self, url: &Url) -> bool {
        self.0.clocks.knows(url)
    }

    /// Fetches a JSON document.
    pub(super) async fn get(&self, url: &Url) -> Result<JsonResponse, OAuthError> {
        self.json(url, self.client(url)?.get(url.clone()), self.redactor()).await
    }

    /// Sends a form. `redactor` also covers the secrets in it.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        headers: HeaderMap,
        redactor: &Redactor,
    ) -> Result<JsonResponse, OAuthError> {
        let request = self.client(url)?.post(url.clone()).headers(headers);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(encode_form(form));
        self.json(url, request, redactor).await
    }

    /// Sends a JSON document.
    pub(super) async fn post_json(&self, url: &Url, body: &Value) -> Result<JsonResponse, OAuthError> {
        let request = self.client(url)?.post(url.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        self.json(url, request, self.redactor()).await
    }

    /// Requests the server's own challenge. Returns `None` if it sends none.
    pub(super) async fn challenge_of(&self, server: &Url) -> Result<Option<Challenge>, OAuthError> {
        let request = self.client_for(server)?.get(server.clone()).header(ACCEPT, "text/event-stream");
        let response = self.send(server, request).await?;
        let lines = response.headers().get_all(WWW_AUTHENTICATE);
        Ok(Challenge::parse(lines.iter().filter_map(|line| line.to_str().ok())))
    }

    async fn json(&self, url: &Url, request: RequestBuilder, redactor: &Redactor) -> Result<JsonResponse, OAuthError> {
        let exchange = async {
            let response = self.send(url, request.header(ACCEPT, "application/json")).await?;
            self.read(url, response, redactor).await
        };
        let timeout = |_| OAuthError::Timeout { url: shown_url(url) };
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(timeout)?
    }

    async fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, OAuthError> {
        self.0.guard.check_proxied(url).await?;
        let timeout = |_| OAuthError::Timeout { url: shown_url(url) };
        let response = tokio::time::timeout(TIMEOUT, request.send()).await.map_err(timeout)?;
        let response = response.map_err(|error| self.failure(url, error))?;
        tracing::debug!("HTTP {} from {}", response.status().as_u16(), shown_url(url));
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(date) = header(DATE) {
            self.0.clocks.remember(url, date, SystemTime::now());
        }
        if let Some(nonce) = header(DPOP_NONCE) {
            self.0.nonces.remember(url, nonce);
        }
        Ok(response)
    }

    async fn read(&self, url: &Url, mut response: Response, redactor: &Redactor) -> Result<JsonResponse, OAuthError> {
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
            let target = shown(target.split('?').next().unwrap_or_default(), redactor);
            return Err(invalid(url, format!("a redirect to `{target}`, which is not followed")));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failure(url, error))? {
            if body.len() + chunk.len() > MAX_BYTES {
                return Err(invalid(url, format!("the response is larger than {} MiB", MAX_BYTES >> 20)));
            }
            body.extend_from_slice(&chunk);
        }
        let body = serde_json::from_slice(&body).map_err(|_| describe(status, &body, redactor));
        Ok(JsonResponse { url: url.clone(), status, body })
    }

    /// Converts a request's error.
    fn failure(&self, url: &Url, error: reqwest::Error) -> OAuthError {
        if let Some(blocked) = find::<BlockedAddress>(&error) {
            return OAuthError::Blocked { url: shown_url(url), reason: blocked.to_string() };
        }
        if error.is_timeout() {
            return OAuthError::Timeout { url: shown_url(url) };
        }
        let (TransportError::Tls { source, .. } | TransportError::Other(source)) =
            TransportError::from_reqwest(error, self.redactor());
        OAuthError::Unreachable { url: shown_url(url), source: source.into() }
    }

    /// Returns the client for a URL that the guard allows.
    fn client(&self, url: &Url) -> Result<Client, OAuthError> {
        self.guard().check(url)?;
        self.client_for(url)
    }

    fn client_for(&self, url: &Url) -> Result<Client, OAuthError> {
        let is_local = url.host_str().and_then(AddressClass::of_host) == Some(AddressClass::Loopback);
        let cell = if is_local { &self.0.local } else { &self.0.remote };
        if let Some(client) = cell.get() {
            return Ok(client.clone());
        }
        let builder = web::client(url).redirect(redirect::Policy::none()).dns_resolver(Arc::new(self.guard().clone()));
        // All local names share the client, including those that only the system resolver knows.
        let builder = if is_local { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| self.failure(url, error))?;
        Ok(cell.get_or_init(|| client).clone())
    }
}

/// Describes a body that is not a JSON object.
fn describe(status: StatusCode, body: &[u8], redactor: &Redactor) -> String {
    let text = brief(body, redactor);
    let text = shown(&text, redactor);
    let what = if status.is_success() { "not a JSON object".to_owned() } else { format!("HTTP {}", status.as_u16()) };
    if text.is_empty() { what } else { format!("{what}: {text}") }
}

/// Encodes a form ([application/x-www-form-urlencoded](https://url.spec.whatwg.org/#application/x-www-form-urlencoded)).
pub(super) fn encode_form(form: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("form:") else { return String::new() };
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

/// Finds an error with the given type in an error chain, including inside I/O errors.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|inner| find(inner)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode_form(&[("a", "x y&z"), ("scope", "ä+/")]), "a=x+y%26z&scope=%C3%A4%2B%2F");
    }

    #[test]
    fn bodies_that_are_not_json_are_described_without_tags_and_secrets() {
        let redactor = Redactor::new(&[ropeway_core::secret::Secret::new("s3cret-value")]);
        let text = describe(StatusCode::OK, b"<html><body>Log in, s3cret-value</body></html>", &redactor);
        assert_eq!(text, "not a JSON object: Log in, ***");
        assert_eq!(describe(StatusCode::BAD_GATEWAY, b"", &redactor), "HTTP 502");
    }

    #[tokio::test]
    async fn a_url_that_the_guard_refuses_is_not_requested() {
        let server = Url::parse("https://mcp.example/").expect("a URL");
        let http = OAuthHttp::new(&server, &[], Redactor::default());
        let url = Url::parse("https://169.254.169.254/latest").expect("a URL");
        assert!(matches!(http.get(&url).await, Err(OAuthError::Blocked { .. })));
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_reported_as_blocked() {
        let server = Url::parse("https://mcp.example/").expect("a URL");
        let http = OAuthHttp::new(&server, &[], Redactor::default());
        // The system resolves this name from its hosts file.
        let url = Url::parse("https://ip6-localhost/").expect("a URL");
        match http.get(&url).await {
            Err(OAuthError::Blocked { reason, .. }) => assert!(reason.contains("allow_private"), "{reason}"),
            // Machines without the entry.
            Err(OAuthError::Unreachable { .. } | OAuthError::Timeout { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
