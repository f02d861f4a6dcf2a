//! Legacy servers, stored on disk so that a start does not probe them.

use std::collections::BTreeMap;
#[cfg(test)]
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use ropeway_config::read_regular;
use ropeway_core::private_file::create_folder;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::sync::lock;
use ropeway_mcp::Era;

/// File format version.
const VERSION: u64 = 1;

/// Maximum file size in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of servers; the oldest entries are removed.
const MAX_SERVERS: usize = 256;

/// Entry lifetime. A server that is updated to the modern era is probed after this time, or as soon as it refuses the legacy
/// handshake.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Age after which an entry is renewed.
const RENEW_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Server eras, by a key for their command or URL. Only legacy servers are stored: for a modern server, the probe is the
/// handshake.
#[derive(Debug)]
pub(super) struct EraCache {
    file: PathBuf,
    /// The file as last read or written.
    file_contents: Mutex<Option<EraFile>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct EraFile {
    version: u64,
    /// When the last legacy handshake took place, in Unix time, by key in hexadecimal digits.
    legacy: BTreeMap<String, u64>,
}

impl EraCache {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, file_contents: Mutex::default() }
    }

    /// Returns a server's cached era, if any.
    pub(super) fn load(&self, key: u64) -> Option<Era> {
        let mut known = lock(&self.file_contents);
        known.get_or_insert_with(|| self.read()).age(key).filter(|age| *age < LIFETIME).map(|_| Era::Legacy)
    }

    pub(super) fn store(&self, key: u64, era: Era) -> io::Result<()> {
        match era {
            Era::Legacy => self.change(key, true),
            Era::Modern => self.remove(key),
        }
    }

    /// Removes a server, so that the next start probes it.
    pub(super) fn remove(&self, key: u64) -> io::Result<()> {
        self.change(key, false)
    }

    fn change(&self, key: u64, is_legacy: bool) -> io::Result<()> {
        let mut known = lock(&self.file_contents);
        let age = known.get_or_insert_with(|| self.read()).age(key);
        let is_known = if is_legacy { age.is_some_and(|age| age < RENEW_AFTER) } else { age.is_none() };
        if is_known {
            return Ok(());
        }
        // Another process may have written the file.
        let mut content = self.read();
        if is_legacy {
            content.legacy.insert(name(key), now());
        } else {
            content.legacy.remove(&name(key));
        }
        content.prune();
        let text = serde_json::to_string(&content)?;
        *known = Some(content);
        create_folder(self.file.parent().unwrap_or(Path::new(".")))?;
        replace_file(&self.file, text.as_bytes(), ReplaceOptions::private().without_sync()).map(drop)
    }

    /// Reads the file. A file that is missing, too large or in another version counts as empty.
    fn read(&self) -> EraFile {
        let read = || {
            let text = read_regular(&self.file, MAX_BYTES).ok()?;
            serde_json::from_str::<EraFile>(&text).ok().filter(|content| content.version == VERSION)
        };
        read().unwrap_or(EraFile { version: VERSION, legacy: BTreeMap::new() })
    }
}

impl EraFile {
    /// Returns an entry's age. Entries from the future are ignored.
    fn age(&self, key: u64) -> Option<Duration> {
        let at = *self.legacy.get(&name(key))?;
        now().checked_sub(at).map(Duration::from_secs)
    }

    fn prune(&mut self) {
        let now = now();
        self.legacy.retain(|_, at| now.checked_sub(*at).is_some_and(|age| age < LIFETIME.as_secs()));
        let mut times: Vec<u64> = self.legacy.values().copied().collect();
        if times.len() > MAX_SERVERS {
            times.sort_unstable_by(|a, b| b.cmp(a));
            let oldest = times[MAX_SERVERS - 1];
            self.legacy.retain(|_, at| *at >= oldest);
            while self.legacy.len() > MAX_SERVERS {
                self.legacy.pop_first();
            }
        }
    }
}

fn name(key: u64) -> String {
    format!("{key:016x}")
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &std::path::Path, legacy: impl IntoIterator<Item = (u64, u64)>) {
        let legacy = legacy.into_iter().map(|(key, at)| (name(key), at)).collect();
        let content = EraFile { version: VERSION, legacy };
        fs::write(file, serde_json::to_string(&content).expect("JSON")).expect("a file");
    }

    #[test]
    fn legacy_servers_are_stored_and_modern_ones_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("new/eras.json");
        let eras = EraCache::new(file.clone());
        assert_eq!(eras.load(7), None);
        eras.store(7, Era::Legacy).expect("stored");
        // Another process stores another server.
        EraCache::new(file.clone()).store(8, Era::Legacy).expect("stored");
        assert_eq!(
            [7, 8, 9].map(|key| EraCache::new(file.clone()).load(key)),
            [Some(Era::Legacy), Some(Era::Legacy), None]
        );
        eras.store(7, Era::Modern).expect("stored");
        assert_eq!([7, 8].map(|key| EraCache::new(file.clone()).load(key)), [None, Some(Era::Legacy)]);
    }

    #[test]
    fn expired_entries_and_entries_from_the_future_are_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        write(&file, [(1, now() - LIFETIME.as_secs()), (2, now() + 600), (3, now() - 60)]);
        let eras = EraCache::new(file.clone());
        assert_eq!([1, 2, 3].map(|key| eras.load(key)), [None, None, Some(Era::Legacy)]);
        eras.store(4, Era::Legacy).expect("stored");
        assert_eq!(eras.read().legacy.len(), 2);
    }

    #[test]
    fn the_oldest_entries_are_removed_beyond_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        write(&file, (0..2 * MAX_SERVERS as u64).map(|key| (key, now() - 10 - key)));
        let eras = EraCache::new(file);
        eras.store(u64::MAX, Era::Legacy).expect("stored");
        assert_eq!(eras.read().legacy.len(), MAX_SERVERS);
        assert_eq!([0, u64::MAX, MAX_SERVERS as u64].map(|key| eras.load(key).is_some()), [true, true, false]);
    }

    #[test]
    fn an_invalid_file_counts_as_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        for text in ["", "[]", r#"{"version": 99, "legacy": {}}"#, r#"{"version": 1, "legacy": {"a": -1}}"#] {
            fs::write(&file, text).expect("a file");
            assert_eq!(EraCache::new(file.clone()).load(1), None, "{text}");
        }
        fs::File::create(&file).and_then(|file| file.set_len(MAX_BYTES as u64 + 1)).expect("a large file");
        assert_eq!(EraCache::new(file.clone()).load(1), None);
        // Reading a device never ends.
        fs::remove_file(&file).and_then(|()| std::os::unix::fs::symlink("/dev/zero", &file)).expect("a link");
        assert_eq!(EraCache::new(file).load(1), None);
    }
}
