//! A node: one schema, not looked into yet, as the list of its keywords.

use std::borrow::Cow;

use serde_json::Value;

use super::types::Types;
use crate::json;

/// One schema's keywords, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Node<'d> {
    entries: Vec<(Cow<'d, str>, Cow<'d, Value>)>,
    /// Is there, or was there, a keyword that makes work?
    is_laborious: bool,
}

/// Keywords that mean nothing without the first of them.
pub(super) const GROUPS: [[&str; 3]; 2] = [["if", "then", "else"], ["contains", "minContains", "maxContains"]];

/// There is no value that fits both schemas.
pub(super) struct Impossible;

impl<'d> Node<'d> {
    /// The keywords of a schema; `None` if it is no object.
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
        let is_laborious = entries.iter().any(|(keyword, _)| is_laborious(keyword));
        Some(Self { entries, is_laborious })
    }

    /// Is there a keyword that makes work: an older form, a reference, parts or alternatives?
    pub(super) fn is_laborious(&self) -> bool {
        self.is_laborious
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&Value> {
        self.source(keyword).map(|value| &**value)
    }

    /// What a keyword says, as it was borrowed.
    pub(super) fn source(&self, keyword: &str) -> Option<&Cow<'d, Value>> {
        self.entries.iter().find(|(other, _)| other == keyword).map(|(_, value)| value)
    }

    pub(super) fn has(&self, keyword: &str) -> bool {
        self.source(keyword).is_some()
    }

    /// Sets a keyword, in its place if it has one.
    pub(super) fn set(&mut self, keyword: &'static str, value: Value) {
        match self.entries.iter_mut().find(|(other, _)| other == keyword) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.entries.push((Cow::Borrowed(keyword), Cow::Owned(value))),
        }
    }

    /// Sets a keyword, before all others if it has no place yet.
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

    /// The keywords and what they say.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Cow<'d, str>, &Cow<'d, Value>)> {
        self.entries.iter().map(|(keyword, value)| (keyword, value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keywords that say something to the reader only, and the others.
    pub(super) fn split_annotations(self) -> (Self, Self) {
        let is_laborious = self.is_laborious;
        let (annotations, rest) = self.entries.into_iter().partition(|(keyword, _)| is_annotation(keyword));
        (Self { entries: annotations, is_laborious: false }, Self { entries: rest, is_laborious })
    }

    /// The types it allows, if it says so.
    pub(super) fn types(&self) -> Option<Types> {
        self.get("type").map(Types::read).filter(|types| !types.is_empty())
    }

    /// Is there a keyword that is about all that its neighbours are not about, where the other has more of those?
    pub(super) fn minds(&self, other: &Self) -> bool {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| self.has(keyword));
        let brings = |keywords: &[&str]| keywords.iter().any(|keyword| other.has(keyword));
        has(&["unevaluatedProperties", "unevaluatedItems"])
            || (has(&["additionalProperties"]) && brings(&["properties", "patternProperties"]))
            || (has(&["items"]) && brings(&["prefixItems"]))
    }

    /// Adds another schema's keywords, so that only what fits both is allowed.
    ///
    /// What cannot be said of both at once is handed to `leftover`: without it more is allowed than should be.
    pub(super) fn merge(&mut self, mut other: Self, leftover: &mut dyn FnMut(&str, &Value)) -> Result<(), Impossible> {
        for group in GROUPS {
            if self.has(group[0]) && other.has(group[0]) {
                for keyword in group {
                    if let Some(value) = other.remove(keyword) {
                        leftover(keyword, &value);
                    }
                }
            }
        }
        self.is_laborious |= other.is_laborious;
        for (keyword, theirs) in other.entries {
            let Some((_, ours)) = self.entries.iter_mut().find(|(known, _)| *known == keyword) else {
                self.entries.push((keyword, theirs));
                continue;
            };
            if **ours != *theirs && !is_annotation(&keyword) {
                both(&keyword, ours, theirs, leftover)?;
            }
        }
        Ok(())
    }
}

/// Does a keyword say something to the reader only?
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

fn is_laborious(keyword: &str) -> bool {
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

/// The schemas in a list: borrowed where the list is.
pub(super) fn items<'d>(list: &Cow<'d, Value>) -> Vec<Cow<'d, Value>> {
    match list {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.iter().cloned().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// The schemas in a map: borrowed where the map is.
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

/// Makes a keyword say what it says when two schemas are to hold.
fn both<'d>(
    keyword: &str,
    ours: &mut Cow<'d, Value>,
    theirs: Cow<'d, Value>,
    leftover: &mut dyn FnMut(&str, &Value),
) -> Result<(), Impossible> {
    match keyword {
        "type" => {
            let (one, other) = (Types::read(ours), Types::read(&theirs));
            match one.common(other) {
                _ if other.is_empty() => {}
                _ if one.is_empty() => *ours = theirs,
                common if common.is_empty() => return Err(Impossible),
                common => *ours = Cow::Owned(common.to_value()),
            }
        }
        "const" => return Err(Impossible),
        "enum" => {
            if let (Value::Array(one), Value::Array(other)) = (&**ours, &*theirs) {
                // Longer lists are not shown anyhow, and the work grows with the square.
                let known = one.iter().take(1000);
                let common: Vec<Value> =
                    known.filter(|value| other.iter().take(1000).any(|o| o == *value)).cloned().collect();
                if common.is_empty() {
                    return Err(Impossible);
                }
                *ours = Cow::Owned(Value::Array(common));
            }
        }
        "properties" | "patternProperties" | "dependentSchemas" => match (&**ours, &*theirs) {
            (Value::Object(_), Value::Object(other)) => {
                let Value::Object(all) = ours.to_mut() else { return Ok(()) };
                for (name, schema) in other {
                    match all.get_mut(name) {
                        Some(known) => all_of(known, schema),
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
            all_of(ours.to_mut(), &theirs);
        }
        "uniqueItems" => *ours = Cow::Owned(Value::Bool(true)),
        _ => leftover(keyword, &theirs),
    }
    Ok(())
}

/// Makes a schema want another one as well.
fn all_of(schema: &mut Value, other: &Value) {
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
