//! Secret values, and the redactor that removes them from outgoing text.
//!
//! A [`Secret`] does not show its value in `Debug` output. A [`Redactor`] replaces known secrets in text and JSON.

pub use ropeway_core::secret::{AccountRedactor, Redactor, Secret};
