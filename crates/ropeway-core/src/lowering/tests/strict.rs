//! Strict tools and output schemas.

use serde_json::{Value, json};

use super::*;

fn lower_strictly(schema: Value, dialect: Dialect) -> LoweredTool {
    one(&strict_definition(schema), dialect).expect("a tool")
}

fn why_not(tool: &LoweredTool) -> Option<&ChangeKind> {
    tool.changes.iter().find(|change| change.keyword == "strict").map(|change| &change.kind)
}

fn example() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "title": "Name"},
            "size": {"type": "integer", "minimum": 1, "default": 3},
            "colour": {"enum": ["red", "blue"], "description": "A colour."},
            "kind": {"const": "x"},
            "note": {"type": ["string", "null"]},
            "at": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"anyOf": [{"type": "number"}, {"type": "string", "format": "uri"}]}}, "required": ["x"]},
            "list": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}, "minItems": 2},
        },
        "required": ["name", "at"],
    })
}

#[test]
fn openai_gets_closed_objects_with_nullable_optional_arguments() {
    let tool = lower_strictly(example(), Dialect::Responses);
    assert_eq!(why_not(&tool), None);
    assert_eq!(declared(&tool)["strict"], true);
    assert_eq!(
        schema_of(&tool, Dialect::Responses),
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "size": {"type": ["integer", "null"], "minimum": 1, "description": "(default: 3)"},
                "colour": {"type": ["string", "null"], "enum": ["red", "blue", null], "description": "A colour."},
                "kind": {"type": ["string", "null"], "enum": ["x", null]},
                "note": {"type": ["string", "null"]},
                "at": {
                    "type": "object",
                    "properties": {
                        "x": {"type": "number"},
                        "y": {"anyOf": [{"type": "number"}, {"type": "string", "description": "(format: uri)"}, {"type": "null"}]},
                    },
                    "required": ["x", "y"],
                    "additionalProperties": false,
                },
                "list": {
                    "type": ["array", "null"],
                    "items": {"type": "object", "properties": {"id": {"type": ["string", "null"]}}, "additionalProperties": false, "required": ["id"]},
                    "minItems": 2,
                },
            },
            "required": ["name", "size", "colour", "kind", "note", "at", "list"],
            "additionalProperties": false,
        })
    );
    let written = json!({"name": "n", "size": null, "colour": "red", "kind": null, "note": null, "at": {"x": 1, "y": null}, "list": [{"id": null}, {"id": "a"}]});
    let wanted = json!({"name": "n", "colour": "red", "note": null, "at": {"x": 1}, "list": [{}, {"id": "a"}]});
    assert_eq!(Value::Object(tool.from_wire(arguments(written))), wanted);
}

#[test]
fn a_null_that_an_alternative_accepts_is_kept() {
    let item = |x: Value, required: Value| json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": x}, "required": required, "additionalProperties": false});
    let (text, or_null) = (json!({"type": "string"}), json!({"type": ["string", "null"]}));
    let cases = [
        (item(or_null.clone(), json!(["kind", "x"])), json!({"kind": "b", "x": null})),
        (item(or_null, json!(["kind"])), json!({"kind": "b", "x": null})),
        // No alternative accepts null, so it stands for an absent argument.
        (item(text.clone(), json!(["kind", "x"])), json!({"kind": "b"})),
    ];
    for (other, wanted) in cases {
        let first = item(text.clone(), json!(["kind"]));
        for branches in [json!([first, other]), json!([other, first])] {
            let tool = lower_strictly(
                json!({"properties": {"item": {"anyOf": branches}}, "required": ["item"]}),
                Dialect::Responses,
            );
            assert_eq!(why_not(&tool), None);
            let back = tool.from_wire(arguments(json!({"item": {"kind": "b", "x": null}})));
            assert_eq!(Value::Object(back), json!({"item": wanted}));
        }
    }
}

