//! JSON Schemas: references, fields and types.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use ropeway_core::schema::Validator;
use serde_json::{Map, Value, json};

use crate::terminal::text::cut;

/// Maximum width in columns for one choice, name or default in a type.
pub(super) const LONGEST_WORD: usize = 60;
/// Maximum fields per object in a type.
pub(super) const MOST_FIELDS: usize = 40;
/// Maximum schema nesting.
pub(super) const NESTING: usize = 64;
/// Maximum types formatted for one schema. References let a small schema expand to very many.
const MOST_TYPES: usize = 10_000;
/// Maximum alternatives in a type.
pub(super) const ALTERNATIVES: usize = 50;
/// Maximum defaults that are validated per schema.
const MOST_DEFAULTS: usize = 20;
/// Maximum schema size for validating its default, in bytes.
const LARGEST_CHECKED: usize = 16 << 10;

/// The schema that references point into, with the remaining budget for following them.
pub(crate) struct SchemaRoot<'a> {
    schema: &'a Value,
    /// The schema describes a result, not arguments.
    is_result: bool,
    left: Cell<usize>,
    pub(super) nesting: Cell<usize>,
    /// The references being followed. A recursive reference ends with its name.
    open: RefCell<Vec<&'a Value>>,
    /// Whether schemas accept their defaults.
    checked: RefCell<HashMap<*const Value, bool>>,
}

/// A schema with its references resolved.
pub(crate) enum Resolved<'a> {
    /// The references' target.
    Schema(&'a Value),
    /// The name that stands for a recursive or too deeply nested schema.
    Name(String),
}

impl<'a> SchemaRoot<'a> {
    /// Starts at an argument schema.
    pub(crate) fn new(schema: &'a Value) -> Self {
        let (left, nesting) = (Cell::new(MOST_TYPES), Cell::new(0));
        let open = RefCell::new(vec![schema]);
        Self { schema, is_result: false, left, nesting, open, checked: RefCell::default() }
    }

    /// Starts at a result schema.
    pub(crate) fn of_result(schema: &'a Value) -> Self {
        Self { is_result: true, ..Self::new(schema) }
    }

    /// Takes one type from the budget. Returns `false` if it is exhausted.
    pub(super) fn take_budget(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// Returns `true` if a field's default is shown. A required argument has at most an invalid one, which no call sends.
    pub(crate) fn shows_default(&self, is_required: bool) -> bool {
        self.is_result || !is_required
    }

    /// Returns `true` if a schema has a default that it accepts.
    pub(crate) fn has_valid_default(&self, schema: &Value) -> bool {
        let Some(default) = keyword(schema, resolve(schema, self.schema), "default") else { return false };
        let kinds = json_types(schema, self.schema);
        let is_kind = |kind: &String| kind == json_type(default) || (kind == "integer" && default.is_number());
        (kinds.is_empty() || kinds.iter().any(is_kind)) && self.accepts(schema, default)
    }

    /// Validates a schema's default, as a call does. Accepts a schema that is too large to check.
    fn accepts(&self, schema: &Value, default: &Value) -> bool {
        let mut checked = self.checked.borrow_mut();
        if let Some(is_valid) = checked.get(&std::ptr::from_ref(schema)) {
            return *is_valid;
        }
        if checked.len() == MOST_DEFAULTS {
            return true;
        }
        let shared = ["$schema", "$defs", "definitions"];
        let shared = shared.into_iter().filter_map(|word| Some((word.to_owned(), self.schema.get(word)?.clone())));
        let mut whole: Map<String, Value> = shared.collect();
        whole.insert("properties".to_owned(), json!({"value": schema}));
        let whole = Value::Object(whole);
        let is_valid = whole.to_string().len() > LARGEST_CHECKED
            || Validator::compile(&whole).validate(&json!({"value": default})).is_ok();
        checked.insert(std::ptr::from_ref(schema), is_valid);
        is_valid
    }

    /// Returns the number of references being followed, for [`unwind`](Self::unwind).
    pub(crate) fn depth(&self) -> usize {
        self.open.borrow().len()
    }

    /// Drops the references followed since `mark`.
    pub(crate) fn unwind(&self, mark: usize) {
        self.open.borrow_mut().truncate(mark);
    }

    /// Follows a schema's references while `read` runs.
    pub(crate) fn following<T>(&self, schema: &'a Value, read: impl FnOnce(Resolved<'a>) -> T) -> T {
        let mark = self.depth();
        let value = read(self.follow(schema));
        self.unwind(mark);
        value
    }

