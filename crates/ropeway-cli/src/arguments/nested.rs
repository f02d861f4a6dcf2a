//! Nested arguments: `customer.name=Ada` and `items.0.id=3`.

use ropeway_core::tool::Arguments;
use serde_json::{Map, Value};

use crate::describe::schema::{SchemaRoot, alternatives, json_types, members, property, resolve};

/// Maximum nested name size in bytes.
const LONGEST_NAME: usize = 500;

/// Maximum nested name depth. The rest is one key.
const DEEPEST: usize = 32;

/// One step into an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// A value's path inside an argument.
#[derive(Debug)]
pub(crate) struct NestedArgument<'s> {
    steps: Vec<Step>,
    /// The value's schema, if known.
    pub(crate) schema: Option<&'s Value>,
}

impl<'s> NestedArgument<'s> {
    /// Returns the place that a dotted name stands for. An argument that has this very name is not nested, and
    /// only an argument that can be an object or a list has values inside.
    pub(crate) fn find(root: &'s Value, name: &str) -> Option<Self> {
        if name.len() > LONGEST_NAME || !name.contains('.') || property(root, name).is_some() {
            return None;
        }
        let (argument, inner, rest) = split_known(name, |head| property(root, head), root)?;
        let mut path = Self { steps: vec![Step::Key(argument.to_owned())], schema: None };
        path.schema = path.walk(Some(inner), root, rest);
        Some(path)
    }

    /// Adds the steps in `rest` and returns the value's schema.
    fn walk(&mut self, schema: Option<&'s Value>, root: &'s Value, rest: &str) -> Option<&'s Value> {
        let known = |name: &str| schema.and_then(|schema| declared(schema, root, name));
        let other = |name: &str| schema.and_then(|schema| undeclared(schema, root, name));
        if known(rest).is_none() && self.steps.len() < DEEPEST {
            if let Some((head, inner, rest)) = split_known(rest, known, root) {
                self.push(schema, root, head);
                return self.walk(Some(inner), root, rest);
            }
            if let Some((head, more)) = rest.split_once('.').filter(|(head, more)| !head.is_empty() && !more.is_empty())
                && known(head).is_none()
                && other(head).is_none_or(|inner| is_container(inner, root))
            {
                self.push(schema, root, head);
                return self.walk(other(head), root, more);
            }
        }
        self.push(schema, root, rest);
        known(rest).or_else(|| other(rest))
    }

    fn push(&mut self, schema: Option<&Value>, root: &Value, step: &str) {
        let kinds = schema.map(|schema| json_types(schema, root)).unwrap_or_default();
        let has = |wanted: &str| kinds.iter().any(|kind| kind == wanted);
        self.steps.push(match step.parse() {
            Ok(index) if has("array") && !has("object") => Step::Index(index),
            _ => Step::Key(step.to_owned()),
        });
    }

    /// Sets the value in a call's arguments. Returns the problem if another value is in its way.
    pub(crate) fn set(&self, arguments: &mut Arguments, value: Value) -> Result<(), String> {
        let mut whole = Value::Object(std::mem::take(arguments));
        let done = insert(&mut whole, &self.steps, value);
        if let Value::Object(changed) = whole {
            *arguments = changed;
        }
        done
    }
}

/// Splits a name behind the longest part that is known and can have values inside.
fn split_known<'n, 's>(
    name: &'n str,
    known: impl Fn(&str) -> Option<&'s Value>,
    root: &Value,
) -> Option<(&'n str, &'s Value, &'n str)> {
    let dots = name.rmatch_indices('.').map(|(at, _)| at).filter(|at| at + 1 < name.len());
    dots.map(|at| (&name[..at], &name[at + 1..])).find_map(|(head, rest)| {
        let inner = known(head).filter(|inner| is_container(inner, root))?;
        Some((head, inner, rest))
    })
}

/// Returns `true` if the schema allows it to be an object or a list.
fn is_container(schema: &Value, root: &Value) -> bool {
    let kinds = json_types(schema, root);
    kinds.is_empty() || kinds.iter().any(|kind| kind == "object" || kind == "array")
}

/// Returns a schema and its alternatives.
fn parts<'s>(schema: &'s Value, root: &'s Value) -> impl Iterator<Item = &'s Value> {
    let schema = resolve(schema, root);
    let others = alternatives(schema).into_iter().flatten().map(move |part| resolve(part, root));
    std::iter::once(schema).chain(others)
}

/// Returns the schema of a field by its name.
fn declared<'s>(schema: &'s Value, root: &'s Value, name: &str) -> Option<&'s Value> {
    let field = |part: &'s Value| {
        let fields = members(part, &SchemaRoot::new(root)).properties;
        fields.into_iter().find(|(known, _)| *known == name).map(|(_, field)| field)
    };
    parts(schema, root).find_map(field)
}

