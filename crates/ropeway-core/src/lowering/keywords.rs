//! Lowering one node, keyword by keyword.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::argument_mapping::ArgumentMapping;
use super::change::ChangeKind;
use super::cow_value::{CowObject, CowValue};
use super::node::Node;
use super::note::Notes;
use super::target::SchemaTarget;
use super::types::Types;
use super::walker::{LowerResult, LoweredSchema, Walker};

/// Maximum number of `enum` values that OpenAI accepts.
pub(super) const MAX_ENUM: usize = 1_000;

/// The lowered schema under construction.
#[derive(Default)]
pub(super) struct SchemaBuilder<'d> {
    pub(super) out: CowObject<'d>,
    pub(super) notes: Notes,
    pub(super) mapping: ArgumentMapping,
}

impl<'d> SchemaBuilder<'d> {
    /// Copies a keyword unchanged.
    pub(super) fn keep(&mut self, keyword: &Cow<'d, str>, value: &Cow<'d, Value>) {
        self.out.set(keyword.clone(), CowValue::Value(value.clone()));
    }

    pub(super) fn set(&mut self, keyword: &'static str, value: impl Into<CowValue<'d>>) {
        self.out.set(keyword, value);
    }

    pub(super) fn done(self) -> LoweredSchema<'d> {
        LoweredSchema { schema: self.out, notes: self.notes, mapping: self.mapping.into_option() }
    }
}

impl<'d> Walker<'d> {
    /// Lowers a node. Returns `None` if no value is allowed.
    pub(super) fn keywords(&mut self, node: &Node<'d>, notes: Notes) -> LowerResult<Option<LoweredSchema<'d>>> {
        self.spend(1);
        let mut builder =
            SchemaBuilder { out: CowObject::with_capacity(node.len() + 1), notes, mapping: ArgumentMapping::default() };
        let types = self.types(node);
        if self.target.is_strict() && !self.checks_only {
            self.check_strict(node, types)?;
        }
        if let Some(types) = types.filter(|_| !node.has("type")) {
            self.report("type", ChangeKind::Added);
            builder.set("type", types.to_value());
        }
        if !self.lower_each(node, types, &mut builder)? {
            return Ok(None);
        }
        let says_something = || ["type", "anyOf", "const", "enum"].iter().any(|keyword| builder.out.has(keyword));
        if self.target.is_strict() && !self.checks_only && !says_something() {
            return Err(self.not_strict("takes anything"));
        }
        self.add_required_keywords(node, types, &mut builder)?;
        Ok(Some(self.split(builder, types)))
    }

    /// Lowers each keyword. Returns `false` if no value is allowed.
    pub(super) fn lower_each(
        &mut self,
        node: &Node<'d>,
        types: Option<Types>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult<bool> {
        for (keyword, value) in node.iter() {
            if !self.target.is_lenient() && types.is_some_and(|types| !applies(keyword, types)) {
                self.report(keyword, ChangeKind::Dropped);
                continue;
            }
            match &**keyword {
                "type" => self.type_keyword(value, types, builder),
                "description" => match value.as_str() {
                    Some(text) => {
                        self.spend_text(text.len());
                        builder.keep(keyword, value);
                    }
                    None => self.report(keyword, ChangeKind::Dropped),
                },
                "enum" => self.enumeration(node, value, types, builder),
                "const" => self.constant(value, builder),
                "properties" => self.properties(node, value, builder)?,
                "required" => self.required(node, value, builder),
                "additionalProperties" => self.additional_properties(node, value, builder)?,
                "patternProperties" => self.pattern_properties(node, value, builder)?,
                "dependentRequired" => self.dependent_required(value, builder),
                "dependentSchemas" => self.dependent_schemas(value, builder)?,
                "propertyNames" => self.property_names(value, builder)?,
                "items" => self.items(value, builder)?,
                "prefixItems" => self.prefix_items(value, builder)?,
                "contains" => self.contains(node, value, builder)?,
                // Handled with `contains` and `if`.
                "minContains" | "maxContains" | "then" | "else" => {}
                // Handled at the end, because they depend on all others.
                "unevaluatedItems" | "unevaluatedProperties" => {}
                "anyOf" | "oneOf" | "allOf" => {
                    if !self.branches(node, keyword, value, builder)? {
                        return Ok(false);
                    }
                }
                "not" => self.negation(value, builder)?,
                "if" => self.condition(node, value, builder)?,
                "contentSchema" => self.content_schema(value, builder)?,
                _ => self.plain(keyword, value, builder),
            }
        }
        Ok(true)
    }

    /// Returns a node's types, declared or derived from its other keywords.
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
            // If no value has the declared type, the values take precedence.
            let fits = values.is_empty() || values.iter().any(|value| types.has(Types::of(value)));
            self.loosened += usize::from(!fits);
            return if fits { Some(types) } else { of_values() };
        }
        if self.checks_only {
            return None;
        }
        if !values.is_empty() {
            return of_values().filter(|_| !self.target.is_lenient());
        }
        if node.has("properties") {
            return Some(Types::OBJECT);
        }
        if node.has("items") || node.has("prefixItems") {
            return Some(Types::ARRAY);
        }
        let is_list = |keyword| node.get(keyword).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let is_open = !["anyOf", "oneOf", "allOf"].into_iter().any(is_list);
        // Some schema compilers accept `{}`, but no other schema without a type.
        (is_open && !node.is_empty() && !self.target.is_strict()).then_some(Types::ALL)
    }

    /// Adds keywords that the target requires.
    fn add_required_keywords(
        &mut self,
        node: &Node<'d>,
        types: Option<Types>,
        builder: &mut SchemaBuilder<'d>,
    ) -> LowerResult {
        let has = |types: Option<Types>, one: Types| types.is_some_and(|types| types.has(one));
        if self.target.wants_items() && has(types, Types::ARRAY) && !builder.out.has("items") {
            self.report("items", ChangeKind::Added);
            builder.set("items", CowObject::default());
        }
        let wants_properties = self.target.wants_properties() && types == Some(Types::OBJECT);
        if (self.is_root() || wants_properties) && !builder.out.has("properties") {
            self.report("properties", ChangeKind::Added);
            builder.set("properties", CowObject::default());
            // Some servers treat objects as closed by default.
            if !self.is_root() && self.target == SchemaTarget::OpenAi && !builder.out.has("additionalProperties") {
                builder.set("additionalProperties", Value::Bool(true));
            }
        }
        self.unevaluated(node, builder)?;
        if !self.target.is_lenient() {
            drop_undeclared_required(&mut builder.out);
        }
        if self.target.is_strict() && !self.checks_only && has(types, Types::OBJECT) {
            self.close(builder);
        }
        Ok(())
    }
}

/// Removes undeclared properties from `required`.
fn drop_undeclared_required(schema: &mut CowObject<'_>) {
    let Some(names) = schema.value("required").and_then(Value::as_array) else { return };
    let properties = schema.get("properties").and_then(CowValue::object);
    let known: HashSet<&str> = properties.into_iter().flat_map(CowObject::keys).collect();
    let is_declared = |name: &&Value| name.as_str().is_some_and(|name| known.contains(name));
    let declared: Vec<Value> = names.iter().filter(is_declared).cloned().collect();
    if declared.len() < names.len() {
        schema.set("required", Value::Array(declared));
    }
}

/// Returns `true` if a keyword applies to values with these types.
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