    /// Follows a schema's references, except for those to other documents.
    pub(crate) fn follow(&self, schema: &'a Value) -> Resolved<'a> {
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
            let Some(target) = target else { return Resolved::Schema(schema) };
            let mut open = self.open.borrow_mut();
            if open.len() >= NESTING || open.iter().any(|known| std::ptr::eq(*known, target)) {
                return Resolved::Name(reference_name(reference, target));
            }
            open.push(target);
            schema = target;
        }
        Resolved::Schema(schema)
    }
}

/// Returns a schema's alternatives.
pub(crate) fn alternatives(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"].into_iter().find_map(|word| schema.get(word).and_then(Value::as_array))
}

/// Returns a referenced schema's name: the last part of the reference, or the title.
fn reference_name(reference: &str, target: &Value) -> String {
    let last = reference.rsplit(['/', '#']).next().filter(|name| !name.is_empty());
    let title = target.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty());
    cut(last.or(title).unwrap_or("object"), LONGEST_WORD)
}

/// Returns a keyword's value, next to a reference or in its target.
pub(crate) fn keyword<'a>(schema: &'a Value, resolved: &'a Value, word: &str) -> Option<&'a Value> {
    schema.get(word).or_else(|| resolved.get(word))
}

/// Returns a schema's description, next to a reference or in its target.
pub(crate) fn description<'a>(schema: &'a Value, resolved: &'a Value) -> Option<&'a str> {
    let said = |schema: &'a Value| schema.get("description").and_then(Value::as_str);
    said(schema).or_else(|| said(resolved))
}

/// An object schema's fields, including those of `allOf`.
#[derive(Default)]
pub(crate) struct Members<'a> {
    pub(crate) properties: Vec<(&'a str, &'a Value)>,
    /// Without arguments that have a valid default, which a call adds.
    pub(crate) required: HashSet<&'a str>,
    /// The schema for additional properties.
    pub(crate) others: Option<&'a Value>,
    /// The schemas for pattern properties.
    pub(crate) patterns: Vec<(&'a str, &'a Value)>,
    most: usize,
}

impl Members<'_> {
    /// Returns `true` if the schema describes no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.patterns.is_empty() && self.others.is_none()
    }
}

/// Collects an object schema's fields.
pub(crate) fn members<'a>(schema: &'a Value, root: &SchemaRoot<'a>) -> Members<'a> {
    first_members(schema, root, usize::MAX)
}

/// Collects about `most` fields from an object schema.
pub(super) fn first_members<'a>(schema: &'a Value, root: &SchemaRoot<'a>, most: usize) -> Members<'a> {
    let mut members = Members { most, ..Members::default() };
    collect_members(schema, root, 8, &mut HashSet::new(), &mut members);
    if !root.is_result {
        for (name, property) in &members.properties {
            if members.required.contains(name) && root.has_valid_default(property) {
                members.required.remove(name);
            }
        }
    }
    members
}

fn collect_members<'a>(
    schema: &'a Value,
    root: &SchemaRoot<'a>,
    depth: usize,
    seen: &mut HashSet<&'a str>,
    members: &mut Members<'a>,
) {
    let object = |word: &str| schema.get(word).and_then(Value::as_object).into_iter().flatten();
    for (name, property) in object("properties") {
        if members.properties.len() == members.most {
            break;
        }
        if seen.insert(name) {
            members.properties.push((name, property));
        }
    }
    members.required.extend(required(schema.get("required")));
    let patterns = object("patternProperties").map(|(name, property)| (name.as_str(), property));
    members.patterns.extend(patterns.take(MOST_FIELDS.saturating_sub(members.patterns.len())));
    members.others = members.others.or(schema.get("additionalProperties").filter(|others| others.is_object()));
    if depth == 0 {
        return;
    }
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten().take(ALTERNATIVES) {
        if root.take_budget() {
            collect_members(resolve(part, root.schema), root, depth - 1, seen, members);
        }
    }
}

