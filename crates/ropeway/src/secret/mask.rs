//! A mask: hides values in text, however they are written there.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::Secret;

/// What stands where a secret stood.
const HIDDEN: &str = "***";

/// Values shorter than this are no secrets, and to hide them would spoil every text.
const SHORTEST: usize = 4;

/// A line of a secret that has several is hidden by itself from this length on.
const SHORTEST_LINE: usize = 8;

/// How many ways to read the same text are followed at once.
const MOST_READINGS: usize = 16;

/// Hides secrets in text: a set of values, none of which may be seen, be it as it is, percent-encoded, or escaped as
/// in JSON, in Rust's `Debug` or in HTML.
///
/// Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mask(Option<Arc<Values>>);

#[derive(PartialEq, Eq)]
struct Values {
    values: Vec<String>,
    /// Bytes that one of the values may begin with, in one of its spellings.
    starts: [bool; 256],
}

impl Mask {
    /// Hides these values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut values = Vec::new();
        for secret in secrets {
            let value = secret.expose();
            values.push(value);
            // A file of one line ends in a newline that is no part of what it says.
            values.push(value.trim());
            // A key of several lines is told line by line.
            if value.trim().contains('\n') {
                values.extend(value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE));
            }
        }
        Self::of(values.into_iter().filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect())
    }

    fn of(mut values: Vec<String>) -> Self {
        values.sort_unstable();
        values.dedup();
        if values.is_empty() {
            return Self(None);
        }
        let mut starts = [false; 256];
        for byte in b"%\\&" {
            starts[usize::from(*byte)] = true;
        }
        for value in &values {
            let first = value.as_bytes()[0];
            starts[usize::from(first)] = true;
            if first == b' ' {
                starts[usize::from(b'+')] = true;
            }
        }
        Self(Some(Arc::new(Values { values, starts })))
    }

    /// Hides what either hides.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        match (&self.0, &other.0) {
            (None, _) => other.clone(),
            (_, None) => self.clone(),
            (Some(ours), Some(theirs)) => Self::of(ours.values.iter().chain(&theirs.values).cloned().collect()),
        }
    }

    /// Is there nothing to hide?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The text without the secrets.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(hidden) = &self.0 else { return Cow::Borrowed(text) };
        let mut masked: Option<String> = None;
        // Up to where the text is dealt with: written down, or a part of a secret.
        let mut done = 0;
        for (at, byte) in text.bytes().enumerate() {
            if !hidden.starts[usize::from(byte)] {
                continue;
            }
            // Secrets may overlap: then both are hidden, to the end of the later one.
            let Some(end) = hidden.end(text, at).filter(|end| *end > done) else { continue };
            let masked = masked.get_or_insert_default();
            if at >= done {
                masked.push_str(&text[done..at]);
                masked.push_str(HIDDEN);
            }
            done = end;
        }
        match masked {
            Some(mut masked) => {
                masked.push_str(&text[done..]);
                Cow::Owned(masked)
            }
            None => Cow::Borrowed(text),
        }
    }

    /// The same for a text that may have been cut: the beginning of a secret at its end is hidden as well.
    #[cfg(any(feature = "mcp", feature = "providers"))]
    pub(crate) fn hide_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let masked = self.hide(text);
        let cut = self.0.iter().flat_map(|hidden| &hidden.values).filter_map(|value| {
            let beginnings = (SHORTEST..value.len()).rev().filter_map(|length| value.get(..length));
            beginnings.into_iter().find(|beginning| masked.ends_with(beginning)).map(str::len)
        });
        match cut.max() {
            Some(length) => Cow::Owned(format!("{}{HIDDEN}", &masked[..masked.len() - length])),
            None => masked,
        }
    }

    /// How many bytes at the end of a text may be the beginning of a secret, of which the rest is yet to come.
    pub fn undecided(&self, text: &str) -> usize {
        let begun = self.0.iter().flat_map(|hidden| &hidden.values).filter_map(|value| {
            let beginnings = (1..value.len()).rev().filter_map(|length| value.get(..length));
            beginnings.into_iter().find(|beginning| text.ends_with(beginning)).map(str::len)
        });
        begun.max().unwrap_or_default()
    }

    /// Hides the secrets in a JSON value: in its texts, its keys, and numbers that are one.
    pub fn hide_json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::String(text) => {
                if let Cow::Owned(masked) = self.hide(text) {
                    *text = masked;
                }
            }
            Value::Number(number) => {
                if let Cow::Owned(masked) = self.hide(&number.to_string()) {
                    *value = Value::String(masked);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_json(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.hide_json(field));
                if fields.keys().any(|key| matches!(self.hide(key), Cow::Owned(_))) {
                    let before = std::mem::take(fields);
                    fields.extend(before.into_iter().map(|(key, field)| (self.hide(&key).into_owned(), field)));
                }
            }
        }
    }

    /// How many bytes the longest of the values has.
    #[cfg(feature = "mcp")]
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().flat_map(|hidden| &hidden.values).map(String::len).max().unwrap_or_default()
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {} secrets", self.0.as_ref().map_or(0, |hidden| hidden.values.len()))
    }
}

