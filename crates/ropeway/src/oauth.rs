//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! A connection ([`Mcp`](crate::Mcp)) authorizes its requests by itself: it loads tokens from a [`TokenStore`], refreshes them,
//! and calls the handler [`on_sign_in`](crate::mcp::Handlers::on_sign_in) if a server needs a sign-in. This module's other
//! functions sign in independently of a connection:
//!
//! - [`SignIn`] lets the user sign in, with a browser or with a code on another device.
//! - [`obtain_credentials`] obtains tokens without a user, for example with a client secret.
//! - [`TokenStore`] keeps the resulting [`Credentials`] for connections in this and other processes.
//! - [`Credentials::revoke`] ends a sign-in.
//!
//! [`OAuthSettings`](crate::config::OAuthSettings) sets the client, the scopes and the grant.
//!
//! # Examples
//!
//! Lets the user sign in when a connection needs it:
//!
//! ```no_run
//! use ropeway::event::Events;
//! use ropeway::mcp::Handlers;
//! use ropeway::oauth::{SignInAnswer, TokenStore};
//! use ropeway::prelude::*;
//!
//! # async fn open_browser_and_wait(_: &str) -> String { String::new() }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let handlers = Handlers::new().with_token_store(TokenStore::default_location()?).on_sign_in(|request| async move {
//!     let mut sign_in = request.start().await?;
//!     let url = sign_in.prepare("http://127.0.0.1:8123/callback").await?;
//!     // Opens the URL, and returns the one that the browser is redirected to.
//!     let callback = open_browser_and_wait(&url).await;
//!     Ok(SignInAnswer::from(sign_in.finish(&callback).await?))
//! });
//! let config = ServerConfig::new("web", HttpServer::new("https://example.com/mcp"));
//! let server = Mcp::with_host(config, handlers, Events::default());
//! server.connect().await?;
//! println!("{}", server.call("search", serde_json::json!({"query": "ropeway"})).await);
//! # Ok(()) }
//! ```
//!
//! Signs in with a code on another device, before any connection exists:
//!
//! ```no_run
//! use ropeway::oauth::{SignIn, SignInOptions, TokenStore};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut sign_in = SignIn::start(SignInOptions::new("https://example.com/mcp")).await?;
//! let device = sign_in.device().await?;
//! println!("Open {} and enter {}", device.verification_uri, device.user_code);
//! let credentials = sign_in.wait_for_device(&device).await?;
//! TokenStore::default_location()?.save(&credentials).await?;
//! # Ok(()) }
//! ```

pub use ropeway_mcp::oauth::{
    Credentials, DeviceAuthorization, OAuthError, SharedError, SignIn, SignInAnswer, SignInOptions, SignInReason,
    SignInRequest, StoreError, TokenStore, obtain_credentials,
};
