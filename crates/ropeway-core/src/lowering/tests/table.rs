//! The table of keywords in the documentation, generated from actual results.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

const FROM: &str = "<!-- keywords -->";
const TO: &str = "<!-- /keywords -->";

struct Column {
    title: &'static str,
    dialect: Dialect,
    strict: bool,
}

const COLUMNS: [Column; 6] = [
    Column { title: "Anthropic", dialect: Dialect::Anthropic, strict: false },
    Column { title: "Responses", dialect: Dialect::Responses, strict: false },
    Column { title: "Chat", dialect: Dialect::Chat, strict: false },
    Column { title: "Gemini", dialect: Dialect::Gemini, strict: false },
    Column { title: "OpenAI, strict", dialect: Dialect::Responses, strict: true },
    Column { title: "Anthropic, strict", dialect: Dialect::Anthropic, strict: true },
];

/// A row of the table: its title, the keyword, and a schema with the keyword.
type Row = (&'static str, &'static str, Value);

/// Keywords of an argument.
fn inner() -> Vec<Row> {
    let string = |keyword: &'static str, value: Value| json!({"type": "string", keyword: value});
    let number = |keyword: &'static str, value: Value| json!({"type": "number", keyword: value});
    let object = |keyword: &'static str, value: Value| json!({"type": "object", "properties": {"x": {"type": "string"}}, keyword: value});
    let array =
        |keyword: &'static str, value: Value| json!({"type": "array", "items": {"type": "string"}, keyword: value});
    let branches = json!([{"type": "string"}, {"type": "number"}]);
    vec![
        ("`type`", "type", json!({"type": "string"})),
        ("`type`, several", "type", json!({"type": ["string", "null"]})),
        ("`type`, absent", "type", json!({"description": "Anything."})),
        ("`enum` of strings", "enum", string("enum", json!(["a", "b"]))),
        ("`enum` of others", "enum", json!({"type": "boolean", "enum": [true]})),
        ("`const`", "const", json!({"const": "a"})),
        ("`title`", "title", string("title", json!("A"))),
        ("`description`", "description", string("description", json!("A."))),
        ("`default`", "default", string("default", json!("a"))),
        ("`examples`", "examples", string("examples", json!(["a"]))),
        ("`deprecated`", "deprecated", string("deprecated", json!(true))),
        ("`readOnly`, `writeOnly`", "readOnly", string("readOnly", json!(true))),
        ("`minLength`", "minLength", string("minLength", json!(2))),
        ("`maxLength`", "maxLength", string("maxLength", json!(2))),
        ("`pattern`, `^…$` and plain", "pattern", string("pattern", json!("^[a-z]+$"))),
        ("`pattern`, others", "pattern", string("pattern", json!("^(?=a)\\w"))),
        ("`format`: `date-time`", "format", string("format", json!("date-time"))),
        ("`format`: `uri`", "format", string("format", json!("uri"))),
        ("`format`, others", "format", string("format", json!("path"))),
        ("`contentEncoding`", "contentEncoding", string("contentEncoding", json!("base64"))),
        ("`contentMediaType`", "contentMediaType", string("contentMediaType", json!("image/png"))),
        ("`contentSchema`", "contentSchema", string("contentSchema", json!({"type": "string"}))),
        ("`minimum`", "minimum", number("minimum", json!(2))),
        ("`maximum`", "maximum", number("maximum", json!(2))),
        ("`exclusiveMinimum`", "exclusiveMinimum", number("exclusiveMinimum", json!(2))),
        ("`exclusiveMaximum`", "exclusiveMaximum", number("exclusiveMaximum", json!(2))),
        (
            "`exclusiveMinimum: true` (draft 4)",
            "exclusiveMinimum",
            json!({"type": "number", "minimum": 2, "exclusiveMinimum": true}),
        ),
        ("`multipleOf`", "multipleOf", number("multipleOf", json!(2))),
        (
            "`properties`",
            "properties",
            json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}),
        ),
        ("`properties`, absent", "properties", json!({"type": "object"})),
        ("`required`", "required", object("required", json!([]))),
        ("`additionalProperties: false`", "additionalProperties", object("additionalProperties", json!(false))),
        (
            "`additionalProperties`, a schema",
            "additionalProperties",
            object("additionalProperties", json!({"type": "string"})),
        ),
        ("`patternProperties`", "patternProperties", object("patternProperties", json!({"^a": {"type": "string"}}))),
        ("`propertyNames`", "propertyNames", object("propertyNames", json!({"minLength": 2}))),
        ("`minProperties`", "minProperties", object("minProperties", json!(2))),
        ("`maxProperties`", "maxProperties", object("maxProperties", json!(2))),
        ("`dependentRequired`", "dependentRequired", object("dependentRequired", json!({"x": ["y"]}))),
        ("`dependentSchemas`", "dependentSchemas", object("dependentSchemas", json!({"x": {"required": ["y"]}}))),
        ("`dependencies` (draft 7)", "dependencies", object("dependencies", json!({"x": ["y"]}))),
        ("`unevaluatedProperties: false`", "unevaluatedProperties", object("unevaluatedProperties", json!(false))),
        ("`items`", "items", json!({"type": "array", "items": {"type": "string"}})),
        ("`items`, absent", "items", json!({"type": "array"})),
        ("`items`, a list (draft 7)", "items", json!({"type": "array", "items": [{"type": "string"}]})),
        (
            "`additionalItems` (draft 7)",
            "additionalItems",
            json!({"type": "array", "items": [{"type": "string"}], "additionalItems": false}),
        ),
        ("`prefixItems`", "prefixItems", json!({"type": "array", "prefixItems": [{"type": "string"}]})),
        ("`minItems`", "minItems", array("minItems", json!(2))),
        ("`maxItems`", "maxItems", array("maxItems", json!(2))),
        ("`uniqueItems`", "uniqueItems", array("uniqueItems", json!(true))),
        ("`contains`", "contains", array("contains", json!({"type": "string"}))),
        (
            "`minContains`",
            "minContains",
            json!({"type": "array", "items": {"type": "string"}, "contains": {"type": "string"}, "minContains": 2}),
        ),
        (
            "`maxContains`",
            "maxContains",
            json!({"type": "array", "items": {"type": "string"}, "contains": {"type": "string"}, "maxContains": 2}),
        ),
        ("`unevaluatedItems: false`", "unevaluatedItems", array("unevaluatedItems", json!(false))),
        ("`anyOf`", "anyOf", json!({"anyOf": branches})),
        ("`oneOf`", "oneOf", json!({"oneOf": branches})),
        ("`allOf`", "allOf", json!({"allOf": [{"type": "string"}, {"enum": ["a"]}]})),
        ("`not`", "not", string("not", json!({"const": "a"}))),
        (
            "`if`, `then`, `else`",
            "if",
            json!({"type": "string", "if": {"const": "a"}, "then": {"enum": ["a"]}, "else": {"enum": ["b"]}}),
        ),
        ("`$ref`", "$ref", json!({"$ref": "#/$defs/plain"})),
        ("`$ref` to itself", "$ref", json!({"$ref": "#/$defs/again"})),
        ("`$ref` to elsewhere", "$ref", json!({"$ref": "https://example.invalid/schema.json"})),
        ("`$dynamicRef`", "$dynamicRef", json!({"$dynamicRef": "#name"})),
        ("`$schema`", "$schema", string("$schema", json!("https://json-schema.org/draft/2020-12/schema"))),
        ("`$id`", "$id", string("$id", json!("a"))),
        ("`$anchor`, `$dynamicAnchor`", "$anchor", string("$anchor", json!("a"))),
        ("`$comment`", "$comment", string("$comment", json!("a"))),
        ("`$defs`, `definitions`", "$defs", string("$defs", json!({"a": {}}))),
        ("`nullable` (OpenAPI)", "nullable", string("nullable", json!(true))),
        ("`example` (OpenAPI)", "example", string("example", json!("a"))),
        ("any other keyword", "x-other", string("x-other", json!("a"))),
    ]
}

