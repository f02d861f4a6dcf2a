//! What a scripted server is and does, as plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::{Fault, FaultRule, FaultTrigger};

/// Everything that a scripted server is told. The default behaves well in both eras.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// What it calls itself.
    pub name: String,
    /// What it tells the model about itself.
    pub instructions: Option<String>,
    /// Which eras it speaks.
    pub eras: SupportedEras,
    /// The legacy versions that it speaks, newest first.
    pub legacy_versions: Vec<String>,
    /// The first message settles the era of a pipe, and the other era is refused from then on.
    pub first_message_settles_era: bool,
    /// What it does about a method that it does not know.
    pub unknown_methods: UnknownMethods,
    /// The `ttlMs` of its lists, in the modern era.
    pub ttl_ms: u64,
    /// Has the tools of [`super::tools`].
    pub builtin_tools: bool,
    /// Tools besides those.
    pub extra_tools: Vec<ExtraTool>,
    /// How many items a page of a list holds; all of them when absent.
    pub page_size: Option<usize>,
    /// How lists end.
    pub paging: PagingStyle,
    /// What goes wrong, and when.
    pub faults: Vec<FaultRule>,
    /// How bytes are written.
    pub writing: WriteStyle,
    /// How the process of a stdio server behaves.
    pub process: ProcessScript,
    /// How a server behind a URL behaves.
    pub http: HttpScript,
    /// Where a stdio server remembers, across restarts, how often it was started and which faults happened.
    pub state_file: Option<PathBuf>,
    /// Where every message from the client is written down, one per line.
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
    /// A server that speaks only `initialize`.
    pub fn legacy() -> Self {
        Self { eras: SupportedEras::Legacy, ..Self::default() }
    }

    /// A server that speaks only 2026-07-28.
    pub fn modern() -> Self {
        Self { eras: SupportedEras::Modern, ..Self::default() }
    }

    /// Makes something go wrong.
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

/// Which eras a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupportedEras {
    /// Either, by what the client says.
    #[default]
    Both,
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only.
    Modern,
}

/// What a server does about a method that it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownMethods {
    /// Answers -32601.
    #[default]
    MethodNotFound,
    /// Answers -32602, as servers on the Python SDK 1.x do.
    InvalidParams,
    /// Never answers.
    Silence,
    /// Ends, as servers on older Rust SDKs do.
    Exit,
}

/// A tool given as raw JSON, so that it can be as odd as need be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraTool {
    /// The definition as it is listed.
    pub definition: Value,
    /// The raw results: the first call gets the first, and so on; the last one repeats.
    pub results: Vec<Value>,
}

impl ExtraTool {
    /// A tool that always answers the same.
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
    /// Never: there is always another page, with a new cursor.
    Endless,
    /// Never: the cursor is the same each time.
    Repeated,
    /// After the last item, but cursors are numbers instead of strings.
    NumericCursors,
}

/// How bytes are written, whatever they say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteStyle {
    /// Write this many bytes at a time.
    pub split: Option<usize>,
    /// Wait this long after each of those writes.
    pub pause_ms: u64,
    /// Gather up to this many messages into one write (pipes only).
    pub merge: Option<usize>,
    /// End lines with `\r\n` (pipes only).
    pub crlf: bool,
    /// Put a byte order mark before each line (pipes only).
    pub bom: bool,
}

/// How the process of a stdio server behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessScript {
    /// Live on when stdin ends; SIGTERM is needed.
    pub ignore_eof: bool,
    /// Live on at SIGTERM too; SIGKILL is needed.
    pub ignore_sigterm: bool,
    /// Start a child of its own that ignores everything but SIGKILL.
    pub grandchild: Option<Grandchild>,
    /// Wait this long before reading.
    pub start_delay_ms: u64,
    /// Write this many bytes to stderr at the start.
    pub stderr_bytes: usize,
    /// End in any case after this long, so that no test leaves anything behind.
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

/// What a stubborn grandchild holds on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grandchild {
    /// The pipes of the server: they stay open after the server is gone.
    HoldingPipes,
    /// Nothing.
    Detached,
    /// Nothing, in a session of its own.
    OwnSession,
}

/// How a server behind a URL behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpScript {
    /// Which HTTP transports it offers.
    pub offers: OfferedTransports,
    /// How a request is answered.
    pub answers: ResponseFormat,
    /// Gives out `Mcp-Session-Id` in the legacy era.
    pub sessions: bool,
    /// Offers the GET stream of the legacy era.
    pub get_stream: bool,
    /// What is said to a session that it does not know.
    pub unknown_session: UnknownSession,
    /// Give every event an id, and begin each stream with an empty event that has one.
    pub event_ids: bool,
    /// Send a comment on open streams this often.
    pub comment_every_ms: Option<u64>,
    /// Send JSON answers in chunks instead of with a length.
    pub chunked: bool,
    /// What the `endpoint` event says; `{id}` is the session. `/message?sessionId={id}` when absent.
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

/// Which HTTP transports a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedTransports {
    /// `/mcp` for streamable HTTP, `/sse` and `/message` for legacy HTTP+SSE.
    #[default]
    Both,
    /// `/mcp` only.
    Streamable,
    /// Legacy HTTP+SSE only; a GET of `/mcp` is answered like one of `/sse`.
    LegacySse,
}

/// How a request over streamable HTTP is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// With an event stream.
    #[default]
    Sse,
    /// With one JSON body.
    Json,
}

/// What is said to a session that a server does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownSession {
    /// 404, as the specification says.
    #[default]
    NotFound,
    /// 400 with an error that has no id, as servers on the TypeScript SDK say.
    BadRequest,
    /// 400 with the words of a server on the TypeScript SDK that holds one session at a time.
    NotInitialized,
}
