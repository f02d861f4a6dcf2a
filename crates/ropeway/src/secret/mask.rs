//! A mask: hides values in text, however they are written there.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::Secret;
use super::encoding;
use super::matcher::Matcher;
use super::pattern::Pattern;

/// What stands where a secret stood.
pub(super) const HIDDEN: &str = "***";

/// Values shorter than this are no secrets, and to hide them would spoil every text.
const SHORTEST: usize = 4;

/// A line of a secret that has several is hidden by itself from this length on.
const SHORTEST_LINE: usize = 8;

/// A shorter value may well be an ordinary word, too.
const UNMISTAKABLE: usize = 16;

/// Hides secrets in text: a set of values, none of which may be seen, be it as it is, percent-encoded, escaped as in
/// JSON, in Rust's `Debug` or in HTML, or as a part of something in base64 or hexadecimal.
///
/// The work is linear in the length of the text, whatever the text is, and does not depend on how long or how many the
/// values are.
///
/// Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Redactor(Option<Arc<Values>>);

struct Values {
    values: Vec<MaskedValue>,
    /// Made when a text is looked at for the first time.
    matcher: OnceLock<Matcher>,
    unmistakable: OnceLock<Redactor>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MaskedValue {
    text: String,
    /// A line of a longer value, which is hidden as a whole in all its forms.
    is_line: bool,
}

impl Redactor {
    /// Hides these values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut values = Vec::new();
        let whole = |text: &str| MaskedValue { text: text.to_owned(), is_line: false };
        for secret in secrets {
            let value = secret.expose();
            // A file of one line ends in a newline that is no part of what it says.
            let trimmed = value.trim();
            values.push(whole(if trimmed.len() >= SHORTEST { trimmed } else { value }));
            // A key of several lines is told line by line.
            if trimmed.contains('\n') {
                let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
                values.extend(lines.map(|line| MaskedValue { text: line.to_owned(), is_line: true }));
            }
        }
        values.retain(|value| value.text.len() >= SHORTEST);
        Self::of(values)
    }

