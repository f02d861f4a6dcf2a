//! Call arguments as lines that a person reads before approving the call.
//!
//! Every line in a text stands behind a bar and invisible characters are escaped, so that no argument can pass for another one.

use anstyle::{AnsiColor, Style};
use ropeway_core::tool::Arguments;
use serde_json::{Map, Value};

use super::call_display::{escaped, quote_name};
use super::line_diff::{DiffLine, diff_all_lines, diff_lines};
use crate::terminal::text::{columns, counted, fold};

/// Lines that are shown from the start and from the end.
const SHOWN_LINES: (usize, usize) = (40, 20);

/// Characters of a long line that are shown from its start and from its end.
const SHOWN_CHARACTERS: (usize, usize) = (1500, 500);

/// Nested values below this depth are shown as JSON.
const MAX_DEPTH: usize = 16;

/// Argument names that replace one text with another.
const EDITS: [(&str, &str); 5] = [
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("oldString", "newString"),
];

/// The argument that replaces a file's content, and that content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplacedContent {
    pub(super) argument: String,
    pub(super) before: String,
}

/// Call arguments, rendered for a width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArgumentText {
    /// File and text changes as diffs; long arguments are shortened and state how much is hidden.
    pub(super) brief: String,
    /// Every argument in full.
    pub(super) whole: String,
}

impl ArgumentText {
    pub(super) fn new(arguments: &Arguments, replaced: Option<&ReplacedContent>, width: usize) -> Self {
        let brief = ArgumentLines::of(arguments, Detail::Changes(replaced), width);
        let whole = ArgumentLines::of(arguments, Detail::Whole, width);
        Self { brief: render(&shortened(brief.lines), width), whole: render(&whole.lines, width) }
    }
}

/// A line and what stands before it on the screen.
#[derive(Clone, Debug)]
struct Line {
    indent: usize,
    /// The line belongs to a text, whose lines stand behind a bar.
    is_text: bool,
    style: Style,
    text: String,
}

#[derive(Clone, Copy)]
enum Detail<'a> {
    Changes(Option<&'a ReplacedContent>),
    Whole,
}

struct ArgumentLines<'a> {
    detail: Detail<'a>,
    width: usize,
    lines: Vec<Line>,
}

impl<'a> ArgumentLines<'a> {
    fn of(arguments: &Arguments, detail: Detail<'a>, width: usize) -> Self {
        let mut lines = Self { detail, width, lines: Vec::new() };
        lines.fields(arguments, 0);
        lines
    }

    fn fields(&mut self, fields: &Map<String, Value>, depth: usize) {
        let edit =
            EDITS.iter().find_map(|(old, new)| match (fields.get(*old)?.as_str()?, fields.get(*new)?.as_str()?) {
                (before, after) if before.contains('\n') || after.contains('\n') => Some((*old, *new, before, after)),
                _ => None,
            });
        let edit = edit.filter(|_| matches!(self.detail, Detail::Changes(_)));
        for (name, value) in fields {
            match (edit, self.detail, value) {
                (Some((old, new, before, after)), _, _) if name == new => {
                    self.push(depth, format!("{old} → {new}:"));
                    // The call itself says what was there before, so nothing is hidden as unchanged.
                    self.difference(diff_all_lines(before, after), depth + 1);
                }
                (Some((old, ..)), _, _) if name == old => {}
                (_, Detail::Changes(Some(ReplacedContent { argument, before })), Value::String(after))
                    if depth == 0 && name == argument =>
                {
                    let count = counted(before.lines().count(), "line");
                    let same = if before == after { "the same " } else { "" };
                    self.push(depth, format!("{} (replaces {same}{count}):", quote_name(name)));
                    self.difference(diff_lines(before, after), depth + 1);
                }
                _ => self.value(&format!("{}:", quote_name(name)), value, depth),
            }
        }
    }

    fn value(&mut self, label: &str, value: &Value, depth: usize) {
        match value {
            Value::String(text) if text.contains('\n') => {
                self.push(depth, label.to_owned());
                let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
                lines.for_each(|line| self.text(depth + 1, Style::new(), "", line));
            }
            Value::Object(fields) if !fields.is_empty() && !self.fits(label, value, depth) => {
                self.push(depth, label.to_owned());
                self.fields(fields, depth + 1);
            }
            Value::Array(items) if !items.is_empty() && !self.fits(label, value, depth) => {
                self.push(depth, label.to_owned());
                items.iter().for_each(|item| self.value("-", item, depth + 1));
            }
            value => self.push(depth, format!("{label} {}", escaped(&value.to_string()))),
        }
    }

