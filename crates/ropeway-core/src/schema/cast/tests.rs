use proptest::prelude::*;
use serde_json::json;

use super::pass::MAX_WARNINGS;
use super::*;
use crate::schema::Validator;
use crate::schema::bounds::tests::{nested, object};

/// Returns the cast value, and the changes with their locations.
fn done(schema: Value, value: Value) -> (Value, Vec<String>) {
    let cast = cast(&schema, &value);
    let edits = cast.changes.into_iter().map(|change| match change {
        ValueChange::Filled { path } => format!("{path} filled"),
        ValueChange::Coerced { path, from } => format!("{path} was {from}"),
        ValueChange::Dropped { path } => format!("{path} dropped"),
    });
    let warnings = cast.warnings.into_iter().map(|warning| format!("{} {}", warning.path, warning.reason));
    (cast.value.into_owned(), edits.chain(warnings).collect())
}

fn casts(schema: Value, value: Value, to: Value, notes: &[&str]) {
    let (after, said) = done(schema, value);
    assert_eq!((after, said), (to, notes.iter().map(ToString::to_string).collect()));
}

fn stays(schema: Value, value: Value) {
    assert!(matches!(cast(&schema, &value).value, Cow::Borrowed(_)));
    casts(schema, value.clone(), value, &[]);
}

#[test]
fn a_scalar_is_converted_if_that_is_unambiguous() {
    let kind = |kind: &str| json!({"type": kind});
    casts(kind("integer"), json!("3"), json!(3), &[" was \"3\""]);
    casts(kind("integer"), json!("-3"), json!(-3), &[" was \"-3\""]);
    casts(kind("integer"), json!("3.0"), json!(3), &[" was \"3.0\""]);
    casts(kind("integer"), json!(3.0), json!(3), &[" was 3.0"]);
    casts(kind("integer"), json!("18446744073709551615"), json!(u64::MAX), &[" was \"18446744073709551615\""]);
    casts(kind("number"), json!("3.5"), json!(3.5), &[" was \"3.5\""]);
    casts(kind("number"), json!("1e3"), serde_json::from_str("1e3").expect("JSON"), &[" was \"1e3\""]);
    casts(kind("boolean"), json!("true"), json!(true), &[" was \"true\""]);
    casts(kind("boolean"), json!("False"), json!(false), &[" was \"False\""]);
    casts(kind("string"), json!(3), json!("3"), &[" was 3"]);
    casts(kind("string"), json!(true), json!("true"), &[" was true"]);
    casts(json!({"type": ["integer", "null"]}), json!("3"), json!(3), &[" was \"3\""]);
    stays(kind("number"), json!(3));
    stays(kind("number"), json!(3.0));
    stays(json!({"type": ["integer", "string"]}), json!("3"));
}

#[test]
fn a_value_that_cannot_be_cast_is_kept_with_a_warning() {
    for (kind, value) in [
        ("integer", json!("three")),
        ("integer", json!("")),
        ("integer", json!(" 3")),
        ("integer", json!("0x3")),
        ("integer", json!("03")),
        ("integer", json!("3.5")),
        ("integer", json!(3.5)),
        ("number", json!("0.12345678901234567890")),
        ("number", json!("NaN")),
        ("number", json!(true)),
        ("boolean", json!("yes")),
        ("boolean", json!(1)),
        ("string", json!(null)),
        ("string", json!({"a": 1})),
        ("array", json!("a")),
        ("object", json!("{}")),
        ("null", json!("null")),
    ]
    .into_iter()
    // With arbitrary precision, a number can hold all digits.
    .chain((!crate::json::KEEPS_DIGITS).then(|| ("integer", json!("123456789012345678901234567890"))))
    {
        let (after, said) = done(json!({"type": kind}), value.clone());
        assert_eq!(after, value);
        let [warning] = &said[..] else { panic!("{kind} {value}: {said:?}") };
        assert!(warning.starts_with(" must be "), "{warning}");
    }
    casts(
        json!({"properties": {"a": {"items": {"type": "integer"}}}}),
        json!({"a": [1, "x"]}),
        json!({"a": [1, "x"]}),
        &["/a/1 must be an integer, not a string"],
    );
}

