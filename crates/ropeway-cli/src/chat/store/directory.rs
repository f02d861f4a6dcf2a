//! The directory that stores conversations.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ropeway_core::message::Conversation;

use super::header::{ConversationHeader, MAX_BYTES, read_header, too_large};
use crate::chat::save_file;
use crate::failure::Failure;
use crate::files::folder_lock::lock_folder;
use crate::files::user_folders::state_folder;
use crate::terminal::text::clean_line;

/// The variable that names another directory; an empty value disables the store.
pub(crate) const VARIABLE: &str = "ROPEWAY_CONVERSATIONS_DIR";

/// Maximum number of conversations; the oldest are removed.
const MAX_CONVERSATIONS: usize = 200;

/// Maximum total conversation size in bytes; the oldest are removed.
const MAX_TOTAL: u64 = 1 << 30;

/// Maximum directory files that are read.
const MAX_FILES: usize = 10_000;

/// Maximum candidates in an error.
const MAX_CANDIDATES: usize = 10;

/// Number of hexadecimal digits in an id.
pub(super) const ID_LENGTH: usize = 8;

const EXTENSION: &str = "jsonl";

/// Minimum age at which a temporary file counts as left behind by a killed process.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A file in the store.
#[derive(Debug)]
pub(crate) struct ConversationEntry {
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    modified: SystemTime,
    bytes: u64,
    /// The header, or why the file is unusable.
    pub(crate) header: Result<ConversationHeader, String>,
}

/// The directory that holds all conversations.
///
/// All chats of this user share it. Writers take the directory's file lock ([`lock`](Self::lock))
/// while they check for another writer, replace a file and prune old ones; it is released when the
/// file is dropped, also if the process ends. Readers take no lock, because files are replaced as a
/// whole.
#[derive(Clone, Debug)]
pub(crate) struct ConversationStore {
    pub(super) folder: PathBuf,
}

/// A conversation read from the store.
#[derive(Debug)]
pub(crate) struct StoredConversation {
    pub(crate) header: ConversationHeader,
    pub(crate) conversation: Conversation,
}

/// Returns `false` if the user has disabled the store.
pub(crate) fn is_enabled() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|folder| !folder.is_empty())
}

impl ConversationStore {
    /// Returns the user's store, or `None` if it is disabled.
    pub(crate) fn open() -> Result<Option<Self>, Failure> {
        match std::env::var_os(VARIABLE) {
            Some(folder) if folder.is_empty() => Ok(None),
            Some(folder) => Ok(Some(Self { folder: folder.into() })),
            None => {
                let folder = state_folder().ok_or_else(|| {
                    Failure::usage("no directory for conversations: neither `XDG_STATE_HOME` nor `HOME` is set")
                        .hint(format!("set {VARIABLE}, or use --no-save"))
                })?;
                Ok(Some(Self { folder: folder.join("conversations") }))
            }
        }
    }

    /// Returns the user's store, or an error if it is disabled.
    pub(crate) fn required() -> Result<Self, Failure> {
        Self::open()?.ok_or_else(|| Failure::usage(format!("saving conversations is disabled: {VARIABLE} is empty")))
    }

