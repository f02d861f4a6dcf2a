//! Differences between tools or sandboxes and the lock.

use std::fmt;

use serde::Serialize;

use crate::SandboxChange;
use ropeway_core::tool::{Alias, escape_invisible};

/// A difference between a tool and the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Server alias.
    pub server: Alias,
    /// The server's own name for the tool.
    pub tool: String,
    /// Whether the tool is new, changed or gone.
    pub kind: DifferenceKind,
}

/// How a tool differs from the lock, in a [`Difference`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", content = "changes", rename_all = "lowercase")]
pub enum DifferenceKind {
    /// The tool is not in the lock.
    New,
    /// The definition has changed.
    Changed(Vec<String>),
    /// The server does not provide the tool.
    Gone,
}

impl Difference {
    /// Returns the reason for hiding the tool.
    pub fn reason(&self) -> String {
        match &self.kind {
            DifferenceKind::New => "new since the tools were locked; run `ropeway lock`".to_owned(),
            DifferenceKind::Changed(changes) => {
                format!("changed since it was locked ({}); run `ropeway lock`", changes.join(", "))
            }
            DifferenceKind::Gone => "not provided by the server".to_owned(),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tool = escape_invisible(&self.tool);
        write!(f, "tool `{}.{tool}` ", self.server)?;
        match &self.kind {
            DifferenceKind::New => f.write_str("is not in the lock"),
            DifferenceKind::Changed(changes) => write!(f, "changed since it was locked: {}", changes.join(", ")),
            DifferenceKind::Gone => f.write_str("is in the lock, but the server does not provide it"),
        }
    }
}

/// A difference between a server's sandbox and the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxDifference {
    /// Server alias.
    pub server: Alias,
    /// The changes since the sandbox was accepted; never empty.
    pub changes: Vec<SandboxChange>,
}

impl SandboxDifference {
    /// Returns `true` if the server may do more than was accepted.
    pub fn widens(&self) -> bool {
        self.changes.iter().any(|change| change.widens)
    }

    /// Returns the reason for not starting the server, or for warning about it.
    pub fn reason(&self) -> String {
        let widened = self.changes.iter().filter(|change| change.widens).map(|change| escape_invisible(&change.text));
        let widened = widened.collect::<Vec<_>>().join(", ");
        format!("its sandbox is wider than the locked one ({widened}); run `ropeway lock` to accept it")
    }
}
