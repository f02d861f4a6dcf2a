//! The client key file: reading it, and changing it under a lock.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::client_key::{ClientKey, NewKey};
use ropeway_config::lock::hold;
use ropeway_core::private_file::FileStamp;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::secret::Secret;

/// The format version.
const VERSION: u32 = 1;

/// Maximum file size in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Maximum number of keys in a file.
const MAX_KEYS: usize = 10_000;

/// Why a key file could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("could not read `{}`", path.display())]
    Read {
        /// The file's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("could not write `{}`", path.display())]
    Write {
        /// The file's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The file's content is invalid.
    #[error("`{}` is not a valid key file: {problem}", path.display())]
    Invalid {
        /// The file's path.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// Other users can change the file.
    #[error("other users can change `{}` (mode {mode:o})", path.display())]
    Exposed {
        /// The file's path.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// A key with this name exists.
    #[error("a key named `{name}` already exists")]
    Duplicate {
        /// The key's name.
        name: String,
    },
    /// A new key's settings are invalid.
    #[error("{problem}")]
    Settings {
        /// A description of the problem.
        problem: String,
    },
}

/// The client key file.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    keys: Vec<ClientKey>,
}

impl KeyFile {
    /// Creates a handle for a path. The file does not have to exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's version; `None` if it cannot be accessed.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some(FileStamp::from(&metadata))
    }

    /// Reads all keys.
    ///
    /// # Errors
    ///
    /// Fails if the file does not exist, cannot be read, is invalid, or can be changed by other users.
    pub fn read(&self) -> Result<Vec<ClientKey>, KeyFileError> {
        let failed = |source| KeyFileError::Read { path: self.path.clone(), source };
        let file = ropeway_config::open_regular(&self.path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(KeyFileError::Exposed { path: self.path.clone(), mode });
        }
        self.check_owner(metadata.uid())?;
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        self.parse(&text)
    }

    /// Checks that only this user and root can replace the file.
    fn check_owner(&self, owner: u32) -> Result<(), KeyFileError> {
        let own = rustix::process::geteuid().as_raw();
        let foreign = |owner: u32| owner != own && owner != 0;
        let folder = fs::metadata(self.folder());
        let folder = folder.map_err(|source| KeyFileError::Read { path: self.path.clone(), source })?;
        let mode = folder.permissions().mode();
        let problem = if foreign(owner) {
            Some("it belongs to another user")
        } else if foreign(folder.uid()) {
            Some("its folder belongs to another user")
        } else if mode & 0o002 != 0 && mode & 0o1000 == 0 {
            Some("other users can change its folder")
        } else {
            None
        };
        match problem {
            Some(problem) => Err(KeyFileError::Invalid { path: self.path.clone(), problem: problem.to_owned() }),
            None => Ok(()),
        }
    }

    fn parse(&self, text: &str) -> Result<Vec<ClientKey>, KeyFileError> {
        let invalid = |problem: String| KeyFileError::Invalid { path: self.path.clone(), problem };
        if text.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("larger than {} MiB", MAX_BYTES >> 20)));
        }
        let document: Document = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        if document.version != VERSION {
            return Err(invalid(format!("version {} is not supported", document.version)));
        }
        if document.keys.len() > MAX_KEYS {
            return Err(invalid(format!("more than {MAX_KEYS} keys")));
        }
        let (mut names, mut digests) = (HashSet::new(), HashSet::new());
        for key in &document.keys {
            if let Some(problem) = key.problem() {
                return Err(invalid(problem));
            }
            if !names.insert(&key.name) || !digests.insert(key.digest()) {
                return Err(invalid(format!("key `{}` occurs twice", key.name)));
            }
        }
        Ok(document.keys)
    }

    /// Creates a key and adds it to the file, which is created with mode 0600 if it does not exist. Returns the key, which cannot
    /// be read again.
    ///
    /// # Errors
    ///
    /// Fails if the settings are invalid, if the name is in use, or if the file cannot be read or written.
    pub fn add(&self, new: NewKey) -> Result<(Secret, ClientKey), KeyFileError> {
        let made = new.make().map_err(|source| KeyFileError::Write { path: self.path.clone(), source })?;
        if let Some(problem) = made.1.problem() {
            return Err(KeyFileError::Settings { problem });
        }
        self.change(true, |keys| {
            // An expired key's name can be reused.
            keys.retain(|key| key.name != made.1.name || !key.is_expired());
            if keys.iter().any(|key| key.name == made.1.name) {
                return Err(KeyFileError::Duplicate { name: made.1.name.clone() });
            }
            keys.push(made.1.clone());
            Ok(())
        })?;
        Ok(made)
    }

    /// Removes the keys with a name or id. Returns them.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written.
    pub fn revoke(&self, name: &str) -> Result<Vec<ClientKey>, KeyFileError> {
        let mut revoked = Vec::new();
        self.change(false, |keys| {
            revoked = keys.extract_if(.., |key| key.name == name || key.id == name).collect();
            Ok(())
        })?;
        Ok(revoked)
    }

    /// Grants or withdraws operator rights for the keys with a name or id. The secrets stay valid. Returns the keys.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or written.
    pub fn set_operator(&self, name: &str, operator: bool) -> Result<Vec<ClientKey>, KeyFileError> {
        let mut changed = Vec::new();
        self.change(false, |keys| {
            for key in keys.iter_mut().filter(|key| key.name == name || key.id == name) {
                key.operator = operator;
                changed.push(key.clone());
            }
            Ok(())
        })?;
        Ok(changed)
    }

    /// Changes the keys while holding the lock.
    fn change(
        &self,
        is_new: bool,
        change: impl FnOnce(&mut Vec<ClientKey>) -> Result<(), KeyFileError>,
    ) -> Result<(), KeyFileError> {
        let failed = |source| KeyFileError::Write { path: self.path.clone(), source };
        let _held = hold(self.folder()).map_err(failed)?;
        let mut keys = match self.read() {
            Err(KeyFileError::Read { source, .. }) if is_new && source.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let before = keys.clone();
        change(&mut keys)?;
        if keys == before {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&Document { version: VERSION, keys }).unwrap_or_default() + "\n";
        // Checks that the new text can be read again.
        self.parse(&text)?;
        self.replace(&text).map_err(failed)
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
    }

    /// Atomically replaces the file. A link is kept, and its target replaced.
    fn replace(&self, text: &str) -> io::Result<()> {
        let target = match fs::canonicalize(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.path.clone(),
            target => target?,
        };
        replace_file(&target, text.as_bytes(), ReplaceOptions::private()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::auth::client_key::key_digest;

    fn file() -> (tempfile::TempDir, KeyFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        (folder, file)
    }

    #[test]
    fn a_key_is_shown_once_and_stored_as_a_digest() {
        let (folder, file) = file();
        let (key, record) = file.add(NewKey::new("alice")).expect("a key");
        let text = fs::read_to_string(file.path()).expect("a file");
        assert!(key.expose().starts_with(&format!("rw_{}_", record.id)), "{record:?}");
        assert_eq!(key.expose().len(), "rw_01234567_".len() + 43);
        let secret = &key.expose()["rw_01234567_".len()..];
        assert!(!text.contains(secret) && !text.contains(key.expose()));
        assert_eq!(file.read().expect("keys").first(), Some(&record));
        assert_eq!(record.digest(), Some(key_digest(key.expose())));
        assert_eq!(fs::metadata(file.path()).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left behind");
    }

    #[test]
    fn names_are_unique_and_free_again_after_a_revocation() {
        let (_folder, file) = file();
        let (_, first) = file.add(NewKey::new("alice")).expect("a key");
        assert!(matches!(file.add(NewKey::new("alice")), Err(KeyFileError::Duplicate { .. })));
        assert_eq!(file.revoke("bob").expect("no key"), []);
        assert_eq!(file.revoke(&first.id).expect("a key"), [first]);
        file.add(NewKey { lifetime: Some(Duration::ZERO), ..NewKey::new("alice") }).expect("a key");
        assert!(file.read().expect("keys")[0].is_expired());
        file.add(NewKey::new("alice")).expect("an expired key does not hold its name");
    }

    #[test]
    fn an_existing_key_becomes_an_operator_without_a_new_secret() {
        let (_folder, file) = file();
        let (_, first) = file.add(NewKey::new("alice")).expect("a key");
        file.add(NewKey { operator: true, ..NewKey::new("ops") }).expect("a key");
        let text = fs::read_to_string(file.path()).expect("a file");
        assert_eq!(
            text.matches("\"operator\": true").count(),
            1,
            "files without operators have no such member: {text}"
        );
        let operator = ClientKey { operator: true, ..first.clone() };
        assert_eq!(file.set_operator("alice", true).expect("a key"), std::slice::from_ref(&operator));
        assert_eq!(file.read().expect("keys")[0], operator);
        assert_eq!(file.set_operator(&first.id, false).expect("a key"), std::slice::from_ref(&first));
        assert_eq!(file.read().expect("keys")[0], first);
        assert_eq!(file.set_operator("nobody", true).expect("no key"), []);
    }

    #[test]
    fn keys_that_are_added_at_the_same_time_are_all_kept() {
        let (_folder, file) = file();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let file = &file;
                scope.spawn(move || file.add(NewKey::new(format!("k{number}"))).expect("a key"));
            }
        });
        assert_eq!(file.read().expect("keys").len(), 16);
    }

    #[test]
    fn an_invalid_file_is_described_and_not_overwritten() {
        let (_folder, file) = file();
        assert!(matches!(file.read(), Err(KeyFileError::Read { .. })));
        let digest = "0".repeat(64);
        let key = |more: &str| format!(r#"{{"id":"a","name":"a","sha256":"{digest}","created":1{more}}}"#);
        for (text, problem) in [
            ("".to_owned(), "EOF"),
            ("[]".to_owned(), "invalid"),
            (r#"{"version":2,"keys":[]}"#.to_owned(), "version 2"),
            (format!(r#"{{"version":1,"keys":[{},{}]}}"#, key(""), key("")), "occurs twice"),
            (format!(r#"{{"version":1,"keys":[{}]}}"#, key(r#","tool":["x"]"#)), "unknown field `tool`"),
            (format!(r#"{{"version":1,"keys":[{}]}}"#, key(r#","tools":["{"]"#)), "glob of key `a`"),
            (format!(r#"{{"version":1,"keys":[{}]}}"#, key(r#","limits":{"rate":"9"}"#)), "expected a rate"),
            (format!(r#"{{"version":1,"keys":[{}]}}"#, key("").replace(&digest, "00")), "64 hexadecimal digits"),
            (
                format!(r#"{{"version":1,"keys":[{}]}}"#, key("").replace(r#""name":"a""#, r#""name":"a\n""#)),
                "is not a name",
            ),
        ] {
            fs::write(file.path(), &text).expect("a file");
            fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).expect("a mode");
            let error = file.read().expect_err("invalid").to_string();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(file.add(NewKey::new("b")).is_err());
            assert_eq!(fs::read_to_string(file.path()).expect("a file"), text);
        }
    }

    #[test]
    fn a_file_that_others_can_change_is_refused() {
        let (_folder, file) = file();
        file.add(NewKey::new("a")).expect("a key");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("a mode");
        assert!(matches!(file.read(), Err(KeyFileError::Exposed { mode: 0o666, .. })));
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o440)).expect("a mode");
        assert!(file.read().is_ok(), "a mounted secret may be readable");
    }

    #[test]
    fn a_file_that_others_can_replace_is_refused() {
        let (folder, file) = file();
        file.add(NewKey::new("a")).expect("a key");
        let set_mode = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        set_mode(0o777);
        let error = file.read().expect_err("an open folder").to_string();
        assert!(error.ends_with("other users can change its folder"), "{error}");
        set_mode(0o1777);
        assert!(file.read().is_ok());
        let foreign = rustix::process::geteuid().as_raw() + 1;
        assert!(file.check_owner(foreign).is_err() && file.check_owner(0).is_ok());
    }

    #[test]
    fn settings_that_a_file_cannot_hold_are_refused() {
        let (_folder, file) = file();
        for new in [
            NewKey::new(""),
            NewKey::new("a b"),
            NewKey::new("a\n"),
            NewKey::new("x".repeat(65)),
            NewKey { tools: vec!["{".to_owned()], ..NewKey::new("a") },
        ] {
            assert!(matches!(file.add(new), Err(KeyFileError::Settings { .. })));
        }
        assert!(!file.path().exists());
    }
}
