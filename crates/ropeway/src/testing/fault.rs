//! What can go wrong, and when.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One thing that goes wrong at a chosen moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    /// When.
    pub on: FaultTrigger,
    /// What.
    pub fault: Fault,
}

/// When a fault happens. What is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultTrigger {
    /// The method that the client sends; `connect` is the start of a pipe, `GET` and `DELETE` are those of HTTP.
    pub method: Option<String>,
    /// The tool that is called, the prompt that is got or the URI that is read.
    pub name: Option<String>,
    /// Which of the moments that match.
    pub times: FaultCount,
    /// Only while this is the n-th connection (pipe, process or start of the HTTP server), counted from one.
    pub connection: Option<u32>,
}

impl FaultTrigger {
    /// Every message, whatever its method.
    pub fn any() -> Self {
        Self::default()
    }

    /// A method.
    pub fn method(method: impl Into<String>) -> Self {
        Self { method: Some(method.into()), ..Self::default() }
    }

    /// A call of a tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self { method: Some("tools/call".to_owned()), name: Some(name.into()), ..Self::default() }
    }

    /// The start of a pipe.
    pub fn connect() -> Self {
        Self::method("connect")
    }

    /// Only the n-th time, counted from one.
    #[must_use]
    pub fn nth(mut self, n: u32) -> Self {
        self.times = FaultCount::Nth(n);
        self
    }

    /// Only the first n times.
    #[must_use]
    pub fn first(mut self, n: u32) -> Self {
        self.times = FaultCount::First(n);
        self
    }

    /// Only on the n-th connection, counted from one.
    #[must_use]
    pub fn connection(mut self, n: u32) -> Self {
        self.connection = Some(n);
        self
    }

    /// Does this moment match, but for how often it came before?
    pub(super) fn matches(&self, method: &str, name: Option<&str>, connection: u32) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method)
            && self.name.as_deref().is_none_or(|wanted| Some(wanted) == name)
            && self.connection.is_none_or(|wanted| wanted == connection)
    }
}

/// Which of the moments that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCount {
    /// All of them.
    #[default]
    Always,
    /// One, counted from one.
    Nth(u32),
    /// So many from the first on.
    First(u32),
    /// All but so many from the first on.
    After(u32),
}

impl FaultCount {
    /// Is the n-th moment meant?
    pub(super) fn includes(self, n: u32) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(wanted) => n == wanted,
            Self::First(wanted) => n <= wanted,
            Self::After(passed) => n > passed,
        }
    }
}

/// Something that goes wrong. Several may happen to one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The server ends, without an answer.
    Exit {
        /// After this long.
        after_ms: u64,
        /// With this status.
        code: i32,
    },
    /// The server ends in the middle of writing its answer.
    ExitMidAnswer,
    /// The server ends right after its answer.
    ExitAfterAnswer,
    /// The server closes its output without an answer and lives on.
    CloseOutput,
    /// There is never an answer.
    Hang,
    /// The answer is late.
    Late {
        /// By this long.
        ms: u64,
    },
    /// The answer comes twice.
    Twice,
    /// The answer is an error that says of no request that it belongs to it.
    IdlessError {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// Write `"id": null` instead of no id.
        null_id: bool,
    },
    /// The answer has `"error": null` beside its result.
    ErrorNull,
    /// The answer does not say `"jsonrpc": "2.0"`.
    NoJsonrpc,
    /// The id comes back as a string.
    IdAsString,
    /// The id comes back as a float.
    IdAsFloat,
    /// The answer, and what was said with it, is one array.
    Batch,
    /// The answer has this result instead of its own.
    Result(Value),
    /// The answer has this error, whatever it is, instead of a result.
    Error(Value),
    /// The answer has this text, byte for byte, behind its id: `"result":{…}` or `"error":{…}`.
    Body(String),
    /// Something in the answer is replaced or added.
    Set {
        /// Where, as a JSON pointer into the whole message.
        pointer: String,
        /// By what.
        value: Value,
    },
    /// Something in the answer is left out.
    Remove {
        /// Where, as a JSON pointer into the whole message.
        pointer: String,
    },
    /// These messages come before the answer.
    Before(Vec<Value>),
    /// These messages come after the answer.
    After(Vec<Value>),
    /// The answer is made this big.
    Giant {
        /// At least so many bytes.
        bytes: usize,
    },
    /// A notification of this size comes before the answer.
    GiantUnasked {
        /// At least so many bytes.
        bytes: usize,
    },
    /// The same notification comes many times before the answer.
    Storm {
        /// Its method.
        method: String,
        /// How often.
        count: usize,
    },
    /// Progress comes out of order, for tokens that nobody gave and in the wrong type, before the answer.
    OddProgress,
    /// Bytes that are no message come before the answer.
    Noise(StdoutNoise),
    /// The server writes this much to stderr before it answers (stdio only).
    Stderr {
        /// So many bytes.
        bytes: usize,
    },
    /// The server writes this line to stderr before it answers (stdio only).
    StderrLine(String),
    /// Something goes wrong with the HTTP answer (HTTP only).
    Http(HttpFault),
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdoutNoise {
    /// A line of text.
    Text(String),
    /// A blank line.
    Blank,
    /// A line that is not UTF-8.
    InvalidUtf8,
    /// A line of JSON that is cut off.
    CutJson,
    /// These bytes, with no line end added.
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

/// Something that goes wrong with an HTTP answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFault {
    /// The answer is this and nothing else; the message is not looked at.
    Status {
        /// The status.
        status: u16,
        /// Its headers.
        headers: Vec<(String, String)>,
        /// Its body.
        body: String,
    },
    /// The answer says that it is of this content type.
    ContentType(String),
    /// The answer breaks off in the middle.
    Truncate,
    /// The connection is reset before the head of the answer.
    Reset,
    /// The connection is reset after the head of the answer.
    ResetAfterHead,
    /// The answer's head comes byte by byte.
    SlowHead {
        /// The wait after each byte.
        ms: u64,
    },
    /// 202 and nothing else, though an answer was due.
    Accepted,
    /// The session is forgotten before the message is looked at.
    ForgetSession,
    /// The event stream ends early; the rest can be fetched with GET and `Last-Event-ID`.
    CutStream {
        /// After so many messages, the empty first event not counted.
        after: usize,
        /// The `retry:` of the first event.
        retry_ms: u64,
        /// Can the rest be fetched?
        resumable: bool,
    },
}

