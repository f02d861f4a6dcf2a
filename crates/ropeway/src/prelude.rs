//! The types and traits that most programs use.
//!
//! ```
//! use ropeway::prelude::*;
//! ```

#[cfg(feature = "agent")]
#[doc(no_inline)]
pub use crate::agent::{Agent, AgentServer, Step, Turn};
#[doc(no_inline)]
pub use crate::config::{Config, HttpServer, Secrets, ServerConfig, StdioServer};
#[doc(no_inline)]
pub use crate::content::{Blob, ContentPart};
#[doc(no_inline)]
pub use crate::envelope::Envelope;
#[cfg(feature = "mcp")]
#[doc(no_inline)]
pub use crate::mcp::Mcp;
#[doc(no_inline)]
pub use crate::message::{Conversation, Dialect, Message};
#[cfg(feature = "providers")]
#[doc(no_inline)]
pub use crate::provider::{ChatRequest, Provider, ProviderSettings};
#[doc(no_inline)]
pub use crate::tool::{CallContext, IntoArguments, IntoTool, LocalTool, Tool, ToolDefinition, ToolOutput};
#[cfg(feature = "bridge")]
#[doc(no_inline)]
pub use crate::{bridge::Bridge, registry::Registry};
