//! Scripted servers that misbehave on command, for tests: an MCP server, and a provider of models ([`ModelServer`], and
//! [`ScriptedReply`] for what its models say).
//!
//! One [`Script`] says what the MCP server does; it can be reached inside this process ([`in_process`]), as a child
//! process ([`stdio`]) and over HTTP ([`HttpScriptedServer`]). All three share one brain.

mod fault;
pub mod fuzz;
mod headers;
mod http;
mod model;
pub mod odd;
mod pipe;
mod process;
mod saying;
mod script;
mod scripted;
mod session;
mod shelf;
mod spoil;
mod stage;
mod task;
mod tools;
mod wire;

use std::path::Path;

pub use fault::{Fault, FaultCount, FaultRule, FaultTrigger, HttpFault, StdoutNoise};
pub use http::HttpScriptedServer;
pub use model::{ModelAnswer, ModelServer};
pub use process::serve_stdio;
pub use saying::{ScriptedReply, model, replaying};
pub use script::{
    ExtraTool, Grandchild, HttpScript, OfferedTransports, PagingStyle, ProcessScript, ResponseFormat, Script,
    SupportedEras, UnknownMethods, UnknownSession, WriteStyle,
};
pub use scripted::ScriptedServer;
pub use wire::RecordedHttpRequest;

use crate::config::{InProcessServer, StdioServer};

/// A server inside this process. [`ScriptedServer::in_process`] is the same with a handle on it.
pub fn in_process(script: Script) -> InProcessServer {
    ScriptedServer::new(script).in_process()
}

/// A server as a child process; `binary` is the path of `scripted-server`.
pub fn stdio(script: &Script, binary: impl AsRef<Path>) -> StdioServer {
    let script = serde_json::to_string(script).unwrap_or_default();
    StdioServer::new(binary.as_ref().to_string_lossy(), [script])
}
