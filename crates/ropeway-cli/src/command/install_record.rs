//! What `ropeway install` added to a file, so that `--remove` restores every byte.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clients::Edit;
use crate::failure::Failure;
use crate::files::file;
use crate::files::user_folders::state_folder;
use crate::trust::sha256;

/// What one installation inserted. It contains no text from the file itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InstallRecord {
    /// The file's SHA-256 after the installation.
    after: String,
    /// The insertions.
    edits: Vec<Edit>,
    /// The file did not exist.
    pub(super) is_created: bool,
}

impl InstallRecord {
    pub(super) fn new(after: &str, edits: Vec<Edit>, is_created: bool) -> Self {
        Self { after: sha256(after), edits, is_created }
    }

    /// Reads an entry's record, if it belongs to the file's current text.
    pub(super) fn read(path: &Path, name: &str, text: &str) -> Option<Self> {
        let record: Self = serde_json::from_str(&file::read(&record_path(path, name)?).ok()??).ok()?;
        (record.after == sha256(text)).then_some(record)
    }

    /// Returns `true` if an entry with this name was installed, even if the file was changed later.
    pub(super) fn exists(path: &Path, name: &str) -> bool {
        record_path(path, name).is_some_and(|record| record.is_file())
    }

    /// Returns the text before the installation.
    pub(super) fn undo(&self, text: &str) -> Option<String> {
        Edit::apply(&Edit::undo(&self.edits), text)
    }

    /// Stores the record. Without a state folder, `--remove` may leave white space behind.
    pub(super) fn write(&self, path: &Path, name: &str) -> Result<(), Failure> {
        match record_path(path, name) {
            Some(record) => file::put(&record, &serde_json::to_string(self).unwrap_or_default(), file::PRIVATE),
            None => Ok(()),
        }
    }

    /// Removes an entry's record.
    pub(super) fn delete(path: &Path, name: &str) {
        if let Some(record) = record_path(path, name) {
            // It may not exist.
            let _ = std::fs::remove_file(record);
        }
    }
}

fn record_path(path: &Path, name: &str) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let digest = sha256(&format!("{}\0{name}", path.display()));
    Some(state_folder()?.join("installed").join(format!("{}.json", &digest[..16])))
}
