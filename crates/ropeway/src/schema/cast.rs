//! A cast: an answer read as its schema says, with a note of all that had to be changed for it.

use std::borrow::Cow;
use std::collections::HashMap;

use jsonschema::Draft;
use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::bounds;
use super::pointer;
use super::reason;
use super::validator::dialect;
use crate::json;
use crate::tool::ArgumentProblem;

/// How often a part of the value may be held against a part of the schema.
const MAX_STEPS: usize = 500_000;

/// How deep schema and value together may be descended into.
const MAX_DESCENT: usize = 256;

/// How often a value is cast until nothing changes any more.
const MAX_PASSES: usize = 4;

/// How many warnings are kept.
const MAX_WARNINGS: usize = 16;

/// A value as its schema wants it, as far as that was possible.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cast<'v> {
    /// The value: borrowed where nothing had to be changed.
    pub value: Cow<'v, Value>,
    /// What was changed.
    pub changes: Vec<ValueChange>,
    /// What does not fit the schema and could not be changed; it stays as it came.
    pub warnings: Vec<ArgumentProblem>,
}

/// One thing that a cast has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueChange {
    /// Where, as a JSON Pointer.
    pub path: String,
    /// What was done there.
    #[serde(flatten)]
    pub edit: ValueEdit,
}

/// What a cast does to a part of a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "edit", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ValueEdit {
    /// It was missing and has its default now.
    Filled,
    /// It has another type now.
    Coerced {
        /// What it was.
        from: Value,
    },
    /// The schema forbids it.
    Dropped,
}

/// Casts a value to a schema.
///
/// Defaults are filled in; a scalar of the wrong type is converted where that can mean only one thing
/// (`"3"` to `3`); a property is dropped only where the schema forbids it. The rest stays as it came. Casting the
/// outcome again changes nothing.
pub fn cast<'v>(schema: &Value, value: &'v Value) -> Cast<'v> {
    let untouched =
        |why: &str| Cast { value: Cow::Borrowed(value), changes: Vec::new(), warnings: vec![reason::problem("", why)] };
    if let Err(bound) = bounds::schema_size(schema) {
        return untouched(&format!("was not cast, because the schema is too large: {bound}"));
    }
    if let Err(bound) = bounds::size(value) {
        return untouched(&format!("was not cast: {bound}"));
    }
    let mut current = Cow::Borrowed(value);
    let mut changes = Vec::new();
    for _ in 0..MAX_PASSES {
        let mut pass = Pass::over(schema);
        let next = pass.cast(schema, &current, MAX_DESCENT);
        if pass.steps == 0 {
            return untouched("was not cast, because that takes too much work");
        }
        match next {
            Some(next) if next != *current => {
                changes.append(&mut pass.changes);
                current = Cow::Owned(next);
            }
            _ => return Cast { value: current, changes, warnings: pass.warnings },
        }
    }
    untouched("was not cast, because the schema contradicts itself")
}

/// One walk over a value along its schema.
struct Pass<'s> {
    root: &'s Value,
    lone_references: bool,
    references: HashMap<&'s str, Option<&'s Value>>,
    steps: usize,
    path: String,
    changes: Vec<ValueChange>,
    warnings: Vec<ArgumentProblem>,
    warned: usize,
}

/// What came of an attempt.
struct Attempt {
    value: Option<Value>,
    changes: Vec<ValueChange>,
    clean: bool,
}

impl<'s> Pass<'s> {
    fn over(root: &'s Value) -> Self {
        let lone_references = matches!(dialect(root), Ok(Draft::Draft4 | Draft::Draft6 | Draft::Draft7));
        Self {
            root,
            lone_references,
            references: HashMap::new(),
            steps: MAX_STEPS,
            path: String::new(),
            changes: Vec::new(),
            warnings: Vec::new(),
            warned: 0,
        }
    }