/// Returns the schema for an item, or for a field without a declared name.
fn undeclared<'s>(schema: &'s Value, root: &'s Value, name: &str) -> Option<&'s Value> {
    let index = name.parse::<usize>().ok();
    parts(schema, root).find_map(|part| {
        let listed = index.and_then(|index| part.get("prefixItems")?.get(index));
        let item = listed.or_else(|| index.and(part.get("items")));
        item.filter(|item| item.is_object()).or_else(|| members(part, &SchemaRoot::new(root)).others)
    })
}

fn insert(place: &mut Value, steps: &[Step], value: Value) -> Result<(), String> {
    match (steps, place) {
        ([], place) => {
            *place = value;
            Ok(())
        }
        ([Step::Key(_), ..], place @ Value::Null) => {
            *place = Value::Object(Map::new());
            insert(place, steps, value)
        }
        ([Step::Key(name), rest @ ..], Value::Object(fields)) => {
            insert(fields.entry(name.as_str()).or_insert(Value::Null), rest, value)
        }
        ([Step::Index(_), ..], place @ Value::Null) => {
            *place = Value::Array(Vec::new());
            insert(place, steps, value)
        }
        ([Step::Index(index), rest @ ..], Value::Array(items)) => {
            // Items before it would be unknown.
            if *index > items.len() {
                return Err(format!("item {} comes first", items.len()));
            }
            if *index == items.len() {
                items.push(Value::Null);
            }
            insert(&mut items[*index], rest, value)
        }
        ([Step::Key(_), ..], _) => Err("another argument sets a value that is not an object".to_owned()),
        ([Step::Index(_), ..], _) => Err("another argument sets a value that is not a list".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "properties": {
                "customer": {"$ref": "#/$defs/person"},
                "maybe": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
                "a.b": {"type": "integer"},
                "a": {"type": "object", "properties": {"b.c": {"type": "object"}, "b": {"type": "string"}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "items": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
                "text": {"type": "string"}, "any": {}}})
    }

    /// Returns the arguments that set one name, and its value's type.
    fn set(name: &str) -> Option<(Value, Option<Value>)> {
        let schema = schema();
        let nested = NestedArgument::find(&schema, name)?;
        let mut arguments = Arguments::new();
        nested.set(&mut arguments, json!(1)).expect("set");
        Some((Value::Object(arguments), nested.schema.map(|schema| schema["type"].clone())))
    }

    #[test]
    fn a_dotted_name_is_a_field_of_an_object() {
        let text = Some(json!("string"));
        assert_eq!(set("customer.name"), Some((json!({"customer": {"name": 1}}), text.clone())));
        assert_eq!(set("maybe.name"), Some((json!({"maybe": {"name": 1}}), text.clone())));
        assert_eq!(set("customer.other"), Some((json!({"customer": {"other": 1}}), None)));
        assert_eq!(set("items.0.id"), Some((json!({"items": [{"id": 1}]}), Some(json!("integer")))));
        assert_eq!(set("any.x.y"), Some((json!({"any": {"x": {"y": 1}}}), None)));
        assert_eq!(set("labels.app.io/name"), Some((json!({"labels": {"app.io/name": 1}}), text)));
    }

    #[test]
    fn the_longest_name_of_the_schema_wins() {
        assert_eq!(set("a.b"), None);
        assert_eq!(set("a.b.c"), Some((json!({"a": {"b.c": 1}}), Some(json!("object")))));
        assert_eq!(set("a.b.c.d"), Some((json!({"a": {"b.c": {"d": 1}}}), None)));
        assert_eq!(set("a.b.x"), Some((json!({"a": {"b.x": 1}}), None)));
    }

    #[test]
    fn other_names_with_a_dot_stay_as_they_are() {
        for name in ["text.x", "unknown.x", "customer.", ".name", ".", "customer"] {
            assert_eq!(set(name), None, "{name}");
        }
        assert_eq!(set(&format!("any.{}", "x".repeat(1000))), None);
        let deep = set(&format!("any{}", ".x".repeat(100))).expect("nested").0;
        assert!(deep.to_string().contains(".x.x"), "{deep}");
    }

    #[test]
    fn values_that_exclude_each_other_are_a_problem() {
        let schema = schema();
        let mut arguments = json!({"customer": 3}).as_object().expect("an object").clone();
        let mut set = |name: &str| NestedArgument::find(&schema, name).expect("nested").set(&mut arguments, json!(1));
        assert!(set("customer.name").is_err());
        assert_eq!(set("items.1.id"), Err("item 0 comes first".to_owned()));
        assert_eq!(set("items.18446744073709551615.id"), Err("item 0 comes first".to_owned()));
        assert_eq!([set("items.0.id"), set("items.1.id")], [Ok(()), Ok(())]);
        assert_eq!(Value::Object(arguments), json!({"customer": 3, "items": [{"id": 1}, {"id": 1}]}));
    }
}
