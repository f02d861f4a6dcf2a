//! Links: one live connection to a server, over any transport.

mod activity;
mod cancel;
mod errands;
mod groups;
pub(crate) mod http;
pub(crate) mod lines;
mod loss;
pub(crate) mod orphans;
mod outgoing;
mod reason;
pub(crate) mod sse;
pub(crate) mod stdio;
mod web;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::activity::LONGEST_PAUSE;
use self::outgoing::Messenger as _;
use super::answer::Answer;
use super::fault::{ConnectErrorKind, Fault};
use super::inbox::Clocks;
use super::trace::Trace;
use crate::protocol::meta;
use crate::tool::CallContext;

/// A request, before it has a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The parameters as the text of a JSON object, without `_meta`.
    pub(crate) params: &'a [u8],
    /// Entries of `_meta` that the era asks for, as JSON text without the braces.
    pub(crate) meta: &'a str,
    /// What the request is about, for the `Mcp-Name` header.
    pub(crate) name: Option<&'a str>,
    /// Further headers.
    pub(crate) headers: &'a [(String, String)],
    /// The server is told when the caller gives up.
    pub(crate) cancellable: bool,
    /// Sending it twice does no more than sending it once.
    pub(crate) idempotent: bool,
    /// It stays open by design.
    pub(crate) standing: bool,
    /// The trace that it belongs to.
    pub(crate) trace: Option<&'a Trace>,
}

impl<'a> Request<'a> {
    /// A request that can be cancelled and must not be sent twice.
    pub(crate) fn new(method: &'a str, params: &'a [u8]) -> Self {
        Self {
            method,
            params,
            meta: "",
            name: None,
            headers: &[],
            cancellable: true,
            idempotent: false,
            standing: false,
            trace: None,
        }
    }
}

impl Request<'_> {
    /// The request as one line of JSON.
    pub(crate) fn encode(&self, id: u64, cx: &CallContext) -> Vec<u8> {
        let mut line = Vec::with_capacity(128 + self.params.len() + self.meta.len());
        line.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        // Writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut line, &id);
        line.extend_from_slice(br#","method":"#);
        let _ = serde_json::to_writer(&mut line, self.method);
        line.extend_from_slice(br#","params":"#);
        let params = self.params.trim_ascii().strip_suffix(b"}").unwrap_or(b"{").trim_ascii_end();
        line.extend_from_slice(params);
        if params.len() > 1 {
            line.push(b',');
        }
        line.extend_from_slice(br#""_meta":{"progressToken":"#);
        let _ = serde_json::to_writer(&mut line, &id);
        for (key, value) in cx.meta() {
            // What the protocol itself says here is not the caller's to say, and no key may stand twice.
            if !self.is_own(key) {
                let key = serde_json::Value::from(key.as_str());
                line.extend_from_slice(format!(",{key}:{value}").as_bytes());
            }
        }
        if let Some(parent) = self.trace.and_then(|trace| trace.parent) {
            line.extend_from_slice(format!(r#","traceparent":"{parent}""#).as_bytes());
        }
        if !self.meta.is_empty() {
            line.push(b',');
            line.extend_from_slice(self.meta.as_bytes());
        }
        line.extend_from_slice(b"}}}");
        line
    }

    fn is_own(&self, key: &str) -> bool {
        matches!(key, "progressToken" | meta::PROTOCOL_VERSION | meta::CLIENT_INFO | meta::CLIENT_CAPABILITIES)
            || (key == meta::LOG_LEVEL && self.meta.contains(meta::LOG_LEVEL))
    }
}

/// One live connection.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// JSON lines: a child process or a pipe inside this process.
    Lines(Arc<lines::Lines>),
    /// Streamable HTTP.
    Http(Arc<http::Http>),
    /// Legacy HTTP+SSE.
    Sse(Arc<sse::Sse>),
}

impl Link {
    /// Sends a request and waits for its result.
    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Answer, Fault> {
        match self {
            Self::Lines(link) => link.request(request, cx, clocks).await,
            // Boxed, so that a request over a pipe is not as large as one over HTTP.
            Self::Http(link) => Box::pin(link.request(request, cx, clocks)).await,
            Self::Sse(link) => Box::pin(link.request(request, cx, clocks)).await,
        }
    }

    /// Sends a message that wants no answer; waits until it is on its way.
    pub(crate) async fn notify(&self, message: Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Lines(link) => link.send(message, true),
            Self::Http(link) => link.notify(message).await,
            Self::Sse(link) => link.notify(message).await,
        }
    }

    /// Waits until the link is no more.
    pub(crate) async fn lost(&self) -> Arc<ConnectErrorKind> {
        match self {
            Self::Lines(link) => link.lost().await,
            Self::Http(link) => link.lost().await,
            Self::Sse(link) => link.lost().await,
        }
    }

    /// Ends the link; its process or session has `patience` to end by itself.
    pub(crate) async fn close(&self, patience: Duration) {
        match self {
            Self::Lines(link) => link.close(patience).await,
            Self::Http(link) => link.close(patience).await,
            Self::Sse(link) => link.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn encoded(request: &Request<'_>, cx: &CallContext) -> Value {
        serde_json::from_slice(&request.encode(7, cx)).expect("JSON without a doubled key that matters")
    }

    #[test]
    fn a_request_carries_its_meta_whatever_its_parameters_are() {
        for params in ["{}", "{ }", r#"{"name":"a"}"#, "not an object"] {
            let request = Request { meta: r#""a/b":{"c":1}"#, ..Request::new("tools/call", params.as_bytes()) };
            let sent = encoded(&request, &CallContext::default());
            assert_eq!(sent["params"]["_meta"], json!({"progressToken": 7, "a/b": {"c": 1}}), "{params}");
        }
    }

    #[test]
    fn what_a_caller_puts_into_meta_goes_along_but_never_over_what_is_ours() {
        let cx = CallContext::default().with_meta("traceparent", json!("00-1")).with_meta("progressToken", json!("x"));
        let cx = cx.with_meta(meta::CLIENT_INFO, json!("theirs")).with_meta("name", json!("n"));
        let ours = format!(r#""{}":{{"name":"ours"}}"#, meta::CLIENT_INFO);
        let request = Request { meta: &ours, ..Request::new("a\"b", b"{}") };
        let expected = json!({"jsonrpc": "2.0", "id": 7, "method": "a\"b",
            "params": {"_meta": {"progressToken": 7, "traceparent": "00-1", "name": "n", meta::CLIENT_INFO: {"name": "ours"}}}});
        assert_eq!(encoded(&request, &cx), expected);
        let text = String::from_utf8(request.encode(7, &cx)).expect("UTF-8");
        assert_eq!(text.matches(meta::CLIENT_INFO).count(), 1);
    }
}
