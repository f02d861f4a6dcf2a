//! Servers whose requests need a separate connection for each client, remembered across gateway restarts.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::client::journal::now;
use ropeway_core::private_file;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::sync::lock;

/// Maximum number of servers that are remembered. The oldest ones are forgotten.
const MAX_SERVERS: usize = 256;

/// Maximum file size.
const MAX_FILE_BYTES: u64 = 64 << 10;

#[derive(Default, Serialize, Deserialize)]
struct Content {
    /// When each server was added, in seconds since 1970, by server identity.
    #[serde(default)]
    asking: BTreeMap<String, u64>,
}

/// Servers whose requests need a separate connection for each client. Without a path, they are kept in memory only.
///
/// [`insert`](Self::insert) changes the set in memory, and the gateway's background task [saves](Self::save) it.
#[derive(Default)]
pub(crate) struct AskingServers {
    path: Option<PathBuf>,
    content: Mutex<Content>,
    changed: Notify,
}

impl AskingServers {
    /// Reads the servers from a file beside a session journal. A file that cannot be read counts as empty.
    pub(crate) fn open_beside(journal: &Path) -> Self {
        let path = journal.with_extension("servers.json");
        let mut content = match read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => {
                tracing::warn!("could not read `{}`: {error}", path.display());
                Content::default()
            }
        };
        content.trim();
        Self { path: Some(path), content: Mutex::new(content), changed: Notify::new() }
    }

    /// Returns `true` if a server is known.
    pub(crate) fn contains(&self, identity: &str) -> bool {
        lock(&self.content).asking.contains_key(identity)
    }

    /// Adds a server. Returns `false` if it is known.
    pub(crate) fn insert(&self, identity: &str) -> bool {
        let mut content = lock(&self.content);
        if content.asking.contains_key(identity) {
            return false;
        }
        content.asking.insert(identity.to_owned(), now());
        content.trim();
        drop(content);
        self.changed.notify_one();
        true
    }

    /// Waits until a server was added.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Writes the servers to the file. Blocks.
    pub(crate) fn save(&self) {
        let Some(path) = &self.path else { return };
        let text = serde_json::to_vec(&*lock(&self.content)).unwrap_or_default();
        let folder = path.parent().map_or(Ok(()), private_file::create_folder);
        if let Err(error) = folder.and_then(|()| replace_file(path, &text, ReplaceOptions::private())) {
            tracing::warn!("could not write `{}`: {error}", path.display());
        }
    }
}

impl Content {
    fn trim(&mut self) {
        while self.asking.len() > MAX_SERVERS {
            let oldest =
                self.asking.iter().min_by_key(|(_, added_at)| **added_at).map(|(identity, _)| identity.clone());
            self.asking.remove(&oldest.unwrap_or_default());
        }
    }
}

fn read(path: &Path) -> io::Result<Content> {
    let mut text = Vec::new();
    private_file::open_direct(path)?.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn servers_are_known_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("gateway/sessions-1.jsonl");
        let before = AskingServers::open_beside(&journal);
        assert!(before.insert("a") && !before.insert("a") && !before.contains("b"));
        before.save();
        let after = AskingServers::open_beside(&journal);
        assert!(after.contains("a") && !after.contains("b"));
        let file = folder.path().join("gateway/sessions-1.servers.json");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_file_is_bounded_and_a_broken_one_is_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = folder.path().join("sessions.jsonl");
        let servers = AskingServers::open_beside(&journal);
        for number in 0..2 * MAX_SERVERS {
            servers.insert(&format!("{number:016x}"));
        }
        assert_eq!(lock(&servers.content).asking.len(), MAX_SERVERS);
        servers.save();
        let file = folder.path().join("sessions.servers.json");
        assert!(fs::metadata(&file).expect("a file").len() < MAX_FILE_BYTES);
        for broken in ["", "[1]", r#"{"asking":7}"#, "\u{0}", r#"{"asking":{"a":-1}}"#] {
            fs::write(&file, broken).expect("a file");
            assert!(!AskingServers::open_beside(&journal).contains("a"), "{broken}");
        }
    }
}
