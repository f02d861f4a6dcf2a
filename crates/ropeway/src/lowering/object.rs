//! The keywords of objects.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::ChangeKind;
use super::arguments::Null;
use super::form::Form;
use super::keywords::Making;
use super::node::{self, Node};
use super::pattern;
use super::types::Types;
use super::walker::{Done, Failure, Walker};
use super::written::{Object, Written};

impl<'d> Walker<'d> {
    /// Is it what a model can be held to?
    pub(super) fn check_strict(&self, node: &Node<'d>, types: Option<Types>) -> Result<(), Failure> {
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
        making: &mut Making<'d>,
    ) -> Result<(), Failure> {
        if !value.is_object() {
            self.report("properties", ChangeKind::Dropped);
            return Ok(());
        }
        let required: HashSet<&str> = match node.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => HashSet::new(),
        };
        let properties = node::entries(value);
        let mut lowered = Object::with_capacity(properties.len());
        for (name, schema) in properties {
            if let Some(schema) = self.untouched(&schema).filter(|_| self.names.takes(&name)) {
                lowered.push(name, Written::Value(Cow::Borrowed(schema)));
                continue;
            }
            let done = self.step(&["properties", &name], schema)?;
            let wire = self.names.wire_name(&name);
            let Some(mut done) = done else {
                if self.measures {
                    making.shape.property(&wire, &name, Null::Unknown, None);
                    lowered.push(wire.into_owned(), nothing());
                } else {
                    self.loosened += 1;
                    self.report(
                        "properties",
                        ChangeKind::Rewritten(format!("without `{name}`, which may not be there")),
                    );
                }
                continue;
            };
            if let Cow::Owned(wire) = &wire {
                self.report("properties", ChangeKind::Rewritten(format!("`{name}` is called `{wire}`")));
                done.notes.say(&format!("name: {name}"));
            }
            let (mut schema, shape) = done.described();
            let is_optional = !required.contains(&*name);
            self.tally.properties += 1;
            self.tally.characters += name.len();
            self.tally.optional += usize::from(is_optional);
            self.tally.unions += usize::from(schema.has("anyOf") || schema.value("type").is_some_and(Value::is_array));
            let null = match self.form == Form::StrictOpenAi {
                true if is_nullable(&schema) => Null::Meant,
                true if is_optional => {
                    make_nullable(&mut schema);
                    Null::Absent
                }
                _ => Null::Unknown,
            };
            making.shape.property(&wire, &name, null, shape);
            match wire {
                Cow::Owned(wire) => lowered.push(wire, schema),
                Cow::Borrowed(_) => lowered.push(name, schema),
            }
        }
        making.set("properties", lowered);
        Ok(())
    }

    pub(super) fn required(&mut self, node: &Node<'d>, value: &Cow<'d, Value>, making: &mut Making<'d>) {
        let Value::Array(names) = &**value else { return self.report("required", ChangeKind::Dropped) };
        let declared = node.get("properties").and_then(Value::as_object);
        let mut kept: Vec<Cow<'_, str>> = Vec::with_capacity(names.len());
        let mut seen = HashSet::with_capacity(names.len());
        for name in names {
            let Some(text) = name.as_str() else {
                self.report("required", ChangeKind::Dropped);
                continue;
            };
            if !self.form.is_lenient() && !declared.is_some_and(|declared| declared.contains_key(text)) {
                self.describe("required", name, making);
            } else if seen.insert(text) {
                kept.push(self.known_name(text, making));
            }
        }
        let is_same = kept.len() == names.len() && kept.iter().all(|name| matches!(name, Cow::Borrowed(_)));
        match is_same {
            true => making.out.set("required", Written::Value(value.clone())),
            false => making.set("required", kept.into_iter().collect::<Value>()),
        }
    }

    pub(super) fn additional_properties(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<(), Failure> {
        let keyword = "additionalProperties";
        // It would forbid what those allow.
        if node.has("patternProperties") && !self.keeps_pattern_properties(node) {
            self.describe(keyword, value, making);
            return Ok(());
        }
        if value.is_boolean() {
            making.out.set(keyword, Written::Value(value.clone()));
            return Ok(());
        }
        match self.step(&[keyword], value.clone())? {
            Some(done) => {
                let (schema, shape) = done.described();
                making.shape.others(shape);
                making.set(keyword, schema);
            }
            None => making.set(keyword, Value::Bool(false)),
        }
        Ok(())
    }

    fn keeps_pattern_properties(&mut self, node: &Node<'d>) -> bool {
        let is_plain = |map: &Map<String, Value>| map.keys().all(|text| pattern::is_plain(text));
        let are_plain = node.get("patternProperties").and_then(Value::as_object).is_some_and(is_plain);
        self.form.is_lenient() && are_plain && !self.names.has_others()
    }

    /// The dialect's name for a property that need not be declared here.
    fn known_name<'n>(&mut self, name: &'n str, making: &mut Making<'d>) -> Cow<'n, str> {
        let wire = self.names.wire_name(name);
        making.shape.property(&wire, name, Null::Unknown, None);
        wire
    }

    pub(super) fn pattern_properties(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        making: &mut Making<'d>,
    ) -> Result<(), Failure> {
        let keyword = "patternProperties";
        if !value.is_object() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = Object::default();
        for (name, schema) in node::entries(value) {
            let done = self.step(&[keyword, &name], schema)?;
            let (schema, shape) = done.map_or_else(|| (nothing(), None), Done::described);
            making.shape.others(shape);
            lowered.push(name, schema);
        }
        match self.keeps_pattern_properties(node) {
            true => making.set(keyword, lowered),
            false => self.describe_written(keyword, &lowered.into(), making),
        }
        Ok(())
    }

    pub(super) fn dependent_required(&mut self, value: &Value, making: &mut Making<'d>) {
        let keyword = "dependentRequired";
        let is_right = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
        let map = value.as_object().filter(|map| self.form.is_lenient() && map.values().all(is_right));
        let Some(map) = map else { return self.describe(keyword, value, making) };
        let mut renamed = Object::with_capacity(map.len());
        for (name, others) in map {
            let mut names: Vec<Value> = Vec::new();
            for other in others.as_array().into_iter().flatten().filter_map(Value::as_str).take(1_000) {
                let other = Value::from(self.known_name(other, making));
                if !names.contains(&other) {
                    names.push(other);
                }
            }
            renamed.push(self.known_name(name, making).into_owned(), Value::Array(names));
        }
        making.set(keyword, renamed);
    }

    pub(super) fn dependent_schemas(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        let keyword = "dependentSchemas";
        if !value.is_object() {
            self.report(keyword, ChangeKind::Dropped);
            return Ok(());
        }
        let mut lowered = Object::default();
        for (name, schema) in node::entries(value) {
            let done = self.measuring(|walker| walker.step(&[keyword, &name], schema))?;
            let (schema, shape) = done.map_or_else(|| (nothing(), None), Done::described);
            making.shape.join(shape);
            lowered.push(self.known_name(&name, making).into_owned(), schema);
        }
        match self.form.is_lenient() {
            true => making.set(keyword, lowered),
            false => self.describe_written(keyword, &lowered.into(), making),
        }
        Ok(())
    }

    pub(super) fn property_names(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) -> Result<(), Failure> {
        let keyword = "propertyNames";
        let done = self.measuring(|walker| walker.step(&[keyword], value.clone()))?;
        let schema = done.map_or_else(nothing, |done| done.described().0);
        let is_string = |value: &Written<'_>| value.value().is_some_and(|value| value == "string");
        let says_nothing = schema.iter().all(|(keyword, value)| keyword == "type" && is_string(value));
        match self.form.is_lenient() && !self.names.has_others() {
            true => making.set(keyword, schema),
            // Names are strings anyhow.
            false if says_nothing => self.report(keyword, ChangeKind::Dropped),
            false => self.describe_written(keyword, &schema.into(), making),
        }
        Ok(())
    }

    /// Deals with what nothing else has dealt with.
    pub(super) fn unevaluated(&mut self, node: &Node<'d>, making: &mut Making<'d>) -> Result<(), Failure> {
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            let Some(value) = node.source(keyword) else { continue };
            // It counts on every keyword that is beside it, and in schemas beside it.
            let others = ["anyOf", "oneOf", "allOf", "if", "dependentSchemas", "not"];
            let is_alone = making.notes.is_empty() && !others.into_iter().any(|keyword| node.has(keyword));
            if self.form.is_lenient() && is_alone {
                match self.step(&[keyword], value.clone())? {
                    _ if value.is_boolean() => making.out.set(keyword, Written::Value(value.clone())),
                    Some(done) => making.set(keyword, done.described().0),
                    None => making.set(keyword, Value::Bool(false)),
                }
            } else if **value == Value::Bool(true) || self.form.is_strict() {
                self.report(keyword, ChangeKind::Dropped);
            } else {
                self.describe(keyword, value, making);
            }
        }
        Ok(())
    }

    /// Closes an object, and asks for every property where the form wants that.
    pub(super) fn close(&mut self, making: &mut Making<'d>) {
        if making.out.value("additionalProperties") != Some(&Value::Bool(false)) {
            self.report("additionalProperties", ChangeKind::Rewritten("false".to_owned()));
            making.set("additionalProperties", Value::Bool(false));
        }
        if self.form != Form::StrictOpenAi {
            return;
        }
        let properties = making.out.get("properties").and_then(Written::object);
        let names: Vec<Value> = properties.into_iter().flat_map(Object::keys).map(Value::from).collect();
        if making.out.value("required").and_then(Value::as_array).map_or(0, Vec::len) != names.len() {
            self.report("required", ChangeKind::Rewritten("all, where need be as null".to_owned()));
        }
        making.set("required", Value::Array(names));
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
pub(super) fn nothing<'d>() -> Object<'d> {
    let mut nothing = Object::default();
    nothing.push("not", Object::default());
    nothing
}

fn types_of(schema: &Object<'_>) -> Types {
    schema.value("type").map(Types::read).unwrap_or_default()
}

/// Does a lowered schema allow `null`?
fn is_nullable(schema: &Object<'_>) -> bool {
    if let Some(Written::List(branches)) = schema.get("anyOf") {
        let allows_null =
            |branch: &Object<'_>| types_of(branch).has(Types::NULL) || branch.value("const") == Some(&Value::Null);
        return branches.iter().filter_map(Written::object).any(allows_null);
    }
    if let Some(value) = schema.value("const") {
        return value.is_null();
    }
    let values = schema.value("enum").and_then(Value::as_array);
    types_of(schema).has(Types::NULL) && values.is_none_or(|values| values.contains(&Value::Null))
}

/// Lets a lowered schema allow `null` that did not.
fn make_nullable(schema: &mut Object<'_>) {
    if let Some(Written::List(branches)) = schema.get_mut("anyOf") {
        let mut null = Object::default();
        null.push("type", Value::from("null"));
        branches.push(Written::Object(null));
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