#[test]
fn null_is_kept_where_it_is_allowed() {
    stays(json!({"type": ["string", "null"]}), json!(null));
    stays(json!({"type": "string", "nullable": true}), json!(null));
    stays(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(null));
    stays(json!({"enum": ["a", null]}), json!(null));
    casts(json!({"type": "integer"}), json!(null), json!(null), &[" must be an integer, not null"]);
}

#[test]
fn a_missing_property_gets_its_default() {
    let schema = json!({"properties": {
        "a": {"default": 1},
        "b": {"type": "object", "default": {}, "properties": {"c": {"type": "integer", "default": "2"}}},
        "d": {"$ref": "#/$defs/d"},
        "e": {"type": "string"},
    }, "required": ["a"], "$defs": {"d": {"type": "array", "default": []}}});
    casts(
        schema,
        json!({"z": 0}),
        json!({"z": 0, "a": 1, "b": {"c": 2}, "d": []}),
        &["/a filled", "/b filled", "/d filled"],
    );
}

#[test]
fn a_present_property_keeps_its_value() {
    stays(json!({"properties": {"a": {"default": 1}, "b": {"default": 2}}}), json!({"a": null, "b": false}));
}

#[test]
fn a_default_that_its_own_schema_forbids_is_not_used() {
    stays(json!({"properties": {"a": {"type": "string", "default": null}}}), json!({}));
    stays(json!({"properties": {"a": {"type": "integer", "minimum": 1, "default": 0}}}), json!({}));
}

#[test]
fn a_required_property_that_is_missing_is_a_warning() {
    casts(json!({"required": ["a"]}), json!({}), json!({}), &[" required property `a` is missing"]);
}

#[test]
fn nested_objects_and_arrays_are_cast() {
    let schema = json!({"properties": {"rows": {"type": "array", "items": {"type": "object", "properties": {
        "id": {"type": "integer"}, "tags": {"items": {"type": "string"}},
    }}}}});
    casts(
        schema,
        json!({"rows": [{"id": "1", "tags": ["a", 2]}, {"id": 3}], "more": [1]}),
        json!({"rows": [{"id": 1, "tags": ["a", "2"]}, {"id": 3}], "more": [1]}),
        &["/rows/0/id was \"1\"", "/rows/0/tags/1 was 2"],
    );
}

#[test]
fn tuples_are_cast_item_by_item() {
    let newer = json!({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}});
    let older = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "integer"}, {"type": "string"}],
        "additionalItems": {"type": "boolean"},
    });
    for schema in [newer, older] {
        casts(schema, json!(["1", 2, "true"]), json!([1, "2", true]), &["/0 was \"1\"", "/1 was 2", "/2 was \"true\""]);
    }
    stays(json!({"prefixItems": [{"type": "integer"}]}), json!([1, "a", null]));
    casts(json!({"prefixItems": [{}], "items": false}), json!([1, 2]), json!([1, 2]), &["/1 is not allowed"]);
}

#[test]
fn only_forbidden_properties_are_dropped() {
    let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
    casts(closed, json!({"b/c": 1, "a": 2}), json!({"a": 2}), &["/b~1c dropped"]);
    stays(json!({"properties": {"a": {}}}), json!({"b": 1}));
    stays(json!({"patternProperties": {"^b": {}}, "additionalProperties": false}), json!({"b": 1}));
    casts(json!({"properties": {"a": false}}), json!({"a": 1}), json!({"a": 1}), &["/a is not allowed"]);
}

#[test]
fn additional_properties_are_cast_to_their_schema() {
    let schema = json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}});
    casts(schema, json!({"a": "1", "b": "2"}), json!({"a": "1", "b": 2}), &["/b was \"2\""]);
}

