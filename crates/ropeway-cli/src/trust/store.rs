//! The trust store: the files that the user accepted, by path and content.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropeway_config::content_digest;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::tool::Digest;
use serde::{Deserialize, Serialize};

use super::digest::sha256;
use super::error::TrustStoreError;
use super::ownership::ownership_problem;
use super::summary::TrustSummary;
use crate::files::file::open_lock;
use crate::files::user_folders::state_folder;

/// The store's format version.
const VERSION: u64 = 1;

/// The file in the state directory.
const FILE: &str = "trust.json";

/// The file that is locked during changes; the store itself is replaced atomically.
const LOCK: &str = "trust.lock";

/// Maximum store size in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Time to wait for another process that holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The files that the user accepted, by path and content.
///
/// The file belongs to all of the user's processes; this value is a snapshot of it. Reading takes no lock, since a
/// change replaces the whole file. A change locks the directory's lock file, reads the store again, and writes it
/// before the lock is released, so concurrent processes keep each other's changes; it also refreshes the snapshot. A
/// process that cannot get the lock within `LOCK_TIMEOUT` fails with [`TrustStoreError::Locked`]. The kernel releases
/// the lock when the holder drops it or dies.
#[derive(Debug)]
pub(crate) struct TrustStore {
    folder: PathBuf,
    records: Vec<TrustRecord>,
}

/// One accepted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustRecord {
    /// The file's path, with its directory's symbolic links resolved.
    pub(crate) path: PathBuf,
    /// The target, if `path` is a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<PathBuf>,
    /// The owner's user id when the file was accepted.
    pub(crate) owner: u32,
    /// The content's SHA-256, in hexadecimal digits.
    pub(crate) sha256: String,
    /// The content's digest without comments and layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<Digest>,
    /// When the file was accepted.
    pub(crate) accepted: String,
    /// The SHA-256 of declined content. If no content was accepted, `sha256` is empty: versions that do not know this field
    /// must not take the record for consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) declined: Option<String>,
    /// The review that the user saw.
    #[serde(default)]
    pub(crate) summary: TrustSummary,
}

impl TrustRecord {
    /// Returns the record for a file without accepted content.
    fn empty(path: &Path) -> Result<Self, TrustStoreError> {
        let identity =
            Identity::of(path).map_err(|source| TrustStoreError::Unidentified { path: path.to_owned(), source })?;
        let Identity { path, target, owner } = identity;
        if path.to_str().is_none() || target.as_ref().is_some_and(|target| target.to_str().is_none()) {
            return Err(TrustStoreError::NotText { path });
        }
        let (sha256, accepted) = (String::new(), String::new());
        Ok(Self {
            path,
            target,
            owner,
            sha256,
            content: None,
            accepted,
            declined: None,
            summary: TrustSummary::default(),
        })
    }
}

/// The store's file format.
#[derive(Serialize, Deserialize)]
struct StoreDocument {
    version: u64,
    files: Vec<TrustRecord>,
}

/// Reads only the version, which newer formats keep.
#[derive(Deserialize)]
struct FormatVersion {
    version: u64,
}

/// Whether a file is trusted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TrustStatus<'a> {
    /// This content was accepted at this path.
    Trusted,
    /// Another content was accepted at this path.
    Changed(&'a TrustRecord),
    /// This content was declined at this path.
    Declined,
    /// Nothing was accepted at this path.
    Unknown,
}

/// A file's identity.
///
/// A symbolic link is identified by its own path and its target. Relative paths in a configuration are resolved from the
/// link's directory, so a link to an accepted file from another directory could run other programs.
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

    fn matches(&self, record: &TrustRecord) -> bool {
        (&self.path, &self.target, self.owner) == (&record.path, &record.target, record.owner)
    }
}

/// Resolves the directory's symbolic links, but not the file's own.
pub(crate) fn location(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("not a file"))?;
    Ok(std::fs::canonicalize(path.parent().unwrap_or(Path::new("/")))?.join(name))
}

