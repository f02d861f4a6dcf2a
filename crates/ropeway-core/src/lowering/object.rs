//! Object keywords.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::argument_mapping::NullMeaning;
use super::change::ChangeKind;
use super::cow_value::{CowObject, CowValue};
use super::keywords::SchemaBuilder;
use super::node::{self, Node};
use super::pattern;
use super::target::SchemaTarget;
use super::types::Types;
use super::walker::{LowerResult, LoweredSchema, Walker};

impl<'d> Walker<'d> {
    /// Checks that strict mode supports the node.
    pub(super) fn check_strict(&self, node: &Node<'d>, types: Option<Types>) -> LowerResult {
        let Some(types) = types else { return Ok(()) };
        if types.has(Types::ARRAY) && !node.has("items") && node.get("maxItems") != Some(&Value::from(0)) {
            return Err(self.not_strict("is a list of anything"));
        }
        if !types.has(Types::OBJECT) {
            return Ok(());
        }
        let additional = node.get("additionalProperties");
        let is_closed =
            additional == Some(&Value::Bool(false)) || node.get("unevaluatedProperties") == Some(&Value::Bool(false));
        let has_properties = node.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        let is_open = !is_closed && (additional.is_some() || !(has_properties || self.is_root()));
        if is_open || node.has("patternProperties") {
            return Err(self.not_strict("takes properties of any name"));
        }
        Ok(())
    }

