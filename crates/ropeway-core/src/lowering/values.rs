//! Type and value keywords.

use std::borrow::Cow;

use serde_json::Value;

use super::change::ChangeKind;
use super::cow_value::{CowObject, CowValue};
use super::keywords::{MAX_ENUM, SchemaBuilder, applies};
use super::node::{Node, is_annotation};
use super::simple_keywords::is_deep;
use super::target::SchemaTarget;
use super::types::Types;
use super::walker::{LoweredSchema, Walker};

impl<'d> Walker<'d> {
    pub(super) fn type_keyword(
        &mut self,
        value: &Cow<'d, Value>,
        types: Option<Types>,
        builder: &mut SchemaBuilder<'d>,
    ) {
        match types {
            Some(types) if Types::is_proper(value) && Types::read(value) == types => {
                builder.out.set("type", CowValue::Value(value.clone()));
            }
            Some(types) => {
                let types = types.to_value();
                self.report("type", ChangeKind::Rewritten(types.to_string()));
                builder.set("type", types);
            }
            None => self.describe("type", value, builder),
        }
    }

    pub(super) fn enumeration(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        types: Option<Types>,
        builder: &mut SchemaBuilder<'d>,
    ) {
        let Value::Array(values) = &**value else { return self.describe("enum", value, builder) };
        if values.len() > MAX_ENUM || is_deep(value) {
            self.report("enum", ChangeKind::Described);
            self.loosened += 1;
            let some: Vec<&Value> = values.iter().take(20).collect();
            return builder.notes.json(&format!("one of {} values, such as", values.len()), &some);
        }
        let mut kept: Vec<&Value> = Vec::with_capacity(values.len());
        for value in values {
            if types.is_none_or(|types| types.has(Types::of(value))) && !kept.contains(&value) {
                kept.push(value);
            }
        }
        if kept.is_empty() {
            self.loosened += 1;
            return self.report("enum", ChangeKind::Dropped);
        }
        let is_taken = match self.target {
            SchemaTarget::Anthropic | SchemaTarget::OpenAi | SchemaTarget::StrictOpenAi => true,
            SchemaTarget::StrictAnthropic => !kept.iter().any(|value| value.is_object() || value.is_array()),
            // `const` is equivalent or stricter.
            SchemaTarget::Gemini if node.has("const") => return self.report("enum", ChangeKind::Dropped),
            SchemaTarget::Gemini => {
                let mut others = kept.iter().filter(|value| !value.is_null()).peekable();
                let has_others = others.peek().is_some();
                has_others && (others.clone().all(|value| value.is_string()) || others.all(|value| value.is_number()))
            }
        };
        if !is_taken {
            return self.describe("enum", value, builder);
        }
        self.stats.enum_values += kept.len();
        let characters: usize = kept.iter().filter_map(|value| value.as_str()).map(str::len).sum();
        self.stats.characters += characters;
        self.spend_text(characters);
        self.spend(kept.len() / 8);
        if kept.len() < values.len() {
            self.report("enum", ChangeKind::Rewritten("the values of the declared type".to_owned()));
            builder.set("enum", kept.into_iter().cloned().collect::<Value>());
        } else {
            builder.out.set("enum", CowValue::Value(value.clone()));
        }
    }

    pub(super) fn constant(&mut self, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) {
        match self.target {
            _ if is_deep(value) => self.describe("const", value, builder),
            SchemaTarget::Gemini if value.is_string() || value.is_number() => {
                self.report("const", ChangeKind::Rewritten("enum".to_owned()));
                builder.set("enum", Value::Array(vec![Value::clone(value)]));
            }
            SchemaTarget::Gemini => self.describe("const", value, builder),
            SchemaTarget::StrictAnthropic if value.is_object() || value.is_array() => {
                self.describe("const", value, builder)
            }
            _ => {
                self.stats.characters += value.as_str().map_or(0, str::len);
                builder.out.set("const", CowValue::Value(value.clone()));
            }
        }
    }

    /// Splits several types into alternatives if the target requires that.
    pub(super) fn split(&mut self, mut builder: SchemaBuilder<'d>, types: Option<Types>) -> LoweredSchema<'d> {
        let Some(types) = types else { return builder.done() };
        let parts: Vec<Types> = match self.target {
            SchemaTarget::Gemini if has_null(&builder.out) => vec![types.without(Types::NULL), Types::NULL],
            SchemaTarget::StrictAnthropic if builder.out.has("const") => {
                builder.out.remove("type");
                return builder.done();
            }
            SchemaTarget::StrictAnthropic if !types.is_one() => types.each().collect(),
            _ => return builder.done(),
        };
        self.report("type", ChangeKind::Rewritten("anyOf".to_owned()));
        let (whole, rest) = builder.out.partition(is_annotation);
        builder.out = whole;
        let parts = parts.into_iter().map(|types| CowValue::Object(of_types(&rest, types))).collect();
        builder.set("anyOf", CowValue::List(parts));
        builder.done()
    }
}

fn has_null(schema: &CowObject<'_>) -> bool {
    schema.value("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null))
}

/// Returns the part of a schema that applies to these types.
fn of_types<'d>(schema: &CowObject<'d>, types: Types) -> CowObject<'d> {
    let mut part = CowObject::default();
    for (keyword, value) in schema.iter() {
        let value = match (keyword, value.value()) {
            ("type", _) => types.to_value().into(),
            ("enum", Some(Value::Array(values))) => {
                let fit: Vec<Value> = values.iter().filter(|value| types.has(Types::of(value))).cloned().collect();
                if fit.is_empty() || types == Types::NULL {
                    continue;
                }
                Value::Array(fit).into()
            }
            (keyword, _) if !applies(keyword, types) => continue,
            _ => value.clone(),
        };
        part.push(keyword.to_owned(), value);
    }
    part
}
