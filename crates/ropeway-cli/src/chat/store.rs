//! The conversation store: one file per conversation of this user, so that each can be continued later.
//!
//! A file has two lines of JSON. The first one is the [`Header`], which is all that a list reads; the second one is the
//! conversation, as in a file of `--save`.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};
use ropeway::config::open_regular;
use ropeway::message::{Conversation, Message};
use serde::{Deserialize, Serialize};

use super::record;
use crate::failure::{self, Failure};
use crate::files::file;
use crate::files::user_folders::state_folder;
use crate::model::SavedModel;
use crate::secrets::redaction;
use crate::terminal::text::clean_line;
use crate::trust::store::ownership_problem;

/// The variable that names another folder; empty, it turns the store off.
pub(crate) const VARIABLE: &str = "ROPEWAY_CONVERSATIONS_DIR";

/// The version of the format.
const VERSION: u64 = 1;

/// Maximum conversations that are kept; the oldest are removed.
const MAX_CONVERSATIONS: usize = 200;

/// Maximum bytes of all conversations together; the oldest are removed.
const MAX_TOTAL: u64 = 1 << 30;

/// Maximum bytes of one conversation.
const MAX_BYTES: usize = 128 << 20;

/// Maximum bytes of a header.
const MAX_HEADER: u64 = 64 << 10;

/// Maximum files of the folder that are looked at.
const MAX_FILES: usize = 10_000;

/// Maximum characters of a title.
const MAX_TITLE: usize = 80;

/// Maximum candidates in an error.
const MAX_CANDIDATES: usize = 10;

/// Hexadecimal digits of an id.
const ID_LENGTH: usize = 8;

const EXTENSION: &str = "jsonl";

/// The file that is locked while the folder is changed.
const LOCK: &str = "lock";

/// How long another process may hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// When a temporary file was left behind by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// The first line of a conversation file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The version of the format; its name tells the file from any other.
    ropeway_conversation: u64,
    pub(crate) id: String,
    /// The first words of the first prompt.
    pub(crate) title: String,
    /// The working folder of the chat.
    pub(crate) folder: String,
    pub(crate) model: SavedModel,
    /// When the conversation began, in RFC 3339.
    pub(crate) created: String,
    /// When the last turn ended, in RFC 3339.
    pub(crate) updated: String,
    /// Number of prompts.
    pub(crate) turns: usize,
    /// Length of the second line, by which a truncated file is recognized.
    bytes: u64,
    /// A random number, new at each save, by which another writer is recognized.
    revision: String,
}

/// Reads only the version, which a newer format still has.
#[derive(Deserialize)]
struct Version {
    ropeway_conversation: u64,
}

/// A file of the store.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    modified: SystemTime,
    bytes: u64,
    /// The header, or why the file cannot be used.
    pub(crate) header: Result<Header, String>,
}

/// The folder of all conversations.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    folder: PathBuf,
}

/// A conversation that was read from the store.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) header: Header,
    pub(crate) conversation: Conversation,
}

/// Returns false if the user has turned the saving of conversations off.
pub(crate) fn is_on() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|folder| !folder.is_empty())
}

impl Store {
    /// Returns the store of this user, or `None` if it is turned off.
    pub(crate) fn open() -> Result<Option<Self>, Failure> {
        match std::env::var_os(VARIABLE) {
            Some(folder) if folder.is_empty() => Ok(None),
            Some(folder) => Ok(Some(Self { folder: folder.into() })),
            None => {
                let folder = state_folder().ok_or_else(|| {
                    Failure::usage("no folder for conversations: neither `XDG_STATE_HOME` nor `HOME` is set")
                        .hint(format!("set {VARIABLE}, or use --no-save"))
                })?;
                Ok(Some(Self { folder: folder.join("conversations") }))
            }
        }
    }

