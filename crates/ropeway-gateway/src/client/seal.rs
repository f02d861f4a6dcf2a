//! Sealed ids: sessions, cursors, request states, events and tasks that only this gateway can create and read.
//!
//! An id carries its own state, encrypted and authenticated. It is bound to its kind and its principal, and it expires.
//! A restarted gateway with the same keys accepts its earlier ids.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

pub(crate) use ropeway_config::decode_gateway_key;

/// The first byte of every sealed id.
const VERSION: u8 = 1;

/// Key length, in bytes.
const KEY_BYTES: usize = 32;

/// Maximum sealed id length, in characters. Longer ids are rejected unread.
const MAX_CHARS: usize = 4 << 10;

/// Maximum number of keys in a ring.
const MAX_KEYS: usize = 16;

/// Maximum key file size.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// A sealed id's purpose. An id with one purpose is never valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealKind {
    /// A legacy client's session.
    Session,
    /// A call's state while it waits for client input.
    RequestState,
    /// The position in a list.
    Cursor,
    /// The position in an event stream.
    Event,
    /// A server's task.
    Task,
}

impl SealKind {
    /// The label for each kind, in variant order.
    const LABELS: [&[u8]; 5] = [b"session", b"request-state", b"cursor", b"event", b"task"];
}

/// Why a sealed id was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// The id was changed, or was sealed with another key or for another kind or principal.
    #[error("the id is not valid")]
    Invalid,
    /// The id is too old.
    #[error("the id has expired")]
    Expired,
}

/// Why a gateway's keys could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A key is not 32 bytes in base64 or hexadecimal.
    #[error("key {number} is not 32 bytes in base64 or hexadecimal")]
    Malformed {
        /// The key's position, from 1.
        number: usize,
    },
    /// The settings refer to variables that are not set.
    #[error("`gateway.keys` needs variables that are not set: {names}")]
    Missing {
        /// The variables' names.
        names: String,
    },
    /// The source has no key, or too many.
    #[error("expected 1 to {MAX_KEYS} keys, found {found}")]
    Count {
        /// The number of keys.
        found: usize,
    },
    /// Other users can access the file.
    #[error("other users can access the key file (mode {mode:o})")]
    Exposed {
        /// The permission bits.
        mode: u32,
    },
}

/// A gateway's keys. The first key seals, and every key opens.
pub(crate) struct KeyRing {
    keys: Vec<Key>,
    random: SystemRandom,
}

/// One key: a cipher for each [`SealKind`].
struct Key {
    /// Selects the key in a ring. Two keys may have the same id.
    id: u8,
    ciphers: Vec<LessSafeKey>,
    /// Derives nonces for lasting ids.
    nonces: hmac::Key,
}

/// A derived key's length.
struct AeadKey;

impl hkdf::KeyType for AeadKey {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl Key {
    fn new(secret: &[u8]) -> Result<Self, Unspecified> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"ropeway gateway 1").extract(secret);
        let derive = |label: &[u8]| {
            let mut bytes = [0; KEY_BYTES];
            secret.expand(&[label], AeadKey)?.fill(&mut bytes)?;
            Ok::<_, Unspecified>(bytes)
        };
        let cipher = |label: &&[u8]| UnboundKey::new(&aead::AES_256_GCM, &derive(label)?).map(LessSafeKey::new);
        let ciphers = SealKind::LABELS.iter().map(cipher).collect::<Result<_, Unspecified>>()?;
        let nonces = hmac::Key::new(hmac::HMAC_SHA256, &derive(b"nonce")?);
        Ok(Self { id: derive(b"id")?[0], ciphers, nonces })
    }
}

impl Key {
    /// Seals a payload. Returns an empty id on failure, which no gateway accepts.
    fn seal(
        &self,
        kind: SealKind,
        principal: &str,
        expires: u64,
        nonce: [u8; aead::NONCE_LEN],
        payload: &[u8],
    ) -> String {
        let mut sealed = expires.to_be_bytes().to_vec();
        sealed.extend_from_slice(payload);
        let aad = Aad::from(bound_to(self.id, principal));
        let unique = Nonce::assume_unique_for_key(nonce);
        if self.ciphers[kind as usize].seal_in_place_append_tag(unique, aad, &mut sealed).is_err() {
            return String::new();
        }
        let mut id = vec![VERSION, self.id];
        id.extend_from_slice(&nonce);
        id.extend_from_slice(&sealed);
        URL_SAFE_NO_PAD.encode(id)
    }
}

