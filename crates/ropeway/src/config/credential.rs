//! The values of a configuration that must not be seen, gathered while it is understood.
//!
//! What looks like a secret in the settings themselves is found by [`super::ServerConfig::secrets`].

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::secret::{Redactor, Secret};

/// Words that everybody uses: to hide them would spoil every text.
const HARMLESS: [&str; 8] = ["true", "false", "none", "null", "bearer", "basic", "oauth", "default"];

/// Values that must not be seen.
#[derive(Default)]
pub(super) struct Hidden(Vec<Secret>);

impl Hidden {
    /// A value that came from outside of the file.
    pub(super) fn add(&mut self, value: &str) {
        if !HARMLESS.contains(&value.to_lowercase().as_str()) {
            self.0.push(Secret::new(value));
        }
    }

    /// A password or a token, also as servers like to write it down again.
    pub(super) fn add_credential(&mut self, value: &str) {
        self.add(value);
        for alphabet in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            self.add(&alphabet.encode(value));
        }
    }

    pub(super) fn into_mask(self) -> Redactor {
        Redactor::new(&self.0)
    }
}
