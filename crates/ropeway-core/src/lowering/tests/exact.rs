//! Exact results of lowering.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_tool_is_declared_as_its_dialect_requires() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let mut definition = definition(schema.clone());
    let tool = |definition: &ToolDefinition, dialect| one(definition, dialect).expect("a tool").json.get().to_owned();
    let schema = serde_json::to_string(&schema).expect("JSON");
    let expected = [
        format!(r#"{{"name":"tool","description":"Does it.","input_schema":{schema}}}"#),
        format!(r#"{{"type":"function","name":"tool","description":"Does it.","parameters":{schema},"strict":false}}"#),
        format!(r#"{{"name":"tool","description":"Does it.","parametersJsonSchema":{schema}}}"#),
        format!(r#"{{"type":"function","function":{{"name":"tool","description":"Does it.","parameters":{schema}}}}}"#),
    ];
    assert_eq!(Dialect::ALL.map(|dialect| tool(&definition, dialect)), expected);
    definition.description = None;
    assert_eq!(tool(&definition, Dialect::Anthropic), format!(r#"{{"name":"tool","input_schema":{schema}}}"#));
}

#[test]
fn provider_options_are_sent_to_their_provider() {
    let mut definition = definition(json!({"type": "object", "properties": {}}));
    let options = json!({
        "anthropic": {"cache_control": {"type": "ephemeral"}, "name": "other", "input_schema": {}},
        "openai": {"strict": false, "x": 1, "y": 1},
        "responses": {"y": 2, "type": "other"},
        "chat": {"y": 3},
        "google": {"behavior": "BLOCKING", "strict": true},
        "gemini": {"description": "Other."},
        "elsewhere": {"z": 1},
    });
    definition.provider_options = arguments(options);
    let tool = |dialect| declared(&one(&definition, dialect).expect("a tool"));
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        Dialect::ALL.map(tool),
        [
            json!({"name": "tool", "description": "Does it.", "input_schema": schema, "cache_control": {"type": "ephemeral"}}),
            json!({"type": "function", "name": "tool", "description": "Does it.", "parameters": schema, "strict": false, "x": 1, "y": 2}),
            json!({"name": "tool", "parametersJsonSchema": schema, "behavior": "BLOCKING", "description": "Other."}),
            json!({"type": "function", "function": {"name": "tool", "description": "Does it.", "parameters": schema, "strict": false, "x": 1, "y": 3}}),
        ]
    );
    let dropped =
        |option: &str| SchemaChange { path: String::new(), keyword: option.to_owned(), kind: ChangeKind::Dropped };
    let report = |dialect| one(&definition, dialect).expect("a tool").changes;
    assert_eq!(report(Dialect::Anthropic), [dropped("name"), dropped("input_schema")]);
    assert_eq!(report(Dialect::Responses), [dropped("type")]);
    assert_eq!(report(Dialect::Gemini), [dropped("strict")]);
}

#[test]
fn nested_openai_options_reach_both_dialects() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let mut definition = definition(schema);
    definition.provider_options = arguments(
        json!({"openai": {"type": "function", "function": {"strict": true}}, "google": {"grounding": false}}),
    );
    let tool = |dialect| one(&definition, dialect).expect("a tool");
    assert_eq!(declared(&tool(Dialect::Chat))["function"]["strict"], true);
    assert_eq!(declared(&tool(Dialect::Responses))["strict"], true);
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Anthropic] {
        assert_eq!(tool(dialect).warnings, [""; 0], "{dialect:?}");
    }
    assert_eq!(declared(&tool(Dialect::Gemini)).get("grounding"), None);
    assert_eq!(
        tool(Dialect::Gemini).warnings,
        ["provider option `google.grounding` is not sent: function declarations do not support grounding"]
    );
}

#[test]
fn unknown_and_dropped_options_are_reported() {
    let mut definition = definition(json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    definition.provider_options = arguments(json!({
        "openai": {"function": {"name": "other", "stric": true}},
        "chat": 3,
        "anthropik": {"cache_control": {}},
    }));
    let lowered = lower([&definition], Dialect::Chat);
    assert_eq!(
        lowered.warnings().collect::<Vec<_>>(),
        [
            "tool `tool`: provider option `chat` is not sent: it is not an object",
            "tool `tool`: provider option `anthropik` is not sent: unknown provider",
            "tool `tool`: provider option `openai.name` is not sent: it is set by the definition of the tool",
            "tool `tool`: provider option `openai.stric` is sent although it is not a known option",
        ]
    );
}

#[test]
fn a_reference_is_inlined_and_its_siblings_win() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x", "description": "Mine."}, "b": {"$ref": "#/properties/a"}},
        "$defs": {"x": {"type": "integer", "minimum": 1, "description": "Theirs."}},
    });
    let tool = one(&definition(schema), Dialect::Anthropic).expect("a tool");
    let x = json!({"description": "Mine.", "type": "integer", "minimum": 1});
    assert_eq!(schema_of(&tool, Dialect::Anthropic), json!({"type": "object", "properties": {"a": x, "b": x}}));
    let change =
        |at: &str, keyword: &str, kind| SchemaChange { path: at.to_owned(), keyword: keyword.to_owned(), kind };
    assert_eq!(
        tool.changes,
        [
            change("/properties/a", "$ref", ChangeKind::Inlined),
            change("/properties/b", "$ref", ChangeKind::Inlined),
            change("/properties/b", "$ref", ChangeKind::Inlined),
            change("", "$defs", ChangeKind::Dropped),
        ]
    );
}

