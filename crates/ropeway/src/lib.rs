//! Ropeway connects the tools of [MCP] servers to Rust programs and to models.
//!
//! [`Bridge`] starts the servers in a configuration file, keeps them connected, and calls their tools:
//!
//! ```no_run
//! use serde_json::json;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), ropeway::Error> {
//!     let bridge = ropeway::Bridge::from_file("ropeway.yaml")?;
//!     bridge.start().await?;
//!     let envelope = bridge.call("demo.calculate", json!({"expression": "6 * 7"})).await;
//!     println!("{envelope}");
//!     Ok(())
//! }
//! ```
//!
//! [`Agent`] offers the tools to a model and runs the model's calls:
//!
//! ```no_run
//! # async fn run() -> Result<(), ropeway::Error> {
//! use ropeway::prelude::*;
//!
//! let agent = Agent::builder()
//!     .provider(Provider::from_env(Dialect::Anthropic)?)
//!     .model("claude-sonnet-4-5")
//!     .mcp(ServerConfig::new("time", StdioServer::command("uvx").with_args(["mcp-server-time"])))
//!     .build()?;
//! println!("{}", agent.send("What time is it in Tokyo?").await?.text);
//! # Ok(()) }
//! ```
//!
//! # Where to start
//!
//! | to | use |
//! |---|---|
//! | connect to one server | [`Mcp`] |
//! | connect to the servers in a configuration file | [`Config`], [`Bridge`] |
//! | sign in to a server with OAuth | [`oauth`], [`Handlers::on_sign_in`](mcp::Handlers::on_sign_in) |
//! | combine tools from several servers and the program | [`Registry`], [`LocalTool`] |
//! | read a call's outcome | [`Envelope`] |
//! | send a request to a model | [`Provider`], [`ChatRequest`](provider::ChatRequest) |
//! | run a model with tools | [`Agent`], or [`agent::stream`] for a custom loop |
//! | serve all servers to other MCP clients | `gateway::Gateway` |
//! | test a client without a real server or model | `testing` |
//!
//! Types that most programs need are at the root of the crate and in the [`prelude`]; everything else is in its module.
//!
//! # Features
//!
//! - `agent` (default): everything except `gateway`, `testing` and `arbitrary-precision`.
//! - `mcp`: one connection ([`Mcp`]), and OAuth ([`oauth`]).
//! - `bridge`: configuration files, many connections and registries.
//! - `providers`: models without MCP.
//! - `gateway`: all servers in a configuration behind one MCP endpoint (`gateway::Gateway`).
//! - `testing`: scripted servers and models for tests.
//! - `arbitrary-precision`: preserves every digit of numbers that are passed through. It enables the `serde_json` feature with
//!   the same name for the whole program; types that read an `f64` from an untagged, flattened or internally tagged field then
//!   reject fractions. See [`json`].
//!
//! # Security
//!
//! A configuration file can name commands to run and secrets to send. The library asks for no confirmation: only load files that
//! you trust. Servers are not trusted: their messages are bounded in size, time and rate, and known secrets are removed from
//! everything that reaches logs, events, errors and models.
//!
//! [MCP]: https://modelcontextprotocol.io

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "bridge")]
pub mod bridge;
pub mod checked;
pub mod config;
pub mod content;
pub mod envelope;
mod error;
pub mod event;
#[cfg(feature = "gateway")]
pub mod gateway;
pub mod json;
pub mod lock;
pub mod lowering;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod message;
#[cfg(feature = "mcp")]
pub mod oauth;
pub mod prelude;
#[cfg(feature = "providers")]
pub mod provider;
#[cfg(feature = "bridge")]
pub mod registry;
pub mod schema;
pub mod secret;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;

/// The library guide's programs, which `cargo test --doc` compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryGuide;

#[cfg(feature = "agent")]
pub use self::agent::{Agent, AgentError, AgentServer, Step, Turn, TurnOutcome};
pub use self::config::{Config, ConfigError, HttpServer, Secrets, ServerConfig, StdioServer};
pub use self::content::ContentPart;
pub use self::envelope::Envelope;
pub use self::error::Error;
pub use self::event::Event;
#[cfg(feature = "mcp")]
pub use self::mcp::{ConnectError, Mcp};
pub use self::message::{Conversation, Dialect, Message};
#[cfg(feature = "providers")]
pub use self::provider::{Provider, ProviderError, ProviderSettings};
pub use self::tool::{CallContext, CallError, LocalTool, Tool, ToolDefinition, ToolOutput};
#[cfg(feature = "bridge")]
pub use self::{
    bridge::{Bridge, BridgeError},
    registry::{Registry, ServerStatus},
};
pub use ropeway_core::parse_error::ParseError;
