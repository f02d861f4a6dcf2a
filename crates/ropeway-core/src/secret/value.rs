//! A secret value.

use std::fmt;

use crate::conversions::conversions;

/// A value that must not be shown. It has no `Display`, and its `Debug` output is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the value, for the code that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

conversions!(Secret {
    value: &str => Self::new(value);
    value: String => Self::new(value);
});
