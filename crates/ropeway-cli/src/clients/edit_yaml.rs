//! Entries in a client's YAML file.

use ropeway_config::edit::{EditError, TextEdit, add_map_entry, map_entry, remove_map_entry};
use serde_json::Value;

use super::edit::{Edit, EntryEditor, FileProblem};
use crate::failure;

/// Entries in a top-level map.
pub(super) struct YamlEntries {
    pub(super) key: &'static str,
}

impl EntryEditor for YamlEntries {
    fn entry(&self, text: &str, name: &str) -> Result<Option<Value>, FileProblem> {
        map_entry(text, self.key, name).map_err(|error| self.problem(name, &error))
    }

    fn add(&self, text: &str, name: &str, entry: &Value) -> Result<Vec<Edit>, FileProblem> {
        let added = add_map_entry(text, self.key, name, entry).map_err(|error| self.problem(name, &error))?;
        Ok(vec![edit(added)])
    }

    fn remove(&self, text: &str, name: &str) -> Result<Vec<Edit>, FileProblem> {
        let edits = remove_map_entry(text, self.key, name).map_err(|error| self.problem(name, &error))?;
        Ok(edits.into_iter().map(edit).collect())
    }
}

impl YamlEntries {
    fn problem(&self, name: &str, error: &EditError) -> FileProblem {
        FileProblem(match error {
            EditError::ManualEdit { .. } => {
                format!("`{}.{name}` is written in a form that must be edited by hand", self.key)
            }
            error => failure::chain_text(error),
        })
    }
}

fn edit(TextEdit { range, text, .. }: TextEdit) -> Edit {
    Edit { range, text }
}
