//! The record for one client request, written when the request ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::method::Method;
use ropeway_core::event::timestamp;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{Alias, CallError, Digest, TraceParent};
use ropeway_mcp::ServerInfo;
use ropeway_mcp::protocol::{Era, code};

/// Maximum bytes of a name, version or target in a record.
const MAX_TEXT: usize = 512;

/// A client's description. All its records share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientLabel {
    pub(crate) name: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) era: Era,
    pub(crate) protocol_version: Box<str>,
    /// Identifies the session. Empty for clients without a session.
    pub(crate) session: Box<str>,
}

impl ClientLabel {
    /// Reads the name and version from `clientInfo`. Malformed ones are empty.
    pub(crate) fn read(info: &str, era: Era, protocol_version: &str, session: &str) -> Self {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Info {
            name: String,
            version: String,
        }
        let info: Info = serde_json::from_str(info).unwrap_or_default();
        Self {
            name: bounded(&info.name).into(),
            version: bounded(&info.version).into(),
            era,
            protocol_version: bounded(protocol_version).into(),
            session: session.into(),
        }
    }
}

/// Truncates client or server text, which may be arbitrarily long.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallOutcome {
    /// The client got a result.
    Ok,
    /// The client got a result with `isError`.
    ToolError,
    /// The client got an error.
    Error,
    /// Client input was requested. The client answers with a retry.
    InputRequired,
    /// The client cancelled the request, or disconnected.
    Cancelled,
}

impl CallOutcome {
    /// Returns the name in audit lines.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::InputRequired => "input_required",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A failure's kind, as a metrics label. Server codes that the protocol does not define are `_OTHER`, so that the label values
/// are bounded (<https://opentelemetry.io/docs/specs/semconv/registry/attributes/error/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ErrorType(&'static str);

impl ErrorType {
    /// The tool reported an error.
    pub(crate) const TOOL: Self = Self("tool_error");
    /// The client cancelled the request, or disconnected.
    pub(crate) const CANCELLED: Self = Self("cancelled");
    /// All other failures.
    pub(crate) const OTHER: Self = Self("_OTHER");

    /// Returns a JSON-RPC error code's type.
    pub(crate) fn of_code(code: i64) -> Self {
        Self(match code {
            code::PARSE => "-32700",
            code::INVALID_REQUEST => "-32600",
            code::METHOD_NOT_FOUND => "-32601",
            code::INVALID_PARAMS => "-32602",
            code::INTERNAL => "-32603",
            -32000 => "-32000",
            code::TIMEOUT => "-32001",
            code::RESOURCE_NOT_FOUND => "-32002",
            code::HEADER_MISMATCH => "-32020",
            code::MISSING_CAPABILITY => "-32021",
            code::UNSUPPORTED_VERSION => "-32022",
            _ => return Self::OTHER,
        })
    }

