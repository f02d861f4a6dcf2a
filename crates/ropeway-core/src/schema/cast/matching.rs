//! Approximate matching between a value and a schema, for casts.

use serde_json::{Map, Value};

use super::keywords::{is_nullable, item_schemas, list, options, types};
use super::pass::CastPass;
use super::value::{has_type, is_equal};
use crate::json;

impl<'s> CastPass<'s> {
    /// Returns `true` if a value matches a schema in types, constants, limits and structure. Other keywords, such as
    /// `pattern`, count as matched.
    pub(super) fn fits(&mut self, schema: &'s Value, value: &Value, descent: usize) -> bool {
        let Some(descent) = self.descend(descent) else { return true };
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(fits) => return *fits,
            _ => return true,
        };
        if let Some(target) = self.referred(map) {
            if !self.fits(target, value, descent) {
                return false;
            }
            if self.ignores_siblings {
                return true;
            }
        }
        let types = types(map);
        let null = value.is_null() && is_nullable(map);
        if !null && !types.is_empty() && !types.iter().any(|kind| has_type(value, kind)) {
            return false;
        }
        if let Some(options) = options(map).filter(|_| !null) {
            self.spend(options.len());
            if !options.iter().any(|option| is_equal(option, value)) {
                return false;
            }
        }
        if !within_limits(map, value) || !list(map, "allOf").iter().all(|schema| self.fits(schema, value, descent)) {
            return false;
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(alternatives) = map.get(keyword).and_then(Value::as_array)
                && !alternatives.iter().any(|schema| self.fits(schema, value, descent))
            {
                return false;
            }
        }
        match value {
            Value::Object(entries) => {
                let properties = map.get("properties").and_then(Value::as_object);
                let others = map.get("additionalProperties").filter(|_| !map.contains_key("patternProperties"));
                let required = list(map, "required").iter().filter_map(Value::as_str);
                required.into_iter().all(|name| entries.contains_key(name))
                    && entries.iter().all(|(key, value)| {
                        let schema = properties.and_then(|properties| properties.get(key)).or(others);
                        schema.is_none_or(|schema| self.fits(schema, value, descent))
                    })
            }
            Value::Array(items) => {
                let (first, rest) = item_schemas(map);
                let schemas = first.iter().map(Some).chain(std::iter::repeat(rest));
                let mut pairs = schemas.zip(items).map_while(|(schema, item)| schema.map(|schema| (schema, item)));
                pairs.all(|(schema, item)| self.fits(schema, item, descent))
            }
            _ => true,
        }
    }
}

/// Returns `true` if a value is within the limits on numbers, lengths and counts.
fn within_limits(map: &Map<String, Value>, value: &Value) -> bool {
    let limit = |keyword: &str| map.get(keyword).and_then(json::to_f64);
    let between = |size: f64, least: &str, most: &str| {
        limit(least).is_none_or(|least| size >= least) && limit(most).is_none_or(|most| size <= most)
    };
    match value {
        Value::Number(_) => json::to_f64(value).is_none_or(|number| {
            between(number, "minimum", "maximum")
                && limit("exclusiveMinimum").is_none_or(|least| number > least)
                && limit("exclusiveMaximum").is_none_or(|most| number < most)
        }),
        Value::String(text) => {
            (!map.contains_key("minLength") && !map.contains_key("maxLength"))
                || between(text.chars().count() as f64, "minLength", "maxLength")
        }
        Value::Array(items) => between(items.len() as f64, "minItems", "maxItems"),
        Value::Object(entries) => between(entries.len() as f64, "minProperties", "maxProperties"),
        Value::Null | Value::Bool(_) => true,
    }
}