/// Returns one property's schema in an object schema.
pub(crate) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let resolved = resolve(schema, schema);
    let own = resolved.get("properties").and_then(|properties| properties.get(name));
    own.or_else(|| {
        let members = members(resolved, &SchemaRoot::new(schema));
        members.properties.into_iter().find(|(known, _)| *known == name).map(|(_, property)| property)
    })
}

/// Returns `true` if the object may have fields that its schema does not name.
pub(crate) fn is_open(schema: &Value) -> bool {
    let schema = resolve(schema, schema);
    schema.get("additionalProperties") != Some(&Value::Bool(false)) || schema.get("patternProperties").is_some()
}

fn required(names: Option<&Value>) -> HashSet<&str> {
    names.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the JSON types that a schema allows, or none if it does not restrict them.
pub(crate) fn json_types(schema: &Value, root: &Value) -> Vec<String> {
    let mut kinds = Vec::new();
    collect_json_types(schema, &SchemaRoot::new(root), 6, &mut kinds);
    kinds
}

fn collect_json_types<'a>(schema: &'a Value, root: &SchemaRoot<'a>, depth: usize, kinds: &mut Vec<String>) {
    if !root.take_budget() {
        return;
    }
    let schema = resolve(schema, root.schema);
    let mut add = |kind: &str| {
        if kinds.len() < ALTERNATIVES && !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    };
    match schema.get("type") {
        Some(Value::String(kind)) => return add(kind),
        Some(Value::Array(several)) => return several.iter().filter_map(Value::as_str).for_each(add),
        _ => {}
    }
    let literals = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    literals.chain(schema.get("const")).for_each(|literal| add(json_type(literal)));
    if depth > 0 {
        for word in ["anyOf", "oneOf", "allOf"] {
            for part in schema.get(word).and_then(Value::as_array).into_iter().flatten() {
                collect_json_types(part, root, depth - 1, kinds);
            }
        }
    }
}

/// Returns the JSON types that a list's items may have, or none if an alternative does not restrict them.
pub(crate) fn item_types(schema: &Value, root: &Value) -> Vec<String> {
    let schema = resolve(schema, root);
    let lists: Vec<&Value> = match alternatives(schema) {
        Some(parts) => parts.iter().map(|part| resolve(part, root)).filter(|part| !is_null(part)).collect(),
        None => vec![schema],
    };
    match lists[..] {
        [list] if list.get("prefixItems").is_none() => {
            list.get("items").map(|items| json_types(items, root)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// Returns the choices for an enumeration or boolean argument.
pub(crate) fn choices(schema: &Value, name: &str) -> Vec<String> {
    let Some(property) = property(schema, name).map(|property| resolve(property, schema)) else { return Vec::new() };
    let parts: Vec<&Value> = match alternatives(property) {
        Some(parts) => parts.iter().map(|part| resolve(part, schema)).take(ALTERNATIVES).collect(),
        None => vec![property],
    };
    let literal = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    let choices = parts.iter().flat_map(|part| {
        let listed = part.get("enum").and_then(Value::as_array).into_iter().flatten().chain(part.get("const"));
        let is_boolean = part.get("type").and_then(Value::as_str) == Some("boolean");
        let booleans = if is_boolean { &["true", "false"][..] } else { &[] };
        listed.filter_map(literal).chain(booleans.iter().map(|text| (*text).to_owned())).collect::<Vec<_>>()
    });
    choices.collect()
}

/// Returns a value's JSON type.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Follows references within the document. Recursive references and those to other documents are not followed.
pub(crate) fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..16 {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(target) = target else { return schema };
        schema = target;
    }
    schema
}

/// Every kind of keyword, and values that are wrong for most.
#[cfg(test)]
pub(crate) fn hostile_keywords() -> impl Iterator<Item = (&'static str, Value)> {
    let words = "type properties required items prefixItems enum const anyOf oneOf allOf $ref additionalProperties \
        patternProperties default description title examples if minLength";
    let long = "x".repeat(100_000);
    let wrong =
        [json!(null), json!(true), json!(-1), json!(long), json!([1, null, [], {}]), json!({"a": 7, "b": null})];
    words.split_whitespace().flat_map(move |word| wrong.clone().map(|value| (word, value)))
}