impl KeyRing {
    /// Creates a ring from keys in base64 or hexadecimal, separated by spaces, commas or lines. The first one seals.
    pub(crate) fn parse(text: &str) -> Result<Self, KeyError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let words: Vec<&str> =
            lines.flat_map(|line| line.split([' ', '\t', ','])).filter(|word| !word.is_empty()).collect();
        if words.is_empty() || words.len() > MAX_KEYS {
            return Err(KeyError::Count { found: words.len() });
        }
        let key = |(index, word): (usize, &&str)| {
            let key = decode_gateway_key(word).and_then(|bytes| Key::new(&bytes).ok());
            key.ok_or(KeyError::Malformed { number: index + 1 })
        };
        let keys = words.iter().enumerate().map(key).collect::<Result<_, _>>()?;
        Ok(Self { keys, random: SystemRandom::new() })
    }

    /// Creates a ring with one new key, which is lost with the process.
    pub(crate) fn generate() -> Result<Self, KeyError> {
        Self::parse(&new_key()?)
    }

    /// Loads the keys from a file. Creates the file with a new key, readable by its owner only, if it does not exist.
    pub(crate) fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match read_private(path) {
            Err(KeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            read => return Self::parse(&read?),
        }
        create_private(path, new_key()?.as_bytes())?;
        // Another process may have been faster. Both then use its key.
        Self::parse(&read_private(path)?)
    }

    /// Seals a payload into an id that expires after `lifetime`.
    pub(crate) fn seal(&self, kind: SealKind, principal: &str, lifetime: Duration, payload: &[u8]) -> String {
        let mut nonce = [0; aead::NONCE_LEN];
        // Without random numbers the id is empty, which no gateway accepts.
        match self.random.fill(&mut nonce) {
            Ok(()) => self.keys[0].seal(kind, principal, (now() + lifetime).as_secs(), nonce, payload),
            Err(_) => String::new(),
        }
    }

    /// Seals a payload into an id that does not expire. A principal's equal payloads have equal ids.
    pub(crate) fn seal_lasting(&self, kind: SealKind, principal: &str, payload: &[u8]) -> String {
        let key = &self.keys[0];
        // A nonce is used again only with the same content.
        let mut content = hmac::Context::with_key(&key.nonces);
        for part in [SealKind::LABELS[kind as usize], principal.as_bytes(), payload] {
            content.update(&part.len().to_be_bytes());
            content.update(part);
        }
        let tag = content.sign();
        let mut nonce = [0; aead::NONCE_LEN];
        nonce.copy_from_slice(&tag.as_ref()[..aead::NONCE_LEN]);
        key.seal(kind, principal, u64::MAX, nonce, payload)
    }

    /// Opens an id and returns its payload.
    pub(crate) fn open(&self, kind: SealKind, principal: &str, id: &str) -> Result<Vec<u8>, SealError> {
        if id.len() > MAX_CHARS {
            return Err(SealError::Invalid);
        }
        let bytes = URL_SAFE_NO_PAD.decode(id).map_err(|_| SealError::Invalid)?;
        let [VERSION, key_id, rest @ ..] = bytes.as_slice() else { return Err(SealError::Invalid) };
        let (nonce, sealed) = rest.split_first_chunk::<{ aead::NONCE_LEN }>().ok_or(SealError::Invalid)?;
        let opened = self.keys.iter().filter(|key| key.id == *key_id).find_map(|key| {
            let (mut sealed, aad) = (sealed.to_vec(), Aad::from(bound_to(key.id, principal)));
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let length = key.ciphers[kind as usize].open_in_place(nonce, aad, &mut sealed).ok()?.len();
            sealed.truncate(length);
            Some(sealed)
        });
        let mut payload = opened.ok_or(SealError::Invalid)?;
        let (expires, _) = payload.split_first_chunk::<8>().ok_or(SealError::Invalid)?;
        if u64::from_be_bytes(*expires) < now().as_secs() {
            return Err(SealError::Expired);
        }
        payload.drain(..8);
        Ok(payload)
    }
}