    pub(super) fn properties(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        if !value.is_object() {
            self.report("properties", ChangeKind::Dropped);
            return Ok(());
        }
        let required: HashSet<&str> = match node.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => HashSet::new(),
        };
        let properties = node::entries(value);
        let mut lowered = CowObject::with_capacity(properties.len());
        for (name, schema) in properties {
            if let Some(schema) = self.unchanged(&schema).filter(|_| self.names.accepts(&name)) {
                lowered.push(name, CowValue::Value(Cow::Borrowed(schema)));
                continue;
            }
            let done = self.step(&["properties", &name], schema)?;
            let wire = self.names.wire_name(&name);
            let Some(mut done) = done else {
                if self.checks_only {
                    builder.mapping.property(&wire, &name, NullMeaning::Unknown, None);
                    lowered.push(wire.into_owned(), false_schema());
                } else {
                    self.loosened += 1;
                    self.report("properties", ChangeKind::Rewritten(format!("without `{name}`, which is not allowed")));
                }
                continue;
            };
            if let Cow::Owned(wire) = &wire {
                self.report("properties", ChangeKind::Rewritten(format!("`{name}` renamed to `{wire}`")));
                done.notes.add_text(&format!("name: {name}"));
            }
            let (mut schema, mapping) = done.described();
            let is_optional = !required.contains(&*name);
            self.stats.properties += 1;
            self.stats.characters += name.len();
            self.stats.optional += usize::from(is_optional);
            self.stats.unions += usize::from(schema.has("anyOf") || schema.value("type").is_some_and(Value::is_array));
            let null = match self.target == SchemaTarget::StrictOpenAi {
                true if is_nullable(&schema) => NullMeaning::Accepted,
                true if is_optional => {
                    make_nullable(&mut schema);
                    NullMeaning::Absent
                }
                _ => NullMeaning::Unknown,
            };
            builder.mapping.property(&wire, &name, null, mapping);
            match wire {
                Cow::Owned(wire) => lowered.push(wire, schema),
                Cow::Borrowed(_) => lowered.push(name, schema),
            }
        }
        builder.set("properties", lowered);
        Ok(())
    }

    pub(super) fn required(&mut self, node: &Node<'d>, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) {
        let Value::Array(names) = &**value else { return self.report("required", ChangeKind::Dropped) };
        let declared = node.get("properties").and_then(Value::as_object);
        let mut kept: Vec<Cow<'_, str>> = Vec::with_capacity(names.len());
        let mut seen = HashSet::with_capacity(names.len());
        for name in names {
            let Some(text) = name.as_str() else {
                self.report("required", ChangeKind::Dropped);
                continue;
            };
            if !self.target.is_lenient() && !declared.is_some_and(|declared| declared.contains_key(text)) {
                self.describe("required", name, builder);
            } else if seen.insert(text) {
                kept.push(self.known_name(text, builder));
            }
        }
        let is_same = kept.len() == names.len() && kept.iter().all(|name| matches!(name, Cow::Borrowed(_)));
        if is_same {
            builder.out.set("required", CowValue::Value(value.clone()))
        } else {
            builder.set("required", kept.into_iter().collect::<Value>())
        }
    }

    pub(super) fn additional_properties(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        let keyword = "additionalProperties";
        // The keyword would forbid properties that the removed patterns allow.
        if node.has("patternProperties") && !self.keeps_pattern_properties(node) {
            self.describe(keyword, value, builder);
            return Ok(());
        }
        if value.is_boolean() {
            builder.out.set(keyword, CowValue::Value(value.clone()));
            return Ok(());
        }
        match self.step(&[keyword], value.clone())? {
            Some(done) => {
                let (schema, mapping) = done.described();
                builder.mapping.others(mapping);
                builder.set(keyword, schema);
            }
            None => builder.set(keyword, Value::Bool(false)),
        }
        Ok(())
    }

    fn keeps_pattern_properties(&mut self, node: &Node<'d>) -> bool {
        let is_portable = |map: &Map<String, Value>| map.keys().all(|text| pattern::is_portable(text));
        let are_plain = node.get("patternProperties").and_then(Value::as_object).is_some_and(is_portable);
        self.target.is_lenient() && are_plain && !self.names.needs_renaming()
    }

    /// Returns the dialect's name for a property that need not be declared here.
    fn known_name<'n>(&mut self, name: &'n str, builder: &mut SchemaBuilder<'d>) -> Cow<'n, str> {
        let wire = self.names.wire_name(name);
        builder.mapping.property(&wire, name, NullMeaning::Unknown, None);
        wire
    }

    pub(super) fn pattern_properties(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        let keyword = "patternProperties";
        if !value.is_object() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = CowObject::default();
        for (name, schema) in node::entries(value) {
            let done = self.step(&[keyword, &name], schema)?;
            let (schema, mapping) = done.map_or_else(|| (false_schema(), None), LoweredSchema::described);
            builder.mapping.others(mapping);
            lowered.push(name, schema);
        }
        let keeps = self.keeps_pattern_properties(node);
        self.keep_or_describe(keyword, lowered, keeps, builder);
        Ok(())
    }

    pub(super) fn dependent_required(&mut self, value: &Value, builder: &mut SchemaBuilder<'d>) {
        let keyword = "dependentRequired";
        let is_right = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
        let map = value.as_object().filter(|map| self.target.is_lenient() && map.values().all(is_right));
        let Some(map) = map else { return self.describe(keyword, value, builder) };
        let mut renamed = CowObject::with_capacity(map.len());
        for (name, others) in map {
            let mut names: Vec<Value> = Vec::new();
            for other in others.as_array().into_iter().flatten().filter_map(Value::as_str).take(1_000) {
                let other = Value::from(self.known_name(other, builder));
                if !names.contains(&other) {
                    names.push(other);
                }
            }
            renamed.push(self.known_name(name, builder).into_owned(), Value::Array(names));
        }
        builder.set(keyword, renamed);
    }

    pub(super) fn dependent_schemas(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        let keyword = "dependentSchemas";
        if !value.is_object() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = CowObject::default();
        for (name, schema) in node::entries(value) {
            let done = self.checking_only(|walker| walker.step(&[keyword, &name], schema))?;
            let (schema, mapping) = done.map_or_else(|| (false_schema(), None), LoweredSchema::described);
            builder.mapping.merge(mapping);
            lowered.push(self.known_name(&name, builder).into_owned(), schema);
        }
        self.keep_or_describe(keyword, lowered, self.target.is_lenient(), builder);
        Ok(())
    }

    pub(super) fn property_names(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        let keyword = "propertyNames";
        let done = self.checking_only(|walker| walker.step(&[keyword], value.clone()))?;
        let schema = done.map_or_else(false_schema, |done| done.described().0);
        let is_string = |value: &CowValue<'_>| value.value().is_some_and(|value| value == "string");
        let is_trivial = schema.iter().all(|(keyword, value)| keyword == "type" && is_string(value));
        if self.target.is_lenient() && !self.names.needs_renaming() {
            builder.set(keyword, schema);
        } else if is_trivial {
            // Names are always strings.
            self.report(keyword, ChangeKind::Dropped);
        } else {
            self.describe_lowered(keyword, &schema.into(), builder);
        }
        Ok(())
    }

    /// Lowers `unevaluatedItems` and `unevaluatedProperties`.
    pub(super) fn unevaluated(&mut self, node: &Node<'d>, builder: &mut SchemaBuilder<'d>) -> LowerResult {
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            let Some(value) = node.source(keyword) else { continue };
            // It depends on all sibling keywords and on their subschemas.
            let others = ["anyOf", "oneOf", "allOf", "if", "dependentSchemas", "not"];
            let is_alone = builder.notes.is_empty() && !others.into_iter().any(|keyword| node.has(keyword));
            if self.target.is_lenient() && is_alone {
                match self.step(&[keyword], value.clone())? {
                    _ if value.is_boolean() => builder.out.set(keyword, CowValue::Value(value.clone())),
                    Some(done) => {
                        let (schema, mapping) = done.described();
                        if keyword == "unevaluatedProperties" {
                            builder.mapping.others(mapping);
                        } else {
                            builder.mapping.items(mapping);
                        }
                        builder.set(keyword, schema);
                    }
                    None => builder.set(keyword, Value::Bool(false)),
                }
            } else if **value == Value::Bool(true) || self.target.is_strict() {
                self.report(keyword, ChangeKind::Dropped);
            } else {
                self.describe(keyword, value, builder);
            }
        }
        Ok(())
    }

    /// Closes an object, and requires all its properties if the target does.
    pub(super) fn close(&mut self, builder: &mut SchemaBuilder<'d>) {
        if builder.out.value("additionalProperties") != Some(&Value::Bool(false)) {
            self.report("additionalProperties", ChangeKind::Rewritten("false".to_owned()));
            builder.set("additionalProperties", Value::Bool(false));
        }
        if self.target != SchemaTarget::StrictOpenAi {
            return;
        }
        let properties = builder.out.get("properties").and_then(CowValue::object);
        let names: Vec<Value> = properties.into_iter().flat_map(CowObject::keys).map(Value::from).collect();
        if builder.out.value("required").and_then(Value::as_array).map_or(0, Vec::len) != names.len() {
            self.report("required", ChangeKind::Rewritten("all, optional ones as null".to_owned()));
        }
        builder.set("required", Value::Array(names));
    }

    /// Lowers schemas that only check a value.
    pub(super) fn checking_only<T>(&mut self, lower: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.checks_only, true);
        let lowered = lower(self);
        self.checks_only = before;
        lowered
    }
}

