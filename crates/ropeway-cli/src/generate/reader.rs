//! Reads JSON Schemas as types.

use std::collections::{HashMap, HashSet};

use ropeway_core::schema::resolve_reference;
use serde_json::{Map, Value};

use super::model::{Definition, Field, Object, Others, Type, Types};
use crate::describe::schema::json_type;

/// Maximum type nesting. Deeper types are unknown.
const MAX_DEPTH: usize = 32;
/// Maximum types per schema. Further types are unknown.
const MAX_TYPES: usize = 20_000;
/// Maximum values in an enumeration, and alternatives in a type. With more, the type is unknown.
const MAX_ALTERNATIVES: usize = 1_000;
/// Maximum items in a tuple. A longer one is a list.
const MAX_ITEMS: usize = 64;
/// Maximum definitions per schema.
const MAX_DEFINITIONS: usize = 1_000;

/// Reads a schema's type.
pub(super) fn read(schema: &Value) -> Types {
    let (definitions, targets) = (Vec::new(), Vec::new());
    let mut reader = Reader { root: schema, definitions, targets, known: HashMap::new(), left: MAX_TYPES };
    let root = reader.kind(schema, 0);
    // Definitions are not read when they are found, because a long chain would recurse as deeply.
    for at in 0.. {
        let Some(target) = reader.targets.get(at).copied() else { break };
        reader.definitions[at].kind = reader.kind(target, 0);
    }
    Types { root, definitions: reader.definitions }.without_alias_cycles()
}

struct Reader<'a> {
    root: &'a Value,
    definitions: Vec<Definition>,
    /// Each definition's schema.
    targets: Vec<&'a Value>,
    /// Each definition's index, by its schema's address.
    known: HashMap<*const Value, usize>,
    left: usize,
}

