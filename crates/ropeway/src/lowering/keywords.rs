//! Keywords: what becomes of each of them.

use serde_json::{Map, Value, json};

use super::How;
use super::arguments::Shape;
use super::form::{Fate, Form};
use super::node::{Node, is_annotation};
use super::note::Notes;
use super::types::Types;
use super::walker::{Done, Failure, Walker};

/// How many values a list of values may have. OpenAI takes no more.
const MAX_ENUM: usize = 1_000;

/// How deep the values that a schema gives as examples may nest.
const MAX_VALUE_DEPTH: usize = 16;

/// A schema in the making.
#[derive(Default)]
pub(super) struct Making {
    pub(super) out: Map<String, Value>,
    pub(super) notes: Notes,
    pub(super) shape: Shape,
}

impl Making {
    pub(super) fn keep(&mut self, keyword: &str, value: Value) {
        self.out.insert(keyword.to_owned(), value);
    }

    pub(super) fn done(self) -> Done {
        Done { schema: self.out, notes: self.notes, shape: self.shape.some() }
    }
}

impl<'d> Walker<'d> {
    /// Lowers a node; `None` where it allows nothing.
    pub(super) fn keywords<'s>(&mut self, node: &'s Node<'s>, notes: Notes) -> Result<Option<Done>, Failure>
    where
        'd: 's,
    {
        self.spend(1);
        let mut making = Making { notes, ..Making::default() };
        let types = self.types(node);
        if self.form.is_strict() {
            self.check_strict(node, types)?;
        }
        if let Some(types) = types.filter(|_| !node.has("type")) {
            self.report("type", How::Added);
            making.keep("type", types.to_value());
        }
        if !self.each(node, types, &mut making)? {
            return Ok(None);
        }
        self.complete(node, types, &mut making)?;
        Ok(Some(self.split(making, types)))
    }

