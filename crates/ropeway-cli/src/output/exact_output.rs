//! Exact output: results as bytes for a pipe or file.

use std::io::IsTerminal as _;

use ropeway_core::content::{ContentPart, EmbeddedResource, ResourceContents};
use ropeway_core::envelope::{Envelope, EnvelopeData};

use crate::failure::{Failure, problem_line};
use crate::output::render_result::{SaveFolder, bytes_of, is_structured_copy, is_text_copy, render_parts};
use crate::terminal::text::clean;

/// How text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextMode {
    /// On a terminal: without escape sequences and control characters.
    Clean,
    /// To a pipe or file: unchanged, except that a line break ends the last line.
    Piped,
    /// Byte for byte, as with `--raw`. The only binary part is written as its bytes, unless standard output is
    /// a terminal.
    Raw { binary: bool },
}

impl TextMode {
    /// Returns the mode for standard output.
    pub(crate) fn new(raw: bool) -> Self {
        match (raw, std::io::stdout().is_terminal()) {
            (true, is_terminal) => Self::Raw { binary: !is_terminal },
            (false, true) => Self::Clean,
            (false, false) => Self::Piped,
        }
    }
}

/// A result as bytes, with notes for standard error.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ExactOutput {
    pub(crate) bytes: Vec<u8>,
    pub(crate) notes: Vec<String>,
}

/// Writes a call result. Structured content is written only if the result has no text.
pub(crate) fn exact(envelope: &Envelope, mode: TextMode, folder: Option<&SaveFolder>) -> Result<ExactOutput, Failure> {
    let mut output = exact_parts(&envelope.meta.content, mode, folder)?;
    if let EnvelopeData::Json(value) = envelope.data() {
        if !envelope.meta.content.iter().any(|part| text_of(part).is_some()) {
            output.end_line();
            output.bytes.extend(serde_json::to_string_pretty(value).unwrap_or_default().into_bytes());
            output.bytes.push(b'\n');
        } else if !is_all_repeated(envelope) {
            output.notes.push("structured content is not part of the text; --json prints it".to_owned());
        }
    }
    let mismatch = |problem| format!("warning: the result does not match its schema: {}", problem_line(problem));
    output.notes.extend(envelope.warnings.iter().map(mismatch));
    Ok(output)
}

/// Writes parts. A single text is written without anything before it; several parts each begin on their own line.
pub(crate) fn exact_parts(
    parts: &[ContentPart],
    mode: TextMode,
    folder: Option<&SaveFolder>,
) -> Result<ExactOutput, Failure> {
    if let [part] = parts
        && let Some(text) = text_of(part)
    {
        let output = ExactOutput { bytes: text.as_bytes().to_vec(), notes: Vec::new() };
        return Ok(output.ended(mode));
    }
    if let (TextMode::Raw { binary: true }, Some(output), None) = (mode, only_binary(parts), folder) {
        return Ok(output);
    }
    let mut output = ExactOutput::default();
    for part in parts {
        output.end_line();
        match part {
            ContentPart::Resource(EmbeddedResource { uri, contents: ResourceContents::Text(text), .. }) => {
                output.bytes.extend(format!("{uri}\n{text}").into_bytes());
            }
            ContentPart::Text { text, .. } => output.bytes.extend(text.as_bytes()),
            other => {
                let shown = render_parts([other].into_iter(), folder)?;
                output.bytes.extend(anstream::adapter::strip_str(&shown.text).to_string().into_bytes());
                output.notes.extend(shown.notes);
            }
        }
    }
    output.notes.dedup();
    Ok(output.ended(mode))
}

impl ExactOutput {
    /// Ends the last line, unless the mode is byte for byte.
    fn ended(mut self, mode: TextMode) -> Self {
        if mode == TextMode::Piped {
            self.end_line();
        }
        self
    }

    /// Ends the last line with a line break.
    pub(crate) fn end_line(&mut self) {
        if self.bytes.last().is_some_and(|last| *last != b'\n') {
            self.bytes.push(b'\n');
        }
    }
}

/// Returns the only binary part's bytes, with all texts beside it as notes.
fn only_binary(parts: &[ContentPart]) -> Option<ExactOutput> {
    let mut output: Option<ExactOutput> = None;
    let mut notes = Vec::new();
    for part in parts {
        match (bytes_of(part), text_of(part)) {
            (Some(bytes), _) if output.is_none() => output = Some(ExactOutput { bytes, notes: Vec::new() }),
            (None, Some(text)) => notes.push(clean(text).trim_end().to_owned()),
            _ => return None,
        }
    }
    output.map(|output| ExactOutput { notes, ..output })
}

