//! Secret values, and the redactor that removes them from outgoing text.

mod accounts;
mod automaton;
mod detection;
mod encoding;
mod escape;
mod escape_finder;
mod filter;
mod matcher;
mod pattern;
mod redactor;
mod shared;
mod stream;
mod value;

pub use self::accounts::AccountRedactor;
pub use self::detection::in_secret_header;
pub use self::detection::{in_arguments, in_named, in_url, names_secret};
pub use self::detection::{in_header, is_placeholder};
pub use self::redactor::Redactor;
pub use self::shared::SharedRedactor;
pub use self::stream::StreamRedactor;
pub use self::value::Secret;
