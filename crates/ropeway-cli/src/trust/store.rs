//! The trust store: which files, with which content, the person has accepted.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::summary::Summary;
use crate::files::file::open_lock;
use crate::files::user_folders::state_folder;

/// The version of the store's format.
const VERSION: u64 = 1;

/// The file in the state folder.
const FILE: &str = "trust.json";

/// The file that is locked while the store is changed; the store itself is replaced.
const LOCK: &str = "trust.lock";

/// The largest store that is read.
const LARGEST: u64 = 16 << 20;

/// How long another process may hold the lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The files that the person has accepted, by path and content.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    records: Vec<Record>,
}

/// One accepted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Where the file was found, with the folder's links resolved.
    pub(crate) path: PathBuf,
    /// Where the file really is, if `path` is a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<PathBuf>,
    /// The user id of the file's owner when it was accepted.
    pub(crate) owner: u32,
    /// The SHA-256 of the content, in hexadecimal digits.
    pub(crate) sha256: String,
    /// When the file was accepted.
    pub(crate) accepted: String,
    /// What the person was shown.
    #[serde(default)]
    pub(crate) summary: Summary,
}

/// The store as it is written.
#[derive(Serialize, Deserialize)]
struct Document {
    version: u64,
    files: Vec<Record>,
}

/// Reads only the version, which a newer format still has.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// Whether a file is trusted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Status<'a> {
    /// This content was accepted at this path.
    Trusted,
    /// Another content was accepted at this path.
    Changed(&'a Record),
    /// Nothing was accepted at this path.
    Unknown,
}

/// A file as the store identifies it.
///
/// A link is identified by its own place and its target: relative paths in a configuration start at the folder of the link, so
/// that a link to an accepted file from another folder would run other programs.
struct Identity {
    path: PathBuf,
    target: Option<PathBuf>,
    owner: u32,
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let location = location(path)?;
        let target = std::fs::canonicalize(path)?;
        let owner = std::fs::metadata(path)?.uid();
        let target = Some(target).filter(|target| *target != location);
        Ok(Self { path: location, target, owner })
    }

    fn is(&self, record: &Record) -> bool {
        (&self.path, &self.target, self.owner) == (&record.path, &record.target, record.owner)
    }
}

/// Returns the path with the links of its folder resolved, but not a link at its end.
pub(crate) fn location(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("it is not a file"))?;
    Ok(std::fs::canonicalize(path.parent().unwrap_or(Path::new("/")))?.join(name))
}

