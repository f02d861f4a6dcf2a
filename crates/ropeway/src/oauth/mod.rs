//! OAuth for servers that need a sign-in.

mod client;
mod credentials;
mod serialized;
pub mod store;
mod token_set;

pub use self::client::RegisteredClient;
pub use self::credentials::Credentials;
pub use self::store::{StoreError, TokenStore};
pub use self::token_set::TokenSet;