    /// Returns the type for a call that the server has not answered.
    pub(crate) fn of_failure(error: &CallError) -> Self {
        match error {
            CallError::Timeout { .. } => Self("timeout"),
            CallError::NotConnected { .. } | CallError::Unavailable { .. } => Self("unavailable"),
            CallError::NeedsAuth { .. } => Self("needs_auth"),
            CallError::Protocol { .. } => Self("protocol"),
            CallError::TooLarge { .. } => Self("too_large"),
            CallError::Stopped { .. } => Self("stopped"),
            _ => Self::OTHER,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

/// A request's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceRecord {
    /// The request's trace and span, or the client's span if the gateway creates none.
    pub(crate) context: TraceParent,
    /// The client's span.
    pub(crate) parent: Option<TraceParent>,
    /// Whether the gateway has created its own span.
    pub(crate) is_own: bool,
}

/// A request to a server within a client's request.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSpan {
    /// The span for the client's request.
    pub(crate) parent: TraceParent,
    pub(crate) context: TraceParent,
    pub(crate) server: Alias,
    /// Time between the start of the client's request and the start of this one.
    pub(crate) after: Duration,
    pub(crate) duration: Duration,
    pub(crate) error: Option<ErrorType>,
    /// `pipe`, `tcp` or `unix`.
    pub(crate) transport: &'static str,
    /// The server, if it has answered.
    pub(crate) info: Option<Arc<ServerInfo>>,
}

/// One client request.
///
/// Its JSON is an audit log line, without the arguments. Client and server texts are bounded and redacted.
#[derive(Clone, Debug)]
pub(crate) struct CallRecord {
    pub(crate) time: SystemTime,
    /// Unique across all gateways.
    pub(crate) call_id: u64,
    pub(crate) trace: Option<TraceRecord>,
    /// The identity that the client has proven. Empty without authentication.
    pub(crate) principal: Arc<str>,
    /// The id of the key that the client has used.
    pub(crate) key_id: Option<Arc<str>>,
    /// The client, unless the request was refused before it was known.
    pub(crate) client: Option<Arc<ClientLabel>>,
    pub(crate) profile: Option<Arc<str>>,
    /// The JSON-RPC request id, as JSON.
    pub(crate) request_id: Box<str>,
    /// `None` for a method that does not exist.
    pub(crate) method: Option<Method>,
    /// The name of a method that does not exist.
    pub(crate) unknown_method: Option<Box<str>>,
    /// The server that got the request.
    pub(crate) server: Option<Alias>,
    /// The name, URI or task that the client has sent.
    pub(crate) target: Option<Box<str>>,
    /// The server's own name for the tool or prompt.
    pub(crate) own_name: Option<Box<str>>,
    /// The digest of the server's tool definition, as in `ropeway.lock`.
    pub(crate) digest: Option<Digest>,
    /// The rule that refused the request.
    pub(crate) denied_by: Option<&'static str>,
    pub(crate) outcome: CallOutcome,
    /// The JSON-RPC error code.
    pub(crate) code: Option<i64>,
    pub(crate) duration: Duration,
    /// Size of the message.
    pub(crate) bytes_in: usize,
    /// Size of the result or of the error message.
    pub(crate) bytes_out: usize,
    /// The requests to servers, if the trace is sampled.
    pub(crate) upstream: Vec<UpstreamSpan>,
}

impl CallRecord {
    pub(crate) fn method_name(&self) -> &str {
        match self.method {
            Some(method) => method.as_str(),
            None => self.unknown_method.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the failure's kind, if the request failed.
    pub(crate) fn error_type(&self) -> Option<ErrorType> {
        match self.outcome {
            CallOutcome::Ok | CallOutcome::InputRequired => None,
            CallOutcome::ToolError => Some(ErrorType::TOOL),
            CallOutcome::Cancelled => Some(ErrorType::CANCELLED),
            CallOutcome::Error => Some(self.code.map_or(ErrorType::OTHER, ErrorType::of_code)),
        }
    }

    /// Returns the key under which the target is listed.
    pub(crate) fn target_key(&self) -> &'static str {
        match self.method.and_then(Method::target) {
            Some("uri") => "uri",
            Some("taskId") => "task",
            _ if self.method == Some(Method::GetPrompt) => "prompt",
            _ => "tool",
        }
    }

    /// Returns the call id's digits.
    pub(crate) fn call_id_text(&self) -> String {
        format!("{:016x}", self.call_id)
    }

    /// Returns the beginning of a text, redacted.
    pub(super) fn text(text: &str, redactor: &Redactor) -> Box<str> {
        if text.len() <= MAX_TEXT {
            return redactor.redact(text).as_ref().into();
        }
        // Redacted before it is truncated, because half a secret would not be found.
        let ahead = &text[..text.floor_char_boundary(4 * MAX_TEXT)];
        bounded(&redactor.redact_truncated(ahead)).into()
    }

    /// Writes an audit line's members.
    pub(super) fn write_members<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("time", &timestamp(self.time))?;
        map.serialize_entry("call_id", &self.call_id_text())?;
        if let Some(trace) = &self.trace {
            map.serialize_entry("trace_id", &trace.context.trace_id())?;
            map.serialize_entry("span_id", &trace.context.span_id())?;
        }
        map.serialize_entry("principal", &*self.principal)?;
        if let Some(key) = &self.key_id {
            map.serialize_entry("key_id", &**key)?;
        }
        if let Some(client) = &self.client {
            map.serialize_entry("client_name", &client.name)?;
            map.serialize_entry("client_version", &client.version)?;
            map.serialize_entry("era", client.era.as_str())?;
        }
        if let Some(profile) = &self.profile {
            map.serialize_entry("profile", &**profile)?;
        }
        // An id that is not a string or a number is refused, so this is JSON.
        if let Ok(id) = serde_json::from_str::<&RawValue>(&self.request_id) {
            map.serialize_entry("request_id", id)?;
        }
        map.serialize_entry("method", self.method_name())?;
        if let Some(server) = &self.server {
            map.serialize_entry("server", server)?;
        }
        if let Some(name) = self.own_name.as_ref().or(self.target.as_ref()) {
            map.serialize_entry(self.target_key(), name)?;
        }
        if let (Some(own), Some(target)) = (&self.own_name, &self.target)
            && own != target
        {
            map.serialize_entry("name", target)?;
        }
        if let Some(digest) = &self.digest {
            map.serialize_entry("digest", digest)?;
        }
        map.serialize_entry("decision", if self.denied_by.is_some() { "deny" } else { "allow" })?;
        if let Some(rule) = self.denied_by {
            map.serialize_entry("rule", rule)?;
        }
        map.serialize_entry("outcome", self.outcome.as_str())?;
        if let Some(code) = self.code {
            map.serialize_entry("code", &code)?;
        }
        let micros = u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX);
        map.serialize_entry("ms", &(micros as f64 / 1000.0))?;
        map.serialize_entry("bytes_in", &self.bytes_in)?;
        map.serialize_entry("bytes_out", &self.bytes_out)
    }
}

impl Serialize for CallRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write_members(&mut map)?;
        map.end()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    /// Returns a successful call's record.
    pub(in crate::observe) fn record() -> CallRecord {
        CallRecord {
            time: UNIX_EPOCH + Duration::from_millis(1_763_344_282_250),
            call_id: 0xab,
            trace: None,
            principal: "key:ci".into(),
            key_id: None,
            client: Some(Arc::new(ClientLabel::read(r#"{"name":"kit","version":"1"}"#, Era::Modern, "2026-07-28", ""))),
            profile: Some("default".into()),
            request_id: "7".into(),
            method: Some(Method::CallTool),
            unknown_method: None,
            server: Some("files".into()),
            target: Some("files_read".into()),
            own_name: Some("read".into()),
            digest: None,
            denied_by: None,
            outcome: CallOutcome::Ok,
            code: None,
            duration: Duration::from_micros(1500),
            bytes_in: 10,
            bytes_out: 20,
            upstream: Vec::new(),
        }
    }

    #[test]
    fn a_record_has_the_fields_of_an_audit_line() {
        let expected = json!({
            "time": "2025-11-17T01:51:22.250Z", "call_id": "00000000000000ab", "principal": "key:ci",
            "client_name": "kit", "client_version": "1", "era": "modern", "profile": "default", "request_id": 7,
            "method": "tools/call", "server": "files", "tool": "read", "name": "files_read", "decision": "allow",
            "outcome": "ok", "ms": 1.5, "bytes_in": 10, "bytes_out": 20,
        });
        assert_eq!(serde_json::to_value(record()).expect("JSON"), expected);
    }

    #[test]
    fn a_refused_request_names_the_rule_and_the_code() {
        let refused = CallRecord {
            method: None,
            unknown_method: Some("no/such\n\"method".into()),
            server: None,
            target: None,
            own_name: None,
            client: None,
            profile: None,
            denied_by: Some("calls_per_client"),
            outcome: CallOutcome::Error,
            code: Some(-32000),
            ..record()
        };
        let text = serde_json::to_string(&refused).expect("JSON");
        assert!(!text.contains('\n'), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["method"], "no/such\n\"method");
        assert_eq!([&value["decision"], &value["rule"], &value["outcome"]], ["deny", "calls_per_client", "error"]);
        assert_eq!(refused.error_type(), Some(ErrorType("-32000")));
    }

    #[test]
    fn codes_that_the_protocol_does_not_define_have_one_label() {
        for code in [1, -1, 42, i64::MIN, -32099] {
            assert_eq!(ErrorType::of_code(code), ErrorType::OTHER, "{code}");
        }
        assert_eq!(ErrorType::of_code(-32602).as_str(), "-32602");
    }

    #[test]
    fn a_long_text_is_cut_and_redacted() {
        let redactor = Redactor::new(&[ropeway_core::secret::Secret::new("s3cret-value")]);
        assert_eq!(&*CallRecord::text("a?token=s3cret-value", &redactor), "a?token=***");
        let long = format!("{}s3cret-value", "x".repeat(MAX_TEXT - 5));
        let text = CallRecord::text(&long, &redactor);
        assert!(text.len() <= MAX_TEXT && !text.contains("s3c"), "{text}");
    }
}
