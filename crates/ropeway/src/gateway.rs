//! Serves all servers in a configuration as one MCP server.
//!
//! [`Gateway::builder`] takes a [`Config`](crate::config::Config). [`Gateway::serve_http`], [`serve_stdio`](Gateway::serve_stdio)
//! and [`serve_lines`](Gateway::serve_lines) serve clients over HTTP, a pair of streams, and a Unix socket. Clients and servers
//! work together across both protocol eras. Results are forwarded byte for byte.
//! [`GatewaySettings`](crate::config::GatewaySettings), a configuration file's `gateway` section, sets authentication, limits,
//! profiles and logs; [`GatewayBuilder`] sets program-specific options.
//!
//! # Examples
//!
//! A gateway whose sessions survive a restart, which uses the sign-ins from `ropeway login`, and which ends with Ctrl-C:
//!
//! ```no_run
//! use std::net::TcpListener;
//! use std::time::Duration;
//!
//! use ropeway::config::{Config, Secrets};
//! use ropeway::gateway::{Gateway, GatewayError};
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
//! let stop = async {
//!     tokio::signal::ctrl_c().await?;
//!     gateway.drain(Duration::from_secs(10)).await;
//!     Ok::<_, GatewayError>(())
//! };
//! tokio::try_join!(gateway.serve_http(TcpListener::bind("127.0.0.1:8931")?), stop)?;
//! # Ok(())
//! # }
//! ```

pub use ropeway_gateway::{Gateway, GatewayBuilder, GatewayError};
