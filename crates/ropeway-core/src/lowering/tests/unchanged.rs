//! Unchanged schemas: detection must agree with rewriting.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::lowering::node::Node;
use crate::lowering::target::SchemaTarget;
use crate::lowering::unchanged::is_unchanged;
use crate::lowering::walker::{RefLimits, Walker};

const TARGETS: [SchemaTarget; 3] = [SchemaTarget::Anthropic, SchemaTarget::OpenAi, SchemaTarget::Gemini];

fn keyword() -> impl Strategy<Value = (String, Value)> {
    let keywords = [
        ("description", json!("Words.")),
        ("title", json!("Title")),
        ("default", json!("x")),
        ("default", json!({"a": [1]})),
        ("examples", json!([1])),
        ("minLength", json!(1)),
        ("maxLength", json!(2.0)),
        ("pattern", json!("^[a-z]+$")),
        ("pattern", json!("\\d")),
        ("format", json!("date-time")),
        ("format", json!("uri")),
        ("minimum", json!(1)),
        ("exclusiveMaximum", json!(9)),
        ("exclusiveMinimum", json!(true)),
        ("multipleOf", json!(2)),
        ("minItems", json!(1)),
        ("uniqueItems", json!(true)),
        ("enum", json!(["a", "b"])),
        ("enum", json!(["a", "a"])),
        ("enum", json!([1, null])),
        ("required", json!(["a"])),
        ("required", json!(["a", "b"])),
        ("additionalProperties", json!(false)),
        ("additionalProperties", json!({})),
        ("items", json!({"type": "string"})),
        ("items", json!({"$ref": "#"})),
        ("properties", json!({"a": {"type": "string"}})),
        ("nullable", json!(true)),
        ("x-other", json!(1)),
    ];
    proptest::sample::select(keywords.to_vec()).prop_map(|(keyword, value)| (keyword.to_owned(), value))
}

fn schema() -> impl Strategy<Value = Value> {
    let names = ["string", "number", "integer", "boolean", "null", "array", "object"];
    let one = proptest::sample::select(names.to_vec()).prop_map(Value::from);
    let types = prop_oneof![5 => one.clone(), 1 => vec(one, 1..3).prop_map(Value::Array)];
    let leaf = (types, vec(keyword(), 0..3)).prop_map(|(types, keywords)| {
        let mut map: Map<String, Value> = keywords.into_iter().collect();
        map.insert("type".to_owned(), types);
        Value::Object(map)
    });
    leaf.prop_recursive(3, 24, 4, |inner| {
        let name = proptest::sample::select(vec!["a", "b", "c.d", "$e"]).prop_map(str::to_owned);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            vec(inner.clone(), 0..4).prop_map(|branches| json!({"anyOf": branches, "description": "Words."})),
            btree_map(name, inner, 0..4).prop_map(|properties| json!({"type": "object", "properties": properties})),
        ]
    })
}

/// Rewrites the schema keyword by keyword.
fn rewrite(schema: &Value, target: SchemaTarget) -> (Value, Vec<SchemaChange>) {
    let limits = RefLimits { unroll: 1, references: 1, schemas: usize::MAX };
    let mut walker = Walker::new(schema, target, limits);
    let done = walker.schema(Cow::Borrowed(schema), Node::default()).expect("a schema").expect("a schema");
    let (written, mapping) = done.described();
    assert_eq!(mapping, None);
    (serde_json::to_value(&written).expect("JSON"), walker.changes)
}

#[test]
fn unchanged_and_changed_schemas_are_detected() {
    let plain = json!({"type": "object", "properties": {"a": {"type": ["string", "null"], "description": "A."}}, "required": ["a"]});
    assert!(TARGETS.into_iter().all(|target| is_unchanged(&plain, target, 4)));
    let titled = json!({"type": "string", "title": "A"});
    assert_eq!(TARGETS.map(|target| is_unchanged(&titled, target, 4)), [true, true, false]);
    let named = json!({"type": "object", "properties": {"a b": {"type": "string"}}});
    assert_eq!(TARGETS.map(|target| is_unchanged(&named, target, 4)), [false, true, false]);
    let open = json!({"type": "array"});
    assert!(!TARGETS.into_iter().any(|target| is_unchanged(&open, target, 4)));
}

proptest! {
    #[test]
    fn detection_agrees_with_rewriting(schema in schema()) {
        for target in TARGETS {
            if is_unchanged(&schema, target, 4) {
                prop_assert_eq!(rewrite(&schema, target), (schema.clone(), Vec::new()), "{:?}", target);
            }
        }
    }
}
