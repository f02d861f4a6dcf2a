//! A schema's root, which is always a single object.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::argument_mapping::ArgumentMapping;
use super::change::{ChangeKind, SchemaChange};
use super::cow_value::CowObject;
use super::node::{self, Node};
use super::note::Notes;
use super::target::SchemaTarget;
use super::types::Types;
use super::walker::{LowerResult, LoweredSchema, RefLimits, SchemaError, SchemaStats, Walker};
use crate::schema::bounds;

/// Limits on a schema's recursion and on nested references, from the loosest to the tightest.
const REF_LIMITS: [(usize, usize); 4] = [(2, usize::MAX), (1, usize::MAX), (1, 3), (1, 2)];

/// Maximum number of schemas that is never reduced, even with recursion.
const MIN_SCHEMA_LIMIT: usize = 400;

/// Maximum number of schemas for one property.
const MAX_KINDS: usize = 300;

/// Maximum depth of nested alternatives.
const MAX_DEPTH: usize = 4;

/// Maximum number of argument forms for one alternative.
const MAX_FORMS: usize = 100;

/// OpenAI's strict mode limits.
const MAX_STRICT: SchemaStats = SchemaStats {
    properties: 5_000,
    enum_values: 1_000,
    characters: 120_000,
    optional: usize::MAX,
    unions: usize::MAX,
};

/// A lowered schema.
#[derive(Debug)]
pub(super) struct LoweredRoot<'d> {
    pub(super) schema: CowObject<'d>,
    /// Notes for the tool's description.
    pub(super) notes: Notes,
    pub(super) mapping: Option<ArgumentMapping>,
    pub(super) changes: Vec<SchemaChange>,
    pub(super) stats: SchemaStats,
}

/// Lowers a schema.
pub(super) fn lower(document: &Value, target: SchemaTarget) -> LowerResult<LoweredRoot<'_>> {
    let size = bounds::schema_size(document);
    let size = size.map_err(|error| SchemaError::Unusable(format!("its schema is too large: {error}")))?;
    // The model reads all of it at a price per token, so recursive schemas are only unrolled while they are small.
    let schemas = MIN_SCHEMA_LIMIT.max(2 * size.nodes);
    for (unroll, references) in REF_LIMITS {
        match walk(document, target, RefLimits { unroll, references, schemas }) {
            Err(SchemaError::TooLarge) => {}
            done => return done,
        }
    }
    walk(document, target, RefLimits { unroll: 1, references: 1, schemas: usize::MAX })
}

fn walk(document: &Value, target: SchemaTarget, limits: RefLimits) -> LowerResult<LoweredRoot<'_>> {
    let mut walker = Walker::new(document, target, limits);
    let LoweredSchema { schema, notes, mapping } = walker.root(document)?;
    let stats = walker.stats;
    let is_too_much = stats.properties > MAX_STRICT.properties
        || stats.enum_values > MAX_STRICT.enum_values
        || stats.characters > MAX_STRICT.characters;
    if target.is_strict() && is_too_much {
        return Err(walker.not_strict("has too many properties or values"));
    }
    Ok(LoweredRoot { schema, notes, mapping, changes: walker.changes, stats })
}

