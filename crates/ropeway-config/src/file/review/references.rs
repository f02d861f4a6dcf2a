//! The references in strings, and the variables that can choose the code a program runs.

use std::collections::BTreeSet;

use super::token::names_command;
use super::types::ValueReference;
use crate::file::reference::{Part, ReferenceError, parts};

/// Variables that make a program load other code.
const CODE_VARIABLES: [&str; 11] = [
    "BASH_ENV",
    "CDPATH",
    "CLASSPATH",
    "ENV",
    "GEM_PATH",
    "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "RUBYLIB",
    "RUBYOPT",
];

/// Prefixes for further such variables.
const CODE_PREFIXES: [&str; 6] = ["DYLD_", "GIT_CONFIG", "LD_", "NPM_CONFIG_", "PERL5", "PYTHON"];

/// Adds the references in a string.
pub(super) fn collect_references(text: &str, references: &mut Vec<ValueReference>) {
    match parts(text) {
        Ok(parts) => {
            for part in parts {
                match part {
                    Part::Name { name, .. } => references.push(ValueReference::Variable(name.to_owned())),
                    Part::File(path) => references.push(ValueReference::File(path.to_owned())),
                    Part::Home => references.push(ValueReference::Variable("HOME".to_owned())),
                    Part::Literal(_) | Part::Workspace | Part::WorkspaceName | Part::Separator => {}
                }
            }
        }
        // Only other clients' files may contain invalid references. They are not replaced.
        Err(ReferenceError::InvalidName(_) | ReferenceError::Unclosed) => {}
    }
}

/// Removes duplicates, keeping the order.
pub(super) fn dedup(mut references: Vec<ValueReference>) -> Vec<ValueReference> {
    let mut known = BTreeSet::new();
    references.retain(|reference| known.insert(reference.clone()));
    references
}

/// Returns `true` if a string refers to a variable or a file.
pub(super) fn has_reference(text: &str) -> bool {
    parts(text).is_ok_and(|parts| parts.iter().any(|part| matches!(part, Part::Name { .. } | Part::File(_))))
}

/// Returns `true` for a variable that can choose the code a program runs.
pub(super) fn loads_code(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    CODE_VARIABLES.contains(&upper.as_str())
        || CODE_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || names_command(name)
}
