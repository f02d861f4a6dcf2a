//! JSON Schemas as types that look like code, and object fields.

use serde_json::Value;

use crate::describe::schema::{
    ALTERNATIVES, LONGEST_WORD, MOST_FIELDS, Members, NESTING, Resolved, SchemaRoot, alternatives, description,
    first_members, json_type, keyword, members, resolve,
};
use crate::terminal::text::{columns, cut};

/// Maximum nested object levels in a type.
const DEPTH: usize = 5;
/// Maximum type width in a signature, in columns. Deeper levels are omitted until it fits.
const WIDEST: usize = 160;
/// Maximum enumeration choices in a type.
const CHOICES: usize = 8;

/// A tool argument, or a field in its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) required: bool,
    /// The type as code.
    pub(crate) kind: String,
    /// Shorter type forms, longest first.
    pub(crate) shorter: Vec<String>,
    /// The default value as code.
    pub(crate) default: Option<String>,
    pub(crate) description: Option<String>,
}

impl Field {
    /// Returns the most detailed type that fits into `most` columns, or the shortest.
    pub(crate) fn kind_within(&self, most: usize) -> &str {
        let mut kinds = std::iter::once(&self.kind).chain(&self.shorter);
        kinds.find(|kind| columns(kind) <= most).or(self.shorter.last()).unwrap_or(&self.kind)
    }
}

/// Returns an object schema's fields, required ones first.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    let root = &SchemaRoot::new(schema);
    let Members { properties, required, .. } = members(resolve(schema, schema), root);
    let mut fields: Vec<Field> = Vec::with_capacity(properties.len());
    for (name, property) in properties {
        let mut kinds = types_at(property, root).into_iter();
        let required = required.contains(name);
        let default = keyword(property, resolve(property, schema), "default").filter(|_| root.shows_default(required));
        fields.push(Field {
            name: name.to_owned(),
            required,
            kind: kinds.next().unwrap_or_default(),
            shorter: kinds.collect(),
            default: default.and_then(short_literal),
            description: description(property, resolve(property, schema)).map(str::to_owned),
        });
    }
    fields.sort_by_key(|field| !field.required);
    fields
}

/// Formats a result schema as a type: `number[]`, `"bar" | "line"`, `{a: string, b?: boolean}`. Returns the most detailed form
/// that fits into `most` columns.
pub(crate) fn type_within(schema: &Value, most: usize) -> String {
    let mut kinds = types_at(schema, &SchemaRoot::of_result(schema));
    let fits = kinds.iter().position(|kind| columns(kind) <= most).unwrap_or(kinds.len() - 1);
    kinds.swap_remove(fits)
}

/// Formats a schema's type with decreasing detail. Never empty.
pub(crate) fn types_at<'a>(schema: &'a Value, root: &SchemaRoot<'a>) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for depth in (0..=DEPTH).rev() {
        let kind = cut(&type_at(schema, root, depth), 4 * WIDEST);
        let is_simple = !kind.contains('{');
        if (depth == 0 || is_simple || columns(&kind) <= WIDEST) && kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
        if is_simple {
            break;
        }
    }
    kinds
}

/// Formats a schema's type with `depth` object levels.
pub(crate) fn type_at<'a>(schema: &'a Value, root: &SchemaRoot<'a>, depth: usize) -> String {
    if !root.take_budget() || root.nesting.get() >= NESTING {
        return "any".to_owned();
    }
    root.nesting.set(root.nesting.get() + 1);
    let kind = root.following(schema, |resolved| match resolved {
        Resolved::Schema(schema) => type_text(schema, root, depth),
        Resolved::Name(name) => name,
    });
    root.nesting.set(root.nesting.get() - 1);
    kind
}

fn type_text<'a>(schema: &'a Value, root: &SchemaRoot<'a>, depth: usize) -> String {
    let Some(words) = schema.as_object() else { return "any".to_owned() };
    if let Some(choices) = words.get("enum").and_then(Value::as_array) {
        return enumeration(choices);
    }
    if let Some(literal) = words.get("const") {
        return short_literal(literal).unwrap_or_else(|| json_type(literal).to_owned());
    }
    match (words.get("type"), alternatives(schema)) {
        // Alternatives next to `type: object` without fields are the type.
        (Some(Value::String(kind)), Some(parts)) if kind == "object" && first_members(schema, root, 1).is_empty() => {
            return union(parts.iter().map(|part| match part.get("type") {
                None if part.get("properties").is_none() && part.get("$ref").is_none() => "object".to_owned(),
                _ => type_at(part, root, depth),
            }));
        }
        (Some(Value::String(kind)), _) => return kind_at(kind, schema, root, depth),
        (Some(Value::Array(kinds)), _) => {
            let kinds = kinds.iter().filter_map(Value::as_str).take(ALTERNATIVES);
            return union(kinds.map(|kind| kind_at(kind, schema, root, depth)));
        }
        (_, Some(parts)) => return union(parts.iter().map(|part| type_at(part, root, depth))),
        _ => {}
    }
    if words.contains_key("properties") {
        return object_at(schema, root, depth);
    }
    if words.contains_key("items") || words.contains_key("prefixItems") {
        return kind_at("array", schema, root, depth);
    }
    if let Some(parts) = words.get("allOf").and_then(Value::as_array) {
        return match &parts[..] {
            [part] => type_at(part, root, depth),
            _ if !first_members(schema, root, 1).is_empty() => object_at(schema, root, depth),
            parts => {
                let kinds = parts.iter().take(ALTERNATIVES).map(|part| type_at(part, root, depth));
                kinds.into_iter().find(|kind| kind != "any").unwrap_or_else(|| "any".to_owned())
            }
        };
    }
    match words.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next()) {
        Some(name) if !name.is_empty() && name != "#" => cut(name, LONGEST_WORD),
        _ => "any".to_owned(),
    }
}

