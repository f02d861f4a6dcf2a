//! The redactor: replaces secrets in text, in every common encoding.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::encoding;
use super::matcher::Matcher;
use super::pattern::Pattern;
use super::value::Secret;

/// The replacement for a secret.
pub(super) const REDACTED: &str = "***";

/// Minimum secret length. Redacting shorter values would make every text unreadable.
const MIN_LENGTH: usize = 4;

/// Minimum length for a line that is redacted on its own, in multi-line secrets.
const MIN_LINE_LENGTH: usize = 8;

/// Values with at least this length are unlikely to be ordinary words.
const MIN_UNAMBIGUOUS_LENGTH: usize = 16;

/// Replaces secrets in text with `***`.
///
/// A secret is found verbatim, percent-encoded, escaped as in JSON, in Rust's `Debug` or in HTML, and within base64 or
/// hexadecimal text. Redaction is linear in the text's length, regardless of the secrets' number and length.
///
/// Values shorter than four bytes are ignored. Cloning a redactor is cheap.
///
/// # Examples
///
/// ```
/// use ropeway::secret::{Redactor, Secret};
///
/// let redactor = Redactor::new(&[Secret::new("s3cret-value")]);
/// assert_eq!(redactor.redact("token=s3cret%2Dvalue"), "token=***");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redactor(Option<Arc<SecretSet>>);

struct SecretSet {
    values: Vec<SecretValue>,
    /// Built on first use.
    matcher: OnceLock<Matcher>,
    unmistakable: OnceLock<Redactor>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SecretValue {
    text: String,
    /// Whether this is a line in a longer value. Only whole values are searched for in base64 and hexadecimal.
    is_line: bool,
}

impl Redactor {
    /// Creates a redactor for these secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut values = Vec::new();
        let whole = |text: &str| SecretValue { text: text.to_owned(), is_line: false };
        for secret in secrets {
            let value = secret.expose();
            // A one-line file's final newline is not part of the secret.
            let trimmed = value.trim();
            values.push(whole(if trimmed.len() >= MIN_LENGTH { trimmed } else { value }));
            // Multi-line keys are often printed line by line.
            if trimmed.contains('\n') {
                let lines = value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE_LENGTH);
                values.extend(lines.map(|line| SecretValue { text: line.to_owned(), is_line: true }));
            }
        }
        values.retain(|value| value.text.len() >= MIN_LENGTH);
        Self::of(values)
    }

    fn of(mut values: Vec<SecretValue>) -> Self {
        values.sort_unstable();
        values.dedup_by(|later, earlier| later.text == earlier.text);
        if values.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(SecretSet { values, matcher: OnceLock::new(), unmistakable: OnceLock::new() })))
    }

    /// Returns a redactor for the secrets of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (None, _) => other.clone(),
            (_, None) => self.clone(),
            (Some(left), Some(right)) if Arc::ptr_eq(left, right) => self.clone(),
            (Some(left), Some(right)) => Self::of(left.values.iter().chain(&right.values).cloned().collect()),
        }
    }

    /// Returns `true` if the redactor has no secrets.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns a redactor for the values that are too long to be ordinary words.
    ///
    /// Used for identifiers such as argument names, which are changed only if they certainly contain a secret.
    pub fn only_long_secrets(&self) -> Self {
        let Some(hidden) = &self.0 else { return Self(None) };
        let long =
            || hidden.values.iter().filter(|value| value.text.len() >= MIN_UNAMBIGUOUS_LENGTH).cloned().collect();
        hidden.unmistakable.get_or_init(|| Self::of(long())).clone()
    }

    pub(super) fn matcher(&self) -> Option<&Matcher> {
        self.0.as_ref().map(|hidden| hidden.matcher.get_or_init(|| hidden.build_matcher()))
    }

    /// Returns the text with every secret replaced.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher() else { return Cow::Borrowed(text) };
        let found = matcher.find(text.as_bytes());
        replace_ranges(text, &found)
    }

    /// Returns `true` if the text contains a secret.
    pub fn contains_secret(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// Like [`redact`](Self::redact), for truncated text: a secret's beginning at the end is replaced as well.
    pub fn redact_truncated<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher() else { return Cow::Borrowed(text) };
        let mut found = matcher.find(text.as_bytes());
        if let Some(partial) = matcher.find_partial(text.as_bytes(), MIN_LENGTH) {
            // Matches inside the partial secret are part of it.
            let overlaps = found.iter().position(|range| range.end > partial);
            let start = overlaps.map_or(partial, |index| found[index].start.min(partial));
            found.truncate(overlaps.unwrap_or(found.len()));
            found.push(start..text.len());
        }
        replace_ranges(text, &found)
    }

    /// Redacts a text, truncates it to `most` bytes and appends the omitted byte count.
    pub fn redact_beginning(&self, text: &str, most: usize) -> String {
        if text.len() <= most {
            return self.redact(text).into_owned();
        }
        let kept = &text[..text.floor_char_boundary(most)];
        format!("{}… ({} more bytes)", self.redact_truncated(kept), text.len() - kept.len())
    }

    /// Returns how many bytes at the end of the text may begin a secret.
    ///
    /// [`StreamRedactor`](super::StreamRedactor) redacts text that arrives in pieces, without reading any of it twice.
    pub fn partial_secret_len(&self, text: &str) -> usize {
        let partial = self.matcher().and_then(|matcher| matcher.find_partial(text.as_bytes(), 1));
        partial.map_or(0, |partial| text.len() - text.floor_char_boundary(partial))
    }

    /// Redacts a JSON value's strings, keys and numbers.
    pub fn redact_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => self.redact_in_place(text),
            Value::Number(number) => {
                if let Cow::Owned(redacted) = self.redact(&number.to_string()) {
                    *value = Value::String(redacted);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_json(field));
                rename(fields, |key| self.redact(key));
            }
        }
    }

    /// Redacts a JSON document whose field names have a meaning to its reader.
    ///
    /// A key that consists of letters (and `_` or `$`), such as `description`, is kept unless it contains a secret with 16
    /// bytes or more: a short secret must not change the document's shape. A number is replaced only if all of it is a secret.
    pub fn redact_document(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => self.redact_in_place(text),
            Value::Number(_) => self.redact_number(value),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_document(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_document(field));
                self.redact_field_names(fields);
            }
        }
    }

    /// Replaces a number if all of it is a secret.
    pub fn redact_number(&self, value: &mut Value) {
        if value.is_number() && self.redact(&value.to_string()) == REDACTED {
            *value = Value::String(REDACTED.to_owned());
        }
    }

    /// Redacts a string in place.
    pub fn redact_in_place(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redact(text) {
            *text = redacted;
        }
    }

    /// Redacts the keys in an object whose field names have a meaning to its reader.
    pub fn redact_field_names(&self, fields: &mut Map<String, Value>) {
        let certain = self.only_long_secrets();
        let is_name = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'));
        rename(fields, |key| if is_name(key) { certain.redact(key) } else { self.redact(key) });
    }

    /// Returns the longest secret's length in bytes.
    pub fn longest(&self) -> usize {
        self.0.iter().flat_map(|hidden| &hidden.values).map(|value| value.text.len()).max().unwrap_or_default()
    }
}