impl<'d> Walker<'d> {
    fn root(&mut self, document: &'d Value) -> LowerResult<LoweredSchema<'d>> {
        let unusable = |why: &str| SchemaError::Unusable(why.to_owned());
        if !document.is_object() && !document.is_boolean() {
            return Err(unusable("its schema is neither an object nor a boolean"));
        }
        let mut notes = Notes::default();
        let expanded = self.expand(Cow::Borrowed(document), 0, &mut notes)?;
        let mut node = expanded.ok_or_else(|| unusable("its schema allows nothing"))?;
        if let Some(types) = node.types().filter(|types| !types.has(Types::OBJECT)) {
            let article = if types.name().starts_with(['a', 'i']) { "an" } else { "a" };
            let wanted = format!("its schema describes {article} {} instead of an object", types.name());
            return Err(SchemaError::Unusable(wanted));
        }
        if node.get("type") != Some(&Value::from("object")) {
            let kind = if node.has("type") { ChangeKind::Rewritten("object".to_owned()) } else { ChangeKind::Added };
            self.report("type", kind);
            node.set_first("type", Value::from("object"));
        }
        for keyword in ["anyOf", "oneOf"] {
            self.fold_alternatives(&mut node, keyword, &mut notes)?;
        }
        for keyword in ["not", "enum", "const", "if", "then", "else"] {
            let Some(value) = node.remove(keyword) else { continue };
            self.report(keyword, ChangeKind::Described);
            self.loosened += 1;
            match keyword {
                "enum" | "const" => notes.keyword(keyword, &value),
                _ => {
                    // Only for the note in its description.
                    match self.checking_only(|walker| walker.step(&[keyword], value))? {
                        Some(done) => notes.json(keyword, &done.described().0),
                        None => notes.json(keyword, &false),
                    }
                }
            }
        }
        self.keywords(&node, notes)?.ok_or_else(|| unusable("its schema allows nothing"))
    }

    /// Folds alternatives into one object with all their properties.
    fn fold_alternatives(&mut self, node: &mut Node<'d>, keyword: &'static str, notes: &mut Notes) -> LowerResult {
        let Some(list) = node.remove(keyword) else { return Ok(()) };
        let list = node::items(&list);
        if list.is_empty() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(());
        }
        self.report(
            keyword,
            ChangeKind::Rewritten("properties of all of them, alternatives in the description".to_owned()),
        );
        self.loosened += 1;
        let mut forms: Vec<ArgumentForm> = Vec::new();
        for branch in list {
            forms.extend(self.arguments(branch, 0)?);
        }
        if forms.is_empty() {
            return Err(SchemaError::Unusable("its schema has alternatives, and none of them is an object".to_owned()));
        }
        let is_only_one = keyword == "oneOf";
        self.describe_forms(&forms, is_only_one, notes);
        let all_closed = forms.iter().all(|form| form.is_closed);
        let mut required: Vec<String> = forms.first().map(|form| form.required.clone()).unwrap_or_default();
        required.retain(|name| forms.iter().all(|form| form.required.contains(name)));
        let mut properties = match node.remove("properties").map(Cow::into_owned) {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        let own = properties.len();
        let mut kinds: Map<String, Value> = Map::new();
        for (name, schema) in forms.into_iter().flat_map(|form| form.properties) {
            match kinds.get_mut(&name) {
                // Too many schemas to be useful.
                Some(kinds) if kinds.as_array().is_none_or(|schemas| schemas.len() >= MAX_KINDS) => {
                    *kinds = Value::Bool(true)
                }
                Some(Value::Array(schemas)) if !schemas.contains(&schema) => schemas.push(schema),
                Some(_) => {}
                None => drop(kinds.insert(name, Value::Array(vec![schema]))),
            }
        }
        for (name, schemas) in kinds {
            if !properties.contains_key(&name) {
                properties.insert(name, any_of(schemas));
            }
        }
        let is_own_closed = node.get("additionalProperties") == Some(&Value::Bool(false));
        if !node.has("additionalProperties") && all_closed {
            node.set("additionalProperties", Value::Bool(false));
        } else if is_own_closed && properties.len() > own {
            self.report("additionalProperties", ChangeKind::Rewritten("of all alternatives".to_owned()));
        }
        node.set("properties", Value::Object(properties));
        if !required.is_empty() {
            let mut names = node.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            names.extend(required.into_iter().map(Value::from));
            node.set("required", Value::Array(names));
        }
        Ok(())
    }

    /// Returns a branch's argument forms; empty if it is not an object.
    fn arguments(&mut self, branch: Cow<'d, Value>, depth: usize) -> LowerResult<Vec<ArgumentForm>> {
        let Some(mut node) = self.expand_separately(branch)? else { return Ok(Vec::new()) };
        if node.types().is_some_and(|types| !types.has(Types::OBJECT)) {
            return Ok(Vec::new());
        }
        let mut forms = Vec::new();
        let mut is_skipped = false;
        for keyword in ["anyOf", "oneOf"] {
            let Some(list) = node.remove(keyword) else { continue };
            for inner in node::items(&list) {
                if depth < MAX_DEPTH && forms.len() < MAX_FORMS {
                    forms.extend(self.arguments(inner, depth + 1)?);
                } else {
                    is_skipped = true;
                }
            }
        }
        let own = ArgumentForm::of(&node);
        if forms.is_empty() && !is_skipped {
            return Ok(vec![own]);
        }
        for form in &mut forms {
            form.join(&own);
        }
        if is_skipped {
            // Stands for all forms beyond the limit, which may have any properties.
            forms.push(ArgumentForm { is_closed: false, ..own });
        }
        Ok(forms)
    }

    /// Adds a note about the possible argument forms.
    fn describe_forms(&mut self, forms: &[ArgumentForm], is_only_one: bool, notes: &mut Notes) {
        let mut words = Vec::new();
        for form in forms.iter().take(12) {
            let mut names = Vec::new();
            let mut optional = Vec::new();
            for name in &form.required {
                let wire = self.names.wire_name(name);
                match form.properties.get(name).and_then(|schema| schema.get("const")) {
                    Some(value) => names.push(format!("`{wire}` = {}", super::note::short(&value.to_string()))),
                    None => names.push(format!("`{wire}`")),
                }
            }
            for name in form.properties.keys().filter(|name| !form.required.contains(name)).take(20) {
                optional.push(format!("`{}`", self.names.wire_name(name)));
            }
            for pattern in form.patterns.iter().take(20) {
                optional.push(format!("names that match `{}`", super::note::short(pattern)));
            }
            let mut text = names.join(" and ");
            if !optional.is_empty() {
                let word = if text.is_empty() { "optionally" } else { " and optionally" };
                text.push_str(&format!("{word} {}", optional.join(", ")));
            }
            words.push(if text.is_empty() { "none of these".to_owned() } else { text });
        }
        words.dedup();
        let more = forms.len().saturating_sub(12);
        if more > 0 {
            words.push(format!("{more} others"));
        }
        let front = if is_only_one { "give exactly one of these" } else { "give at least one of these" };
        notes.add_text(&format!("{front}: {}", words.join("; or ")));
    }
}

/// An argument set that an alternative accepts.
#[derive(Clone, Debug, Default)]
struct ArgumentForm {
    properties: Map<String, Value>,
    required: Vec<String>,
    /// Additional name patterns.
    patterns: Vec<String>,
    is_closed: bool,
}

impl ArgumentForm {
    fn of(node: &Node<'_>) -> Self {
        let names = node.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut required: Vec<String> = Vec::new();
        for name in names.filter_map(Value::as_str) {
            if required.len() < 1_000 && !required.iter().any(|known| known == name) {
                required.push(name.to_owned());
            }
        }
        let patterns = node.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let patterns: Vec<String> = patterns.cloned().collect();
        Self {
            properties: node.get("properties").and_then(Value::as_object).cloned().unwrap_or_default(),
            required,
            is_closed: patterns.is_empty() && node.get("additionalProperties") == Some(&Value::Bool(false)),
            patterns,
        }
    }