/// Returns a schema that allows no value.
pub(super) fn false_schema<'d>() -> CowObject<'d> {
    let mut false_schema = CowObject::default();
    false_schema.push("not", CowObject::default());
    false_schema
}

fn types_of(schema: &CowObject<'_>) -> Types {
    schema.value("type").map(Types::read).unwrap_or_default()
}

/// Returns `true` if a lowered schema allows `null`.
fn is_nullable(schema: &CowObject<'_>) -> bool {
    if let Some(CowValue::List(branches)) = schema.get("anyOf") {
        let allows_null =
            |branch: &CowObject<'_>| types_of(branch).has(Types::NULL) || branch.value("const") == Some(&Value::Null);
        return branches.iter().filter_map(CowValue::object).any(allows_null);
    }
    if let Some(value) = schema.value("const") {
        return value.is_null();
    }
    let values = schema.value("enum").and_then(Value::as_array);
    types_of(schema).has(Types::NULL) && values.is_none_or(|values| values.contains(&Value::Null))
}

/// Makes a lowered schema allow `null`.
fn make_nullable(schema: &mut CowObject<'_>) {
    if let Some(CowValue::List(branches)) = schema.get_mut("anyOf") {
        let mut null = CowObject::default();
        null.push("type", Value::from("null"));
        branches.push(CowValue::Object(null));
        return;
    }
    if let Some(value) = schema.value("const").cloned() {
        schema.remove("const");
        schema.set("enum", Value::Array(vec![value]));
    }
    let types = types_of(schema);
    let values = schema.value("enum").and_then(Value::as_array);
    if let Some(values) = values.filter(|values| !values.contains(&Value::Null)) {
        let values = values.iter().cloned().chain([Value::Null]).collect();
        schema.set("enum", Value::Array(values));
    }
    let names = types.without(Types::NULL).each().map(|one| Value::from(one.name()));
    let all: Vec<Value> = names.chain([Value::from("null")]).collect();
    schema.set("type", Value::Array(all));
}
