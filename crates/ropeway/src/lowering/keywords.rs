//! Keywords: what becomes of each of them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::ChangeKind;
use super::arguments::Shape;
use super::form::Form;
use super::node::Node;
use super::note::Notes;
use super::types::Types;
use super::walker::{Done, Failure, Walker};
use super::written::{Object, Written};

/// How many values a list of values may have. OpenAI takes no more.
pub(super) const MAX_ENUM: usize = 1_000;

/// A schema in the making.
#[derive(Default)]
pub(super) struct Making<'d> {
    pub(super) out: Object<'d>,
    pub(super) notes: Notes,
    pub(super) shape: Shape,
}

impl<'d> Making<'d> {
    /// Writes down what is as it was.
    pub(super) fn keep(&mut self, keyword: &Cow<'d, str>, value: &Cow<'d, Value>) {
        self.out.set(keyword.clone(), Written::Value(value.clone()));
    }

    pub(super) fn set(&mut self, keyword: &'static str, value: impl Into<Written<'d>>) {
        self.out.set(keyword, value);
    }

    pub(super) fn done(self) -> Done<'d> {
        Done { schema: self.out, notes: self.notes, shape: self.shape.some() }
    }
}

impl<'d> Walker<'d> {
    /// Lowers a node; `None` where it allows nothing.
    pub(super) fn keywords(&mut self, node: &Node<'d>, notes: Notes) -> Result<Option<Done<'d>>, Failure> {
        self.spend(1);
        let mut making = Making { out: Object::with_capacity(node.len() + 1), notes, shape: Shape::default() };
        let types = self.types(node);
        if self.form.is_strict() && !self.measures {
            self.check_strict(node, types)?;
        }
        if let Some(types) = types.filter(|_| !node.has("type")) {
            self.report("type", ChangeKind::Added);
            making.set("type", types.to_value());
        }
        if !self.each(node, types, &mut making)? {
            return Ok(None);
        }
        let says_something = || ["type", "anyOf", "const", "enum"].iter().any(|keyword| making.out.has(keyword));
        if self.form.is_strict() && !self.measures && !says_something() {
            return Err(self.not_strict("takes anything"));
        }
        self.complete(node, types, &mut making)?;
        Ok(Some(self.split(making, types)))
    }

    /// Deals with each keyword; false where nothing is allowed.
    pub(super) fn each(
        &mut self,
        node: &Node<'d>,
        types: Option<Types>,
        making: &mut Making<'d>,
    ) -> Result<bool, Failure> {
        for (keyword, value) in node.iter() {
            if !self.form.is_lenient() && types.is_some_and(|types| !applies(keyword, types)) {
                self.report(keyword, ChangeKind::Dropped);
                continue;
            }
            match &**keyword {
                "type" => self.type_keyword(value, types, making),
                "description" => match value.as_str() {
                    Some(text) => {
                        self.spend_text(text.len());
                        making.keep(keyword, value);
                    }
                    None => self.report(keyword, ChangeKind::Dropped),
                },
                "enum" => self.enumeration(node, value, types, making),
                "const" => self.constant(value, making),
                "properties" => self.properties(node, value, making)?,
                "required" => self.required(node, value, making),
                "additionalProperties" => self.additional_properties(node, value, making)?,
                "patternProperties" => self.pattern_properties(node, value, making)?,
                "dependentRequired" => self.dependent_required(value, making),
                "dependentSchemas" => self.dependent_schemas(value, making)?,
                "propertyNames" => self.property_names(value, making)?,
                "items" => self.items(value, making)?,
                "prefixItems" => self.prefix_items(value, making)?,
                "contains" => self.contains(node, value, making)?,
                // Written down with the keyword that they belong to.
                "minContains" | "maxContains" | "then" | "else" => {}
                // What they see is known only when all others are written down.
                "unevaluatedItems" | "unevaluatedProperties" => {}
                "anyOf" | "oneOf" | "allOf" => {
                    if !self.branches(node, keyword, value, making)? {
                        return Ok(false);
                    }
                }
                "not" => self.negation(value, making)?,
                "if" => self.condition(node, value, making)?,
                "contentSchema" => self.content_schema(value, making)?,
                _ => self.plain(keyword, value, making),
            }
        }
        Ok(true)
    }

    /// The types of a node: what it says, or what the rest of it says.
    fn types(&mut self, node: &Node<'d>) -> Option<Types> {
        let values = match (node.get("const"), node.get("enum")) {
            (Some(value), _) => std::slice::from_ref(value),
            (None, Some(Value::Array(values))) => values,
            _ => &[],
        };
        let of_values = || {
            let all = values.iter().take(MAX_ENUM).fold(Types::default(), |types, value| types.and(Types::of(value)));
            Some(all).filter(|types| !types.is_empty())
        };
        if let Some(types) = node.types() {
            // A list of numbers that says it is one of strings: the list is what was meant.
            let fits = values.is_empty() || values.iter().any(|value| types.has(Types::of(value)));
            self.loosened += usize::from(!fits);
            return if fits { Some(types) } else { of_values() };
        }
        if self.measures {
            return None;
        }
        if !values.is_empty() {
            return of_values().filter(|_| !self.form.is_lenient());
        }
        if node.has("properties") {
            return Some(Types::OBJECT);
        }
        if node.has("items") || node.has("prefixItems") {
            return Some(Types::ARRAY);
        }
        let is_list = |keyword| node.get(keyword).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let is_open = !["anyOf", "oneOf", "allOf"].into_iter().any(is_list);
        // Some that compile schemas understand `{}`, but nothing else that has no type.
        (is_open && !node.is_empty() && !self.form.is_strict()).then_some(Types::ALL)
    }

    /// Adds what the form wants to be there.
    fn complete(&mut self, node: &Node<'d>, types: Option<Types>, making: &mut Making<'d>) -> Result<(), Failure> {
        let has = |types: Option<Types>, one: Types| types.is_some_and(|types| types.has(one));
        if self.form.wants_items() && has(types, Types::ARRAY) && !making.out.has("items") {
            self.report("items", ChangeKind::Added);
            making.set("items", Object::default());
        }
        let wants_properties = self.form.wants_properties() && types == Some(Types::OBJECT);
        if (self.is_root() || wants_properties) && !making.out.has("properties") {
            self.report("properties", ChangeKind::Added);
            making.set("properties", Object::default());
            // Some take a list of properties for all there are.
            if !self.is_root() && self.form == Form::OpenAi && !making.out.has("additionalProperties") {
                making.set("additionalProperties", Value::Bool(true));
            }
        }
        self.unevaluated(node, making)?;
        if !self.form.is_lenient() {
            forget_undeclared(&mut making.out);
        }
        if self.form.is_strict() && !self.measures && has(types, Types::OBJECT) {
            self.close(making);
        }
        Ok(())
    }
}

/// Takes back that a property is required which may not be there, and so is not declared any more.
fn forget_undeclared(schema: &mut Object<'_>) {
    let Some(names) = schema.value("required").and_then(Value::as_array) else { return };
    let properties = schema.get("properties").and_then(Written::object);
    let known: HashSet<&str> = properties.into_iter().flat_map(Object::keys).collect();
    let is_declared = |name: &&Value| name.as_str().is_some_and(|name| known.contains(name));
    let declared: Vec<Value> = names.iter().filter(is_declared).cloned().collect();
    if declared.len() < names.len() {
        schema.set("required", Value::Array(declared));
    }
}

/// Does a keyword say anything about values of these types?
pub(super) fn applies(keyword: &str, types: Types) -> bool {
    let about = match keyword {
        "properties"
        | "required"
        | "additionalProperties"
        | "patternProperties"
        | "propertyNames"
        | "minProperties"
        | "maxProperties"
        | "dependentRequired"
        | "dependentSchemas"
        | "unevaluatedProperties" => Types::OBJECT,
        "items" | "prefixItems" | "minItems" | "maxItems" | "uniqueItems" | "contains" | "minContains"
        | "maxContains" | "unevaluatedItems" => Types::ARRAY,
        "minLength" | "maxLength" | "pattern" | "contentEncoding" | "contentMediaType" | "contentSchema" => {
            Types::STRING
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Types::NUMBER,
        _ => return true,
    };
    !types.common(about).is_empty()
}
