//! A server's script, as plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::{Fault, FaultRule, FaultTrigger};

/// A scripted server's behaviour. The default follows the specification in both eras.
// Hidden fields: protocol and process details, for this crate's tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The server name.
    pub name: String,
    /// The instructions for the model.
    pub instructions: Option<String>,
    /// The supported eras.
    pub eras: SupportedEras,
    /// The supported legacy versions, newest first.
    pub legacy_versions: Vec<String>,
    /// Whether the first message on a pipe determines its era, and messages from the other era are refused.
    pub first_message_settles_era: bool,
    /// The response to unknown methods.
    pub unknown_methods: UnknownMethods,
    /// The `ttlMs` in the modern era's lists.
    pub ttl_ms: u64,
    /// Whether the server has the built-in tools (`add`, `echo`, `sleep`, …).
    pub builtin_tools: bool,
    /// Additional tools.
    pub extra_tools: Vec<ExtraTool>,
    /// Items per list page; all items if absent.
    pub page_size: Option<usize>,
    /// How lists end.
    pub paging: PagingStyle,
    /// The faults and their triggers.
    pub faults: Vec<FaultRule>,
    /// How bytes are written.
    pub writing: WriteStyle,
    /// The stdio process's behaviour.
    pub process: ProcessScript,
    /// The HTTP server's behaviour.
    pub http: HttpScript,
    /// A file in which a stdio server counts its starts and triggered faults across restarts.
    pub state_file: Option<PathBuf>,
    /// A file to which all client messages are appended, one per line.
    pub record_file: Option<PathBuf>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            name: "scripted".to_owned(),
            instructions: None,
            eras: SupportedEras::default(),
            legacy_versions: ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"].map(str::to_owned).to_vec(),
            first_message_settles_era: false,
            unknown_methods: UnknownMethods::default(),
            ttl_ms: 0,
            builtin_tools: true,
            extra_tools: Vec::new(),
            page_size: None,
            paging: PagingStyle::default(),
            faults: Vec::new(),
            writing: WriteStyle::default(),
            process: ProcessScript::default(),
            http: HttpScript::default(),
            state_file: None,
            record_file: None,
        }
    }
}

impl Script {
    /// Creates a server that only supports `initialize`.
    pub fn legacy() -> Self {
        Self { eras: SupportedEras::Legacy, ..Self::default() }
    }

    /// Creates a server that only supports 2026-07-28.
    pub fn modern() -> Self {
        Self { eras: SupportedEras::Modern, ..Self::default() }
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, on: FaultTrigger, fault: impl Into<Fault>) -> Self {
        self.faults.push(FaultRule { on, fault: fault.into() });
        self
    }

    /// Adds a tool with one raw result.
    #[must_use]
    pub fn tool(mut self, definition: Value, result: Value) -> Self {
        self.extra_tools.push(ExtraTool::new(definition, result));
        self
    }
}

/// A server's supported eras.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupportedEras {
    /// Both; the client chooses.
    #[default]
    Both,
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only.
    Modern,
}

/// A server's response to unknown methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownMethods {
    /// Error -32601.
    #[default]
    MethodNotFound,
    /// Error -32602, as from servers on the Python SDK 1.x.
    InvalidParams,
    /// None.
    Silence,
    /// The server exits, as servers on older Rust SDKs do.
    Exit,
}

/// A tool in raw JSON, valid or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraTool {
    /// The definition in the tool list.
    pub definition: Value,
    /// The first call's raw result, the second's, and so on; the last one repeats.
    pub results: Vec<Value>,
}

impl ExtraTool {
    /// Creates a tool that always returns the same result.
    pub fn new(definition: Value, result: Value) -> Self {
        Self { definition, results: vec![result] }
    }
}

/// How lists end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PagingStyle {
    /// After the last item.
    #[default]
    Honest,
    /// Never: every page has a next one, with a new cursor.
    Endless,
    /// Never: every page has the same cursor.
    Repeated,
    /// After the last item, with numbers as cursors.
    NumericCursors,
}

/// How bytes are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteStyle {
    /// Bytes per write.
    pub split: Option<usize>,
    /// Delay after each of those writes.
    pub pause_ms: u64,
    /// Maximum number of messages that are merged into one write (pipes only).
    pub merge: Option<usize>,
    /// Whether lines end with `\r\n` (pipes only).
    pub crlf: bool,
    /// Whether each line starts with a byte order mark (pipes only).
    pub bom: bool,
}

/// A stdio process's behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessScript {
    /// Whether the process keeps running when stdin ends; SIGTERM is needed.
    pub ignore_eof: bool,
    /// Whether the process keeps running on SIGTERM; SIGKILL is needed.
    pub ignore_sigterm: bool,
    /// Starts a child process that ignores everything but SIGKILL.
    pub grandchild: Option<Grandchild>,
    /// Delay before reading.
    pub start_delay_ms: u64,
    /// Number of bytes to write to stderr at the start.
    pub stderr_bytes: usize,
    /// Maximum lifetime, which keeps failed tests from leaving processes behind.
    pub lifetime_ms: u64,
}

impl Default for ProcessScript {
    fn default() -> Self {
        Self {
            ignore_eof: false,
            ignore_sigterm: false,
            grandchild: None,
            start_delay_ms: 0,
            stderr_bytes: 0,
            lifetime_ms: 120_000,
        }
    }
}

/// The server's resources that a child process keeps open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grandchild {
    /// The server's pipes, after the server has exited.
    HoldingPipes,
    /// Nothing.
    Detached,
    /// Nothing, in a separate session.
    OwnSession,
}

/// An HTTP server's behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpScript {
    /// The offered transports.
    pub offers: OfferedTransports,
    /// The response format.
    pub answers: ResponseFormat,
    /// Whether `Mcp-Session-Id` is assigned in the legacy era.
    pub sessions: bool,
    /// Whether the legacy era's GET stream is offered.
    pub get_stream: bool,
    /// The response to unknown sessions.
    pub unknown_session: UnknownSession,
    /// Whether every event has an id, and each stream starts with an empty event that has one.
    pub event_ids: bool,
    /// Comment interval on open streams.
    pub comment_every_ms: Option<u64>,
    /// Whether JSON responses are sent in chunks instead of with a length.
    pub chunked: bool,
    /// The `endpoint` event's data, with `{id}` for the session; `/message?sessionId={id}` if absent.
    pub endpoint: Option<String>,
}

impl Default for HttpScript {
    fn default() -> Self {
        Self {
            offers: OfferedTransports::default(),
            answers: ResponseFormat::default(),
            sessions: true,
            get_stream: true,
            unknown_session: UnknownSession::default(),
            event_ids: false,
            comment_every_ms: None,
            chunked: false,
            endpoint: None,
        }
    }
}

/// The HTTP transports that a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedTransports {
    /// `/mcp` for Streamable HTTP, `/sse` and `/message` for legacy HTTP+SSE.
    #[default]
    Both,
    /// `/mcp` only.
    Streamable,
    /// Legacy HTTP+SSE only; GET requests to `/mcp` are answered like those to `/sse`.
    LegacySse,
}

/// The response format over Streamable HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// An event stream.
    #[default]
    Sse,
    /// One JSON body.
    Json,
}

/// The response to requests with an unknown session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownSession {
    /// 404, as specified
    /// (<https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management>).
    #[default]
    NotFound,
    /// 400 with an error without an id, as from servers on the TypeScript SDK.
    BadRequest,
    /// 400 with the message that servers on the TypeScript SDK send if they hold one session at a time.
    NotInitialized,
}
