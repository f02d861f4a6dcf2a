//! A schema as a keyword list, before its subschemas are lowered.

use std::borrow::Cow;

use serde_json::Value;

use super::types::Types;
use crate::json;

/// A schema's keywords, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Node<'d> {
    entries: Vec<(Cow<'d, str>, Cow<'d, Value>)>,
    /// Whether any keyword, present or removed, requires rewriting.
    needs_rewriting: bool,
}

/// Keywords that have no effect without the first one in their group.
pub(super) const GROUPS: [[&str; 3]; 2] = [["if", "then", "else"], ["contains", "minContains", "maxContains"]];

/// The error for two schemas that no value matches at once.
pub(super) struct Unsatisfiable;

impl<'d> Node<'d> {
    /// Reads a schema's keywords; `None` if it is not an object.
    pub(super) fn of(schema: Cow<'d, Value>) -> Option<Self> {
        let entries: Vec<(Cow<'d, str>, Cow<'d, Value>)> = match schema {
            Cow::Borrowed(Value::Object(map)) => {
                map.iter().map(|(keyword, value)| (Cow::Borrowed(keyword.as_str()), Cow::Borrowed(value))).collect()
            }
            Cow::Owned(Value::Object(map)) => {
                map.into_iter().map(|(keyword, value)| (Cow::Owned(keyword), Cow::Owned(value))).collect()
            }
            _ => return None,
        };
        let needs_rewriting = entries.iter().any(|(keyword, _)| needs_rewriting(keyword));
        Some(Self { entries, needs_rewriting })
    }

    /// Returns `true` if the node has a reference, parts, alternatives or a keyword from an older draft.
    pub(super) fn needs_rewriting(&self) -> bool {
        self.needs_rewriting
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&Value> {
        self.source(keyword).map(|value| &**value)
    }

    /// Returns a keyword's value as it is borrowed.
    pub(super) fn source(&self, keyword: &str) -> Option<&Cow<'d, Value>> {
        self.entries.iter().find(|(other, _)| other == keyword).map(|(_, value)| value)
    }

    pub(super) fn has(&self, keyword: &str) -> bool {
        self.source(keyword).is_some()
    }

    /// Sets a keyword, in place if it exists.
    pub(super) fn set(&mut self, keyword: &'static str, value: Value) {
        match self.entries.iter_mut().find(|(other, _)| other == keyword) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.entries.push((Cow::Borrowed(keyword), Cow::Owned(value))),
        }
    }

    /// Sets a keyword, in place or before all others.
    pub(super) fn set_first(&mut self, keyword: &'static str, value: Value) {
        if !self.has(keyword) {
            self.entries.insert(0, (Cow::Borrowed(keyword), Cow::Owned(Value::Null)));
        }
        self.set(keyword, value);
    }

    pub(super) fn remove(&mut self, keyword: &str) -> Option<Cow<'d, Value>> {
        let at = self.entries.iter().position(|(other, _)| other == keyword)?;
        Some(self.entries.remove(at).1)
    }

    pub(super) fn rename(&mut self, keyword: &str, name: &'static str) {
        if let Some((keyword, _)) = self.entries.iter_mut().find(|(other, _)| other == keyword) {
            *keyword = Cow::Borrowed(name);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Cow<'d, str>, &Cow<'d, Value>)> {
        self.entries.iter().map(|(keyword, value)| (keyword, value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Splits off the annotations: keywords that do not constrain values.
    pub(super) fn split_annotations(self) -> (Self, Self) {
        let needs_rewriting = self.needs_rewriting;
        let (annotations, rest) = self.entries.into_iter().partition(|(keyword, _)| is_annotation(keyword));
        (Self { entries: annotations, needs_rewriting: false }, Self { entries: rest, needs_rewriting })
    }

    /// Returns the declared types.
    pub(super) fn types(&self) -> Option<Types> {
        self.get("type").map(Types::read).filter(|types| !types.is_empty())
    }

    /// Returns `true` if a keyword such as `additionalProperties` covers what its siblings do not, and `other` adds
    /// siblings.
    pub(super) fn is_affected_by(&self, other: &Self) -> bool {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| self.has(keyword));
        let brings = |keywords: &[&str]| keywords.iter().any(|keyword| other.has(keyword));
        has(&["unevaluatedProperties", "unevaluatedItems"])
            || (has(&["additionalProperties"]) && brings(&["properties", "patternProperties"]))
            || (has(&["items"]) && brings(&["prefixItems"]))
    }

    /// Merges another schema's keywords: only values that match both are allowed.
    ///
    /// Calls `leftover` for keywords that cannot be merged. Without them, the schema allows too much.
    pub(super) fn merge(
        &mut self,
        mut other: Self,
        leftover: &mut dyn FnMut(&str, &Value),
    ) -> Result<(), Unsatisfiable> {
        for group in GROUPS {
            if self.has(group[0]) && other.has(group[0]) {
                for keyword in group {
                    if let Some(value) = other.remove(keyword) {
                        leftover(keyword, &value);
                    }
                }
            }
        }
        self.needs_rewriting |= other.needs_rewriting;
        for (keyword, theirs) in other.entries {
            let Some((_, ours)) = self.entries.iter_mut().find(|(known, _)| *known == keyword) else {
                self.entries.push((keyword, theirs));
                continue;
            };
            if **ours != *theirs && !is_annotation(&keyword) {
                intersect(&keyword, ours, theirs, leftover)?;
            }
        }
        Ok(())
    }
}

/// Returns `true` if a keyword does not constrain values.
pub(super) fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "title"
            | "description"
            | "default"
            | "examples"
            | "example"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "$comment"
            | "$schema"
            | "$id"
            | "id"
            | "$defs"
            | "definitions"
            | "$anchor"
            | "$dynamicAnchor"
            | "$recursiveAnchor"
            | "$vocabulary"
    ) || keyword.starts_with("x-")
}

