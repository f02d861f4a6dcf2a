//! The changes that a cast makes.

use serde::Serialize;
use serde_json::Value;

/// A change by [`cast`](super::cast()).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueChange {
    /// JSON Pointer to the changed part.
    pub path: String,
    /// The kind of change.
    #[serde(flatten)]
    pub edit: ValueEdit,
}

/// A kind of change by [`cast`](super::cast()).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "edit", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueEdit {
    /// A missing property was set to its default.
    Filled,
    /// A scalar was converted to another type.
    Coerced {
        /// The original value.
        from: Value,
    },
    /// A property that the schema forbids was removed.
    Dropped,
}
