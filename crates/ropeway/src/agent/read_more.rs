//! `read_more`: the tool that a model pages through a kept output with.

use std::io::{self, Read};

use memchr::{memmem, memrchr};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::budget::OutputBudgets;
use super::spill::{OutputStore, StoredText, TextReader};
use super::written::{cut_at, in_a_line, thousands};
use crate::content::ContentPart;
use crate::tool::{
    Annotations, ArgumentProblem, Arguments, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput,
};

/// What the tool is called.
pub(super) const READ_MORE: &str = "read_more";

/// The line below a page has no more bytes than this.
pub(super) const LAST_LINE: usize = 300;

/// A text is looked for in pieces of this size.
const CHUNK: usize = 64 << 10;

/// Where a line begins too far before the text that was found in it, this much of it is shown before the text.
const BEFORE: u64 = 200;

/// So many outputs are named when one is asked for that is not there.
const MOST_NAMES: usize = 20;

/// The tool that a model pages through a kept output with.
#[derive(Clone, Debug)]
pub struct ReadMore {
    spill: OutputStore,
    page: usize,
    definition: ToolDefinition,
}

impl ReadMore {
    /// The tool for the outputs of a spill, with pages that the default budget has room for.
    pub fn new(spill: OutputStore) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "output": {"type": "string", "description": "The name of the output, as in the line that said what was left out"},
                "from": {"type": "integer", "minimum": 0, "default": 0, "description": "The byte to begin at"},
                "find": {"type": "string", "description": "Begin at the next line, at `from` or behind it, that contains this text exactly"},
            },
            "required": ["output"],
            "additionalProperties": false,
        });
        let mut definition = ToolDefinition::new(READ_MORE).with_input_schema(schema).with_description(
            "Reads a page of an output that was too long to be shown whole. Give the name of the output and the byte to \
             begin at, or a text to find in it.",
        );
        let hints = [("readOnlyHint", true), ("openWorldHint", false)];
        definition.annotations =
            Annotations(hints.into_iter().map(|(name, value)| (name.to_owned(), Value::Bool(value))).collect());
        Self { spill, page: OutputBudgets::default().page(), definition }
    }

    /// Pages of at most this many bytes.
    #[must_use]
    pub fn with_page(self, bytes: usize) -> Self {
        // Every character has room, so that every page leads on.
        Self { page: bytes.max(4), ..self }
    }

    async fn answer(&self, arguments: Arguments) -> Result<ToolOutput, CallError> {
        let Question { output, from, find } = Question::read(&arguments)?;
        let (text, length) = match self.spill.find(&output) {
            Ok(found) => found,
            Err(names) => return Ok(ToolOutput::error(unknown(&output, &names))),
        };
        let asked = format!("\"{}\"", in_a_line(&output));
        if from > length {
            let length = thousands(length as usize);
            return Ok(ToolOutput::error(format!(
                "Error: output {asked} has {length} bytes, so there is nothing at byte {from}. Begin at a smaller `from`."
            )));
        }
        let page = self.page;
        let needle = find.clone();
        let read = spawn_blocking(move || Page::read(&text, length, from, needle.as_deref(), page)).await;
        let failed = |source: io::Error| CallError::Failed {
            tool: READ_MORE.to_owned(),
            source: Box::new(Unreadable { output: output.clone(), source }),
        };
        match read.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(failed)? {
            Some(page) => Ok(ToolOutput::text(page.told(&asked, length))),
            None => Ok(ToolOutput::text(format!(
                "[no line of output {asked} contains \"{}\" at byte {} or behind it]",
                short(&find.unwrap_or_default()),
                thousands(from as usize),
            ))),
        }
    }
}

impl Tool for ReadMore {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        let output = arguments.get("output")?;
        let from = arguments.get("from").and_then(Value::as_u64).unwrap_or(0);
        let place = match (from, arguments.get("find")) {
            (0, None) => String::new(),
            (0, Some(find)) => format!(" at {find}"),
            (from, None) => format!(" from byte {}", thousands(from as usize)),
            (from, Some(find)) => format!(" at {find} behind byte {}", thousands(from as usize)),
        };
        Some(format!("Read output {output}{place}"))
    }

    fn call<'a>(&'a self, arguments: Arguments, _cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(self.answer(arguments))
    }
}

