//! Finds and hides arguments in an input schema.

use serde_json::{Map, Value};

use ropeway_core::tool::Schema;

/// Returns the argument names in a schema, without duplicates, in the order in which they appear.
pub(super) fn arguments(schema: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    collect(schema, &mut names);
    names
}

fn collect<'a>(schema: &'a Value, names: &mut Vec<&'a str>) {
    let Value::Object(schema) = schema else { return };
    for (key, part) in schema {
        match (key.as_str(), part) {
            ("properties", Value::Object(properties)) => {
                for name in properties.keys().map(String::as_str) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                branches.iter().for_each(|branch| collect(branch, names));
            }
            ("then" | "else", branch) => collect(branch, names),
            _ => {}
        }
    }
}

/// Removes arguments from a schema.
///
/// The result accepts everything that the original schema accepts.
pub(super) fn hide(schema: &mut Schema, names: &[String]) {
    let value = schema.read();
    // The schema may be shared, so it is copied only if it changes.
    if mentions(&value, names) {
        let mut value = value.into_owned();
        remove_arguments(&mut value, names);
        *schema = value.into();
    }
}

fn is_named(value: &Value, names: &[String]) -> bool {
    value.as_str().is_some_and(|text| names.iter().any(|name| name == text))
}

fn mentions(schema: &Value, names: &[String]) -> bool {
    let Value::Object(schema) = schema else { return false };
    schema.iter().any(|(key, part)| match (key.as_str(), part) {
        ("properties", Value::Object(properties)) => names.iter().any(|name| properties.contains_key(name)),
        ("required", Value::Array(required)) => required.iter().any(|name| is_named(name, names)),
        ("dependentRequired" | "dependencies", Value::Object(dependent)) => {
            names.iter().any(|name| dependent.contains_key(name))
                || dependent.values().filter_map(Value::as_array).flatten().any(|name| is_named(name, names))
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => branches.iter().any(|branch| mentions(branch, names)),
        ("then" | "else", branch) => mentions(branch, names),
        _ => false,
    })
}

fn remove_arguments(schema: &mut Value, names: &[String]) {
    let Value::Object(map) = schema else { return };
    for (key, part) in std::mem::take(map) {
        let (key, part) = without(key, part, names);
        // An empty `required` has no effect, and draft 4 forbids it.
        if key != "required" || part.as_array().is_none_or(|required| !required.is_empty()) {
            map.insert(key, part);
        }
    }
}

/// Returns one keyword of a schema without the arguments.
fn without(mut key: String, mut part: Value, names: &[String]) -> (String, Value) {
    match (key.as_str(), &mut part) {
        ("properties", Value::Object(properties)) => remove(properties, names),
        ("required", Value::Array(required)) => required.retain(|name| !is_named(name, names)),
        ("dependentRequired" | "dependencies", Value::Object(dependent)) => {
            remove(dependent, names);
            for required in dependent.values_mut().filter_map(Value::as_array_mut) {
                required.retain(|name| !is_named(name, names));
            }
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
            // Branches that only differed in a hidden argument may now both match.
            if key == "oneOf" && branches.iter().any(|branch| mentions(branch, names)) {
                key = "anyOf".to_owned();
            }
            branches.iter_mut().for_each(|branch| remove_arguments(branch, names));
        }
        ("then" | "else", branch) => remove_arguments(branch, names),
        _ => {}
    }
    (key, part)
}

fn remove(map: &mut Map<String, Value>, names: &[String]) {
    for name in names {
        map.shift_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(schema: &str, names: &[&str]) -> String {
        let mut schema = Schema::from(serde_json::from_str::<Value>(schema).expect("JSON"));
        hide(&mut schema, &names.iter().map(ToString::to_string).collect::<Vec<_>>());
        schema.to_string()
    }

    #[test]
    fn hiding_an_argument_keeps_the_order_of_keys() {
        let schema = r#"{"$schema":"x","required":["b","a"],"type":"object","properties":{"c":{},"b":{"z":1,"y":2},"a":{}},"additionalProperties":false}"#;
        assert_eq!(
            hidden(schema, &["b"]),
            r#"{"$schema":"x","required":["a"],"type":"object","properties":{"c":{},"a":{}},"additionalProperties":false}"#
        );
        assert_eq!(
            hidden(schema, &["a", "b"]),
            r#"{"$schema":"x","type":"object","properties":{"c":{}},"additionalProperties":false}"#
        );
        assert_eq!(hidden(schema, &["d"]), schema);
    }

    #[test]
    fn hidden_arguments_are_removed_from_branches() {
        assert_eq!(
            hidden(
                r#"{"allOf":[{"properties":{"a":{},"b":{}}}],"oneOf":[{"required":["a"]},{"required":["b"]}],"then":{"required":["a","b"]}}"#,
                &["a"]
            ),
            r#"{"allOf":[{"properties":{"b":{}}}],"anyOf":[{},{"required":["b"]}],"then":{"required":["b"]}}"#
        );
        assert_eq!(
            hidden(r#"{"dependentRequired":{"a":["b"],"b":["a","c"]}}"#, &["a"]),
            r#"{"dependentRequired":{"b":["c"]}}"#
        );
        let untouched = r#"{"oneOf":[{"required":["a"]},{"required":["b"]}],"properties":{"c":{}}}"#;
        assert_eq!(hidden(untouched, &["d"]), untouched);
    }

    #[test]
    fn a_shared_schema_is_copied_only_if_it_changes() {
        let shared = Schema::from(json!({"properties": {"a": {}}}));
        let mut same = shared.clone();
        hide(&mut same, &["b".to_owned()]);
        assert!(shared.ptr_eq(&same));
        hide(&mut same, &["a".to_owned()]);
        assert_eq!((&*shared, &*same), (&json!({"properties": {"a": {}}}), &json!({"properties": {}})));
    }

    #[test]
    fn invalid_schemas_have_no_arguments() {
        for odd in [json!(true), json!({"properties": []}), json!({"anyOf": {"properties": {"a": {}}}})] {
            assert_eq!(arguments(&odd), [""; 0]);
            let mut schema = Schema::from(odd.clone());
            hide(&mut schema, &["a".to_owned()]);
            assert_eq!(*schema, odd);
        }
    }
}
