//! Validates a JSON object and locates its members, without building a tree.
//!
//! A gateway forwards results unchanged. It has to verify that a result is exactly one object: a server could otherwise end
//! the object early and append its own members to the surrounding message, or break the connection to a client that cannot
//! parse the message.

use std::ops::Range;

use memchr::memchr2;

/// One object member, as byte ranges in the scanned text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key without its quotes. Escapes are not decoded.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

impl Member {
    /// Returns the range of the whole member, from its key's opening quote to the end of its value.
    pub fn span(&self) -> Range<usize> {
        self.key.start - 1..self.value.end
    }
}

/// The [`scan_object`] error: the text is not one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct ScanError;

/// Passes each top-level member and its key to `take`, in order.
///
/// Accepts exactly the JSON objects that [RFC 8259](https://www.rfc-editor.org/rfc/rfc8259) defines, except that strings may
/// contain invalid UTF-8. The scan does not recurse and allocates nothing unless values are nested deeply.
///
/// # Errors
///
/// Fails unless the text is exactly one object, apart from whitespace around it. Members that were passed to `take` before the
/// failure have no meaning.
pub fn scan_object(text: &[u8], mut take: impl FnMut(&[u8], Member)) -> Result<(), ScanError> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.token(b'{')?;
    if scanner.token(b'}').is_err() {
        loop {
            scanner.skip_whitespace();
            let key = scanner.string()?;
            scanner.token(b':')?;
            scanner.skip_whitespace();
            let value = scanner.value()?;
            take(&text[key.clone()], Member { key, value });
            if scanner.token(b',').is_err() {
                scanner.token(b'}')?;
                break;
            }
        }
    }
    scanner.skip_whitespace();
    if scanner.at == text.len() { Ok(()) } else { Err(ScanError) }
}

/// Returns `true` if a scanned key is `name`, also if it is written with escapes.
pub fn is_key(key: &[u8], name: &str) -> bool {
    if memchr::memchr(b'\\', key).is_none() {
        return key == name.as_bytes();
    }
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|key| key == name)
}

