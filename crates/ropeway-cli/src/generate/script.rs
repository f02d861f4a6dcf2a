//! Python scripts: one command per tool, with options from its schema.
//!
//! A script's code is the same for all servers. Everything from the server is JSON in a string literal.

use serde_json::{Map, Value, json};

use super::identifiers::{Scope, kebab_case};
use super::interface::{ServerInterface, ToolInterface};
use super::model::{Field, Type, Types};
use super::reader;
use super::text::{MARK, ascii_json, comment_name};
use crate::terminal::text::{clean, clean_line, cut, first_sentence};

const COMMON: &str = include_str!("script.py");

/// Maximum tool summary width in the list of all tools, in columns.
const MAX_SUMMARY: usize = 100;
/// Maximum option help width in columns.
const MAX_HELP: usize = 400;
/// Maximum tool description size in bytes.
const MAX_DESCRIPTION: usize = 8000;
/// Maximum choices per option; with more, any value is accepted.
const MAX_CHOICES: usize = 200;
/// Maximum digits per number. Python refuses to read longer integers
/// (<https://docs.python.org/3/library/stdtypes.html#int-max-str-digits>).
const MAX_DIGITS: usize = 4300;

/// Returns the script for a server.
pub(super) fn generate(server: &ServerInterface) -> String {
    let (alias, title) = (comment_name(&server.alias), comment_name(&server.title));
    let description = format!("Tools of server {alias} ({title})");
    let record = json!({"description": description, "options": server.options});
    let mut commands = Scope::default();
    let tools: String = server
        .tools
        .iter()
        .map(|tool| format!("    {},\n", python_literal(&ascii_json(&tool_record(tool, &mut commands)))))
        .collect();
    // A comment in the first two lines may select an encoding, so the names come later.
    let header = format!("#!/usr/bin/env python3\n# {MARK} cli`. Do not edit.\n# Server: {alias} ({title})\n");
    let data = format!("SERVER_JSON = {}\nTOOLS_JSON = [\n{tools}]\n", python_literal(&ascii_json(&record)));
    format!("{header}\n{data}\n{COMMON}")
}

