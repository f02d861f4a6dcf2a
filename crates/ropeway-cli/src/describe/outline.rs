//! JSON Schema outlines: every field with its type, constraints and nested fields.

use serde_json::{Number, Value};

use crate::describe::schema::{self, Members, Resolved, SchemaRoot, description, is_open, keyword, members};
use crate::describe::types::{Field, type_at, types_at};
use crate::terminal::text::{columns, cut};

/// Maximum rows in an outline.
const MOST_ROWS: usize = 400;
/// Maximum field nesting.
const DEEPEST: usize = 8;
/// Maximum type width in a row, in columns.
const WIDEST: usize = 200;
/// Maximum name width in columns.
const LONGEST_NAME: usize = 120;
/// Maximum description width in columns.
const LONGEST_DESCRIPTION: usize = 4000;
/// Maximum constraint width in columns.
const LONGEST_NOTE: usize = 1000;
/// Maximum enumeration choices that the type itself lists.
const CHOICES_IN_TYPE: usize = 8;
/// Maximum enumeration choices in a constraint.
const MOST_CHOICES: usize = 60;
/// Maximum examples per field.
const MOST_EXAMPLES: usize = 3;

/// A schema's rows.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) rows: Vec<OutlineRow>,
    /// Number of fields beyond the maximum.
    pub(crate) hidden: usize,
    /// Constraints on all arguments together.
    pub(crate) notes: Vec<String>,
}

/// One field in an outline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutlineRow {
    /// The nesting level, from zero.
    pub(crate) level: usize,
    pub(crate) field: Field,
    /// The constraints in words.
    pub(crate) notes: Vec<String>,
}

impl Outline {
    /// Outlines an argument schema.
    pub(crate) fn new(schema: &Value) -> Self {
        Self::from_root(schema, SchemaRoot::new(schema))
    }

    /// Outlines a result's schema.
    pub(crate) fn of_result(schema: &Value) -> Self {
        Self::from_root(schema, SchemaRoot::of_result(schema))
    }

    fn from_root<'a>(schema: &'a Value, root: SchemaRoot<'a>) -> Self {
        let mut writer = OutlineBuilder { root, rows: Vec::new(), hidden: 0 };
        let mark = writer.root.depth();
        let top = match writer.root.follow(schema) {
            Resolved::Schema(top) => top,
            Resolved::Name(_) => schema,
        };
        writer.within(top, 0);
        writer.root.unwind(mark);
        let OutlineBuilder { rows, hidden, .. } = writer;
        Self { rows, hidden, notes: whole_notes(top, schema) }
    }
}

/// Constraints on all arguments together.
fn whole_notes(top: &Value, schema: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    match top.get("additionalProperties") {
        Some(Value::Bool(false)) if !is_open(schema) => notes.push("other arguments are refused".to_owned()),
        Some(Value::Bool(true)) => notes.push("other arguments are accepted".to_owned()),
        _ => {}
    }
    notes.extend(range(top, "minProperties", "maxProperties", "argument"));
    notes.extend(conditions(top));
    notes
}

struct OutlineBuilder<'a> {
    root: SchemaRoot<'a>,
    rows: Vec<OutlineRow>,
    hidden: usize,
}

impl<'a> OutlineBuilder<'a> {
    /// Adds rows for a schema's fields, items and alternatives.
    fn within(&mut self, schema: &'a Value, level: usize) {
        let mark = self.root.depth();
        if let Some(inner) = self.inner(schema) {
            self.fields(inner, level);
        }
        self.root.unwind(mark);
    }

    fn fields(&mut self, schema: &'a Value, level: usize) {
        let Members { properties, required, others, patterns, .. } = members(schema, &self.root);
        let mut sorted: Vec<_> =
            properties.into_iter().map(|(name, field)| (name, field, required.contains(name))).collect();
        // Required fields come first, as in a signature.
        sorted.sort_by_key(|(_, _, required)| !required);
        for (name, field, required) in sorted {
            self.row(cut(name, LONGEST_NAME), field, required, level);
        }
        for (pattern, field) in patterns {
            self.row(format!("/{}/", cut(pattern, LONGEST_NAME)), field, false, level);
        }
        if let Some(others) = others.filter(|others| others.as_object().is_some_and(|words| !words.is_empty())) {
            self.row("[name]".to_owned(), others, false, level);
        }
        let tuple = schema.get("prefixItems").or(schema.get("items")).and_then(Value::as_array);
        for (at, item) in tuple.into_iter().flatten().enumerate() {
            self.row(format!("[{at}]"), item, false, level);
        }
        let parts = alternatives(schema);
        if parts.len() > 1 && parts.iter().any(|part| self.has_structure(part)) {
            for (at, part) in parts.iter().enumerate() {
                let title = part.get("title").and_then(Value::as_str).map(|title| format!(" ({title})"));
                let name = format!("option {}{}", at + 1, title.unwrap_or_default());
                self.row(cut(&name, LONGEST_NAME), part, false, level);
            }
        }
    }

