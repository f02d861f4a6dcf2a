//! Secret values, and the redactor that removes them from outgoing text.
//!
//! A [`Secret`] does not show its value in `Debug` output. A [`Redactor`] replaces known secrets in text and JSON.

#[cfg(feature = "mcp")]
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
#[cfg(feature = "mcp")]
mod shared;
mod stream;
mod value;

#[cfg(feature = "mcp")]
pub use self::accounts::AccountRedactor;
#[cfg(feature = "providers")]
pub(crate) use self::detection::in_secret_header;
pub(crate) use self::detection::{in_header, is_placeholder};
// Hidden from the docs: used by the binary; not covered by semantic versioning.
#[doc(hidden)]
pub use self::detection::{in_arguments, in_named, in_url, names_secret};
pub use self::redactor::Redactor;
#[cfg(feature = "mcp")]
pub(crate) use self::shared::SharedRedactor;
// Hidden from the docs: redacts a stream of text; used by the binary.
#[doc(hidden)]
pub use self::stream::StreamRedactor;
pub use self::value::Secret;
