//! Malicious schemas.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::*;
use crate::tool::Schema;

/// Lowers for every dialect, also in strict mode, and checks that the result is omitted or valid, and never large.
fn survives(schema: &Value) {
    for dialect in Dialect::ALL {
        for definition in [definition(schema.clone()), strict_definition(schema.clone())] {
            let Ok(tool) = one(&definition, dialect) else { continue };
            assert!(tool.json.get().len() < 4 << 20, "{dialect}: {} bytes", tool.json.get().len());
            assert!(tool.changes.len() <= 1_001, "{}", tool.changes.len());
            assert_eq!(rules::broken(dialect, &declared(&tool)), [""; 0], "{dialect}");
        }
    }
}

/// Definitions that each refer to the next one several times.
fn fan(levels: usize, width: usize, wrap: impl Fn(Vec<Value>) -> Value) -> Value {
    let mut definitions = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), wrap(vec![next; width]));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "string", "description": "x".repeat(1_000)}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
}

fn properties(schemas: Vec<Value>) -> Value {
    let properties: Map<String, Value> =
        schemas.into_iter().enumerate().map(|(at, schema)| (format!("p{at}"), schema)).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

#[test]
fn exponential_references_are_left_open() {
    survives(&fan(20, 10, properties));
    survives(&fan(30, 4, |schemas| json!({"anyOf": schemas})));
    survives(&fan(30, 4, |schemas| json!({"allOf": schemas})));
    survives(&fan(
        25,
        3,
        |schemas| json!({"oneOf": schemas, "type": "object", "properties": {"x": {"type": "string"}}}),
    ));
    survives(&fan(400, 1, |schemas| schemas[0].clone()));
    survives(&fan(100, 2, |schemas| json!({"not": schemas[0], "if": schemas[1], "contains": schemas[0]})));
}

#[test]
fn a_fan_of_references_reports_open_schemas() {
    let tool = one(&definition(fan(20, 10, properties)), Dialect::Chat).expect("a tool");
    let open = ChangeKind::Rewritten("an open schema: too large".to_owned());
    assert!(tool.changes.iter().any(|change| change.kind == open) || tool.changes.len() == 1_000);
}

#[test]
fn nested_alternatives_are_bounded() {
    let alternatives = |inner: Value| json!({"properties": {"x": inner}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}, {"properties": {"z": {"type": "null"}}}]});
    let schema = (0..24).fold(json!({"type": "string"}), |inner, _| alternatives(inner));
    survives(&json!({"properties": {"a": schema}}));
    let nested = (0..30).fold(
        json!({"type": "string"}),
        |inner, _| json!({"anyOf": [inner, {"type": "null"}], "oneOf": [{"title": "a"}, {"title": "b"}]}),
    );
    survives(&json!({"properties": {"a": nested}}));
}

#[test]
fn circular_references_terminate() {
    survives(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}));
    survives(
        &json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}], "anyOf": [{"$ref": "#"}]}}}),
    );
    survives(&json!({"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}], "properties": {"a": {"not": {"$ref": "#"}}}}));
    let mutual: Map<String, Value> = (0..40)
        .map(|at| {
            let others: Vec<Value> = (0..40).map(|other| json!({"$ref": format!("#/$defs/d{other}")})).collect();
            (format!("d{at}"), json!({"type": "object", "properties": {"next": {"anyOf": others}}}))
        })
        .collect();
    survives(&json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": mutual}));
}

#[test]
fn large_and_deep_schemas_are_bounded_or_omitted() {
    survives(&json!({"properties": {"a": {"enum": (0..40_000).collect::<Vec<u32>>()}}}));
    survives(&json!({"properties": {"a": {"enum": (0..200_000).collect::<Vec<u32>>()}}}));
    survives(&json!({"properties": {"a": {"enum": vec!["same"; 30_000]}, "b": {"required": vec!["x"; 10_000]}}}));
    survives(
        &json!({"allOf": (0..10_000).map(|at| json!({"properties": {format!("p{at}"): {}}})).collect::<Vec<_>>()}),
    );
    survives(&json!({"allOf": vec![json!({"properties": {"p": {"minLength": 1}}}); 8_000]}));
    survives(
        &json!({"allOf": (0..8_000).map(|at| json!({"properties": {"p": {"minLength": at}}})).collect::<Vec<_>>()}),
    );
    survives(&json!({"oneOf": (0..8_000).map(|at| json!({"properties": {"p": {"const": at}}})).collect::<Vec<_>>()}));
    survives(&json!({"properties": (0..20_000).map(|at| (format!("p\u{1}{at}"), json!({}))).collect::<Map<_, _>>()}));
    let value = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let deep = (0..28).fold(
        json!({"default": value, "const": value, "enum": [value]}),
        |inner, _| json!({"properties": {"a": inner}}),
    );
    survives(&deep);
    let chain = (0..30).fold(json!({"$ref": "#/$defs/v"}), |inner, _| json!({"properties": {"a": inner}}));
    survives(&json!({"properties": {"a": chain}, "$defs": {"v": {"default": value, "examples": [value]}}}));
    let anchors: Map<String, Value> =
        (0..3_000).map(|at| (format!("p{at}"), json!({"$ref": format!("#a{at}")}))).collect();
    survives(&json!({"properties": anchors}));
}

#[test]
fn a_json_text_of_a_thousand_levels_is_omitted() {
    let text = format!("{}1{}", r#"{"not":"#.repeat(1_000), "}".repeat(1_000));
    let mut tool = definition(json!({}));
    tool.input_schema = Schema::from_text(RawValue::from_string(text).expect("JSON"));
    // The parsed schema is any object, which is not the schema of the server.
    assert_eq!(*tool.input_schema, json!({"type": "object"}));
    for dialect in Dialect::ALL {
        let why = one(&tool, dialect).expect_err("an omitted tool");
        assert!(why.starts_with("its schema cannot be read: recursion limit exceeded"), "{why}");
    }
}

#[test]
fn a_value_of_a_thousand_levels_is_omitted() {
    let deep = (0..1_000).fold(json!(1), |inner, _| json!({"not": inner}));
    let why = one(&definition(deep), Dialect::Chat).expect_err("an omitted tool");
    assert_eq!(why, "its schema is too large: more than 128 levels deep");
}

#[test]
fn names_of_control_characters_become_distinct() {
    let definitions: Vec<ToolDefinition> =
        ["\u{0}", "\u{1}", "", "_", "\u{7f}\u{7f}", "1", "tool", "a.b", "a/b", "a_b", "ü"]
            .iter()
            .map(|name| ToolDefinition::new(*name))
            .collect();
    for dialect in Dialect::ALL {
        let lowered = lower(&definitions, dialect);
        assert_eq!(lowered.omitted, []);
        for tool in &lowered.tools {
            assert_eq!(rules::broken(dialect, &declared(tool)), [""; 0]);
            assert_eq!(lowered.by_wire_name(&tool.wire_name).map(|tool| &tool.name), Some(&tool.name));
            assert_eq!(lowered.get(&tool.name).map(|tool| &tool.wire_name), Some(&tool.wire_name));
        }
        // Valid names are kept.
        let kept =
            if dialect == Dialect::Gemini { vec!["_", "tool", "a.b", "a_b"] } else { vec!["_", "1", "tool", "a_b"] };
        let same: Vec<&str> =
            lowered.tools.iter().filter(|tool| tool.name == tool.wire_name).map(|tool| tool.name.as_str()).collect();
        assert_eq!(same, kept, "{dialect}");
    }
}
