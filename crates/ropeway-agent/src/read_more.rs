//! `read_more`: the tool with which a model reads stored outputs page by page.

use std::io;

use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

use super::budgets::OutputBudgets;
use super::output_store::OutputStore;
use super::page::Page;
use super::remainder::READ_MORE;
use super::rendered::{single_line, thousands};
use ropeway_core::tool::{
    Annotations, ArgumentProblem, Arguments, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput,
};

/// Maximum number of outputs listed in the error about an unknown output.
const MAX_NAMES: usize = 20;

/// The tool `read_more`, with which a model reads stored outputs page by page.
#[derive(Clone, Debug)]
pub(super) struct ReadMore {
    store: OutputStore,
    page: usize,
    definition: ToolDefinition,
}

impl ReadMore {
    /// Creates the tool for a store's outputs, with pages that fit the default budget.
    pub(super) fn new(store: OutputStore) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "output": {"type": "string", "description": "Name of the output, from the notice about omitted bytes"},
                "from": {"type": "integer", "minimum": 0, "default": 0, "description": "Byte offset to start at"},
                "find": {"type": "string", "description": "Start at the next line, at or after `from`, that contains this exact text"},
            },
            "required": ["output"],
            "additionalProperties": false,
        });
        let mut definition = ToolDefinition::new(READ_MORE).with_input_schema(schema).with_description(
            "Reads a page of a tool output that was too long to show in full. Give the name of the output and the byte to \
             start at, or a text to find in it.",
        );
        let hints = [("readOnlyHint", true), ("openWorldHint", false)];
        definition.annotations =
            Annotations(hints.into_iter().map(|(name, value)| (name.to_owned(), Value::Bool(value))).collect());
        Self { store, page: OutputBudgets::default().page(), definition }
    }

    /// Sets the maximum page size in bytes; at least 4.
    #[must_use]
    pub(super) fn with_page(self, bytes: usize) -> Self {
        // Every UTF-8 character fits, so every page makes progress.
        Self { page: bytes.max(4), ..self }
    }

    async fn read(&self, arguments: Arguments) -> Result<ToolOutput, CallError> {
        let PageRequest { output, from, find } = PageRequest::parse(&arguments)?;
        let (text, length) = match self.store.find(&output) {
            Ok(found) => found,
            Err(names) => return Ok(ToolOutput::error(unknown(&output, &names))),
        };
        let quoted = format!("\"{}\"", single_line(&output));
        if from > length {
            let length = thousands(length as usize);
            return Ok(ToolOutput::error(format!(
                "Error: byte {from} is past the end of output {quoted} ({length} bytes). Use a smaller `from`."
            )));
        }
        let page = self.page;
        let needle = find.clone();
        let read = spawn_blocking(move || Page::read(&text, length, from, needle.as_deref(), page)).await;
        let failed = |source: io::Error| CallError::Failed {
            tool: READ_MORE.to_owned(),
            source: Box::new(ReadError { output: output.clone(), source }),
        };
        match read.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(failed)? {
            Some(page) => Ok(ToolOutput::text(page.render(&quoted, length))),
            None => Ok(ToolOutput::text(format!(
                "[no line of output {quoted} contains \"{}\" at or after byte {}]",
                shortened(&find.unwrap_or_default()),
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
        let position = match (from, arguments.get("find")) {
            (0, None) => String::new(),
            (0, Some(find)) => format!(" at {find}"),
            (from, None) => format!(" from byte {}", thousands(from as usize)),
            (from, Some(find)) => format!(" at {find} after byte {}", thousands(from as usize)),
        };
        Some(format!("Read output {output}{position}"))
    }

    fn call<'a>(&'a self, arguments: Arguments, _cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(self.read(arguments))
    }
}

/// A stored output's file was removed or is damaged.
#[derive(Debug, thiserror::Error)]
#[error("could not read output `{output}`")]
struct ReadError {
    output: String,
    #[source]
    source: io::Error,
}

struct PageRequest {
    output: String,
    from: u64,
    find: Option<String>,
}

impl PageRequest {
    fn parse(arguments: &Map<String, Value>) -> Result<Self, CallError> {
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
        if problems.is_empty() {
            Ok(Self { output, from, find })
        } else {
            Err(CallError::InvalidArguments { tool: READ_MORE.to_owned(), problems })
        }
    }
}

fn unknown(output: &str, names: &[String]) -> String {
    let output = shortened(output);
    if names.is_empty() {
        return format!("Error: unknown output \"{output}\"; no outputs are stored.");
    }
    let more = if names.len() > MAX_NAMES { " and older ones" } else { "" };
    let names: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("\"{name}\"")).collect();
    format!("Error: unknown output \"{output}\". Stored outputs: {}{more}.", names.join(", "))
}

/// Returns the beginning of the model's text, as a single line.
fn shortened(text: &str) -> String {
    single_line(&text[..text.floor_char_boundary(100)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::OutputBudget;
    use crate::page::{CHUNK, shorten};
    use crate::truncate::fits;
    use ropeway_core::content::ContentPart;

    async fn stored(text: &str) -> ReadMore {
        let store = OutputStore::new();
        store.store(&[ContentPart::text(text)], OutputBudget::default()).await.expect("it is stored");
        ReadMore::new(store)
    }

    async fn ask(tool: &ReadMore, arguments: Value) -> ToolOutput {
        let arguments = arguments.as_object().cloned().expect("an object");
        tool.call(arguments, &CallContext::default()).await.expect("an answer")
    }

    /// Returns a page's text and where to continue.
    async fn page(tool: &ReadMore, from: u64) -> (String, Option<u64>) {
        let answer = ask(tool, json!({"output": "o1", "from": from})).await.plain_text().expect("text");
        let (text, line) = answer.rsplit_once("[bytes ").expect("a last line");
        let next = line.strip_suffix(']').and_then(|line| line.split_once("continue with from "));
        (text.to_owned(), next.map(|(_, next)| next.parse().expect("a number")))
    }

    #[tokio::test]
    async fn an_output_is_read_page_by_page() {
        let tool = stored("one\ntwo\nthree").await.with_page(4);
        assert_eq!(
            ask(&tool, json!({"output": "o1"})).await,
            ToolOutput::text("one\n[bytes 0 to 4 of 13 of output \"o1\"; continue with from 4]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 8, "find": null})).await,
            ToolOutput::text("thre\n[bytes 8 to 12 of 13 of output \"o1\"; continue with from 12]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 12, "find": ""})).await,
            ToolOutput::text("e\n[bytes 12 to 13 of 13 of output \"o1\"; end of output]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 13})).await,
            ToolOutput::text("[bytes 13 to 13 of 13 of output \"o1\"; end of output]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 14})).await,
            ToolOutput::error("Error: byte 14 is past the end of output \"o1\" (13 bytes). Use a smaller `from`.")
        );
    }

    #[tokio::test]
    async fn pages_of_every_size_make_up_the_whole() {
        let text = "aé€𐍈".repeat(20);
        let whole = stored(&text).await;
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
    async fn a_page_never_begins_inside_a_character() {
        let text = "aé€𐍈z";
        let tool = stored(text).await;
        for from in 0..text.len() {
            let start = text.floor_char_boundary(from);
            assert_eq!(page(&tool, from as u64).await, (format!("{}\n", &text[start..]), None), "{from}");
        }
    }

    #[tokio::test]
    async fn a_page_ends_at_a_line_break_if_one_is_near() {
        let tool = stored(&format!("{}\n{}", "a".repeat(1900), "b".repeat(300))).await.with_page(2000);
        assert_eq!(page(&tool, 0).await, (format!("{}\n", "a".repeat(1900)), Some(1901)));
    }

    #[tokio::test]
    async fn find_shows_the_line_of_a_match_at_or_after_a_byte() {
        let tool = stored("one fish\ntwo fish\nred fish\nblue").await;
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
        assert_eq!(found(0, "Fish").await, "[no line of output \"o1\" contains \"Fish\" at or after byte 0]");
        assert_eq!(found(25, "fish").await, "[no line of output \"o1\" contains \"fish\" at or after byte 25]");
    }

    #[tokio::test]
    async fn find_matches_across_the_pieces_that_are_read() {
        for before in CHUNK - 8..CHUNK + 2 {
            let tool = stored(&format!("x\n{}\na needle in it", "h".repeat(before - 3))).await;
            let answer = ask(&tool, json!({"output": "o1", "find": "needle"})).await.plain_text().expect("text");
            let end = before + 14;
            let expected = format!(
                "a needle in it\n[bytes {} to {end} of {end} of output \"o1\"; end of output]",
                thousands(before),
                end = thousands(end)
            );
            assert_eq!(answer, expected);
        }
    }

    #[tokio::test]
    async fn a_match_in_a_very_long_line_is_on_the_page() {
        let tool = stored(&format!("{}needle{}", "é".repeat(100_000), "h".repeat(100_000))).await.with_page(1000);
        let answer = ask(&tool, json!({"output": "o1", "find": "needle"})).await.plain_text().expect("text");
        assert!(answer.starts_with(&format!("{}needleh", "é".repeat(100))), "{answer}");
    }

    #[tokio::test]
    async fn a_page_without_a_limit_is_the_rest_of_the_output() {
        let tool = stored("one\ntwo\nthree").await.with_page(usize::MAX);
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 5})).await,
            ToolOutput::text("wo\nthree\n[bytes 5 to 13 of 13 of output \"o1\"; end of output]")
        );
        assert_eq!(
            ask(&tool, json!({"output": "o1", "from": 1, "find": "re"})).await,
            ToolOutput::text("three\n[bytes 8 to 13 of 13 of output \"o1\"; end of output]")
        );
    }

    #[tokio::test]
    async fn an_unknown_output_lists_the_stored_ones() {
        let tool = ReadMore::new(OutputStore::new());
        assert_eq!(
            ask(&tool, json!({"output": "o1"})).await,
            ToolOutput::error("Error: unknown output \"o1\"; no outputs are stored.")
        );
        for _ in 0..2 {
            tool.store.store(&[ContentPart::text("x")], OutputBudget::default()).await.expect("it is stored");
        }
        for name in ["", "O1", "o1.txt", "../o1", "/etc/passwd"] {
            let expected = format!("Error: unknown output \"{name}\". Stored outputs: \"o2\", \"o1\".");
            assert_eq!(ask(&tool, json!({"output": name})).await, ToolOutput::error(expected));
        }
    }

    #[tokio::test]
    async fn a_stored_output_whose_file_is_missing_is_an_error() {
        let store = OutputStore::new().with_parent_folder(std::env::temp_dir());
        store.store(&[ContentPart::text("x")], OutputBudget::default()).await.expect("it is stored");
        let tool = ReadMore::new(store);
        let folder = tool.store.folder().expect("a folder");
        std::fs::write(folder.join("o1.txt"), "").expect("it is emptied");
        let arguments = json!({"output": "o1"}).as_object().cloned().expect("an object");
        let cause = |error: CallError| std::error::Error::source(&error).map(ToString::to_string);
        let error = tool.call(arguments.clone(), &CallContext::default()).await.expect_err("it is empty");
        assert_eq!(cause(error).as_deref(), Some("could not read output `o1`"));
        std::fs::remove_dir_all(folder).expect("it is removed");
        let error = tool.call(arguments, &CallContext::default()).await.expect_err("it is gone");
        assert_eq!(cause(error).as_deref(), Some("could not read output `o1`"));
    }

    #[tokio::test]
    async fn arguments_of_the_wrong_type_are_all_listed() {
        let tool = ReadMore::new(OutputStore::new());
        let arguments = json!({"from": -1, "find": 3}).as_object().cloned().expect("an object");
        let error = tool.call(arguments, &CallContext::default()).await.expect_err("invalid arguments");
        assert_eq!(
            error.to_string(),
            "invalid arguments for tool `read_more`: `output` is missing; at `/from`: must be an integer of at least 0; \
             at `/find`: must be a string"
        );
    }

    #[test]
    fn the_tool_is_marked_read_only() {
        let tool = ReadMore::new(OutputStore::new());
        let annotations = &tool.definition().annotations;
        assert!(annotations.read_only() && !annotations.open_world());
    }

    #[tokio::test]
    async fn a_shortened_page_equals_a_smaller_page() {
        let tool = stored(&format!("{}\n[bytes 1 to 2]", "0123456789".repeat(500))).await;
        for from in [0, 1234, 4990] {
            let asked = json!({"output": "o1", "from": from});
            let long = ask(&tool, asked.clone()).await.content;
            for room in [4, 20, 3000] {
                let short = ask(&tool.clone().with_page(room), asked.clone()).await.content;
                assert_eq!(shorten(&long, room), Some(short), "{from} {room}");
            }
            assert_eq!(shorten(&long, usize::MAX), Some(long));
        }
        assert_eq!(shorten(&[ContentPart::text("[no line]")], 3), None);
    }

    #[tokio::test]
    async fn a_page_always_fits_its_budget() {
        for text_bytes in [0, 1, 999, 1500, 50_000] {
            let budgets = OutputBudgets::default()
                .with_tool("*", OutputBudget::default().with_text_bytes(0))
                .with_default(OutputBudget::default().with_text_bytes(text_bytes));
            let tool = stored(&"x".repeat(200_000)).await.with_page(budgets.page());
            let answer = ask(&tool, json!({"output": "o1", "from": 100_000})).await;
            assert!(fits(&answer.content, budgets.of(READ_MORE)), "{text_bytes}");
        }
    }
}
