//! An outgoing request and its encoding.

use std::sync::Arc;

use super::raw_caller::RawCaller;
use super::timeouts::RequestTimeouts;
use super::trace::CallTrace;
use crate::protocol::meta;
use ropeway_core::tool::CallContext;

/// A request that has no id yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The parameters: a JSON object's text without `_meta`.
    pub(crate) params: &'a [u8],
    pub(crate) cx: &'a CallContext,
    pub(crate) timeouts: RequestTimeouts,
    /// The era's `_meta` entries: a JSON object's text without its braces.
    pub(crate) meta: &'a str,
    /// The `_meta` entries from a raw request's sender, in the same form.
    pub(crate) client_meta: &'a str,
    /// The client's own entries for a modern server, in the same form. They replace the session's entries, except for the
    /// protocol version.
    pub(crate) modern_meta: Option<&'a str>,
    /// The `Mcp-Name` header's value.
    pub(crate) name: Option<&'a str>,
    /// Additional HTTP headers.
    pub(crate) headers: &'a [(String, String)],
    /// Whether to send `notifications/cancelled` when the caller gives up.
    pub(crate) cancellable: bool,
    /// Whether the request may be sent twice.
    pub(crate) idempotent: bool,
    /// Whether the request stays open by design.
    pub(crate) standing: bool,
    pub(crate) trace: Option<&'a CallTrace>,
    /// A raw request's sender.
    pub(crate) caller: Option<&'a Arc<dyn RawCaller>>,
}

impl<'a> Request<'a> {
    /// Creates a request that can be cancelled and must not be sent twice.
    pub(crate) fn new(method: &'a str, params: &'a [u8], cx: &'a CallContext, timeouts: RequestTimeouts) -> Self {
        Self {
            method,
            params,
            cx,
            timeouts,
            meta: "",
            client_meta: "",
            modern_meta: None,
            name: None,
            headers: &[],
            cancellable: true,
            idempotent: false,
            standing: false,
            trace: None,
            caller: None,
        }
    }
}

impl Request<'_> {
    /// Encodes the request as one JSON line.
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let meta = self.client_meta.len() + self.meta.len() + self.modern_meta.map_or(0, str::len);
        let mut line = Vec::with_capacity(128 + self.params.len() + meta);
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
        for (key, value) in self.cx.meta() {
            // Callers cannot override the protocol's own keys, and no key may appear twice.
            if !self.is_reserved(key) {
                let key = serde_json::Value::from(key.as_str());
                line.extend_from_slice(format!(",{key}:{value}").as_bytes());
            }
        }
        if let Some(parent) = self.trace.and_then(|trace| trace.parent)
            && !self.client_meta.contains(r#""traceparent""#)
        {
            line.extend_from_slice(format!(r#","traceparent":"{parent}""#).as_bytes());
        }
        for entries in [self.client_meta, self.meta, self.modern_meta.unwrap_or_default()] {
            if !entries.is_empty() {
                line.push(b',');
                line.extend_from_slice(entries.as_bytes());
            }
        }
        line.extend_from_slice(b"}}}");
        line
    }

    fn is_reserved(&self, key: &str) -> bool {
        matches!(key, "progressToken" | meta::PROTOCOL_VERSION | meta::CLIENT_INFO | meta::CLIENT_CAPABILITIES)
            || (key == meta::LOG_LEVEL && self.meta.contains(meta::LOG_LEVEL))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn request<'a>(method: &'a str, params: &'a [u8], cx: &'a CallContext) -> Request<'a> {
        Request::new(method, params, cx, RequestTimeouts::within(Duration::from_secs(1)))
    }

    fn encoded(request: &Request<'_>) -> Value {
        serde_json::from_slice(&request.encode(7)).expect("JSON without a doubled key that matters")
    }

    #[test]
    fn meta_is_added_to_any_parameters() {
        for params in ["{}", "{ }", r#"{"name":"a"}"#, "not an object"] {
            let cx = CallContext::default();
            let sent = encoded(&Request { meta: r#""a/b":{"c":1}"#, ..request("tools/call", params.as_bytes(), &cx) });
            assert_eq!(sent["params"]["_meta"], json!({"progressToken": 7, "a/b": {"c": 1}}), "{params}");
        }
    }

    #[test]
    fn callers_can_add_to_meta_but_not_override_reserved_keys() {
        let cx = CallContext::default().with_meta("traceparent", json!("00-1")).with_meta("progressToken", json!("x"));
        let cx = cx.with_meta(meta::CLIENT_INFO, json!("theirs")).with_meta("name", json!("n"));
        let own = format!(r#""{}":{{"name":"own"}}"#, meta::CLIENT_INFO);
        let request = Request { meta: &own, ..request("a\"b", b"{}", &cx) };
        let expected = json!({"jsonrpc": "2.0", "id": 7, "method": "a\"b",
            "params": {"_meta": {"progressToken": 7, "traceparent": "00-1", "name": "n", meta::CLIENT_INFO: {"name": "own"}}}});
        assert_eq!(encoded(&request), expected);
        let text = String::from_utf8(request.encode(7)).expect("UTF-8");
        assert_eq!(text.matches(meta::CLIENT_INFO).count(), 1);
    }
}