    /// Deals with each keyword; false where nothing is allowed.
    pub(super) fn each<'s>(
        &mut self,
        node: &'s Node<'s>,
        types: Option<Types>,
        making: &mut Making,
    ) -> Result<bool, Failure>
    where
        'd: 's,
    {
        for (keyword, value) in node.iter() {
            if !self.form.is_lenient() && types.is_some_and(|types| !applies(keyword, types)) {
                self.report(keyword, How::Dropped);
                continue;
            }
            match keyword {
                "type" => self.type_keyword(value, types, making),
                "description" => match value.as_str() {
                    Some(text) => {
                        self.spend_text(text.len());
                        making.keep(keyword, Value::from(text));
                    }
                    None => self.report(keyword, How::Dropped),
                },
                "enum" => self.enumeration(node, value, types, making),
                "const" => self.constant(value, making),
                "properties" => self.properties(node, value, making)?,
                "required" => self.required(node, value, making),
                "additionalProperties" => self.additional_properties(node, value, making)?,
                "patternProperties" => self.pattern_properties(node, value, making)?,
                "dependentRequired" => self.dependent_required(value, making),
                "dependentSchemas" => self.dependent_schemas(value, making)?,
                "propertyNames" => self.property_names(node, value, making)?,
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
    fn types(&mut self, node: &Node<'_>) -> Option<Types> {
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
            return if fits { Some(types) } else { of_values() };
        }
        if self.measures {
            return None;
        }
        if node.has("properties") {
            return Some(Types::OBJECT);
        }
        if node.has("items") || node.has("prefixItems") {
            return Some(Types::ARRAY);
        }
        if !values.is_empty() {
            return of_values().filter(|_| !self.form.is_lenient());
        }
        let is_open = !["anyOf", "oneOf", "allOf"].into_iter().any(|keyword| node.has(keyword));
        // Some that compile schemas understand `{}`, but nothing else that has no type.
        (is_open && !node.is_empty() && !self.form.is_strict()).then_some(Types::ALL)
    }

    fn type_keyword(&mut self, value: &Value, types: Option<Types>, making: &mut Making) {
        match types {
            Some(types) if Types::is_proper(value) && Types::read(value) == types => making.keep("type", value.clone()),
            Some(types) => {
                let types = types.to_value();
                self.report("type", How::Rewritten(types.to_string()));
                making.keep("type", types);
            }
            None => self.describe("type", value, making),
        }
    }

    fn enumeration(&mut self, node: &Node<'_>, value: &Value, types: Option<Types>, making: &mut Making) {
        let Value::Array(values) = value else { return self.describe("enum", value, making) };
        if values.is_empty() {
            return self.report("enum", How::Dropped);
        }
        if values.len() > MAX_ENUM || is_deep(value) {
            self.report("enum", How::Described);
            self.loosened += 1;
            let some: Vec<Value> = values.iter().take(20).cloned().collect();
            return making.notes.keyword(&format!("one of {} values, such as", values.len()), &Value::Array(some));
        }
        let mut kept: Vec<&Value> = Vec::with_capacity(values.len());
        for value in values {
            if types.is_none_or(|types| types.has(Types::of(value))) && !kept.contains(&value) {
                kept.push(value);
            }
        }
        if kept.len() < values.len() {
            self.report("enum", How::Rewritten("the values that fit".to_owned()));
        }
        let is_taken = match self.form {
            Form::Anthropic | Form::OpenAi | Form::StrictOpenAi => true,
            Form::StrictAnthropic => !kept.iter().any(|value| value.is_object() || value.is_array()),
            // The constant says the same, and more.
            Form::Gemini if node.has("const") => return self.report("enum", How::Dropped),
            Form::Gemini => {
                let mut others = kept.iter().filter(|value| !value.is_null()).peekable();
                others.peek().is_some()
                    && (others.clone().all(|value| value.is_string()) || others.all(|value| value.is_number()))
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
        making.keep("enum", kept.into_iter().cloned().collect());
    }

    fn constant(&mut self, value: &Value, making: &mut Making) {
        if is_deep(value) {
            return self.describe("const", value, making);
        }
        match self.form {
            Form::Gemini if value.is_string() || value.is_number() => {
                self.report("const", How::Rewritten("enum".to_owned()));
                making.keep("enum", Value::Array(vec![value.clone()]));
            }
            Form::Gemini => self.describe("const", value, making),
            Form::StrictAnthropic if value.is_object() || value.is_array() => self.describe("const", value, making),
            _ => {
                self.tally.characters += value.as_str().map_or(0, str::len);
                making.keep("const", value.clone());
            }
        }
    }

    /// A keyword without schemas inside.
    fn plain(&mut self, keyword: &str, value: &Value, making: &mut Making) {
        let value = match shape_of(keyword) {
            Some(shape) => shape.read(value),
            // Nobody knows what it means.
            None => {
                return if keyword == "example" {
                    self.describe("example", value, making);
                } else {
                    self.report(keyword, How::Dropped);
                };
            }
        };
        let (value, fate) = match value {
            Ok(value) => {
                let fate = match (keyword, value.as_str(), value.as_u64()) {
                    ("pattern", Some(pattern), _) if !self.form.takes_pattern(pattern) => Fate::Describe,
                    ("pattern", ..) => Fate::Keep,
                    ("format", Some(format), _) if self.form.takes_format(format) => Fate::Keep,
                    ("format", ..) => Fate::Describe,
                    (_, _, Some(count)) if self.form.takes_count(keyword, count) => Fate::Keep,
                    _ if is_deep(&value) => Fate::Describe,
                    _ => self.form.fate(keyword),
                };
                (value, fate)
            }
            Err(value) => (value, Fate::Describe),
        };
        match fate {
            Fate::Keep => {
                self.spend_text(value.as_str().map_or(0, str::len));
                making.keep(keyword, value.into_owned());
            }
            Fate::Describe if says_nothing(keyword, &value) => self.report(keyword, How::Dropped),
            Fate::Describe => self.describe(keyword, &value, making),
            Fate::Drop => self.report(keyword, How::Dropped),
        }
    }

    /// Puts a keyword into words.
    pub(super) fn describe(&mut self, keyword: &str, value: &Value, making: &mut Making) {
        self.report(keyword, How::Described);
        self.loosened += usize::from(!is_annotation(keyword) && keyword != "format" && !keyword.starts_with("content"));
        making.notes.keyword(keyword, value);
    }

    /// Adds what the form wants to be there.
    fn complete<'s>(&mut self, node: &'s Node<'s>, types: Option<Types>, making: &mut Making) -> Result<(), Failure>
    where
        'd: 's,
    {
        let has = |types: Option<Types>, one: Types| types.is_some_and(|types| types.has(one));
        if !self.measures {
            if self.form.wants_items() && has(types, Types::ARRAY) && !making.out.contains_key("items") {
                self.report("items", How::Added);
                making.keep("items", json!({}));
            }
            let is_object = types == Some(Types::OBJECT);
            if (self.is_root() || (self.form.wants_properties() && is_object)) && !making.out.contains_key("properties")
            {
                self.report("properties", How::Added);
                making.keep("properties", json!({}));
                // Some take a list of properties for all there are.
                if !self.is_root() && self.form == Form::OpenAi && !making.out.contains_key("additionalProperties") {
                    making.keep("additionalProperties", Value::Bool(true));
                }
            }
        }
        if !self.form.is_lenient()
            && let Some(Value::Array(mut required)) = making.out.get_mut("required").map(Value::take)
        {
            // One that may not be there is not declared any more.
            required.retain(|name| {
                let declared = making.out.get("properties").and_then(Value::as_object);
                name.as_str().is_some_and(|name| declared.is_some_and(|declared| declared.contains_key(name)))
            });
            making.keep("required", Value::Array(required));
        }
        self.unevaluated(node, making)?;
        if self.form.is_strict() && has(types, Types::OBJECT) {
            self.close(making);
        }
        Ok(())
    }

    /// Writes alternatives instead of several types where the form wants that.
    fn split(&mut self, making: Making, types: Option<Types>) -> Done {
        let Some(types) = types else { return making.done() };
        let has_null_among_values =
            || making.out.get("enum").and_then(Value::as_array).is_some_and(|values| values.contains(&Value::Null));
        let parts: Vec<Types> = match self.form {
            Form::Gemini if has_null_among_values() => vec![types.without(Types::NULL), Types::NULL],
            Form::StrictAnthropic if !types.is_one() && !making.out.contains_key("const") => types.each().collect(),
            Form::StrictAnthropic if making.out.contains_key("const") => {
                let mut making = making;
                making.out.shift_remove("type");
                return making.done();
            }
            _ => return making.done(),
        };
        self.report("type", How::Rewritten("anyOf".to_owned()));
        let Making { out, notes, shape } = making;
        let (mut whole, rest): (Map<String, Value>, Map<String, Value>) =
            out.into_iter().partition(|(keyword, _)| is_annotation(keyword));
        let part = |types: Types| {
            let entries = rest.iter().filter_map(|(keyword, value)| {
                let value = match (keyword.as_str(), value) {
                    ("type", _) => types.to_value(),
                    ("enum", _) if types == Types::NULL => return None,
                    ("enum", Value::Array(values)) => {
                        let fit: Vec<Value> =
                            values.iter().filter(|value| types.has(Types::of(value))).cloned().collect();
                        if fit.is_empty() {
                            return None;
                        }
                        Value::Array(fit)
                    }
                    (keyword, _) if !applies(keyword, types) => return None,
                    (_, value) => value.clone(),
                };
                Some((keyword.clone(), value))
            });
            entries.collect::<Map<String, Value>>()
        };
        let parts: Vec<Value> = parts.into_iter().map(|types| Value::Object(part(types))).collect();
        whole.insert("anyOf".to_owned(), Value::Array(parts));
        Done { schema: whole, notes, shape: shape.some() }
    }
}

/// Does a keyword say anything about values of these types?
fn applies(keyword: &str, types: Types) -> bool {
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

/// What a keyword without schemas inside must be.
#[derive(Clone, Copy)]
enum Plain {
    Text,
    Flag,
    Number,
    Positive,
    Count,
    List,
    Anything,
}

fn shape_of(keyword: &str) -> Option<Plain> {
    Some(match keyword {
        "title" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => Plain::Text,
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => Plain::Flag,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Plain::Number,
        "multipleOf" => Plain::Positive,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => Plain::Count,
        "examples" => Plain::List,
        "default" => Plain::Anything,
        _ => return None,
    })
}

impl Plain {
    /// The value, as it ought to be; the wrong one where it cannot be that.
    fn read(self, value: &Value) -> Result<std::borrow::Cow<'_, Value>, std::borrow::Cow<'_, Value>> {
        use std::borrow::Cow::{Borrowed, Owned};
        let is_right = match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Positive => value.as_f64().is_some_and(|number| number > 0.0),
            Self::Count => match value.as_f64() {
                Some(number) if value.is_f64() && number.fract() == 0.0 && (0.0..1e15).contains(&number) => {
                    return Ok(Owned(Value::from(number as u64)));
                }
                _ => value.is_u64(),
            },
            Self::List => value.is_array(),
            Self::Anything => true,
        };
        if is_right { Ok(Borrowed(value)) } else { Err(Borrowed(value)) }
    }
}

/// Is there nothing to tell about what a keyword says?
fn says_nothing(keyword: &str, value: &Value) -> bool {
    match keyword {
        "default" => value.is_null(),
        "examples" => value.as_array().is_some_and(Vec::is_empty),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => value == false,
        "minLength" | "minItems" | "minProperties" => value == 0,
        _ => false,
    }
}

/// Does a value nest deeper than a schema may with it inside?
fn is_deep(value: &Value) -> bool {
    fn reaches(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(items) => depth == 0 || items.iter().any(|item| reaches(item, depth - 1)),
            Value::Object(map) => depth == 0 || map.values().any(|value| reaches(value, depth - 1)),
            _ => false,
        }
    }
    reaches(value, MAX_VALUE_DEPTH)
}
