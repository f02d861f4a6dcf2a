//! A completion candidate.

use crate::terminal::text::{cut, first_sentence};

/// Maximum description width in columns.
const MAX_DESCRIPTION: usize = 60;

/// A possible completion for the current word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) value: String,
    pub(super) description: String,
}

impl Candidate {
    pub(super) fn new(value: impl Into<String>, description: &str) -> Self {
        Self { value: value.into(), description: cut(&first_sentence(description), MAX_DESCRIPTION) }
    }

    /// Returns `true` if the word continues after the candidate.
    pub(super) fn is_open(&self) -> bool {
        self.value.ends_with(['=', '.'])
    }
}