    /// The value as the schema wants it; `None` where it may stay as it is.
    fn cast(&mut self, schema: &'s Value, value: &Value, descent: usize) -> Option<Value> {
        let descent = self.descend(descent)?;
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(false) => {
                self.warn("must not be there");
                return None;
            }
            _ => return None,
        };
        let mut current = Cow::Borrowed(value);
        if let Some(target) = self.referred(map) {
            self.cast_on(&mut current, target, descent);
            if self.lone_references {
                return changed(current);
            }
        }
        for schema in list(map, "allOf") {
            self.cast_on(&mut current, schema, descent);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(alternatives) = map.get(keyword).and_then(Value::as_array)
                && let Some(next) = self.cast_to_one_of(alternatives, &current, descent)
            {
                current = Cow::Owned(next);
            }
        }
        if let Some(next) = self.cast_scalar(map, &current) {
            current = Cow::Owned(next);
        }
        let next = match &*current {
            Value::Object(entries) => self.cast_object(map, entries, descent),
            Value::Array(items) => self.cast_array(map, items, descent),
            _ => None,
        };
        changed(next.map_or(current, Cow::Owned))
    }

    fn cast_on(&mut self, current: &mut Cow<'_, Value>, schema: &'s Value, descent: usize) {
        if let Some(next) = self.cast(schema, current, descent) {
            *current = Cow::Owned(next);
        }
    }

    /// Casts to the alternative that fits as it is, or else to the only one that can be cast to.
    fn cast_to_one_of(&mut self, alternatives: &'s [Value], value: &Value, descent: usize) -> Option<Value> {
        let fitting: Vec<&Value> =
            alternatives.iter().filter(|alternative| self.fits(alternative, value, descent)).collect();
        let none_fits = fitting.is_empty();
        let candidates = if none_fits { alternatives.iter().collect() } else { fitting };
        let mut chosen: Option<Attempt> = None;
        for candidate in candidates {
            let attempt = self.attempt(candidate, value, descent);
            match &chosen {
                _ if !attempt.clean => {}
                None => chosen = Some(attempt),
                Some(chosen) if chosen.value == attempt.value => {}
                // Two different readings: it is not for us to choose.
                Some(_) => {
                    if none_fits {
                        self.warn(&format!("may be meant as more than one of {} alternatives", alternatives.len()));
                    }
                    return None;
                }
            }
        }
        match chosen {
            Some(mut attempt) => {
                self.changes.append(&mut attempt.changes);
                attempt.value
            }
            None => {
                if none_fits {
                    self.warn(&format!("fits none of {} alternatives", alternatives.len()));
                }
                None
            }
        }
    }

    /// Casts without consequences.
    fn attempt(&mut self, schema: &'s Value, value: &Value, descent: usize) -> Attempt {
        let (changes, warnings, warned) = (self.changes.len(), self.warnings.len(), self.warned);
        let value = self.cast(schema, value, descent);
        let clean = self.warned == warned;
        self.warnings.truncate(warnings);
        self.warned = warned;
        Attempt { value, changes: self.changes.split_off(changes), clean }
    }

    /// What `enum`, `const` and `type` say.
    fn cast_scalar(&mut self, map: &'s Map<String, Value>, value: &Value) -> Option<Value> {
        if value.is_null() && nullable(map) {
            return None;
        }
        let kinds = kinds(map);
        if let Some(options) = options(map) {
            self.spend(options.len());
            if options.iter().any(|option| same(option, value)) {
                return None;
            }
            let text = scalar_text(value);
            let mut alike = options.iter().filter(|option| {
                text.is_some()
                    && scalar_text(option) == text
                    && (kinds.is_empty() || kinds.iter().any(|kind| is(option, kind)))
            });
            return match (alike.next(), alike.next()) {
                (Some(option), None) => Some(self.coerced(value, option.clone())),
                _ => {
                    let options = reason::listed(options.iter().map(reason::quoted));
                    self.warn(&format!("must be one of {options}, not {}", reason::quoted(value)));
                    None
                }
            };
        }
        if kinds.is_empty() {
            return None;
        }
        if kinds.iter().any(|kind| is(value, kind)) {
            let plain = whole(value).filter(|_| kinds.contains(&"integer") && !kinds.contains(&"number"));
            return plain.map(|plain| self.coerced(value, plain));
        }
        let mut readings: Vec<Value> = kinds.iter().filter_map(|kind| converted(value, kind)).collect();
        readings.dedup();
        match (readings.pop(), readings.is_empty()) {
            (Some(only), true) => Some(self.coerced(value, only)),
            _ => {
                let wanted: Vec<String> = kinds.iter().map(|kind| reason::with_article(kind)).collect();
                self.warn(&format!("must be {}, not {}", wanted.join(" or "), reason::kind_of(value)));
                None
            }
        }
    }

    fn coerced(&mut self, from: &Value, to: Value) -> Value {
        self.note(ValueEdit::Coerced { from: from.clone() });
        to
    }

    fn cast_object(
        &mut self,
        map: &'s Map<String, Value>,
        entries: &Map<String, Value>,
        descent: usize,
    ) -> Option<Value> {
        let properties = map.get("properties").and_then(Value::as_object);
        // Which names a pattern covers is not known here, so what it might cover is left alone.
        let others = map.get("additionalProperties").filter(|_| !map.contains_key("patternProperties"));
        let mut edits: HashMap<&str, Option<Value>> = HashMap::new();
        for (key, value) in entries {
            let length = self.enter(key);
            match properties.and_then(|properties| properties.get(key)).or(others) {
                Some(Value::Bool(false)) if properties.is_none_or(|properties| !properties.contains_key(key)) => {
                    self.note(ValueEdit::Dropped);
                    edits.insert(key, None);
                }
                Some(schema) => {
                    edits.extend(self.cast(schema, value, descent).map(|next| (key.as_str(), Some(next))));
                }
                None => {}
            }
            self.path.truncate(length);
        }
        let mut filled = Map::new();
        for (key, schema) in properties.into_iter().flatten().filter(|(key, _)| !entries.contains_key(*key)) {
            let length = self.enter(key);
            filled.extend(self.default(schema, descent).map(|value| (key.clone(), value)));
            self.path.truncate(length);
        }
        for name in list(map, "required").iter().filter_map(Value::as_str) {
            self.spend(1);
            if !entries.contains_key(name) && !filled.contains_key(name) {
                self.warn(&format!("the required property `{}` is missing", reason::shortened(name, 60)));
            }
        }
        if edits.is_empty() && filled.is_empty() {
            return None;
        }
        let mut next = Map::with_capacity(entries.len() + filled.len());
        for (key, value) in entries {
            match edits.remove(key.as_str()) {
                Some(edited) => next.extend(edited.map(|value| (key.clone(), value))),
                None => {
                    let value = self.copied(value);
                    next.insert(key.clone(), value);
                }
            }
        }
        next.extend(filled);
        Some(Value::Object(next))
    }

    /// What a missing property is filled with: a default that its own schema accepts.
    fn default(&mut self, schema: &'s Value, descent: usize) -> Option<Value> {
        let mut schema_with_default = schema;
        // A chain of references may also be a circle.
        for _ in 0..8 {
            let map = schema_with_default.as_object()?;
            match (map.get("default"), self.referred(map)) {
                (None, Some(target)) => schema_with_default = target,
                _ => break,
            }
        }
        let default = schema_with_default.get("default")?;
        let attempt = self.attempt(schema, default, descent);
        if !attempt.clean || !self.fits(schema, attempt.value.as_ref().unwrap_or(default), descent) {
            return None;
        }
        self.note(ValueEdit::Filled);
        Some(attempt.value.unwrap_or_else(|| self.copied(default)))
    }

    fn cast_array(&mut self, map: &'s Map<String, Value>, items: &[Value], descent: usize) -> Option<Value> {
        let (first, rest) = item_schemas(map);
        let mut edits: HashMap<usize, Value> = HashMap::new();
        if first.is_empty() && rest.is_none() {
            return None;
        }
        for (at, (schema, item)) in first.iter().map(Some).chain(std::iter::repeat(rest)).zip(items).enumerate() {
            let Some(schema) = schema else { break };
            let length = self.enter(&at.to_string());
            edits.extend(self.cast(schema, item, descent).map(|next| (at, next)));
            self.path.truncate(length);
        }
        if edits.is_empty() {
            return None;
        }
        let next = items.iter().enumerate();
        Some(next.map(|(at, item)| edits.remove(&at).unwrap_or_else(|| self.copied(item))).collect())
    }

    /// Does a value fit a schema, as far as types, constants, bounds and shapes tell? What is not looked at
    /// here, such as a pattern, is taken to be fulfilled.
    fn fits(&mut self, schema: &'s Value, value: &Value, descent: usize) -> bool {
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
            if self.lone_references {
                return true;
            }
        }
        let kinds = kinds(map);
        let null = value.is_null() && nullable(map);
        if !null && !kinds.is_empty() && !kinds.iter().any(|kind| is(value, kind)) {
            return false;
        }
        if let Some(options) = options(map).filter(|_| !null) {
            self.spend(options.len());
            if !options.iter().any(|option| same(option, value)) {
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

    /// What a schema refers to, if it does and if that is inside the document.
    fn referred(&mut self, map: &'s Map<String, Value>) -> Option<&'s Value> {
        let reference = ["$ref", "$dynamicRef", "$recursiveRef"].iter().find_map(|keyword| map.get(*keyword))?;
        let (root, reference) = (self.root, reference.as_str()?);
        *self.references.entry(reference).or_insert_with(|| pointer::resolve(root, reference))
    }

    /// One step down; `None` at the bottom, or when there was too much work.
    fn descend(&mut self, descent: usize) -> Option<usize> {
        self.spend(1);
        if descent == 0 {
            self.steps = 0;
        }
        if self.steps == 0 { None } else { Some(descent - 1) }
    }

    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// A copy, which is work as well.
    fn copied(&mut self, value: &Value) -> Value {
        let size = bounds::size(value).unwrap_or_default();
        self.spend(size.nodes / 8 + size.bytes / 1024);
        if self.steps == 0 { Value::Null } else { value.clone() }
    }

    fn enter(&mut self, step: &str) -> usize {
        let length = self.path.len();
        pointer::push(&mut self.path, step);
        length
    }

    fn note(&mut self, edit: ValueEdit) {
        self.changes.push(ValueChange { path: self.path.clone(), edit });
    }

    fn warn(&mut self, why: &str) {
        self.warned += 1;
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(reason::problem(&self.path, why));
        }
    }
}

fn changed(value: Cow<'_, Value>) -> Option<Value> {
    match value {
        Cow::Owned(value) => Some(value),
        Cow::Borrowed(_) => None,
    }
}

/// The list that a keyword holds.
fn list<'s>(map: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    map.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The types that a schema allows; none means any.
fn kinds(map: &Map<String, Value>) -> Vec<&str> {
    match map.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The values that a schema allows, where it lists them.
fn options(map: &Map<String, Value>) -> Option<&[Value]> {
    map.get("const").map(std::slice::from_ref).or_else(|| map.get("enum")?.as_array().map(Vec::as_slice))
}

/// OpenAPI's way to allow null.
fn nullable(map: &Map<String, Value>) -> bool {
    map.get("nullable") == Some(&Value::Bool(true))
}

/// The schemas of the first items, each its own, and that of the rest.
fn item_schemas(map: &Map<String, Value>) -> (&[Value], Option<&Value>) {
    match (map.get("prefixItems"), map.get("items")) {
        (Some(Value::Array(first)), rest) => (first, rest),
        (_, Some(Value::Array(first))) => (first, map.get("additionalItems")),
        (_, rest) => (&[], rest),
    }
}

/// Is a value of this type?
fn is(value: &Value, kind: &str) -> bool {
    match (kind, value) {
        ("integer", Value::Number(number)) => is_whole(number),
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        // A type that nobody knows asks for nothing.
        (kind, _) => !["null", "boolean", "integer", "number", "string", "array", "object"].contains(&kind),
    }
}

/// Is it a whole number, however it is written? One beyond the range of `f64` is, unless it ends in a fraction.
fn is_whole(number: &Number) -> bool {
    match number.as_f64() {
        Some(float) => float.fract() == 0.0,
        None => {
            let text = number.to_string();
            !text.contains('.') || text.contains(['e', 'E'])
        }
    }
}

/// A whole number that was written with a point, without it.
fn whole(value: &Value) -> Option<Value> {
    /// Up to here each whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = value.as_f64().filter(|float| value.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT)?;
    Some(Value::from(float as i64))
}

/// A scalar as text.
fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(whole(value).as_ref().unwrap_or(value).to_string())),
        _ => None,
    }
}

