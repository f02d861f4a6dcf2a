//! Secret redaction in all output except tool results.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use ropeway_core::secret::{AccountRedactor, Redactor, StreamRedactor};
use serde::Serialize;
use serde_json::Value;

use crate::terminal::text::{Cleaner, clean_json, escape_controls};

/// The redactor that all output shares: the added secrets, and the tokens of all servers. Connections add
/// tokens to it through [`token_redactor`].
static SECRETS: LazyLock<Arc<AccountRedactor>> = LazyLock::new(Arc::default);

/// The secrets that were added. [`add_secrets`] holds this lock until [`SECRETS`] has the new set, so
/// concurrent calls lose no secret.
static ADDED: LazyLock<Mutex<Redactor>> = LazyLock::new(Mutex::default);

/// Adds secrets to redact from now on.
pub(crate) fn add_secrets(secrets: &Redactor) {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    *added = added.with(secrets);
    SECRETS.set_configured(added.clone());
}

/// Returns the redactor that learns connections' tokens.
pub(crate) fn token_redactor() -> Arc<AccountRedactor> {
    SECRETS.clone()
}

/// Returns a redactor for the known secrets.
pub(crate) fn redactor() -> Redactor {
    SECRETS.current()
}

/// Redacts a text.
pub(crate) fn redact(text: &str) -> Cow<'_, str> {
    redactor().redact(text)
}

/// Redacts a JSON value's strings. Serialized text would hide secrets behind escapes, and redaction could
/// break numbers.
pub(crate) fn redact_json(value: &mut Value) {
    redactor().redact_document(value);
}

/// Serializes a value with secrets and control characters removed.
pub(crate) fn to_json(value: &impl Serialize, is_pretty: bool) -> serde_json::Result<String> {
    let json = write_json(value, is_pretty)?;
    let secrets = redactor();
    // Most values contain no secrets and keep every digit.
    if matches!(secrets.redact(&json), Cow::Borrowed(_)) {
        return Ok(clean_json(&json));
    }
    let Ok(mut value) = serde_json::from_str::<Value>(&json) else {
        // The value is nested too deeply to parse; redact its text.
        return Ok(clean_json(&secrets.redact(&json)));
    };
    secrets.redact_document(&mut value);
    Ok(clean_json(&write_json(&value, is_pretty)?))
}

fn write_json(value: &impl Serialize, is_pretty: bool) -> serde_json::Result<String> {
    if is_pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) }
}

/// Removes secrets and control characters from streamed text.
#[derive(Debug)]
pub(crate) struct StreamFilter {
    /// `None` for text that is not shown on a terminal.
    cleaner: Option<Cleaner>,
    mask: StreamRedactor,
}

impl Default for StreamFilter {
    fn default() -> Self {
        Self { cleaner: Some(Cleaner::default()), mask: StreamRedactor::default() }
    }
}

impl StreamFilter {
    /// Only redacts secrets, for text that is not shown on a terminal.
    pub(crate) fn raw() -> Self {
        Self { cleaner: None, mask: StreamRedactor::default() }
    }

    /// Adds a piece and returns the text that can be shown.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let secrets = redactor();
        let mut shown = String::new();
        if *self.mask.redactor() != secrets {
            // The text that was held back may be the beginning of a secret, old or new.
            let held = self.mask.finish();
            self.mask = StreamRedactor::new(secrets);
            shown = self.mask.push(&held);
        }
        shown
            + &match &mut self.cleaner {
                Some(cleaner) => self.mask.push(&cleaner.push(piece)),
                None => self.mask.push(piece),
            }
    }

    /// Returns the remaining text. Another text may follow.
    pub(crate) fn end(&mut self) -> String {
        let held = self.cleaner.as_mut().map(Cleaner::end).unwrap_or_default();
        self.mask.push(&held) + &self.mask.finish()
    }
}