#[test]
fn anthropic_gets_closed_objects_and_descriptions() {
    let tool = lower_strictly(example(), Dialect::Anthropic);
    assert_eq!(why_not(&tool), None);
    assert_eq!(declared(&tool)["strict"], true);
    assert_eq!(
        schema_of(&tool, Dialect::Anthropic),
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "(minLength: 1)"},
                "size": {"type": "integer", "description": "(minimum: 1, default: 3)"},
                "colour": {"type": "string", "enum": ["red", "blue"], "description": "A colour."},
                "kind": {"const": "x"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "at": {
                    "type": "object",
                    "properties": {"x": {"type": "number"}, "y": {"anyOf": [{"type": "number"}, {"type": "string", "format": "uri"}]}},
                    "required": ["x"],
                    "additionalProperties": false,
                },
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": false},
                    "description": "(minItems: 2)",
                },
            },
            "required": ["name", "at"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn a_schema_that_cannot_be_strict_has_a_reason() {
    let cases = [
        (json!({"properties": {"a": {"type": "object"}}}), "`/properties/a` takes properties of any name"),
        (
            json!({"properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}),
            "`/properties/a` takes properties of any name",
        ),
        (json!({"additionalProperties": true}), "`the whole` takes properties of any name"),
        (json!({"properties": {"a": {"description": "Anything."}}}), "`/properties/a` takes anything"),
        (json!({"properties": {"a": {"type": "array"}}}), "`/properties/a` is a list of anything"),
        (json!({"properties": {"a": {"$ref": "#"}}}), "`/properties/a/properties/a` is recursive or unresolved"),
    ];
    for (schema, why) in cases {
        for dialect in [Dialect::Anthropic, Dialect::Responses, Dialect::Chat] {
            let tool = lower_strictly(schema.clone(), dialect);
            assert_eq!(why_not(&tool), Some(&ChangeKind::Rewritten(format!("false, because {why}"))), "{dialect}");
            let usual = one(&definition(schema.clone()), dialect).expect("a tool");
            assert_eq!(schema_of(&tool, dialect), schema_of(&usual, dialect));
            let declared = declared(&tool);
            assert_eq!(
                if dialect == Dialect::Chat { &declared["function"]["strict"] } else { &declared["strict"] },
                false
            );
        }
    }
}

#[test]
fn strict_tools_respect_the_limits_of_anthropic() {
    let definitions: Vec<ToolDefinition> = (0..25)
        .map(|number| {
            let mut definition = strict_definition(json!({"properties": {"a": {"type": "string"}}, "required": ["a"]}));
            definition.name = format!("tool{number}");
            definition
        })
        .collect();
    let strict = |dialect| lower(&definitions, dialect).tools.iter().filter(|tool| why_not(tool).is_none()).count();
    assert_eq!([Dialect::Anthropic, Dialect::Responses].map(strict), [20, 25]);
}

#[test]
fn an_output_schema_is_strict_if_possible() {
    let schema = json!({"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {}]});
    let output = |dialect| lower_output(&schema, dialect).expect("a schema");
    let told = "(give at least one of these: `a`; or none of these)";
    let chat = output(Dialect::Chat);
    assert_eq!(
        (chat.schema.clone(), chat.strict),
        (
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": false, "required": ["a"], "description": told}),
            true
        )
    );
    assert_eq!(chat.from_wire(json!({"a": null})), json!({}));
    let anthropic = output(Dialect::Anthropic);
    assert_eq!(
        (anthropic.schema, anthropic.strict),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false, "description": told}),
            true
        )
    );
    let gemini = output(Dialect::Gemini);
    assert_eq!(
        (gemini.schema, gemini.strict),
        (json!({"type": "object", "properties": {"a": {"type": "string"}}, "description": told}), false)
    );
    let open = lower_output(&json!({"type": "object", "additionalProperties": {"type": "string"}}), Dialect::Responses);
    assert!(!open.expect("a schema").strict);
    let error = lower_output(&json!({"type": "array"}), Dialect::Chat).expect_err("no object");
    assert_eq!(error.to_string(), "unsupported output schema: its schema describes an array instead of an object");
}
