//! Scripted servers for tests: an MCP server that misbehaves on command, and a model server.

mod action;
mod apply_faults;
mod call;
mod catalog;
mod driver;
mod fault;
pub mod fuzz;
mod headers;
mod http;
mod http_connection;
mod methods;
mod model_server;
mod pipe;
mod process;
mod script;
mod scripted;
mod scripted_reply;
mod session;
mod task;
mod tools;
pub mod unusual;

use std::path::Path;

pub use fault::{Fault, FaultTrigger};
pub use fault::{FaultCount, FaultRule, HttpFault, StdoutNoise};
pub use http::HttpScriptedServer;
pub use http_connection::RecordedHttpRequest;
pub use model_server::{ModelAnswer, ModelServer};
pub use process::serve_stdio;
pub use script::Script;
pub use script::{
    ExtraTool, Grandchild, HttpScript, OfferedTransports, PagingStyle, ProcessScript, ResponseFormat, SupportedEras,
    UnknownMethods, UnknownSession, WriteStyle,
};
pub use scripted::ScriptedServer;
pub use scripted_reply::replaying;
pub use scripted_reply::{ScriptedReply, model};

use ropeway_config::{StdioServer, Transport};

/// Creates a server in this process. [`ScriptedServer::in_process`] also provides its handle.
pub fn in_process(script: Script) -> Transport {
    ScriptedServer::new(script).in_process()
}

/// Creates a server that runs as a child process; `binary` is the path to `scripted-server`.
pub fn stdio(script: &Script, binary: impl AsRef<Path>) -> StdioServer {
    let script = serde_json::to_string(script).unwrap_or_default();
    StdioServer::new(binary.as_ref().to_string_lossy(), [script])
}
