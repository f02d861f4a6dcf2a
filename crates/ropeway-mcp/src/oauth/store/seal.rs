//! Authenticated encryption with a store's or an export's key.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Key length, in bytes.
pub(super) const KEY_BYTES: usize = 32;

/// A key that encrypts tokens.
#[derive(Clone)]
pub(super) struct StoreKey {
    cipher: Arc<LessSafeKey>,
    id: String,
}

impl StoreKey {
    pub(super) fn new(bytes: &[u8; KEY_BYTES]) -> Result<Self, Unspecified> {
        let cipher = Arc::new(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes)?));
        let id = hex(&digest(&SHA256, bytes).as_ref()[..8]);
        Ok(Self { cipher, id })
    }

    /// Parses a key's text, as it is in the keyring.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok()?;
        Self::new(bytes.as_slice().try_into().ok()?).ok()
    }

    /// Identifies the key, and does not reveal it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Encrypts a text. The result starts with the nonce.
    pub(super) fn seal(&self, bound_to: &[u8], text: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let nonce: [u8; NONCE_LEN] = random()?;
        let mut data = text.to_vec();
        self.cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound_to), &mut data)?;
        Ok([nonce.as_slice(), &data].concat())
    }

    /// Decrypts what [`seal`](Self::seal) returned.
    pub(super) fn open(&self, bound_to: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let (nonce, data) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(Unspecified)?;
        let mut data = data.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.cipher.open_in_place(nonce, Aad::from(bound_to), &mut data)?.len();
        data.truncate(length);
        Ok(data)
    }
}

/// Returns a new random key's text.
pub(super) fn new_key() -> Result<String, Unspecified> {
    random::<KEY_BYTES>().map(|bytes| URL_SAFE_NO_PAD.encode(bytes))
}

/// Returns random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Unspecified> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns the start of the SHA-256 hash over several parts, in hexadecimal digits. The parts cannot be confused with each
/// other.
pub(super) fn fingerprint(parts: &[&str]) -> String {
    let mut text = Vec::new();
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part.as_bytes());
    }
    hex(&digest(&SHA256, &text).as_ref()[..20])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_opens_with_its_key_and_binding_only() {
        let key = StoreKey::parse(&new_key().expect("a key")).expect("a key");
        let other = StoreKey::parse(&new_key().expect("a key")).expect("a key");
        let sealed = key.seal(b"server", b"token").expect("sealed");
        assert_eq!(key.open(b"server", &sealed).expect("opened"), b"token");
        assert!(key.open(b"another server", &sealed).is_err());
        assert!(other.open(b"server", &sealed).is_err());
        assert_ne!(key.id(), other.id());
        for length in 0..sealed.len() {
            assert!(key.open(b"server", &sealed[..length]).is_err());
        }
    }

    #[test]
    fn texts_that_are_not_keys_are_rejected() {
        for text in ["", "short", "not base64!", &"A".repeat(44)] {
            assert!(StoreKey::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn fingerprints_distinguish_where_a_part_ends() {
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_ne!(fingerprint(&["a"]), fingerprint(&["a", ""]));
        assert_eq!(fingerprint(&["a"]).len(), 40);
    }
}
