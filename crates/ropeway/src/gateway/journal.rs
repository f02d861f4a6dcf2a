//! A file with the parts of sessions that their sealed ids cannot hold: log levels, subscriptions and ended sessions.
//!
//! Each line is a change. At start, the gateway reads all lines and rewrites the file with the current state.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::sync::lock;

/// Size above which the file is rewritten.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Maximum length of a line. Longer changes are kept in memory only.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Maximum number of sessions in the journal.
const MAX_SESSIONS: usize = 100_000;

/// The parts of a session that its id does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionNotes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log_level: Option<String>,
    /// The subscribed resources, by the URIs of the client.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) subscriptions: BTreeSet<String>,
    /// Set once the client has ended the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ended: bool,
    /// When the id of the session expires, in seconds since 1970.
    pub(crate) expires: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    session: String,
    #[serde(flatten)]
    notes: SessionNotes,
}

/// The journal of a gateway. Without a path, it is kept in memory only.
pub(crate) struct Journal {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<String, SessionNotes>,
    file: Option<fs::File>,
    size: u64,
}

impl Journal {
    /// Creates a journal in memory.
    pub(crate) fn in_memory() -> Self {
        Self { path: None, state: Mutex::default() }
    }

    /// Opens a journal. Lines that cannot be read are skipped.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut state = State::default();
        match fs::File::open(path) {
            Ok(file) => state.sessions = read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        state.rewrite(path)?;
        Ok(Self { path: Some(path.to_owned()), state: Mutex::new(state) })
    }

    /// Returns the notes about a session.
    pub(crate) fn notes(&self, session: &str) -> Option<SessionNotes> {
        lock(&self.state).sessions.get(session).cloned()
    }

    /// Changes the notes about a session whose id expires at the given time.
    pub(crate) fn change(&self, session: &str, expires: u64, change: impl FnOnce(&mut SessionNotes)) {
        let mut state = lock(&self.state);
        if state.sessions.len() >= MAX_SESSIONS && !state.sessions.contains_key(session) {
            let now = now();
            state.sessions.retain(|_, notes| notes.expires > now);
            if state.sessions.len() >= MAX_SESSIONS {
                return;
            }
        }
        let notes = state.sessions.entry(session.to_owned()).or_default();
        notes.expires = expires;
        change(notes);
        let line = Line { session: session.to_owned(), notes: notes.clone() };
        let Some(path) = &self.path else { return };
        if let Err(error) = state.append(path, &line) {
            tracing::warn!("could not write the session journal {}: {error}", path.display());
        }
    }
}

impl State {
    fn append(&mut self, path: &Path, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if text.len() > MAX_LINE_BYTES {
            return Err(io::Error::other("the session has too many subscriptions"));
        }
        if self.size > MAX_FILE_BYTES {
            return self.rewrite(path);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&text)?;
            self.size += text.len() as u64;
        }
        Ok(())
    }

    /// Writes all sessions that have not expired to a new file.
    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        let now = now();
        self.sessions.retain(|_, notes| notes.expires > now);
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut text = Vec::new();
        for (session, notes) in &self.sessions {
            serde_json::to_writer(&mut text, &Line { session: session.clone(), notes: notes.clone() })?;
            text.push(b'\n');
        }
        let new = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
        let mut options = fs::OpenOptions::new();
        let written = options.append(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
            file.write_all(&text)?;
            fs::rename(&new, path)?;
            Ok(file)
        });
        self.file = Some(written.inspect_err(|_| drop(fs::remove_file(&new)))?);
        self.size = text.len() as u64;
        Ok(())
    }
}

fn read(file: fs::File) -> HashMap<String, SessionNotes> {
    let mut sessions = HashMap::new();
    let mut reader = io::BufReader::new(file.take(4 * MAX_FILE_BYTES));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        if let Ok(Line { session, notes }) = serde_json::from_slice(&line) {
            sessions.insert(session, notes);
        }
        line.clear();
    }
    sessions
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn notes_survive_a_restart_until_their_session_expires() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("gateway/sessions.jsonl");
        let journal = Journal::open(&path).expect("a journal");
        let later = now() + 100;
        journal.change("a", later, |notes| notes.log_level = Some("error".into()));
        journal.change("a", later, |notes| {
            notes.subscriptions.insert("file:///x".into());
        });
        journal.change("b", later, |notes| notes.ended = true);
        journal.change("c", 1, |notes| notes.ended = true);
        let before = journal.notes("a");
        let reopened = Journal::open(&path).expect("a journal");
        assert_eq!(reopened.notes("a"), before);
        assert!(reopened.notes("b").is_some_and(|notes| notes.ended));
        assert_eq!(reopened.notes("c"), None);
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).expect("text").lines().count(), 2);
    }

    #[test]
    fn broken_lines_are_skipped() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions.jsonl");
        let good = format!(r#"{{"session":"a","ended":true,"expires":{}}}"#, now() + 100);
        fs::write(&path, format!("garbage\n{good}\n{{\"session\":7}}\n\u{0}\n{good}")).expect("a file");
        let journal = Journal::open(&path).expect("a journal");
        assert!(journal.notes("a").is_some_and(|notes| notes.ended));
    }

    #[test]
    fn a_large_journal_is_written_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions.jsonl");
        let journal = Journal::open(&path).expect("a journal");
        let uri = format!("file:///{}", "x".repeat(8 << 10));
        for _ in 0..600 {
            journal.change("a", now() + 100, |notes| {
                notes.subscriptions.insert(uri.clone());
            });
        }
        let size = fs::metadata(&path).expect("a file").len();
        assert!(size <= MAX_FILE_BYTES + (16 << 10), "{size}");
    }
}