#[test]
fn a_constant_is_matched_across_types() {
    casts(json!({"enum": [1, 2, 3]}), json!("3"), json!(3), &[" was \"3\""]);
    casts(json!({"const": "3"}), json!(3), json!("3"), &[" was 3"]);
    casts(json!({"const": true}), json!("true"), json!(true), &[" was \"true\""]);
    casts(
        json!({"type": "integer", "enum": [3, "3"]}),
        json!(true),
        json!(true),
        &[" must be one of `3`, `\"3\"`, not `true`"],
    );
    stays(json!({"enum": [1]}), json!(1.0));
    casts(json!({"enum": ["a", "b"]}), json!("c"), json!("c"), &[" must be one of `\"a\"`, `\"b\"`, not `\"c\"`"]);
}

#[test]
fn a_union_casts_to_the_matching_alternative() {
    stays(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), json!("3"));
    let shapes = json!({"oneOf": [
        {"properties": {"kind": {"const": "circle"}, "size": {"type": "number"}, "unit": {"default": "m"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "text"}, "size": {"type": "string"}}, "required": ["kind"]},
    ]});
    casts(
        shapes.clone(),
        json!({"kind": "circle", "size": 3}),
        json!({"kind": "circle", "size": 3, "unit": "m"}),
        &["/unit filled"],
    );
    stays(shapes, json!({"kind": "text", "size": "3"}));
}

#[test]
fn a_union_casts_to_its_only_possible_alternative() {
    casts(json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), json!("3"), json!(3), &[" was \"3\""]);
    casts(json!({"anyOf": [{"type": "integer"}, {"type": "number"}]}), json!("3"), json!(3), &[" was \"3\""]);
    let tagged = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "n": {"type": "boolean"}}, "required": ["kind", "n"]},
    ]});
    casts(tagged.clone(), json!({"kind": "a", "n": "3"}), json!({"kind": "a", "n": 3}), &["/n was \"3\""]);
    casts(tagged, json!({"kind": "c", "n": "3"}), json!({"kind": "c", "n": "3"}), &[" matches none of 2 alternatives"]);
}

#[test]
fn an_ambiguous_union_is_left_alone() {
    let two = json!({"anyOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"b": {"default": 1}}}]});
    stays(two, json!({}));
    casts(
        json!({"anyOf": [{"type": "string"}, {"const": 1.5}, {"const": true}]}),
        json!([]),
        json!([]),
        &[" matches none of 3 alternatives"],
    );
}

#[test]
fn all_parts_of_an_intersection_apply() {
    let schema = json!({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"default": 2}}}]});
    casts(schema, json!({"a": "1"}), json!({"a": 1, "b": 2}), &["/a was \"1\"", "/b filled"]);
}

#[test]
fn recursive_references_are_followed() {
    let schema = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"properties": {"n": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}},
    });
    casts(
        schema,
        json!({"n": "1", "next": {"n": "2", "next": null}}),
        json!({"n": 1, "next": {"n": 2, "next": null}}),
        &["/n was \"1\"", "/next/n was \"2\""],
    );
    let older = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#/definitions/a", "type": "string"}, "definitions": {"a": {"type": "integer"}}});
    casts(older, json!(["1"]), json!([1]), &["/0 was \"1\""]);
    stays(json!({"$ref": "https://example.com/elsewhere"}), json!("1"));
    stays(json!({"$ref": "#/nowhere"}), json!("1"));
}

#[test]
fn a_contradictory_schema_changes_nothing() {
    let (after, _) = done(json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), json!(3));
    assert_eq!(after, json!(3));
}

#[test]
fn exponential_work_is_aborted() {
    let doubling = |keyword: &str| json!({"properties": {"a": {"type": "integer"}}, keyword: [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
    let deep = nested(60, |inner| object("a", inner));
    let deeper = nested(10_000, |inner| object("a", inner));
    let deepest_schema = nested(10_000, |inner| object("items", inner));
    let work = "not cast: too much work";
    for (schema, value, reason) in [
        (json!({"$ref": "#"}), &json!(1), work),
        (json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), &json!({"a": 1}), work),
        (json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "default": {}}), &json!({}), work),
        (doubling("allOf"), &*deep, work),
        (doubling("anyOf"), &*deep, work),
        (doubling("oneOf"), &*deep, work),
        (json!({"properties": {"a": {"$ref": "#"}}}), &*deeper, "not cast: more than 128 levels deep"),
        (
            json!({"additionalProperties": {"properties": {"x": {"default": "x".repeat(1_000_000)}}}}),
            &(0..2000).map(|at| (at.to_string(), json!({}))).collect(),
            work,
        ),
    ] {
        let cast = cast(&schema, value);
        assert!(matches!(cast.value, Cow::Borrowed(_)));
        // The work is counted in steps: without a limit, doubling 60 times does not end.
        let reasons: Vec<&str> = cast.warnings.iter().map(|warning| &*warning.reason).collect();
        assert_eq!((cast.changes.len(), reasons), (0, vec![reason]), "{schema}");
    }
    let warnings = cast(&deepest_schema, &json!([])).warnings;
    assert!(warnings[0].reason.starts_with("not cast: the schema is too large"), "{warnings:?}");
}