impl From<HttpFault> for Fault {
    fn from(fault: HttpFault) -> Self {
        Self::Http(fault)
    }
}

impl From<StdoutNoise> for Fault {
    fn from(noise: StdoutNoise) -> Self {
        Self::Noise(noise)
    }
}

impl Fault {
    /// The server ends at once, without an answer.
    pub fn exit() -> Self {
        Self::Exit { after_ms: 0, code: 1 }
    }

    /// The answer is late.
    pub fn late(ms: u64) -> Self {
        Self::Late { ms }
    }

    /// Something in the answer is replaced or added: `Fault::set("/result/nextCursor", 7)`.
    pub fn set(pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Set { pointer: pointer.into(), value: value.into() }
    }

    /// Something in the answer is left out.
    pub fn remove(pointer: impl Into<String>) -> Self {
        Self::Remove { pointer: pointer.into() }
    }

    /// The answer is an error without an id.
    pub fn idless_error(code: i64, message: impl Into<String>) -> Self {
        Self::IdlessError { code, message: message.into(), null_id: false }
    }

    /// The answer is an error without a message.
    pub fn error_without_message() -> Self {
        Self::Error(json!({ "code": -32000 }))
    }

    /// The answer is an error whose code fits no 32 bits.
    pub fn error_code_out_of_range() -> Self {
        Self::Error(json!({ "code": 9_000_000_000_i64, "message": "a very large code" }))
    }

    /// The same notification many times.
    pub fn storm(method: impl Into<String>, count: usize) -> Self {
        Self::Storm { method: method.into(), count }
    }

    /// A notification that nobody has heard of.
    pub fn unknown_notification() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "method": "notifications/odd", "params": { "a": 1 } })])
    }

    /// A request to the client that nobody has heard of.
    pub fn unknown_request() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "id": "odd-1", "method": "odd/request", "params": {} })])
    }

    /// An answer to a request that nobody made.
    pub fn unasked_answer() -> Self {
        Self::Before(vec![json!({ "jsonrpc": "2.0", "id": 987_654_321, "result": {} })])
    }

    /// The HTTP answer is this, with a body of plain text or HTML.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/html; charset=utf-8".to_owned())];
        HttpFault::Status { status, headers, body: body.into() }.into()
    }

    /// The HTTP answer is this, with a JSON body.
    pub fn json_status(status: u16, body: &Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        HttpFault::Status { status, headers, body: body.to_string() }.into()
    }

    /// The HTTP answer is this, with one header and no body: `Fault::header_status(429, "Retry-After", "1")`.
    pub fn header_status(status: u16, name: impl Into<String>, value: impl Into<String>) -> Self {
        HttpFault::Status { status, headers: vec![(name.into(), value.into())], body: String::new() }.into()
    }

    /// The HTTP answer points elsewhere. A path that begins with `/moved` leads back to the same server.
    pub fn redirect(status: u16, location: impl Into<String>) -> Self {
        Self::header_status(status, "Location", location)
    }
}