/// A kept output is no longer there.
#[derive(Debug, thiserror::Error)]
#[error("output `{output}` could not be read")]
struct Unreadable {
    output: String,
    #[source]
    source: io::Error,
}

struct Question {
    output: String,
    from: u64,
    find: Option<String>,
}

impl Question {
    fn read(arguments: &Map<String, Value>) -> Result<Self, CallError> {
        let mut problems = Vec::new();
        let mut wrong = |path: &str, reason: &str| {
            problems.push(ArgumentProblem { path: path.to_owned(), reason: reason.to_owned() });
        };
        let output = match arguments.get("output") {
            Some(Value::String(name)) => name.clone(),
            Some(_) => {
                wrong("/output", "must be a string");
                String::new()
            }
            None => {
                wrong("", "`output` is missing");
                String::new()
            }
        };
        let from = match arguments.get("from") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                wrong("/from", "must be an integer of at least 0");
                0
            }),
        };
        let find = match arguments.get("find") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
            Some(_) => {
                wrong("/find", "must be a string");
                None
            }
        };
        match problems.is_empty() {
            true => Ok(Self { output, from, find }),
            false => Err(CallError::InvalidArguments { tool: READ_MORE.to_owned(), problems }),
        }
    }
}

fn unknown(output: &str, names: &[String]) -> String {
    let output = short(output);
    if names.is_empty() {
        return format!("Error: there is no output \"{output}\"; none is kept.");
    }
    let more = if names.len() > MOST_NAMES { ", and older ones" } else { "" };
    let names: Vec<String> = names.iter().take(MOST_NAMES).map(|name| format!("\"{name}\"")).collect();
    format!("Error: there is no output \"{output}\". There are {}{more}.", names.join(", "))
}

/// What a model said, for a line that must stay short.
fn short(text: &str) -> String {
    in_a_line(&text[..text.floor_char_boundary(100)])
}

/// One page of an output.
struct Page {
    start: u64,
    text: String,
}

impl Page {
    /// Reads a page and no more; `None` if the text that it must begin with is not there.
    fn read(text: &StoredText, length: u64, from: u64, find: Option<&str>, page: usize) -> io::Result<Option<Self>> {
        let mut file = text.open()?;
        let mut start = from;
        if let Some(find) = find {
            match line_with(&mut file, from, find.as_bytes(), page as u64)? {
                Some(found) => start = found,
                None => return Ok(None),
            }
        }
        // A character that begins before is shown whole.
        let early = start.saturating_sub(3);
        file.seek(early);
        let mut bytes = Vec::new();
        file.take((start - early).saturating_add(page as u64)).read_to_end(&mut bytes)?;
        let mut skip = ((start - early) as usize).min(bytes.len());
        while skip > 0 && skip < bytes.len() && is_inside(bytes[skip]) {
            skip -= 1;
        }
        start = early + skip as u64;
        bytes.drain(..skip);
        if bytes.is_empty() && start < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_end = start + bytes.len() as u64 >= length;
        if !is_end
            && let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            bytes.truncate(error.valid_up_to());
        }
        let mut text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // As if the text went on, so that the page ends with a line if it can.
        if !is_end || text.len() > page {
            text.truncate(cut_at(&format!("{text} "), text.len().min(page)));
        }
        Ok(Some(Self { start, text }))
    }

    fn told(mut self, output: &str, length: u64) -> String {
        let end = self.start + self.text.len() as u64;
        let next = match end >= length {
            true => "this is its end".to_owned(),
            false => format!("go on with from {end}"),
        };
        let [start, to, of] = [self.start, end, length].map(|number| thousands(number as usize));
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&format!("[bytes {start} to {to} of {of} of output {output}; {next}]"));
        self.text
    }
}

