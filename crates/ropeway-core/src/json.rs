//! Lenient parsing for JSON from other programs: accepts lone surrogates, large numbers and invalid UTF-8.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// Whether numbers keep every digit: the feature `arbitrary-precision`.
pub const KEEPS_DIGITS: bool = cfg!(feature = "arbitrary-precision");

/// Parses JSON text, repairing it if necessary.
///
/// # Errors
///
/// Returns an error if the text is not JSON or does not match `T`.
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

/// Parses JSON bytes, repairing them if necessary.
///
/// # Errors
///
/// Returns an error if the bytes are not JSON or do not match `T`.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let mut repaired = Vec::new();
    from_slice_in(bytes, &mut repaired)
}

/// Parses JSON bytes into a value that borrows from them, or from `repaired` if they had to be repaired.
pub fn from_slice_in<'a, T: Deserialize<'a>>(
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

/// Repairs invalid JSON text. Returns `None` if it contains nothing to repair.
///
/// A byte order mark is removed, invalid UTF-8 and lone surrogates become U+FFFD, and out-of-range numbers become strings.
#[cold]
pub fn repair(bytes: &[u8]) -> Option<Vec<u8>> {
    let bare = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = decodable(bare);
    let numbers = quote_large_numbers(&text);
    let changed = bare.len() < bytes.len() || matches!(text, Cow::Owned(_)) || numbers.is_some();
    changed.then(|| numbers.unwrap_or_else(|| text.into_owned()).into_bytes())
}

/// Replaces invalid UTF-8 and lone surrogates.
pub fn decodable(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => without_lone_surrogates(text),
        Cow::Owned(text) => Cow::Owned(without_lone_surrogates(&text).into_owned()),
    }
}

/// Replaces lone surrogate escapes by `\ufffd`, which has the same length.
pub fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
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

/// Replaces lone surrogates in JSON text that is forwarded without being parsed.
pub fn repair_raw(raw: Box<RawValue>) -> Box<RawValue> {
    let repaired = match without_lone_surrogates(raw.get()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => RawValue::from_string(text).ok(),
    };
    repaired.unwrap_or(raw)
}

/// Length of `\uXXXX`.
const ESCAPE: usize = 6;

/// Searches for both bytes, so that other escapes do not slow it down.
static UNICODE_ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\\u"));

/// Returns the next lone surrogate's position. `from` must not be inside an escape.
fn lone_surrogate(text: &[u8], mut from: usize) -> Option<usize> {
    while let Some(found) = UNICODE_ESCAPE.find(&text[from..]) {
        let at = from + found;
        // In `\\u`, the backslash is escaped.
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

/// Returns the code unit that the escape `\uXXXX` at a position stands for.
fn escaped(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Quotes numbers beyond `f64`'s range, unless the parser accepts them.
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
                // `1e309` is the shortest number out of range.
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

/// Converts a number to `f64`; infinite if it is out of range.
pub(crate) fn to_f64(value: &Value) -> Option<f64> {
    let Value::Number(number) = value else { return None };
    number.as_f64().or_else(|| number.to_string().parse().ok())
}

/// Removes whitespace between JSON tokens.
pub fn compact(text: &str) -> String {
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

/// Returns the position behind the string that starts at `start`.
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

/// Returns a value's type for an error message, such as "an array".
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
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
    fn lone_surrogates_become_replacement_characters() {
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
    fn escaped_backslashes_and_surrogate_pairs_are_kept() {
        for text in
            [r#""\\ud83d""#, r#""\\\\ud83d""#, r#""\ud83d\ude00""#, r#""\uD83D\uDE00 \u00e9 \\u\\""#, "\"ud83d\""]
        {
            assert!(matches!(without_lone_surrogates(text), Cow::Borrowed(_)), "{text}");
            assert_eq!(read(text), serde_json::from_str::<Value>(text).expect("JSON"));
        }
        // After an even number of backslashes, `\u` is an escape.
        assert_eq!(read(r#""\\\ud83d""#), "\\\u{fffd}");
    }

    #[test]
    fn invalid_json_is_an_error() {
        for text in ["", "{", r#""\ud83d"#, r#""\u12""#, r#""\ud8"#, "nul", r#"{"a":1e400"#, "-", "\u{feff}"] {
            assert!(from_str::<Value>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_utf8_and_a_byte_order_mark_are_repaired() {
        assert_eq!(from_slice::<Value>(b"\xEF\xBB\xBF[1]").expect("JSON"), json!([1]));
        assert_eq!(from_slice::<Value>(b"[\"\xff\", \"\\ud83d\"]").expect("JSON"), json!(["\u{fffd}", "\u{fffd}"]));
    }

    #[test]
    fn a_number_out_of_range_does_not_affect_the_rest() {
        let text = r#"{"a":1e400,"b":[-1E+999,"1e400 \" 1e400",2],"c":1e308}"#;
        let value = read(text);
        assert_eq!(value["b"][2], 2);
        assert_eq!(value["b"][1], "1e400 \" 1e400");
        if KEEPS_DIGITS {
            assert!(value["a"].is_number() && value["b"][0].is_number());
        } else {
            assert_eq!((&value["a"], &value["b"][0]), (&json!("1e400"), &json!("-1E+999")));
        }
        let digits = "9".repeat(10_000);
        assert_eq!(read(&format!("[{digits}]"))[0].to_string().trim_matches('"'), digits);
        assert_eq!(read("[1e-400]")[0].as_f64(), Some(0.0));
    }

    #[test]
    fn a_value_may_borrow_from_the_text_or_its_repaired_copy() {
        let mut repaired = Vec::new();
        let fine: &str = from_slice_in(br#""fine""#, &mut repaired).expect("JSON");
        assert_eq!(fine, "fine");
        let mut repaired = Vec::new();
        let raw: Vec<&serde_json::value::RawValue> = from_slice_in(b"\xEF\xBB\xBF[1.10]", &mut repaired).expect("JSON");
        assert_eq!(raw[0].get(), "1.10");
    }

    #[test]
    fn compacting_removes_whitespace_only() {
        let text = "{ \"a b\" :\t[1e2,\r\n -0 , \"\\\" \\\\\"], \"c\": 1.10 }";
        assert_eq!(compact(text), r#"{"a b":[1e2,-0,"\" \\"],"c":1.10}"#);
        assert_eq!(compact("\"open \\"), "\"open \\");
    }

    proptest! {
        #[test]
        fn escapes_are_decoded_like_lossy_utf16(units in proptest::collection::vec(any::<u16>(), 0..20), sparse in any::<bool>()) {
            let units: Vec<u16> = units.into_iter().map(|unit| if sparse { unit } else { 0xD700 + unit % 0x0900 }).collect();
            let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            prop_assert_eq!(read(&format!("\"{text}\"")), String::from_utf16_lossy(&units));
        }

        #[test]
        fn a_repair_never_panics_and_is_complete(text in r#"(\\|u|d8|dc|"|1e999|[0-9a-f]|,|\PC){0,30}"#) {
            let repaired = repair(text.as_bytes()).unwrap_or_else(|| text.clone().into_bytes());
            prop_assert_eq!(lone_surrogate(&repaired, 0), None);
        }

        #[test]
        fn valid_text_is_parsed_like_serde_json(text in r#"[\[{]?"(\\u[0-9a-f]{4}|\\\\|\\n|[a-z])*"[\]}]?"#) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(read(&text), value);
            }
        }
    }
}
