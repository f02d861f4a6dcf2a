//! Scripted server faults, and the conditions that trigger them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use ropeway_core::conversions::conversions;
use ropeway_core::setters::setters;

/// A fault and the condition that triggers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    /// The condition.
    pub on: FaultTrigger,
    /// The fault.
    pub fault: Fault,
}

/// The condition that triggers a fault. Absent fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultTrigger {
    /// The client message's method; `connect` is a pipe's start, `GET` and `DELETE` are HTTP requests.
    pub method: Option<String>,
    /// The called tool's or requested prompt's name, or the resource's URI.
    pub name: Option<String>,
    /// Which of the matching messages trigger the fault.
    pub times: FaultCount,
    /// The connection's number (pipe, process or HTTP server start), counted from one.
    pub connection: Option<u32>,
}

impl FaultTrigger {
    /// Matches every message.
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches messages with this method.
    pub fn method(method: impl Into<String>) -> Self {
        Self { method: Some(method.into()), ..Self::default() }
    }

    /// Matches calls to a tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self { method: Some("tools/call".to_owned()), name: Some(name.into()), ..Self::default() }
    }

    /// Matches a pipe's start.
    pub fn connect() -> Self {
        Self::method("connect")
    }

    /// Returns `true` if everything but the count matches.
    pub(super) fn matches(&self, method: &str, name: Option<&str>, connection: u32) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method)
            && self.name.as_deref().is_none_or(|wanted| Some(wanted) == name)
            && self.connection.is_none_or(|wanted| wanted == connection)
    }
}

setters!(FaultTrigger {
    /// Triggers only the n-th time, counted from one.
    nth(n: u32) => times = FaultCount::Nth(n);
    /// Triggers only the first n times.
    first(n: u32) => times = FaultCount::First(n);
    /// Triggers only on the n-th connection, counted from one.
    connection(n: u32) => connection = Some(n);
});

/// Which of the matching messages trigger a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCount {
    /// Every message.
    #[default]
    Always,
    /// The n-th message, counted from one.
    Nth(u32),
    /// The first n messages.
    First(u32),
    /// Every message after the first n.
    After(u32),
}

impl FaultCount {
    /// Returns `true` if the n-th message triggers the fault.
    pub(super) fn includes(self, n: u32) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(wanted) => n == wanted,
            Self::First(wanted) => n <= wanted,
            Self::After(passed) => n > passed,
        }
    }
}

/// A fault. Several can apply to one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The server exits without a response.
    Exit {
        /// The delay.
        after_ms: u64,
        /// The exit status.
        code: i32,
    },
    /// The server exits partway through its response.
    ExitMidAnswer,
    /// The server exits right after its response.
    ExitAfterAnswer,
    /// The server closes its output without a response and keeps running.
    CloseOutput,
    /// The server never responds.
    Hang,
    /// The response is delayed.
    Late {
        /// The delay.
        ms: u64,
    },
    /// The response is sent twice.
    Twice,
    /// The response is an error without an id.
    IdlessError {
        /// The error code.
        code: i64,
        /// The error message.
        message: String,
        /// Whether to send `"id": null` instead of no id.
        null_id: bool,
    },
    /// The response has `"error": null` next to its result.
    ErrorNull,
    /// The response lacks `"jsonrpc": "2.0"`.
    NoJsonrpc,
    /// The response has its id as a string.
    IdAsString,
    /// The response has its id as a float.
    IdAsFloat,
    /// The response and its notifications are sent as one array.
    Batch,
    /// The response has this result.
    Result(Value),
    /// The response has this error instead of a result.
    Error(Value),
    /// The response has this text after its id, byte for byte: `"result":{…}` or `"error":{…}`.
    Body(String),
    /// A value in the response is replaced or added.
    Set {
        /// JSON Pointer into the whole message.
        pointer: String,
        /// The new value.
        value: Value,
    },
    /// A value in the response is removed.
    Remove {
        /// JSON Pointer into the whole message.
        pointer: String,
    },
    /// These messages are sent before the response.
    Before(Vec<Value>),
    /// These messages are sent after the response.
    After(Vec<Value>),
    /// The response is padded to this size.
    Giant {
        /// Minimum size in bytes.
        bytes: usize,
    },
    /// A notification with this size is sent before the response.
    GiantUnasked {
        /// Minimum size in bytes.
        bytes: usize,
    },
    /// The same notification is sent many times before the response.
    Storm {
        /// Its method.
        method: String,
        /// Notification count.
        count: usize,
    },
    /// Progress is sent out of order, for unknown tokens and with the wrong type, before the response.
    OddProgress,
    /// Bytes that are not a message are sent before the response.
    Noise(StdoutNoise),
    /// The server writes this much to stderr before it responds (stdio only).
    Stderr {
        /// Byte count.
        bytes: usize,
    },
    /// The server writes this line to stderr before it responds (stdio only).
    StderrLine(String),
    /// An HTTP response fault (HTTP only).
    Http(HttpFault),
}

