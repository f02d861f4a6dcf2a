//! One traversal of a value along its schema.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::change::ValueChange;
use super::keywords::{is_nullable, item_schemas, list, options, types};
use super::value::{converted, has_type, is_equal, scalar_text, whole};
use crate::schema::bounds;
use crate::schema::draft::{draft_of, ignores_reference_siblings};
use crate::schema::pointer;
use crate::schema::reason;
use crate::tool::ArgumentProblem;

/// Maximum number of comparisons between a part of the value and a part of the schema.
const MAX_STEPS: usize = 500_000;

/// Maximum number of warnings.
pub(super) const MAX_WARNINGS: usize = 16;

/// One traversal of a value along its schema.
pub(super) struct CastPass<'s> {
    root: &'s Value,
    pub(super) ignores_siblings: bool,
    references: HashMap<&'s str, Option<&'s Value>>,
    pub(super) steps: usize,
    pub(super) path: String,
    pub(super) changes: Vec<ValueChange>,
    pub(super) warnings: Vec<ArgumentProblem>,
    warned: usize,
}

/// A tentative cast's result.
struct Attempt {
    value: Option<Value>,
    changes: Vec<ValueChange>,
    clean: bool,
}

impl<'s> CastPass<'s> {
    pub(super) fn over(root: &'s Value) -> Self {
        let ignores_siblings = draft_of(root).is_ok_and(ignores_reference_siblings);
        Self {
            root,
            ignores_siblings,
            references: HashMap::new(),
            steps: MAX_STEPS,
            path: String::new(),
            changes: Vec::new(),
            warnings: Vec::new(),
            warned: 0,
        }
    }

    /// Returns the converted value, or `None` if nothing changes.
    pub(super) fn cast(&mut self, schema: &'s Value, value: &Value, descent: usize) -> Option<Value> {
        let descent = self.descend(descent)?;
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(false) => {
                self.warn("is not allowed");
                return None;
            }
            _ => return None,
        };
        let mut current = Cow::Borrowed(value);
        if let Some(target) = self.referred(map) {
            self.cast_on(&mut current, target, descent);
            if self.ignores_siblings {
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

    /// Casts to the alternative that matches, or else to the only one that the value can be cast to.
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
                // Two different results: ambiguous.
                Some(_) => {
                    if none_fits {
                        self.warn(&format!("can be cast to more than one of {} alternatives", alternatives.len()));
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
                    self.warn(&format!("matches none of {} alternatives", alternatives.len()));
                }
                None
            }
        }
    }

    /// Casts and discards changes and warnings.
    fn attempt(&mut self, schema: &'s Value, value: &Value, descent: usize) -> Attempt {
        let (changes, warnings, warned) = (self.changes.len(), self.warnings.len(), self.warned);
        let value = self.cast(schema, value, descent);
        let clean = self.warned == warned;
        self.warnings.truncate(warnings);
        self.warned = warned;
        Attempt { value, changes: self.changes.split_off(changes), clean }
    }

    /// Applies `enum`, `const` and `type`.
    fn cast_scalar(&mut self, map: &'s Map<String, Value>, value: &Value) -> Option<Value> {
        if value.is_null() && is_nullable(map) {
            return None;
        }
        let types = types(map);
        if let Some(options) = options(map) {
            self.spend(options.len());
            if options.iter().any(|option| is_equal(option, value)) {
                return None;
            }
            let text = scalar_text(value);
            let mut alike = options.iter().filter(|option| {
                text.is_some()
                    && scalar_text(option) == text
                    && (types.is_empty() || types.iter().any(|kind| has_type(option, kind)))
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
        if types.is_empty() {
            return None;
        }
        if types.iter().any(|kind| has_type(value, kind)) {
            let plain = whole(value).filter(|_| types.contains(&"integer") && !types.contains(&"number"));
            return plain.map(|plain| self.coerced(value, plain));
        }
        let mut readings: Vec<Value> = types.iter().filter_map(|kind| converted(value, kind)).collect();
        readings.dedup();
        match (readings.pop(), readings.is_empty()) {
            (Some(only), true) => Some(self.coerced(value, only)),
            _ => {
                let wanted: Vec<String> = types.iter().map(|kind| reason::with_article(kind)).collect();
                self.warn(&format!("must be {}, not {}", wanted.join(" or "), reason::type_of(value)));
                None
            }
        }
    }

    fn coerced(&mut self, from: &Value, to: Value) -> Value {
        self.changes.push(ValueChange::Coerced { path: self.path.clone(), from: from.clone() });
        to
    }

    fn cast_object(
        &mut self,
        map: &'s Map<String, Value>,
        entries: &Map<String, Value>,
        descent: usize,
    ) -> Option<Value> {
        let properties = map.get("properties").and_then(Value::as_object);
        // The names that a pattern covers are unknown here, so properties that it may cover are left alone.
        let others = map.get("additionalProperties").filter(|_| !map.contains_key("patternProperties"));
        let mut edits: HashMap<&str, Option<Value>> = HashMap::new();
        for (key, value) in entries {
            let length = self.enter(key);
            match properties.and_then(|properties| properties.get(key)).or(others) {
                Some(Value::Bool(false)) if properties.is_none_or(|properties| !properties.contains_key(key)) => {
                    self.changes.push(ValueChange::Dropped { path: self.path.clone() });
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
                self.warn(&format!("required property `{}` is missing", reason::truncated(name, 60)));
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

    /// Returns the default in a schema or in its reference's target.
    pub(super) fn stated_default(&mut self, schema: &'s Value) -> Option<&'s Value> {
        let mut schema_with_default = schema;
        // The reference chain may be circular.
        for _ in 0..8 {
            let map = schema_with_default.as_object()?;
            match (map.get("default"), self.referred(map)) {
                (None, Some(target)) => schema_with_default = target,
                _ => break,
            }
        }
        schema_with_default.get("default")
    }

    /// Returns a missing property's default, if its own schema accepts it.
    fn default(&mut self, schema: &'s Value, descent: usize) -> Option<Value> {
        let default = self.stated_default(schema)?;
        let attempt = self.attempt(schema, default, descent);
        if !attempt.clean || !self.fits(schema, attempt.value.as_ref().unwrap_or(default), descent) {
            return None;
        }
        self.changes.push(ValueChange::Filled { path: self.path.clone() });
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

    /// Returns the target of the schema's reference, if it is inside the document.
    pub(super) fn referred(&mut self, map: &'s Map<String, Value>) -> Option<&'s Value> {
        let reference = ["$ref", "$dynamicRef", "$recursiveRef"].iter().find_map(|keyword| map.get(*keyword))?;
        let (root, reference) = (self.root, reference.as_str()?);
        *self.references.entry(reference).or_insert_with(|| pointer::resolve(root, reference))
    }

    /// Descends one level. Returns `None` if the depth or the work is exhausted.
    pub(super) fn descend(&mut self, descent: usize) -> Option<usize> {
        self.spend(1);
        if descent == 0 {
            self.steps = 0;
        }
        if self.steps == 0 { None } else { Some(descent - 1) }
    }

    pub(super) fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Clones a value, which counts as work.
    pub(super) fn copied(&mut self, value: &Value) -> Value {
        let size = bounds::size(value).unwrap_or_default();
        self.spend(size.nodes / 8 + size.bytes / 1024);
        if self.steps == 0 { Value::Null } else { value.clone() }
    }

    pub(super) fn enter(&mut self, step: &str) -> usize {
        let length = self.path.len();
        pointer::push(&mut self.path, step);
        length
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