    /// Adds a row and its nested rows.
    fn row(&mut self, name: String, field: &'a Value, required: bool, level: usize) {
        if self.rows.len() >= MOST_ROWS {
            self.hidden += 1;
            return;
        }
        let mark = self.root.depth();
        let (resolved, kind) = match self.root.follow(field) {
            Resolved::Schema(schema) => (Some(schema), None),
            Resolved::Name(name) => (None, Some(name)),
        };
        let nests = level < DEEPEST && resolved.is_some_and(|schema| self.has_structure(schema));
        let kind = kind.unwrap_or_else(|| {
            let schema = resolved.unwrap_or(field);
            let kinds = if nests { vec![type_at(schema, &self.root, 0)] } else { types_at(schema, &self.root) };
            let fitting = kinds.iter().find(|kind| columns(kind) <= WIDEST).or(kinds.last());
            cut(fitting.map_or("any", String::as_str), 4 * WIDEST)
        });
        let target = resolved.unwrap_or(field);
        let default = keyword(field, target, "default");
        let default = default.filter(|default| !default.is_null() && self.root.shows_default(required));
        let said = description(field, target).filter(|text| !text.trim().is_empty());
        let default = default.map(|default| cut(&default.to_string(), LONGEST_NOTE));
        let notes = self.notes(field, target);
        let field = Field { name, required, kind, shorter: Vec::new(), default, description: said.map(shorten) };
        self.rows.push(OutlineRow { level, field, notes });
        if let Some(schema) = resolved.filter(|_| nests) {
            self.within(schema, level + 1);
        }
        self.root.unwind(mark);
    }

    /// Returns the schema that has a value's fields: a list's items, a nullable value's non-null part. The
    /// followed references stay open.
    fn inner(&self, schema: &'a Value) -> Option<&'a Value> {
        let mut schema = schema;
        for _ in 0..DEEPEST {
            let items = schema.get("items").filter(|items| items.is_object());
            let next = match (items, sole(schema)) {
                (Some(items), _) if schema.get("properties").is_none() => items,
                (_, Some(part)) if members(schema, &self.root).is_empty() => part,
                _ => return Some(schema),
            };
            match self.root.follow(next) {
                Resolved::Schema(inner) => schema = inner,
                Resolved::Name(_) => return None,
            }
        }
        Some(schema)
    }

    /// Returns `true` if a schema has nested rows.
    fn has_structure(&self, schema: &'a Value) -> bool {
        self.has_structure_within(schema, DEEPEST)
    }

    fn has_structure_within(&self, schema: &'a Value, depth: usize) -> bool {
        self.root.following(schema, |resolved| {
            let Resolved::Schema(schema) = resolved else { return false };
            let Some(inner) = self.inner(schema) else { return false };
            let members = members(inner, &self.root);
            let others = members.others.is_some_and(|others| others.as_object().is_some_and(|words| !words.is_empty()));
            let tuple = inner.get("prefixItems").or(inner.get("items")).is_some_and(Value::is_array);
            let parts = alternatives(inner);
            !members.properties.is_empty()
                || !members.patterns.is_empty()
                || others
                || tuple
                || (depth > 0 && parts.len() > 1 && parts.iter().any(|part| self.has_structure_within(part, depth - 1)))
        })
    }

    /// Returns a field's constraints in words.
    fn notes(&self, field: &'a Value, target: &'a Value) -> Vec<String> {
        let mut notes = Vec::new();
        let mut parts = vec![target];
        if !std::ptr::eq(field, target) {
            parts.insert(0, field);
        }
        // A nullable value has its other part's constraints.
        let mark = self.root.depth();
        if let Some(Resolved::Schema(part)) = sole(target).map(|part| self.root.follow(part)) {
            parts.push(part);
        }
        self.root.unwind(mark);
        for part in parts {
            constraints(part, &mut notes);
            let items = part.get("items").filter(|items| items.is_object());
            let mark = self.root.depth();
            if let Some(Resolved::Schema(items)) = items.map(|items| self.root.follow(items)) {
                let mut each = Vec::new();
                constraints(items, &mut each);
                if !each.is_empty() {
                    notes.push(format!("each: {}", each.join(", ")));
                }
            }
            self.root.unwind(mark);
        }
        let mut seen = std::collections::HashSet::new();
        notes.retain(|note| seen.insert(note.clone()));
        notes.iter().map(|note| cut(note, LONGEST_NOTE)).collect()
    }
}

fn alternatives(schema: &Value) -> &[Value] {
    schema::alternatives(schema).map_or(&[], Vec::as_slice)
}

/// Returns the only alternative that is not null.
fn sole(schema: &Value) -> Option<&Value> {
    let is_null = |part: &&Value| part.get("type").and_then(Value::as_str) == Some("null");
    let mut parts = alternatives(schema).iter().filter(|part| !is_null(part));
    match (parts.next(), parts.next()) {
        (Some(part), None) => Some(part),
        _ => match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([part]) if schema.get("properties").is_none() && alternatives(schema).is_empty() => Some(part),
            _ => None,
        },
    }
}

