//! A JSON Schema as a person reads it: types that look like code.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::{Map, Value};

/// How deep a type is spelled out; below, it is named by its kind.
const DEPTH: usize = 3;
/// How many choices of an enumeration are spelled out.
const CHOICES: usize = 8;
/// How many types are spelled out for one schema. References let a small schema describe very many.
const MOST_TYPES: usize = 5_000;
/// How many alternatives of a type are spelled out.
const ALTERNATIVES: usize = 50;

/// The schema that references point into, and how many more types are spelled out.
struct Root<'a> {
    schema: &'a Value,
    left: Cell<usize>,
}

impl<'a> Root<'a> {
    fn new(schema: &'a Value) -> Self {
        Self { schema, left: Cell::new(MOST_TYPES) }
    }

    /// Takes one of them, if any is left.
    fn spells(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }
}

/// One argument of a tool, or one field of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: String,
    /// Must it be there?
    pub(crate) required: bool,
    /// Its type as code.
    pub(crate) kind: String,
    /// What it is when it is not given, as code.
    pub(crate) default: Option<String>,
    /// What the server says about it.
    pub(crate) description: Option<String>,
}

/// The fields of an object schema: required ones first, else in the schema's own order.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    let root = &Root::new(schema);
    let schema = resolve(schema, schema);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Vec::new() };
    let required = required(schema.get("required"));
    let mut fields: Vec<Field> = properties
        .iter()
        .map(|(name, property)| Field {
            name: name.clone(),
            required: required.contains(name.as_str()),
            kind: type_at(property, root, DEPTH),
            default: property.get("default").and_then(short_literal),
            description: resolve(property, root.schema).get("description").and_then(Value::as_str).map(str::to_owned),
        })
        .collect();
    fields.sort_by_key(|field| !field.required);
    fields
}

/// A schema as a type: `number[]`, `"bar" | "line"`, `{a: string, b?: boolean}`.
pub(crate) fn type_name(schema: &Value) -> String {
    type_at(schema, &Root::new(schema), DEPTH)
}

/// The schema of one property of an object schema, and the schema that its references point into.
pub(crate) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    resolve(schema, schema).get("properties")?.get(name)
}

/// May the object hold fields that its schema does not name?
pub(crate) fn is_open(schema: &Value) -> bool {
    let schema = resolve(schema, schema);
    schema.get("additionalProperties") != Some(&Value::Bool(false)) || schema.get("patternProperties").is_some()
}

