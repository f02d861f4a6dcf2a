//! The documented table of content parts by dialect, generated from encoded requests.

use std::fs;
use std::path::Path;

use ropeway::content::ContentPart;
use ropeway::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ToolResult};
use serde_json::{Value, json};

use super::case::{Case, call, tools};
use super::parts::{Sample, samples};

const BEGIN: &str = "<!-- content -->\n";
const END: &str = "<!-- /content -->";

fn body(conversation: Conversation, dialect: Dialect) -> Value {
    let encoded = Case::new("table", conversation).with_tools(tools()).encode(dialect);
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// Describes the encoded part of a user message.
fn in_user_message(sample: &Sample, dialect: Dialect) -> String {
    let body = body(Conversation::new().with(vec![sample.part.clone()]), dialect);
    let content = match dialect {
        Dialect::Responses => &body["input"][0]["content"],
        Dialect::Gemini => &body["contents"][0]["parts"],
        _ => &body["messages"][0]["content"],
    };
    form(content, sample)
}

/// Describes the encoded part of a tool result.
fn in_tool_result(sample: &Sample, dialect: Dialect) -> String {
    let call = call("call_1", "wind", json!({"station": "summit"}));
    let conversation = Conversation::new()
        .with("How is the wind?")
        .with(AssistantMessage::new(vec![AssistantPart::ToolCall(call.clone())]))
        .with(vec![ToolResult::new(&call, vec![sample.part.clone()])]);
    let body = body(conversation, dialect);
    let (result, shown) = match dialect {
        Dialect::Anthropic => (body.pointer("/messages/2/content/0/content"), None),
        Dialect::Responses => (body.pointer("/input/2/output"), None),
        Dialect::Gemini => {
            let response = &body["contents"][2]["parts"][0]["functionResponse"];
            let within = response.get("parts").map(|parts| (parts, " in `functionResponse.parts`"));
            let behind = body.pointer("/contents/3/parts").map(|parts| (parts, " in a user content after it"));
            (response.pointer("/response/output"), within.or(behind))
        }
        Dialect::Chat => {
            let behind = body.pointer("/messages/3/content").map(|parts| (parts, " in a user message after it"));
            (body.pointer("/messages/2/content"), behind)
        }
    };
    match shown {
        Some((parts, place)) => format!("{}{place}", media_form(parts, sample)),
        None => form(result.expect("a result"), sample),
    }
}

/// Returns the part that is not text, among others that announce it.
fn media_form(parts: &Value, sample: &Sample) -> String {
    let parts = parts.as_array().expect("parts");
    let shown = parts.iter().rfind(|part| kind(part) != "text").expect("something to see");
    form(shown, sample)
}

/// Names the form of a value: the text itself, a description, or media.
fn form(value: &Value, sample: &Sample) -> String {
    match value {
        Value::String(text) => text_or_line(text, sample),
        Value::Array(parts) => match &parts[..] {
            [only] => form(only, sample),
            several => panic!("{}: {several:?}", sample.name),
        },
        part => match kind(part) {
            "text" => text_or_line(part["text"].as_str().expect("text"), sample),
            "document" if part["source"]["type"] == "text" => "`document` of text".to_owned(),
            kind => format!("`{kind}`"),
        },
    }
}

fn kind(part: &Value) -> &str {
    match part["type"].as_str() {
        Some("input_text") => "text",
        Some(kind) => kind,
        None => match part.as_object().and_then(|part| part.keys().next()) {
            Some(key) => key,
            None => panic!("{part} is no part"),
        },
    }
}

fn text_or_line(text: &str, sample: &Sample) -> String {
    match sample.says {
        Some(says) if text.contains(says) && sample.part.as_text().is_some() => "text".to_owned(),
        Some(says) if text.contains(says) => match &sample.part {
            ContentPart::ResourceLink(_) => "text with its URI".to_owned(),
            _ => "its text".to_owned(),
        },
        Some(_) => panic!("{}: `{text}` does not say it", sample.name),
        None => "text description".to_owned(),
    }
}

fn table(title: &str, cell: impl Fn(&Sample, Dialect) -> String) -> String {
    let mut lines = vec![format!("{title}\n"), "| part | Anthropic | Responses | Gemini 3 | Chat |".to_owned()];
    lines.push("|---|---|---|---|---|".to_owned());
    for sample in samples() {
        let cells: Vec<String> = Dialect::ALL.into_iter().map(|dialect| cell(&sample, dialect)).collect();
        lines.push(format!("| {} | {} |", sample.title, cells.join(" | ")));
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_documented_content_table_is_current() {
    let made = [table("In a tool result:", in_tool_result), table("In a user message:", in_user_message)];
    let made = made.join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers.md");
    let text = fs::read_to_string(&path).expect("docs/providers.md");
    let (before, rest) = text.split_once(BEGIN).expect("a place for the table");
    let (then, after) = rest.split_once(END).expect("the end of that place");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{before}{BEGIN}{made}{END}{after}")).expect("docs/providers.md");
        return;
    }
    assert_eq!(then, made, "`UPDATE_DOCS=1 cargo test -p ropeway --test suite content_table` updates it");
}
