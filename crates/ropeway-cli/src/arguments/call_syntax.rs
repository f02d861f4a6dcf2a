//! Call expressions: `calculate(expression: "1+1")`.

use ropeway_core::json;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Maximum list and object nesting.
const DEEPEST: usize = 64;

/// A value in a call expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallValue {
    /// Without quotes or brackets; converted by the tool's schema.
    Plain(String),
    /// A quoted string, a list or an object.
    Json(Value),
}

/// A tool name and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallExpression {
    pub(crate) tool: String,
    /// An argument without a name is the only one.
    pub(crate) arguments: Vec<(Option<String>, CallValue)>,
}

/// Parses a call expression. Returns `None` for a plain tool name.
pub(crate) fn parse(text: &str) -> Option<Result<CallExpression, Failure>> {
    let text = text.trim();
    let (tool, rest) = text.split_once('(')?;
    let tool = tool.trim_end();
    if tool.is_empty() || tool.contains(char::is_whitespace) {
        return None;
    }
    let mut reader = Parser { text: rest, at: 0, start: text.len() - rest.len() };
    Some(reader.arguments().map(|arguments| CallExpression { tool: tool.to_owned(), arguments }))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Offset at which `text` starts in the whole word.
    start: usize,
}

impl<'a> Parser<'a> {
    fn arguments(&mut self) -> Result<Vec<(Option<String>, CallValue)>, Failure> {
        let mut arguments = Vec::new();
        loop {
            if self.takes(')') {
                break;
            }
            let name = self.name()?;
            arguments.push((name, self.argument()?));
            if !self.takes(',') {
                if !self.takes(')') {
                    return Err(self.expected("`,` or `)`"));
                }
                break;
            }
        }
        self.skip_blanks();
        if self.at < self.text.len() {
            return Err(self.expected("nothing after `)`"));
        }
        if arguments.len() > 1 && arguments.iter().any(|(name, _)| name.is_none()) {
            return Err(Failure::usage("several arguments need names")
                .hint("try name: value, as in 'chart(values: [1, 2], title: \"Two\")'"));
        }
        Ok(arguments)
    }

    /// Parses the name before a `:` or `=`, if present.
    fn name(&mut self) -> Result<Option<String>, Failure> {
        self.skip_blanks();
        let before = self.at;
        let name = match self.peek() {
            Some('"' | '\'') => self.string()?,
            _ => self.word().to_owned(),
        };
        if !name.is_empty() && (self.takes(':') || self.takes('=')) {
            return Ok(Some(name));
        }
        self.at = before;
        Ok(None)
    }

    fn argument(&mut self) -> Result<CallValue, Failure> {
        self.skip_blanks();
        if let Some('"' | '\'' | '[' | '{') = self.peek() {
            return self.value(DEEPEST).map(CallValue::Json);
        }
        // The argument may contain parentheses, as in `1+(2*3)`.
        let mut open = 0usize;
        let end = self.rest().char_indices().find(|(_, c)| match c {
            '(' => {
                open += 1;
                false
            }
            ')' if open > 0 => {
                open -= 1;
                false
            }
            ')' => true,
            ',' => open == 0,
            _ => false,
        });
        let plain = self.rest()[..end.map_or(self.rest().len(), |(at, _)| at)].trim_end();
        if plain.is_empty() {
            return Err(self.expected("a value"));
        }
        self.at += plain.len();
        Ok(CallValue::Plain(plain.to_owned()))
    }

