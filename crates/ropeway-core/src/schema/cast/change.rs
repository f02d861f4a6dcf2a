//! The changes that a cast makes.

use serde::Serialize;
use serde_json::Value;

/// A change by a cast to a schema. Each path is a JSON Pointer to the changed part.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "edit", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueChange {
    /// A missing property was set to its default.
    Filled {
        /// The property.
        path: String,
    },
    /// A scalar was converted to another type.
    Coerced {
        /// The scalar.
        path: String,
        /// The original value.
        from: Value,
    },
    /// A property that the schema forbids was removed.
    Dropped {
        /// The property.
        path: String,
    },
}