/// Renames fields if `name` changes any of them.
fn rename(fields: &mut Map<String, Value>, name: impl Fn(&str) -> Cow<'_, str>) {
    if fields.keys().any(|key| matches!(name(key), Cow::Owned(_))) {
        let before = std::mem::take(fields);
        fields.extend(before.into_iter().map(|(key, field)| (name(&key).into_owned(), field)));
    }
}

/// Replaces sorted ranges in a text with `***`.
fn replace_ranges<'a>(text: &'a str, parts: &[Range<usize>]) -> Cow<'a, str> {
    if parts.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for part in parts {
        redacted.push_str(&text[done..text.floor_char_boundary(part.start).max(done)]);
        redacted.push_str(REDACTED);
        done = text.ceil_char_boundary(part.end);
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
}

impl SecretSet {
    fn build_matcher(&self) -> Matcher {
        let plain = self.values.iter().map(|value| Pattern::plain(value.text.as_bytes().to_vec()));
        let whole = self.values.iter().filter(|value| !value.is_line);
        Matcher::new(plain.chain(whole.flat_map(|value| encoding::encoded_forms(value.text.as_bytes()))).collect())
    }
}

impl PartialEq for SecretSet {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for SecretSet {}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor of {} secrets", self.0.as_ref().map_or(0, |hidden| hidden.values.len()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    pub(in crate::secret) fn redactor(values: &[&str]) -> Redactor {
        let secrets: Vec<Secret> = values.iter().map(|value| Secret::new(*value)).collect();
        Redactor::new(&secrets)
    }

    #[test]
    fn a_secret_is_redacted_anywhere_in_the_text() {
        let redactor = redactor(&["s3cret"]);
        assert_eq!(redactor.redact("s3cret and s3crets3cret, not s3cre"), "*** and ******, not s3cre");
        assert!(matches!(redactor.redact("nothing here"), Cow::Borrowed("nothing here")));
        assert!(matches!(Redactor::default().redact("s3cret"), Cow::Borrowed("s3cret")));
    }

    #[test]
    fn overlapping_secrets_are_redacted_completely() {
        assert_eq!(redactor(&["abcd", "cdef"]).redact("xabcdefx"), "x***x");
        assert_eq!(redactor(&["abcd", "abcdef"]).redact("abcdef abcd"), "*** ***");
        assert_eq!(redactor(&["aaaa"]).redact("baaaaab"), "b***b");
    }

    #[test]
    fn short_values_are_kept_and_lines_of_long_ones_are_redacted() {
        assert!(redactor(&["abc", ""]).is_empty());
        let key = redactor(&["-----BEGIN-----\nMIIEvQIBADAN\nab\n-----END-----\n"]);
        assert_eq!(key.redact("line MIIEvQIBADAN of ab"), "line *** of ab");
        assert_eq!(redactor(&["from a file\n"]).redact("(from a file)"), "(***)");
    }

    #[test]
    fn a_secret_is_redacted_in_every_escaped_form() {
        let secret = "a b/\"c\"\\d\né+%&<ü😀'";
        let redactor = redactor(&[secret]);
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let form = percent.replace("%20", "+").to_uppercase().replace("%61", "a");
        let json = json!(secret).to_string();
        let ascii: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        let html = secret.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('\'', "&#39;");
        let twice = json!(json).to_string();
        for spelled in [secret.to_owned(), percent, form, json.clone(), ascii, html, format!("{secret:?}"), twice] {
            let redacted = redactor.redact(&spelled);
            let bare = redacted.trim_matches(['"', '\\']);
            assert_eq!(bare, "***", "{spelled}");
        }
    }

    #[test]
    fn a_value_of_escape_characters_is_redacted_in_linear_time() {
        let redactor = redactor(&[&"\\".repeat(200), &"%".repeat(200)]);
        let text = "\\%".repeat(2000);
        assert_eq!(redactor.redact(&text), text);
        assert_eq!(redactor.redact(&"%".repeat(400)), "***");
    }

    #[test]
    fn json_strings_keys_and_numbers_are_redacted() {
        let mut value = json!({"s3cret": ["x s3cret", 1, null, {"a": true}], "b": 12345.0, "c": 412345});
        redactor(&["s3cret", "12345"]).redact_json(&mut value);
        assert_eq!(value, json!({"***": ["x ***", 1, null, {"a": true}], "b": "***.0", "c": "4***"}));
    }

    #[test]
    fn a_document_keeps_its_field_names_and_other_numbers() {
        let token = "a-token-of-24-characters";
        let mut value =
            json!({"description": "a description", "n": 1234, "m": 41234, "t": true, "x": null, token: [token]});
        redactor(&["description", "1234", "true", "null", token]).redact_document(&mut value);
        let expected = json!({"description": "a ***", "n": "***", "m": 41234, "t": true, "x": null, "***": ["***"]});
        assert_eq!(value, expected);
    }

    #[test]
    fn a_secret_inside_base64_or_hexadecimal_is_redacted() {
        for secret in ["s3cret-token", "s3cret-token!", "s3cret-token!?", "äöü?>~~~~~~~~", "1234567"] {
            let redactor = redactor(&[secret]);
            for before in ["", "a", "ab", "abc", "user:"] {
                for after in ["", "z", "yz", "xyz"] {
                    let all = format!("{before}{secret}{after}");
                    for encoded in [
                        STANDARD.encode(&all),
                        STANDARD_NO_PAD.encode(&all),
                        URL_SAFE.encode(&all),
                        URL_SAFE_NO_PAD.encode(&all),
                    ] {
                        let shown = redactor.redact(&encoded).into_owned();
                        let bytes = shown.replace("***", "").len();
                        assert!(
                            shown.contains("***") && bytes <= (before.len() + after.len()) * 4 / 3 + 4,
                            "{encoded}: {shown}"
                        );
                        let quoted = serde_json::to_string(&encoded).expect("JSON").replace('/', "\\/");
                        assert!(redactor.redact(&quoted).contains("***"), "{quoted}");
                    }
                    let hex: String = all.bytes().map(|byte| format!("{byte:02x}")).collect();
                    assert!(
                        redactor.redact(&hex).contains("***") && redactor.redact(&hex.to_uppercase()).contains("***"),
                        "{hex}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_short_secret_is_redacted_in_base64_only_as_a_whole() {
        let redactor = redactor(&["abcd"]);
        assert_eq!(redactor.redact("YWJjZA== YWJjZ YWJj"), "*** YWJjZ YWJj");
        assert_eq!(redactor.redact("61626364"), "***");
    }

    #[test]
    fn every_escaped_form_is_found_inside_long_text() {
        // The filter must not skip a match at its block boundaries, or next to other escapes.
        let secret = "tök3n \"of\" a/b+c&d%e\\f";
        let redactor = redactor(&[secret, "another-s3cret-value"]);
        let json = json!(secret).to_string();
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mixed = "tök3n \"of\" a/b+c&amp;d%e\\f";
        for spelled in [secret, json.trim_matches('"'), &percent, mixed, &percent.replace("%20", "+")] {
            for filling in ["x", "\\n", "&amp;", "%41", "tök3n \"o", "\\", "another-"] {
                for length in [0, 1, 7, 16_370, 16_384, 16_400] {
                    let mut before = filling.repeat(length / filling.len() + 1);
                    before.push(' ');
                    let text = format!("{before}{spelled} end");
                    assert_eq!(
                        redactor.redact(&text),
                        format!("{before}*** end"),
                        "{spelled} behind {length} of {filling}"
                    );
                }
            }
        }
    }

    /// Returns this thread's CPU time in milliseconds, which does not depend on other processes.
    fn cpu_time() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds = stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()).expect("a time");
        nanoseconds / 1_000_000
    }

    /// Returns the CPU time to redact a text with this length, in milliseconds.
    fn redaction_time(redactor: &Redactor, part: &str, length: usize) -> u64 {
        let text = part.repeat(length.div_ceil(part.len()));
        let began = cpu_time();
        let _ = redactor.redact(&text);
        let _ = redactor.redact_truncated(&text);
        cpu_time() - began
    }

    #[test]
    fn every_text_is_redacted_in_linear_time() {
        // Each of these took from seconds to minutes when every position was searched to the end of the text.
        let key = format!(
            "-----BEGIN KEY-----\n{}",
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n".repeat(48)
        );
        let many: Vec<String> = (0..100).map(|index| format!("token-{index}-{}", index * 7919)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let period = "a".repeat(3000) + "b";
        let few = ["ghp_R4nd0mT0kenOfGithubWith36Letters12", "%%%%", "\\\\\\\\"];
        let redactors = [redactor(&few), redactor(&[&key]), redactor(&many), redactor(&[&period, "%61"])];
        let parts =
            ["&", "\\u{", "\\", "%61", "\\u0061", "&#x61;", "&#", "a", "token-", "%", "+", &key[..3000], "\\ud83d"];
        for part in parts {
            for redactor in &redactors {
                // Four times the text takes four times as long, and sixteen times if the time is quadratic. What is faster
                // than the clock's resolution is not.
                let large = redaction_time(redactor, part, 100_000);
                let small = redaction_time(redactor, part, 25_000);
                assert!(large < 100 || large < 8 * small, "{part} with {redactor:?}: {small} and {large} ms");
            }
        }
    }

    #[test]
    fn a_partial_secret_with_escapes_is_redacted_in_truncated_text() {
        let redactor = redactor(&["s3cret-value"]);
        assert_eq!(redactor.redact_truncated("see s3cr%65t"), "see ***");
        assert_eq!(redactor.redact_truncated("see s3cre%7"), "see ***");
        assert_eq!(redactor.redact_truncated("see s3cret-value s3cret-"), "see *** ***");
    }

    #[test]
    fn a_partial_secret_is_redacted_in_truncated_text() {
        let redactor = redactor(&["s3cret-value", "s3cr3t"]);
        assert_eq!(redactor.redact_truncated("see s3cret-va"), "see ***");
        assert_eq!(redactor.redact_truncated("see s3c"), "see s3c");
        assert_eq!(redactor.redact_truncated("see s3cret-value"), "see ***");
    }

    #[test]
    fn a_partial_secret_at_the_end_of_a_text_is_undecided() {
        let redactor = redactor(&["s3cret", "t-s3x"]);
        assert_eq!(
            ["it is s", "at-s3", "s3cre", "s3cret", "s3c r"].map(|text| redactor.partial_secret_len(text)),
            [1, 4, 5, 1, 0]
        );
        assert_eq!(Redactor::default().partial_secret_len("s"), 0);
    }

    #[test]
    fn redactors_can_be_combined() {
        let both = redactor(&["abcd"]).with(&redactor(&["efgh", "abcd"])).with(&Redactor::default());
        assert_eq!(both, redactor(&["efgh", "abcd"]));
        assert_eq!(format!("{both:?}"), "Redactor of 2 secrets");
    }

    proptest::proptest! {
        #[test]
        fn redaction_never_panics_and_leaves_no_secret(secret in ".{4,8}", text in ".*") {
            let redactor = redactor(&[&secret]);
            let shown = redactor.redact_truncated(&text).into_owned();
            proptest::prop_assert!(!shown.contains(&secret) || secret.contains('*'));
            let around = format!("{text}{secret}{text}");
            proptest::prop_assert!(matches!(redactor.redact(&around), Cow::Owned(_)));
        }
    }
}
