//! JSON as other programs write it: with lone surrogates, numbers of any size, and bytes that are not quite UTF-8.
//!
//! JavaScript writes half of an emoji that was cut in two as `"\ud83d"`, which a Rust string cannot hold; a whole message
//! would be lost for it. The functions of this module read such text like browsers decode UTF-16: each lone surrogate becomes
//! U+FFFD, the replacement character. They cost nothing when the text needs no repair.
//!
//! # Numbers
//!
//! With the feature `arbitrary-precision` a [`Value`] holds numbers of any size and precision, digit for
//! digit. Without it, a number becomes the nearest `f64` unless it is an integer between [`i64::MIN`] and [`u64::MAX`]; one
//! beyond the range of `f64`, such as `1e400`, becomes a string with the same digits, so that the rest of the text is not lost.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
#[cfg(feature = "mcp")]
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// Parses JSON text, which is repaired first if it has to be.
///
/// # Errors
///
/// The text is not JSON, or not the JSON of a `T`.
///
/// # Examples
///
/// ```
/// let text: String = ropeway::json::from_str(r#""cut \ud83d""#)?;
/// assert_eq!(text, "cut \u{fffd}");
/// # Ok::<_, serde_json::Error>(())
/// ```
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    from_slice(text.as_bytes())
}

/// Parses the bytes of JSON text, which are repaired first if they have to be.
///
/// # Errors
///
/// The bytes are not JSON, or not the JSON of a `T`.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let mut repaired = Vec::new();
    from_slice_in(bytes, &mut repaired)
}

/// Parses the bytes of JSON text into a value that borrows from them, or from `repaired` if they had to be repaired.
pub(crate) fn from_slice_in<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    repaired: &'a mut Vec<u8>,
) -> Result<T, serde_json::Error> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match repair(bytes) {
        Some(text) => {
            *repaired = text;
            serde_json::from_slice(repaired)
        }
        None => Err(error),
    }
}

/// Repairs JSON text that cannot be parsed; `None` if it holds nothing that can be repaired.
///
/// A byte order mark is removed, invalid UTF-8 and lone surrogates become U+FFFD, and numbers that a
/// [`Value`] cannot hold become strings.
#[cold]
pub(crate) fn repair(bytes: &[u8]) -> Option<Vec<u8>> {
    let bare = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = decodable(bare);
    let numbers = quote_large_numbers(&text);
    let changed = bare.len() < bytes.len() || matches!(text, Cow::Owned(_)) || numbers.is_some();
    changed.then(|| numbers.unwrap_or_else(|| text.into_owned()).into_bytes())
}

/// Replaces invalid UTF-8 and lone surrogates, so that every string in the text can be decoded.
pub(crate) fn decodable(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => without_lone_surrogates(text),
        Cow::Owned(text) => Cow::Owned(without_lone_surrogates(&text).into_owned()),
    }
}

/// Replaces escapes of lone surrogates by `\ufffd`, which takes as many bytes.
pub(crate) fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let Some(first) = lone_surrogate(text.as_bytes(), 0) else { return Cow::Borrowed(text) };
    let mut repaired = String::with_capacity(text.len());
    let (mut done, mut next) = (0, Some(first));
    while let Some(at) = next {
        repaired.push_str(&text[done..at]);
        repaired.push_str("\\ufffd");
        done = at + ESCAPE;
        next = lone_surrogate(text.as_bytes(), done);
    }
    repaired.push_str(&text[done..]);
    Cow::Owned(repaired)
}

/// Replaces the lone surrogates in JSON text that is passed on without being parsed whole.
#[cfg(feature = "mcp")]
pub(crate) fn repair_raw(raw: Box<RawValue>) -> Box<RawValue> {
    let repaired = match without_lone_surrogates(raw.get()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => RawValue::from_string(text).ok(),
    };
    repaired.unwrap_or(raw)
}

/// The bytes of `\uXXXX`.
const ESCAPE: usize = 6;

/// Finds escapes of any character. Both bytes count: text with many other escapes is as quick as text without.
static UNICODE_ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\\u"));

/// Finds the next escape of a lone surrogate; `from` must not be in the middle of an escape.
fn lone_surrogate(text: &[u8], mut from: usize) -> Option<usize> {
    while let Some(found) = UNICODE_ESCAPE.find(&text[from..]) {
        let at = from + found;
        // `\\u` is an escaped backslash and a letter.
        let backslashes = text[from..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        from = match escaped(text, at).filter(|_| backslashes % 2 == 0) {
            Some(0xD800..=0xDBFF) => match escaped(text, at + ESCAPE) {
                Some(0xDC00..=0xDFFF) => at + 2 * ESCAPE,
                _ => return Some(at),
            },
            Some(0xDC00..=0xDFFF) => return Some(at),
            Some(_) => at + ESCAPE,
            None => at + 2,
        };
    }
    None
}

/// The code unit of the escape `\uXXXX` at this place.
fn escaped(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Puts numbers beyond the range of `f64` into quotes, unless the parser takes them.
fn quote_large_numbers(text: &str) -> Option<String> {
    if serde_json::from_str::<Number>("1e400").is_ok() {
        return None;
    }
    let bytes = text.as_bytes();
    let mut repaired = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let number = &text[at..at + bytes[at..].iter().take_while(is_part).count()];
                // Nothing that is shorter than 1e309 is too large.
                if number.len() > 4 && number.parse().is_ok_and(f64::is_infinite) {
                    repaired.extend([&text[done..at], "\"", number, "\""]);
                    done = at + number.len();
                }
                at += number.len();
            }
            _ => at += 1,
        }
    }
    (done > 0).then(|| repaired + &text[done..])
}