/// Returns the data that is authenticated together with an id's content.
fn bound_to(key: u8, principal: &str) -> Vec<u8> {
    let mut data = vec![VERSION, key];
    data.extend_from_slice(principal.as_bytes());
    data
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a new random key in base64.
fn new_key() -> Result<String, KeyError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system's random number generator failed"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Reads a key file that only its owner can access.
fn read_private(path: &Path) -> Result<String, KeyError> {
    let file = fs::File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { mode });
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Atomically creates a file with its content, unless it exists.
fn create_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let new = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let created = file.and_then(|mut file| file.write_all(text)).and_then(|()| match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let _ = fs::remove_file(&new);
    created
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ring() -> KeyRing {
        KeyRing::generate().expect("random numbers")
    }

    #[test]
    fn an_id_opens_with_its_kind_and_principal_only() {
        let keys = ring();
        let id = keys.seal(SealKind::Session, "alice", HOUR, b"state");
        assert_eq!(keys.open(SealKind::Session, "alice", &id), Ok(b"state".to_vec()));
        assert_eq!(keys.open(SealKind::Session, "bob", &id), Err(SealError::Invalid));
        assert_eq!(keys.open(SealKind::Cursor, "alice", &id), Err(SealError::Invalid));
        assert_eq!(ring().open(SealKind::Session, "alice", &id), Err(SealError::Invalid));
    }

    #[test]
    fn a_lasting_id_is_always_the_same() {
        let keys = ring();
        let id = keys.seal_lasting(SealKind::Task, "alice", b"task");
        assert_eq!(keys.seal_lasting(SealKind::Task, "alice", b"task"), id);
        assert_eq!(keys.open(SealKind::Task, "alice", &id), Ok(b"task".to_vec()));
        assert_eq!(keys.open(SealKind::Task, "bob", &id), Err(SealError::Invalid));
        for (principal, payload) in [("bob", &b"task"[..]), ("alice", b"other"), ("alicet", b"ask")] {
            assert_ne!(keys.seal_lasting(SealKind::Task, principal, payload)[..24], id[..24], "the nonces differ");
        }
    }

    #[test]
    fn every_changed_character_makes_an_id_invalid() {
        let ring = ring();
        let id = ring.seal(SealKind::RequestState, "", HOUR, b"x");
        for at in 0..id.len() {
            let mut changed = id.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(ring.open(SealKind::RequestState, "", &changed), Err(SealError::Invalid), "{at}");
        }
        for broken in ["", "A", "AQ", "not base64!", &id[..id.len() - 2], &"A".repeat(MAX_CHARS + 1)] {
            assert_eq!(ring.open(SealKind::RequestState, "", broken), Err(SealError::Invalid));
        }
    }

    #[test]
    fn an_old_id_has_expired() {
        let ring = ring();
        let sealed = ring.seal(SealKind::Cursor, "", Duration::ZERO, b"");
        // An id is valid during the second in which it expires.
        let expired = (0..30).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            ring.open(SealKind::Cursor, "", &sealed) == Err(SealError::Expired)
        });
        assert!(expired);
    }

    #[test]
    fn an_old_key_opens_until_it_is_removed() {
        let (old, new) = (new_key().expect("a key"), new_key().expect("a key"));
        let before = KeyRing::parse(&old).expect("a ring");
        let id = before.seal(SealKind::Session, "", HOUR, b"1");
        let rotated = KeyRing::parse(&format!("{new} # since Monday\n{old}\n")).expect("a ring");
        assert_eq!(rotated.open(SealKind::Session, "", &id), Ok(b"1".to_vec()));
        let fresh = rotated.seal(SealKind::Session, "", HOUR, b"2");
        assert_eq!(before.open(SealKind::Session, "", &fresh), Err(SealError::Invalid));
        assert_eq!(KeyRing::parse(&new).expect("a ring").open(SealKind::Session, "", &id), Err(SealError::Invalid));
    }

    #[test]
    fn a_key_file_is_created_once_and_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state/gateway.key");
        let rings: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| KeyRing::load_or_create(&path).expect("a ring"))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let id = rings[0].seal(SealKind::Session, "", HOUR, b"1");
        assert!(rings.iter().all(|ring| ring.open(SealKind::Session, "", &id).is_ok()));
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().expect("a parent")).expect("a directory").count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        assert!(matches!(KeyRing::load_or_create(&path), Err(KeyError::Exposed { mode: 0o644 })));
    }

    #[test]
    fn broken_keys_are_reported_by_their_position() {
        let key = new_key().expect("a key");
        assert!(matches!(KeyRing::parse(&format!("{key} short")), Err(KeyError::Malformed { number: 2 })));
        assert!(KeyRing::parse(&"0f".repeat(KEY_BYTES)).is_ok(), "hexadecimal");
        assert!(matches!(KeyRing::parse(" \n# only a comment\n"), Err(KeyError::Count { found: 0 })));
        assert!(matches!(KeyRing::parse(&format!("{key},").repeat(17)), Err(KeyError::Count { found: 17 })));
    }
}
