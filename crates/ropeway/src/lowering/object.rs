//! The keywords of objects.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::How;
use super::form::Form;
use super::keywords::Making;
use super::node::Node;
use super::pattern;
use super::types::Types;
use super::walker::{Failure, Walker};

impl<'d> Walker<'d> {
    /// Is it what a model can be held to?
    pub(super) fn check_strict(&self, node: &Node<'_>, types: Option<Types>) -> Result<(), Failure> {
        let says_something = ["anyOf", "oneOf", "const", "enum"].into_iter().any(|keyword| node.has(keyword));
        let Some(types) = types else {
            return if says_something { Ok(()) } else { Err(self.not_strict("takes anything")) };
        };
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

    pub(super) fn properties<'s>(
        &mut self,
        node: &'s Node<'s>,
        value: &'s Value,
        making: &mut Making,
    ) -> Result<(), Failure>
    where
        'd: 's,
    {
        let Value::Object(properties) = value else {
            self.report("properties", How::Dropped);
            return Ok(());
        };
        let required: HashSet<&str> = match node.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => HashSet::new(),
        };
        let mut lowered = Map::with_capacity(properties.len());
        for (name, schema) in properties {
            let Some(mut done) = self.step(&["properties", name], schema)? else {
                self.report("properties", How::Rewritten(format!("without `{name}`, which may not be there")));
                continue;
            };
            let wire = self.wire_name(name);
            if let Cow::Owned(wire) = &wire {
                self.report("properties", How::Rewritten(format!("`{name}` is called `{wire}`")));
                done.notes.say(&format!("name: {name}"));
            }
            let (mut schema, shape) = done.described();
            let is_optional = !required.contains(name.as_str());
            self.tally.properties += 1;
            self.tally.characters += name.len();
            self.tally.optional += usize::from(is_optional);
            self.tally.unions +=
                usize::from(schema.get("anyOf").is_some() || schema.get("type").is_some_and(Value::is_array));
            let mut null_is_absent = false;
            if is_optional
                && self.form == Form::StrictOpenAi
                && let Value::Object(schema) = &mut schema
            {
                null_is_absent = make_nullable(schema);
            }
            making.shape.property(&wire, name, null_is_absent, shape);
            lowered.insert(wire.into_owned(), schema);
        }
        making.keep("properties", Value::Object(lowered));
        Ok(())
    }

    pub(super) fn required(&mut self, node: &Node<'_>, value: &Value, making: &mut Making) {
        let Value::Array(names) = value else { return self.report("required", How::Dropped) };
        let declared = node.get("properties").and_then(Value::as_object);
        let mut kept: Vec<Value> = Vec::with_capacity(names.len());
        let mut seen = HashSet::with_capacity(names.len());
        for name in names {
            let Some(text) = name.as_str() else {
                self.report("required", How::Dropped);
                continue;
            };
            if !self.form.is_lenient() && !declared.is_some_and(|declared| declared.contains_key(text)) {
                self.describe("required", name, making);
            } else if seen.insert(text) {
                kept.push(Value::from(self.wire_name(text).into_owned()));
            }
        }
        making.keep("required", Value::Array(kept));
    }

    pub(super) fn additional_properties<'s>(
        &mut self,
        node: &'s Node<'s>,
        value: &'s Value,
        making: &mut Making,
    ) -> Result<(), Failure>
    where
        'd: 's,
    {
        let keyword = "additionalProperties";
        // It would forbid what those allow.
        if node.has("patternProperties") && !self.keeps_pattern_properties(node) {
            self.describe(keyword, value, making);
            return Ok(());
        }
        match value {
            Value::Bool(_) => making.keep(keyword, value.clone()),
            value => match self.step(&[keyword], value)? {
                Some(done) => {
                    let (schema, shape) = done.described();
                    making.shape.others(shape);
                    making.keep(keyword, schema);
                }
                None => making.keep(keyword, Value::Bool(false)),
            },
        }
        Ok(())
    }

    fn keeps_pattern_properties(&mut self, node: &Node<'_>) -> bool {
        let is_plain = |map: &Map<String, Value>| map.keys().all(|text| pattern::is_plain(text));
        let are_plain = node.get("patternProperties").and_then(Value::as_object).is_some_and(is_plain);
        self.form.is_lenient() && are_plain && !self.renames(node)
    }

    /// Is a property called otherwise here? Then patterns of names are not about the names that are there.
    fn renames(&mut self, node: &Node<'_>) -> bool {
        let mut names = node.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        names.any(|name| matches!(self.wire_name(name), Cow::Owned(_)))
    }

    pub(super) fn pattern_properties<'s>(
        &mut self,
        node: &'s Node<'s>,
        value: &'s Value,
        making: &mut Making,
    ) -> Result<(), Failure>
    where
        'd: 's,
    {
        let keyword = "patternProperties";
        let Value::Object(patterns) = value else {
            self.report(keyword, How::Dropped);
            return Ok(());
        };
        let lowered = self.named_schemas(keyword, patterns, making)?;
        match self.keeps_pattern_properties(node) {
            true => making.keep(keyword, Value::Object(lowered)),
            false => self.describe(keyword, &Value::Object(lowered), making),
        }
        Ok(())
    }

    /// Lowers schemas that have names which are no properties' names.
    fn named_schemas<'s>(
        &mut self,
        keyword: &str,
        schemas: &'s Map<String, Value>,
        making: &mut Making,
    ) -> Result<Map<String, Value>, Failure>
    where
        'd: 's,
    {
        let mut lowered = Map::with_capacity(schemas.len());
        for (name, schema) in schemas {
            let schema = match self.step(&[keyword, name], schema)? {
                Some(done) => {
                    let (schema, shape) = done.described();
                    match keyword {
                        "patternProperties" => making.shape.others(shape),
                        _ => making.shape.join(shape),
                    }
                    schema
                }
                None => nothing(),
            };
            lowered.insert(name.clone(), schema);
        }
        Ok(lowered)
    }

    pub(super) fn dependent_required(&mut self, value: &Value, making: &mut Making) {
        let keyword = "dependentRequired";
        let is_right = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
        let map = value.as_object().filter(|map| self.form.is_lenient() && map.values().all(is_right));
        let Some(map) = map else { return self.describe(keyword, value, making) };
        let mut renamed = Map::with_capacity(map.len());
        for (name, others) in map {
            let mut names: Vec<Value> = Vec::new();
            for other in others.as_array().into_iter().flatten().filter_map(Value::as_str) {
                let other = Value::from(self.wire_name(other).into_owned());
                if !names.contains(&other) && names.len() < 1_000 {
                    names.push(other);
                }
            }
            renamed.insert(self.wire_name(name).into_owned(), Value::Array(names));
        }
        making.keep(keyword, Value::Object(renamed));
    }

    pub(super) fn dependent_schemas<'s>(&mut self, value: &'s Value, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        let keyword = "dependentSchemas";
        let Value::Object(schemas) = value else {
            self.report(keyword, How::Dropped);
            return Ok(());
        };
        let lowered = self.measuring(|walker| walker.named_schemas(keyword, schemas, making))?;
        let mut renamed = Map::with_capacity(lowered.len());
        for (name, schema) in lowered {
            renamed.insert(self.wire_name(&name).into_owned(), schema);
        }
        match self.form.is_lenient() {
            true => making.keep(keyword, Value::Object(renamed)),
            false => self.describe(keyword, &Value::Object(renamed), making),
        }
        Ok(())
    }

    pub(super) fn property_names<'s>(
        &mut self,
        node: &'s Node<'s>,
        value: &'s Value,
        making: &mut Making,
    ) -> Result<(), Failure>
    where
        'd: 's,
    {
        let keyword = "propertyNames";
        let done = self.measuring(|walker| walker.step(&[keyword], value))?;
        let schema = done.map_or_else(nothing, |done| done.described().0);
        let says_nothing = schema
            .as_object()
            .is_some_and(|map| map.iter().all(|(keyword, value)| keyword == "type" && value == "string"));
        match self.form.is_lenient() && !self.renames(node) {
            true => making.keep(keyword, schema),
            // Names are strings anyhow.
            false if says_nothing => self.report(keyword, How::Dropped),
            false => self.describe(keyword, &schema, making),
        }
        Ok(())
    }

    /// Deals with what nothing else has dealt with.
    pub(super) fn unevaluated<'s>(&mut self, node: &'s Node<'s>, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            let Some(value) = node.get(keyword) else { continue };
            // It counts on every keyword that is beside it, and in schemas beside it.
            let is_alone = making.notes.is_empty()
                && !["anyOf", "oneOf", "allOf", "if", "dependentSchemas", "not"]
                    .into_iter()
                    .any(|keyword| node.has(keyword));
            if self.form.is_lenient() && is_alone {
                let schema = match value {
                    Value::Bool(_) => value.clone(),
                    value => self.step(&[keyword], value)?.map_or(Value::Bool(false), |done| done.described().0),
                };
                making.keep(keyword, schema);
            } else if value == &Value::Bool(true) || self.form.is_strict() {
                self.report(keyword, How::Dropped);
            } else {
                self.describe(keyword, value, making);
            }
        }
        Ok(())
    }

    /// Closes an object, and asks for every property where the form wants that.
    pub(super) fn close(&mut self, making: &mut Making) {
        if making.out.get("additionalProperties") != Some(&Value::Bool(false)) {
            self.report("additionalProperties", How::Rewritten("false".to_owned()));
            making.keep("additionalProperties", Value::Bool(false));
        }
        let names: Vec<Value> = match making.out.get("properties") {
            Some(Value::Object(properties)) => properties.keys().map(|name| Value::from(name.as_str())).collect(),
            _ => Vec::new(),
        };
        if self.form == Form::StrictOpenAi {
            if making.out.get("required").and_then(Value::as_array).map_or(0, Vec::len) != names.len() {
                self.report("required", How::Rewritten("all, where need be as null".to_owned()));
            }
            making.keep("required", Value::Array(names));
        }
    }

    /// Lowers schemas that a value is only measured by.
    pub(super) fn measuring<T>(&mut self, lower: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.measures, true);
        let lowered = lower(self);
        self.measures = before;
        lowered
    }
}

