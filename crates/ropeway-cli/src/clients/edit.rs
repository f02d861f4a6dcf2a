//! Edits that change a client's file and keep every other byte.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Text that replaces a range of another text. Ranges are byte offsets into the text before all edits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

impl Edit {
    /// Inserts text.
    pub(crate) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    /// Removes a range.
    pub(crate) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }

    /// Applies edits, which are in order and do not overlap. Returns `None` if they do not fit the text.
    pub(crate) fn apply(edits: &[Self], text: &str) -> Option<String> {
        let mut edited = String::new();
        let mut end = 0;
        for Self { range, text: new } in edits {
            edited.push_str(text.get(end..range.start)?);
            edited.push_str(new);
            end = range.end;
        }
        edited.push_str(text.get(end..)?);
        Some(edited)
    }

    /// Returns the edits that undo insertions.
    pub(crate) fn undo(insertions: &[Self]) -> Vec<Self> {
        let mut added = 0;
        let undo = insertions.iter().map(|edit| {
            let start = edit.range.start + added;
            added += edit.text.len();
            Self::remove(start..start + edit.text.len())
        });
        undo.collect()
    }
}

/// Why a client's file cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileProblem(pub(crate) String);

/// Edits entries in a client's file.
pub(crate) trait EntryEditor {
    /// Returns the entry with this name, if the file has one.
    fn entry(&self, text: &str, name: &str) -> Result<Option<Value>, FileProblem>;

    /// Returns the insertions that add an entry. The file must not have an entry with that name.
    fn add(&self, text: &str, name: &str, entry: &Value) -> Result<Vec<Edit>, FileProblem>;

    /// Returns the edits that remove an entry.
    fn remove(&self, text: &str, name: &str) -> Result<Vec<Edit>, FileProblem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_are_undone_exactly() {
        let text = "one two three";
        let edits = [Edit::insert(3, ","), Edit::insert(7, " and a half,"), Edit::insert(13, "!")];
        let edited = Edit::apply(&edits, text).expect("edits that fit");
        assert_eq!(edited, "one, two and a half, three!");
        assert_eq!(Edit::apply(&Edit::undo(&edits), &edited).as_deref(), Some(text));
        assert_eq!(Edit::apply(&[Edit::insert(99, "x")], text), None);
    }
}
