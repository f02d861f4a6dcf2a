//! Serves all servers of a configuration as one MCP server.
//!
//! [`Gateway::builder`] takes a [`Config`](crate::config::Config). [`Gateway::serve_http`], [`serve_stdio`](Gateway::serve_stdio)
//! and [`serve_lines`](Gateway::serve_lines) serve clients over HTTP, a pair of streams, and a Unix socket. Clients and servers
//! of both protocol eras work together. Results are forwarded byte for byte. [`GatewaySettings`](crate::config::GatewaySettings),
//! the `gateway` section of a configuration file, sets authentication, limits, profiles and logs; [`GatewayBuilder`] sets
//! program-specific options.
//!
//! # Examples
//!
//! A gateway whose sessions survive a restart, which uses the sign-ins of `ropeway login`, and which ends with Ctrl-C:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ropeway::config::{Config, Secrets};
//! use ropeway::gateway::Gateway;
//! use ropeway::oauth::TokenStore;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load("ropeway.yaml".as_ref(), &Secrets::from_env())?;
//! let gateway = Gateway::builder(config)
//!     .session_key_file("/var/lib/ropeway/gateway/keys")
//!     .token_store(TokenStore::default_location()?)
//!     .build()?;
//! for status in gateway.start().await? {
//!     println!("{status}");
//! }
//! tokio::select! {
//!     ended = gateway.serve_http(std::net::TcpListener::bind("127.0.0.1:8931")?) => ended?,
//!     _ = tokio::signal::ctrl_c() => gateway.drain(Duration::from_secs(10)).await,
//! }
//! # Ok(())
//! # }
//! ```

mod accept;
mod asking_servers;
mod auth;
mod builder_shortcuts;
mod calls;
mod catalog;
mod certificate;
mod client;
mod clients;
mod connections;
mod cursor;
mod dispatch;
mod entry_rules;
mod errors;
mod event_stream;
mod event_text;
mod exchange;
mod exchanges;
mod gateway_error;
mod handle;
mod header_view;
mod health_cache;
mod http;
mod journal;
mod key_source;
mod limits;
mod line_io;
mod link_users;
mod list_kind;
mod listen;
mod lists;
mod method;
mod methods;
mod names;
mod notification;
mod observe;
mod origin;
mod otlp;
mod outbound;
mod page;
mod parked;
mod pipe;
mod principal;
mod principal_tools;
mod profile;
mod progress;
mod relay;
mod replay;
mod reply;
mod request_identity;
mod requester;
mod restart_limit;
mod retry;
mod router;
mod running;
mod seal;
mod search;
mod server_limits;
mod server_list;
mod server_params;
mod session;
mod session_table;
mod shared;
mod shares;
mod sign_in;
mod sign_in_offer;
mod sign_in_rights;
mod socket;
mod startup;
mod stats_client;
mod stdio;
mod step;
mod subscribe;
mod subscriptions;
mod switchboard;
mod task_ids;
mod tasks;
mod tls;
mod translate;
mod upkeep;
mod upstream;
mod uris;

// Hidden from the docs: `ropeway key` manages the file.
#[doc(hidden)]
pub use self::auth::{ClientKey, KeyFile, KeyFileError, KeyLimits, NewKey};
pub use self::gateway_error::GatewayError;
pub use self::handle::{Gateway, GatewayBuilder};
// Hidden from the docs: methods of `GatewayBuilder` set it; used by the binary.
#[doc(hidden)]
pub use self::key_source::KeySource;
// Hidden from the docs: `GatewayBuilder::otlp_from_env` creates it; used by the binary.
#[doc(hidden)]
pub use self::otlp::OtlpSettings;
// Hidden from the docs: used by `ropeway top`.
#[doc(hidden)]
pub use self::observe::{GatewayStats, LatencyHistogram, OperationStats};
// Hidden from the docs: used by `ropeway top`.
#[doc(hidden)]
pub use self::stats_client::{GatewayEvents, StatsError, fetch_stats, follow_events};
// Hidden from the docs: the binary chooses its advice by the problem with the keys.
#[doc(hidden)]
pub use self::seal::KeyError;
// Hidden from the docs: used by tests; the counts are internals of the gateway.
#[doc(hidden)]
pub use self::shared::GatewayStatus;
// Hidden from the docs: it is the source of an error, which describes it.
#[doc(hidden)]
pub use self::tls::TlsError;