fn required(names: Option<&Value>) -> HashSet<&str> {
    names.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The JSON types that a schema allows; none when it does not say.
pub(crate) fn kinds(schema: &Value, root: &Value) -> Vec<String> {
    let mut kinds = Vec::new();
    collect_kinds(schema, &Root::new(root), DEPTH * 2, &mut kinds);
    kinds
}

fn collect_kinds(schema: &Value, root: &Root<'_>, depth: usize, kinds: &mut Vec<String>) {
    if !root.spells() {
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
    literals.chain(schema.get("const")).for_each(|literal| add(kind_of(literal)));
    if depth > 0 {
        for word in ["anyOf", "oneOf", "allOf"] {
            for part in schema.get(word).and_then(Value::as_array).into_iter().flatten() {
                collect_kinds(part, root, depth - 1, kinds);
            }
        }
    }
}

/// The JSON types that the items of a list may have; none when the schema does not say for each of its alternatives.
pub(crate) fn item_kinds(schema: &Value, root: &Value) -> Vec<String> {
    let schema = resolve(schema, root);
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|word| schema.get(word).and_then(Value::as_array));
    let lists: Vec<&Value> = match alternatives {
        Some(parts) => parts.iter().map(|part| resolve(part, root)).filter(|part| !is_null(part)).collect(),
        None => vec![schema],
    };
    match lists[..] {
        [list] if list.get("prefixItems").is_none() => {
            list.get("items").map(|items| kinds(items, root)).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// Returns the values that an argument can have, if there are few: those of an enumeration, or of a boolean.
pub(crate) fn choices(schema: &Value, name: &str) -> Vec<String> {
    let Some(property) = property(schema, name).map(|property| resolve(property, schema)) else { return Vec::new() };
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|word| property.get(word).and_then(Value::as_array));
    let parts: Vec<&Value> = match alternatives {
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

/// The JSON type of a value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Follows references within the schema; one that leads elsewhere, or in a circle, is left as it is.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..16 {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(target) = target else { return schema };
        schema = target;
    }
    schema
}

fn type_at(schema: &Value, root: &Root<'_>, depth: usize) -> String {
    if !root.spells() {
        return "any".to_owned();
    }
    let schema = resolve(schema, root.schema);
    let Some(words) = schema.as_object() else { return "any".to_owned() };
    if let Some(choices) = words.get("enum").and_then(Value::as_array) {
        return enumeration(choices);
    }
    if let Some(literal) = words.get("const") {
        return short_literal(literal).unwrap_or_else(|| kind_of(literal).to_owned());
    }
    match words.get("type") {
        Some(Value::String(kind)) => return kind_at(kind, words, root, depth),
        Some(Value::Array(kinds)) => {
            return union(kinds.iter().filter_map(Value::as_str).map(|kind| kind_at(kind, words, root, depth)));
        }
        _ => {}
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(Value::Array(parts)) = words.get(word) {
            return match depth {
                0 => "any".to_owned(),
                _ => union(parts.iter().map(|part| type_at(part, root, depth - 1))),
            };
        }
    }
    match words.get("allOf") {
        Some(Value::Array(parts)) if parts.len() == 1 && depth > 0 => return type_at(&parts[0], root, depth - 1),
        _ => {}
    }
    if words.contains_key("properties") {
        return kind_at("object", words, root, depth);
    }
    if words.contains_key("items") {
        return kind_at("array", words, root, depth);
    }
    match words.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next()) {
        Some(name) if !name.is_empty() && name != "#" => name.to_owned(),
        _ => "any".to_owned(),
    }
}

fn kind_at(kind: &str, words: &Map<String, Value>, root: &Root<'_>, depth: usize) -> String {
    match kind {
        "array" => match words.get("items") {
            Some(items) if depth > 0 => match type_at(items, root, depth - 1) {
                item if item.contains(" | ") && !item.starts_with('{') => format!("({item})[]"),
                item => format!("{item}[]"),
            },
            _ => "any[]".to_owned(),
        },
        "object" => object_at(words, root, depth),
        kind => kind.to_owned(),
    }
}

fn object_at(words: &Map<String, Value>, root: &Root<'_>, depth: usize) -> String {
    let properties = words.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
    if depth == 0 {
        return "object".to_owned();
    }
    let Some(properties) = properties else {
        return match words.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("{{[name]: {}}}", type_at(values, root, depth - 1)),
            _ => "object".to_owned(),
        };
    };
    let required = required(words.get("required"));
    let fields: Vec<String> = properties
        .iter()
        .map(|(name, property)| {
            let mark = if required.contains(name.as_str()) { "" } else { "?" };
            format!("{name}{mark}: {}", type_at(property, root, depth - 1))
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

fn enumeration(choices: &[Value]) -> String {
    let spelled = choices.iter().take(CHOICES).map(|choice| choice.to_string());
    let more = (choices.len() > CHOICES).then(|| "…".to_owned());
    match choices {
        [] => "never".to_owned(),
        _ => union(spelled.chain(more)),
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for part in types {
        if distinct.len() == ALTERNATIVES {
            distinct.push("…".to_owned());
            break;
        }
        if !distinct.contains(&part) {
            distinct.push(part);
        }
    }
    match distinct.len() {
        0 => "any".to_owned(),
        _ => distinct.join(" | "),
    }
}

/// A value as code, unless it is too long to be read in passing; `null` says nothing.
fn short_literal(value: &Value) -> Option<String> {
    let literal = value.to_string();
    (!value.is_null() && literal.chars().count() <= 24).then_some(literal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_schema_that_describes_very_many_types_is_read_quickly() {
        let many = |schema: Value| (0..3000).map(|at| (format!("p{at}"), schema.clone())).collect::<Map<_, _>>();
        let node = json!({"properties": many(json!({"$ref": "#/$defs/node"})), "required": (0..3000).map(|at| format!("p{at}")).collect::<Vec<_>>()});
        let any = json!({"anyOf": vec![json!({"$ref": "#/$defs/any"}); 3000]});
        let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": node, "any": any}});
        let began = std::time::Instant::now();
        assert_eq!(fields(&schema).len(), 3000);
        assert!(type_name(&schema).len() < 10_000_000);
        assert!(kinds(&json!({"$ref": "#/$defs/any"}), &schema).is_empty());
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn schemas_read_like_types() {
        for (schema, expected) in [
            (json!({"type": "string"}), "string"),
            (json!({"type": "array", "items": {"type": "number"}}), "number[]"),
            (json!({"type": "array"}), "any[]"),
            (json!({"enum": ["bar", "line"]}), r#""bar" | "line""#),
            (json!({"type": "array", "items": {"enum": ["a", "b"]}}), r#"("a" | "b")[]"#),
            (json!({"type": ["string", "null"]}), "string | null"),
            (json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), "integer | null"),
            (json!({"const": 3}), "3"),
            (json!({"type": "object"}), "object"),
            (json!({"type": "object", "additionalProperties": {"type": "number"}}), "{[name]: number}"),
            (
                json!({"properties": {"a": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["a"]}),
                "{a: string, b?: boolean}",
            ),
            (json!({"allOf": [{"type": "string"}]}), "string"),
            (json!({"$ref": "#/$defs/Point", "$defs": {"Point": {"enum": [1]}}}), "1"),
            (json!({"$ref": "http://elsewhere/Point"}), "Point"),
            (json!({}), "any"),
            (json!(true), "any"),
            (json!({"enum": []}), "never"),
            (json!({"enum": (0..20).collect::<Vec<_>>()}), "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | …"),
        ] {
            assert_eq!(type_name(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_holds_itself_is_cut() {
        let tree = json!({"$ref": "#/$defs/Node", "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
            "Loop": {"$ref": "#/$defs/Loop"}
        }});
        assert_eq!(type_name(&tree), "{next?: {next?: {next?: object}}}");
        assert_eq!(type_name(&json!({"$ref": "#"})), "any");
    }

    #[test]
    fn required_fields_come_first_and_defaults_are_kept() {
        let schema = json!({"type": "object", "required": ["values"], "properties": {
            "kind": {"enum": ["bar", "line"], "default": "bar", "description": "how"},
            "values": {"type": "array", "items": {"type": "number"}},
        }});
        let fields = fields(&schema);
        assert_eq!(fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["values", "kind"]);
        assert!(fields[0].required && !fields[1].required);
        assert_eq!(fields[1].default.as_deref(), Some("\"bar\""));
        assert_eq!(fields[1].description.as_deref(), Some("how"));
    }

    #[test]
    fn a_schema_says_which_json_types_it_allows() {
        let root = json!({"$defs": {"N": {"type": "number"}}});
        let of = |schema: Value| kinds(&schema, &root).join(" ");
        assert_eq!(of(json!({"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]})), "number null");
        assert_eq!(of(json!({"enum": ["a", 1]})), "string number");
        assert_eq!(of(json!({"type": ["array", "string"]})), "array string");
        assert_eq!(of(json!({})), "");
    }
}
