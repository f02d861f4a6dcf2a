//! Connections to MCP servers.
//!
//! [`Mcp`] is the connection to one server: it performs the handshake, calls tools, reads resources and prompts, and reconnects.
//! [`ServerConfig`](crate::config::ServerConfig) names the server. [`Handlers`] answer the requests of the server: questions to the
//! user ([`Elicitation`]), model requests ([`SamplingRequest`]) and sign-ins. For many servers, use a
//! [`Bridge`](crate::bridge::Bridge).
//!
//! Dropping the last clone of an [`Mcp`] terminates its server process. A signal ends a program without running destructors;
//! [`end_children_on_signals`] also terminates the servers then.

mod backoff;
mod call;
mod client;
mod completion;
mod connection;
mod elicitation_budget;
mod error;
mod fallback;
mod forwarding;
#[cfg(feature = "testing")]
pub(crate) mod fuzz;
mod handlers;
mod handshake;
mod host;
mod incoming;
#[cfg(feature = "bridge")]
mod internal;
mod mcp_tool;
mod message_log;
mod pages;
mod pending;
mod prompts;
mod rate_limit;
#[cfg(feature = "gateway")]
#[allow(dead_code, reason = "used by the gateway")]
mod raw;
#[allow(dead_code, reason = "used by the gateway")]
mod raw_caller;
#[cfg(feature = "gateway")]
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
#[allow(dead_code, reason = "used by the gateway")]
mod tap;
mod task;
mod timeouts;
mod tool_list;
mod tools;
mod trace;
mod transport;

#[cfg(feature = "bridge")]
pub(crate) use self::backoff::Backoff;
pub use self::client::{ConnectError, Mcp};
pub use self::completion::Completion;
pub use self::error::ConnectErrorKind;
#[cfg(feature = "agent")]
pub(crate) use self::handlers::HandlerError;
pub use self::handlers::{ClientRoot, Elicitation, ElicitationAnswer, ElicitationMode, Handlers, SamplingRequest};
pub use self::prompts::{Prompt, PromptArgument, PromptMessage, PromptResult};
#[cfg(feature = "bridge")]
pub(crate) use self::redaction::redact_entry;
pub use self::resources::{Resource, ResourceTemplate};
pub use self::server_info::ServerInfo;
pub use self::signals::{
    end_children_on_signals, end_children_on_signals_with, end_children_on_termination, ignore_interrupts, is_ending,
};
pub use self::state::ConnectionState;
#[cfg(feature = "agent")]
pub(crate) use self::trace::is_recorded;
pub use self::transport::child::end_children;
pub use self::transport::orphans::{become_subreaper, end_descendants};
#[cfg(feature = "gateway")]
#[allow(unused_imports, reason = "used by the gateway")]
pub(crate) use self::{
    elicitation_budget::too_many_elicitations,
    pages::PagedList,
    rate_limit::RateLimit,
    raw::{RawReply, RawRequest},
    raw_caller::{Callers, ExchangeKey, RawCaller},
    raw_list::RawList,
    subscriptions::SubscriptionHold,
    tap::{AnswerSink, LinkKey, Question, QuestionMethod, ServerTap},
};
pub use crate::protocol::Era;
// Hidden from the docs: the binary chooses its advice by the kind of TLS failure.
#[doc(hidden)]
pub use crate::web::TlsError;
