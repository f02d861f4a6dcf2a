//! The types and traits that most programs use.
//!
//! ```
//! use ropeway::prelude::*;
//! ```

#[cfg(feature = "agent")]
#[doc(no_inline)]
pub use crate::agent::{Agent, AgentServer, Step, Turn};
#[cfg(feature = "bridge")]
#[doc(no_inline)]
pub use crate::bridge::Bridge;
#[cfg(feature = "bridge")]
#[doc(no_inline)]
pub use crate::config::{Config, Secrets};
#[doc(no_inline)]
pub use crate::config::{HttpServer, ServerConfig, StdioServer};
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
#[cfg(feature = "bridge")]
#[doc(no_inline)]
pub use crate::registry::Registry;
#[doc(no_inline)]
pub use crate::tool::{CallContext, IntoArguments, IntoTool, LocalTool, Tool, ToolDefinition, ToolOutput};
