//! Client keys in memory, reloaded when their file changes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use super::client_key::{ClientKey, KeyDigest, key_digest, unix_now};
use super::key_file::{KeyFile, KeyFileError};
use super::principals::Principals;
use crate::client::principal::{Grant, Principal, ToolAccess};
use ropeway_config::PrincipalLimits;
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Event, Events};
use ropeway_core::private_file::FileStamp;
use ropeway_core::sync::{read, write};

/// A key file's keys.
pub(crate) struct Keys {
    file: KeyFile,
    principals: Arc<Principals>,
    /// The default limits for keys.
    limits: PrincipalLimits,
    table: RwLock<KeyTable>,
    /// When the file's version was last read, in microseconds since `created`.
    checked: AtomicU64,
    created: Instant,
    events: Events,
}

/// Interval between checks of the file's version. A busy gateway would otherwise check it twenty times a millisecond.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The keys in one version of the file, by digest.
struct KeyTable {
    keys: HashMap<KeyDigest, LiveKey>,
    /// The file version that was read last, even if it was invalid. A file that could not be read is tried again.
    stamp: Option<FileStamp>,
    /// Whether the file could not be read. Only the first failure is reported.
    is_unreadable: bool,
}

struct LiveKey {
    principal: Principal,
    expires: Option<u64>,
}

impl LiveKey {
    fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= unix_now())
    }
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyRefusal {
    /// The key does not exist, or was revoked.
    #[error("the key is unknown or was revoked")]
    Unknown,
    /// The key is too old.
    #[error("the key has expired")]
    Expired,
}

impl Keys {
    /// Reads the keys from a file.
    pub(crate) fn load(
        file: KeyFile,
        principals: &Arc<Principals>,
        limits: PrincipalLimits,
        events: Events,
    ) -> Result<Self, KeyFileError> {
        // The stamp is older than the text, so that a change in between is seen next time.
        let stamp = file.stamp();
        let keys = live_keys(file.read()?, principals, limits);
        principals.set_keys(names(&keys).len());
        let table = RwLock::new(KeyTable { keys, stamp, is_unreadable: false });
        let (checked, created) = (AtomicU64::new(0), Instant::now());
        Ok(Self { file, principals: principals.clone(), limits, table, checked, created, events })
    }

    /// Returns a key's principal.
    ///
    /// The file's metadata is read at most once a millisecond, so that a key is refused as soon as the command that revoked it
    /// has ended.
    pub(crate) fn find(&self, key: &str) -> Result<Principal, KeyRefusal> {
        let digest = key_digest(key);
        let is_checked = self.is_check_due();
        if is_checked {
            self.refresh();
        }
        match self.lookup(&digest) {
            // The file may have it: the last check was just before, or another request is still reading the file.
            Err(KeyRefusal::Unknown) if !is_checked => {
                self.refresh();
                self.lookup(&digest)
            }
            found => found,
        }
    }

    fn lookup(&self, digest: &KeyDigest) -> Result<Principal, KeyRefusal> {
        let table = read(&self.table);
        let key = table.keys.get(digest).ok_or(KeyRefusal::Unknown)?;
        if key.is_expired() { Err(KeyRefusal::Expired) } else { Ok(key.principal.clone()) }
    }