/// Bytes on standard output that are not a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdoutNoise {
    /// A line of text.
    Text(String),
    /// A blank line.
    Blank,
    /// A line that is not UTF-8.
    InvalidUtf8,
    /// A line with truncated JSON.
    CutJson,
    /// These bytes, without a line end.
    Bytes(Vec<u8>),
}

impl StdoutNoise {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => format!("{text}\n").into_bytes(),
            Self::Blank => b"\n".to_vec(),
            Self::InvalidUtf8 => b"\xff\xfe\xc3\x28 {\n".to_vec(),
            Self::CutJson => b"{\"jsonrpc\":\"2.0\",\"id\":1,\"resu\n".to_vec(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// An HTTP response fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFault {
    /// The response has this status, headers and body, and the message is ignored.
    Status {
        /// The status.
        status: u16,
        /// The headers.
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
    },
    /// The response has this content type.
    ContentType(String),
    /// The response is truncated.
    Truncate,
    /// The connection is reset before the response head.
    Reset,
    /// The connection is reset after the response head.
    ResetAfterHead,
    /// The response head is sent byte by byte.
    SlowHead {
        /// The delay after each byte.
        ms: u64,
    },
    /// The response is 202 without a body, although the request has a result.
    Accepted,
    /// The session expires before the message is handled.
    ForgetSession,
    /// The event stream ends early. The rest can be fetched with GET and `Last-Event-ID`.
    CutStream {
        /// Number of messages before the end, not counting the empty first event.
        after: usize,
        /// The first event's `retry:`.
        retry_ms: u64,
        /// Whether the rest can be fetched.
        resumable: bool,
    },
}

conversions!(Fault {
    fault: HttpFault => Self::Http(fault);
    noise: StdoutNoise => Self::Noise(noise);
});

impl Fault {
    /// The server exits at once, without a response.
    pub fn exit() -> Self {
        Self::Exit { after_ms: 0, code: 1 }
    }

    /// The response is delayed.
    pub fn late(ms: u64) -> Self {
        Self::Late { ms }
    }

    /// A value in the response is replaced or added: `Fault::set("/result/nextCursor", 7)`.
    pub fn set(pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Set { pointer: pointer.into(), value: value.into() }
    }

    /// A value in the response is removed.
    pub fn remove(pointer: impl Into<String>) -> Self {
        Self::Remove { pointer: pointer.into() }
    }

    /// The response is an error without an id.
    pub fn idless_error(code: i64, message: impl Into<String>) -> Self {
        Self::IdlessError { code, message: message.into(), null_id: false }
    }

    /// The response is an error without a message.
    pub fn error_without_message() -> Self {
        Self::Error(json!({ "code": -32000 }))
    }

    /// The response is an error whose code exceeds 32 bits.
    pub fn error_code_out_of_range() -> Self {
        Self::Error(json!({ "code": 9_000_000_000_i64, "message": "a very large code" }))
    }

    /// The same notification is sent many times.
    pub fn storm(method: impl Into<String>, count: usize) -> Self {
        Self::Storm { method: method.into(), count }
    }

    /// An unknown notification is sent.
    pub fn unknown_notification() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "method": "notifications/odd", "params": { "a": 1 } })])
    }

    /// An unknown request is sent to the client.
    pub fn unknown_request() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "id": "odd-1", "method": "odd/request", "params": {} })])
    }

    /// A response to an unknown request is sent.
    pub fn unasked_answer() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "id": 987_654_321, "result": {} })])
    }

    /// The HTTP response has this status, and a plain text or HTML body.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/html; charset=utf-8".to_owned())];
        HttpFault::Status { status, headers, body: body.into() }.into()
    }

    /// The HTTP response has this status, and a JSON body.
    pub fn json_status(status: u16, body: &Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        HttpFault::Status { status, headers, body: body.to_string() }.into()
    }

    /// The HTTP response has this status and one header: `Fault::header_status(429, "Retry-After", "1")`.
    pub fn header_status(status: u16, name: impl Into<String>, value: impl Into<String>) -> Self {
        HttpFault::Status { status, headers: vec![(name.into(), value.into())], body: String::new() }.into()
    }

    /// The HTTP response is a redirect. A path that starts with `/moved` leads back to the same server.
    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::header_status(status, "Location", location)
    }
}