    pub(super) fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.{EXTENSION}"))
    }

    /// Lists the store's files, newest first. Reads only headers.
    pub(crate) fn list(&self) -> Result<Vec<ConversationEntry>, Failure> {
        let unreadable =
            |error: &io::Error| Failure::usage(format!("could not read `{}`", self.folder.display())).caused_by(error);
        let files = match std::fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(&error)),
        };
        let mut entries = Vec::new();
        for file in files.take(MAX_FILES) {
            let file = file.map_err(|error| unreadable(&error))?;
            let Some(id) = file.file_name().to_str().and_then(id_of).map(str::to_owned) else { continue };
            let path = file.path();
            // The file may have been removed.
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let header = read_header(&path, &id).map(|(header, _)| header);
            entries.push(ConversationEntry { id, path, modified, bytes: metadata.len(), header });
        }
        entries.sort_by(|one, other| (other.modified, &one.id).cmp(&(one.modified, &other.id)));
        Ok(entries)
    }

    /// Returns the id that starts with `prefix`.
    pub(crate) fn find(&self, prefix: &str) -> Result<String, Failure> {
        let entries = self.list()?;
        let wanted = prefix.to_ascii_lowercase();
        let matching: Vec<&ConversationEntry> = entries.iter().filter(|entry| entry.id.starts_with(&wanted)).collect();
        match &matching[..] {
            [entry] => Ok(entry.id.clone()),
            [] => {
                let failure = Failure::usage(format!("unknown conversation `{}`", clean_line(prefix)));
                let failure = with_candidates(failure, &entries.iter().collect::<Vec<_>>());
                Err(failure.hint("run `ropeway chat --list` to list all conversations"))
            }
            many => {
                let count = many.len();
                let failure = Failure::usage(format!("`{}` matches {count} conversations", clean_line(prefix)));
                Err(with_candidates(failure, many))
            }
        }
    }

    /// Returns the id of a directory's latest conversation.
    pub(crate) fn latest(&self, folder: &str) -> Result<String, Failure> {
        let entries = self.list()?;
        let is_here = |entry: &&ConversationEntry| entry.header.as_ref().is_ok_and(|header| header.folder == folder);
        if let Some(entry) = entries.iter().find(is_here) {
            return Ok(entry.id.clone());
        }
        let failure = Failure::usage(format!("no conversation to continue in `{}`", clean_line(folder)));
        let hint = if entries.is_empty() {
            "start one with `ropeway chat`"
        } else {
            "run `ropeway chat --list` to list those of other directories, and continue one with `--resume ID`"
        };
        Err(failure.hint(hint))
    }

    /// Reads a conversation.
    pub(crate) fn load(&self, id: &str) -> Result<StoredConversation, Failure> {
        let path = self.path(id);
        let shown = path.display();
        let failed = |reason: String| Failure::usage(format!("could not read conversation `{shown}`: {reason}"));
        let (header, file) = read_header(&path, id).map_err(failed)?;
        let mut text = String::new();
        let limit = MAX_BYTES as u64 + 1;
        file.take(limit + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > limit {
            return Err(failed(too_large()));
        }
        // Positions in errors count the header line.
        let conversation = save_file::parse_at(&path, &text, 1)?;
        Ok(StoredConversation { header, conversation })
    }

    /// Removes the oldest conversations beyond the limits, except `kept`.
    pub(super) fn prune(&self, kept: &str) {
        self.prune_to(kept, MAX_CONVERSATIONS, MAX_TOTAL);
    }

    pub(super) fn prune_to(&self, kept: &str, most: usize, most_bytes: u64) {
        // The next save tries again.
        let Ok(entries) = self.list() else { return };
        let own = entries.iter().find(|entry| entry.id == kept);
        let mut count = usize::from(own.is_some());
        let mut bytes = own.map_or(0, |entry| entry.bytes);
        for entry in entries.iter().filter(|entry| entry.id != kept) {
            count += 1;
            bytes = bytes.saturating_add(entry.bytes);
            if count > most || bytes > most_bytes {
                let _ = std::fs::remove_file(&entry.path);
            }
        }
        let is_abandoned = |path: &Path| {
            let modified = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > ABANDONED))
        };
        let temporary = |name: &str| name.starts_with('.') && name.contains(&format!(".{EXTENSION}."));
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().take(MAX_FILES).flatten();
        for path in files.filter(|file| file.file_name().to_str().is_some_and(temporary)).map(|file| file.path()) {
            if is_abandoned(&path) {
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// Creates the private directory and waits for its lock. Dropping the file releases it.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        lock_folder(&self.folder)
    }
}

/// Adds the matching conversations to a failure.
fn with_candidates(failure: Failure, entries: &[&ConversationEntry]) -> Failure {
    let title = |entry: &ConversationEntry| {
        entry.header.as_ref().map_or("damaged file", |header| header.title.as_str()).to_owned()
    };
    let shown = entries.iter().take(MAX_CANDIDATES);
    let failure = shown.fold(failure, |failure, entry| failure.hint(format!("{} {}", entry.id, title(entry))));
    match entries.len().saturating_sub(MAX_CANDIDATES) {
        0 => failure,
        more => failure.hint(format!("and {more} more")),
    }
}

/// Returns the id in a store file's name.
fn id_of(name: &str) -> Option<&str> {
    let id = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (id.len() == ID_LENGTH && id.chars().all(is_digit)).then_some(id)
}
