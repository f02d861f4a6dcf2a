//! Fuzzing: untrusted text is handled safely, checked with mutations of a few inputs.

use ropeway_core::tool::ToolDefinition;
use ropeway_testing::fuzz::Mutator;
use serde_json::{Value, json};

use crate::arguments::argument::RawArguments;
use crate::secrets::dotenv;
use crate::secrets::literal::{self, ExtractedSecret};
use crate::terminal::text::{Cleaner, clean, clean_json, clean_line, columns, cut, wrap};

/// Number of mutations per check.
const MUTATIONS: usize = 1_500;

/// Terminal control sequences, and wide or joined characters.
const TOKENS: &[&str] = &[
    "\u{1b}[31m",
    "\u{1b}]0;title\u{7}",
    "\u{1b}P",
    "\u{1b}\\",
    "\u{9b}",
    "\u{9d}",
    "\r",
    "\r\n",
    "\n",
    "\t",
    "\0",
    "\u{7f}",
    "\u{202e}",
    "\u{2066}",
    "\u{200d}",
    "\u{301}",
    "\u{feff}",
    "\u{fe0f}",
    "\u{1f468}\u{200d}\u{1f469}",
    "\u{4e16}",
    " ",
    "=",
    ":=",
    "{",
    "}",
    "[",
    "\"",
    "'",
    "\\",
    "$",
    "`",
    "#",
    "export ",
    "TOKEN",
    "key",
    "\u{2028}",
    "\u{85}",
];

const TEXTS: &[&str] = &[
    "Reads a file.\n\n- first\n  - second, which is a longer line than the others in this list of two\n\ttabbed",
    "\u{1b}[1mbold\u{1b}[0m and \u{1b}]8;;https://example.com\u{1b}\\a link\u{1b}]8;;\u{1b}\\ \u{202e}desrever",
    "\u{4e16}\u{754c} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} e\u{301}e\u{301}e\u{301} \u{1f1e9}\u{1f1ea}",
    "{\"text\":\"a\\u0000\u{9b}31m\",\"n\":[1,2.5,null]}",
    "a=1\nb:=[1,2]\nc=\"x\"\n{\"d\":true}\nname=two words",
    "API_KEY=abcdef123456 --token s3cret-value \"password\": \"hunter22\" https://user:pass@host/",
];

/// Runs a check over the texts and their mutations.
fn check(property: impl Fn(&str)) {
    let texts = TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    TEXTS.iter().for_each(|text| property(text));
    let mut mutator = Mutator::new(TOKENS, texts, 1);
    for _ in 0..MUTATIONS {
        property(&String::from_utf8_lossy(&mutator.next_input()));
    }
}

/// Returns `true` for characters that control a terminal or the text direction.
fn is_obeyed(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && !matches!(c, '\n' | '\t'))
}

#[test]
fn cleaning_in_pieces_equals_cleaning_the_whole() {
    check(|text| {
        let whole = clean(text);
        assert!(!whole.contains(is_obeyed), "{whole:?}");
        assert_eq!(clean(&whole), whole);
        let mut cleaner = Cleaner::default();
        let mut pieces: String = text.chars().map(|c| cleaner.push(c.encode_utf8(&mut [0; 4]))).collect();
        pieces.push_str(&cleaner.end());
        assert_eq!(pieces, whole);
        assert!(!clean_line(text).contains(['\n', '\t']));
    });
}

#[test]
fn text_that_is_cut_fits_and_text_that_is_wrapped_keeps_its_words() {
    check(|text| {
        let line = clean_line(text);
        for most in [0, 1, 7, 40] {
            assert!(columns(&cut(&line, most)) <= most, "{line:?} in {most} columns");
        }
        let wrapped = wrap(&clean(text), 40, 2);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&wrapped), words(&clean(text)));
    });
}

#[test]
fn cleaned_json_parses_to_the_same_value() {
    check(|text| {
        let Ok(value) = serde_json::from_str::<Value>(text) else { return };
        let harmless = clean_json(text);
        assert_eq!(serde_json::from_str::<Value>(&harmless).expect("JSON"), value);
    });
}

#[test]
fn any_words_are_arguments_or_a_usage_error() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "number"}},
        "c": {"type": ["string", "null"]}, "name": {"enum": ["x", 1]}}});
    let tool = ToolDefinition::new("tool").with_input_schema(schema);
    check(|text| {
        // A word with an at sign or a dash reads a file or standard input.
        let words: Vec<String> = text.lines().filter(|word| !word.contains(['@', '-'])).map(str::to_owned).collect();
        if let Ok(typed) = RawArguments::read(&words, None)
            && let Ok(arguments) = typed.for_tool(&tool)
        {
            assert!(arguments.values().all(|value| serde_json::to_string(value).is_ok()));
        }
    });
}

#[test]
fn any_secret_is_known_again_after_it_was_written() {
    check(|text| {
        let taken = ExtractedSecret { name: "TOKEN".to_owned(), value: text.into(), key: String::new() };
        let written = dotenv::with(None, &[taken]);
        let names: Vec<String> = dotenv::names(&written).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["TOKEN"], "{written:?}");
    });
}

#[test]
fn parts_of_a_line_that_are_secret_are_parts_of_it() {
    check(|text| {
        for line in text.lines() {
            let parts = literal::secrets_in_line(line);
            assert!(parts.iter().all(|part| line.get(part.clone()).is_some()), "{parts:?} of {line:?}");
            let _ = literal::redact_line(line);
        }
    });
}
