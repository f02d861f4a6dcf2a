//! Secrets: values that must not be seen, and the mask that hides them wherever text goes out.

mod automaton;
mod encoding;
mod filter;
mod finder;
mod mask;
mod matcher;
mod pattern;
mod signs;
mod spelling;
mod stream;

use std::fmt;

pub use self::mask::Redactor;
#[cfg(feature = "providers")]
pub(crate) use self::signs::in_secret_header;
pub(crate) use self::signs::{in_arguments, in_header, in_named, in_url, is_placeholder};
pub use self::stream::StreamRedactor;

/// A value that must not be seen: it has no `Display`, and its `Debug` is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}