fn kind_at<'a>(kind: &str, schema: &'a Value, root: &SchemaRoot<'a>, depth: usize) -> String {
    match kind {
        "array" => {
            let tuple = schema.get("prefixItems").or(schema.get("items")).and_then(Value::as_array);
            if let Some(items) = tuple.filter(|items| !items.is_empty()) {
                let more = if items.len() > CHOICES { ", …" } else { "" };
                let items: Vec<String> = items.iter().take(CHOICES).map(|item| type_at(item, root, depth)).collect();
                return format!("[{}{more}]", items.join(", "));
            }
            match schema.get("items").filter(|items| items.is_object()) {
                Some(items) => match type_at(items, root, depth) {
                    item if item.contains(" | ") && !item.starts_with(['{', '[']) => format!("({item})[]"),
                    item => format!("{item}[]"),
                },
                None => "any[]".to_owned(),
            }
        }
        "object" => object_at(schema, root, depth),
        kind => cut(kind, LONGEST_WORD),
    }
}

fn object_at<'a>(schema: &'a Value, root: &SchemaRoot<'a>, depth: usize) -> String {
    if depth == 0 {
        return "object".to_owned();
    }
    let Members { properties, required, others, .. } = first_members(schema, root, MOST_FIELDS + 1);
    if properties.is_empty() {
        return match others.filter(|others| others.as_object().is_some_and(|words| !words.is_empty())) {
            Some(others) => format!("{{[name]: {}}}", type_at(others, root, depth - 1)),
            None => "object".to_owned(),
        };
    }
    let mut fields = Vec::new();
    let mut length = 0;
    for (name, property) in &properties {
        // No line has room for more.
        if fields.len() == MOST_FIELDS || length > 4 * WIDEST {
            fields.push("…".to_owned());
            break;
        }
        let mark = if required.contains(name) { "" } else { "?" };
        let field = format!("{}{mark}: {}", cut(name, LONGEST_WORD), type_at(property, root, depth - 1));
        length += field.len();
        fields.push(field);
    }
    format!("{{{}}}", fields.join(", "))
}