/// Returns the SHA-256 of a content in hexadecimal digits.
pub(crate) fn sha256(content: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Store {
    /// Reads the store of this user. A store that does not exist yet is empty.
    pub(crate) fn open() -> Result<Self, StoreError> {
        Self::open_in(state_folder().ok_or(StoreError::NoFolder)?)
    }

    /// Reads the store in a folder.
    pub(crate) fn open_in(folder: PathBuf) -> Result<Self, StoreError> {
        let records = read(&folder.join(FILE))?;
        Ok(Self { folder, records })
    }

    /// Moves a broken store aside, for the person to look at, and returns an empty one and where the old one is now.
    pub(crate) fn replace_broken() -> Result<(Self, PathBuf), StoreError> {
        Self::replace_broken_in(state_folder().ok_or(StoreError::NoFolder)?)
    }

    fn replace_broken_in(folder: PathBuf) -> Result<(Self, PathBuf), StoreError> {
        let _lock = lock(&folder)?;
        let path = folder.join(FILE);
        let aside = (1..).map(|number| folder.join(format!("{FILE}.broken-{number}"))).find(|aside| !aside.exists());
        let aside = aside.unwrap_or_else(|| folder.join(format!("{FILE}.broken")));
        match read(&path) {
            Err(StoreError::Broken { .. }) => {
                let moved = std::fs::rename(&path, &aside).and_then(|()| keep_private(&aside, 0o600));
                moved.map_err(|source| StoreError::Unwritable { path, source })?;
                Ok((Self { folder, records: Vec::new() }, aside))
            }
            Err(error) => Err(error),
            // Another process has replaced it already.
            Ok(records) => Ok((Self { folder, records }, aside)),
        }
    }

    /// Returns whether this content was accepted at this path.
    pub(crate) fn status(&self, path: &Path, content: &str) -> Status<'_> {
        // A file that vanished meanwhile is not trusted.
        let Ok(identity) = Identity::of(path) else { return Status::Unknown };
        let digest = sha256(content);
        match self.records.iter().find(|record| record.path == identity.path) {
            Some(record) if identity.is(record) && record.sha256 == digest => Status::Trusted,
            Some(record) => Status::Changed(record),
            None => Status::Unknown,
        }
    }

    /// Returns true if exactly this content was accepted at this path.
    pub(crate) fn is_trusted(&self, path: &Path, content: &str) -> bool {
        self.status(path, content) == Status::Trusted
    }

    /// Remembers that the person has accepted this content at this path.
    pub(crate) fn record(&mut self, path: &Path, content: &str, summary: Summary) -> Result<(), StoreError> {
        let identity =
            Identity::of(path).map_err(|source| StoreError::Unidentified { path: path.to_owned(), source })?;
        let Identity { path, target, owner } = identity;
        if path.to_str().is_none() || target.as_ref().is_some_and(|target| target.to_str().is_none()) {
            return Err(StoreError::NotText { path });
        }
        let accepted = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let record = Record { path, target, owner, sha256: sha256(content), accepted, summary: summary.bounded() };
        self.change(|records| {
            records.retain(|known| known.path != record.path);
            records.push(record);
            true
        })?;
        Ok(())
    }

    /// Forgets the file at this path, which need not exist any more, and returns whether it was known.
    pub(crate) fn revoke(&mut self, path: &Path) -> Result<bool, StoreError> {
        let location = location(path).or_else(|_| std::path::absolute(path));
        let location = location.map_err(|source| StoreError::Unidentified { path: path.to_owned(), source })?;
        self.change(|records| {
            let before = records.len();
            records.retain(|known| known.path != location);
            records.len() < before
        })
    }

    /// The accepted files, the latest last.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Changes the store as it is on disk by now, so that two processes do not undo each other's changes.
    fn change(&mut self, change: impl FnOnce(&mut Vec<Record>) -> bool) -> Result<bool, StoreError> {
        let _lock = lock(&self.folder)?;
        let path = self.folder.join(FILE);
        let mut records = read(&path)?;
        let is_changed = change(&mut records);
        if is_changed {
            let text = serialize(&mut records, LARGEST);
            let written = text.and_then(|text| write(&self.folder, &path, &text));
            written.map_err(|source| StoreError::Unwritable { path, source })?;
        }
        self.records = records;
        Ok(is_changed)
    }
}

/// Returns the text of a store with these records. Drops the oldest summaries, never a record, where the store would become
/// larger than is read.
fn serialize(records: &mut [Record], largest: u64) -> io::Result<String> {
    let text =
        |records: &[Record]| serde_json::to_string_pretty(&Document { version: VERSION, files: records.to_vec() });
    let whole = text(records)?;
    let mut excess = (whole.len() as u64).saturating_sub(largest);
    if excess == 0 {
        return Ok(whole);
    }
    for record in records.iter_mut().filter(|record| record.summary != Summary::default()) {
        if excess == 0 {
            break;
        }
        // In the store it takes more than this, for the layout.
        excess = excess.saturating_sub(serde_json::to_string(&record.summary)?.len() as u64);
        record.summary = Summary::default();
    }
    let bounded = text(records)?;
    if bounded.len() as u64 > largest {
        return Err(io::Error::other(format!("too many files are trusted for {} MiB", largest >> 20)));
    }
    Ok(bounded)
}

