//! The web page's API: status, events and recent calls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use hyper::Response;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde::Serialize;
use serde_json::json;

use super::body::{Body, Events};
use super::response;
use crate::catalog::profile::DEFAULT_PROFILE;
use crate::catalog::uris::percent_decoded;
use crate::client::principal::Principal;
use crate::observe::event_text::event_text;
use crate::page::{recent_calls, status, tool_names};
use crate::shared::GatewayShared;
use ropeway_core::event::{Event, EventStream};
use ropeway_core::tool::CancelToken;

/// The response to a principal that is not an operator.
const NOT_OPERATOR: &str = "Forbidden: only operators may use this path; create a key with `ropeway key new NAME --operator`, \
                            or change one with `ropeway key set NAME --operator`";

/// An API resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiResource {
    Status,
    Events,
    Calls,
    Names,
}

impl ApiResource {
    /// Finds a resource by its name in the path.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "status" => Self::Status,
            "events" => Self::Events,
            "calls" => Self::Calls,
            "names" => Self::Names,
            _ => return None,
        })
    }
}

/// Responds with a resource.
///
/// Events are about all servers and clients, so only operators get them.
pub(super) async fn get(
    shared: &Arc<GatewayShared>,
    resource: ApiResource,
    query: Option<&str>,
    principal: &Principal,
) -> Response<Body> {
    let mut response = match resource {
        ApiResource::Status => document(&status(shared, principal).await),
        ApiResource::Calls => document(&json!({ "calls": recent_calls(shared, principal) })),
        ApiResource::Names => match tool_names(shared, principal, &profile_of(query)) {
            Some(tools) => document(&json!({ "tools": tools })),
            None => response::refuse(404, "unknown profile"),
        },
        ApiResource::Events if !principal.is_operator() => not_operator(),
        ApiResource::Events => events(shared, principal),
    };
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns the profile that a query names.
fn profile_of(query: Option<&str>) -> String {
    let mut pairs = query.unwrap_or_default().split('&');
    let named = pairs.find_map(|pair| pair.strip_prefix("profile="));
    named.map_or_else(|| DEFAULT_PROFILE.to_owned(), percent_decoded)
}

/// Refuses a request from a principal that is not an operator.
pub(super) fn not_operator() -> Response<Body> {
    response::refused_by("operators", response::refuse(403, NOT_OPERATOR))
}

fn document(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => response::document(200, text),
        Err(error) => response::refuse(500, error.to_string()),
    }
}

/// Responds with all servers' events, from now on, until the gateway stops or the principal loses access.
fn events(shared: &GatewayShared, principal: &Principal) -> Response<Body> {
    let source = EventSource {
        events: shared.bridge.events(),
        draining: shared.draining.clone(),
        revoked: principal.revoked(),
        principal: principal.clone(),
    };
    let hello = Bytes::from_static(b"retry: 1000\n: connected\n\n");
    response::events(PageEvents { hello: Some(hello), stream: Box::pin(unfold(source, EventSource::next)) })
}

/// The event source for one page.
struct EventSource {
    events: EventStream,
    draining: CancelToken,
    revoked: CancelToken,
    principal: Principal,
}

impl EventSource {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let event = tokio::select! {
            biased;
            () = self.draining.cancelled() => return None,
            () = self.revoked.cancelled() => return None,
            event = self.events.next() => event?,
        };
        // The rights may have changed since the last event.
        if self.principal.is_operator() { Some((encode(&event), self)) } else { None }
    }
}

/// Encodes an event with its time.
fn encode(event: &Event) -> Bytes {
    format!("data: {}\n\n", event_text(event)).into()
}

/// One page's events.
struct PageEvents {
    /// Makes the browser process the response head before the first event.
    hello: Option<Bytes>,
    stream: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
}

impl Events for PageEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.hello.take() {
            Some(hello) => Poll::Ready(Some(hello)),
            None => self.stream.as_mut().poll_next(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn decoded(event: &Event) -> Value {
        let text = encode(event);
        let text = std::str::from_utf8(&text).expect("UTF-8");
        let data = text.strip_prefix("data: ").and_then(|text| text.strip_suffix("\n\n")).expect("an event");
        assert!(!data.contains('\n'), "{data}");
        serde_json::from_str(data).expect("JSON")
    }

    #[test]
    fn an_event_is_one_line_with_its_time() {
        let event = Event::Warning { server: Some("a".into()), message: "one\ntwo\n\ndata: three".into() };
        let found = decoded(&event);
        assert_eq!((&found["event"], &found["server"]), (&json!("warning"), &json!("a")));
        assert_eq!(found["message"], "one\ntwo\n\ndata: three");
        assert!(found["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{found}");
    }

    #[test]
    fn a_huge_event_arrives_without_its_details() {
        let event =
            Event::Warning { server: Some("a".into()), message: "x".repeat(crate::observe::event_text::MAX_EVENT) };
        let mut found = decoded(&event);
        found.as_object_mut().expect("an object").remove("time");
        assert_eq!(found, json!({ "event": "warning", "server": "a", "truncated": true }));
    }
}