/// Adds a schema's constraints in words. Invalid keywords are ignored.
fn constraints(schema: &Value, notes: &mut Vec<String>) {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && choices.len() > CHOICES_IN_TYPE
    {
        let listed: Vec<String> =
            choices.iter().take(MOST_CHOICES).map(|choice| cut(&choice.to_string(), LONGEST_NAME)).collect();
        let more = choices.len().saturating_sub(MOST_CHOICES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!("one of {}{more}", listed.join(", ")));
    }
    notes.extend(bounds(schema));
    if let Some(step) = number(schema, "multipleOf") {
        notes.push(format!("multiple of {step}"));
    }
    notes.extend(range(schema, "minLength", "maxLength", "character"));
    notes.extend(text(schema, "pattern").map(|pattern| format!("matches /{pattern}/")));
    notes.extend(text(schema, "format").map(|format| format!("format {format}")));
    notes.extend(text(schema, "contentEncoding").map(|encoding| format!("encoded as {encoding}")));
    notes.extend(text(schema, "contentMediaType").map(|kind| format!("media type {kind}")));
    notes.extend(range(schema, "minItems", "maxItems", "item"));
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        notes.push("no duplicates".to_owned());
    }
    notes.extend(range(schema, "minProperties", "maxProperties", "field"));
    if schema.get("deprecated") == Some(&Value::Bool(true)) {
        notes.push("deprecated".to_owned());
    }
    notes.extend(conditions(schema));
    if let Some(examples) = schema.get("examples").and_then(Value::as_array).filter(|examples| !examples.is_empty()) {
        let shown: Vec<String> =
            examples.iter().take(MOST_EXAMPLES).map(|example| cut(&example.to_string(), 200)).collect();
        notes.push(format!("for example {}", shown.join(", ")));
    }
}

/// Returns a note about keywords that an outline does not show.
fn conditions(schema: &Value) -> Option<String> {
    let words = ["if", "not", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "contains"];
    let found: Vec<&str> = words.into_iter().filter(|word| schema.get(word).is_some_and(Value::is_object)).collect();
    (!found.is_empty()).then(|| format!("further conditions (`{}`): see --json", found.join("`, `")))
}

fn text(schema: &Value, word: &str) -> Option<String> {
    schema.get(word).and_then(Value::as_str).filter(|text| !text.is_empty()).map(|text| cut(text, LONGEST_NOTE))
}

fn number<'a>(schema: &'a Value, word: &str) -> Option<&'a Number> {
    match schema.get(word) {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    }
}

/// Returns a number's limits in words.
fn bounds(schema: &Value) -> Option<String> {
    let least = number(schema, "minimum").map(|least| format!("at least {least}"));
    let most = number(schema, "maximum").map(|most| format!("at most {most}"));
    let above = number(schema, "exclusiveMinimum").map(|least| format!("more than {least}"));
    let below = number(schema, "exclusiveMaximum").map(|most| format!("less than {most}"));
    if let (Some(least), Some(most), None, None) =
        (number(schema, "minimum"), number(schema, "maximum"), &above, &below)
    {
        return Some(format!("{least} to {most}"));
    }
    let all: Vec<String> = [least, above, most, below].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(" and "))
}

/// Returns a length's limits in words.
fn range(schema: &Value, least: &str, most: &str, unit: &str) -> Option<String> {
    let limit = |word: &str| schema.get(word).and_then(Value::as_u64);
    let units = |count: u64| if count == 1 { unit.to_owned() } else { format!("{unit}s") };
    match (limit(least).filter(|least| *least > 0), limit(most)) {
        (Some(least), Some(most)) if least == most => Some(format!("exactly {most} {}", units(most))),
        (Some(least), Some(most)) => Some(format!("{least} to {most} {}", units(most))),
        (Some(least), None) => Some(format!("at least {least} {}", units(least))),
        (None, Some(most)) => Some(format!("at most {most} {}", units(most))),
        (None, None) => None,
    }
}

