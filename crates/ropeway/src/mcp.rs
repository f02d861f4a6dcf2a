//! Connections to MCP servers.
//!
//! [`Mcp`] is the connection to one server: it performs the handshake, calls tools, reads resources and prompts, and reconnects.
//! [`ServerConfig`](crate::config::ServerConfig) names the server. [`Handlers`] answer server requests: questions to the user
//! ([`Elicitation`]), model requests ([`SamplingRequest`]) and sign-ins. For many servers, use a
//! [`Bridge`](crate::bridge::Bridge).
//!
//! Dropping the last clone of an [`Mcp`] terminates its server process. A signal ends a program without running destructors;
//! [`end_children_on_signals`] also terminates the servers then.

pub use ropeway_mcp::{
    ClientRoot, Completion, ConnectError, ConnectErrorKind, ConnectionState, Elicitation, ElicitationAnswer,
    ElicitationMode, Era, Handlers, Mcp, Prompt, PromptArgument, PromptMessage, PromptResult, Resource,
    ResourceTemplate, SamplingRequest, ServerInfo, become_subreaper, end_children, end_children_on_signals,
    end_children_on_signals_with, end_children_on_termination, end_descendants, ignore_interrupts, is_ending,
};
