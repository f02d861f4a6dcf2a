//! Requests to the callback listener: which one ends a sign-in, and what the others are answered.

use std::sync::atomic::{AtomicBool, Ordering};

use url::Url;

use super::page::Page;

/// The redirect URI's path.
pub(super) const CALLBACK_PATH: &str = "/callback";

/// Maximum request head size in bytes. Some servers send codes and states of several kilobytes.
pub(super) const MAX_HEAD: usize = 32 << 10;

/// The callback that a listener waits for.
#[derive(Debug)]
pub(super) struct ExpectedCallback {
    port: u16,
    state: String,
    is_received: AtomicBool,
}

/// How a request is answered, and whether it is the callback.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classified {
    pub(super) page: Page,
    /// The first valid callback's URL.
    pub(super) callback: Option<Url>,
}

impl From<Page> for Classified {
    fn from(page: Page) -> Self {
        Self { page, callback: None }
    }
}

impl ExpectedCallback {
    pub(super) fn new(port: u16, state: impl Into<String>) -> Self {
        Self { port, state: state.into(), is_received: AtomicBool::new(false) }
    }

    /// Classifies a request's head. Only the first `GET` for the redirect URI with the right `Host` and `state` is the
    /// callback; everything else changes nothing.
    pub(super) fn classify(&self, head: &[u8]) -> Classified {
        let Some(request) = Request::parse(head) else { return Page::BadRequest.into() };
        // Another name for this address may belong to a page that rebinds its DNS name to it.
        if request.host != Some(&format!("127.0.0.1:{}", self.port)) {
            return Page::WrongHost.into();
        }
        if request.method != "GET" {
            return Page::WrongMethod.into();
        }
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        if path != CALLBACK_PATH {
            return Page::NotFound.into();
        }
        let Ok(url) = Url::parse(&format!("http://127.0.0.1:{}{CALLBACK_PATH}?{query}", self.port)) else {
            return Page::BadRequest.into();
        };
        if !has_state(&url, &self.state) {
            return Page::WrongState.into();
        }
        if self.is_received.swap(true, Ordering::Relaxed) {
            return Page::AlreadyReceived.into();
        }
        let is_refusal = url.query_pairs().any(|(name, _)| name == "error");
        Classified { page: if is_refusal { Page::Refused } else { Page::Received }, callback: Some(url) }
    }
}

/// Returns `true` if a URL has exactly one `state`, and it is this one.
pub(super) fn has_state(url: &Url, state: &str) -> bool {
    let mut states = url.query_pairs().filter(|(name, _)| name == "state");
    states.next().is_some_and(|(_, value)| value == state) && states.next().is_none()
}

/// The request parts that matter.
struct Request<'a> {
    method: &'a str,
    target: &'a str,
    /// `None` if the header is missing or repeated.
    host: Option<&'a str>,
}

impl<'a> Request<'a> {
    fn parse(head: &'a [u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok().filter(|head| head.is_ascii())?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !target.starts_with('/') || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
            return None;
        }
        let mut hosts = lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
            .map(|(_, value)| value.trim());
        let host = hosts.next();
        Some(Self { method, target, host: host.filter(|_| hosts.next().is_none()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str, host: &str) -> Vec<u8> {
        format!("{line}\r\nHost: {host}\r\nUser-Agent: test\r\n\r\n").into_bytes()
    }

    fn classify(line: &str) -> Classified {
        ExpectedCallback::new(4711, "s-1").classify(&request(line, "127.0.0.1:4711"))
    }

    #[test]
    fn the_first_callback_with_the_right_state_counts_once() {
        let expected = ExpectedCallback::new(4711, "s-1");
        let head = request("GET /callback?code=c%20d&state=s-1&iss=https%3A%2F%2Fa HTTP/1.1", "127.0.0.1:4711");
        let first = expected.classify(&head);
        let url = "http://127.0.0.1:4711/callback?code=c%20d&state=s-1&iss=https%3A%2F%2Fa";
        assert_eq!((first.page, first.callback.as_ref().map(Url::as_str)), (Page::Received, Some(url)));
        assert_eq!(expected.classify(&head), Page::AlreadyReceived.into());
    }

    #[test]
    fn a_refusal_with_the_right_state_counts() {
        let refused = classify("GET /callback?error=access_denied&state=s-1 HTTP/1.1");
        assert!(refused.page == Page::Refused && refused.callback.is_some());
    }

    #[test]
    fn other_requests_change_nothing() {
        for (line, page) in [
            ("GET /callback?code=c&state=s-2 HTTP/1.1", Page::WrongState),
            ("GET /callback?code=c HTTP/1.1", Page::WrongState),
            ("GET /callback HTTP/1.1", Page::WrongState),
            ("GET /callback?state=s-1&state=s-1&code=c HTTP/1.1", Page::WrongState),
            ("GET /callback?state=s-2&state=s-1&code=c HTTP/1.1", Page::WrongState),
            ("GET /callback/?code=c&state=s-1 HTTP/1.1", Page::NotFound),
            ("GET /x/../callback?code=c&state=s-1 HTTP/1.1", Page::NotFound),
            ("GET /favicon.ico HTTP/1.1", Page::NotFound),
            ("POST /callback?code=c&state=s-1 HTTP/1.1", Page::WrongMethod),
            ("HEAD /callback?code=c&state=s-1 HTTP/1.1", Page::WrongMethod),
            ("GET http://127.0.0.1:4711/callback?state=s-1 HTTP/1.1", Page::BadRequest),
            ("GET /callback?state=s-1 HTTP/2", Page::BadRequest),
            ("GET  /callback?state=s-1 HTTP/1.1", Page::BadRequest),
            ("GET /callback?state=ſ-1 HTTP/1.1", Page::BadRequest),
            ("", Page::BadRequest),
        ] {
            assert_eq!(classify(line), page.into(), "{line}");
        }
    }

    #[test]
    fn a_request_for_another_host_is_refused() {
        let line = "GET /callback?code=c&state=s-1 HTTP/1.1";
        let expected = ExpectedCallback::new(4711, "s-1");
        for host in ["localhost:4711", "127.0.0.1", "127.0.0.1:80", "evil.example:4711", ""] {
            assert_eq!(expected.classify(&request(line, host)), Page::WrongHost.into(), "{host}");
        }
        let none = format!("{line}\r\n\r\n");
        let twice = format!("{line}\r\nHost: 127.0.0.1:4711\r\nHost: 127.0.0.1:4711\r\n\r\n");
        assert_eq!(expected.classify(none.as_bytes()), Page::WrongHost.into());
        assert_eq!(expected.classify(twice.as_bytes()), Page::WrongHost.into());
        assert!(expected.classify(&request(line, "127.0.0.1:4711")).callback.is_some());
    }
}