impl TrustStore {
    /// Reads this user's store. A missing store is empty.
    pub(crate) fn open() -> Result<Self, TrustStoreError> {
        Self::open_in(state_folder().ok_or(TrustStoreError::NoFolder)?)
    }

    /// Reads the store in a directory.
    pub(crate) fn open_in(folder: PathBuf) -> Result<Self, TrustStoreError> {
        let records = read(&folder.join(FILE))?;
        Ok(Self { folder, records })
    }

    /// Renames a broken store. Returns an empty store and the old one's new path.
    pub(crate) fn replace_broken() -> Result<(Self, PathBuf), TrustStoreError> {
        Self::replace_broken_in(state_folder().ok_or(TrustStoreError::NoFolder)?)
    }

    fn replace_broken_in(folder: PathBuf) -> Result<(Self, PathBuf), TrustStoreError> {
        let _lock = lock(&folder)?;
        let path = folder.join(FILE);
        let backup = (1..).map(|number| folder.join(format!("{FILE}.broken-{number}"))).find(|backup| !backup.exists());
        let backup = backup.unwrap_or_else(|| folder.join(format!("{FILE}.broken")));
        match read(&path) {
            Err(TrustStoreError::Broken { .. }) => {
                let moved = std::fs::rename(&path, &backup).and_then(|()| make_private(&backup, 0o600));
                moved.map_err(|source| TrustStoreError::Unwritable { path, source })?;
                Ok((Self { folder, records: Vec::new() }, backup))
            }
            Err(error) => Err(error),
            // Another process has already replaced it.
            Ok(records) => Ok((Self { folder, records }, backup)),
        }
    }

    /// Returns whether this content was accepted at this path.
    pub(crate) fn status(&self, path: &Path, content: &str) -> TrustStatus<'_> {
        // A removed file is not trusted.
        let Ok(identity) = Identity::of(path) else { return TrustStatus::Unknown };
        let is_same = |record: &TrustRecord| {
            record.sha256 == sha256(content)
                || (record.content.is_some() && record.content == content_digest(content, path).ok())
        };
        match self.records.iter().find(|record| record.path == identity.path) {
            Some(record) if identity.matches(record) && is_same(record) => TrustStatus::Trusted,
            Some(record) if record.declined.as_deref() == Some(&sha256(content)) => TrustStatus::Declined,
            Some(record) if !record.sha256.is_empty() => TrustStatus::Changed(record),
            Some(_) | None => TrustStatus::Unknown,
        }
    }

    /// Returns `true` if this content was accepted at this path.
    pub(crate) fn is_trusted(&self, path: &Path, content: &str) -> bool {
        self.status(path, content) == TrustStatus::Trusted
    }

    /// Stores that the user accepted this content at this path.
    pub(crate) fn record(&mut self, path: &Path, content: &str, summary: TrustSummary) -> Result<(), TrustStoreError> {
        let accepted = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let record = TrustRecord {
            sha256: sha256(content),
            content: content_digest(content, path).ok(),
            accepted,
            summary: summary.bounded(),
            ..TrustRecord::empty(path)?
        };
        self.change(|records| {
            records.retain(|known| known.path != record.path);
            records.push(record);
            true
        })?;
        Ok(())
    }

    /// Stores that the user declined this content at this path. Consent to another content is kept.
    pub(crate) fn decline(&mut self, path: &Path, content: &str) -> Result<(), TrustStoreError> {
        let declined = Some(sha256(content));
        let record = TrustRecord::empty(path)?;
        self.change(|records| {
            match records.iter_mut().find(|known| known.path == record.path) {
                Some(known) => known.declined = declined,
                None => records.push(TrustRecord { declined, ..record }),
            }
            true
        })?;
        Ok(())
    }

    /// Removes the file at this path, which need not exist. Returns whether it was stored.
    pub(crate) fn revoke(&mut self, path: &Path) -> Result<bool, TrustStoreError> {
        let location = location(path).or_else(|_| std::path::absolute(path));
        let location = location.map_err(|source| TrustStoreError::Unidentified { path: path.to_owned(), source })?;
        self.change(|records| {
            let before = records.len();
            records.retain(|known| known.path != location);
            records.len() < before
        })
    }

    /// Returns the accepted files, oldest first.
    pub(crate) fn records(&self) -> &[TrustRecord] {
        &self.records
    }

    /// Reads the store again and changes it under the lock, so that concurrent processes keep each other's changes.
    fn change(&mut self, change: impl FnOnce(&mut Vec<TrustRecord>) -> bool) -> Result<bool, TrustStoreError> {
        let _lock = lock(&self.folder)?;
        let path = self.folder.join(FILE);
        let mut records = read(&path)?;
        let is_changed = change(&mut records);
        if is_changed {
            let text = serialize(&mut records, MAX_BYTES);
            let options = ReplaceOptions::private().under_lock();
            let written = text.and_then(|text| replace_file(&path, text.as_bytes(), options));
            written.map_err(|source| TrustStoreError::Unwritable { path, source })?;
        }
        self.records = records;
        Ok(is_changed)
    }
}

