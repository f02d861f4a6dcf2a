//! Web page requests that change a server: `{"server": NAME}`.

use hyper::body::Incoming;
use hyper::header::{HOST, ORIGIN};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::{Map, Value};

use super::body::{Body, read_body};
use super::{head, response};
use crate::client::principal::Principal;
use crate::shared::GatewayShared;

/// Maximum request size.
const MAX_BODY: usize = 4 << 10;

/// Returns the server that a page request names, or the response that refuses the request.
pub(super) async fn named_server(
    shared: &GatewayShared,
    principal: &Principal,
    head: &Parts,
    body: Incoming,
) -> Result<String, Response<Body>> {
    // Browsers send a preflight request before JSON to another origin, and only the page itself may change servers.
    if !head::is_json(&head.headers) {
        return Err(response::refuse(415, "Unsupported Media Type: Content-Type must be application/json"));
    }
    if !is_own_origin(&head.headers) {
        return Err(response::refuse(403, "Origin is not allowed"));
    }
    let body = read_body(shared, principal, body, MAX_BODY).await;
    let body = body.map_err(|error| response::bad_body(error, MAX_BODY))?;
    let request: Option<Map<String, Value>> = serde_json::from_slice(&body).ok();
    let server = request.and_then(|request| request.get("server")?.as_str().map(str::to_owned));
    server.ok_or_else(|| response::refuse(400, "the body must be `{\"server\": \"NAME\"}`"))
}

/// Returns `true` if the request does not come from another origin. Clients that are not browsers send no `Origin`.
fn is_own_origin(headers: &HeaderMap) -> bool {
    match (head::text(headers, &ORIGIN), head::text(headers, &HOST)) {
        (None, _) => !headers.contains_key(ORIGIN),
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host))
        }
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(origin: Option<&'static str>) -> HeaderMap {
        let host = (HOST, HeaderValue::from_static("localhost:1"));
        let origin = origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin)));
        std::iter::once(host).chain(origin).collect()
    }

    #[test]
    fn other_origins_cannot_change_a_server() {
        let is_own = |origin| is_own_origin(&headers(Some(origin)));
        assert!(is_own("http://localhost:1") && is_own("https://LOCALHOST:1"));
        for origin in ["http://localhost:2", "http://localhost", "https://app.example", "null", ""] {
            assert!(!is_own(origin), "{origin}");
        }
        assert!(is_own_origin(&headers(None)));
    }
}