/// Keywords of the root.
fn outer() -> Vec<Row> {
    let x = json!({"x": {"type": "string"}});
    let branches = json!([{"properties": {"x": {"type": "string"}}}, {"properties": {"y": {"type": "string"}}}]);
    vec![
        ("`type` at the root, absent", "type", json!({"properties": x})),
        ("`properties` at the root, absent", "properties", json!({"type": "object"})),
        ("`anyOf` at the root", "anyOf", json!({"type": "object", "properties": {}, "anyOf": branches})),
        ("`oneOf` at the root", "oneOf", json!({"type": "object", "properties": {}, "oneOf": branches})),
        ("`allOf` at the root", "allOf", json!({"type": "object", "properties": {}, "allOf": branches})),
        ("`not` at the root", "not", json!({"type": "object", "properties": x, "not": {"required": ["x"]}})),
        ("`enum` at the root", "enum", json!({"type": "object", "properties": x, "enum": [{"x": "a"}]})),
        (
            "`if` at the root",
            "if",
            json!({"type": "object", "properties": x, "if": {"required": ["x"]}, "then": {"required": ["y"]}}),
        ),
    ]
}

/// Returns the action for a keyword, from the schema before and after, and its description.
fn outcome(keyword: &str, before: &Value, after: &Value, told: &str) -> String {
    let is_new = |name: &&str| before.get(*name).is_none() && *name != "description";
    // Strict mode closes every object.
    let is_closing =
        |name: &str| matches!(name, "additionalProperties" | "required") && keyword != "unevaluatedProperties";
    let names = after.as_object().expect("a schema").keys().map(String::as_str);
    let mut new: Vec<&str> = names.filter(is_new).filter(|name| !is_closing(name)).collect();
    if new.len() > 1 {
        new.retain(|name| !matches!(*name, "type" | "required"));
    }
    let becomes = || format!("becomes `{}`", new.join("`, `"));
    match (before.get(keyword), after.get(keyword)) {
        (None, None) => "unchanged".to_owned(),
        (None, Some(_)) => "added".to_owned(),
        (Some(value), Some(now)) if value == now => "unchanged".to_owned(),
        (Some(_), Some(_)) if !new.is_empty() => becomes(),
        (Some(_), Some(_)) => "rewritten".to_owned(),
        (Some(_), None) if told.contains("(give ") => "merged; alternatives in the description".to_owned(),
        (Some(_), None) if told.contains(" again, ") || told.contains("(as in ") => {
            "unconstrained; noted in the description".to_owned()
        }
        (Some(_), None) if told.contains(": ") && told.contains('(') => "moved to the description".to_owned(),
        (Some(_), None) if matches!(keyword, "$ref" | "$dynamicRef") => "inlined".to_owned(),
        (Some(_), None) if keyword == "allOf" => "merged".to_owned(),
        (Some(_), None) if !new.is_empty() => becomes(),
        (Some(_), None) if before.get("type") != after.get("type") => "becomes `type`".to_owned(),
        (Some(_), None) => "dropped".to_owned(),
    }
}

