//! Connections to MCP servers.

mod backoff;
mod call;
mod client;
mod completion;
mod connection;
mod elicitation_budget;
mod error;
mod fallback;
mod forwarding;
pub mod fuzz;
mod handlers;
mod handshake;
mod host;
mod incoming;
mod internal;
mod mcp_tool;
mod message_handler;
mod message_log;
pub mod oauth;
mod pages;
mod pending;
mod prompts;
pub mod protocol;
mod rate_limit;
mod raw;
mod raw_caller;
mod raw_list;
mod raw_response;
mod redaction;
mod request;
mod resources;
mod round_trips;
mod server_info;
mod server_requests;
mod session;
mod signals;
mod state;
mod subscriber;
mod subscriptions;
mod supervisor;
mod task;
mod timeouts;
mod tool_list;
mod tools;
mod trace;
mod transport;

pub use self::backoff::Backoff;
pub use self::client::{ConnectError, Mcp};
pub use self::completion::Completion;
pub use self::error::ConnectErrorKind;
pub use self::handlers::HandlerError;
pub use self::handlers::{ClientRoot, Elicitation, ElicitationAnswer, ElicitationMode, Handlers, SamplingRequest};
pub use self::prompts::{Prompt, PromptArgument, PromptMessage, PromptResult};
pub use self::redaction::redact_entry;
pub use self::resources::{Resource, ResourceTemplate};
pub use self::server_info::ServerInfo;
pub use self::signals::{
    end_children_on_signals, end_children_on_signals_with, end_children_on_termination, ignore_interrupts, is_ending,
};
pub use self::state::ConnectionState;
pub use self::trace::is_recorded;
pub use self::transport::child::end_children;
pub use self::transport::orphans::{become_subreaper, end_descendants};
pub use self::{
    elicitation_budget::too_many_elicitations,
    message_handler::{AnswerSink, LinkKey, MessageHandler, ServerRequest, ServerRequestMethod},
    pages::PagedList,
    rate_limit::RateLimit,
    raw::{RawReply, RawRequest},
    raw_caller::{Callers, RawCaller, RequestTag},
    raw_list::RawList,
    subscriptions::SubscriptionHold,
};
pub use crate::protocol::Era;
pub use ropeway_web::TlsError;
