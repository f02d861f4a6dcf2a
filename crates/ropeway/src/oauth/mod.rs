//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! A connection ([`Mcp`](crate::mcp::Mcp)) authorizes its requests by itself: it loads tokens from a [`TokenStore`], refreshes
//! them, and calls the handler [`on_sign_in`](crate::mcp::Handlers::on_sign_in) if a server needs a sign-in. The other functions
//! of this module sign in independently of a connection:
//!
//! - [`SignIn`] lets the user sign in, with a browser or with a code on another device.
//! - [`obtain_credentials`] obtains tokens without a user, for example with the secret of a client.
//! - [`TokenStore`] keeps the resulting [`Credentials`] for connections of this and other processes.
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

mod active_token;
mod address;
mod assertion;
mod authorization;
mod authorizer;
mod challenge;
mod client;
mod credentials;
mod device;
mod discovery;
mod dpop;
mod dpop_nonces;
mod error;
mod grants;
mod guard;
mod http;
mod keys;
mod machine_grant;
mod metadata;
mod oauth_client;
mod pem;
mod random;
mod recovery;
mod refresh;
mod refusal;
mod registration;
mod renewal;
mod scopes;
mod serialized;
mod server_clock;
mod sign_in;
mod sign_in_clock;
mod sign_in_request;
// Hidden from the docs: lists, locks, exports and the keyring, for the binary; `TokenStore` is documented in this module.
#[doc(hidden)]
pub mod store;
mod text;
mod token_command;
mod token_endpoint;
mod token_set;

pub(crate) use self::authorizer::{Access, AuthHost, Authorizer};
// Hidden from the docs: connections parse and pass on challenges; the binary reads one for its advice.
#[doc(hidden)]
pub use self::challenge::{Challenge, ChallengeScheme};
// Hidden from the docs: `Credentials` keep it for a refresh; used by tests.
#[doc(hidden)]
pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::device::DeviceAuthorization;
pub use self::error::{OAuthError, SharedError};
pub use self::machine_grant::obtain_credentials;
pub(crate) use self::recovery::{MAX_RECOVERIES, Refusal, Waiting};
// Hidden from the docs: connections refresh their tokens themselves, while they hold the lock of the store; used by tests.
#[doc(hidden)]
pub use self::refresh::refresh_credentials;
// Hidden from the docs: `Credentials::revoke` does the same without details; used by the binary.
#[doc(hidden)]
pub use self::refresh::{Revocation, revoke};
pub use self::sign_in::{SignIn, SignInOptions};
pub use self::sign_in_request::{SignInAnswer, SignInReason, SignInRequest};
pub use self::store::{StoreError, TokenStore};
// Hidden from the docs: `Credentials` return the access token and its expiry; used by tests.
#[doc(hidden)]
pub use self::token_set::TokenSet;
