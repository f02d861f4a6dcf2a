//! Targets for server-provided JSON Schemas: validating, casting, lowering.

use serde_json::Value;

use ropeway_core::lowering::{lower, rules};
use ropeway_core::message::Dialect;
use ropeway_core::schema::{Validator, cast};
use ropeway_core::tool::ToolDefinition;

/// JSON Schema keywords.
pub(super) const TOKENS: &[&str] = &[
    "\n---\n",
    "\"type\":",
    "\"object\"",
    "\"array\"",
    "\"string\"",
    "\"integer\"",
    "\"number\"",
    "\"boolean\"",
    "\"null\"",
    "\"properties\":{",
    "\"required\":[",
    "\"items\":",
    "\"prefixItems\":[",
    "\"enum\":[",
    "\"const\":",
    "\"default\":",
    "\"anyOf\":[",
    "\"oneOf\":[",
    "\"allOf\":[",
    "\"not\":",
    "\"if\":",
    "\"then\":",
    "\"else\":",
    "\"$ref\":\"#\"",
    "\"$ref\":\"#/$defs/a\"",
    "\"$defs\":{",
    "\"definitions\":{",
    "\"additionalProperties\":",
    "\"patternProperties\":{",
    "\"pattern\":",
    "\"format\":",
    "\"minimum\":",
    "\"maximum\":",
    "\"minItems\":",
    "\"maxLength\":",
    "\"multipleOf\":",
    "\"$schema\":\"http://json-schema.org/draft-07/schema#\"",
    "\"description\":",
    "\"x-mcp-header\":",
    "\"unevaluatedProperties\":false",
    "\"dependentRequired\":{",
    "\"$id\":",
    "\"$anchor\":",
    "true",
    "false",
    "null",
    "1e3",
    "-0",
    "\"3\"",
    "{}",
];

fn schema_and_value(data: &[u8]) -> Option<(Value, Value)> {
    let text = super::input::text(data);
    let (schema, value) = super::input::split_input(&text);
    Some((serde_json::from_str(schema).ok()?, serde_json::from_str(value).ok()?))
}

/// Any schema compiles, and each problem points into the value.
pub(super) fn validate(data: &[u8]) {
    let Some((schema, value)) = schema_and_value(data) else { return };
    let validator = Validator::compile(&schema);
    if let Err(problems) = validator.validate(&value) {
        assert!((1..=8).contains(&problems.len()), "{} problems", problems.len());
        for problem in problems {
            assert!(value.pointer(&problem.path).is_some(), "no {:?} in {value}", problem.path);
        }
    }
}

/// A cast is idempotent, reports all changes, and never breaks a matching value.
pub(super) fn cast_value(data: &[u8]) {
    let Some((schema, value)) = schema_and_value(data) else { return };
    let once = cast(&schema, &value);
    assert_eq!(once.changes.is_empty(), *once.value == value, "{:?}", once.changes);
    let twice = cast(&schema, &once.value);
    assert!(twice.changes.is_empty() && twice.value == once.value, "casting again: {:?}", twice.changes);
    let validator = Validator::compile(&schema);
    // A validation that takes too long is aborted and passes, which only these keywords can cause.
    let is_quick = !["pattern", "$ref"].iter().any(|keyword| schema.to_string().contains(keyword));
    if is_quick && validator.warning().is_none() && validator.validate(&value).is_ok() {
        assert_eq!(validator.validate(&once.value), Ok(()), "a value that fits was cast to {}", once.value);
    }
}

/// In every dialect a tool follows the provider's rules, is the same each time, and its arguments round-trip.
pub(super) fn lowering(data: &[u8]) {
    let text = super::input::text(data);
    let (name, schema) = super::input::split_input(&text);
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let name = if name.is_empty() { "tool" } else { name };
    let tools = [
        ToolDefinition::new(name).with_input_schema(schema.clone()),
        ToolDefinition::new("other").with_output_schema(schema),
    ];
    for dialect in Dialect::ALL {
        let lowered = lower(&tools, dialect);
        assert_eq!(lowered.json(), lower(&tools, dialect).json(), "lowering twice differs");
        assert_eq!(lowered.tools.len() + lowered.omitted.len(), tools.len());
        let list: Vec<Value> = serde_json::from_str(&format!("[{}]", lowered.json())).expect("lowered tools are JSON");
        for tool in &list {
            let broken = rules::broken(dialect, tool);
            assert!(broken.is_empty(), "{dialect:?}: {broken:?}: {tool}");
        }
        for tool in &lowered.tools {
            let arguments =
                serde_json::Map::from_iter([("a".to_owned(), Value::from(1)), ("b".to_owned(), Value::Null)]);
            let _ = tool.from_wire(tool.to_wire(&arguments).into_owned());
        }
    }
}