    /// Returns `true` for one caller in each [`CHECK_INTERVAL`].
    fn is_check_due(&self) -> bool {
        let now = u64::try_from(self.created.elapsed().as_micros()).unwrap_or(u64::MAX);
        let checked = self.checked.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(checked) >= CHECK_INTERVAL.as_micros() as u64;
        is_due && self.checked.compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends streams whose principals' keys are revoked or expired.
    pub(crate) fn end_streams(&self) {
        self.refresh();
        let table = read(&self.table);
        table.keys.values().filter(|key| key.is_expired()).for_each(|key| key.principal.revoke());
    }

    /// Ends streams for principals that have no key in the file that replaces this one.
    pub(crate) fn end_streams_without(&self, other: Option<&Self>) {
        let none = HashMap::new();
        let other = other.map(|other| read(&other.table));
        revoke_missing(&read(&self.table).keys, other.as_ref().map_or(&none, |other| &other.keys));
    }

    /// Reads the file again if it has changed. An invalid file does not change the keys.
    fn refresh(&self) {
        let stamp = self.file.stamp();
        if read(&self.table).stamp == stamp {
            return;
        }
        let mut table = write(&self.table);
        if table.stamp == stamp {
            return;
        }
        match self.file.read() {
            Ok(keys) => {
                (table.stamp, table.is_unreadable) = (stamp, false);
                let kept: HashSet<KeyDigest> = keys.iter().filter_map(ClientKey::digest).collect();
                let revoked = table.keys.iter().filter(|(digest, _)| !kept.contains(*digest));
                // First, so that a new key with a revoked key's name gets its own principal.
                revoked.for_each(|(_, key)| key.principal.revoke());
                table.keys = live_keys(keys, &self.principals, self.limits);
                self.principals.set_keys(names(&table.keys).len());
                tracing::info!(keys = table.keys.len(), "reloaded `{}`", self.file.path().display());
            }
            Err(error) => {
                // A read error, such as too few descriptors or too little memory, may be temporary, so the file is read again.
                let is_unreadable = matches!(error, KeyFileError::Read { .. });
                if !is_unreadable {
                    table.stamp = stamp;
                }
                if !is_unreadable || !table.is_unreadable {
                    let message = format!("client keys not reloaded, using the previous ones: {}", chain(&error));
                    self.events.emit(Event::Warning { server: None, message });
                }
                table.is_unreadable = is_unreadable;
            }
        }
    }
}

/// Ends streams for principals without a key. A key with another key's name has its own principal.
fn revoke_missing(before: &HashMap<KeyDigest, LiveKey>, after: &HashMap<KeyDigest, LiveKey>) {
    let kept: HashMap<&str, &Principal> = after.values().map(|key| (key.principal.id(), &key.principal)).collect();
    let is_kept = |key: &LiveKey| kept.get(key.principal.id()).is_some_and(|kept| kept.is_clone(&key.principal));
    before.values().filter(|key| !is_kept(key)).for_each(|key| key.principal.revoke());
}

/// Returns the principals' ids.
fn names(keys: &HashMap<KeyDigest, LiveKey>) -> HashSet<&str> {
    keys.values().map(|key| key.principal.id()).collect()
}

fn live_keys(keys: Vec<ClientKey>, principals: &Principals, limits: PrincipalLimits) -> HashMap<KeyDigest, LiveKey> {
    let live = |key: ClientKey| {
        let grant = Grant {
            key_id: Some(key.id.as_str().into()),
            is_operator: key.operator,
            profiles: key.profiles.clone(),
            tools: key.tools.as_deref().map(ToolAccess::new_or_none).map(Arc::new),
            limits: key.limits.map(PrincipalLimits::from).unwrap_or_default().or(limits),
        };
        let principal = principals.enter(&format!("key:{}", key.name), grant);
        Some((key.digest()?, LiveKey { principal, expires: key.expires }))
    };
    keys.into_iter().filter_map(live).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::client::auth::client_key::NewKey;

    fn keys(file: &KeyFile) -> Keys {
        Keys::load(file.clone(), &Arc::default(), PrincipalLimits::default(), Events::default()).expect("keys")
    }

    /// Finds a key after the file may have changed.
    fn find(keys: &Keys, key: &str) -> Result<Principal, KeyRefusal> {
        std::thread::sleep(CHECK_INTERVAL);
        keys.find(key)
    }

    #[test]
    fn a_change_of_the_file_takes_effect_at_the_next_request() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        assert!(Keys::load(file.clone(), &Arc::default(), PrincipalLimits::default(), Events::default()).is_err());
        let (alice, _) = file.add(NewKey::new("alice")).expect("a key");
        let keys = keys(&file);
        let principal = find(&keys, alice.expose()).expect("a principal");
        assert_eq!(principal.id(), "key:alice");
        let (bob, _) = file.add(NewKey::new("bob")).expect("a key");
        assert_eq!(find(&keys, bob.expose()).expect("a principal").id(), "key:bob");
        file.revoke("alice").expect("a key");
        assert_eq!(find(&keys, alice.expose()), Err(KeyRefusal::Unknown));
        assert!(principal.revoked().is_cancelled(), "its streams end");
        let (again, _) = file.add(NewKey::new("alice")).expect("a key");
        assert!(!find(&keys, again.expose()).expect("a principal").revoked().is_cancelled());
        assert_eq!(find(&keys, "rw_"), Err(KeyRefusal::Unknown));
    }

