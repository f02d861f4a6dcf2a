//! Schemas that stay as they are. Most do, and knowing it costs a fraction of writing them down anew.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::form::{Fate, Form};
use super::keywords::MAX_ENUM;
use super::plain::{Kind, is_deep};
use super::types::Types;
use super::walker::Walker;

/// How many values or names are compared with each other.
const FEW: usize = 32;

/// How many schemas may stand inside each other here; the rest is looked at one by one.
const MAX_LEVELS: usize = 4;

impl<'d> Walker<'d> {
    /// The schema, if nothing about it has to be changed.
    pub(super) fn untouched(&mut self, schema: &Cow<'d, Value>) -> Option<&'d Value> {
        let Cow::Borrowed(schema) = *schema else { return None };
        let is_simple = !self.form.is_strict() && !self.is_deep() && stays(schema, self.form, MAX_LEVELS);
        if is_simple {
            self.spend_all(schema);
        }
        is_simple.then_some(schema)
    }

    fn spend_all(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.spend_text(text.len()),
            Value::Array(items) => items.iter().for_each(|item| self.spend_all(item)),
            Value::Object(map) => {
                self.spend(map.len() + 1);
                map.values().for_each(|value| self.spend_all(value));
            }
            _ => {}
        }
    }
}

/// Does a schema stay as it is?
pub(super) fn stays(schema: &Value, form: Form, levels: usize) -> bool {
    let Value::Object(map) = schema else { return false };
    let Some(levels) = levels.checked_sub(1) else { return false };
    let Some(types) = map.get("type") else { return map.is_empty() || alternatives_stay(map, form, levels) };
    if !Types::is_proper(types) {
        return false;
    }
    let types = Types::read(types);
    let is_complete = (!types.has(Types::ARRAY) || map.contains_key("items"))
        && (!types.has(Types::OBJECT) || map.contains_key("properties"));
    is_complete && map.iter().all(|(keyword, value)| keyword_stays(map, types, keyword, value, form, levels))
}

/// Are there alternatives that stay as they are, and nothing else but a description?
fn alternatives_stay(map: &Map<String, Value>, form: Form, levels: usize) -> bool {
    let stay = |branches: &Vec<Value>| {
        let are_different = |(at, branch): (usize, &Value)| !branches[..at].contains(branch);
        (2..=8).contains(&branches.len())
            && branches.iter().enumerate().all(are_different)
            && branches.iter().all(|branch| stays(branch, form, levels))
    };
    map.iter().all(|(keyword, value)| match keyword.as_str() {
        "anyOf" => value.as_array().is_some_and(stay),
        "description" => value.is_string(),
        "title" | "default" => form.is_lenient() && is_plain(keyword, value),
        _ => false,
    }) && map.contains_key("anyOf")
}

/// Is a keyword that has no schema inside what it should be?
fn is_plain(keyword: &str, value: &Value) -> bool {
    Kind::of(keyword).is_some_and(|kind| kind.is(value)) && !is_deep(value)
}

fn keyword_stays(
    map: &Map<String, Value>,
    types: Types,
    keyword: &str,
    value: &Value,
    form: Form,
    levels: usize,
) -> bool {
    match keyword {
        "type" => true,
        "description" => value.is_string(),
        "enum" => types == Types::STRING && value.as_array().is_some_and(|values| are_different_strings(values)),
        "items" => types.has(Types::ARRAY) && stays(value, form, levels),
        "properties" => {
            types.has(Types::OBJECT) && value.as_object().is_some_and(|map| properties_stay(map, form, levels))
        }
        "required" => {
            let declared = map.get("properties").and_then(Value::as_object);
            let is_declared = |name: &Value| {
                name.as_str().is_some_and(|name| declared.is_some_and(|declared| declared.contains_key(name)))
            };
            let names = value.as_array().filter(|_| types.has(Types::OBJECT));
            names.is_some_and(|names| are_different_strings(names) && names.iter().all(is_declared))
        }
        "additionalProperties" => types.has(Types::OBJECT) && value.is_boolean(),
        "pattern" | "format" => match value.as_str().filter(|_| types.has(Types::STRING)) {
            Some(text) if keyword == "pattern" => form.takes_pattern(text),
            Some(text) => form.takes_format(text),
            None => false,
        },
        "exclusiveMinimum" | "exclusiveMaximum" | "minimum" | "maximum" => {
            types.has(Types::INTEGER) && value.is_number() && form.fate(keyword) == Fate::Keep
        }
        "minItems" | "maxItems" => types.has(Types::ARRAY) && value.is_u64(),
        _ => form.is_lenient() && is_plain(keyword, value),
    }
}

fn properties_stay(properties: &Map<String, Value>, form: Form, levels: usize) -> bool {
    let is_name = |name: &str| form.alphabet().is_none_or(|alphabet| alphabet.takes(name));
    properties.iter().all(|(name, schema)| is_name(name) && stays(schema, form, levels))
}

/// Is this a list of strings, not empty, all different?
fn are_different_strings(values: &[Value]) -> bool {
    if values.is_empty() || !values.iter().all(Value::is_string) {
        return false;
    }
    if values.len() <= FEW {
        return values.iter().enumerate().all(|(at, value)| !values[..at].contains(value));
    }
    let mut seen = HashSet::new();
    values.len() <= MAX_ENUM && values.iter().filter_map(Value::as_str).all(|value| seen.insert(value))
}
