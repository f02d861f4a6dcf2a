//! Where a gateway's session keys come from.

use std::path::PathBuf;

use crate::client::seal::{KeyError, KeyRing};
use ropeway_core::secret::Secret;

/// The source for a gateway's session keys. They seal session ids, cursors and all other ids that clients send back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeySource {
    /// New keys at every start. Sessions end with the gateway.
    Ephemeral,
    /// Given keys: 32 bytes each, in base64 or hexadecimal. The first key seals, and every key opens.
    Given(Vec<Secret>),
    /// A file with one key per line, which is created if it does not exist.
    File(PathBuf),
}

impl KeySource {
    pub(crate) fn load(&self) -> Result<KeyRing, KeyError> {
        match self {
            Self::Ephemeral => KeyRing::generate(),
            Self::Given(secrets) => KeyRing::parse(&secrets.iter().map(Secret::expose).collect::<Vec<_>>().join(" ")),
            Self::File(path) => KeyRing::load_or_create(path),
        }
    }
}