    /// Adds the arguments that several forms share.
    fn join(&mut self, other: &Self) {
        for (name, schema) in &other.properties {
            if !self.properties.contains_key(name) {
                self.properties.insert(name.clone(), schema.clone());
            }
        }
        self.required
            .extend(other.required.iter().filter(|name| !self.required.contains(name)).cloned().collect::<Vec<_>>());
        self.patterns.extend(other.patterns.iter().cloned());
        self.is_closed |= other.is_closed;
    }
}

/// Returns a schema that allows each of several schemas.
fn any_of(schemas: Value) -> Value {
    let Value::Array(mut schemas) = schemas else { return schemas };
    if schemas.len() == 1 {
        return schemas.pop().unwrap_or(Value::Bool(true));
    }
    // Alternatives are usually tagged with a constant; together these are a list of values.
    let values = |schema: &Value| match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    };
    let lists: Option<Vec<Vec<Value>>> = schemas.iter().map(values).collect();
    let Some(lists) = lists else { return [("anyOf", Value::Array(schemas))].into_iter().collect() };
    let mut all: Map<String, Value> = Map::new();
    let first = schemas.first().and_then(Value::as_object).into_iter().flatten();
    for (keyword, value) in first.filter(|(keyword, _)| matches!(keyword.as_str(), "type" | "description" | "title")) {
        let is_shared = |schema: &Value| schema.get(keyword) == Some(value);
        if schemas.iter().all(is_shared) {
            all.insert(keyword.clone(), value.clone());
        }
    }
    all.insert("enum".to_owned(), lists.into_iter().flatten().collect());
    Value::Object(all)
}