    #[test]
    fn a_new_key_is_accepted_while_another_request_checks_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        file.add(NewKey::new("alice")).expect("a key");
        let keys = keys(&file);
        keys.checked.store(u64::MAX, Ordering::Relaxed);
        assert!(!keys.is_check_due());
        let (bob, _) = file.add(NewKey::new("bob")).expect("a key");
        assert_eq!(keys.find(bob.expose()).expect("a principal").id(), "key:bob");
    }

    #[test]
    fn the_streams_of_a_replaced_key_end_though_its_name_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (old, _) = file.add(NewKey::new("alice")).expect("a key");
        let keys = keys(&file);
        let before = find(&keys, old.expose()).expect("a principal");
        // The gateway sees both changes as one.
        file.revoke("alice").expect("a key");
        let (new, _) = file.add(NewKey::new("alice")).expect("a key");
        let after = find(&keys, new.expose()).expect("a principal");
        assert!(before.revoked().is_cancelled() && !after.revoked().is_cancelled());
        assert_eq!(find(&keys, old.expose()), Err(KeyRefusal::Unknown));
        // So does a key file in place of another.
        let other = KeyFile::new(folder.path().join("other.json"));
        let (other_key, _) = other.add(NewKey::new("alice")).expect("a key");
        let other = Keys::load(other, &keys.principals, PrincipalLimits::default(), Events::default()).expect("keys");
        keys.end_streams_without(Some(&other));
        let replaced = find(&other, other_key.expose()).expect("a principal");
        assert!(after.revoked().is_cancelled() && !replaced.revoked().is_cancelled());
    }

    #[test]
    fn an_expired_key_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (key, _) = file.add(NewKey { lifetime: Some(Duration::ZERO), ..NewKey::new("a") }).expect("a key");
        let keys = keys(&file);
        assert_eq!(find(&keys, key.expose()), Err(KeyRefusal::Expired));
        keys.end_streams();
        assert!(read(&keys.table).keys.values().all(|key| key.principal.revoked().is_cancelled()));
    }

    #[test]
    fn a_file_that_breaks_leaves_the_previous_keys_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (key, _) = file.add(NewKey::new("a")).expect("a key");
        let keys = keys(&file);
        fs::write(file.path(), "{").expect("a file");
        assert!(find(&keys, key.expose()).is_ok());
        fs::remove_file(file.path()).expect("a file");
        assert!(find(&keys, key.expose()).is_ok());
        file.add(NewKey::new("b")).expect("a key");
        assert_eq!(find(&keys, key.expose()), Err(KeyRefusal::Unknown));
    }

    #[test]
    fn new_rights_of_a_key_reach_clients_that_have_its_principal() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (key, _) = file.add(NewKey::new("a")).expect("a key");
        let keys = keys(&file);
        let held = find(&keys, key.expose()).expect("a principal");
        assert!(held.allows_profile("coding"));
        let text = fs::read_to_string(file.path())
            .expect("a file")
            .replace("\"created\"", "\"profiles\": [\"x\"], \"created\"");
        fs::write(file.path(), text).expect("a file");
        find(&keys, key.expose()).expect("a principal");
        assert!(!held.allows_profile("coding") && held.allows_profile("x"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_tried_again_and_reported_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (key, _) = file.add(NewKey::new("a")).expect("a key");
        let events = Events::default();
        let mut warnings = events.subscribe();
        let keys = Keys::load(file.clone(), &Arc::default(), PrincipalLimits::default(), events).expect("keys");
        fs::remove_file(file.path()).expect("a file");
        fs::create_dir(file.path()).expect("a folder");
        for _ in 0..3 {
            assert!(find(&keys, key.expose()).is_ok());
            assert!(read(&keys.table).stamp != file.stamp(), "the version is not known");
        }
        assert!(warnings.try_next().is_some_and(|event| event.to_string().contains("client keys not reloaded")));
        assert!(warnings.try_next().is_none());
        fs::remove_dir(file.path()).expect("a folder");
        fs::write(file.path(), "{").expect("a file");
        assert!(find(&keys, key.expose()).is_ok());
        assert!(warnings.try_next().is_some_and(|event| event.to_string().contains("not a valid key file")));
    }
}