    /// Parses a value in a list or object, or one of these.
    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        self.skip_blanks();
        if depth == 0 {
            return Err(self.failure(format!("the value is nested more than {DEEPEST} deep")));
        }
        match self.peek() {
            Some('"' | '\'') => self.string().map(Value::String),
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.takes(']') {
                    items.push(self.value(depth - 1)?);
                    if !self.takes(',') && self.peek_after_blanks() != Some(']') {
                        return Err(self.expected("`,` or `]`"));
                    }
                }
                Ok(Value::Array(items))
            }
            Some('{') => {
                self.at += 1;
                let mut fields = Map::new();
                while !self.takes('}') {
                    let Some(name) = self.name()? else { return Err(self.expected("a name and `:`")) };
                    fields.insert(name, self.value(depth - 1)?);
                    if !self.takes(',') && self.peek_after_blanks() != Some('}') {
                        return Err(self.expected("`,` or `}`"));
                    }
                }
                Ok(Value::Object(fields))
            }
            _ => {
                let end = self.rest().find(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}' | ')'));
                let word = &self.rest()[..end.unwrap_or(self.rest().len())];
                let value = json::from_str(word).map_err(|_| self.expected("a JSON value (strings need quotes)"))?;
                self.at += word.len();
                Ok(value)
            }
        }
    }

    /// Parses a string in single or double quotes with JSON escapes.
    fn string(&mut self) -> Result<String, Failure> {
        let quote = self.peek().unwrap_or('"');
        let mut is_escaped = false;
        let end = self.rest().char_indices().skip(1).find(|(_, c)| {
            let ends = !is_escaped && *c == quote;
            is_escaped = !is_escaped && *c == '\\';
            ends
        });
        let Some((end, _)) = end else { return Err(self.expected("the closing quote")) };
        let inner = &self.rest()[1..end];
        // Converts to JSON syntax: single quotes need no escape, double quotes and line breaks do.
        let mut quoted = String::from("\"");
        let mut is_escaped = false;
        for c in inner.chars() {
            match c {
                '\'' if is_escaped => drop(quoted.pop()),
                '"' if !is_escaped => quoted.push('\\'),
                _ => {}
            }
            is_escaped = !is_escaped && c == '\\';
            match c {
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                c if c.is_ascii_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        let text = json::from_str::<String>(&quoted).map_err(|error| self.expected("a string").caused_by(&error))?;
        self.at += end + quote.len_utf8();
        Ok(text)
    }

    /// Consumes a name's characters.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.')));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn peek_after_blanks(&mut self) -> Option<char> {
        self.skip_blanks();
        self.peek()
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Skips whitespace and consumes `wanted` if it follows.
    fn takes(&mut self, wanted: char) -> bool {
        let is_next = self.peek_after_blanks() == Some(wanted);
        self.at += if is_next { wanted.len_utf8() } else { 0 };
        is_next
    }

    fn expected(&self, what: &str) -> Failure {
        self.failure(format!("expected {what}"))
    }

    fn failure(&self, message: String) -> Failure {
        let column = self.start + self.text[..self.at].chars().count() + 1;
        Failure::usage(format!("the call is not valid at column {column}: {message}"))
            .kind("invalid_arguments")
            .hint("write 'TOOL(name: value, other: \"text\")'")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(Option<String>, CallValue)> {
        parse(text).expect("a call").unwrap_or_else(|failure| panic!("{text}: {}", failure.message())).arguments
    }

    fn named(name: &str, value: CallValue) -> (Option<String>, CallValue) {
        (Some(name.to_owned()), value)
    }

    fn plain(text: &str) -> CallValue {
        CallValue::Plain(text.to_owned())
    }

    #[test]
    fn a_call_is_read_as_it_is_written() {
        assert_eq!(read(r#"calculate(expression: "1+1")"#), [named("expression", CallValue::Json(json!("1+1")))]);
        assert_eq!(
            read("server.tool(a: 1, b: [1,2], c: {x: true, 'y z': null, deep: {\"k\": ['s']},},)"),
            [
                named("a", plain("1")),
                named("b", CallValue::Json(json!([1, 2]))),
                named("c", CallValue::Json(json!({"x": true, "y z": null, "deep": {"k": ["s"]}}))),
            ]
        );
        assert_eq!(read("t(a=1+(2*3), b = x y )"), [named("a", plain("1+(2*3)")), named("b", plain("x y"))]);
        assert_eq!(read("t()"), []);
        assert_eq!(read("t ( 'only' ) "), [(None, CallValue::Json(json!("only")))]);
        assert_eq!(read("t(1+1)"), [(None, plain("1+1"))]);
    }

    #[test]
    fn strings_have_the_escapes_of_json_in_quotes_of_either_kind() {
        let text = |text: &str| match &read(text)[..] {
            [(_, CallValue::Json(Value::String(text)))] => text.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(r#"t(a: "x\n\"y\" \u00e9 it's")"#), "x\n\"y\" é it's");
        assert_eq!(text(r#"t(a: 'it\'s "so" \\')"#), "it's \"so\" \\");
        assert_eq!(text("t(a: 'two\nlines, (and) ]')"), "two\nlines, (and) ]");
    }

    #[test]
    fn numbers_keep_their_digits() {
        let list = read("t(a: [18446744073709551616, 1.10])");
        let [(_, CallValue::Json(value))] = &list[..] else { panic!("{list:?}") };
        assert_eq!(value.to_string(), "[18446744073709551616,1.10]");
    }

    #[test]
    fn an_invalid_call_is_a_name_or_a_failure_with_its_column() {
        for name in ["calculate", "server.tool", "", "(a: 1)", "two words(a: 1)"] {
            assert_eq!(parse(name).map(|call| call.is_ok()), None, "{name}");
        }
        for (text, words) in [
            ("t(a: 1", "at column 7: expected `,` or `)`"),
            ("t(a: )", "at column 6: expected a value"),
            ("t(a: [1 2])", "at column 9: expected `,` or `]`"),
            ("t(a: [x])", "at column 7: expected a JSON value (strings need quotes)"),
            ("t(a: \"x)", "at column 6: expected the closing quote"),
            ("t(a: 1) b", "at column 9: expected nothing after `)`"),
            ("t(a: {1})", "expected a name and `:`"),
            ("t(1, 2)", "several arguments need names"),
        ] {
            let failure = parse(text).expect("a call").expect_err(text);
            assert!(failure.message().contains(words), "{text}: {}", failure.message());
        }
        let deep = format!("t(a: {}", "[".repeat(100_000));
        assert!(parse(&deep).expect("a call").is_err());
    }
}
