//! Which values of a configuration must not be seen.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::secret::{Mask, Secret};

/// Words in the names of variables, headers and parameters that hold secrets.
const TELLING: [&str; 9] = ["key", "token", "secret", "password", "passwd", "credential", "auth", "cookie", "pwd"];

/// Values that look like secrets by their names but are words that everybody uses.
const HARMLESS: [&str; 8] = ["true", "false", "none", "null", "bearer", "basic", "oauth", "default"];

/// Whether a value is a secret, by its name.
pub(super) fn is_telling(name: &str) -> bool {
    let name = name.to_lowercase();
    name != "pwd" && name != "oldpwd" && TELLING.iter().any(|word| name.contains(word))
}

/// Values that must not be seen.
#[derive(Default)]
pub(super) struct Hidden(Vec<Secret>);

impl Hidden {
    pub(super) fn add(&mut self, value: &str) {
        if !value.is_empty() && !HARMLESS.contains(&value.to_lowercase().as_str()) {
            self.0.push(Secret::new(value));
        }
    }

    /// A password or a token, also as servers like to write it down again.
    pub(super) fn add_credential(&mut self, value: &str) {
        if value.is_empty() {
            return;
        }
        self.add(value);
        for alphabet in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            self.add(&alphabet.encode(value));
        }
    }

    /// A value with a name: of a variable, or of a header.
    pub(super) fn add_named(&mut self, name: &str, value: &str) {
        if is_telling(name) {
            self.add(value);
            // `Bearer abc`: servers tell the second half alone.
            if let Some((_, credential)) = value.split_once(' ') {
                self.add(credential.trim());
            }
        }
        self.add_url(value);
    }

    /// What a URL holds: a password before the host, and parameters whose names tell.
    pub(super) fn add_url(&mut self, url: &str) {
        let Some((_, rest)) = url.split_once("://") else { return };
        let (authority, _) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
        if let Some((user, _)) = authority.rsplit_once('@') {
            let (_, password) = user.split_once(':').unwrap_or(("", user));
            self.add(password);
        }
        let (_, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (query, _) = query.split_once('#').unwrap_or((query, ""));
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            if is_telling(name) {
                self.add(value);
            }
        }
    }

    pub(super) fn into_mask(self) -> Mask {
        Mask::new(&self.0)
    }
}