/// Serializes the store. Drops the oldest summaries, never a record, if it would exceed the maximum size.
fn serialize(records: &mut [TrustRecord], largest: u64) -> io::Result<String> {
    let text = |records: &[TrustRecord]| {
        serde_json::to_string_pretty(&StoreDocument { version: VERSION, files: records.to_vec() })
    };
    let whole = text(records)?;
    let mut excess = (whole.len() as u64).saturating_sub(largest);
    if excess == 0 {
        return Ok(whole);
    }
    for record in records.iter_mut().filter(|record| record.summary != TrustSummary::default()) {
        if excess == 0 {
            break;
        }
        // A lower bound: the pretty-printed form is longer.
        excess = excess.saturating_sub(serde_json::to_string(&record.summary)?.len() as u64);
        record.summary = TrustSummary::default();
    }
    let bounded = text(records)?;
    if bounded.len() as u64 > largest {
        return Err(io::Error::other(format!("too many trusted files for {} MiB", largest >> 20)));
    }
    Ok(bounded)
}

/// Reads a store's records.
fn read(path: &Path) -> Result<Vec<TrustRecord>, TrustStoreError> {
    let unreadable = |source| TrustStoreError::Unreadable { path: path.to_owned(), source };
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
        return Err(TrustStoreError::Insecure { path: path.to_owned(), problem });
    }
    let mut text = String::new();
    let broken = |reason: String| TrustStoreError::Broken { path: path.to_owned(), reason };
    match file.take(MAX_BYTES + 1).read_to_string(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(broken("not UTF-8".to_owned())),
        read => drop(read.map_err(unreadable)?),
    }
    if text.len() as u64 > MAX_BYTES {
        return Err(broken(format!("larger than {} MiB", MAX_BYTES >> 20)));
    }
    let FormatVersion { version } = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    if version > VERSION {
        return Err(TrustStoreError::Newer { path: path.to_owned(), version });
    }
    let StoreDocument { files, .. } = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    Ok(files)
}

/// Creates the private directory and waits for the lock. Dropping the file releases it.
fn lock(folder: &Path) -> Result<File, TrustStoreError> {
    let path = folder.join(LOCK);
    let unwritable = |source| TrustStoreError::Unwritable { path: folder.to_owned(), source };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.and_then(|()| make_private(folder, 0o700)).map_err(unwritable)?;
    let file = open_lock(&path);
    let file = file.map_err(|source| TrustStoreError::Unwritable { path: path.clone(), source })?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(TrustStoreError::Unwritable { path, source }),
            Err(TryLockError::WouldBlock) if began.elapsed() > LOCK_TIMEOUT => {
                return Err(TrustStoreError::Locked { path });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Removes all other users' permissions.
fn make_private(path: &Path, mode: u32) -> io::Result<()> {
    let now = std::fs::metadata(path)?.permissions().mode() & 0o777;
    if now & 0o077 != 0 { std::fs::set_permissions(path, Permissions::from_mode(mode)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
