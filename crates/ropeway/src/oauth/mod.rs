//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! [`SignIn`] runs the interactive flow: it finds the authorization server, registers a client, and exchanges the
//! callback of a browser, or a device code, for [`Credentials`]. [`obtain_credentials`] does the same for grants without a person.
//! A [`TokenStore`] keeps the credentials for other processes.
//!
//! A connection ([`Mcp`](crate::mcp::Mcp)) authorizes its requests by itself: it loads stored tokens, refreshes them, and asks the
//! handler [`on_sign_in`](crate::mcp::Handlers::on_sign_in) for a sign-in if a server needs one. Programs use the functions of this
//! module to sign in at another time.

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
pub mod store;
mod text;
mod token_command;
mod token_endpoint;
mod token_set;

pub(crate) use self::authorizer::{Access, AuthHost, Authorizer};
pub use self::challenge::{Challenge, ChallengeScheme};
pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::device::DeviceAuthorization;
pub use self::error::{OAuthError, SharedError};
pub use self::machine_grant::obtain_credentials;
pub(crate) use self::recovery::{MAX_RECOVERIES, Refusal, Waiting};
pub use self::refresh::{Revocation, refresh_credentials, revoke};
pub use self::sign_in::{SignIn, SignInOptions};
pub use self::sign_in_request::{SignInAnswer, SignInReason, SignInRequest};
pub use self::store::{StoreError, TokenStore};
pub use self::token_set::TokenSet;
