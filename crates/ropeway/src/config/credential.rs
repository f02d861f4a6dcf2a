//! Which values of a configuration must not be seen.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use serde_json::Value;

use crate::secret::{Mask, Secret};

/// Words in the names of variables, headers and parameters that hold secrets.
const TELLING: [&str; 9] = ["key", "token", "secret", "password", "passwd", "credential", "auth", "cookie", "pwd"];

/// Values that look like secrets by their names but are words that everybody uses.
const HARMLESS: [&str; 8] = ["true", "false", "none", "null", "bearer", "basic", "oauth", "default"];

/// Shorter lines of a long secret tell nothing.
const LINE: usize = 12;

/// The value as it looks in the path, in the query and in a parameter of a URL.
fn in_urls(value: &str) -> Vec<String> {
    let Ok(mut url) = reqwest::Url::parse("http://host/") else { return Vec::new() };
    url.set_path(&format!("/-{value}"));
    url.set_query(Some(value));
    let path = url.path().strip_prefix("/-").unwrap_or_default().to_owned();
    let query = url.query().unwrap_or_default().to_owned();
    url.query_pairs_mut().clear().append_pair("", value);
    let parameter = url.query().and_then(|query| query.strip_prefix('=')).unwrap_or_default().to_owned();
    vec![path, query, parameter]
}

/// Whether a value is a secret, by its name.
pub(super) fn is_telling(name: &str) -> bool {
    let name = name.to_lowercase();
    name != "pwd" && name != "oldpwd" && TELLING.iter().any(|word| name.contains(word))
}

/// Values that must not be seen.
#[derive(Default)]
pub(super) struct Hidden(Vec<Secret>);

impl Hidden {
    /// A value, also as it looks in JSON, in a URL and line by line.
    pub(super) fn add(&mut self, value: &str) {
        if HARMLESS.contains(&value.to_lowercase().as_str()) {
            return;
        }
        let json = Value::from(value).to_string();
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= LINE && *line != value);
        let texts = [value.to_owned(), json[1..json.len() - 1].to_owned()].into_iter();
        let texts = texts.chain(in_urls(value)).chain(lines.map(str::to_owned));
        for text in texts.filter(|text| !text.is_empty()) {
            self.0.push(Secret::new(text));
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
