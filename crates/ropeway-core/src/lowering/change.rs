//! The report of changes to a schema.

/// A difference between a definition and its lowered schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaChange {
    /// JSON Pointer into the input schema.
    pub path: String,
    /// The changed keyword.
    pub keyword: String,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// A kind of change to a keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A reference was replaced by its target.
    Inlined,
    /// The keyword was moved to the description.
    Described,
    /// The keyword was rewritten to this.
    Rewritten(String),
    /// The dialect requires a keyword that the definition does not have.
    Added,
    /// The keyword was removed.
    Dropped,
}
