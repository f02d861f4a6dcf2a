//! The list kinds that clients request.

use serde::{Deserialize, Serialize};

/// A list in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// A list's names in the protocol.
pub(crate) struct ListNames {
    /// The method that returns the list.
    pub(crate) method: &'static str,
    /// The result member that holds the entries.
    pub(crate) key: &'static str,
    /// The capability that servers with the list declare.
    pub(crate) capability: &'static str,
    /// The entry member that identifies an entry.
    pub(crate) id: &'static str,
    /// The word for an entry, in warnings.
    pub(crate) noun: &'static str,
}

impl ListKind {
    /// Returns the list's names.
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