    /// Returns `true` if a list or an object is short enough for one line, or too deep for many.
    fn fits(&self, label: &str, value: &Value, depth: usize) -> bool {
        if depth >= MAX_DEPTH {
            return true;
        }
        !has_line_break(value) && 2 * (depth + 1) + columns(label) + 1 + columns(&value.to_string()) <= self.width
    }

    fn difference(&mut self, lines: Vec<DiffLine<'_>>, depth: usize) {
        for line in lines {
            match line {
                DiffLine::Same(line) => self.text(depth, Style::new(), "  ", line),
                DiffLine::Removed(line) => self.text(depth, AnsiColor::Red.on_default(), "- ", line),
                DiffLine::Added(line) => self.text(depth, AnsiColor::Green.on_default(), "+ ", line),
                DiffLine::Hidden(count) => self.push(depth, format!("… {} unchanged …", counted(count, "line"))),
            }
        }
    }

    fn push(&mut self, depth: usize, text: String) {
        self.lines.push(Line { indent: 2 * (depth + 1), is_text: false, style: Style::new(), text });
    }

    fn text(&mut self, depth: usize, style: Style, sign: &str, line: &str) {
        let text = format!("{sign}{}", escaped(&line.replace('\t', "    ")));
        self.lines.push(Line { indent: 2 * (depth + 1), is_text: true, style, text });
    }
}

fn has_line_break(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n'),
        Value::Array(items) => items.iter().any(has_line_break),
        Value::Object(fields) => fields.values().any(has_line_break),
        _ => false,
    }
}

fn render(lines: &[Line], width: usize) -> String {
    let mut text = String::new();
    for Line { indent, is_text, style, text: line } in lines {
        let bar = if *is_text { "│ " } else { "" };
        let room = width.saturating_sub(indent + columns(bar));
        for piece in fold(line, room, 0).lines() {
            text.push_str(&format!("{}{bar}{style}{piece}{style:#}\n", " ".repeat(*indent)));
        }
    }
    text
}

