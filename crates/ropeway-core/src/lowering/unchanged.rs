//! Detects schemas that need no change. Most need none, and detecting that is much cheaper than rewriting them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::keywords::MAX_ENUM;
use super::simple_keywords::{ValueKind, is_deep};
use super::target::{KeywordAction, SchemaTarget};
use super::types::Types;
use super::walker::Walker;

/// Maximum number of values or names that are compared with each other.
const FEW: usize = 32;

/// Maximum depth that is checked at once; deeper schemas are lowered level by level.
const MAX_LEVELS: usize = 4;

impl<'d> Walker<'d> {
    /// Returns the schema, if it needs no change.
    pub(super) fn unchanged(&mut self, schema: &Cow<'d, Value>) -> Option<&'d Value> {
        let Cow::Borrowed(schema) = *schema else { return None };
        let is_simple = !self.target.is_strict() && !self.is_deep() && is_unchanged(schema, self.target, MAX_LEVELS);
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

/// Returns `true` if a schema needs no change.
pub(super) fn is_unchanged(schema: &Value, target: SchemaTarget, levels: usize) -> bool {
    let Value::Object(map) = schema else { return false };
    let Some(levels) = levels.checked_sub(1) else { return false };
    let Some(types) = map.get("type") else { return map.is_empty() || are_alternatives_unchanged(map, target, levels) };
    if !Types::is_proper(types) {
        return false;
    }
    let types = Types::read(types);
    let is_complete = (!types.has(Types::ARRAY) || map.contains_key("items"))
        && (!types.has(Types::OBJECT) || map.contains_key("properties"));
    is_complete && map.iter().all(|(keyword, value)| is_keyword_unchanged(map, types, keyword, value, target, levels))
}

/// Returns `true` for alternatives that need no change and have no sibling but a description.
fn are_alternatives_unchanged(map: &Map<String, Value>, target: SchemaTarget, levels: usize) -> bool {
    let stay = |branches: &Vec<Value>| {
        let are_different = |(at, branch): (usize, &Value)| !branches[..at].contains(branch);
        (2..=8).contains(&branches.len())
            && branches.iter().enumerate().all(are_different)
            && branches.iter().all(|branch| is_unchanged(branch, target, levels))
    };
    map.iter().all(|(keyword, value)| match keyword.as_str() {
        "anyOf" => value.as_array().is_some_and(stay),
        "description" => value.is_string(),
        "title" | "default" => target.is_lenient() && is_plain(keyword, value),
        _ => false,
    }) && map.contains_key("anyOf")
}

/// Returns `true` if the value is valid for a keyword without subschemas.
fn is_plain(keyword: &str, value: &Value) -> bool {
    ValueKind::of(keyword).is_some_and(|kind| kind.is(value)) && !is_deep(value)
}

fn is_keyword_unchanged(
    map: &Map<String, Value>,
    types: Types,
    keyword: &str,
    value: &Value,
    target: SchemaTarget,
    levels: usize,
) -> bool {
    match keyword {
        "type" => true,
        "description" => value.is_string(),
        "enum" => types == Types::STRING && value.as_array().is_some_and(|values| are_different_strings(values)),
        "items" => types.has(Types::ARRAY) && is_unchanged(value, target, levels),
        "properties" => {
            types.has(Types::OBJECT)
                && value.as_object().is_some_and(|map| are_properties_unchanged(map, target, levels))
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
            Some(text) if keyword == "pattern" => target.takes_pattern(text),
            Some(text) => target.takes_format(text),
            None => false,
        },
        "exclusiveMinimum" | "exclusiveMaximum" | "minimum" | "maximum" => {
            types.has(Types::INTEGER) && value.is_number() && target.action(keyword) == KeywordAction::Keep
        }
        "minItems" | "maxItems" => types.has(Types::ARRAY) && value.is_u64(),
        _ => target.is_lenient() && is_plain(keyword, value),
    }
}

fn are_properties_unchanged(properties: &Map<String, Value>, target: SchemaTarget, levels: usize) -> bool {
    let is_name = |name: &str| target.name_rules().is_none_or(|name_rules| name_rules.accepts(name));
    properties.iter().all(|(name, schema)| is_name(name) && is_unchanged(schema, target, levels))
}

/// Returns `true` for a non-empty list of distinct strings.
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
