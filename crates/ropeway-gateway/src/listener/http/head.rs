//! Request headers.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;

use crate::listener::origin::{Denied, HostRules};

/// The session id.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The protocol version.
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A modern request's method.
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// A modern request's tool, prompt or resource.
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The id of the last event that a client has received.
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The site that a request comes from, as reported by the browser
/// (<https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header>).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers that a web page may send.
const PAGE_HEADERS: &str = "content-type, accept, authorization, last-event-id, mcp-session-id, mcp-protocol-version, \
                            mcp-method, mcp-name";

/// Maximum length of the header names in a preflight request.
const MAX_ASKED_HEADERS: usize = 2048;

/// Returns a header's value; `None` if it is absent or not text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns `true` if a header occurs more than once.
pub(super) fn is_repeated(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

/// Returns a protocol header that occurs more than once. Proxies may decide by another of its values.
pub(super) fn repeated(headers: &HeaderMap) -> Option<&HeaderName> {
    if headers.len() == headers.keys_len() {
        return None;
    }
    let is_protocol = |name: &&HeaderName| name.as_str().starts_with("mcp-") || **name == LAST_EVENT;
    headers.keys().filter(is_protocol).find(|name| is_repeated(headers, name))
}

/// Returns `true` if another site sends the request without `Origin`, as in requests for images.
pub(super) fn is_foreign(headers: &HeaderMap) -> bool {
    matches!(text(headers, &FETCH_SITE), Some("cross-site" | "same-site")) && !headers.contains_key(ORIGIN)
}

/// Checks `Host`, an absolute URI's host, and `Origin`. A load balancer's probe may have any host, or none.
pub(super) fn check_host(head: &Parts, rules: &HostRules, is_probe: bool) -> Result<(), Denied> {
    if is_repeated(&head.headers, &HOST) {
        return Err(Denied::Host("several `Host` headers".to_owned()));
    }
    if is_repeated(&head.headers, &ORIGIN) {
        return Err(Denied::Origin("several `Origin` headers".to_owned()));
    }
    // An origin that is not text is not allowed either.
    let origin = head.headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or("not text"));
    if is_probe {
        return rules.check_origin(origin);
    }
    if let Some(authority) = head.uri.authority() {
        rules.check(Some(authority.as_str()), None)?;
    }
    rules.check(text(&head.headers, &HOST), origin)
}

/// Returns `true` if the body is declared as JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let essence = text(headers, &CONTENT_TYPE).and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Returns `true` if the client accepts a media type, such as `text/event-stream`.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let Some((kind, _)) = media_type.split_once('/') else { return false };
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let range = range.split(';').next().unwrap_or_default().trim();
        let of_kind = range.strip_suffix("/*").is_some_and(|range| range.eq_ignore_ascii_case(kind));
        range == "*/*" || of_kind || range.eq_ignore_ascii_case(media_type)
    })
}

/// Allows a web page to read the response. Its origin has been checked.
pub(super) fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert("access-control-allow-origin", origin);
    let exposed = HeaderValue::from_static("mcp-session-id, mcp-protocol-version, retry-after, www-authenticate");
    headers.insert("access-control-expose-headers", exposed);
    headers.append("vary", HeaderValue::from_static("origin"));
}

/// Allows a web page to send requests
/// ([preflight](https://fetch.spec.whatwg.org/#cors-preflight-fetch)).
pub(super) fn allow_requests(asked: &HeaderMap, headers: &mut HeaderMap) {
    // Pages send `Mcp-Param-*` headers with arbitrary names.
    let names = asked.get("access-control-request-headers").filter(|names| is_name_list(names)).cloned();
    let names = names.unwrap_or(HeaderValue::from_static(PAGE_HEADERS));
    headers.insert("access-control-allow-headers", names);
    headers.insert("access-control-allow-methods", HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert("access-control-max-age", HeaderValue::from_static("86400"));
}

fn is_name_list(names: &HeaderValue) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    names.len() <= MAX_ASKED_HEADERS && names.as_bytes().iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn media_ranges_are_accepted() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("*/*", true, true),
            ("application/*;q=0.5, text/*", true, true),
            ("application/json;charset=utf-8", true, false),
            ("TEXT/EVENT-STREAM", false, true),
            ("text/html", false, false),
            ("application/jsonx", false, false),
            ("", false, false),
        ] {
            let headers = headers(ACCEPT, accept);
            assert_eq!(accepts(&headers, "application/json"), json, "{accept}");
            assert_eq!(accepts(&headers, "text/event-stream"), events, "{accept}");
        }
        assert!(!accepts(&HeaderMap::new(), "application/json"));
    }

    #[test]
    fn only_json_is_json() {
        assert!(is_json(&headers(CONTENT_TYPE, "application/json")));
        assert!(is_json(&headers(CONTENT_TYPE, "Application/JSON; charset=utf-8")));
        assert!(!is_json(&headers(CONTENT_TYPE, "text/plain")));
        assert!(!is_json(&headers(CONTENT_TYPE, "application/json-seq")));
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn a_preflight_echoes_only_header_names() {
        let allowed = |asked: &'static str| {
            let asked = headers(HeaderName::from_static("access-control-request-headers"), asked);
            let mut answer = HeaderMap::new();
            allow_requests(&asked, &mut answer);
            answer["access-control-allow-headers"].to_str().unwrap().to_owned()
        };
        assert_eq!(allowed("content-type, mcp-param-path"), "content-type, mcp-param-path");
        assert_eq!(allowed("x\"; y"), PAGE_HEADERS);
    }
}
