//! SHA-256 digests.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::parse_error::ParseError;

/// A digest's digits.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// The text form's prefix.
const PREFIX: &str = "sha256:";

/// A SHA-256 digest. Its text form is `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub(super) [u8; 32]);

impl Digest {
    /// Returns the digest of bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new("bytes");
        hasher.field(bytes);
        hasher.finish()
    }
}

/// Hashes a sequence of fields, each with its length, so that different sequences have different input.
pub struct Hasher(Context);

impl Hasher {
    /// Starts a hash. Different domains have different hashes for the same fields.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self(Context::new(&SHA256));
        hasher.field(domain.as_bytes());
        hasher
    }

    /// Adds a field.
    pub fn field(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn optional(&mut self, text: Option<&str>) {
        match text {
            Some(text) => {
                self.0.update(b"+");
                self.field(text.as_bytes());
            }
            None => self.0.update(b"-"),
        }
    }

    pub(super) fn optional_json(&mut self, value: Option<&Value>) {
        match value {
            Some(value) => {
                self.0.update(b"+");
                self.json(value);
            }
            None => self.0.update(b"-"),
        }
    }

    /// Hashes a value with sorted keys. Parsing bounds value depth, and so the recursion.
    pub(super) fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(true) => self.0.update(b"t"),
            Value::Bool(false) => self.0.update(b"f"),
            Value::Number(number) => {
                self.0.update(b"#");
                self.field(number.to_string().as_bytes());
            }
            Value::String(text) => {
                self.0.update(b"s");
                self.field(text.as_bytes());
            }
            Value::Array(items) => {
                self.0.update(b"[");
                self.0.update(&(items.len() as u64).to_be_bytes());
                items.iter().for_each(|item| self.json(item));
            }
            Value::Object(fields) => self.object(fields),
        }
    }

    pub(super) fn object(&mut self, fields: &Map<String, Value>) {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| name.as_str());
        self.0.update(b"{");
        self.0.update(&(sorted.len() as u64).to_be_bytes());
        for (name, value) in sorted {
            self.field(name.as_bytes());
            self.json(value);
        }
    }

    /// Returns the digest.
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        // Every audit log line has one: formatting each byte would take as long as the rest of the line.
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(&self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let mut bytes = [0; 32];
            let digits = text.strip_prefix(PREFIX)?.as_bytes();
            let digit = |digit: u8| (!digit.is_ascii_uppercase()).then(|| char::from(digit).to_digit(16))?;
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
            }
            (digits.len() == 2 * bytes.len()).then_some(Self(bytes))
        };
        read().ok_or_else(|| ParseError::new("expected `sha256:` and 64 hexadecimal digits"))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_round_trips_through_text() {
        let digest = Digest::of_bytes(b"");
        assert_eq!(digest.to_string().parse().ok(), Some(digest));
        let json = serde_json::to_string(&digest).expect("JSON");
        assert_eq!(serde_json::from_str::<Digest>(&json).expect("a digest"), digest);
        let upper = digest.to_string().to_uppercase();
        for text in ["", "sha256:", "sha256:00", &digest.to_string()[7..], &upper, &format!("{digest}0")] {
            assert_eq!(text.parse::<Digest>().ok(), None, "{text}");
        }
    }
}
