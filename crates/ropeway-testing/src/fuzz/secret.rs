//! Targets for secrets: redaction, and detection in settings.

use super::chunks::text_ways;
use ropeway_core::secret::{Redactor, Secret, StreamRedactor, in_arguments, in_header, in_named, in_url};

/// Character escapes and secret names.
pub(super) const TOKENS: &[&str] = &[
    "\n---\n",
    "\\",
    "\\\\",
    "\\u{",
    "}",
    "\\u00",
    "\\x",
    "%",
    "%2",
    "&",
    "&amp;",
    "&#x",
    "&#",
    ";",
    "+",
    "\\n",
    "\\\"",
    "s3cret",
    "token=",
    "api_key=",
    "--password",
    "Authorization: Bearer ",
    "Basic ",
    "https://",
    "@",
    ":",
    "?",
    "#",
    "Cookie: ",
    "%25",
    "\u{e9}",
    "\u{1f600}",
];

/// No secret is left in any escaped form, text without secrets is unchanged, and streaming gives the same result.
pub(super) fn redact(data: &[u8]) {
    let text = super::input::text(data);
    let (secrets, text) = super::input::split_input(&text);
    let secrets: Vec<Secret> = secrets.split('\n').take(16).map(Secret::new).collect();
    let mask = Redactor::new(&secrets);
    let hidden = mask.redact(text);
    let values = || secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= 4 && !secret.trim().is_empty());
    if values().all(|secret| !text.contains(secret)) && !text.contains(['\\', '%', '&', '+']) {
        // A secret's encoded forms may be redacted too, but not text that shares no character with one.
        let is_foreign = values().all(|secret| !secret.chars().any(|c| text.contains(c)));
        assert!(!is_foreign || hidden == text, "text without a secret was changed to {hidden:?}");
    }
    for secret in values() {
        // The replacement itself may be (a part of) a secret.
        let is_mark = secret.chars().any(|c| c == '*');
        assert!(is_mark || !hidden.contains(secret), "{secret:?} is left in {hidden:?}");
    }
    // Streaming gives the same result.
    for chunks in text_ways(text) {
        let mut stream = StreamRedactor::new(mask.clone());
        let mut shown: String = chunks.iter().map(|chunk| stream.push(chunk)).collect();
        shown.push_str(&stream.finish());
        assert_eq!(shown, hidden, "chunks {chunks:?}");
    }
    // No escaped form is left either, at any position. A secret with characters that start an escape has more
    // decodings than are followed.
    for secret in values().filter(|secret| !secret.contains(['*', '%', '\\', '&', '+'])) {
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let json = serde_json::Value::from(secret).to_string();
        for spelled in [percent.as_str(), &json[1..json.len() - 1]] {
            let spelled_in = format!("{text} {spelled} {text}");
            assert!(!mask.redact(&spelled_in).contains(spelled), "{spelled:?} is left");
        }
    }
}

/// A detected secret is part of the text, or of the decoded text.
pub(super) fn signs(data: &[u8]) {
    let text = super::input::text(data);
    let (name, value) = super::input::split_input(&text);
    let arguments: Vec<String> = text.lines().take(32).map(str::to_owned).collect();
    let found = [in_named(name, value), in_header(name, value), in_url(&text), in_arguments(&arguments)];
    for secret in found.iter().flatten() {
        // Base64 credentials grow most.
        assert!(secret.expose().len() <= 2 * text.len() + 4, "{} bytes out of {}", secret.expose().len(), text.len());
    }
}
