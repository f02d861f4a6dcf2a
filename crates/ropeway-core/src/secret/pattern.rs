//! A byte pattern that the redactor searches for.

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) bytes: Vec<u8>,
    /// Whether the base64 digit that follows holds bits of the secret, or is padding, and belongs to the match.
    pub(super) takes_next_digit: bool,
}

impl Pattern {
    /// Creates a pattern that covers the whole secret.
    pub(super) fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, takes_next_digit: false }
    }
}
