//! A pattern: bytes that must not be seen in a text.

/// Bytes that must not be seen, and whether the characters behind them belong to the secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) bytes: Vec<u8>,
    /// The base64 digit behind it holds some bits of the secret, or is its padding.
    pub(super) after: bool,
}

impl Pattern {
    /// Bytes that are the secret as a whole.
    pub(super) fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, after: false }
    }
}