impl<'a> Reader<'a> {
    fn kind(&mut self, schema: &'a Value, depth: usize) -> Type {
        let words = match schema {
            Value::Object(words) => words,
            Value::Bool(false) => return Type::Never,
            _ => return Type::Unknown,
        };
        if depth == MAX_DEPTH || self.left == 0 {
            return Type::Unknown;
        }
        self.left -= 1;
        let kind = match words.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.reference(reference, depth),
            None => self.own_kind(words, depth),
        };
        // OpenAPI 3.0 marks types that include `null` so.
        match words.get("nullable") {
            Some(Value::Bool(true)) => Type::union([kind, Type::Null]),
            _ => kind,
        }
    }

    /// Returns the type behind a reference. Keywords next to a reference are ignored.
    fn reference(&mut self, reference: &str, depth: usize) -> Type {
        let Some(target) = resolve_reference(self.root, reference) else { return Type::Unknown };
        if !target.is_object() {
            return self.kind(target, depth + 1);
        }
        if let Some(at) = self.known.get(&std::ptr::from_ref(target)) {
            return Type::Named(*at);
        }
        if self.definitions.len() == MAX_DEFINITIONS {
            return Type::Unknown;
        }
        let at = self.definitions.len();
        let title = target.get("title").and_then(Value::as_str);
        let last = reference.rsplit(['/', '#']).next().filter(|name| !name.is_empty());
        let name = last.or(title).unwrap_or("Self").to_owned();
        let description = text(target, "description");
        self.definitions.push(Definition { name, description, kind: Type::Unknown });
        self.targets.push(target);
        self.known.insert(std::ptr::from_ref(target), at);
        Type::Named(at)
    }

    fn own_kind(&mut self, words: &'a Map<String, Value>, depth: usize) -> Type {
        if let Some(literal) = words.get("const") {
            return literal_kind(literal);
        }
        if let Some(choices) = words.get("enum").and_then(Value::as_array) {
            return match choices.len() {
                0..=MAX_ALTERNATIVES => Type::union(choices.iter().map(literal_kind)),
                _ => Type::Unknown,
            };
        }
        let mut parts = vec![self.declared_kind(words, depth)];
        for part in array(words, "allOf") {
            parts.push(self.kind(part, depth + 1));
        }
        for word in ["anyOf", "oneOf"] {
            let Some(alternatives) = words.get(word).and_then(Value::as_array) else { continue };
            if (1..=MAX_ALTERNATIVES).contains(&alternatives.len()) {
                let kinds: Vec<Type> = alternatives.iter().map(|part| self.kind(part, depth + 1)).collect();
                parts.push(Type::union(kinds));
            }
        }
        Type::intersection(parts)
    }

    /// Returns the type by `type`, or by keywords that describe objects and lists.
    fn declared_kind(&mut self, words: &'a Map<String, Value>, depth: usize) -> Type {
        match words.get("type") {
            Some(Value::String(kind)) => self.kind_named(kind, words, depth),
            Some(Value::Array(kinds)) if !kinds.is_empty() => {
                let kinds = kinds.iter().take(MAX_ITEMS).map(|kind| match kind {
                    Value::String(kind) => self.kind_named(kind, words, depth),
                    _ => Type::Unknown,
                });
                Type::union(kinds.collect::<Vec<_>>())
            }
            _ if ["properties", "required"].iter().any(|word| words.contains_key(*word)) => self.object(words, depth),
            _ if ["items", "prefixItems"].iter().any(|word| words.contains_key(*word)) => self.list(words, depth),
            _ => Type::Unknown,
        }
    }

    fn kind_named(&mut self, kind: &str, words: &'a Map<String, Value>, depth: usize) -> Type {
        match kind {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "string" => Type::String,
            "array" => self.list(words, depth),
            "object" => self.object(words, depth),
            _ => Type::Unknown,
        }
    }

    fn list(&mut self, words: &'a Map<String, Value>, depth: usize) -> Type {
        // Before draft 2020-12, `items` was the list, and `additionalItems` the rest.
        let (first, rest) = match (words.get("prefixItems"), words.get("items")) {
            (Some(Value::Array(first)), rest) => (first, rest),
            (_, Some(Value::Array(first))) => (first, words.get("additionalItems")),
            (_, items) => {
                let item = items.map_or(Type::Unknown, |items| self.kind(items, depth + 1));
                return Type::Array(Box::new(item));
            }
        };
        if first.is_empty() || first.len() > MAX_ITEMS {
            return Type::Array(Box::new(Type::Unknown));
        }
        let items: Vec<Type> = first.iter().map(|item| self.kind(item, depth + 1)).collect();
        let rest = match rest {
            Some(Value::Bool(false)) => None,
            Some(rest) => Some(Box::new(self.kind(rest, depth + 1))),
            None if words.get("maxItems").and_then(Value::as_u64) == Some(items.len() as u64) => None,
            None => Some(Box::new(Type::Unknown)),
        };
        let is_whole = words.get("minItems").and_then(Value::as_u64).is_some_and(|least| least >= items.len() as u64);
        if !is_whole && rest.is_some() {
            // Items may be missing, and the rest may be anything: a list whose items have any of
            // these types.
            return Type::Array(Box::new(Type::union(items.into_iter().chain(rest.map(|rest| *rest)))));
        }
        Type::Tuple(items, rest)
    }

    fn object(&mut self, words: &'a Map<String, Value>, depth: usize) -> Type {
        let properties = words.get("properties").and_then(Value::as_object);
        let mut required: Vec<&str> = array(words, "required").filter_map(Value::as_str).collect();
        let mut fields = Vec::new();
        let is_required: HashSet<&str> = required.iter().copied().collect();
        for (name, property) in properties.into_iter().flatten() {
            fields.push(Field {
                name: name.clone(),
                // A default stands for a field that is left out.
                is_required: is_required.contains(name.as_str()) && property.get("default").is_none(),
                kind: self.kind(property, depth + 1),
                description: text(property, "description").or_else(|| text(property, "title")),
                default: property.get("default").cloned(),
            });
        }
        // A required field without a schema accepts any value.
        let mut seen: HashSet<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        required.retain(|name| seen.insert(name));
        fields.extend(required.into_iter().map(|name| Field {
            name: name.to_owned(),
            is_required: true,
            kind: Type::Unknown,
            description: None,
            default: None,
        }));
        let has_patterns = words.get("patternProperties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        let others = match words.get("additionalProperties") {
            _ if has_patterns => Others::Allowed(Box::new(Type::Unknown)),
            Some(Value::Bool(false)) => Others::Forbidden,
            Some(others) => Others::Allowed(Box::new(self.kind(others, depth + 1))),
            // `type: object` alone accepts any object.
            None if properties.is_none() && fields.is_empty() => Others::Allowed(Box::new(Type::Unknown)),
            None => Others::Unmentioned,
        };
        Type::Object(Object { fields, others })
    }
}

fn array<'a>(words: &'a Map<String, Value>, word: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    words.get(word).and_then(Value::as_array).into_iter().flatten().take(MAX_ALTERNATIVES)
}

fn text(schema: &Value, word: &str) -> Option<String> {
    schema.get(word).and_then(Value::as_str).filter(|text| !text.trim().is_empty()).map(str::to_owned)
}

fn literal_kind(value: &Value) -> Type {
    match json_type(value) {
        "null" => Type::Null,
        "array" | "object" => Type::Unknown,
        _ => Type::Literal(value.clone()),
    }
}
