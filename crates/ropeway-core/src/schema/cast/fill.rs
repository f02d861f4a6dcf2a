//! Defaults for required properties that a value leaves out.

use serde_json::{Map, Value};

use super::MAX_DESCENT;
use super::change::ValueChange;
use super::keywords::{item_schemas, list};
use super::pass::CastPass;
use crate::schema::bounds;
use crate::tool::ArgumentProblem;

/// A value with defaults for required properties that it left out.
pub(crate) struct Filled {
    pub(crate) value: Value,
    /// Each added default's JSON Pointer.
    added: Vec<String>,
}

impl Filled {
    /// Names the defaults that do not match their own schema in the value's problems.
    pub(crate) fn explain(&self, mut problems: Vec<ArgumentProblem>) -> Vec<ArgumentProblem> {
        for problem in &mut problems {
            let is_within = |added: &&String| {
                problem.path.strip_prefix(added.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if self.added.iter().any(|added| is_within(&added)) {
                let reason = &problem.reason;
                problem.reason = format!("is required, and its default does not match its own schema: {reason}");
            }
        }
        problems
    }
}

/// Adds defaults for missing required properties, also in nested values. Returns `None` if there are none.
///
/// Unlike [`cast`](super::cast), changes nothing that is present, and adds no optional property.
pub(crate) fn fill_required(schema: &Value, value: &Value) -> Option<Filled> {
    bounds::schema_size(schema).ok()?;
    bounds::size(value).ok()?;
    let mut pass = CastPass::over(schema);
    let mut value = value.clone();
    pass.fill(schema, &mut value, MAX_DESCENT);
    let is_done = pass.steps > 0 && !pass.changes.is_empty();
    let paths = pass.changes.into_iter().filter_map(|change| match change {
        ValueChange::Filled { path } => Some(path),
        _ => None,
    });
    is_done.then(|| Filled { value, added: paths.collect() })
}

impl<'s> CastPass<'s> {
    fn fill(&mut self, schema: &'s Value, value: &mut Value, descent: usize) {
        let Some(descent) = self.descend(descent) else { return };
        let mut parts = Vec::new();
        self.collect_parts(schema, descent, &mut parts);
        match value {
            Value::Object(entries) => self.fill_object(&parts, entries, descent),
            Value::Array(items) => self.fill_array(&parts, items, descent),
            _ => return,
        }
        for part in parts {
            for keyword in ["anyOf", "oneOf"] {
                self.fill_alternative(list(part, keyword), value, descent);
            }
        }
    }

    /// Collects the schemas that apply together: the schema, its reference's target and the schemas in
    /// `allOf`.
    fn collect_parts(&mut self, schema: &'s Value, descent: usize, parts: &mut Vec<&'s Map<String, Value>>) {
        let (Some(descent), Value::Object(map)) = (self.descend(descent), schema) else { return };
        if let Some(target) = self.referred(map) {
            self.collect_parts(target, descent, parts);
            if self.ignores_siblings {
                return;
            }
        }
        parts.push(map);
        for part in list(map, "allOf") {
            self.collect_parts(part, descent, parts);
        }
    }

    fn fill_object(&mut self, parts: &[&'s Map<String, Value>], entries: &mut Map<String, Value>, descent: usize) {
        let properties = |part: &&'s Map<String, Value>| part.get("properties").and_then(Value::as_object);
        for name in parts.iter().flat_map(|part| list(part, "required")).filter_map(Value::as_str) {
            self.spend(1 + parts.len());
            if entries.contains_key(name) {
                continue;
            }
            let mut schemas = parts.iter().filter_map(properties).filter_map(|properties| properties.get(name));
            if let Some(default) = schemas.find_map(|schema| self.stated_default(schema)) {
                let length = self.enter(name);
                self.changes.push(ValueChange::Filled { path: self.path.clone() });
                self.path.truncate(length);
                let default = self.copied(default);
                entries.insert(name.to_owned(), default);
            }
        }
        for part in parts {
            let named = properties(part);
            let others = part.get("additionalProperties").filter(|_| !part.contains_key("patternProperties"));
            for (name, value) in entries.iter_mut() {
                if let Some(schema) = named.and_then(|named| named.get(name)).or(others) {
                    let length = self.enter(name);
                    self.fill(schema, value, descent);
                    self.path.truncate(length);
                }
            }
        }
    }

    fn fill_array(&mut self, parts: &[&'s Map<String, Value>], items: &mut [Value], descent: usize) {
        for part in parts {
            let (first, rest) = item_schemas(part);
            let schemas = first.iter().map(Some).chain(std::iter::repeat(rest));
            for (at, (schema, item)) in schemas.zip(items.iter_mut()).enumerate() {
                let Some(schema) = schema else { break };
                let length = self.enter(&at.to_string());
                self.fill(schema, item, descent);
                self.path.truncate(length);
            }
        }
    }

    /// Fills a value that matches no alternative by the first one that it matches then.
    fn fill_alternative(&mut self, alternatives: &'s [Value], value: &mut Value, descent: usize) {
        if alternatives.iter().any(|alternative| self.fits(alternative, value, descent)) {
            return;
        }
        for alternative in alternatives {
            let changes = self.changes.len();
            let mut filled = self.copied(value);
            self.fill(alternative, &mut filled, descent);
            if self.fits(alternative, &filled, descent) {
                *value = filled;
                return;
            }
            self.changes.truncate(changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(schema: &Value, value: Value) -> Option<Value> {
        fill_required(schema, &value).map(|filled| filled.value)
    }

    #[test]
    fn only_missing_required_properties_get_their_defaults() {
        let schema = json!({"required": ["a", "b", "c"], "properties": {
            "a": {"default": 1}, "b": {"default": 2}, "c": {"type": "string"}, "d": {"default": 4}}});
        assert_eq!(filled(&schema, json!({"b": "kept", "e": 5})), Some(json!({"b": "kept", "e": 5, "a": 1})));
        assert_eq!(filled(&schema, json!({"a": 0, "b": null})), None);
        assert_eq!(filled(&schema, json!([])), None);
    }

    #[test]
    fn nested_values_are_filled_through_references_lists_and_all_of() {
        let schema = json!({
            "allOf": [{"required": ["page"]}, {"$ref": "#/$defs/Page"}],
            "$defs": {
                "Page": {"properties": {
                    "page": {"$ref": "#/$defs/Size", "default": {}},
                    "rows": {"type": "array", "items": {"$ref": "#/$defs/Size"}},
                }},
                "Size": {"type": "object", "required": ["width"], "properties": {"width": {"default": 80}}},
            },
        });
        assert_eq!(
            filled(&schema, json!({"rows": [{}, {"width": 3}]})),
            Some(json!({"rows": [{"width": 80}, {"width": 3}], "page": {"width": 80}}))
        );
    }

    #[test]
    fn the_alternative_that_a_value_belongs_to_is_filled() {
        let schema = json!({"oneOf": [
            {"required": ["kind", "radius"], "properties": {"kind": {"const": "circle"}, "radius": {"default": 1}}},
            {"required": ["kind", "side"], "properties": {"kind": {"const": "square"}, "side": {"default": 2}}},
        ]});
        assert_eq!(filled(&schema, json!({"kind": "square"})), Some(json!({"kind": "square", "side": 2})));
        assert_eq!(filled(&schema, json!({"kind": "square", "side": 3})), None);
        assert_eq!(filled(&schema, json!({"kind": "blob"})), None);
    }

    #[test]
    fn a_schema_whose_defaults_never_end_fills_nothing() {
        let endless = json!({"required": ["a"], "properties": {"a": {"$ref": "#", "default": {}}}});
        assert_eq!(filled(&endless, json!({})), None);
        let wide = json!({"required": ["a", "b"], "properties": {
            "a": {"$ref": "#", "default": {}}, "b": {"$ref": "#", "default": {}}}});
        assert_eq!(filled(&wide, json!({})), None);
        assert_eq!(filled(&json!({"$ref": "#", "required": ["a"]}), json!({})), None);
    }

    #[test]
    fn a_problem_of_a_default_is_told_apart_from_one_of_a_given_value() {
        let schema = json!({"required": ["a"], "properties": {"a": {"default": 1}, "ab": {}}});
        let filled = fill_required(&schema, &json!({"ab": 2})).expect("a default");
        let problem = |path: &str| ArgumentProblem { path: path.to_owned(), reason: "bad".to_owned() };
        let told = filled.explain(vec![problem("/a/x"), problem("/ab")]);
        assert_eq!(told[0].reason, "is required, and its default does not match its own schema: bad");
        assert_eq!(told[1], problem("/ab"));
    }
}