/// A page with less text, as if it had been asked for so: what is left out is where it was. `None` if it is no page.
pub(super) fn shorter(page: &[ContentPart], room: usize) -> Option<Vec<ContentPart>> {
    let [ContentPart::Text(part)] = page else { return None };
    let (text, line) = part.text.rsplit_once("[bytes ")?;
    if text.len() <= room {
        return Some(page.to_vec());
    }
    let (start, line) = line.split_once(" to ")?;
    let (length, line) = line.split_once(" of ")?.1.split_once(" of output ")?;
    let (output, _) = line.rsplit_once("; ")?;
    let number = |text: &str| text.replace(',', "").parse().ok();
    let page = Page { start: number(start)?, text: text[..cut_at(text, room)].to_owned() };
    Some(vec![ContentPart::text(page.told(output, number(length)?))])
}

/// Is the byte inside a character, not its first?
fn is_inside(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Where the next line begins that contains the text at some byte or behind it; never before that byte.
fn line_with(file: &mut TextReader, from: u64, text: &[u8], page: u64) -> io::Result<Option<u64>> {
    let finder = memmem::Finder::new(text);
    file.seek(from);
    let mut window = Vec::with_capacity(CHUNK + text.len());
    // Where the window begins, and the line that it begins in.
    let (mut offset, mut line) = (from, from);
    loop {
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut window)?;
        if let Some(at) = finder.find(&window) {
            let found = offset + at as u64;
            let line = memrchr(b'\n', &window[..at]).map_or(line, |end| offset + end as u64 + 1);
            // In a line that is longer than a page, the text would not be on it.
            let is_far = found + text.len() as u64 > line.saturating_add(page);
            return Ok(Some(if is_far { found.saturating_sub(BEFORE.min(page / 2)).max(line) } else { line }));
        }
        if read == 0 {
            return Ok(None);
        }
        // The text may have begun in what was read.
        let done = window.len() - window.len().min(text.len() - 1);
        if let Some(end) = memrchr(b'\n', &window[..done]) {
            line = offset + end as u64 + 1;
        }
        window.drain(..done);
        offset += done as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::budget::{OutputBudget, fits};

    async fn kept(text: &str) -> ReadMore {
        let spill = OutputStore::new();
        spill.keep(&[ContentPart::text(text)], OutputBudget::default()).await.expect("it is kept");
        ReadMore::new(spill)
    }

    async fn ask(tool: &ReadMore, arguments: Value) -> ToolOutput {
        let arguments = arguments.as_object().cloned().expect("an object");
        tool.call(arguments, &CallContext::default()).await.expect("an answer")
    }

    /// What is on a page, and where to go on.
    async fn page(tool: &ReadMore, from: u64) -> (String, Option<u64>) {
        let answer = ask(tool, json!({"output": "o1", "from": from})).await.plain_text().expect("text");
        let (text, line) = answer.rsplit_once("[bytes ").expect("a last line");
        let next = line.strip_suffix(']').and_then(|line| line.split_once("go on with from "));
        (text.to_owned(), next.map(|(_, next)| next.parse().expect("a number")))
    }

    #[tokio::test]
    async fn an_output_is_read_page_by_page_to_its_end() {
        let tool = kept("one\ntwo\nthree").await.with_page(4);
        assert_eq!(
            ask(&tool, json!({"output": "o1"})).await,
            ToolOutput::text("one\n[bytes 0 to 4 of 13 of output \"o1\"; go on with from 4]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 8, "find": null})).await,
            ToolOutput::text("thre\n[bytes 8 to 12 of 13 of output \"o1\"; go on with from 12]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 12, "find": ""})).await,
            ToolOutput::text("e\n[bytes 12 to 13 of 13 of output \"o1\"; this is its end]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 13})).await,
            ToolOutput::text("[bytes 13 to 13 of 13 of output \"o1\"; this is its end]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 14})).await,
            ToolOutput::error(
                "Error: output \"o1\" has 13 bytes, so there is nothing at byte 14. Begin at a smaller `from`."
            )
        );
    }

    #[tokio::test]
    async fn pages_of_every_size_make_up_the_whole() {
        let text = "aé€𐍈".repeat(20);
        let whole = kept(&text).await;
        for size in 0..text.len() + 2 {
            let tool = whole.clone().with_page(size);
            let (mut read, mut next) = (String::new(), Some(0));
            while let Some(from) = next {
                let (page, after) = page(&tool, from).await;
                let page = page.strip_suffix('\n').unwrap_or(&page);
                assert!(page.len() <= size.max(4));
                read.push_str(page);
                next = after;
            }
            assert_eq!(read, text, "{size}");
        }
    }

    #[tokio::test]
    async fn a_page_that_begins_inside_a_character_begins_with_it() {
        let text = "aé€𐍈z";
        let tool = kept(text).await;
        for from in 0..text.len() {
            let start = text.floor_char_boundary(from);
            assert_eq!(page(&tool, from as u64).await, (format!("{}\n", &text[start..]), None), "{from}");
        }
    }

    #[tokio::test]
    async fn a_page_ends_with_a_line_if_one_is_near() {
        let tool = kept(&format!("{}\n{}", "a".repeat(1900), "b".repeat(300))).await.with_page(2000);
        assert_eq!(page(&tool, 0).await, (format!("{}\n", "a".repeat(1900)), Some(1901)));
    }

    #[tokio::test]
    async fn a_text_is_found_at_or_behind_a_byte_and_its_line_is_shown() {
        let tool = kept("one fish\ntwo fish\nred fish\nblue").await;
        let found = |from: u64, find: &'static str| {
            let tool = tool.clone();
            async move {
                let answer = ask(&tool, json!({"output": "o1", "from": from, "find": find})).await;
                answer.plain_text().expect("text").lines().next().map(str::to_owned).expect("a line")
            }
        };
        assert_eq!(found(0, "fish").await, "one fish");
        assert_eq!(found(0, "two").await, "two fish");
        assert_eq!(found(12, "fish").await, " fish", "not before the byte");
        assert_eq!(found(14, "fish").await, "red fish");
        assert_eq!(found(0, "fish\nred").await, "two fish");
        assert_eq!(found(0, "Fish").await, "[no line of output \"o1\" contains \"Fish\" at byte 0 or behind it]");
        assert_eq!(found(25, "fish").await, "[no line of output \"o1\" contains \"fish\" at byte 25 or behind it]");
    }

    #[tokio::test]
    async fn a_text_is_found_wherever_the_pieces_that_are_read_end() {
        for before in CHUNK - 8..CHUNK + 2 {
            let tool = kept(&format!("x\n{}\na needle in it", "h".repeat(before - 3))).await;
            let answer = ask(&tool, json!({"output": "o1", "find": "needle"})).await.plain_text().expect("text");
            let end = before + 14;
            let expected = format!(
                "a needle in it\n[bytes {} to {end} of {end} of output \"o1\"; this is its end]",
                thousands(before),
                end = thousands(end)
            );
            assert_eq!(answer, expected);
        }
    }

    #[tokio::test]
    async fn a_text_in_a_line_that_is_longer_than_a_page_is_on_the_page() {
        let tool = kept(&format!("{}needle{}", "é".repeat(100_000), "h".repeat(100_000))).await.with_page(1000);
        let answer = ask(&tool, json!({"output": "o1", "find": "needle"})).await.plain_text().expect("text");
        assert!(answer.starts_with(&format!("{}needleh", "é".repeat(100))), "{answer}");
    }

    #[tokio::test]
    async fn a_page_without_a_limit_is_the_whole_rest() {
        let tool = kept("one\ntwo\nthree").await.with_page(usize::MAX);
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 5})).await,
            ToolOutput::text("wo\nthree\n[bytes 5 to 13 of 13 of output \"o1\"; this is its end]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 1, "find": "re"})).await,
            ToolOutput::text("three\n[bytes 8 to 13 of 13 of output \"o1\"; this is its end]")
        );
    }

    #[tokio::test]
    async fn an_output_that_is_not_there_is_answered_with_those_that_are() {
        let tool = ReadMore::new(OutputStore::new());
        assert_eq!(
            ask(&tool, json!({"output": "o1"})).await,
            ToolOutput::error("Error: there is no output \"o1\"; none is kept.")
        );
        for _ in 0..2 {
            tool.spill.keep(&[ContentPart::text("x")], OutputBudget::default()).await.expect("it is kept");
        }
        for name in ["", "O1", "o1.txt", "../o1", "/etc/passwd"] {
            let expected = format!("Error: there is no output \"{name}\". There are \"o2\", \"o1\".");
            assert_eq!(ask(&tool, json!({"output": name})).await, ToolOutput::error(expected));
        }
    }

    #[tokio::test]
    async fn an_output_whose_file_has_gone_is_an_error_that_says_so() {
        let spill = OutputStore::new().below(std::env::temp_dir());
        spill.keep(&[ContentPart::text("x")], OutputBudget::default()).await.expect("it is kept");
        let tool = ReadMore::new(spill);
        let folder = tool.spill.folder().expect("a folder");
        std::fs::write(folder.join("o1.txt"), "").expect("it is emptied");
        let arguments = json!({"output": "o1"}).as_object().cloned().expect("an object");
        let told = |error: CallError| std::error::Error::source(&error).map(ToString::to_string);
        let error = tool.call(arguments.clone(), &CallContext::default()).await.expect_err("it is empty");
        assert_eq!(told(error).as_deref(), Some("output `o1` could not be read"));
        std::fs::remove_dir_all(folder).expect("somebody tidies up");
        let error = tool.call(arguments, &CallContext::default()).await.expect_err("it is gone");
        assert_eq!(told(error).as_deref(), Some("output `o1` could not be read"));
    }

    #[tokio::test]
    async fn arguments_of_the_wrong_kind_are_told_one_by_one() {
        let tool = ReadMore::new(OutputStore::new());
        let arguments = json!({"from": -1, "find": 3}).as_object().cloned().expect("an object");
        let error = tool.call(arguments, &CallContext::default()).await.expect_err("they are wrong");
        assert_eq!(
            error.to_string(),
            "invalid arguments for tool `read_more`: `output` is missing; at `/from`: must be an integer of at least 0; \
             at `/find`: must be a string"
        );
    }

    #[test]
    fn the_tool_says_that_it_changes_nothing() {
        let tool = ReadMore::new(OutputStore::new());
        let annotations = &tool.definition().annotations;
        assert!(annotations.read_only() && !annotations.open_world());
    }

    #[tokio::test]
    async fn a_shorter_page_is_one_that_was_asked_for_so() {
        let tool = kept(&format!("{}\n[bytes 1 to 2]", "0123456789".repeat(500))).await;
        for from in [0, 1234, 4990] {
            let asked = json!({"output": "o1", "from": from});
            let long = ask(&tool, asked.clone()).await.content;
            for room in [4, 20, 3000] {
                let short = ask(&tool.clone().with_page(room), asked.clone()).await.content;
                assert_eq!(shorter(&long, room), Some(short), "{from} {room}");
            }
            assert_eq!(shorter(&long, usize::MAX), Some(long));
        }
        assert_eq!(shorter(&[ContentPart::text("[no line]")], 3), None);
    }

    #[tokio::test]
    async fn a_page_is_never_cut_again() {
        for text_bytes in [0, 1, 999, 1500, 50_000] {
            let budgets = OutputBudgets::new()
                .with_tool("*", OutputBudget::default().with_text_bytes(0))
                .with_default(OutputBudget::default().with_text_bytes(text_bytes));
            let tool = kept(&"x".repeat(200_000)).await.with_page(budgets.page());
            let answer = ask(&tool, json!({"output": "o1", "from": 100_000})).await;
            assert!(fits(&answer.content, budgets.of(READ_MORE)), "{text_bytes}");
        }
    }
}
