//! Payloads: the tools and results that both benchmark servers share.

use serde_json::{Value, json};

/// Number of rows in the structured result, which has 776 KB as JSON.
pub const ROWS: usize = 20_000;

/// Returns `count` tool definitions: the four that the benchmark calls, and others that are only listed.
pub fn tools(count: usize) -> Vec<Value> {
    let called = [
        json!({
            "name": "echo",
            "description": "Echoes the message.",
            "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        }),
        json!({
            "name": "text",
            "description": "Answers with text of the given size.",
            "inputSchema": {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]},
        }),
        json!({
            "name": "image",
            "description": "Answers with an image whose base64 text has the given size.",
            "inputSchema": {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]},
        }),
        json!({
            "name": "structured",
            "description": "Answers with a table of twenty thousand rows.",
            "inputSchema": {"type": "object", "properties": {}},
        }),
    ];
    called.into_iter().chain((0..).map(listed)).take(count.max(4)).collect()
}

/// Returns `count` tools as function definitions: the two that the benchmark's model calls, and others.
pub fn functions(count: usize) -> Vec<Value> {
    let called = [
        json!({
            "name": "echo",
            "description": "Echoes the message.",
            "parameters": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        }),
        json!({
            "name": "wait",
            "description": "Answers after a number of milliseconds.",
            "parameters": {"type": "object", "properties": {"milliseconds": {"type": "integer"}}, "required": ["milliseconds"]},
        }),
    ];
    let others = (0..).map(|number| {
        let tool = listed(number);
        json!({"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]})
    });
    called.into_iter().chain(others).take(count.max(2)).collect()
}

/// Returns a tool like those on real servers, with a schema of about 400 bytes.
fn listed(number: usize) -> Value {
    json!({
        "name": format!("search_records_{number}"),
        "title": format!("Search records {number}"),
        "description": "Searches the records of one project and returns the best matches, newest first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "project": {"type": "string", "description": "The project to search in, by its key"},
                "query": {"type": "string", "description": "Words that must all occur"},
                "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
                "labels": {"type": "array", "items": {"type": "string"}},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
            },
            "required": ["project", "query"],
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true},
    })
}

/// Returns text with the given size, in lines.
pub fn text(bytes: usize) -> String {
    repeated("The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.\n", bytes)
}

/// Returns base64 text with the given size.
pub fn base64(bytes: usize) -> String {
    repeated("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q", bytes)
}

fn repeated(pattern: &str, bytes: usize) -> String {
    let mut text = pattern.repeat(bytes / pattern.len() + 1);
    text.truncate(bytes);
    text
}

/// Returns the structured result: a table.
pub fn table() -> Value {
    let rows: Vec<Value> = (0..ROWS).map(|row| json!({"id": row, "name": format!("row {row}"), "x": 0.5})).collect();
    json!({ "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_776_kilobytes_of_json() {
        let bytes = table().to_string().len();
        assert!((750_000..800_000).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn a_listed_tool_has_a_schema_of_about_400_bytes() {
        let bytes = listed(0)["inputSchema"].to_string().len();
        assert!((380..460).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn the_requested_number_of_tools_is_listed() {
        assert_eq!((tools(200).len(), tools(0).len()), (200, 4));
        assert_eq!((functions(200).len(), functions(0).len()), (200, 2));
    }

    #[test]
    fn payloads_have_the_requested_size() {
        assert_eq!((text(1 << 20).len(), base64(4 << 20).len()), (1 << 20, 4 << 20));
    }
}