#[test]
fn a_recursive_schema_is_unrolled_twice_and_then_left_open() {
    let schema = json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "description": "A node.", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    });
    let open = json!({"type": "object", "description": "A node. (node again, in the same form)"});
    let node = |next: Value| json!({"type": "object", "description": "A node.", "properties": {"next": next}});
    assert_eq!(lowered_schema(schema.clone(), Dialect::Anthropic)["properties"]["root"], node(node(open)));
    let open = json!({"type": "object", "description": "A node. (node again, in the same form)", "properties": {}, "additionalProperties": true});
    assert_eq!(lowered_schema(schema, Dialect::Chat)["properties"]["root"], node(node(open)));
}

#[test]
fn a_remote_reference_is_left_open_and_described() {
    let schema = json!({"$ref": "https://example.invalid/a.json", "description": "A."});
    let types = json!(["string", "number", "boolean", "object", "array", "null"]);
    assert_eq!(
        property(schema, Dialect::Anthropic),
        json!({"type": types, "description": "A. (as in https://example.invalid/a.json)"})
    );
}

#[test]
fn root_alternatives_are_folded_and_described() {
    let schema = json!({
        "oneOf": [
            {"properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"properties": {"kind": {"const": "square"}, "side": {"type": "number"}, "radius": {"type": "null"}}, "required": ["kind", "side"]},
        ],
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
    });
    for dialect in [Dialect::Anthropic, Dialect::Chat] {
        let tool = one(&definition(schema.clone()), dialect).expect("a tool");
        assert_eq!(
            schema_of(&tool, dialect),
            json!({
                "type": "object",
                "required": ["colour", "kind"],
                "properties": {
                    "colour": {"type": "string"},
                    "kind": {"enum": ["circle", "square"]},
                    "radius": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    "side": {"type": "number"},
                },
            })
        );
        let declared = declared(&tool);
        let function = if dialect == Dialect::Chat { &declared["function"] } else { &declared };
        assert_eq!(
            function["description"],
            "Does it. (give exactly one of these: `kind` = \"circle\" and `radius`; or `kind` = \"square\" and `side` and optionally `radius`)"
        );
    }
}

#[test]
fn parts_of_the_root_are_merged() {
    let schema = json!({"allOf": [
        {"properties": {"a": {"type": "string", "minLength": 2}}, "required": ["a"]},
        {"properties": {"a": {"maxLength": 4}, "b": {"type": "number"}}, "additionalProperties": false},
    ]});
    let a = json!({"type": "string", "minLength": 2, "maxLength": 4});
    let expected = |a: Value| json!({"type": "object", "properties": {"a": a, "b": {"type": "number"}}, "required": ["a"], "additionalProperties": false});
    assert_eq!(lowered_schema(schema.clone(), Dialect::Chat), expected(a));
    let a = json!({"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 4}]});
    assert_eq!(lowered_schema(schema, Dialect::Anthropic), expected(a));
}

#[test]
fn unsupported_keywords_move_to_the_description() {
    let schema = json!({"type": "string", "minLength": 2, "pattern": "^\\d+$", "default": "12", "description": "A number.", "title": "A"});
    assert_eq!(
        property(schema.clone(), Dialect::Gemini),
        json!({"type": "string", "description": "A number. (minLength: 2, pattern: ^\\d+$, default: 12)"})
    );
    assert_eq!(
        property(schema, Dialect::Chat),
        json!({"type": "string", "minLength": 2, "default": "12", "description": "A number. (pattern: ^\\d+$)", "title": "A"})
    );
}

#[test]
fn keywords_of_older_drafts_are_modernised() {
    let schema = json!({"type": "array", "items": [{"type": "number", "minimum": 0, "exclusiveMinimum": true}, {"type": "string"}], "additionalItems": false});
    let prefix = json!([{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]);
    assert_eq!(
        property(schema.clone(), Dialect::Anthropic),
        json!({"type": "array", "prefixItems": prefix, "maxItems": 2})
    );
    assert_eq!(
        property(schema, Dialect::Responses),
        json!({"type": "array", "prefixItems": prefix, "maxItems": 2, "items": {}})
    );
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "dependencies": {"a": ["b"], "b": {"required": ["c"]}}});
    assert_eq!(
        property(schema, Dialect::Chat),
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}})
    );
}

#[test]
fn alternatives_have_no_siblings_for_gemini() {
    let schema = json!({
        "type": "object", "description": "A.", "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
        "oneOf": [{"required": ["x"]}, {"required": ["y"]}, {"type": "string"}],
    });
    let properties = json!({"x": {"type": "string"}, "y": {"type": "string"}});
    let branch = |name: &str| json!({"required": [name], "type": "object", "properties": properties});
    assert_eq!(property(schema, Dialect::Gemini), json!({"description": "A.", "anyOf": [branch("x"), branch("y")]}));
}

