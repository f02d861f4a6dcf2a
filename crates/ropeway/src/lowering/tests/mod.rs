//! Tests of lowering as a whole.

mod corpus;
mod exact;
mod hostile;
mod odd;
mod random;
mod strict;
mod table;
mod untouched;

use serde_json::{Value, json};

use super::*;

/// A tool with this schema.
fn definition(schema: Value) -> ToolDefinition {
    ToolDefinition::new("tool").with_description("Does it.").with_input_schema(schema)
}

/// The same, that asks for the model to be held to its schema.
fn strict_definition(schema: Value) -> ToolDefinition {
    let mut definition = definition(schema);
    for provider in ["anthropic", "openai"] {
        definition.provider_options.insert(provider.to_owned(), json!({"strict": true}));
    }
    definition
}

/// One tool, lowered.
fn one(definition: &ToolDefinition, dialect: Dialect) -> Result<LoweredTool, String> {
    let mut lowered = lower([definition], dialect);
    match lowered.tools.pop() {
        Some(tool) => Ok(tool),
        None => Err(lowered.left_out.pop().expect("a tool that is left out").why),
    }
}

/// The tool as it stands in a request.
fn declared(tool: &LoweredTool) -> Value {
    serde_json::from_str(tool.json.get()).expect("JSON")
}

/// Its schema.
fn schema_of(tool: &LoweredTool, dialect: Dialect) -> Value {
    let mut declared = declared(tool);
    let pointer = match dialect {
        Dialect::Anthropic => "/input_schema",
        Dialect::Responses => "/parameters",
        Dialect::Chat => "/function/parameters",
        Dialect::Gemini => "/parametersJsonSchema",
    };
    declared.pointer_mut(pointer).expect("a schema").take()
}

/// A schema, lowered.
fn lowered_schema(schema: Value, dialect: Dialect) -> Value {
    schema_of(&one(&definition(schema), dialect).expect("a tool"), dialect)
}

/// One property's schema, lowered.
fn property(schema: Value, dialect: Dialect) -> Value {
    lowered_schema(json!({"properties": {"a": schema}}), dialect)["properties"]["a"].take()
}

fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
