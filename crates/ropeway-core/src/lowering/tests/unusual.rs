//! Unusual schemas: those that real servers send, and those that are careless or hostile.

use serde_json::{Value, json};

use super::*;

/// Schemas that describe callable tools in every dialect.
pub(super) fn odd() -> Vec<Value> {
    let mut all = vec![
        json!(true),
        json!({}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
        json!({"type": "object"}),
        json!({"type": ["object", "null"], "properties": null}),
        json!({"type": ["null", "object"], "required": "all"}),
        json!({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}),
        json!({"type": "objekt", "properties": [], "required": "all"}),
        json!({"properties": {"a": {"type": "any"}, "b": {"type": ["int", "none"]}, "c": {"type": "file"}, "d": {"type": 4}}}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "object", "properties": {"x": {"type": "string"}}}}}),
        json!({"$ref": "#/$defs/nowhere"}),
        json!({"$ref": "https://example.invalid/schema.json"}),
        json!({"$ref": 4}),
        json!({"properties": {"a": {"$ref": "https://example.invalid/a.json", "description": "A."}, "b": {"$ref": "b.json"}}}),
        json!({"properties": {"a": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"type": "integer", "minimum": 1}}}),
        json!({"properties": {"a": {"type": "object", "properties": {"x": {"type": "string"}}}, "b": {"$ref": "#/properties/a", "description": "As a."}}}),
        json!({"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "boolean"}}}),
        json!({"$id": "https://example.invalid/root.json", "properties": {"a": {"$ref": "item.json"}, "b": {"$ref": "root.json#/$defs/i"}}, "$defs": {"i": {"$id": "item.json", "type": "string"}}}),
        json!({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "string"}, "next": {"$ref": "#/$defs/n"}}}}, "properties": {"list": {"$ref": "#/$defs/n"}}}),
        json!({"type": "object", "properties": {"child": {"$ref": "#"}, "children": {"type": "array", "items": {"$ref": "#"}}}}),
        json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}}),
        json!({"allOf": [{"$ref": "#"}, {"properties": {"a": {"type": "string"}}}]}),
        json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
        json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
            {"type": "null"},
        ]}),
        json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, false, true], "$defs": {"a": {"properties": {"x": {}}}}}),
        json!({"anyOf": [], "oneOf": {}, "allOf": 3}),
        json!({"allOf": [{"properties": {"a": {"minLength": 1}}, "required": ["a"]}, {"properties": {"a": {"type": "string", "maxLength": 4}}, "required": ["a"]}]}),
        json!({"not": {"required": ["a"]}, "enum": [{}], "const": {}, "if": {"required": ["b"]}, "then": {"required": ["c"]}, "else": false}),
        json!({"properties": {"a": {"not": {"type": "string"}}, "b": {"not": {"$ref": "#"}}, "c": {"if": {"type": "string", "pattern": "x"}, "then": {"minLength": 3}}}}),
        json!({"properties": {"a": {"type": "array"}, "b": {"type": ["array", "string"]}, "c": {"items": {"type": "string"}}, "d": {"type": "array", "items": true}, "e": {"type": "array", "items": false}}}),
        json!({"properties": {"t": {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": false}}}),
        json!({"properties": {"t": {"type": "array", "items": [{"type": "number"}], "additionalItems": {"type": "null"}}, "u": {"prefixItems": [], "items": {}}}}),
        json!({"properties": {"t": {"type": "array", "prefixItems": [{"type": "number"}, false], "items": false, "minItems": 2, "maxItems": 9}}}),
        json!({"properties": {"n": {"type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}, "m": {"type": "number", "exclusiveMaximum": true}}}),
        json!({"properties": {"a": true, "b": false, "c": {}, "d": null, "e": 4, "f": "string", "g": []}, "required": ["b", "c"]}),
        json!({"properties": {"a": {"type": "object"}, "b": {"type": "object", "additionalProperties": {"type": "string"}}, "c": {"type": "object", "properties": {}, "additionalProperties": false}}}),
        json!({"properties": {"a": {"type": "string", "nullable": true}, "b": {"nullable": true}, "c": {"type": ["string", "null"], "enum": ["x", null]}}}),
        json!({"properties": {"a": {"enum": ["x", 1, null, true, {"y": 1}, [1]]}, "b": {"enum": []}, "c": {"enum": "x"}, "d": {"type": "boolean", "enum": [true]}, "e": {"type": "string", "enum": [1, 2]}, "f": {"enum": ["x", "x"]}, "g": {"type": "string", "enum": ["x", 4]}}}),
        json!({"properties": {"a": {"const": "x"}, "b": {"const": 4}, "c": {"const": null}, "d": {"const": {"x": 1}}, "e": {"type": "string", "const": "x", "enum": ["x", "y"]}}}),
        json!({"properties": {"a": {"type": "string", "minLength": "2", "maxLength": -1, "pattern": "((", "format": 4, "title": [], "default": null, "examples": "x"}, "b": {"type": "number", "multipleOf": 0, "minimum": "1"}, "c": {"type": "string", "minLength": 2.0, "description": {"en": "x"}}}}),
        json!({"properties": {"a": {"type": "string", "pattern": "^(?=x)y$"}, "b": {"type": "string", "pattern": "^[a-z]+$"}, "c": {"type": "string", "pattern": "abc"}, "d": {"type": "string", "format": "uri"}, "e": {"type": "string", "format": "path"}, "f": {"type": "string", "format": "date-time"}}}),
        json!({"properties": {"a": {"type": "string", "pattern": r"^\\d{3}$"}, "b": {"type": "string", "pattern": r"^\(?[0-9]+\)?$"}, "c": {"type": "string", "pattern": "^[(?]$"}, "d": {"type": "string", "pattern": r"^\\\d$"}}}),
        json!({"patternProperties": {"^x-": {"type": "string"}, "(?<a>": {}}, "additionalProperties": false, "properties": {"m": {"type": "object", "patternProperties": {"^[a-z]+$": {"type": "string"}}, "additionalProperties": false}}}),
        json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "dependentRequired": {"x": ["y"]}, "properties": {"a": {}, "b": {}, "c": {}, "d": {}}}),
        json!({"dependentRequired": {"x": "y"}, "dependentSchemas": {"$a": {"properties": {"$b": {"type": "string"}}}}, "properties": {"$a": {}}, "propertyNames": {"pattern": "^[$a-z]+$"}}),
        json!({"unevaluatedProperties": false, "properties": {"a": {"type": "array", "unevaluatedItems": {"type": "string"}}}, "minProperties": 1, "maxProperties": 3}),
        json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "contains": {"const": "x"}, "minContains": 1, "maxContains": 2, "uniqueItems": true}}}),
        json!({"properties": {"a": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png", "contentSchema": {"type": "object"}}, "b": {"type": "string", "deprecated": true, "readOnly": true, "example": "x", "x-secret": true, "discriminator": {"propertyName": "t"}}}}),
        json!({"properties": {"$vectorSearch": {"type": "object", "properties": {"{{user}}": {"type": "string"}, "_vectorSearch": {}}}, "": {"type": "string"}, "ü": {}, "ö": {}, "a b": {"type": "array", "items": {"properties": {"c/d": {}}}}, "1": {}}, "required": ["$vectorSearch", "ü"]}),
        json!({"properties": {"type": {"type": "string"}, "properties": {"type": "object", "properties": {"$ref": {"type": "string"}}}, "required": {"type": "boolean"}, "enum": {"type": "array", "items": {"type": "string"}}}, "required": ["type", "undeclared", "type", 4]}),
        json!({"properties": {"a": {"type": "object", "anyOf": [{"properties": {"x": {"type": "string"}}, "required": ["x"]}, {"required": ["y"]}, {"type": "string"}], "properties": {"y": {"type": "number"}}, "description": "A."}}}),
        json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "oneOf": [{"minLength": 1}, {"maxLength": 4}], "default": "x", "title": "A"}}}),
        json!({"properties": {"a": {"allOf": [{"type": "string"}, {"type": "number"}]}, "b": {"anyOf": [{"allOf": [{"const": 1}, {"const": 2}]}, {"type": "string"}]}, "c": {"anyOf": [false]}}}),
        json!({"properties": {"a": {"allOf": [{"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"anyOf": [{"required": ["z"]}]}, {"pattern": "^a$"}, {"pattern": "^b$"}, {"if": {}, "then": {}}, {"if": false}]}}}),
        json!({"properties": {"a": {"type": "array", "properties": {"x": {"type": "string"}}, "required": ["x"]}, "b": {"type": "object", "items": {"type": "string"}, "minLength": 4}}}),
    ];
    // At the maximum depth of the parser.
    let deep =
        (0..38).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    all.push(deep);
    all
}

#[test]
fn every_unusual_schema_follows_the_rules() {
    let schemas = odd();
    assert!(schemas.len() >= 40);
    for schema in &schemas {
        for dialect in Dialect::ALL {
            let definition = definition(schema.clone());
            let tool = one(&definition, dialect).unwrap_or_else(|why| panic!("{dialect}: {schema}: {why}"));
            let declared = declared(&tool);
            assert_eq!(rules::broken(dialect, &declared), [""; 0], "{dialect}: {schema}\nbecame {declared}");
            assert_eq!(*definition.input_schema, *schema, "the original is unchanged");
        }
    }
}

#[test]
fn every_unusual_schema_is_strict_or_has_a_reason() {
    let mut strict = 0;
    for schema in odd() {
        for dialect in Dialect::ALL {
            let tool = one(&strict_definition(schema.clone()), dialect)
                .unwrap_or_else(|why| panic!("{dialect}: {schema}: {why}"));
            let declared = declared(&tool);
            assert_eq!(rules::broken(dialect, &declared), [""; 0], "{dialect}: {schema}\nbecame {declared}");
            let function = if dialect == Dialect::Chat { &declared["function"] } else { &declared };
            let says_why = tool.changes.iter().any(|change| change.keyword == "strict");
            match &function["strict"] {
                Value::Bool(true) => strict += 1,
                Value::Bool(false) => assert!(says_why, "{dialect}: {schema}"),
                none => assert!(none.is_null() && dialect == Dialect::Gemini),
            }
        }
    }
    assert!(strict > 20, "{strict}");
}

#[test]
fn a_pattern_with_an_escaped_backslash_before_a_letter_is_kept() {
    let pattern = |text: &str| json!({"properties": {"a": {"type": "string", "pattern": text}}});
    // A backslash followed by `d` three times; an optional parenthesis; a set; a backslash followed by a digit.
    for (text, is_kept) in [(r"^\\d{3}$", true), (r"^\(?a$", true), ("^[(?]$", true), (r"^\\\d$", false)] {
        for dialect in [Dialect::Anthropic, Dialect::Responses, Dialect::Chat] {
            let tool = one(&definition(pattern(text)), dialect).expect("a tool");
            assert_eq!(rules::broken(dialect, &declared(&tool)), [""; 0], "{dialect}: {text}");
            let kept = schema_of(&tool, dialect)["properties"]["a"].get("pattern") == Some(&json!(text));
            assert_eq!(kept, is_kept, "{dialect}: {text}");
        }
    }
    // Argument validation interprets it in the same way.
    let validator = crate::schema::Validator::compile(&pattern(r"^\\d{3}$"));
    assert!(validator.validate(&json!({"a": r"\ddd"})).is_ok());
    assert!(validator.validate(&json!({"a": r"\123"})).is_err());
}

#[test]
fn a_tool_that_cannot_be_called_is_omitted_with_a_reason() {
    let why = |schema: Value| one(&definition(schema), Dialect::Anthropic).expect_err("an omitted tool");
    assert_eq!(why(json!(false)), "its schema allows nothing");
    assert_eq!(why(json!({"allOf": [{"const": 1}, {"const": 2}]})), "its schema allows nothing");
    assert_eq!(why(json!({"type": "string"})), "its schema describes a string instead of an object");
    assert_eq!(why(json!(["type"])), "its schema is neither an object nor a boolean");
    assert_eq!(
        why(json!({"anyOf": [{"type": "string"}, false]})),
        "its schema has alternatives, and none of them is an object"
    );
}

#[test]
fn an_omitted_tool_does_not_affect_others() {
    let mut definitions =
        vec![definition(json!({})), definition(json!(false)), definition(json!({})), definition(json!({}))];
    for (number, definition) in definitions.iter_mut().enumerate().take(3) {
        definition.name = format!("tool{number}");
    }
    definitions[3].name = "tool0".to_owned();
    let lowered = lower(&definitions, Dialect::Chat);
    let names: Vec<&str> = lowered.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["tool0", "tool2"]);
    let omitted = |name: &str, why: &str| OmittedTool { name: name.to_owned(), reason: why.to_owned() };
    assert_eq!(
        lowered.omitted,
        [omitted("tool1", "its schema allows nothing"), omitted("tool0", "another tool has the same name")]
    );
    let list: Vec<Value> = serde_json::from_str(&format!("[{}]", lowered.json())).expect("JSON");
    assert_eq!(list, lowered.tools.iter().map(declared).collect::<Vec<_>>());
}

#[test]
fn alternatives_with_pattern_properties_are_not_closed() {
    let schema = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false, "required": ["b"]},
    ]});
    for dialect in Dialect::ALL {
        let tool = one(&definition(schema.clone()), dialect).expect("a tool");
        assert_eq!(schema_of(&tool, dialect).get("additionalProperties"), None, "{dialect}");
        let told = "(give at least one of these: `a` and optionally names that match `^x-`; or `b`)";
        assert!(tool.json.get().contains(told), "{}", tool.json);
    }
}

#[test]
fn too_many_or_too_deep_alternatives_leave_an_object_open() {
    let form = |name: String| json!({"type": "object", "properties": {name.clone(): {"type": "string"}, "all": {}}, "additionalProperties": false, "required": [name, "all"]});
    let many: Vec<Value> = (0..120).map(|number| form(format!("a{number}"))).collect();
    let deep = (0..8).fold(form("a".to_owned()), |inner, _| json!({"anyOf": [inner]}));
    let few = json!({"anyOf": [form("a".to_owned()), form("b".to_owned())]});
    for (schema, is_open) in [(few, false), (json!({"anyOf": [{"anyOf": many}]}), true), (deep, true)] {
        let tool = one(&definition(schema), Dialect::Anthropic).expect("a tool");
        let lowered = schema_of(&tool, Dialect::Anthropic);
        let open = (lowered.get("additionalProperties").is_none(), lowered.get("required").is_none());
        assert_eq!(open, (is_open, is_open), "{lowered}");
    }
}
