//! The HTTP listener's paths.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use super::api::ApiResource;
use super::sign_in::CALLBACK_PATH;
use crate::catalog::profile::Selector;
use crate::client::auth::METADATA_PATH;
use crate::page::{self, Asset};

/// Maximum length of a profile or server name in a path.
const MAX_NAME: usize = 256;

/// A request's handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Streamable HTTP: `/mcp` and `/mcp/NAME`.
    Mcp(Selector),
    /// The legacy HTTP+SSE event stream: `/sse` and `/sse/NAME`.
    Sse(Selector),
    /// Legacy HTTP+SSE messages.
    Messages,
    Health,
    Ready,
    /// Metrics in the Prometheus text format.
    Metrics,
    /// The counts for `ropeway top`.
    Stats,
    /// A web page file: `/` and `/ui/FILE`.
    Page(&'static Asset),
    /// The web page's API: `/api/NAME`.
    Api(ApiResource),
    /// Starts a sign-in to a server, or signs out.
    SignIn,
    /// Restarts a server.
    Restart,
    /// The path that a browser returns to after a sign-in.
    SignInCallback,
    /// The gateway's metadata as a protected resource.
    ResourceMetadata,
    /// A browser's preflight request.
    Preflight,
    NotFound,
    /// The path does not support the method. Contains the `Allow` value.
    Method(&'static str),
}

impl Route {
    /// Returns `true` for requests about the gateway itself, such as the web page's.
    pub(super) fn is_page_api(&self) -> bool {
        matches!(self, Self::Metrics | Self::Stats | Self::Api(_) | Self::SignIn | Self::Restart)
    }
}

/// Finds a request's handler. `has_page` states whether the web page is served.
pub(super) fn route(method: &Method, path: &str, has_page: bool) -> Route {
    let of_page = if has_page { page_endpoint(path) } else { None };
    let (route, allowed) = match of_page.or_else(|| endpoint(path)) {
        Some(endpoint) => endpoint,
        None => return Route::NotFound,
    };
    if *method == Method::OPTIONS {
        return Route::Preflight;
    }
    let is_allowed = allowed.split(", ").any(|name| name == method.as_str());
    if is_allowed { route } else { Route::Method(allowed) }
}

/// Returns a path's handler, and its methods.
fn endpoint(path: &str) -> Option<(Route, &'static str)> {
    Some(match path {
        "/messages" => (Route::Messages, "POST"),
        "/health" => (Route::Health, "GET, HEAD"),
        "/ready" => (Route::Ready, "GET, HEAD"),
        "/metrics" => (Route::Metrics, "GET, HEAD"),
        "/api/stats" => (Route::Stats, "GET"),
        _ if below(path, METADATA_PATH).is_some() => (Route::ResourceMetadata, "GET, HEAD"),
        _ => match (below(path, "/mcp"), below(path, "/sse")) {
            (Some(name), _) => (Route::Mcp(selector(name)?), "GET, POST, DELETE"),
            (_, Some(name)) => (Route::Sse(selector(name)?), "GET"),
            _ => return None,
        },
    })
}

/// Returns the handler for a web page path, and its methods.
fn page_endpoint(path: &str) -> Option<(Route, &'static str)> {
    match path {
        "/api/sign-in" => return Some((Route::SignIn, "POST, DELETE")),
        "/api/restart" => return Some((Route::Restart, "POST")),
        CALLBACK_PATH => return Some((Route::SignInCallback, "GET")),
        _ => {}
    }
    let asset = page::asset(path).map(|asset| (Route::Page(asset), "GET, HEAD"));
    asset.or_else(|| Some((Route::Api(ApiResource::parse(path.strip_prefix("/api/")?)?), "GET")))
}

/// Returns the path below a folder, without the slash.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// Returns the profile or server that a path selects; `None` if the path cannot be one.
fn selector(name: &str) -> Option<Selector> {
    if name.is_empty() {
        return Some(Selector::All);
    }
    let name = decoded_segment(name)?;
    let is_name = name.len() <= MAX_NAME && !name.contains(['/', '\\', '\0']) && name != "." && name != "..";
    is_name.then_some(Selector::Named(name))
}

/// Decodes a path segment; `None` if it is malformed.
fn decoded_segment(segment: &str) -> Option<String> {
    let is_digits =
        |text: &str| text.as_bytes().first_chunk::<2>().is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !segment.split('%').skip(1).all(is_digits) {
        return None;
    }
    percent_decode_str(segment).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Selector {
        Selector::Named(name.to_owned())
    }

    #[test]
    fn paths_lead_to_their_handlers() {
        for (method, path, expected) in [
            (Method::POST, "/mcp", Route::Mcp(Selector::All)),
            (Method::GET, "/mcp/", Route::Mcp(Selector::All)),
            (Method::DELETE, "/mcp/coding", Route::Mcp(named("coding"))),
            (Method::POST, "/mcp/a%20b", Route::Mcp(named("a b"))),
            (Method::GET, "/sse", Route::Sse(Selector::All)),
            (Method::GET, "/sse/web", Route::Sse(named("web"))),
            (Method::POST, "/messages", Route::Messages),
            (Method::GET, "/health", Route::Health),
            (Method::HEAD, "/ready", Route::Ready),
            (Method::GET, "/metrics", Route::Metrics),
            (Method::GET, "/api/stats", Route::Stats),
            (Method::POST, "/api/sign-in", Route::SignIn),
            (Method::DELETE, "/api/sign-in", Route::SignIn),
            (Method::POST, "/api/restart", Route::Restart),
            (Method::GET, "/oauth/callback", Route::SignInCallback),
            (Method::OPTIONS, "/mcp/coding", Route::Preflight),
        ] {
            assert_eq!(route(&method, path, true), expected, "{method} {path}");
        }
    }

    #[test]
    fn unknown_and_malformed_paths_are_not_found() {
        for path in [
            "",
            "/ui",
            "/ui/",
            "/ui/../app.js",
            "/index.html",
            "/api",
            "/api/",
            "/api/unknown",
            "/oauth",
            "/oauth/callback/",
            "/mcpx",
            "/mcp/a/b",
            "/mcp/..",
            "/mcp/%2e%2e",
            "/mcp/..%2f..",
            "/mcp/%",
            "/mcp/%zz",
            "/mcp/%ff",
            "/mcp/%00",
            "/health/",
            "/MCP",
            "//mcp",
        ] {
            assert_eq!(route(&Method::POST, path, true), Route::NotFound, "{path}");
        }
        let long = format!("/mcp/{}", "x".repeat(MAX_NAME + 1));
        assert_eq!(route(&Method::POST, &long, true), Route::NotFound);
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        assert_eq!(route(&Method::PUT, "/mcp", true), Route::Method("GET, POST, DELETE"));
        assert_eq!(route(&Method::POST, "/sse", true), Route::Method("GET"));
        assert_eq!(route(&Method::GET, "/messages", true), Route::Method("POST"));
        assert_eq!(route(&Method::POST, "/health", true), Route::Method("GET, HEAD"));
        assert_eq!(route(&Method::POST, "/", true), Route::Method("GET, HEAD"));
        assert_eq!(route(&Method::POST, "/api/status", true), Route::Method("GET"));
    }

    #[test]
    fn the_page_and_its_api_can_be_switched_off() {
        assert_eq!(route(&Method::POST, "/api/sign-in", false), Route::NotFound);
        assert_eq!(route(&Method::POST, "/api/restart", false), Route::NotFound);
        assert_eq!(route(&Method::GET, "/oauth/callback", false), Route::NotFound);
        for path in ["/", "/ui/app.js", "/ui/app.css", "/api/status", "/api/events", "/api/calls", "/api/names"] {
            assert!(matches!(route(&Method::GET, path, true), Route::Page(_) | Route::Api(_)), "{path}");
            assert_eq!(route(&Method::GET, path, false), Route::NotFound, "{path}");
            assert_eq!(route(&Method::POST, path, false), Route::NotFound, "{path}");
            assert_eq!(route(&Method::OPTIONS, path, false), Route::NotFound, "{path}");
        }
    }
}