fn needs_rewriting(keyword: &str) -> bool {
    matches!(
        keyword,
        "$ref"
            | "$dynamicRef"
            | "$recursiveRef"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "items"
            | "prefixItems"
            | "dependencies"
            | "nullable"
            | "then"
            | "else"
            | "minContains"
            | "maxContains"
    )
}

/// Returns a list's schemas, borrowed if the list is.
pub(super) fn items<'d>(list: &Cow<'d, Value>) -> Vec<Cow<'d, Value>> {
    match list {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.iter().cloned().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// Returns a map's schemas, borrowed if the map is.
pub(super) fn entries<'d>(map: &Cow<'d, Value>) -> Vec<(Cow<'d, str>, Cow<'d, Value>)> {
    match map {
        Cow::Borrowed(Value::Object(map)) => {
            map.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), Cow::Borrowed(value))).collect()
        }
        Cow::Owned(Value::Object(map)) => {
            map.iter().map(|(name, value)| (Cow::Owned(name.clone()), Cow::Owned(value.clone()))).collect()
        }
        _ => Vec::new(),
    }
}

/// Intersects one keyword's values.
fn intersect<'d>(
    keyword: &str,
    ours: &mut Cow<'d, Value>,
    theirs: Cow<'d, Value>,
    leftover: &mut dyn FnMut(&str, &Value),
) -> Result<(), Unsatisfiable> {
    match keyword {
        "type" => {
            let (one, other) = (Types::read(ours), Types::read(&theirs));
            match one.common(other) {
                _ if other.is_empty() => {}
                _ if one.is_empty() => *ours = theirs,
                common if common.is_empty() => return Err(Unsatisfiable),
                common => *ours = Cow::Owned(common.to_value()),
            }
        }
        "const" => return Err(Unsatisfiable),
        "enum" => {
            if let (Value::Array(one), Value::Array(other)) = (&**ours, &*theirs) {
                // Longer lists are not sent, and the intersection takes quadratic time.
                let known = one.iter().take(1000);
                let common: Vec<Value> =
                    known.filter(|value| other.iter().take(1000).any(|o| o == *value)).cloned().collect();
                if common.is_empty() {
                    return Err(Unsatisfiable);
                }
                *ours = Cow::Owned(Value::Array(common));
            }
        }
        "properties" | "patternProperties" | "dependentSchemas" => match (&**ours, &*theirs) {
            (Value::Object(_), Value::Object(other)) => {
                let Value::Object(all) = ours.to_mut() else { return Ok(()) };
                for (name, schema) in other {
                    match all.get_mut(name) {
                        Some(known) => add_all_of(known, schema),
                        None => drop(all.insert(name.clone(), schema.clone())),
                    }
                }
            }
            (_, Value::Object(_)) => *ours = theirs,
            _ => {}
        },
        "required" | "allOf" => match (&**ours, &*theirs) {
            (Value::Array(_), Value::Array(other)) => {
                if let Value::Array(all) = ours.to_mut() {
                    all.extend_from_slice(other);
                }
            }
            (_, Value::Array(_)) => *ours = theirs,
            _ => {}
        },
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
            if json::to_f64(ours) < json::to_f64(&theirs) {
                *ours = theirs;
            }
        }
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
            let is_kept = |(one, other): (f64, f64)| one <= other;
            if theirs.is_number() && !json::to_f64(ours).zip(json::to_f64(&theirs)).is_some_and(is_kept) {
                *ours = theirs;
            }
        }
        "items" | "additionalProperties" | "propertyNames" | "unevaluatedItems" | "unevaluatedProperties" => {
            add_all_of(ours.to_mut(), &theirs);
        }
        "uniqueItems" => *ours = Cow::Owned(Value::Bool(true)),
        _ => leftover(keyword, &theirs),
    }
    Ok(())
}

/// Adds a schema to another one's `allOf`.
fn add_all_of(schema: &mut Value, other: &Value) {
    match (&mut *schema, other) {
        (one, other) if one == other => {}
        (Value::Bool(false), _) | (_, Value::Bool(true)) => {}
        (Value::Object(one), Value::Object(_)) if one.len() == 1 && one.get("allOf").is_some_and(Value::is_array) => {
            if let Some(Value::Array(all)) = one.get_mut("allOf") {
                all.push(other.clone());
            }
        }
        (Value::Object(one), Value::Object(_)) if !one.is_empty() => {
            let one = Value::Object(std::mem::take(one));
            *schema = [("allOf", Value::Array(vec![one, other.clone()]))].into_iter().collect();
        }
        (_, Value::Object(map)) if map.is_empty() => {}
        _ => *schema = other.clone(),
    }
}