/// A writer that removes secrets and control characters from whole lines.
pub(crate) struct RedactingWriter<W> {
    pub(crate) to: W,
    /// Colours are kept.
    pub(crate) colours: bool,
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(escape_controls(&redact(&text), self.colours).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A writer that removes secrets and control characters from JSON Lines. Each write is one line.
pub(crate) struct RedactingJsonWriter<W>(pub(crate) W);

impl<W: Write> Write for RedactingJsonWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match serde_json::from_str::<&serde_json::value::RawValue>(text.trim_end()) {
            Ok(line) => self.0.write_all((to_json(&line, false)? + "\n").as_bytes())?,
            // The line is not JSON.
            Err(_) => self.0.write_all(escape_controls(&redact(&text), false).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use ropeway_core::secret::Secret;

    use super::*;

    #[test]
    fn added_secrets_stay_redacted() {
        add_secrets(&Redactor::new([&Secret::new("a-token-of-the-veil")]));
        add_secrets(&Redactor::new([&Secret::new("another-of-the-veil")]));
        let mut lines = Vec::new();
        let mut veiled = RedactingWriter { to: &mut lines, colours: true };
        let line = "a-token-of-the-veil \u{1b}[1mand\u{1b}[0m another-of-the-veil\r\0\u{9b}\u{202e}\u{1b}[2J\n";
        veiled.write_all(line.as_bytes()).expect("a line");
        let expected = "*** \u{1b}[1mand\u{1b}[0m ***\\r\\u{0}\\u{9b}\\u{202e}\\u{1b}[2J\n";
        assert_eq!(String::from_utf8(lines).expect("text"), expected);
    }

    #[test]
    fn a_secret_that_comes_in_pieces_is_hidden() {
        add_secrets(&Redactor::new([&Secret::new("sk-of-a-flow")]));
        let mut flow = StreamFilter::default();
        let pieces = ["it is s", "k-of-", "\u{1b}[3", "1ma-flo", "w, and sk", "y", " high\r", " s"];
        let shown = pieces.map(|piece| flow.push(piece)).concat() + &flow.end();
        assert_eq!(shown, "it is ***, and sky high\n s");
        assert_eq!(flow.push("again ") + &flow.end(), "again ");
    }

    #[test]
    fn a_secret_is_hidden_if_others_are_added_while_it_comes() {
        add_secrets(&Redactor::new([&Secret::new("pk-of-a-flow")]));
        let mut flow = StreamFilter::default();
        let shown = flow.push("it is pk-of");
        add_secrets(&Redactor::new([&Secret::new("added-in-between")]));
        assert_eq!(shown + &flow.push("-a-flow") + &flow.end(), "it is ***");
    }

    #[test]
    fn json_is_still_json_whatever_the_secrets_are() {
        let secrets =
            ["1234", "true", "null", "\"", "\\", "e5", "description", "\"\"\"\"", "\\\\\\\\", "12.5e5", "{\"a\":"];
        for secret in secrets {
            let mask = Redactor::new([&Secret::new(secret)]);
            let mut value = serde_json::json!({
                "description": format!("a {secret} in words"), "default": 1234, "other": [412_345, true, null, 12.5e5],
                "nested": {"text": secret, "json": serde_json::json!([secret]).to_string()},
            });
            mask.redact_document(&mut value);
            let text = serde_json::to_string(&value).expect("JSON");
            let again: Value = serde_json::from_str(&text).expect("still JSON");
            assert_eq!(again["other"][1], Value::Bool(true));
            for text in [&again["description"], &again["nested"]["text"], &again["nested"]["json"]] {
                assert!(secret.len() < 4 || !text.as_str().expect("text").contains(secret), "{secret}: {text}");
            }
        }
    }

    #[test]
    fn a_numeric_secret_leaves_json_lines_whole() {
        add_secrets(&Redactor::new([&Secret::new("778899001122")]));
        let mut lines = Vec::new();
        let line = "{\"default\":778899001122,\"text\":\"\u{202e}778899001122\u{85}\"}\n";
        RedactingJsonWriter(&mut lines).write_all(line.as_bytes()).expect("a line");
        assert_eq!(String::from_utf8(lines).expect("text"), "{\"default\":\"***\",\"text\":\"\\u202e***\\u0085\"}\n");
    }
}
