//! Random schemas.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::schema::Validator;

/// None of these is the replacement for another one.
const NAMES: [&str; 9] = [
    "a",
    "b",
    "$c",
    "d e",
    "",
    "type",
    "ü",
    "a_very_long_name_that_goes_on_and_on_and_on_until_it_is_longer_than_it_may_be",
    "x.y",
];

fn name() -> impl Strategy<Value = String> {
    proptest::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..9).prop_map(Value::from),
        Just(json!(2.5)),
        name().prop_map(Value::from),
        Just(json!("^[a-z]+$")),
        Just(json!("(?=x)")),
        Just(json!([])),
        Just(json!({})),
    ]
}

fn type_name() -> impl Strategy<Value = Value> {
    let names = ["string", "number", "integer", "boolean", "object", "array", "null", "str", "thing"];
    let one = proptest::sample::select(names.to_vec()).prop_map(Value::from);
    prop_oneof![4 => one.clone(), 1 => vec(one, 0..4).prop_map(Value::Array)]
}

fn reference() -> impl Strategy<Value = Value> {
    let targets =
        ["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/nowhere", "#anchor", "other.json", "#/allOf/0", "#/items"];
    proptest::sample::select(targets.to_vec()).prop_map(Value::from)
}

/// A keyword without subschemas and a value for it, valid or not.
fn plain() -> impl Strategy<Value = (String, Value)> {
    let keywords = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
        "required",
        "dependentRequired",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "const",
        "enum",
        "nullable",
        "$schema",
        "$id",
        "$anchor",
        "x-other",
        "example",
        "contentEncoding",
    ];
    (proptest::sample::select(keywords.to_vec()), scalar()).prop_map(|(keyword, value)| (keyword.to_owned(), value))
}

fn object(entries: Vec<(String, Value)>) -> Value {
    Value::Object(entries.into_iter().collect::<Map<_, _>>())
}

pub(super) fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => scalar(),
        6 => (type_name(), vec(plain(), 0..3)).prop_map(|(types, mut entries)| {
            entries.push(("type".to_owned(), types));
            object(entries)
        }),
        1 => reference().prop_map(|target| json!({"$ref": target})),
        1 => vec(scalar(), 0..4).prop_map(|values| json!({"enum": values})),
    ];
    leaf.prop_recursive(4, 60, 5, |inner| {
        let map = vec((name(), inner.clone()), 0..4).prop_map(object).boxed();
        let list = vec(inner.clone(), 0..4).prop_map(Value::Array).boxed();
        let one = inner.boxed();
        let of_one = ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "contentSchema"];
        let of_list = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];
        let of_map = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies", "properties"];
        let entry = prop_oneof![
            2 => (proptest::sample::select(of_one.to_vec()), one).prop_map(|(keyword, value)| (keyword.to_owned(), value)),
            2 => (proptest::sample::select(of_list.to_vec()), list).prop_map(|(keyword, value)| (keyword.to_owned(), value)),
            4 => (proptest::sample::select(of_map.to_vec()), map).prop_map(|(keyword, value)| (keyword.to_owned(), value)),
            1 => plain(),
            1 => type_name().prop_map(|types| ("type".to_owned(), types)),
            1 => vec(name(), 0..4).prop_map(|names| ("required".to_owned(), json!(names))),
            1 => reference().prop_map(|target| ("$ref".to_owned(), target)),
        ];
        vec(entry, 0..6).prop_map(object)
    })
}

/// Any value, valid or not.
fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::Array), vec((name(), inner), 0..5).prop_map(object),]
    })
}

/// Removes everything that lowering interprets differently: older drafts, ids, and implied types.
fn modern(schema: Value) -> Value {
    match schema {
        Value::Object(map) => {
            let older = ["dependencies", "additionalItems", "nullable", "$id", "$schema"];
            let kept = map.into_iter().filter(|(keyword, _)| !older.contains(&keyword.as_str()));
            let mut map: Map<String, Value> = kept.map(|(keyword, value)| (keyword, modern(value))).collect();
            let types = [("properties", "object"), ("items", "array"), ("prefixItems", "array")];
            for (keyword, types) in types {
                if map.contains_key(keyword) && !map.contains_key("type") {
                    map.insert("type".to_owned(), json!(types));
                }
            }
            Value::Object(map)
        }
        Value::Array(items) => items.into_iter().map(modern).collect(),
        other => other,
    }
}