fn cell(row: &Row, is_root: bool, column: &Column) -> String {
    let (_, keyword, probe) = row;
    let schema = if is_root {
        probe.clone()
    } else {
        json!({
            "type": "object",
            "properties": {"a": probe},
            "required": ["a"],
            "$defs": {
                "plain": {"type": "string", "$dynamicAnchor": "name"},
                "again": {"type": "object", "properties": {"again": {"$ref": "#/$defs/again"}}},
            },
        })
    };
    let definition = if column.strict { strict_definition(schema) } else { definition(schema) };
    let tool = one(&definition, column.dialect).expect("a tool");
    let declared = declared(&tool);
    if column.strict && declared["strict"] != true {
        return "not strict".to_owned();
    }
    let whole = schema_of(&tool, column.dialect);
    if is_root {
        let function = if column.dialect == Dialect::Chat { &declared["function"] } else { &declared };
        let told = function["description"].as_str().expect("a description");
        return outcome(keyword, probe, &whole, told);
    }
    let after = &whole["properties"]["a"];
    // The rest of a recursive schema is described inside of it.
    let innermost = after.pointer("/properties/again/properties/again").unwrap_or(after);
    outcome(keyword, probe, after, innermost["description"].as_str().unwrap_or_default())
}

fn table() -> String {
    let mut table = String::new();
    let titles: Vec<&str> = COLUMNS.iter().map(|column| column.title).collect();
    writeln!(table, "| keyword | {} |", titles.join(" | ")).expect("text");
    writeln!(table, "|---|{}", "---|".repeat(COLUMNS.len())).expect("text");
    for (rows, is_root) in [(outer(), true), (inner(), false)] {
        for row in rows {
            let cells: Vec<String> = COLUMNS.iter().map(|column| cell(&row, is_root, column)).collect();
            writeln!(table, "| {} | {} |", row.0, cells.join(" | ")).expect("text");
        }
    }
    table
}

#[test]
fn the_documented_keyword_table_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers.md");
    let text = std::fs::read_to_string(&path).expect("docs/providers.md");
    let (front, rest) = text.split_once(FROM).expect("the start of the table");
    let (told, back) = rest.split_once(TO).expect("the end of the table");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{front}{FROM}\n{table}{TO}{back}")).expect("docs/providers.md");
    } else {
        assert_eq!(
            told.trim(),
            table.trim(),
            "`UPDATE_DOCS=1 cargo test -p ropeway-core --lib lowering::tests::table` writes it"
        );
    }
}