#[test]
fn the_number_of_warnings_is_limited() {
    let (_, said) = done(json!({"items": {"type": "integer"}}), json!(vec!["x"; 10_000]));
    assert_eq!(said.len(), MAX_WARNINGS);
}

/// Any JSON without floats, which a cast may write in another notation, with names and texts that schemas use.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        prop::sample::select(vec!["", "1", "-2", "true", "a", "x y"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop::sample::select(vec!["a", "b", "c"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|entries| entries.into_iter().collect()),
        ]
    })
}

/// Any schema, with or without defaults.
fn any_schema(defaults: bool) -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        kind.clone().prop_map(|kind| json!({"type": kind})),
        prop::collection::vec(kind, 1..3).prop_map(|mut types| {
            types.dedup();
            json!({"type": types})
        }),
        any_value().prop_map(|value| json!({"const": value})),
        prop::collection::vec(any_value(), 1..4).prop_map(|values| json!({"enum": values})),
        (-2..2_i64).prop_map(|least| json!({"minimum": least, "maxLength": 1, "minItems": 1})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/$defs/d"})),
        any_value().prop_map(move |value| if defaults { json!({"default": value}) } else { json!({"title": "x"}) }),
    ];
    let schema = leaf.prop_recursive(3, 24, 3, |inner| {
        let some = prop::collection::vec(inner.clone(), 1..3);
        let key = prop::sample::select(vec!["a", "b", "c"]);
        let properties = prop::collection::vec((key, inner.clone()), 0..3)
            .prop_map(|entries| entries.into_iter().collect::<Value>());
        prop_oneof![
            (properties.clone(), inner.clone())
                .prop_map(|(properties, others)| json!({"properties": properties, "additionalProperties": others})),
            properties.prop_map(|properties| json!({"type": "object", "properties": properties, "required": ["a"]})),
            inner.clone().prop_map(|items| json!({"items": items})),
            (some.clone(), inner).prop_map(|(first, items)| json!({"prefixItems": first, "items": items})),
            some.clone().prop_map(|some| json!({"anyOf": some})),
            some.clone().prop_map(|some| json!({"oneOf": some})),
            some.prop_map(|some| json!({"allOf": some, "type": ["object", "array", "string", "integer"]})),
        ]
    });
    (schema.clone(), schema).prop_map(|(mut schema, definition)| {
        if let Some(map) = schema.as_object_mut() {
            map.insert("$defs".to_owned(), json!({"d": definition}));
        }
        schema
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_matching_value_stays_unchanged(schema in any_schema(false), value in any_value()) {
        let validator = Validator::compile(&schema);
        prop_assume!(validator.warning().is_none() && validator.validate(&value).is_ok());
        prop_assert_eq!(&*cast(&schema, &value).value, &value);
    }

    #[test]
    fn casting_is_idempotent(schema in any_schema(true), value in any_value()) {
        let once = cast(&schema, &value);
        let twice = cast(&schema, &once.value);
        prop_assert_eq!(&*twice.value, &*once.value);
        prop_assert!(twice.changes.is_empty());
    }

    #[test]
    fn any_json_is_accepted_as_a_schema(schema in any_value(), value in any_value()) {
        let schema = json!({"type": schema, "properties": schema, "anyOf": schema, "$ref": schema, "items": schema, "enum": schema});
        let _ = cast(&schema, &value);
    }
}
