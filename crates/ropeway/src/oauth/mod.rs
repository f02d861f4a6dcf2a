//! OAuth for servers that need a sign-in
//! ([Authorization](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization)).
//!
//! [`SignIn`] runs the interactive flow: it finds the authorization server, registers a client, and exchanges the
//! callback of a browser, or a device code, for [`Credentials`].

mod address;
mod assertion;
mod authorization;
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
mod refresh;
mod refusal;
mod registration;
mod scopes;
mod serialized;
mod server_clock;
mod sign_in;
pub mod store;
mod text;
mod token_endpoint;
mod token_set;

pub use self::challenge::{Challenge, ChallengeScheme};
pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::device::DeviceAuthorization;
pub use self::error::{OAuthError, SharedError};
pub use self::machine_grant::obtain_credentials;
pub use self::refresh::{refresh_credentials, revoke};
pub use self::sign_in::{SignIn, SignInOptions};
pub use self::store::{StoreError, TokenStore};
pub use self::token_set::TokenSet;
// For the authorizer.
#[allow(unused_imports)]
pub(crate) use self::{
    dpop::DpopKey,
    dpop_nonces::DpopNonces,
    http::{DPOP_NONCE, OAuthHttp},
    machine_grant::machine_grant,
    oauth_client::DPOP,
    refresh::refresh,
    scopes::step_up_scopes,
};
