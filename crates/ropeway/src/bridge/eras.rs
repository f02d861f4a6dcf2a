//! The servers that speak the legacy era, kept on disk so that they are not probed at every start.

use std::collections::BTreeMap;
#[cfg(test)]
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::private;
use crate::config::read_regular;
use crate::mcp::Era;

/// Changes with the format of the file.
const VERSION: u64 = 1;

/// Largest file that is read.
const LARGEST: usize = 1 << 20;

/// Number of servers that are kept, the newest.
const MOST: usize = 256;

/// How long an entry counts. A server that is updated to the modern era is found out after this time at the latest; until then it is
/// spoken to as before, or probed when it refuses that.
const LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How old an entry must be to be written again.
const RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The eras of servers, by the key of their command or URL. Only legacy ones are kept: the probe is the handshake of a modern server, and
/// costs nothing.
#[derive(Debug)]
pub(super) struct Eras {
    file: PathBuf,
    /// The file as it was read or written last.
    known: Mutex<Option<Content>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    version: u64,
    /// By key in hexadecimal digits: when the server was found to be legacy, in seconds since 1970.
    legacy: BTreeMap<String, u64>,
}

impl Eras {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, known: Mutex::default() }
    }

    /// Returns the era that a server spoke lately, if that is known.
    pub(super) fn recall(&self, key: u64) -> Option<Era> {
        let mut known = self.known();
        let content = known.get_or_insert_with(|| self.read());
        content.age(key).filter(|age| *age < LIFE).map(|_| Era::Legacy)
    }

    /// Keeps the era that a server speaks.
    pub(super) fn keep(&self, key: u64, era: Era) -> io::Result<()> {
        match era {
            Era::Legacy => self.change(key, true),
            Era::Modern => self.forget(key),
        }
    }

    /// Forgets a server: the next start probes it.
    pub(super) fn forget(&self, key: u64) -> io::Result<()> {
        self.change(key, false)
    }

    fn change(&self, key: u64, is_legacy: bool) -> io::Result<()> {
        let mut known = self.known();
        let age = known.get_or_insert_with(|| self.read()).age(key);
        let is_known = if is_legacy { age.is_some_and(|age| age < RENEWAL) } else { age.is_none() };
        if is_known {
            return Ok(());
        }
        // Another process may have written meanwhile.
        let mut content = self.read();
        if is_legacy {
            content.legacy.insert(name(key), now());
        } else {
            content.legacy.remove(&name(key));
        }
        content.prune();
        let text = serde_json::to_string(&content)?;
        *known = Some(content);
        private::write(&self.file, text.as_bytes())
    }

    fn known(&self) -> MutexGuard<'_, Option<Content>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file. One that is missing, too large or of another version is as good as empty.
    fn read(&self) -> Content {
        let read = || {
            let text = read_regular(&self.file, LARGEST).ok()?;
            serde_json::from_str::<Content>(&text).ok().filter(|content| content.version == VERSION)
        };
        read().unwrap_or(Content { version: VERSION, legacy: BTreeMap::new() })
    }
}

impl Content {
    /// Returns how long ago a server was found to be legacy. An entry from the future does not count.
    fn age(&self, key: u64) -> Option<Duration> {
        let at = *self.legacy.get(&name(key))?;
        now().checked_sub(at).map(Duration::from_secs)
    }

    fn prune(&mut self) {
        let now = now();
        self.legacy.retain(|_, at| now.checked_sub(*at).is_some_and(|age| age < LIFE.as_secs()));
        let mut times: Vec<u64> = self.legacy.values().copied().collect();
        if times.len() > MOST {
            times.sort_unstable_by(|a, b| b.cmp(a));
            let oldest = times[MOST - 1];
            self.legacy.retain(|_, at| *at >= oldest);
            while self.legacy.len() > MOST {
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
        let content = Content { version: VERSION, legacy };
        fs::write(file, serde_json::to_string(&content).expect("JSON")).expect("a file");
    }

    #[test]
    fn a_legacy_server_is_remembered_and_a_modern_one_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("new/eras.json");
        let eras = Eras::new(file.clone());
        assert_eq!(eras.recall(7), None);
        eras.keep(7, Era::Legacy).expect("kept");
        // Another process keeps another server.
        Eras::new(file.clone()).keep(8, Era::Legacy).expect("kept");
        assert_eq!(
            [7, 8, 9].map(|key| Eras::new(file.clone()).recall(key)),
            [Some(Era::Legacy), Some(Era::Legacy), None]
        );
        eras.keep(7, Era::Modern).expect("kept");
        assert_eq!([7, 8].map(|key| Eras::new(file.clone()).recall(key)), [None, Some(Era::Legacy)]);
    }

    #[test]
    fn an_old_entry_and_one_from_the_future_do_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        write(&file, [(1, now() - LIFE.as_secs()), (2, now() + 600), (3, now() - 60)]);
        let eras = Eras::new(file.clone());
        assert_eq!([1, 2, 3].map(|key| eras.recall(key)), [None, None, Some(Era::Legacy)]);
        eras.keep(4, Era::Legacy).expect("kept");
        assert_eq!(eras.read().legacy.len(), 2);
    }

    #[test]
    fn the_file_holds_the_newest_entries_up_to_a_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        write(&file, (0..2 * MOST as u64).map(|key| (key, now() - 10 - key)));
        let eras = Eras::new(file);
        eras.keep(u64::MAX, Era::Legacy).expect("kept");
        assert_eq!(eras.read().legacy.len(), MOST);
        assert_eq!([0, u64::MAX, MOST as u64].map(|key| eras.recall(key).is_some()), [true, true, false]);
    }

    #[test]
    fn a_file_that_is_not_ours_is_as_good_as_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("eras.json");
        for text in ["", "[]", r#"{"version": 99, "legacy": {}}"#, r#"{"version": 1, "legacy": {"a": -1}}"#] {
            fs::write(&file, text).expect("a file");
            assert_eq!(Eras::new(file.clone()).recall(1), None, "{text}");
        }
        fs::File::create(&file).and_then(|file| file.set_len(LARGEST as u64 + 1)).expect("a large file");
        assert_eq!(Eras::new(file.clone()).recall(1), None);
        // A device never ends, and a pipe may never begin.
        fs::remove_file(&file).and_then(|()| std::os::unix::fs::symlink("/dev/zero", &file)).expect("a link");
        assert_eq!(Eras::new(file).recall(1), None);
    }
}