    fn of(mut values: Vec<MaskedValue>) -> Self {
        values.sort_unstable();
        values.dedup_by(|later, earlier| later.text == earlier.text);
        if values.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(Values { values, matcher: OnceLock::new(), unmistakable: OnceLock::new() })))
    }

    /// Hides what either hides.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (None, _) => other.clone(),
            (_, None) => self.clone(),
            (Some(ours), Some(theirs)) if Arc::ptr_eq(ours, theirs) => self.clone(),
            (Some(ours), Some(theirs)) => Self::of(ours.values.iter().chain(&theirs.values).cloned().collect()),
        }
    }

    /// Is there nothing to hide?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Hides only those of the values that are too long to be ordinary words.
    ///
    /// For words that something depends on, such as the name of an argument: those are changed only where a secret is
    /// certain.
    pub(crate) fn unmistakable(&self) -> Self {
        let Some(hidden) = &self.0 else { return Self(None) };
        let long = || hidden.values.iter().filter(|value| value.text.len() >= UNMISTAKABLE).cloned().collect();
        hidden.unmistakable.get_or_init(|| Self::of(long())).clone()
    }

    pub(super) fn matcher(&self) -> Option<&Matcher> {
        self.0.as_ref().map(|hidden| hidden.matcher.get_or_init(|| hidden.to_matcher()))
    }

    /// The text without the secrets.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher() else { return Cow::Borrowed(text) };
        let found = matcher.find(text.as_bytes());
        without(text, &found)
    }

    /// Is there a secret in the text?
    #[cfg(feature = "mcp")]
    pub(crate) fn is_in(&self, text: &str) -> bool {
        matches!(self.hide(text), Cow::Owned(_))
    }

    /// The same for a text that may have been cut: the beginning of a secret at its end is hidden as well.
    pub fn hide_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(matcher) = self.matcher() else { return Cow::Borrowed(text) };
        let mut found = matcher.find(text.as_bytes());
        if let Some(begun) = matcher.find_begun(text.as_bytes(), SHORTEST) {
            // What was found within it is a part of it.
            let overlaps = found.iter().position(|range| range.end > begun);
            let start = overlaps.map_or(begun, |index| found[index].start.min(begun));
            found.truncate(overlaps.unwrap_or(found.len()));
            found.push(start..text.len());
        }
        without(text, &found)
    }

    /// The text without the secrets; of one that is longer than `most` bytes the beginning, and how much is missing.
    #[cfg(feature = "mcp")]
    pub(crate) fn hide_beginning(&self, text: &str, most: usize) -> String {
        if text.len() <= most {
            return self.hide(text).into_owned();
        }
        let kept = &text[..text.floor_char_boundary(most)];
        format!("{}… ({} more bytes)", self.hide_cut(kept), text.len() - kept.len())
    }

    /// How many bytes at the end of a text may be the beginning of a secret, of which the rest is yet to come.
    ///
    /// For a text that comes in pieces there is [`StreamMask`](super::StreamMask), which does not look at anything twice.
    pub fn undecided(&self, text: &str) -> usize {
        let begun = self.matcher().and_then(|matcher| matcher.find_begun(text.as_bytes(), 1));
        begun.map_or(0, |begun| text.len() - text.floor_char_boundary(begun))
    }

    /// Hides the secrets in a JSON value: in its texts, its keys, and numbers that are one.
    pub fn hide_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => self.hide_in(text),
            Value::Number(number) => {
                if let Cow::Owned(masked) = self.hide(&number.to_string()) {
                    *value = Value::String(masked);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_json(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.hide_json(field));
                rename(fields, |key| self.hide(key));
            }
        }
    }

    /// Hides the secrets in a JSON document whose fields have a meaning for whoever reads it.
    ///
    /// A key of letters alone, such as `description`, stays as it is unless it holds a secret of 16 bytes or more, so that
    /// no secret changes the document's shape; a number is hidden only if it is a secret as a whole.
    pub fn hide_document(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => self.hide_in(text),
            Value::Number(_) => self.hide_number(value),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_document(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.hide_document(field));
                self.hide_field_names(fields);
            }
        }
    }

    /// Hides a number that is a secret as a whole.
    pub(crate) fn hide_number(&self, value: &mut Value) {
        if value.is_number() && self.hide(&value.to_string()) == HIDDEN {
            *value = Value::String(HIDDEN.to_owned());
        }
    }

    /// Hides the secrets in a text in its place.
    pub(crate) fn hide_in(&self, text: &mut String) {
        if let Cow::Owned(masked) = self.hide(text) {
            *text = masked;
        }
    }

    /// Hides the secrets in the keys of an object whose fields have a meaning.
    pub(crate) fn hide_field_names(&self, fields: &mut Map<String, Value>) {
        let certain = self.unmistakable();
        let is_name = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'));
        rename(fields, |key| if is_name(key) { certain.hide(key) } else { self.hide(key) });
    }

    /// How many bytes the longest of the values has.
    #[cfg(feature = "mcp")]
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().flat_map(|hidden| &hidden.values).map(|value| value.text.len()).max().unwrap_or_default()
    }
}

/// Gives fields other names, where any has another one.
fn rename(fields: &mut Map<String, Value>, name: impl Fn(&str) -> Cow<'_, str>) {
    if fields.keys().any(|key| matches!(name(key), Cow::Owned(_))) {
        let before = std::mem::take(fields);
        fields.extend(before.into_iter().map(|(key, field)| (name(&key).into_owned(), field)));
    }
}

/// The text, with `***` in place of some parts, which are in order.
fn without<'a>(text: &'a str, parts: &[Range<usize>]) -> Cow<'a, str> {
    if parts.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut done = 0;
    for part in parts {
        masked.push_str(&text[done..text.floor_char_boundary(part.start).max(done)]);
        masked.push_str(HIDDEN);
        done = text.ceil_char_boundary(part.end);
    }
    masked.push_str(&text[done..]);
    Cow::Owned(masked)
}