fn enumeration(choices: &[Value]) -> String {
    let spelled = choices.iter().take(CHOICES).map(|choice| cut(&choice.to_string(), LONGEST_WORD));
    let more = (choices.len() > CHOICES).then(|| "…".to_owned());
    match choices {
        [] => "never".to_owned(),
        _ => union(spelled.chain(more)),
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for kind in types {
        // Nested alternatives are flattened.
        let is_plain = !kind.contains(['"', '{', '(', '[']);
        let parts: Vec<&str> = if is_plain { kind.split(" | ").collect() } else { vec![kind.as_str()] };
        for part in parts {
            if distinct.len() == ALTERNATIVES {
                distinct.push("…".to_owned());
                return distinct.join(" | ");
            }
            if !distinct.iter().any(|known| known == part) {
                distinct.push(part.to_owned());
            }
        }
    }
    match distinct.len() {
        0 => "any".to_owned(),
        _ => distinct.join(" | "),
    }
}

/// Formats a short value as code. Returns `None` for `null` and long values.
fn short_literal(value: &Value) -> Option<String> {
    let literal = value.to_string();
    (!value.is_null() && literal.chars().count() <= 24).then_some(literal)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::describe::schema::{hostile_keywords, json_types};

    fn type_name(schema: &Value) -> String {
        type_within(schema, usize::MAX)
    }

    #[test]
    fn deep_types_are_spelled_out_as_far_as_they_fit() {
        let leaf = json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}}});
        let point = json!({"type": "object", "required": ["x"], "properties": {"x": leaf}});
        let deep = json!({"type": "array", "items": {"properties": {"a": {"properties": {"b": point}}}}});
        assert_eq!(type_name(&deep), "{a?: {b?: {x: string[][]}}}[]");
        let within = |most| type_within(&deep, most);
        assert_eq!(within(26), "{a?: {b?: object}}[]");
        assert_eq!([within(19), within(12)], ["{a?: object}[]", "object[]"]);
        assert_eq!(within(1), "object[]");
    }

    #[test]
    fn parts_of_a_schema_are_one_type() {
        let both = json!({"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}],
            "$defs": {"A": {"properties": {"a": {"type": "string"}}}}});
        assert_eq!(type_name(&both), "{a?: string, b: null}");
        assert_eq!(fields(&both).iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        let tuple = json!({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]});
        assert_eq!(type_name(&tuple), "[number, string]");
        let either = json!({"type": "object", "oneOf": [{"properties": {"a": {}}}, {"required": ["b"]}]});
        assert_eq!(type_name(&either), "{a?: any} | object");
    }

    /// Schemas whose every keyword has a wrong type or is very large.
    #[test]
    fn hostile_schemas_are_read_within_bounds() {
        for (word, value) in hostile_keywords() {
            let schema = json!({"properties": {"p": {word: value}}, "required": ["p"], word: value});
            fields(&schema);
            for most in [1, 20, 500] {
                assert!(columns(&type_within(&schema, most)) <= 4 * WIDEST, "{word}");
            }
            json_types(&schema, &schema);
        }
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"anyOf": [{"properties": {"a": deep}}, {"type": "array", "items": {"type": "null"}}]});
        }
        assert!(columns(&type_name(&deep)) <= WIDEST, "{}", type_name(&deep));
        let defs: Map<String, Value> = (0..3000)
            .map(|at| {
                (format!("d{at}"), json!({"anyOf": [{"$ref": format!("#/$defs/d{}", at + 1)}, {"type": "null"}]}))
            })
            .collect();
        let chain = json!({"$ref": "#/$defs/d0", "$defs": defs});
        assert!(columns(&type_name(&chain)) <= WIDEST);
    }

    #[test]
    fn a_small_schema_that_describes_very_many_types_is_read_quickly() {
        let many = |schema: Value| (0..3000).map(|at| (format!("p{at}"), schema.clone())).collect::<Map<_, _>>();
        let node = json!({"properties": many(json!({"$ref": "#/$defs/node"})), "required": (0..3000).map(|at| format!("p{at}")).collect::<Vec<_>>()});
        let any = json!({"anyOf": vec![json!({"$ref": "#/$defs/any"}); 3000]});
        let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": node, "any": any}});
        let began = std::time::Instant::now();
        assert_eq!(fields(&schema).len(), 3000);
        assert!(columns(&type_name(&schema)) <= WIDEST);
        assert!(json_types(&json!({"$ref": "#/$defs/any"}), &schema).is_empty());
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
        assert_eq!(type_name(&tree), "{next?: Node}");
        assert_eq!(type_name(&json!({"$ref": "#"})), "object");
        assert_eq!(type_name(&json!({"title": "Tree", "properties": {"next": {"$ref": "#"}}})), "{next?: Tree}");
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
    fn a_required_argument_with_a_usable_default_is_optional() {
        let schema = json!({"required": ["a", "b", "c", "d", "e"], "properties": {
            "a": {"type": "integer", "default": 1}, "b": {"type": "string"}, "c": {"type": "string", "default": 3},
            "d": {"$ref": "#/$defs/D"}, "e": {"type": "object", "required": ["f"], "properties": {"f": {"default": 1}}},
        }, "$defs": {"D": {"enum": ["x", "y"], "default": "x"}}});
        let shown: Vec<String> = fields(&schema)
            .iter()
            .map(|field| format!("{}{}: {}", field.name, if field.required { "" } else { "?" }, field.kind))
            .collect();
        assert_eq!(shown, ["b: string", "c: string", "e: {f?: any}", "a?: integer", "d?: \"x\" | \"y\""]);
        // A result always has it.
        let result =
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "default": 1}}});
        assert_eq!(type_within(&result, 80), "{a: integer}");
    }

    #[test]
    fn a_required_argument_with_an_invalid_default_stays_required() {
        let schema = json!({"required": ["a", "b", "c", "d"], "properties": {
            "a": {"enum": ["x", "y"], "default": "z"}, "b": {"type": "integer", "default": "five"},
            "c": {"$ref": "#/$defs/C"}, "d": {"type": "integer", "default": 1.5},
            "e": {"type": "integer", "default": "many"},
        }, "$defs": {"C": {"type": "string", "pattern": "^[a-z]+$", "default": "1x"}}});
        let shown: Vec<(String, bool, Option<String>)> =
            fields(&schema).into_iter().map(|field| (field.name, field.required, field.default)).collect();
        let expected = ["a", "b", "c", "d"].map(|name| (name.to_owned(), true, None));
        assert_eq!(shown[..4], expected);
        assert_eq!(shown[4], ("e".to_owned(), false, Some("\"many\"".to_owned())), "it is the server's own");
    }

    #[test]
    fn the_json_types_that_a_schema_allows_are_found() {
        let root = json!({"$defs": {"N": {"type": "number"}}});
        let of = |schema: Value| json_types(&schema, &root).join(" ");
        assert_eq!(of(json!({"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]})), "number null");
        assert_eq!(of(json!({"enum": ["a", 1]})), "string number");
        assert_eq!(of(json!({"type": ["array", "string"]})), "array string");
        assert_eq!(of(json!({})), "");
    }
}
