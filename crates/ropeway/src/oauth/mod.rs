//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! [`SignIn`] runs the interactive flow: it finds the authorization server, registers a client, and exchanges the
//! callback of a browser, or a device code, for [`Credentials`].

mod active_token;
mod authorizer;
mod challenge;
mod client;
mod credentials;
mod error;
mod random;
mod recovery;
mod serialized;
mod sign_in_clock;
mod sign_in_request;
pub mod store;
mod stub;
mod text;
mod token_command;
mod token_set;

pub(crate) use self::authorizer::{Access, AuthHost, Authorizer};
pub use self::challenge::{Challenge, ChallengeScheme};
pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::error::{OAuthError, SharedError};
pub(crate) use self::recovery::{MAX_RECOVERIES, Refusal, Waiting};
pub use self::sign_in_request::{SignInAnswer, SignInReason, SignInRequest};
pub use self::store::{StoreError, TokenStore};
pub use self::stub::{SignIn, SignInOptions};
pub use self::token_set::TokenSet;