/// Shortens long lines and many lines to their start and end.
fn shortened(mut lines: Vec<Line>) -> Vec<Line> {
    let (first, last) = SHOWN_LINES;
    if let Some(hidden) = lines.len().checked_sub(first + last).filter(|hidden| *hidden > 0) {
        let text = format!("… {} hidden …", counted(hidden, "line"));
        let between = Line { indent: 2, is_text: false, style: Style::new(), text };
        lines.splice(first..first + hidden, [between]);
    }
    let (head, tail) = SHOWN_CHARACTERS;
    for line in &mut lines {
        let length = line.text.chars().count();
        if let Some(hidden) = length.checked_sub(head + tail).filter(|hidden| *hidden > 0) {
            let start: String = line.text.chars().take(head).collect();
            let end: String = line.text.chars().skip(length - tail).collect();
            line.text = format!("{start} … {hidden} characters hidden … {end}");
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(arguments: &Value, replaced: Option<&ReplacedContent>, width: usize) -> ArgumentText {
        let text = ArgumentText::new(arguments.as_object().expect("an object"), replaced, width);
        let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
        ArgumentText { brief: plain(&text.brief), whole: plain(&text.whole) }
    }

    fn brief(arguments: Value) -> String {
        text(&arguments, None, 40).brief
    }

    #[test]
    fn strings_with_line_breaks_are_blocks() {
        let arguments = json!({"path": "a.txt", "content": "one\n\ttwo\n", "n": [1, {"deep": "x\ny"}], "o": {}});
        let shown = "  path: \"a.txt\"\n  content:\n    │ one\n    │     two\n  n:\n    - 1\n    -\n      deep:\n\
            \u{20}       │ x\n        │ y\n  o: {}\n";
        assert_eq!(brief(arguments), shown);
    }

    #[test]
    fn a_final_line_break_adds_no_empty_line() {
        assert_eq!(brief(json!({"a": "one\ntwo\n"})), "  a:\n    │ one\n    │ two\n");
        assert_eq!(brief(json!({"a": "one\n\n"})), "  a:\n    │ one\n    │ \n");
        let replaced = ReplacedContent { argument: "a".to_owned(), before: "one\n".to_owned() };
        let ArgumentText { brief, .. } = text(&json!({"a": "two\n"}), Some(&replaced), 40);
        assert_eq!(brief, "  a (replaces 1 line):\n    │ - one\n    │ + two\n");
    }

    #[test]
    fn lines_are_folded_between_words_and_keep_their_bar() {
        let words = "word ".repeat(12);
        let shown = brief(json!({"a": words.trim_end(), "b": format!("{words}\nend")}));
        assert!(shown.lines().all(|line| columns(line) <= 40), "{shown}");
        assert!(shown.contains("    │ word word word word word word word\n    │ word word"), "{shown}");
        let wide = brief(json!({"a": "漢字".repeat(40), "b": format!("{}\n", "😀".repeat(40))}));
        assert!(wide.lines().all(|line| columns(line) <= 40), "{wide}");
    }

    #[test]
    fn no_text_can_pass_for_another_argument() {
        let shown = brief(json!({"a": "x\n  b: \"safe\"\u{1b}[2J\u{202e}", "path: \"/tmp\"": "y\u{9d}\n"}));
        let lines = "  a:\n    │ x\n    │   b: \"safe\"\\u001b[2J\\u202e\n  \"path: \\\"/tmp\\\"\":\n    │ y\\u009d\n";
        assert_eq!(shown, lines);
    }

    #[test]
    fn a_long_line_is_shortened_and_counts_hidden_characters() {
        let arguments = json!({"text": "x".repeat(10_000) + "; rm -rf /"});
        let ArgumentText { brief, whole } = text(&arguments, None, 100);
        assert!(brief.contains("… 8018 characters hidden …"), "{brief}");
        assert!(brief.ends_with("rm -rf /\"\n") && brief.chars().count() < 2200, "{brief}");
        assert_eq!(whole.matches('x').count(), 10_001, "one is in the name");
    }

    #[test]
    fn many_lines_are_shortened_and_count_hidden_lines() {
        let lines: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let ArgumentText { brief, whole } = text(&json!({"text": lines}), None, 100);
        assert!(brief.contains("    │ line 38\n  … 41 lines hidden …\n    │ line 80\n"), "{brief}");
        assert!((0..100).all(|number| whole.contains(&format!("│ line {number}\n"))), "{whole}");
    }

    #[test]
    fn an_edit_is_a_difference() {
        let arguments = json!({"path": "a.rs", "edits": [{"oldText": "a\nb\nc", "newText": "a\nB\nc"}]});
        let ArgumentText { brief, whole } = text(&arguments, None, 60);
        let shown = "  path: \"a.rs\"\n  edits:\n    -\n      oldText → newText:\n        │   a\n        │ - b\n        │ + B\n        │   c\n";
        assert_eq!(brief, shown);
        assert!(whole.contains("oldText:\n        │ a\n        │ b\n") && whole.contains("newText:"), "{whole}");
    }

    #[test]
    fn replaced_content_is_a_difference_and_stays_available_in_full() {
        let before: String = (0..30).map(|number| format!("{number}\n")).collect();
        let replaced = ReplacedContent { argument: "content".to_owned(), before: before.clone() };
        let arguments = json!({"path": "a", "content": before.replace("15\n", "fifteen\n")});
        let ArgumentText { brief, whole } = text(&arguments, Some(&replaced), 60);
        let start = "  path: \"a\"\n  content (replaces 30 lines):\n    … 12 lines unchanged …\n    │   12\n";
        assert!(brief.starts_with(start), "{brief}");
        assert!(brief.contains("    │ - 15\n    │ + fifteen\n"), "{brief}");
        assert!(whole.contains("    │ 0\n    │ 1\n") && whole.contains("│ fifteen\n"), "{whole}");
    }

    #[test]
    fn deep_values_end_in_one_line() {
        let deep = (0..100).fold(json!("x\ny"), |value, _| json!([value]));
        assert!(brief(json!({"a": deep})).lines().count() < 40);
    }
}