/// Returns `false` if an alternative leaves out a property that another one declares and that the arguments have.
///
/// Lowering folds alternatives at the root into one object. A property then has the type that some alternative declares, although
/// an alternative that does not mention it would allow any value.
fn is_declared_by_all(schema: &Value, arguments: &Arguments) -> bool {
    let mut forms = vec![BTreeSet::new()];
    collect_forms(schema, &mut forms);
    arguments
        .keys()
        .all(|name| forms.iter().all(|form| form.contains(name)) || !forms.iter().any(|form| form.contains(name)))
}

/// Combines each set of declared names with each alternative of a schema.
fn collect_forms(schema: &Value, forms: &mut Vec<BTreeSet<String>>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        forms.iter_mut().for_each(|form| form.extend(properties.keys().cloned()));
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        collect_forms(part, forms);
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(alternatives) = schema.get(keyword).and_then(Value::as_array) else { continue };
        let before = std::mem::take(forms);
        for alternative in alternatives {
            let mut own = before.clone();
            collect_forms(alternative, &mut own);
            forms.extend(own);
        }
    }
}

proptest! {
    #[test]
    fn any_schema_follows_the_rules_or_is_omitted(schema in schema(), strict in any::<bool>()) {
        let definition = if strict { strict_definition(schema.clone()) } else { definition(schema.clone()) };
        for dialect in Dialect::ALL {
            let Ok(tool) = one(&definition, dialect) else { continue };
            let declared = declared(&tool);
            let broken = rules::broken(dialect, &declared);
            prop_assert!(broken.is_empty(), "{dialect}: {schema}\nbecame {declared}\n{broken:?}");
            prop_assert_eq!(&*definition.input_schema, &schema);
            let again = one(&definition, dialect).expect("a tool");
            prop_assert_eq!(again.json.get(), tool.json.get());
        }
    }

    /// See [`is_declared_by_all`] for the values that are left out.
    #[test]
    fn a_value_that_matches_a_schema_matches_the_lowered_one(schema in schema(), values in vec(vec((name(), value()), 0..5), 8)) {
        let schema = modern(schema);
        let original = Validator::compile(&schema);
        let definition = definition(schema.clone());
        for dialect in Dialect::ALL {
            let Ok(tool) = one(&definition, dialect) else { continue };
            let lowered = schema_of(&tool, dialect);
            let checked = Validator::compile(&lowered);
            for entries in &values {
                let own: Arguments = entries.iter().cloned().collect();
                let wire = tool.to_wire(&own).into_owned();
                prop_assert_eq!(&tool.from_wire(wire.clone()), &own);
                if !is_declared_by_all(&schema, &own) {
                    continue;
                }
                if original.warning().is_none() && original.validate(&Value::Object(own.clone())).is_ok() {
                    let status = checked.validate(&Value::Object(wire.clone()));
                    prop_assert!(status.is_ok(), "{dialect}: {schema}\nbecame {lowered}\n{}\n{status:?}", Value::Object(wire));
                }
            }
        }
    }

    #[test]
    fn names_are_valid_and_distinct(names in proptest::collection::hash_set(".{0,140}", 1..40)) {
        let definitions: Vec<ToolDefinition> = names.iter().map(ToolDefinition::new).collect();
        for dialect in Dialect::ALL {
            let lowered = lower(&definitions, dialect);
            prop_assert_eq!(lowered.tools.len(), names.len());
            let mut seen = std::collections::HashSet::new();
            for tool in &lowered.tools {
                prop_assert!(seen.insert(&tool.wire_name));
                let broken = rules::broken(dialect, &declared(tool));
                prop_assert!(broken.is_empty(), "{broken:?}");
            }
            // The order does not matter.
            let reversed = lower(definitions.iter().rev(), dialect);
            for tool in &lowered.tools {
                prop_assert_eq!(&reversed.get(&tool.name).expect("a tool").wire_name, &tool.wire_name);
            }
        }
    }

    #[test]
    fn the_name_of_a_removed_tool_is_valid_in_every_dialect(name in ".{0,140}") {
        let wire = wire_name(&name);
        for dialect in Dialect::ALL {
            prop_assert!(NameRules::of_tools(dialect).accepts(&wire), "{wire}");
        }
    }
}