/// Returns a string literal for ASCII text.
fn python_literal(ascii: &str) -> String {
    format!("'{}'", ascii.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn tool_record(tool: &ToolInterface, commands: &mut Scope) -> Value {
    let types = reader::read(&tool.input);
    let mut flags = Scope::with_reserved(&["help", "args"]);
    let fields = types.argument_object().map(|object| &object.fields[..]).unwrap_or_default();
    let options = fields.iter().enumerate().map(|(at, field)| option_record(at, field, &types, &mut flags));
    json!({
        "command": commands.claim_joined(&command_name(&tool.name), "-"),
        "name": tool.call_name,
        "summary": cut(&first_sentence(&tool.description), MAX_SUMMARY),
        "description": description(&tool.description),
        "options": options.collect::<Vec<_>>(),
    })
}

/// Returns a description without control characters.
fn description(text: &str) -> String {
    let mut end = text.len().min(MAX_DESCRIPTION);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    clean(&text[..end]).trim().to_owned()
}

/// Returns a tool's name, if a shell and `argparse` take it as one word that is not an option.
fn command_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word = name.len() <= 80 && name.chars().all(is_plain);
    match name.chars().next() {
        Some(first) if is_word && first != '-' => name.to_owned(),
        _ => kebab_case(name, "tool"),
    }
}

fn option_record(at: usize, field: &Field, types: &Types, flags: &mut Scope) -> Value {
    let kind = ValueKind::of(&field.kind, types, 8);
    let (kind, is_repeated) = match kind {
        ValueKind::List(item) => (*item, true),
        kind => (kind, false),
    };
    let mut record = Map::new();
    let wanted = kebab_case(&field.name, "argument");
    record.insert("flag".to_owned(), json!(format!("--{}", flags.claim_joined(&wanted, "-"))));
    record.insert("key".to_owned(), json!(field.name));
    // Not the name, which could be a Python attribute's.
    record.insert("dest".to_owned(), json!(format!("option_{at}")));
    record.insert("required".to_owned(), json!(field.is_required));
    record.insert("repeated".to_owned(), json!(is_repeated));
    record.insert("help".to_owned(), json!(cut(&clean_line(field.description.as_deref().unwrap_or("")), MAX_HELP)));
    let (name, metavar) = match &kind {
        ValueKind::Text => ("string", "TEXT"),
        ValueKind::Integer => ("integer", "INTEGER"),
        ValueKind::Number => ("number", "NUMBER"),
        ValueKind::Boolean => ("boolean", "BOOLEAN"),
        ValueKind::Json | ValueKind::List(_) => ("json", "JSON"),
        ValueKind::Any => ("any", "VALUE"),
        ValueKind::Choices(choices) => {
            record.insert("choices".to_owned(), json!(choices));
            ("any", "VALUE")
        }
    };
    record.insert("kind".to_owned(), json!(name));
    record.insert("metavar".to_owned(), json!(metavar));
    if let Some(default) = field.default.as_ref().filter(|default| !default.is_null() && is_readable(default)) {
        record.insert("default".to_owned(), default.clone());
    }
    Value::Object(record)
}

/// Returns `true` if Python can read all numbers in a value.
fn is_readable(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.to_string().len() <= MAX_DIGITS,
        Value::Array(items) => items.iter().all(is_readable),
        Value::Object(fields) => fields.values().all(is_readable),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// How an option's text becomes a value.
#[derive(Clone, Debug, PartialEq)]
enum ValueKind {
    Text,
    Integer,
    Number,
    Boolean,
    Choices(Vec<Value>),
    /// One option for each item.
    List(Box<ValueKind>),
    Json,
    /// JSON, or else text.
    Any,
}

impl ValueKind {
    fn of(kind: &Type, types: &Types, depth: usize) -> Self {
        let Some(depth) = depth.checked_sub(1) else { return Self::Any };
        match kind {
            Type::String => Self::Text,
            Type::Integer => Self::Integer,
            Type::Number => Self::Number,
            Type::Boolean => Self::Boolean,
            Type::Literal(value) if is_readable(value) => Self::Choices(vec![value.clone()]),
            Type::Array(item) => match Self::of(item, types, depth) {
                item @ (Self::Text | Self::Integer | Self::Number | Self::Choices(_)) => Self::List(Box::new(item)),
                _ => Self::Json,
            },
            Type::Tuple(..) | Type::Object(_) => Self::Json,
            Type::Named(at) => Self::of(&types.definitions[*at].kind, types, depth),
            Type::Union(parts) => Self::of_union(parts, types, depth),
            Type::Intersection(_) if types.is_object(kind) => Self::Json,
            Type::Unknown | Type::Never | Type::Null | Type::Literal(_) | Type::Intersection(_) => Self::Any,
        }
    }

    fn of_union(parts: &[Type], types: &Types, depth: usize) -> Self {
        let parts: Vec<&Type> = parts.iter().filter(|part| **part != Type::Null).collect();
        let literals: Vec<Value> = parts
            .iter()
            .filter_map(|part| match part {
                Type::Literal(value) if is_readable(value) => Some(value.clone()),
                _ => None,
            })
            .collect();
        if literals.len() == parts.len() && literals.len() <= MAX_CHOICES && !literals.is_empty() {
            return Self::Choices(literals);
        }
        let mut kinds: Vec<Self> = parts.iter().map(|part| Self::of(part, types, depth)).collect();
        kinds.dedup();
        match &kinds[..] {
            [kind] => kind.clone(),
            // Text stays text, even if it looks like a number.
            kinds if kinds.iter().all(|kind| matches!(kind, Self::Text | Self::Choices(_))) => Self::Text,
            _ => Self::Any,
        }
    }
}