    /// Returns the store of this user, or an error if it is turned off.
    pub(crate) fn required() -> Result<Self, Failure> {
        Self::open()?.ok_or_else(|| Failure::usage(format!("conversations are not kept: {VARIABLE} is empty")))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.{EXTENSION}"))
    }

    /// Lists the files of the store, the latest first. Only headers are read.
    pub(crate) fn list(&self) -> Result<Vec<Entry>, Failure> {
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
            // A file that was removed meanwhile is not listed.
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let header = read_header(&path, &id).map(|(header, _)| header);
            entries.push(Entry { id, path, modified, bytes: metadata.len(), header });
        }
        entries.sort_by(|one, other| (other.modified, &one.id).cmp(&(one.modified, &other.id)));
        Ok(entries)
    }

    /// Returns the id that begins with `prefix`.
    pub(crate) fn find(&self, prefix: &str) -> Result<String, Failure> {
        let entries = self.list()?;
        let wanted = prefix.to_ascii_lowercase();
        let matching: Vec<&Entry> = entries.iter().filter(|entry| entry.id.starts_with(&wanted)).collect();
        match &matching[..] {
            [entry] => Ok(entry.id.clone()),
            [] => {
                let failure = Failure::usage(format!("no conversation `{}`", clean_line(prefix)));
                let failure = candidates(failure, &entries.iter().collect::<Vec<_>>());
                Err(failure.hint("`ropeway chat --list` shows all conversations"))
            }
            many => {
                let count = many.len();
                let failure = Failure::usage(format!("`{}` matches {count} conversations", clean_line(prefix)));
                Err(candidates(failure, many))
            }
        }
    }

    /// Returns the id of the latest conversation of a folder.
    pub(crate) fn latest(&self, folder: &str) -> Result<String, Failure> {
        let entries = self.list()?;
        let is_here = |entry: &&Entry| entry.header.as_ref().is_ok_and(|header| header.folder == folder);
        if let Some(entry) = entries.iter().find(is_here) {
            return Ok(entry.id.clone());
        }
        let failure = Failure::usage(format!("no conversation to continue in `{}`", clean_line(folder)));
        Err(match entries.is_empty() {
            true => failure.hint("`ropeway chat` begins one"),
            false => failure.hint("`ropeway chat --list` shows those of other folders; `--resume ID` continues one"),
        })
    }

    /// Reads a conversation.
    pub(crate) fn load(&self, id: &str) -> Result<Stored, Failure> {
        let path = self.path(id);
        let shown = path.display();
        let failed = |reason: String| Failure::usage(format!("could not read the conversation `{shown}`: {reason}"));
        let (header, file) = read_header(&path, id).map_err(failed)?;
        let mut text = String::new();
        let limit = MAX_BYTES as u64 + 1;
        file.take(limit + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > limit {
            return Err(failed(too_large()));
        }
        // The header is the first line.
        let conversation = record::parse_at(&path, &text, 1)?;
        Ok(Stored { header, conversation })
    }

    /// Removes what goes beyond the bounds, the oldest first, but not the conversation `kept`.
    fn prune(&self, kept: &str) {
        self.prune_to(kept, MAX_CONVERSATIONS, MAX_TOTAL);
    }

    fn prune_to(&self, kept: &str, most: usize, most_bytes: u64) {
        // What cannot be removed now is removed later.
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

    /// Makes the folder, for this user only, and waits for the lock. Dropping the file releases it.
    fn lock(&self) -> Result<File, Failure> {
        let unwritable =
            |error: &io::Error| Failure::usage(format!("could not write `{}`", self.folder.display())).caused_by(error);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| unwritable(&error))?;
        let path = self.folder.join(LOCK);
        let file = file::open_lock(&path);
        let file = file.map_err(|error| unwritable(&error))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(unwritable(&error)),
                Err(TryLockError::WouldBlock) if began.elapsed() > LOCK_TIMEOUT => {
                    return Err(Failure::usage(format!("`{}` is locked by another process", path.display())));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Adds what the ids may mean.
fn candidates(failure: Failure, entries: &[&Entry]) -> Failure {
    let title = |entry: &Entry| entry.header.as_ref().map_or("damaged file", |header| header.title.as_str()).to_owned();
    let shown = entries.iter().take(MAX_CANDIDATES);
    let failure = shown.fold(failure, |failure, entry| failure.hint(format!("{} {}", entry.id, title(entry))));
    match entries.len().saturating_sub(MAX_CANDIDATES) {
        0 => failure,
        more => failure.hint(format!("and {more} more")),
    }
}

/// Returns the id of a file of the store.
fn id_of(name: &str) -> Option<&str> {
    let id = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (id.len() == ID_LENGTH && id.chars().all(is_digit)).then_some(id)
}

/// Reads the header of a file, and returns the rest of the file.
fn read_header(path: &Path, id: &str) -> Result<(Header, BufReader<File>), String> {
    let metadata = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_symlink() {
        return Err("it is a link".to_owned());
    }
    let file = open_regular(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    if let Some(problem) = ownership_problem(metadata.uid(), metadata.mode(), user) {
        return Err(format!("it is {problem}"));
    }
    if metadata.len() > MAX_BYTES as u64 + MAX_HEADER {
        return Err(too_large());
    }
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let length = reader.by_ref().take(MAX_HEADER).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
    if line.last() != Some(&b'\n') {
        let is_long = length as u64 == MAX_HEADER;
        return Err(if is_long { "it is not a ropeway conversation" } else { "it is truncated" }.to_owned());
    }
    let Version { ropeway_conversation: version } =
        serde_json::from_slice(&line).map_err(|_| "it is not a ropeway conversation".to_owned())?;
    if version != VERSION {
        let newer = if version > VERSION { "; update ropeway" } else { "" };
        return Err(format!("it has version {version} of the format, not {VERSION}{newer}"));
    }
    let header: Header = serde_json::from_slice(&line).map_err(|error| format!("its header is broken: {error}"))?;
    if header.id != id {
        return Err(format!("it holds the conversation `{}`", clean_line(&header.id)));
    }
    if length as u64 + header.bytes != metadata.len() {
        return Err("it is truncated".to_owned());
    }
    Ok((header, reader))
}

fn too_large() -> String {
    format!("it is larger than {} MiB", MAX_BYTES >> 20)
}

fn random(digits: usize) -> Result<String, Failure> {
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::usage("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The working folder, as conversations are filed under it.
pub(crate) fn working_folder() -> String {
    let folder = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
    redaction::redact(&folder.to_string_lossy()).into_owned()
}

/// A conversation that is saved after each turn.
#[derive(Debug)]
pub(crate) struct Saver {
    store: Store,
    folder: String,
    saved: Option<Header>,
}

/// What a save came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Nothing was said yet.
    Nothing,
    /// The file holds the conversation.
    Whole,
    /// Another process has continued the same conversation, so that this one has a new id.
    Forked { from: String, id: String },
}

impl Saver {
    /// Saves a conversation in this store: a new one, or the one that was resumed.
    pub(crate) fn new(store: Store, resumed: Option<Header>) -> Self {
        Self { store, folder: working_folder(), saved: resumed }
    }

    /// The id of the conversation, once it was saved.
    pub(crate) fn id(&self) -> Option<&str> {
        self.saved.as_ref().map(|header| header.id.as_str())
    }

    /// Begins another conversation: the next save has a new id.
    pub(crate) fn begin_another(&mut self) {
        self.saved = None;
    }

    /// Replaces the file in one step.
    pub(crate) fn save(&mut self, conversation: &Conversation, model: &SavedModel) -> Result<Saved, Failure> {
        if conversation.messages.is_empty() {
            return Ok(Saved::Nothing);
        }
        let mut body = record::compact(conversation)?;
        body.push('\n');
        if body.len() > MAX_BYTES {
            return Err(Failure::usage(format!("the conversation is larger than {} MiB", MAX_BYTES >> 20)));
        }
        let _lock = self.store.lock()?;
        // The same conversation may be continued in another terminal.
        let is_ours = |header: &Header| match read_header(&self.store.path(&header.id), &header.id) {
            Ok((found, _)) => found.revision == header.revision,
            Err(_) => !self.store.path(&header.id).exists(),
        };
        let known = self.saved.as_ref();
        let forked = known.filter(|header| !is_ours(header)).map(|header| header.id.clone());
        let id = match (known, &forked) {
            (Some(header), None) => header.id.clone(),
            _ => self.free_id()?,
        };
        let updated = now();
        let header = Header {
            ropeway_conversation: VERSION,
            id,
            title: title(conversation),
            folder: self.folder.clone(),
            model: model.redacted(),
            created: known.map_or_else(|| updated.clone(), |header| header.created.clone()),
            updated,
            turns: turns(conversation),
            bytes: body.len() as u64,
            revision: random(16)?,
        };
        let line = serde_json::to_string(&header);
        let line = line.map_err(|error| Failure::usage("the conversation is not JSON").caused_by(&error))?;
        file::put(&self.store.path(&header.id), &format!("{line}\n{body}"), file::PRIVATE)?;
        let id = header.id.clone();
        self.saved = Some(header);
        self.store.prune(&id);
        Ok(match forked {
            Some(from) => Saved::Forked { from, id },
            None => Saved::Whole,
        })
    }

    fn free_id(&self) -> Result<String, Failure> {
        for _ in 0..100 {
            let id = random(ID_LENGTH)?;
            if std::fs::symlink_metadata(self.store.path(&id)).is_err() {
                return Ok(id);
            }
        }
        Err(Failure::usage(format!("no free id in `{}`", self.store.folder.display())))
    }
}

/// Number of prompts in a conversation.
fn turns(conversation: &Conversation) -> usize {
    conversation.messages.iter().filter(|message| matches!(message, Message::User(_))).count()
}

/// The first words of the first prompt. Attached files stand before the prompt.
fn title(conversation: &Conversation) -> String {
    let first = conversation.messages.iter().find_map(|message| match message {
        Message::User(message) => message.content.iter().rev().find_map(|part| part.as_text()),
        _ => None,
    });
    let text = first.unwrap_or_default();
    // Only the beginning is looked at, however long a prompt is.
    let start = &text[..text.floor_char_boundary(MAX_TITLE * 16)];
    let line = clean_line(&redaction::redact(start)).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TITLE) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line,
    }
}

/// Describes why a conversation is not saved, in one line.
pub(crate) fn not_saved(failure: &Failure) -> String {
    format!("the conversation is not saved: {}", failure::Failure::line(failure))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Bench {
        _folder: tempfile::TempDir,
        store: Store,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let store = Store { folder: folder.path().join("state/conversations") };
            Self { _folder: folder, store }
        }

        fn saver(&self, folder: &str) -> Saver {
            Saver { store: self.store.clone(), folder: folder.to_owned(), saved: None }
        }

        fn saved(&self, folder: &str, prompt: &str) -> String {
            let mut saver = self.saver(folder);
            saver.save(&Conversation::new().with(prompt), &SavedModel::default()).expect("saved");
            saver.id().expect("an id").to_owned()
        }

        fn mode(&self, path: &Path) -> u32 {
            std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
        }
    }

    #[test]
    fn a_conversation_is_read_back_as_it_was_saved() {
        let bench = Bench::new();
        let mut saver = bench.saver("/work");
        let mut model = SavedModel::default();
        model.model = "parrot".into();
        assert_eq!(saver.save(&Conversation::new(), &model).expect("nothing"), Saved::Nothing);
        assert!(!bench.store.folder.exists());
        let conversation = Conversation::new().with("hello\nthere").with("again");
        assert_eq!(saver.save(&conversation, &model).expect("saved"), Saved::Whole);
        let id = saver.id().expect("an id").to_owned();
        let stored = bench.store.load(&id).expect("a conversation");
        assert_eq!(stored.conversation, conversation);
        let Header { title, folder, turns, model: saved, .. } = stored.header;
        assert_eq!((title.as_str(), folder.as_str(), turns, saved), ("hello there", "/work", 2, model));
        assert_eq!(bench.mode(&bench.store.folder), 0o700);
        assert_eq!(bench.mode(&bench.store.path(&id)), 0o600);
    }

    #[test]
    fn a_prefix_finds_one_conversation_or_names_the_candidates() {
        let bench = Bench::new();
        let failure = bench.store.find("a").expect_err("nothing there");
        assert_eq!(failure.message(), "no conversation `a`");
        let first = bench.saved("/a", "the first");
        assert_eq!(bench.store.find(&first[..3]).expect("an id"), first);
        let mut other = bench.saved("/a", "the second");
        while other.starts_with(&first[..1]) {
            other = bench.saved("/a", "the second");
        }
        let failure = bench.store.find("").expect_err("ambiguous");
        assert!(failure.message().starts_with("`` matches "), "{}", failure.message());
        assert!(failure.render().contains("the first") && failure.render().contains("the second"));
        let failure = bench.store.find("nothing").expect_err("unknown");
        assert!(failure.render().contains("the first"), "{}", failure.render());
    }

    #[test]
    fn the_latest_conversation_of_a_folder_is_continued() {
        let bench = Bench::new();
        let failure = bench.store.latest("/a").expect_err("nothing there");
        assert!(failure.render().contains("`ropeway chat` begins one"), "{}", failure.render());
        let here = bench.saved("/a", "one");
        bench.saved("/b", "two");
        assert_eq!(bench.store.latest("/a").expect("an id"), here);
        let failure = bench.store.latest("/c").expect_err("nothing there");
        assert!(failure.render().contains("chat --list"), "{}", failure.render());
    }

    #[test]
    fn a_conversation_that_another_process_continues_is_forked() {
        let bench = Bench::new();
        let id = bench.saved("/a", "one");
        let resume = || Saver::new(bench.store.clone(), Some(bench.store.load(&id).expect("stored").header));
        let (mut one, mut other) = (resume(), resume());
        let said = |words: &str| Conversation::new().with("one").with(words);
        assert_eq!(one.save(&said("here"), &SavedModel::default()).expect("saved"), Saved::Whole);
        let Saved::Forked { from, id: new } = other.save(&said("there"), &SavedModel::default()).expect("saved") else {
            panic!("no fork")
        };
        assert_eq!(from, id);
        assert_eq!(other.save(&said("there"), &SavedModel::default()).expect("saved"), Saved::Whole);
        assert_eq!(bench.store.load(&id).expect("stored").conversation, said("here"));
        assert_eq!(bench.store.load(&new).expect("stored").conversation, said("there"));
        // One that was removed meanwhile is written again.
        std::fs::remove_file(bench.store.path(&id)).expect("a file");
        assert_eq!(one.save(&said("here"), &SavedModel::default()).expect("saved"), Saved::Whole);
        assert_eq!(one.id(), Some(id.as_str()));
    }

    #[test]
    fn a_file_that_is_not_ours_is_described_and_listed_without_waiting() {
        let bench = Bench::new();
        let good = bench.saved("/a", "good");
        let text = std::fs::read_to_string(bench.store.path(&good)).expect("a file");
        let line = text.lines().next().expect("a header");
        let huge = "x".repeat(200 << 10);
        let cases: [(&str, &str, &str); 6] = [
            ("00000001", "", "it is truncated"),
            ("00000002", "words\n", "it is not a ropeway conversation"),
            ("00000003", "{\"ropeway_conversation\": 9}\n", "it has version 9 of the format, not 1; update ropeway"),
            ("00000004", &huge, "it is not a ropeway conversation"),
            ("00000005", &text, &format!("it holds the conversation `{good}`")),
            ("00000006", &format!("{}\n", line.replace(&good, "00000006")), "it is truncated"),
        ];
        for (id, text, _) in &cases {
            std::fs::write(bench.store.path(id), text).expect("a file");
            std::fs::set_permissions(bench.store.path(id), Permissions::from_mode(0o600)).expect("permissions");
        }
        let made = std::process::Command::new("mkfifo").arg(bench.store.path("00000007")).status().expect("mkfifo");
        assert!(made.success());
        std::os::unix::fs::symlink("/dev/zero", bench.store.path("00000008")).expect("a link");
        std::fs::write(bench.store.path("00000009"), &text).expect("a file");
        std::fs::set_permissions(bench.store.path("00000009"), Permissions::from_mode(0o622)).expect("permissions");
        std::fs::write(bench.store.folder.join("notes.txt"), "mine").expect("a file");
        let entries = bench.store.list().expect("a list");
        let problem = |id: &str| {
            let entry = entries.iter().find(|entry| entry.id == id).expect("an entry");
            entry.header.as_ref().expect_err("a problem").clone()
        };
        for (id, _, words) in &cases {
            assert_eq!(problem(id), *words, "{id}");
            let failure = bench.store.load(id).expect_err("no conversation");
            let shown = bench.store.path(id).display().to_string();
            assert!(failure.message().contains(&shown) && failure.message().contains(words), "{}", failure.message());
        }
        assert_eq!(problem("00000007"), "it is not a regular file");
        assert_eq!(problem("00000008"), "it is a link");
        assert_eq!(problem("00000009"), "it is writable by all users");
        assert_eq!(entries.len(), 10);
    }

    #[test]
    fn a_broken_second_line_is_named_by_its_place() {
        let bench = Bench::new();
        let id = bench.saved("/a", "one");
        let path = bench.store.path(&id);
        let text = std::fs::read_to_string(&path).expect("a file").replace("\"role\"", "\"roll\"");
        std::fs::write(&path, text).expect("a file");
        let failure = bench.store.load(&id).expect_err("no conversation");
        assert!(failure.message().starts_with(&format!("{}:2:", path.display())), "{}", failure.message());
    }

    #[test]
    fn the_oldest_conversations_are_removed_and_nothing_else() {
        let bench = Bench::new();
        let ids: Vec<String> = (0..5).map(|number| bench.saved("/a", &format!("number {number}"))).collect();
        for (age, id) in ids.iter().rev().enumerate() {
            let file = File::options().write(true).open(bench.store.path(id)).expect("a file");
            let then = SystemTime::now() - Duration::from_secs(60 * (age as u64 + 1));
            file.set_modified(then).expect("a time");
        }
        std::fs::write(bench.store.folder.join("notes.txt"), "mine").expect("a file");
        let left = || -> Vec<String> {
            let mut left: Vec<String> = bench.store.list().expect("a list").into_iter().map(|entry| entry.id).collect();
            left.reverse();
            left
        };
        // The kept one is the oldest.
        bench.store.prune_to(&ids[0], 3, u64::MAX);
        assert_eq!(left(), [&ids[0], &ids[3], &ids[4]].map(String::clone));
        bench.store.prune_to(&ids[4], 3, 1);
        assert_eq!(left(), [ids[4].clone()]);
        assert!(bench.store.folder.join("notes.txt").exists());
    }

    #[test]
    fn a_title_is_the_beginning_of_the_first_prompt() {
        let conversation = |text: &str| Conversation::new().with(text);
        assert_eq!(title(&conversation("  what\n\tis \u{1b}[31mthis?")), "what is this?");
        let long = title(&conversation(&"word ".repeat(10_000)));
        assert!(long.ends_with('…') && long.chars().count() <= MAX_TITLE + 1, "{long}");
        assert_eq!(title(&Conversation::new()), "");
    }
}
