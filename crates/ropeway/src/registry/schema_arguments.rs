//! The visible part of a schema: the arguments that a model is told of.

use serde_json::{Map, Value};

use crate::tool::Schema;

/// The names of the arguments that a schema speaks of, each once, in its order.
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

/// Takes arguments out of a schema, and leaves a schema that does not speak of them alone.
///
/// What is left refuses nothing that the whole schema would have let pass.
pub(super) fn hide(schema: &mut Schema, names: &[String]) {
    let value = schema.read();
    // The schema may be shared: it is copied only where it is changed.
    if speaks_of(&value, names) {
        let mut value = value.into_owned();
        take_out(&mut value, names);
        *schema = value.into();
    }
}

fn is_named(value: &Value, names: &[String]) -> bool {
    value.as_str().is_some_and(|text| names.iter().any(|name| name == text))
}

fn speaks_of(schema: &Value, names: &[String]) -> bool {
    let Value::Object(schema) = schema else { return false };
    schema.iter().any(|(key, part)| match (key.as_str(), part) {
        ("properties", Value::Object(properties)) => names.iter().any(|name| properties.contains_key(name)),
        ("required", Value::Array(required)) => required.iter().any(|name| is_named(name, names)),
        ("dependentRequired" | "dependencies", Value::Object(dependent)) => {
            names.iter().any(|name| dependent.contains_key(name))
                || dependent.values().filter_map(Value::as_array).flatten().any(|name| is_named(name, names))
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => branches.iter().any(|branch| speaks_of(branch, names)),
        ("then" | "else", branch) => speaks_of(branch, names),
        _ => false,
    })
}

fn take_out(schema: &mut Value, names: &[String]) {
    let Value::Object(map) = schema else { return };
    for (key, part) in std::mem::take(map) {
        let (key, part) = without(key, part, names);
        // No draft needs an empty `required`, and draft 4 forbids it.
        if key != "required" || part.as_array().is_none_or(|required| !required.is_empty()) {
            map.insert(key, part);
        }
    }
}

/// One keyword of a schema, with the arguments taken out.
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
            // Branches that an argument told apart may now both fit.
            if key == "oneOf" && branches.iter().any(|branch| speaks_of(branch, names)) {
                key = "anyOf".to_owned();
            }
            branches.iter_mut().for_each(|branch| take_out(branch, names));
        }
        ("then" | "else", branch) => take_out(branch, names),
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
    fn a_hidden_argument_is_gone_and_the_rest_keeps_its_order() {
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
    fn branches_neither_speak_of_a_hidden_argument_nor_ask_for_it() {
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
    fn a_shared_schema_is_copied_only_to_be_changed() {
        let shared = Schema::from(json!({"properties": {"a": {}}}));
        let mut same = shared.clone();
        hide(&mut same, &["b".to_owned()]);
        assert!(shared.ptr_eq(&same));
        hide(&mut same, &["a".to_owned()]);
        assert_eq!((&*shared, &*same), (&json!({"properties": {"a": {}}}), &json!({"properties": {}})));
    }

    #[test]
    fn odd_schemas_have_no_arguments() {
        for odd in [json!(true), json!({"properties": []}), json!({"anyOf": {"properties": {"a": {}}}})] {
            assert_eq!(arguments(&odd), [""; 0]);
            let mut schema = Schema::from(odd.clone());
            hide(&mut schema, &["a".to_owned()]);
            assert_eq!(*schema, odd);
        }
    }
}