/// Returns a text part's text.
fn text_of(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text, .. } => Some(text),
        ContentPart::Resource(EmbeddedResource { contents: ResourceContents::Text(text), .. }) => Some(text),
        _ => None,
    }
}

/// Returns `true` if the structured content only repeats the text.
fn is_all_repeated(envelope: &Envelope) -> bool {
    let Some(structured) = &envelope.meta.structured_content else { return true };
    is_text_copy(structured, &envelope.meta.content)
        || envelope.meta.content.iter().any(|part| is_structured_copy(part, structured))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::tool::{CallId, Origin};
    use serde_json::{Value, json};

    use super::*;

    fn exact_of(result: Value, mode: TextMode) -> (String, Vec<String>) {
        let output = serde_json::from_value(result).expect("an object always reads");
        let envelope = Envelope::from_output(CallId("1".to_owned()), "t", Origin::Local, Duration::ZERO, output);
        let output = exact(&envelope, mode, None).expect("an answer");
        (String::from_utf8(output.bytes).expect("text"), output.notes)
    }

    #[test]
    fn one_text_is_ended_for_a_pipe_and_raw_writes_it_byte_for_byte() {
        for text in ["", "a", "a\n", "a\r\nb\r\n\r\n", "\u{1b}[31mred\u{1b}[0m\u{7}", "\u{feff}\0\u{202e}x"] {
            let parts = json!([{"type": "text", "text": text}]);
            let ended = if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
            for (mode, expected) in [(TextMode::Piped, ended.as_str()), (TextMode::Raw { binary: true }, text)] {
                assert_eq!(exact_of(json!({"content": parts}), mode).0, expected);
                let both = json!({"content": parts, "structuredContent": {"content": text}});
                assert_eq!(exact_of(both, mode), (expected.to_owned(), Vec::new()));
                let resource = json!([{"type": "resource", "resource": {"uri": "a:b", "text": text}}]);
                assert_eq!(exact_of(json!({"content": resource}), mode).0, expected);
            }
        }
    }

    #[test]
    fn several_parts_begin_on_lines_of_their_own() {
        let parts = json!([
            {"type": "text", "text": "one\r"}, {"type": "text", "text": "two\n"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "text", "text": "three"}]);
        let (text, notes) = exact_of(json!({"content": parts}), TextMode::Piped);
        assert_eq!(text, "one\r\ntwo\nimage/png, 3 B\nthree\n");
        assert_eq!(notes, ["use --save PATH to save binary content"]);
    }

    #[test]
    fn structured_content_is_written_if_the_result_has_no_text() {
        let alone = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(exact_of(alone, TextMode::Piped).0, "{\n  \"a\": 1\n}\n");
        let text = json!([{"type": "text", "text": "{\"a\":1}"}]);
        let (text, notes) = exact_of(json!({"content": text, "structuredContent": {"a": 1}}), TextMode::Piped);
        assert_eq!((text.as_str(), notes.len()), ("{\"a\":1}\n", 0));
        let other = json!([{"type": "text", "text": "one thing"}]);
        let (text, notes) = exact_of(json!({"content": other, "structuredContent": {"a": 1}}), TextMode::Piped);
        assert_eq!((text.as_str(), notes.len()), ("one thing\n", 1));
    }

    #[test]
    fn one_binary_part_is_written_as_bytes_only_where_no_terminal_sees_it() {
        let image = json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]});
        assert_eq!(exact_of(image.clone(), TextMode::Raw { binary: true }).0, "hi");
        for mode in [TextMode::Piped, TextMode::Raw { binary: false }] {
            assert_eq!(exact_of(image.clone(), mode).0, "image/png, 2 B\n");
        }
        let part = &image["content"][0];
        let beside = json!({"content": [{"type": "text", "text": "a\n"}, part, {"type": "text", "text": "b"}]});
        assert_eq!(
            exact_of(beside, TextMode::Raw { binary: true }),
            ("hi".to_owned(), vec!["a".to_owned(), "b".to_owned()])
        );
        let two = exact_of(json!({"content": [part, part]}), TextMode::Raw { binary: true });
        assert_eq!(two.0, "image/png, 2 B\nimage/png, 2 B\n");
    }
}
