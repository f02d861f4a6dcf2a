//! Schema change report.

/// A difference between a definition and its lowered schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaChange {
    /// JSON Pointer into the input schema.
    pub path: String,
    /// The changed keyword.
    pub keyword: String,
    /// What kind of change this is.
    pub kind: ChangeKind,
}

/// A kind of keyword change.
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