/// A scalar as another type, where that can mean only one thing.
fn converted(value: &Value, kind: &str) -> Option<Value> {
    match (kind, value) {
        ("integer", Value::String(text)) => {
            let number = Value::Number(number(text)?);
            whole(&number).or(Some(number)).filter(|number| !number.is_f64())
        }
        ("number", Value::String(text)) => number(text).map(Value::Number),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        _ => None,
    }
}

/// A number as JSON writes it, if a JSON value can hold all its digits.
fn number(text: &str) -> Option<Number> {
    /// A float has about so many digits.
    const DIGITS: usize = 16;
    // The parser would also take white space around it.
    if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) || !text.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    let digits = text.chars().filter(char::is_ascii_digit).count();
    (!number.is_f64() || digits <= DIGITS).then_some(number)
}

/// Are two values equal as JSON Schema has it, where 1 and 1.0 are the same?
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let float = |number: &Number| number.as_f64();
            a == b || ((a.is_f64() || b.is_f64()) && float(a).is_some_and(|a| float(b) == Some(a)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Is a value within the bounds that a schema sets to numbers, lengths and counts?
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Validator;
    use super::super::bounds::tests::{nested, object};
    use super::*;

    /// The value after a cast, and what was done where.
    fn done(schema: Value, value: Value) -> (Value, Vec<String>) {
        let cast = cast(&schema, &value);
        let edits = cast.changes.into_iter().map(|change| match change.edit {
            ValueEdit::Filled => format!("{} filled", change.path),
            ValueEdit::Coerced { from } => format!("{} was {from}", change.path),
            ValueEdit::Dropped => format!("{} dropped", change.path),
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
    fn a_scalar_of_the_wrong_type_is_converted_where_that_means_one_thing() {
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
    fn a_value_that_cannot_be_cast_stays_as_it_came_with_a_warning() {
        for (kind, value) in [
            ("integer", json!("three")),
            ("integer", json!("")),
            ("integer", json!(" 3")),
            ("integer", json!("0x3")),
            ("integer", json!("03")),
            ("integer", json!("3.5")),
            ("integer", json!(3.5)),
            // With arbitrary precision a number can hold all digits.
            #[cfg(not(feature = "arbitrary-precision"))]
            ("integer", json!("123456789012345678901234567890")),
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
        ] {
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
    fn null_is_fine_where_it_is_allowed() {
        stays(json!({"type": ["string", "null"]}), json!(null));
        stays(json!({"type": "string", "nullable": true}), json!(null));
        stays(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(null));
        stays(json!({"enum": ["a", null]}), json!(null));
        casts(json!({"type": "integer"}), json!(null), json!(null), &[" must be an integer, not null"]);
    }

    #[test]
    fn a_missing_property_has_its_default() {
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
        casts(json!({"required": ["a"]}), json!({}), json!({}), &[" the required property `a` is missing"]);
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
    fn tuples_are_cast_place_by_place() {
        let newer = json!({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}});
        let older = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"type": "integer"}, {"type": "string"}],
            "additionalItems": {"type": "boolean"},
        });
        for schema in [newer, older] {
            casts(
                schema,
                json!(["1", 2, "true"]),
                json!([1, "2", true]),
                &["/0 was \"1\"", "/1 was 2", "/2 was \"true\""],
            );
        }
        stays(json!({"prefixItems": [{"type": "integer"}]}), json!([1, "a", null]));
        casts(json!({"prefixItems": [{}], "items": false}), json!([1, 2]), json!([1, 2]), &["/1 must not be there"]);
    }

    #[test]
    fn properties_that_the_schema_forbids_are_dropped_and_no_others() {
        let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
        casts(closed, json!({"b/c": 1, "a": 2}), json!({"a": 2}), &["/b~1c dropped"]);
        stays(json!({"properties": {"a": {}}}), json!({"b": 1}));
        stays(json!({"patternProperties": {"^b": {}}, "additionalProperties": false}), json!({"b": 1}));
        casts(json!({"properties": {"a": false}}), json!({"a": 1}), json!({"a": 1}), &["/a must not be there"]);
    }

    #[test]
    fn additional_properties_are_cast_to_their_schema() {
        let schema = json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}});
        casts(schema, json!({"a": "1", "b": "2"}), json!({"a": "1", "b": 2}), &["/b was \"2\""]);
    }

    #[test]
    fn a_constant_is_found_in_another_type() {
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
    fn of_a_union_the_alternative_that_fits_is_taken() {
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
    fn of_a_union_that_does_not_fit_the_only_alternative_that_can_be_cast_to_is_taken() {
        casts(json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), json!("3"), json!(3), &[" was \"3\""]);
        casts(json!({"anyOf": [{"type": "integer"}, {"type": "number"}]}), json!("3"), json!(3), &[" was \"3\""]);
        let tagged = json!({"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
            {"type": "object", "properties": {"kind": {"const": "b"}, "n": {"type": "boolean"}}, "required": ["kind", "n"]},
        ]});
        casts(tagged.clone(), json!({"kind": "a", "n": "3"}), json!({"kind": "a", "n": 3}), &["/n was \"3\""]);
        casts(
            tagged,
            json!({"kind": "c", "n": "3"}),
            json!({"kind": "c", "n": "3"}),
            &[" fits none of 2 alternatives"],
        );
    }

    #[test]
    fn a_union_with_two_readings_is_left_alone() {
        let two = json!({"anyOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"b": {"default": 1}}}]});
        stays(two, json!({}));
        casts(
            json!({"anyOf": [{"type": "string"}, {"const": 1.5}, {"const": true}]}),
            json!([]),
            json!([]),
            &[" fits none of 3 alternatives"],
        );
    }

    #[test]
    fn all_parts_of_an_intersection_count() {
        let schema =
            json!({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"default": 2}}}]});
        casts(schema, json!({"a": "1"}), json!({"a": 1, "b": 2}), &["/a was \"1\"", "/b filled"]);
    }

    #[test]
    fn references_are_followed_also_into_themselves() {
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
    fn a_schema_that_contradicts_itself_changes_nothing() {
        let (after, _) = done(json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), json!(3));
        assert_eq!(after, json!(3));
    }

    #[test]
    fn work_without_end_is_given_up() {
        let doubling = |keyword: &str| json!({"properties": {"a": {"type": "integer"}}, keyword: [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        let deep = nested(60, |inner| object("a", inner));
        let deeper = nested(10_000, |inner| object("a", inner));
        let deepest_schema = nested(10_000, |inner| object("items", inner));
        let start = Instant::now();
        for (schema, value) in [
            (json!({"$ref": "#"}), &json!(1)),
            (json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), &json!({"a": 1})),
            (json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "default": {}}), &json!({})),
            (doubling("allOf"), &*deep),
            (doubling("anyOf"), &*deep),
            (doubling("oneOf"), &*deep),
            (json!({"properties": {"a": {"$ref": "#"}}}), &*deeper),
            (
                json!({"additionalProperties": {"properties": {"x": {"default": "x".repeat(1_000_000)}}}}),
                &(0..2000).map(|at| (at.to_string(), json!({}))).collect(),
            ),
        ] {
            let cast = cast(&schema, value);
            assert!(matches!(cast.value, Cow::Borrowed(_)));
            assert!(cast.changes.is_empty() && cast.warnings.len() == 1, "{schema}");
        }
        assert_eq!(cast(&deepest_schema, &json!([])).warnings.len(), 1);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn warnings_are_few_however_many_there_are() {
        let (_, said) = done(json!({"items": {"type": "integer"}}), json!(vec!["x"; 10_000]));
        assert_eq!(said.len(), MAX_WARNINGS);
    }

    /// Any JSON without floats, which a cast may write in another way, with names and texts that schemas ask for.
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

    /// A schema; with defaults or without.
    fn any_schema(defaults: bool) -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            kind.clone().prop_map(|kind| json!({"type": kind})),
            prop::collection::vec(kind, 1..3).prop_map(|mut kinds| {
                kinds.dedup();
                json!({"type": kinds})
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
                properties
                    .prop_map(|properties| json!({"type": "object", "properties": properties, "required": ["a"]})),
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
        fn a_value_that_fits_a_schema_without_defaults_stays_as_it_is(schema in any_schema(false), value in any_value()) {
            let validator = Validator::compile(&schema);
            prop_assume!(validator.warning().is_none() && validator.validate(&value).is_ok());
            prop_assert_eq!(&*cast(&schema, &value).value, &value);
        }

        #[test]
        fn casting_twice_is_casting_once(schema in any_schema(true), value in any_value()) {
            let once = cast(&schema, &value);
            let twice = cast(&schema, &once.value);
            prop_assert_eq!(&*twice.value, &*once.value);
            prop_assert!(twice.changes.is_empty());
        }

        #[test]
        fn any_json_can_be_taken_for_a_schema(schema in any_value(), value in any_value()) {
            let schema = json!({"type": schema, "properties": schema, "anyOf": schema, "$ref": schema, "items": schema, "enum": schema});
            let _ = cast(&schema, &value);
        }
    }
}