impl Values {
    /// Where the longest of the values ends that begin here, if any does.
    fn end(&self, text: &str, at: usize) -> Option<usize> {
        let rest = text.get(at..)?;
        self.values.iter().filter_map(|value| spelled(value, rest)).max().map(|length| at + length)
    }
}

/// How many bytes of the text spell the value, if it begins with it.
fn spelled(value: &str, text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let plain = value.bytes().zip(bytes).take_while(|(a, b)| a == *b && !is_special(*a)).count();
    if plain == value.len() {
        return Some(plain);
    }
    if !bytes.get(plain).copied().is_some_and(is_special) {
        return None;
    }
    // Neither side may be split within a character: what comes before is equal on both.
    let mut ends = vec![plain];
    for character in value.get(plain..)?.chars() {
        let mut next = Vec::new();
        for end in ends {
            spellings(character, &text[end..], |length| next.push(end + length));
        }
        next.sort_unstable();
        next.dedup();
        // More than a few ways to read one text there are only where nobody could tell them apart.
        next.truncate(MOST_READINGS);
        ends = next;
        if ends.is_empty() {
            return None;
        }
    }
    ends.into_iter().max()
}

/// May this byte begin a spelling of another character?
fn is_special(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'+')
}

/// The lengths of all ways in which the text begins with the character.
fn spellings(character: char, text: &str, mut found: impl FnMut(usize)) {
    let mut utf8 = [0; 4];
    let utf8 = character.encode_utf8(&mut utf8).as_bytes();
    let bytes = text.as_bytes();
    if bytes.starts_with(utf8) {
        found(utf8.len());
    }
    match bytes.first() {
        Some(b'+') if character == ' ' => found(1),
        Some(b'%') => {
            let encoded = |(at, byte): (usize, &u8)| {
                bytes.get(3 * at) == Some(&b'%') && hex(text.get(3 * at + 1..3 * at + 3)) == Some(u32::from(*byte))
            };
            if utf8.iter().enumerate().all(encoded) {
                found(3 * utf8.len());
            }
        }
        Some(b'\\') => {
            // Text that was escaped more than once has more than one of them.
            let run = bytes.iter().take(MOST_READINGS).take_while(|byte| **byte == b'\\').count();
            if character == '\\' {
                [2, 4, 8].into_iter().filter(|length| *length <= run).for_each(&mut found);
            }
            if let Some(length) = escaped(character, &text[run..]) {
                found(run + length);
            }
        }
        Some(b'&') => {
            if let Some((entity, _)) = text[1..].split_once(';')
                && entity_is(character, entity)
            {
                found(entity.len() + 2);
            }
        }
        _ => {}
    }
}

/// The length of what stands behind a backslash, if it is the character.
fn escaped(character: char, text: &str) -> Option<usize> {
    let letter = match character {
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\0' => '0',
        same @ ('"' | '\'' | '/') => same,
        // Only a number can stand for it.
        _ => '\u{10ffff}',
    };
    if text.starts_with(letter) {
        return Some(1);
    }
    let code = u32::from(character);
    match text.as_bytes().first()? {
        b'x' => (hex(text.get(1..3)) == Some(code)).then_some(3),
        b'u' if text[1..].starts_with('{') => {
            let digits = &text[2..text.find('}')?];
            (hex(Some(digits)) == Some(code)).then_some(digits.len() + 3)
        }
        b'u' => {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            if hex(text.get(1..5)) != Some(u32::from(units[0])) {
                return None;
            }
            match units.get(1) {
                None => Some(5),
                Some(second) => {
                    let rest = &text[5..];
                    let run = rest.bytes().take_while(|byte| *byte == b'\\').count();
                    let digits = rest[run..].strip_prefix('u').and_then(|rest| rest.get(..4));
                    (run > 0 && hex(digits) == Some(u32::from(*second))).then_some(10 + run)
                }
            }
        }
        _ => None,
    }
}

fn entity_is(character: char, entity: &str) -> bool {
    let named = match entity {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let Some(number) = entity.strip_prefix('#') else { return false };
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => hex(Some(digits)),
                None => number.parse().ok(),
            };
            return code == Some(u32::from(character));
        }
    };
    named == character
}

fn hex(digits: Option<&str>) -> Option<u32> {
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        let secrets: Vec<Secret> = values.iter().map(|value| Secret::new(*value)).collect();
        Mask::new(&secrets)
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_stands() {
        let mask = mask(&["s3cret"]);
        assert_eq!(mask.hide("s3cret and s3crets3cret, not s3cre"), "*** and ******, not s3cre");
        assert!(matches!(mask.hide("nothing here"), Cow::Borrowed("nothing here")));
        assert!(matches!(Mask::default().hide("s3cret"), Cow::Borrowed("s3cret")));
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
        assert_eq!(Mask::default().undecided("s"), 0);
    }

    #[test]
    fn two_masks_make_one() {
        let both = mask(&["abcd"]).with(&mask(&["efgh", "abcd"])).with(&Mask::default());
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