/// Reads the records of a store.
fn read(path: &Path) -> Result<Vec<Record>, StoreError> {
    let unreadable = |source| StoreError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("not a regular file")));
    }
    if let Some(problem) = ownership_problem(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw()) {
        return Err(StoreError::Insecure { path: path.to_owned(), problem });
    }
    let mut text = String::new();
    let broken = |reason: String| StoreError::Broken { path: path.to_owned(), reason };
    match file.take(LARGEST + 1).read_to_string(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(broken("not UTF-8".to_owned())),
        read => drop(read.map_err(unreadable)?),
    }
    if text.len() as u64 > LARGEST {
        return Err(broken(format!("larger than {} MiB", LARGEST >> 20)));
    }
    let Version { version } = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if version > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), version });
    }
    let Document { files, .. } = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    Ok(files)
}

/// Returns why a file with this owner and mode may have been written by another user than `user`.
pub(crate) fn ownership_problem(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("owned by another user (uid {owner})"));
    }
    match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (_, true) => Some("writable by all users".to_owned()),
        (true, false) => Some("writable by its group".to_owned()),
        (false, false) => None,
    }
}

/// Makes the folder, for this user only, and waits for the lock. Dropping the file releases it.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let unwritable = |source| StoreError::Unwritable { path: folder.to_owned(), source };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.and_then(|()| keep_private(folder, 0o700)).map_err(unwritable)?;
    let file = open_lock(&path);
    let file = file.map_err(|source| StoreError::Unwritable { path: path.clone(), source })?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(StoreError::Unwritable { path, source }),
            Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => return Err(StoreError::Locked { path }),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Takes the rights of everybody else away, whatever was there before (S14.7).
fn keep_private(path: &Path, mode: u32) -> io::Result<()> {
    let now = std::fs::metadata(path)?.permissions().mode() & 0o777;
    if now & 0o077 != 0 { std::fs::set_permissions(path, Permissions::from_mode(mode)) } else { Ok(()) }
}

