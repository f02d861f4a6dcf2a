//! A request's trace context: from the client's `_meta` or HTTP headers, to `_meta` for the server.
//!
//! See [W3C Trace Context](https://www.w3.org/TR/trace-context/) and
//! [OpenTelemetry's MCP conventions](https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/#context-propagation).

use ropeway_core::tool::TraceParent;
use ropeway_mcp::protocol::ClientParams;

/// The `_meta` keys, and the HTTP header names.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Maximum `tracestate` length ([section 3.3.1.5](https://www.w3.org/TR/trace-context/#tracestate-limits)).
const MAX_STATE: usize = 512;

/// The trace context that a client has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IncomingTrace {
    /// The client's span.
    pub(crate) parent: Option<TraceParent>,
    /// The `_meta` entries for the server, if the context comes from headers: a JSON object's text without its braces.
    added: String,
    /// The `tracestate` header, in the same form.
    state: String,
}

impl IncomingTrace {
    /// Reads a request's context. `_meta` takes precedence over the headers; a malformed context counts as absent.
    pub(crate) fn read(params: &ClientParams<'_>, header: impl Fn(&str) -> Option<String>) -> Self {
        let member = |key: &str| params.meta.others.iter().find(|(own, _)| own == key).map(|(_, value)| *value);
        if let Some(value) = member(TRACEPARENT) {
            let parent = serde_json::from_str::<&str>(value.get()).ok().and_then(|text| text.parse().ok());
            return Self { parent, ..Self::default() };
        }
        let Some(parent) = header(TRACEPARENT).and_then(|text| text.parse::<TraceParent>().ok()) else {
            return Self::default();
        };
        let state = header(TRACESTATE).filter(|state| is_state(state) && member(TRACESTATE).is_none());
        let state =
            state.map(|state| format!(r#""{TRACESTATE}":{}"#, serde_json::Value::from(state))).unwrap_or_default();
        let added = format!(r#""{TRACEPARENT}":"{parent}""#);
        Self { parent: Some(parent), added, state }
    }

    /// Returns how the context is forwarded. `is_replaced` is `true` if the gateway creates its own spans.
    pub(crate) fn forwarding(self, is_replaced: bool) -> TraceForwarding {
        let parts = [if is_replaced { String::new() } else { self.added }, self.state];
        let added: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        TraceForwarding { is_replaced, added: added.join(",") }
    }
}

/// Returns `true` for printable ASCII with a permitted length.
fn is_state(state: &str) -> bool {
    !state.is_empty() && state.len() <= MAX_STATE && state.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

/// How a client's trace context is forwarded to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceForwarding {
    /// Whether the server receives a gateway span in place of the client's.
    is_replaced: bool,
    /// `_meta` entries from headers: a JSON object's text without its braces.
    added: String,
}

impl TraceForwarding {
    /// Returns `true` if an entry in the client's `_meta` is not forwarded.
    pub(crate) fn omits(&self, key: &str) -> bool {
        self.is_replaced && key == TRACEPARENT
    }

    /// Returns the `_meta` entries from headers: a JSON object's text without its braces.
    pub(crate) fn added(&self) -> &str {
        &self.added
    }
}

/// Adds a `traceparent` to `_meta` entries.
pub(crate) fn with_traceparent(meta: &str, parent: TraceParent) -> String {
    let comma = if meta.is_empty() { "" } else { "," };
    format!(r#"{meta}{comma}"{TRACEPARENT}":"{parent}""#)
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    const META: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const HEADER: &str = "00-11111111111111111111111111111111-2222222222222222-00";

    fn read(meta: &str, headers: &[(&str, &str)]) -> IncomingTrace {
        let params: &RawValue = serde_json::from_str(meta).expect("JSON");
        let params = ClientParams::read(Some(params), None).expect("params");
        IncomingTrace::read(&params, |name| {
            headers.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn meta_takes_precedence_over_headers() {
        let meta = format!(r#"{{"_meta":{{"traceparent":"{META}"}}}}"#);
        let trace = read(&meta, &[(TRACEPARENT, HEADER), (TRACESTATE, "a=b")]);
        assert_eq!(trace.parent, META.parse().ok());
        assert_eq!(trace.clone().forwarding(false), TraceForwarding::default());
        assert!(trace.forwarding(true).omits(TRACEPARENT));
    }

    #[test]
    fn headers_become_entries_of_meta() {
        let trace = read("{}", &[(TRACEPARENT, HEADER), (TRACESTATE, "a=b")]);
        assert_eq!(trace.parent, HEADER.parse().ok());
        let expected = format!(r#""traceparent":"{HEADER}","tracestate":"a=b""#);
        assert_eq!(trace.clone().forwarding(false).added(), expected);
        assert_eq!(trace.forwarding(true).added(), r#""tracestate":"a=b""#);
    }

    #[test]
    fn a_malformed_context_counts_as_absent() {
        assert_eq!(read(r#"{"_meta":{"traceparent":"00-1"}}"#, &[(TRACEPARENT, HEADER)]).parent, None);
        assert_eq!(read(r#"{"_meta":{"traceparent":7}}"#, &[]).parent, None);
        assert_eq!(read("{}", &[(TRACEPARENT, "nonsense"), (TRACESTATE, "a=b")]), IncomingTrace::default());
        let trace = read("{}", &[(TRACEPARENT, HEADER), (TRACESTATE, "a=\u{e9}\n")]);
        assert!(!trace.forwarding(false).added().contains(TRACESTATE));
    }

    #[test]
    fn a_traceparent_is_added_to_other_entries() {
        let parent: TraceParent = META.parse().expect("a traceparent");
        assert_eq!(with_traceparent("", parent), format!(r#""traceparent":"{META}""#));
        assert_eq!(with_traceparent(r#""a":1"#, parent), format!(r#""a":1,"traceparent":"{META}""#));
    }
}