impl Values {
    fn to_matcher(&self) -> Matcher {
        let plain = self.values.iter().map(|value| Pattern::plain(value.text.as_bytes().to_vec()));
        let whole = self.values.iter().filter(|value| !value.is_line);
        Matcher::new(plain.chain(whole.flat_map(|value| encoding::forms(value.text.as_bytes()))).collect())
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl Eq for Values {}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {} secrets", self.0.as_ref().map_or(0, |hidden| hidden.values.len()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    pub(in crate::secret) fn mask(values: &[&str]) -> Redactor {
        let secrets: Vec<Secret> = values.iter().map(|value| Secret::new(*value)).collect();
        Redactor::new(&secrets)
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_stands() {
        let mask = mask(&["s3cret"]);
        assert_eq!(mask.hide("s3cret and s3crets3cret, not s3cre"), "*** and ******, not s3cre");
        assert!(matches!(mask.hide("nothing here"), Cow::Borrowed("nothing here")));
        assert!(matches!(Redactor::default().hide("s3cret"), Cow::Borrowed("s3cret")));
    }

    #[test]
    fn of_secrets_that_overlap_nothing_is_left() {
        assert_eq!(mask(&["abcd", "cdef"]).hide("xabcdefx"), "x***x");
        assert_eq!(mask(&["abcd", "abcdef"]).hide("abcdef abcd"), "*** ***");
        assert_eq!(mask(&["aaaa"]).hide("baaaaab"), "b***b");
    }

    #[test]
    fn what_is_too_short_is_no_secret_and_lines_of_a_long_one_are() {
        assert!(mask(&["abc", ""]).is_empty());
        let key = mask(&["-----BEGIN-----\nMIIEvQIBADAN\nab\n-----END-----\n"]);
        assert_eq!(key.hide("line MIIEvQIBADAN of ab"), "line *** of ab");
        assert_eq!(mask(&["from a file\n"]).hide("(from a file)"), "(***)");
    }

    #[test]
    fn a_secret_is_hidden_in_every_spelling() {
        let secret = "a b/\"c\"\\d\né+%&<ü😀'";
        let mask = mask(&[secret]);
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let form = percent.replace("%20", "+").to_uppercase().replace("%61", "a");
        let json = json!(secret).to_string();
        let ascii: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        let html = secret.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('\'', "&#39;");
        let twice = json!(json).to_string();
        for spelled in [secret.to_owned(), percent, form, json.clone(), ascii, html, format!("{secret:?}"), twice] {
            let masked = mask.hide(&spelled);
            let bare = masked.trim_matches(['"', '\\']);
            assert_eq!(bare, "***", "{spelled}");
        }
    }

    #[test]
    fn a_value_of_special_characters_alone_takes_no_time() {
        let mask = mask(&[&"\\".repeat(200), &"%".repeat(200)]);
        let text = "\\%".repeat(2000);
        assert_eq!(mask.hide(&text), text);
        assert_eq!(mask.hide(&"%".repeat(400)), "***");
    }

    #[test]
    fn json_is_masked_in_its_texts_its_keys_and_its_numbers() {
        let mut value = json!({"s3cret": ["x s3cret", 1, null, {"a": true}], "b": 12345.0, "c": 412345});
        mask(&["s3cret", "12345"]).hide_json(&mut value);
        assert_eq!(value, json!({"***": ["x ***", 1, null, {"a": true}], "b": "***.0", "c": "4***"}));
    }

    #[test]
    fn a_document_keeps_its_shape_and_its_ordinary_numbers() {
        let token = "a-token-of-24-characters";
        let mut value =
            json!({"description": "a description", "n": 1234, "m": 41234, "t": true, "x": null, token: [token]});
        mask(&["description", "1234", "true", "null", token]).hide_document(&mut value);
        let expected = json!({"description": "a ***", "n": "***", "m": 41234, "t": true, "x": null, "***": ["***"]});
        assert_eq!(value, expected);
    }

    #[test]
    fn base64_and_hexadecimal_of_a_secret_are_hidden_wherever_it_is_encoded() {
        for secret in ["s3cret-token", "s3cret-token!", "s3cret-token!?", "äöü?>~~~~~~~~", "1234567"] {
            let mask = mask(&[secret]);
            for before in ["", "a", "ab", "abc", "user:"] {
                for after in ["", "z", "yz", "xyz"] {
                    let all = format!("{before}{secret}{after}");
                    for encoded in [
                        STANDARD.encode(&all),
                        STANDARD_NO_PAD.encode(&all),
                        URL_SAFE.encode(&all),
                        URL_SAFE_NO_PAD.encode(&all),
                    ] {
                        let shown = mask.hide(&encoded).into_owned();
                        let bytes = shown.replace("***", "").len();
                        assert!(
                            shown.contains("***") && bytes <= (before.len() + after.len()) * 4 / 3 + 4,
                            "{encoded}: {shown}"
                        );
                        let quoted = serde_json::to_string(&encoded).expect("JSON").replace('/', "\\/");
                        assert!(mask.hide(&quoted).contains("***"), "{quoted}");
                    }
                    let hex: String = all.bytes().map(|byte| format!("{byte:02x}")).collect();
                    assert!(mask.hide(&hex).contains("***") && mask.hide(&hex.to_uppercase()).contains("***"), "{hex}");
                }
            }
        }
    }

    #[test]
    fn a_short_secret_is_hidden_in_base64_only_as_a_whole() {
        let mask = mask(&["abcd"]);
        assert_eq!(mask.hide("YWJjZA== YWJjZ YWJj"), "*** YWJjZ YWJj");
        assert_eq!(mask.hide("61626364"), "***");
    }

    #[test]
    fn every_spelling_is_found_in_the_midst_of_every_text() {
        // The filter may pass over no place: not at the seams of its blocks, nor near other escapes.
        let secret = "tök3n \"of\" a/b+c&d%e\\f";
        let mask = mask(&[secret, "another-s3cret-value"]);
        let json = json!(secret).to_string();
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mixed = "tök3n \"of\" a/b+c&amp;d%e\\f";
        for spelled in [secret, json.trim_matches('"'), &percent, mixed, &percent.replace("%20", "+")] {
            for filling in ["x", "\\n", "&amp;", "%41", "tök3n \"o", "\\", "another-"] {
                for length in [0, 1, 7, 16_370, 16_384, 16_400] {
                    let mut before = filling.repeat(length / filling.len() + 1);
                    before.push(' ');
                    let text = format!("{before}{spelled} end");
                    assert_eq!(mask.hide(&text), format!("{before}*** end"), "{spelled} behind {length} of {filling}");
                }
            }
        }
    }

    /// How long this thread has worked, in hundredths of a second; unlike the clock it stands while others work.
    fn worked() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    #[test]
    fn no_text_takes_long() {
        // Each of these took from seconds to minutes when every place was searched to the end of the text.
        let key = format!(
            "-----BEGIN KEY-----\n{}",
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n".repeat(48)
        );
        let many: Vec<String> = (0..100).map(|index| format!("token-{index}-{}", index * 7919)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let period = "a".repeat(3000) + "b";
        let few = ["ghp_R4nd0mT0kenOfGithubWith36Letters12", "%%%%", "\\\\\\\\"];
        let masks = [mask(&few), mask(&[&key]), mask(&many), mask(&[&period, "%61"])];
        let parts =
            ["&", "\\u{", "\\", "%61", "\\u0061", "&#x61;", "&#", "a", "token-", "%", "+", &key[..3000], "\\ud83d"];
        for part in parts {
            let text = part.repeat(100_000 / part.len());
            for mask in &masks {
                let began = worked();
                let _ = mask.hide(&text);
                let _ = mask.hide_cut(&text);
                let ticks = worked() - began;
                assert!(ticks < 500, "{part} with {mask:?}: {ticks} hundredths of a second");
            }
        }
    }

    #[test]
    fn of_a_text_that_was_cut_the_beginning_of_any_spelling_is_hidden() {
        let mask = mask(&["s3cret-value"]);
        assert_eq!(mask.hide_cut("see s3cr%65t"), "see ***");
        assert_eq!(mask.hide_cut("see s3cre%7"), "see ***");
        assert_eq!(mask.hide_cut("see s3cret-value s3cret-"), "see *** ***");
    }

    #[test]
    fn of_a_text_that_was_cut_the_beginning_of_a_secret_is_hidden_too() {
        let mask = mask(&["s3cret-value", "s3cr3t"]);
        assert_eq!(mask.hide_cut("see s3cret-va"), "see ***");
        assert_eq!(mask.hide_cut("see s3c"), "see s3c");
        assert_eq!(mask.hide_cut("see s3cret-value"), "see ***");
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_end_of_a_text_is_undecided() {
        let mask = mask(&["s3cret", "t-s3x"]);
        assert_eq!(["it is s", "at-s3", "s3cre", "s3cret", "s3c r"].map(|text| mask.undecided(text)), [1, 4, 5, 1, 0]);
        assert_eq!(Redactor::default().undecided("s"), 0);
    }

    #[test]
    fn two_masks_make_one() {
        let both = mask(&["abcd"]).with(&mask(&["efgh", "abcd"])).with(&Redactor::default());
        assert_eq!(both, mask(&["efgh", "abcd"]));
        assert_eq!(format!("{both:?}"), "Mask of 2 secrets");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_mask_panic(secret in ".{4,8}", text in ".*") {
            let mask = mask(&[&secret]);
            let shown = mask.hide_cut(&text).into_owned();
            proptest::prop_assert!(!shown.contains(&secret) || secret.contains('*'));
            let around = format!("{text}{secret}{text}");
            proptest::prop_assert!(matches!(mask.hide(&around), Cow::Owned(_)));
        }
    }
}
