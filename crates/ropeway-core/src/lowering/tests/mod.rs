//! Tests of lowering as a whole.

mod corpus;
mod exact;
mod hostile;
mod random;
mod strict;
mod table;
mod unchanged;
mod unusual;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::name::NameRules;
use super::*;
use crate::message::Dialect;
use crate::tool::{Arguments, ToolDefinition};

fn definition(schema: Value) -> ToolDefinition {
    ToolDefinition::new("tool").with_description("Does it.").with_input_schema(schema)
}

/// Like `definition`, with strict mode requested.
fn strict_definition(schema: Value) -> ToolDefinition {
    let mut definition = definition(schema);
    for provider in ["anthropic", "openai"] {
        definition.provider_options.insert(provider.to_owned(), json!({"strict": true}));
    }
    definition
}

/// Lowers one tool.
fn one(definition: &ToolDefinition, dialect: Dialect) -> Result<LoweredTool, String> {
    let mut lowered = lower([definition], dialect);
    match lowered.tools.pop() {
        Some(tool) => Ok(tool),
        None => Err(lowered.omitted.pop().expect("an omitted tool").reason),
    }
}

/// Returns the declaration of a tool in a request.
fn declared(tool: &LoweredTool) -> Value {
    serde_json::from_str(tool.json.get()).expect("JSON")
}

/// Returns the schema in the declaration of a tool.
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

/// Lowers a schema.
fn lowered_schema(schema: Value, dialect: Dialect) -> Value {
    schema_of(&one(&definition(schema), dialect).expect("a tool"), dialect)
}

/// Lowers the schema of one property.
fn property(schema: Value, dialect: Dialect) -> Value {
    lowered_schema(json!({"properties": {"a": schema}}), dialect)["properties"]["a"].take()
}

fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
