//! Scripted servers for tests: an MCP server that misbehaves on command, and a model server.
//!
//! A [`Script`] defines how an MCP server behaves. The server runs in this process ([`in_process`]), as a child process
//! ([`stdio`]) or over HTTP ([`HttpScriptedServer`]). A [`ModelServer`] answers model requests over HTTP, and [`model`]
//! creates a provider that replays [`ScriptedReply`]s without a server.
//!
//! # Examples
//!
//! A server whose first `echo` call never gets a response:
//!
//! ```
//! use ropeway::testing::{self, Fault, FaultTrigger, Script};
//!
//! let script = Script::default().fault(FaultTrigger::tool("echo").first(1), Fault::Hang);
//! let server = testing::in_process(script);
//! ```

pub use ropeway_testing::{
    Fault, FaultTrigger, HttpScriptedServer, ModelAnswer, ModelServer, RecordedHttpRequest, Script, ScriptedReply,
    ScriptedServer, in_process, model, serve_stdio, stdio,
};
