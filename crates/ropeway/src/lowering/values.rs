//! The keywords that name types and values.

use std::borrow::Cow;

use serde_json::Value;

use super::ChangeKind;
use super::form::Form;
use super::keywords::{MAX_ENUM, Making, applies};
use super::node::{Node, is_annotation};
use super::plain::is_deep;
use super::types::Types;
use super::walker::{Done, Walker};
use super::written::{Object, Written};

impl<'d> Walker<'d> {
    pub(super) fn type_keyword(&mut self, value: &Cow<'d, Value>, types: Option<Types>, making: &mut Making<'d>) {
        match types {
            Some(types) if Types::is_proper(value) && Types::read(value) == types => {
                making.out.set("type", Written::Value(value.clone()));
            }
            Some(types) => {
                let types = types.to_value();
                self.report("type", ChangeKind::Rewritten(types.to_string()));
                making.set("type", types);
            }
            None => self.describe("type", value, making),
        }
    }

    pub(super) fn enumeration(
        &mut self,
        node: &Node<'d>,
        value: &Cow<'d, Value>,
        types: Option<Types>,
        making: &mut Making<'d>,
    ) {
        let Value::Array(values) = &**value else { return self.describe("enum", value, making) };
        if values.len() > MAX_ENUM || is_deep(value) {
            self.report("enum", ChangeKind::Described);
            self.loosened += 1;
            let some: Vec<&Value> = values.iter().take(20).collect();
            return making.notes.json(&format!("one of {} values, such as", values.len()), &some);
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
        let is_taken = match self.form {
            Form::Anthropic | Form::OpenAi | Form::StrictOpenAi => true,
            Form::StrictAnthropic => !kept.iter().any(|value| value.is_object() || value.is_array()),
            // The constant says the same, and more.
            Form::Gemini if node.has("const") => return self.report("enum", ChangeKind::Dropped),
            Form::Gemini => {
                let mut others = kept.iter().filter(|value| !value.is_null()).peekable();
                let has_others = others.peek().is_some();
                has_others && (others.clone().all(|value| value.is_string()) || others.all(|value| value.is_number()))
            }
        };
        if !is_taken {
            return self.describe("enum", value, making);
        }
        self.tally.enum_values += kept.len();
        let characters: usize = kept.iter().filter_map(|value| value.as_str()).map(str::len).sum();
        self.tally.characters += characters;
        self.spend_text(characters);
        self.spend(kept.len() / 8);
        if kept.len() < values.len() {
            self.report("enum", ChangeKind::Rewritten("the values that fit".to_owned()));
            making.set("enum", kept.into_iter().cloned().collect::<Value>());
        } else {
            making.out.set("enum", Written::Value(value.clone()));
        }
    }

    pub(super) fn constant(&mut self, value: &Cow<'d, Value>, making: &mut Making<'d>) {
        match self.form {
            _ if is_deep(value) => self.describe("const", value, making),
            Form::Gemini if value.is_string() || value.is_number() => {
                self.report("const", ChangeKind::Rewritten("enum".to_owned()));
                making.set("enum", Value::Array(vec![Value::clone(value)]));
            }
            Form::Gemini => self.describe("const", value, making),
            Form::StrictAnthropic if value.is_object() || value.is_array() => self.describe("const", value, making),
            _ => {
                self.tally.characters += value.as_str().map_or(0, str::len);
                making.out.set("const", Written::Value(value.clone()));
            }
        }
    }

    /// Writes alternatives instead of several types where the form wants that.
    pub(super) fn split(&mut self, mut making: Making<'d>, types: Option<Types>) -> Done<'d> {
        let Some(types) = types else { return making.done() };
        let parts: Vec<Types> = match self.form {
            Form::Gemini if has_null(&making.out) => vec![types.without(Types::NULL), Types::NULL],
            Form::StrictAnthropic if making.out.has("const") => {
                making.out.remove("type");
                return making.done();
            }
            Form::StrictAnthropic if !types.is_one() => types.each().collect(),
            _ => return making.done(),
        };
        self.report("type", ChangeKind::Rewritten("anyOf".to_owned()));
        let (whole, rest) = making.out.partition(is_annotation);
        making.out = whole;
        let parts = parts.into_iter().map(|types| Written::Object(of_types(&rest, types))).collect();
        making.set("anyOf", Written::List(parts));
        making.done()
    }
}

fn has_null(schema: &Object<'_>) -> bool {
    schema.value("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null))
}

/// What a schema says of values of these types.
fn of_types<'d>(schema: &Object<'d>, types: Types) -> Object<'d> {
    let mut part = Object::default();
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
