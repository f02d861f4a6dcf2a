//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! [`SignIn`] runs the interactive flow: it finds the authorization server, registers a client, and exchanges the
//! callback of a browser, or a device code, for [`Credentials`].

mod challenge;
mod client;
mod credentials;
mod error;
mod random;
mod serialized;
pub mod store;
mod text;
mod token_set;

pub use self::challenge::{Challenge, ChallengeScheme};
pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::error::{OAuthError, SharedError};
pub use self::store::{StoreError, TokenStore};
pub use self::token_set::TokenSet;