/// Replaces the store in one step. Only the holder of the lock calls this, so the temporary name is free.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    let beside = folder.join(format!(".{FILE}.new"));
    // Left behind by a process that was killed.
    let _ = std::fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let written = written.and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Why the store cannot be read or changed.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// The user has no state folder.
    NoFolder,
    /// The store exists and cannot be read.
    Unreadable { path: PathBuf, source: io::Error },
    /// The store is not what this program writes.
    Broken { path: PathBuf, reason: String },
    /// A newer version of this program has written the store.
    Newer { path: PathBuf, version: u64 },
    /// Another user may have written the store.
    Insecure { path: PathBuf, problem: String },
    /// The store cannot be written.
    Unwritable { path: PathBuf, source: io::Error },
    /// Another process holds the lock for too long.
    Locked { path: PathBuf },
    /// The file to remember cannot be looked at.
    Unidentified { path: PathBuf, source: io::Error },
    /// The path of the file to remember is not UTF-8.
    NotText { path: PathBuf },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => f.write_str("no state folder: neither `XDG_STATE_HOME` nor `HOME` is set"),
            Self::Unreadable { path, .. } => write!(f, "could not read the trust store `{}`", path.display()),
            Self::Broken { path, reason } => write!(f, "the trust store `{}` is broken: {reason}", path.display()),
            Self::Newer { path, version } => {
                write!(f, "the trust store `{}` was written by a newer ropeway (version {version})", path.display())
            }
            Self::Insecure { path, problem } => write!(f, "the trust store `{}` is {problem}", path.display()),
            Self::Unwritable { path, .. } => write!(f, "could not write `{}`", path.display()),
            Self::Locked { path } => write!(f, "`{}` is locked by another process", path.display()),
            Self::Unidentified { path, .. } => write!(f, "could not look at `{}`", path.display()),
            Self::NotText { path } => write!(f, "the path `{}` is not UTF-8", path.display()),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable { source, .. } | Self::Unidentified { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

impl StoreError {
    /// What the person can do about it, if that is known.
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Broken { path, .. } => Some(format!("mend or remove `{}`", path.display())),
            Self::Newer { .. } => Some("update ropeway".to_owned()),
            Self::Insecure { path, .. } => {
                Some(format!("check its content, then `chmod 600 {0}` or remove it", path.display()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::summary::Section;

    struct Bench {
        folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().expect("a folder") }
        }

        fn state(&self) -> PathBuf {
            self.folder.path().join("state/ropeway")
        }

        fn store(&self) -> Store {
            Store::open_in(self.state()).expect("a store")
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, "content").expect("a file");
            path
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn exactly_the_accepted_content_at_the_accepted_path_is_trusted() {
        let bench = Bench::new();
        let (path, other) = (bench.file("a/ropeway.yaml"), bench.file("b/ropeway.yaml"));
        let mut store = bench.store();
        assert_eq!(store.status(&path, "one"), Status::Unknown);
        let summary = Summary(vec![Section::new("server `a`")]);
        store.record(&path, "one", summary.clone()).expect("recorded");
        for store in [&store, &bench.store()] {
            assert!(store.is_trusted(&path, "one") && !store.is_trusted(&other, "one"));
            let Status::Changed(record) = store.status(&path, "two") else { panic!("it has changed") };
            assert_eq!(record.summary, summary);
        }
        store.record(&path, "two", Summary::default()).expect("recorded");
        assert!(store.is_trusted(&path, "two") && !store.is_trusted(&path, "one"));
        assert_eq!(store.records().len(), 1);
        std::fs::remove_file(&path).expect("removed");
        assert!(store.revoke(&path).expect("revoked") && !store.revoke(&path).expect("revoked"));
        assert_eq!(bench.store().records(), []);
    }

    #[test]
    fn only_the_owner_can_read_the_store_whatever_was_there_before() {
        let bench = Bench::new();
        let path = bench.file("ropeway.yaml");
        std::fs::create_dir_all(bench.state()).expect("a folder");
        std::fs::set_permissions(bench.state(), Permissions::from_mode(0o755)).expect("permissions");
        bench.store().record(&path, "one", Summary::default()).expect("recorded");
        let file = bench.state().join(FILE);
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("permissions");
        bench.store().record(&path, "two", Summary::default()).expect("recorded");
        assert_eq!([mode(&bench.state()), mode(&file), mode(&bench.state().join(LOCK))], [0o700, 0o600, 0o600]);
        let mut names: Vec<_> = std::fs::read_dir(bench.state()).expect("a folder").flatten().collect();
        names.sort_by_key(|entry| entry.file_name());
        assert_eq!(names.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), [FILE, LOCK]);
    }

    #[test]
    fn a_link_from_another_folder_is_not_the_accepted_file() {
        let bench = Bench::new();
        let (path, link) = (bench.file("mine/ropeway.yaml"), bench.folder.path().join("theirs/ropeway.yaml"));
        std::fs::create_dir(link.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let mut store = bench.store();
        store.record(&path, "one", Summary::default()).expect("recorded");
        assert_eq!(store.status(&link, "one"), Status::Unknown);
        store.record(&link, "one", Summary::default()).expect("recorded");
        assert!(store.is_trusted(&link, "one"));
        // The same name and content behind another link, or behind none.
        let other = bench.file("other/ropeway.yaml");
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink(&other, &link).expect("a link");
        assert!(!store.is_trusted(&link, "one"));
        // A folder that is a link is no difference.
        std::os::unix::fs::symlink(path.parent().expect("a folder"), bench.folder.path().join("short"))
            .expect("a link");
        assert!(store.is_trusted(&bench.folder.path().join("short/ropeway.yaml"), "one"));
    }

    #[test]
    fn a_broken_store_trusts_nothing_and_is_kept_aside() {
        let bench = Bench::new();
        let path = bench.file("ropeway.yaml");
        let mut open = bench.store();
        open.record(&path, "one", Summary::default()).expect("recorded");
        let file = bench.state().join(FILE);
        for broken in ["{", "[]", "\u{0}", "{\"version\": 1}", "{\"version\": 1, \"files\": [{}]}", "{\"version\": -1}"]
        {
            std::fs::write(&file, broken).expect("written");
            assert!(matches!(Store::open_in(bench.state()), Err(StoreError::Broken { .. })), "{broken}");
            assert!(matches!(open.record(&path, "one", Summary::default()), Err(StoreError::Broken { .. })));
            assert_eq!(std::fs::read_to_string(&file).expect("a file"), broken);
        }
        let (mut store, aside) = Store::replace_broken_in(bench.state()).expect("replaced");
        assert_eq!(std::fs::read_to_string(&aside).expect("a file"), "{\"version\": -1}");
        store.record(&path, "one", Summary::default()).expect("recorded");
        assert!(bench.store().is_trusted(&path, "one"));
        // A sound store is not moved.
        let (store, _) = Store::replace_broken_in(bench.state()).expect("left alone");
        assert!(store.is_trusted(&path, "one") && file.exists());
    }

    #[test]
    fn a_store_of_a_newer_version_or_of_others_is_left_alone() {
        let bench = Bench::new();
        std::fs::create_dir_all(bench.state()).expect("a folder");
        let file = bench.state().join(FILE);
        std::fs::write(&file, "{\"version\": 2, \"entries\": {}}").expect("written");
        assert!(matches!(Store::open_in(bench.state()), Err(StoreError::Newer { version: 2, .. })));
        assert!(matches!(Store::replace_broken_in(bench.state()), Err(StoreError::Newer { .. })));
        std::fs::write(&file, "{\"version\": 1, \"files\": []}").expect("written");
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("permissions");
            assert!(matches!(Store::open_in(bench.state()), Err(StoreError::Insecure { .. })), "{mode:o}");
        }
        let cases = [
            (1000, 0o600, None),
            (0, 0o644, None),
            (1001, 0o600, Some("owned by another user (uid 1001)")),
            (1000, 0o660, Some("writable by its group")),
            (1000, 0o666, Some("writable by all users")),
        ];
        for (owner, mode, expected) in cases {
            assert_eq!(ownership_problem(owner, mode, 1000).as_deref(), expected);
        }
    }

    #[test]
    fn a_store_that_grows_too_large_loses_its_oldest_summaries_and_no_record() {
        let mut section = Section::new("server `a`");
        section.add("runs", "x".repeat(1000));
        let record = |number: usize| Record {
            path: format!("/{number}/ropeway.yaml").into(),
            target: None,
            owner: 0,
            sha256: sha256("content"),
            accepted: String::new(),
            summary: Summary(vec![section.clone()]),
        };
        let mut records: Vec<Record> = (0..10).map(record).collect();
        let text = serialize(&mut records, 8000).expect("a text");
        assert!(text.len() <= 8000 && serde_json::from_str::<Document>(&text).expect("a store").files == records);
        let has_summary: Vec<bool> = records.iter().map(|record| !record.summary.0.is_empty()).collect();
        assert!(records.len() == 10 && !has_summary[0] && has_summary[9] && has_summary.is_sorted(), "{has_summary:?}");
        assert!(serialize(&mut records, 100).is_err(), "it could not be read again");
    }

    #[test]
    fn an_accepted_file_however_large_leaves_the_store_readable() {
        let bench = Bench::new();
        let path = bench.file("ropeway.yaml");
        let mut section = Section::new("server `a`");
        (0..500).for_each(|number| section.add("sets", format!("{number}={}", "\u{1}".repeat(1990))));
        bench.store().record(&path, "one", Summary(vec![section])).expect("recorded");
        assert!(bench.store().is_trusted(&path, "one"));
        assert!(std::fs::metadata(bench.state().join(FILE)).expect("a file").len() < 300 << 10);
    }

    #[test]
    fn stores_that_are_changed_at_once_lose_nothing() {
        let bench = Bench::new();
        let paths: Vec<PathBuf> = (0..16).map(|number| bench.file(&format!("{number}/ropeway.yaml"))).collect();
        std::thread::scope(|scope| {
            for path in &paths {
                let state = bench.state();
                scope.spawn(move || {
                    let mut store = Store::open_in(state).expect("a store");
                    store.record(path, "one", Summary::default()).expect("recorded");
                });
            }
        });
        let store = bench.store();
        assert!(paths.iter().all(|path| store.is_trusted(path, "one")));
    }
}
