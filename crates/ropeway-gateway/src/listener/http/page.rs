//! The web page's files over HTTP.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, Response};

use super::body::Body;
use super::response;
use crate::page::Asset;

/// The page loads its own files only, runs no inline script, and is not shown inside other pages. Images and sounds come from
/// server results. Trusted types make browsers refuse HTML that a script assembles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; media-src data: blob:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Responds with a file. The browser revalidates it before each use.
pub(super) fn get(asset: &'static Asset, asked: &HeaderMap) -> Response<Body> {
    let known = asked.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.etag);
    let mut response = if is_known { response::empty(304) } else { response::file(asset.bytes.clone()) };
    let headers = response.headers_mut();
    if !is_known {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    }
    if let Ok(tag) = HeaderValue::from_str(&asset.etag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("content-security-policy", HeaderValue::from_static(POLICY));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("x-frame-options", HeaderValue::from_static("DENY"));
    secure(headers);
    response
}

/// Adds the headers that keep a response from being used by other pages.
pub(super) fn secure(headers: &mut HeaderMap) {
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}
