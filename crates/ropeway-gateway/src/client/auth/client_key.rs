//! Client keys.
//!
//! A key is shown once, when it is created. Its record contains only a SHA-256 digest: a key has 256 random bits, so no slower
//! hash is needed.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::client::principal::ToolAccess;
use ropeway_config::{PrincipalLimits, Rate};
use ropeway_core::secret::Secret;

/// The prefix that every key starts with.
pub(crate) const KEY_PREFIX: &str = "rw_";

/// Maximum key name length.
const MAX_NAME: usize = 64;

/// Maximum profiles per key, and maximum globs per key.
const MAX_RULES: usize = 1_000;

/// A client's key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ClientKey {
    /// The public part of the key, which identifies it in logs.
    pub id: String,
    /// The client's name.
    pub name: String,
    /// The key's SHA-256 digest in hexadecimal.
    pub sha256: String,
    /// When the key was created, in seconds since 1970.
    pub created: u64,
    /// When the key expires, in seconds since 1970. `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Whether the client is an operator: it sees metrics, statistics, events and servers' standard error, and signs in to shared
    /// accounts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// The profiles and servers that the client may use. `None` allows all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Globs for the tools that the client may use: tool names, or `SERVER.TOOL`. `None` allows all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The client's limits. `None` uses the gateway's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<KeyLimits>,
}

/// One key's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct KeyLimits {
    /// Maximum requests per time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Maximum concurrent calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
    /// Maximum sessions in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<usize>,
    /// Maximum request body bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<usize>,
    /// Maximum result bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<usize>,
}

impl From<KeyLimits> for PrincipalLimits {
    fn from(limits: KeyLimits) -> Self {
        let KeyLimits { rate, calls, sessions, body, result } = limits;
        Self::default().with_rate(rate).with_calls(calls).with_sessions(sessions).with_body(body).with_result(result)
    }
}

impl ClientKey {
    /// Returns `true` if the key has expired.
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= unix_now())
    }

    /// Returns the key's digest; `None` if it is malformed.
    pub(crate) fn digest(&self) -> Option<KeyDigest> {
        let digits = self.sha256.as_bytes();
        let value = |at: usize| char::from(*digits.get(at)?).to_digit(16);
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (value(2 * at)? * 16 + value(2 * at + 1)?) as u8;
        }
        (digits.len() == 64).then_some(bytes)
    }

    /// Describes why the record is invalid; `None` if it is valid.
    pub(crate) fn problem(&self) -> Option<String> {
        let name = self.name.escape_debug();
        if !is_name(&self.name) {
            return Some(format!("`{name}` is not a name of up to {MAX_NAME} letters, digits, `_`, `.`, `-` and `@`"));
        }
        if !is_name(&self.id) {
            return Some(format!("the id of key `{name}` is invalid"));
        }
        if self.digest().is_none() {
            return Some(format!("`sha256` of key `{name}` is not 64 hexadecimal digits"));
        }
        let lists = [("profiles", &self.profiles), ("tools", &self.tools)];
        if let Some((list, _)) = lists.iter().find(|(_, list)| list.as_ref().is_some_and(|list| list.len() > MAX_RULES))
        {
            return Some(format!("`{list}` of key `{name}` has more than {MAX_RULES} entries"));
        }
        let globs = self.tools.as_deref().map(ToolAccess::new);
        globs.and_then(Result::err).map(|problem| format!("glob of key `{name}`: {problem}"))
    }
}

/// A key's SHA-256 digest.
pub(crate) type KeyDigest = [u8; 32];

/// Returns a key's or token's digest.
pub(crate) fn key_digest(key: &str) -> KeyDigest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    bytes
}

/// A new key's settings.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewKey {
    /// The client's name: up to 64 letters, digits, `_`, `.`, `-` and `@`.
    pub name: String,
    /// How long the key is valid. `None` for no limit.
    pub lifetime: Option<Duration>,
    /// Whether the client is an operator.
    pub operator: bool,
    /// The profiles and servers that the client may use. Empty allows all.
    pub profiles: Vec<String>,
    /// Globs for the tools that the client may use. Empty allows all.
    pub tools: Vec<String>,
    /// The client's limits.
    pub limits: KeyLimits,
}

impl NewKey {
    /// Creates settings for a key without restrictions.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Generates a random key and its record.
    pub(crate) fn make(self) -> io::Result<(Secret, ClientKey)> {
        let mut random = [0; 36];
        let no_random = |_| io::Error::other("the system's random number generator failed");
        SystemRandom::new().fill(&mut random).map_err(no_random)?;
        let (id, secret) = random.split_at(4);
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = format!("{KEY_PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
        let created = unix_now();
        let record = ClientKey {
            id,
            name: self.name,
            sha256: key_digest(&key).iter().map(|byte| format!("{byte:02x}")).collect(),
            created,
            expires: self.lifetime.map(|lifetime| created.saturating_add(lifetime.as_secs())),
            operator: self.operator,
            profiles: Some(self.profiles).filter(|profiles| !profiles.is_empty()),
            tools: Some(self.tools).filter(|tools| !tools.is_empty()),
            limits: Some(self.limits).filter(|limits| *limits != KeyLimits::default()),
        };
        Ok((Secret::new(key), record))
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(is_part)
}

/// Returns the seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