/// The number as an `f64`; infinite where it is too large for one.
pub(crate) fn nearest(value: &Value) -> Option<f64> {
    let Value::Number(number) = value else { return None };
    number.as_f64().or_else(|| number.to_string().parse().ok())
}

/// Removes the white space between the tokens of JSON text.
#[cfg(any(feature = "mcp", feature = "providers", test))]
pub(crate) fn compact(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut compact = String::with_capacity(text.len());
    let (mut done, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                compact.push_str(&text[done..at]);
                at += 1;
                done = at;
            }
            _ => at += 1,
        }
    }
    compact.push_str(&text[done..]);
    compact
}

/// Where the string that begins at `start` ends, its quotes included.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        match text[at + found] {
            b'"' => return at + found + 1,
            _ => at += found + 2,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        from_str(text).unwrap_or_else(|error| panic!("`{text}` is not read: {error}"))
    }

    #[test]
    fn a_lone_surrogate_reads_as_the_replacement_character() {
        for (text, wanted) in [
            (r#""hello \ud83d""#, "hello \u{fffd}"),
            (r#""\ude00 world""#, "\u{fffd} world"),
            (r#""\uDE00\uD83D""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\\ude00""#, "\u{fffd}\\ude00"),
            (r#""\ud83dx\u0041""#, "\u{fffd}xA"),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
        assert_eq!(read(r#"{"\udfff": ["\ud800"]}"#), json!({"\u{fffd}": ["\u{fffd}"]}));
    }

    #[test]
    fn text_that_only_looks_like_a_surrogate_stays_as_it_is() {
        for text in
            [r#""\\ud83d""#, r#""\\\\ud83d""#, r#""\ud83d\ude00""#, r#""\uD83D\uDE00 \u00e9 \\u\\""#, "\"ud83d\""]
        {
            assert!(matches!(without_lone_surrogates(text), Cow::Borrowed(_)), "{text}");
            assert_eq!(read(text), serde_json::from_str::<Value>(text).expect("JSON"));
        }
        // An odd number of backslashes ends in an escape.
        assert_eq!(read(r#""\\\ud83d""#), "\\\u{fffd}");
    }

    #[test]
    fn broken_json_stays_broken() {
        for text in ["", "{", r#""\ud83d"#, r#""\u12""#, r#""\ud8"#, "nul", r#"{"a":1e400"#, "-", "\u{feff}"] {
            assert!(from_str::<Value>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_and_a_byte_order_mark_are_repaired() {
        assert_eq!(from_slice::<Value>(b"\xEF\xBB\xBF[1]").expect("JSON"), json!([1]));
        assert_eq!(from_slice::<Value>(b"[\"\xff\", \"\\ud83d\"]").expect("JSON"), json!(["\u{fffd}", "\u{fffd}"]));
    }

    #[test]
    fn a_number_beyond_f64_costs_no_more_than_itself() {
        let text = r#"{"a":1e400,"b":[-1E+999,"1e400 \" 1e400",2],"c":1e308}"#;
        let value = read(text);
        assert_eq!(value["b"][2], 2);
        assert_eq!(value["b"][1], "1e400 \" 1e400");
        if cfg!(feature = "arbitrary-precision") {
            assert!(value["a"].is_number() && value["b"][0].is_number());
        } else {
            assert_eq!((&value["a"], &value["b"][0]), (&json!("1e400"), &json!("-1E+999")));
        }
        let digits = "9".repeat(10_000);
        assert_eq!(read(&format!("[{digits}]"))[0].to_string().trim_matches('"'), digits);
        assert_eq!(read("[1e-400]")[0].as_f64(), Some(0.0));
    }

    #[test]
    fn what_is_parsed_may_borrow_from_the_text_or_from_its_repaired_copy() {
        let mut repaired = Vec::new();
        let fine: &str = from_slice_in(br#""fine""#, &mut repaired).expect("JSON");
        assert_eq!(fine, "fine");
        let mut repaired = Vec::new();
        let raw: Vec<&serde_json::value::RawValue> = from_slice_in(b"\xEF\xBB\xBF[1.10]", &mut repaired).expect("JSON");
        assert_eq!(raw[0].get(), "1.10");
    }

    #[test]
    fn compact_text_has_the_same_tokens() {
        let text = "{ \"a b\" :\t[1e2,\r\n -0 , \"\\\" \\\\\"], \"c\": 1.10 }";
        assert_eq!(compact(text), r#"{"a b":[1e2,-0,"\" \\"],"c":1.10}"#);
        assert_eq!(compact("\"open \\"), "\"open \\");
    }

    proptest! {
        #[test]
        fn text_of_any_code_units_is_read_as_utf16_is(units in proptest::collection::vec(any::<u16>(), 0..20), sparse in any::<bool>()) {
            let units: Vec<u16> = units.into_iter().map(|unit| if sparse { unit } else { 0xD700 + unit % 0x0900 }).collect();
            let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(read(&format!("\"{text}\"")), String::from_utf16_lossy(&units));
        }

        #[test]
        fn no_bytes_make_a_repair_panic_and_it_leaves_nothing_to_repair(text in r#"(\\|u|d8|dc|"|1e999|[0-9a-f]|,|\PC){0,30}"#) {
            let repaired = repair(text.as_bytes()).unwrap_or_else(|| text.clone().into_bytes());
            prop_assert_eq!(lone_surrogate(&repaired, 0), None);
        }

        #[test]
        fn what_serde_json_reads_is_read_alike(text in r#"[\[{]?"(\\u[0-9a-f]{4}|\\\\|\\n|[a-z])*"[\]}]?"#) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(read(&text), value);
            }
        }
    }
}