/// A schema that allows nothing.
pub(super) fn nothing() -> Value {
    serde_json::json!({"not": {}})
}

/// Lets a lowered schema allow `null`; false if it did before.
fn make_nullable(schema: &mut Map<String, Value>) -> bool {
    let is_null = |schema: &Value| schema.get("type").map(Types::read).is_some_and(|types| types.has(Types::NULL));
    if let Some(Value::Array(branches)) = schema.get_mut("anyOf") {
        let has_null = |branch: &Value| is_null(branch) || branch.get("const") == Some(&Value::Null);
        if branches.iter().any(has_null) {
            return false;
        }
        branches.push(serde_json::json!({"type": "null"}));
        return true;
    }
    if let Some(value) = schema.get("const").cloned() {
        if value.is_null() {
            return false;
        }
        schema.insert("enum".to_owned(), Value::Array(vec![value]));
        schema.shift_remove("const");
    }
    let types = schema.get("type").map(Types::read).unwrap_or_default();
    let values = schema.get_mut("enum").and_then(Value::as_array_mut);
    if types.has(Types::NULL) && values.as_ref().is_none_or(|values| values.contains(&Value::Null)) {
        return false;
    }
    if let Some(values) = values {
        values.push(Value::Null);
    }
    if !types.has(Types::NULL) {
        let mut all: Vec<Value> = types.each().map(|one| Value::from(one.name())).collect();
        all.push(Value::from("null"));
        schema.insert("type".to_owned(), Value::Array(all));
    }
    true
}