/// Truncates a text and keeps its line breaks.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(LONGEST_DESCRIPTION) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Each row on a line: its level, name, type and the rest.
    fn lines(schema: &Value) -> Vec<String> {
        let outline = Outline::new(schema);
        let line = |row: &OutlineRow| {
            let mark = if row.field.required { "!" } else { "" };
            let default = row.field.default.as_ref().map(|default| format!(" = {default}")).unwrap_or_default();
            let notes = if row.notes.is_empty() { String::new() } else { format!(" ({})", row.notes.join("; ")) };
            format!("{}{}{mark}: {}{default}{notes}", "  ".repeat(row.level), row.field.name, row.field.kind)
        };
        outline.rows.iter().map(line).collect()
    }

    #[test]
    fn fields_within_fields_are_listed_below_them() {
        let schema = json!({"type": "object", "required": ["path", "edits"], "properties": {
            "dry": {"type": "boolean", "default": false},
            "path": {"type": "string", "minLength": 1},
            "edits": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Edit"}},
        }, "$defs": {"Edit": {"type": "object", "required": ["old"], "properties": {
            "old": {"type": "string"}, "new": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]},
        }}}});
        assert_eq!(
            lines(&schema),
            [
                "path!: string (at least 1 character)",
                "edits!: object[] (at least 1 item)",
                "  old!: string",
                "  new: string | null (at most 9 characters)",
                "dry: boolean = false",
            ]
        );
    }

    #[test]
    fn a_schema_that_contains_itself_ends_with_its_name() {
        let tree = json!({"properties": {"tree": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {"type": "object",
            "properties": {"value": {}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}});
        assert_eq!(lines(&tree), ["tree: object", "  value: any", "  children: Node[]"]);
        let whole = json!({"title": "Filter", "properties": {"not": {"$ref": "#"}}});
        assert_eq!(lines(&whole), ["not: Filter"]);
    }

    #[test]
    fn alternatives_with_fields_are_listed_one_by_one() {
        let schema = json!({"properties": {"target": {"oneOf": [
            {"type": "string", "format": "uri"},
            {"title": "Place", "type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}},
        ]}, "point": {"anyOf": [{"properties": {"y": {"const": 1}}}, {"type": "null"}]}}});
        assert_eq!(
            lines(&schema),
            [
                "target: string | object",
                "  option 1: string (format uri)",
                "  option 2 (Place): object",
                "    x!: number",
                "point: object | null",
                "  y: 1",
            ]
        );
        let top = json!({"type": "object", "oneOf": [
            {"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]});
        assert_eq!(lines(&top), ["option 1: object", "  a: string", "option 2: object", "  b: string"]);
    }

    #[test]
    fn constraints_are_described_in_words() {
        let notes = |schema: Value| Outline::new(&json!({"properties": {"x": schema}})).rows[0].notes.join("; ");
        for (schema, expected) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 10}), "1 to 10"),
            (
                json!({"exclusiveMinimum": 0, "maximum": 1.5, "multipleOf": 0.5}),
                "more than 0 and at most 1.5; multiple of 0.5",
            ),
            (json!({"minLength": 3, "maxLength": 3, "pattern": "^a+$"}), "exactly 3 characters; matches /^a+$/"),
            (
                json!({"type": "array", "maxItems": 1, "uniqueItems": true, "items": {"format": "uuid"}}),
                "at most 1 item; no duplicates; each: format uuid",
            ),
            (json!({"enum": ["a", "b"]}), ""),
            (json!({"enum": (0..10).collect::<Vec<_>>()}), "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
            (
                json!({"examples": ["a", 1], "deprecated": true, "not": {"const": 2}}),
                "deprecated; further conditions (`not`): see --json; for example \"a\", 1",
            ),
            (json!({"minLength": "x", "maximum": [], "pattern": 7, "enum": {}, "examples": 1, "multipleOf": null}), ""),
        ] {
            assert_eq!(notes(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn an_outline_of_very_many_fields_is_bounded() {
        let many: Map<String, Value> = (0..10_000).map(|at| (format!("p{at}"), json!({"$ref": "#/$defs/x"}))).collect();
        let nested: Map<String, Value> = (0..50).map(|at| (format!("n{at}"), json!({"$ref": "#/$defs/y"}))).collect();
        let schema = json!({"properties": many, "$defs": {
            "x": {"properties": nested}, "y": {"type": "array", "items": {"properties": {"z": {"$ref": "#/$defs/x"}}}}}});
        let began = std::time::Instant::now();
        let outline = Outline::new(&schema);
        assert_eq!(outline.rows.len(), MOST_ROWS);
        assert!(outline.hidden >= 9_000, "{}", outline.hidden);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn keywords_of_wrong_types_are_left_out() {
        for (word, value) in schema::hostile_keywords() {
            Outline::new(&json!({word: value, "properties": {"p": {word: value}}}));
            Outline::new(&json!({word: value}));
        }
        for schema in [json!(true), json!(null), json!([]), json!("x")] {
            assert!(Outline::new(&schema).rows.is_empty());
        }
    }
}
