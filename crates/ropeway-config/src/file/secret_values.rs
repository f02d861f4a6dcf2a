//! A configuration's secret values, collected while it is resolved.
//!
//! [`ServerConfig::secrets`](crate::ServerConfig::secrets) finds likely secrets in the settings themselves.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use ropeway_core::secret::{Redactor, Secret};

/// Common words that are never redacted.
const COMMON_WORDS: [&str; 8] = ["true", "false", "none", "null", "bearer", "basic", "oauth", "default"];

/// Values to redact.
#[derive(Default)]
pub(super) struct SecretValues(Vec<Secret>);

impl SecretValues {
    /// Adds a reference's value.
    pub(super) fn add(&mut self, value: &str) {
        if !COMMON_WORDS.contains(&value.to_lowercase().as_str()) {
            self.0.push(Secret::new(value));
        }
    }

    /// Adds a password or a token, and its base64 encodings.
    pub(super) fn add_credential(&mut self, value: &str) {
        self.add(value);
        for alphabet in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            self.add(&alphabet.encode(value));
        }
    }

    pub(super) fn into_redactor(self) -> Redactor {
        Redactor::new(&self.0)
    }
}
