//! The kinds of lists that clients request.

use serde::{Deserialize, Serialize};

/// A list of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// The names of a list in the protocol.
pub(crate) struct ListNames {
    /// The method that returns the list.
    pub(crate) method: &'static str,
    /// The member of the result that holds the entries.
    pub(crate) key: &'static str,
    /// The capability of servers that have the list.
    pub(crate) capability: &'static str,
    /// The member of an entry that identifies it.
    pub(crate) id: &'static str,
    /// The word for an entry, in warnings.
    pub(crate) noun: &'static str,
}

impl ListKind {
    /// Returns the names of the list.
    pub(crate) fn names(self) -> ListNames {
        let (method, key, capability, id, noun) = match self {
            Self::Tools => ("tools/list", "tools", "tools", "name", "tool"),
            Self::Prompts => ("prompts/list", "prompts", "prompts", "name", "prompt"),
            Self::Resources => ("resources/list", "resources", "resources", "uri", "resource"),
            Self::Templates => {
                ("resources/templates/list", "resourceTemplates", "resources", "uriTemplate", "resource template")
            }
        };
        ListNames { method, key, capability, id, noun }
    }
}