#[test]
fn values_unsupported_by_gemini_are_described() {
    assert_eq!(property(json!({"const": "x"}), Dialect::Gemini), json!({"type": "string", "enum": ["x"]}));
    assert_eq!(
        property(json!({"enum": ["x", null]}), Dialect::Gemini),
        json!({"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]})
    );
    assert_eq!(
        property(json!({"type": "boolean", "enum": [true]}), Dialect::Gemini),
        json!({"type": "boolean", "description": "(enum: [true])"})
    );
}

#[test]
fn arguments_below_unevaluated_keywords_are_renamed() {
    let below = json!({"properties": {"$c": {"type": "null"}}, "required": ["$c"]});
    for (schema, own, wire) in [
        (json!({"unevaluatedProperties": below}), json!({"a": {"$c": null}}), json!({"a": {"_c": null}})),
        (
            json!({"properties": {"list": {"type": "array", "unevaluatedItems": below}}}),
            json!({"list": [{"$c": null}]}),
            json!({"list": [{"_c": null}]}),
        ),
    ] {
        let tool = one(&definition(schema), Dialect::Anthropic).expect("a tool");
        let own = arguments(own);
        assert_eq!(Value::Object(tool.to_wire(&own).into_owned()), wire);
        assert_eq!(tool.from_wire(arguments(wire)), own);
    }
}

#[test]
fn arguments_are_renamed_in_both_directions_at_every_depth() {
    let schema = json!({
        "type": "object",
        "properties": {
            "$search": {"type": "object", "properties": {"{{user}}": {"type": "string"}, "open": {"type": "object"}}},
            "list": {"type": "array", "items": {"anyOf": [{"properties": {"a b": {"type": "string"}}}, {"properties": {"a/b": {"type": "string"}}}]}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"ü": {"type": "string"}}}},
            "_search": {"type": "string"},
        },
        "required": ["$search"],
    });
    let own = arguments(json!({
        "$search": {"{{user}}": "x", "open": {"{{user}}": 1}, "other": 2},
        "list": [{"a b": "1"}, {"a/b": "2"}],
        "map": {"ü": {"ü": "3"}},
        "_search": "y",
    }));
    let tool = one(&definition(schema.clone()), Dialect::Anthropic).expect("a tool");
    let wire = tool.to_wire(&own).into_owned();
    assert_eq!(
        Value::Object(wire.clone()),
        json!({
            "_search_bc26366c": {"__user__": "x", "open": {"{{user}}": 1}, "other": 2},
            "list": [{"a_b": "1"}, {"a_b_e2480c78": "2"}],
            "map": {"ü": {"_": "3"}},
            "_search": "y",
        })
    );
    assert_eq!(tool.from_wire(wire), own);
    let lowered = schema_of(&tool, Dialect::Anthropic);
    assert_eq!(lowered["required"], json!(["_search_bc26366c"]));
    assert_eq!(
        lowered["properties"]["_search_bc26366c"]["properties"]["__user__"],
        json!({"type": "string", "description": "(name: {{user}})"})
    );
    // Chat Completions accept any name.
    let tool = one(&definition(schema), Dialect::Chat).expect("a tool");
    assert!(matches!(tool.to_wire(&own), Cow::Borrowed(_)));
    assert_eq!(tool.from_wire(own.clone()), own);
}

#[test]
fn unchanged_arguments_are_borrowed() {
    let tool = one(&definition(json!({"properties": {"a": {"type": "string"}}})), Dialect::Anthropic).expect("a tool");
    let own = arguments(json!({"a": "x", "b": null}));
    assert!(matches!(tool.to_wire(&own), Cow::Borrowed(_)));
    assert_eq!(tool.from_wire(own.clone()), own);
}

#[test]
fn a_truncated_or_taken_name_ends_with_a_stable_hash() {
    let long = "x".repeat(70);
    let definitions = ["a.b", "a/b", "a_b", "2fa", &long].map(ToolDefinition::new);
    let names = |dialect| lower(&definitions, dialect).tools.into_iter().map(|tool| tool.wire_name).collect::<Vec<_>>();
    let cut = format!("{}_c07d9e28", "x".repeat(55));
    assert_eq!(names(Dialect::Chat), ["a_b_e27bcb35", "a_b_e2480c78", "a_b", "2fa", &cut]);
    assert_eq!(names(Dialect::Anthropic), ["a_b_e27bcb35", "a_b_e2480c78", "a_b", "2fa", &long]);
    assert_eq!(names(Dialect::Gemini), ["a.b", "a_b_e2480c78", "a_b", "_2fa", &long]);
}

#[test]
fn a_toolset_is_lowered_once_per_dialect() {
    let tools = Toolset::new([definition(json!({}))]);
    let first = tools.lowered(Dialect::Chat);
    assert!(Arc::ptr_eq(&first, &tools.lowered(Dialect::Chat)));
    assert!(!Arc::ptr_eq(&first, &tools.lowered(Dialect::Responses)));
}