/// Returns `true` if brackets in a JSON text are nested deeper than `limit`. The text has to be valid JSON.
pub fn is_deeper_than(text: &[u8], limit: usize) -> bool {
    let mut scanner = Scanner { text, at: 0 };
    let mut depth: usize = 0;
    while let Some(byte) = text.get(scanner.at) {
        match byte {
            b'"' => {
                if scanner.string().is_err() {
                    return false;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return true;
        }
        scanner.at += 1;
    }
    false
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn byte(&self) -> Result<u8, ScanError> {
        self.text.get(self.at).copied().ok_or(ScanError)
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips whitespace and this byte. Fails if another byte follows the whitespace.
    fn token(&mut self, token: u8) -> Result<(), ScanError> {
        self.skip_whitespace();
        if self.byte()? != token {
            return Err(ScanError);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string and returns its range without the quotes.
    fn string(&mut self) -> Result<Range<usize>, ScanError> {
        if self.byte()? != b'"' {
            return Err(ScanError);
        }
        self.at += 1;
        let start = self.at;
        loop {
            let rest = self.text.get(self.at..).ok_or(ScanError)?;
            let found = memchr2(b'"', b'\\', rest).ok_or(ScanError)?;
            if has_control(&rest[..found]) {
                return Err(ScanError);
            }
            let end = self.at + found;
            if rest[found] == b'"' {
                self.at = end + 1;
                return Ok(start..end);
            }
            self.at = end + escape_length(&rest[found..]).ok_or(ScanError)?;
        }
    }

    /// Skips a value and returns its range.
    fn value(&mut self) -> Result<Range<usize>, ScanError> {
        let start = self.at;
        match self.byte()? {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => self.nested()?,
            _ => self.scalar()?,
        }
        Ok(start..self.at)
    }

    /// Skips a number or a literal.
    fn scalar(&mut self) -> Result<(), ScanError> {
        let rest = &self.text[self.at..];
        let length = match rest.first() {
            Some(b't') if rest.starts_with(b"true") => 4,
            Some(b'f') if rest.starts_with(b"false") => 5,
            Some(b'n') if rest.starts_with(b"null") => 4,
            _ => number_length(rest).ok_or(ScanError)?,
        };
        self.at += length;
        Ok(())
    }

    /// Skips a member's key, up to its value.
    fn key(&mut self) -> Result<(), ScanError> {
        self.string()?;
        self.token(b':')?;
        self.skip_whitespace();
        Ok(())
    }

    /// Skips an object or an array.
    fn nested(&mut self) -> Result<(), ScanError> {
        let mut open = OpenBrackets::default();
        loop {
            match self.byte()? {
                bracket @ (b'{' | b'[') => {
                    open.push(bracket == b'{');
                    self.at += 1;
                    self.skip_whitespace();
                    if self.byte()? != open.closing() {
                        if open.is_object() {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => {
                    self.string()?;
                }
                _ => self.scalar()?,
            }
            if self.end_brackets(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Skips the brackets that close after a value, and the comma and the key before the next one. Returns `true` if the last
    /// bracket is closed.
    fn end_brackets(&mut self, open: &mut OpenBrackets) -> Result<bool, ScanError> {
        loop {
            self.skip_whitespace();
            let byte = self.byte()?;
            self.at += 1;
            if byte == open.closing() {
                open.pop();
                if open.depth == 0 {
                    return Ok(true);
                }
            } else if byte == b',' {
                self.skip_whitespace();
                if open.is_object() {
                    self.key()?;
                }
                return Ok(false);
            } else {
                return Err(ScanError);
            }
        }
    }
}

/// Returns the length of the escape sequence that a text starts with.
fn escape_length(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => text.get(2..6)?.iter().all(u8::is_ascii_hexdigit).then_some(6),
        _ => None,
    }
}

/// Returns the length of the number that a text starts with.
fn number_length(text: &[u8]) -> Option<usize> {
    let digits = |at: usize| {
        let count = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(at + count)
    };
    let start = usize::from(text.first() == Some(&b'-'));
    let mut end = digits(start)?;
    if text[start] == b'0' && end > start + 1 {
        return None;
    }
    if text.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Some(end)
}

/// Returns `true` if a string contains a control character. Checks blocks without branches, so that they are vectorized.
fn has_control(text: &[u8]) -> bool {
    text.chunks(256).any(|block| block.iter().fold(false, |found, byte| found | (*byte < 0x20)))
}

/// The open brackets' kinds, one bit each: 1 for an object, 0 for an array.
#[derive(Default)]
struct OpenBrackets {
    depth: usize,
    /// The innermost brackets; the last one is the lowest bit.
    inner: u64,
    /// The outer brackets, in 64-bit words.
    outer: Vec<u64>,
}

impl OpenBrackets {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.inner);
        }
        self.inner = (self.inner << 1) | u64::from(is_object);
        self.depth += 1;
    }

    /// Returns whether the innermost bracket is an object.
    fn is_object(&self) -> bool {
        self.inner & 1 == 1
    }

    /// Returns the byte that closes the innermost bracket.
    fn closing(&self) -> u8 {
        if self.is_object() { b'}' } else { b']' }
    }

    /// Removes the innermost bracket. At least one has to be open.
    fn pop(&mut self) {
        self.inner >>= 1;
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.inner = self.outer.pop().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use serde_json::{Map, Value};

    use super::*;

    fn scan(text: &[u8]) -> Result<Vec<(String, String)>, ScanError> {
        let mut members = Vec::new();
        let part = |range: Range<usize>| String::from_utf8_lossy(&text[range]).into_owned();
        scan_object(text, |key, member| {
            assert_eq!(key, &text[member.key.clone()]);
            assert_eq!(text[member.span().start], b'"');
            members.push((part(member.key), part(member.value)));
        })?;
        Ok(members)
    }

    /// Any JSON value, up to a few levels deep.
    fn any_value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            r#"[ -~é\n"\\\[\]{}:,]{0,12}"#.prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((r#"[a-c"\\é{}]{0,4}"#, inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::vec((r#"[a-c"\\é{}]{0,4}"#, any_value()), 0..6)
            .prop_map(|members| members.into_iter().collect())
    }

    fn written(object: &Map<String, Value>, pretty: bool) -> String {
        if pretty { serde_json::to_string_pretty(object) } else { serde_json::to_string(object) }.expect("JSON")
    }

    /// Returns the positions at which brackets and quotes belong to the grammar.
    fn structural(text: &str) -> Vec<usize> {
        let (mut positions, mut in_string, mut escaped) = (Vec::new(), false, false);
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    in_string = !in_string;
                    positions.push(at);
                }
                b'{' | b'}' | b'[' | b']' if !in_string => positions.push(at),
                _ => {}
            }
        }
        positions
    }

    #[test]
    fn members_are_found_between_any_whitespace() {
        let text = " {\r\n\t\"a\" : { \"b\" : [ 1 , \"}\" ] } , \"c\\\"\":-1.5e+3,\"\":\"\\\\\" , \"a\":null }\n";
        let expected = [("a", "{ \"b\" : [ 1 , \"}\" ] }"), ("c\\\"", "-1.5e+3"), ("", "\"\\\\\""), ("a", "null")];
        let expected: Vec<_> = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(scan(text.as_bytes()), Ok(expected));
        assert_eq!(scan(b"{}"), Ok(Vec::new()));
        assert_eq!(scan(b" { } "), Ok(Vec::new()));
    }

    #[test]
    fn text_that_is_not_one_object_is_rejected() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "[]",
            "null",
            "\"{}\"",
            "{}{}",
            "{} x",
            "{},\"id\":7",
            "{\"a\":1},\"id\":7,\"b\":{}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":truex}",
            "{\"a\":x}",
            "{\"a\":--x}",
            "{\"a\":1]",
            "{\"a\":[1}",
            "{\"a\":[}]}",
            "{\"a\":{]}}",
            "{\"a\":[1]]}",
            "{\"a\":[\"]}",
            "{\"a",
            "{\"a\\",
            "{\"a\\\"",
            "{\"a\":\"\\",
            "{\"a\":\"b\nc\"}",
            "{\"a\":[\"\t\"]}",
            "{\"a\nb\":1}",
            "{\"a\":\"\\\n\"}",
            "{\"a\":[\0]}",
            "{\"a\":[\u{2028}]}",
            "{\"a\":[/* */]}",
            "{\"a\":\u{b}1}",
            "\u{feff}{}",
            "{\"a\":[1 2]}",
            "{\"a\":[,1]}",
            "{\"a\":[1,]}",
            "{\"a\":[1,,2]}",
            "{\"a\":{\"b\" 1}}",
            "{\"a\":{\"b\":1,}}",
            "{\"a\":{1:2}}",
            "{\"a\":{\"b\":}}",
            "{\"a\":[tru]}",
            "{\"a\":[nulll]}",
            "{\"a\":[01]}",
            "{\"a\":[-]}",
            "{\"a\":[1.]}",
            "{\"a\":[.5]}",
            "{\"a\":[+1]}",
            "{\"a\":[1e]}",
            "{\"a\":1e+}",
            "{\"a\":\"\\x\"}",
            "{\"a\":[\"\\u12g4\"]}",
            "{\"a\":\"\\u12\"}",
        ] {
            assert_eq!(scan(text.as_bytes()), Err(ScanError), "{text:?}");
        }
    }

    #[test]
    fn the_depth_of_a_text_is_found() {
        for (text, depth) in
            [("1", 0), ("\"[[\"", 0), ("[]", 1), ("{\"a{[\":[{}],\"b\":[\"\\\"[\"]}", 3), ("[[],[[]]]", 3)]
        {
            assert!(depth == 0 || is_deeper_than(text.as_bytes(), depth - 1), "{text}");
            assert!(!is_deeper_than(text.as_bytes(), depth), "{text}");
        }
    }

    #[test]
    fn an_object_may_be_nested_deeply() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 300_000] {
            let open = "[{\"a\":".repeat(depth);
            let close = "}]".repeat(depth);
            let text = format!("{{\"a\":{open}1{close}}}");
            assert_eq!(scan(text.as_bytes()).expect("an object").len(), 1, "{depth}");
            let last = text.len() - 1;
            for broken in [&text[..last], &text.replacen("}]", "]}", 1), &format!("{}]}}", &text[..last])] {
                assert_eq!(scan(broken.as_bytes()), Err(ScanError), "{depth}");
            }
        }
    }

    #[test]
    fn a_key_is_recognized_when_it_is_escaped() {
        assert!(is_key(b"resultType", "resultType"));
        assert!(is_key(br"result\u0054ype", "resultType"));
        assert!(is_key(br"a\/b", "a/b"));
        assert!(!is_key(br"result\u0074ype", "resultType"));
        assert!(!is_key(br"\ud83d", "resultType"));
        assert!(!is_key(b"", "resultType"));
    }

    proptest! {
        #[test]
        fn a_scanned_member_is_what_the_parser_finds(object in any_object(), pretty: bool) {
            let text = written(&object, pretty);
            let members = scan(text.as_bytes()).expect("an object");
            // The parser may round a number that it has written itself.
            let object: Map<String, Value> = serde_json::from_str(&text).expect("an object");
            prop_assert_eq!(members.len(), object.len());
            for ((key, value), (expected_key, expected)) in members.iter().zip(&object) {
                prop_assert!(is_key(key.as_bytes(), expected_key));
                prop_assert_eq!(&serde_json::from_str::<Value>(value).expect("a value"), expected);
            }
        }

        #[test]
        fn an_unbalanced_object_is_rejected(object in any_object(), pretty: bool, index: prop::sample::Index) {
            let text = written(&object, pretty);
            let positions = structural(&text);
            let at = positions[index.index(positions.len())];
            let mut missing = text.clone().into_bytes();
            let byte = missing.remove(at);
            prop_assert_eq!(scan(&missing), Err(ScanError));
            let mut doubled = text.clone().into_bytes();
            doubled.insert(at, byte);
            prop_assert_eq!(scan(&doubled), Err(ScanError));
            prop_assert_eq!(scan(&text.as_bytes()[..at]), Err(ScanError));
        }

        #[test]
        fn exactly_the_objects_of_the_parser_are_accepted(text in r#"\{("a":|"b\\"":|[{}\[\]",:]|1e5|-0|0|\.5|true|null|"\\u0aF9"|\\x|"x"| |\n){0,14}\}"#) {
            let is_valid = serde_json::from_str::<&RawValue>(&text).is_ok();
            prop_assert_eq!(is_valid, scan(text.as_bytes()).is_ok());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_scanner(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = scan(&[b"{\"a\":", text.as_slice(), b"}"].concat());
            let _ = scan(&text);
        }
    }
}
