//! Limits and rules that apply to trees from all file formats.

use std::collections::HashMap;

use super::node::Entry;
use super::position::Position;
use super::problem::{ConfigProblem, in_backticks};

/// Maximum nesting depth for lists and maps.
pub(super) const MAX_DEPTH: usize = 100;

/// Maximum keys per map.
const MAX_KEYS: usize = 10_000;

/// Returns the problem for a file without content.
pub(super) fn empty_file() -> ConfigProblem {
    ConfigProblem::of_file("file is empty, expected a list of `servers`")
}

/// Returns the problem for lists and maps that are nested too deeply.
pub(super) fn too_deep(position: Position) -> ConfigProblem {
    ConfigProblem::new(position, "", format!("lists and maps are nested more than {MAX_DEPTH} levels deep"))
}

/// Rejects maps that are too large to process quickly.
pub(super) fn check_key_count(entries: &[Entry]) -> Result<(), ConfigProblem> {
    match entries.get(MAX_KEYS) {
        None => Ok(()),
        Some(entry) => {
            let message = format!("too many keys in a map: {} (maximum: {MAX_KEYS})", entries.len());
            Err(ConfigProblem::new(entry.position, "", message))
        }
    }
}

/// Rejects duplicate keys.
pub(super) fn check_duplicate_keys(entries: &[Entry]) -> Result<(), ConfigProblem> {
    let mut known = HashMap::new();
    for entry in entries {
        if let Some(Position { line, column }) = known.insert(entry.key.as_str(), entry.position) {
            let message = format!("duplicate key {} (first used at {line}:{column})", in_backticks(&entry.key));
            return Err(ConfigProblem::new(entry.position, "", message));
        }
    }
    Ok(())
}
