//! Keywords without subschemas.

use std::borrow::Cow;

use serde_json::Value;

use super::change::ChangeKind;
use super::cow_value::CowValue;
use super::keywords::SchemaBuilder;
use super::node::is_annotation;
use super::target::KeywordAction;
use super::walker::Walker;

/// Maximum depth of values in a schema, such as examples.
const MAX_DEPTH: usize = 16;

/// A keyword value's type.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    Text,
    Flag,
    Number,
    Positive,
    Count,
    List,
    Anything,
}

impl<'d> Walker<'d> {
    /// Lowers a keyword without subschemas.
    pub(super) fn plain(&mut self, keyword: &Cow<'d, str>, value: &Cow<'d, Value>, builder: &mut SchemaBuilder<'d>) {
        let Some(kind) = ValueKind::of(keyword) else {
            // An unknown keyword.
            return match &**keyword {
                "example" => self.describe(keyword, value, builder),
                _ => self.report(keyword, ChangeKind::Dropped),
            };
        };
        let value = kind.corrected(value);
        let action = match (&**keyword, &*value) {
            _ if !kind.is(&value) || is_deep(&value) => KeywordAction::Describe,
            ("pattern", Value::String(pattern)) if self.target.takes_pattern(pattern) => KeywordAction::Keep,
            ("format", Value::String(format)) if self.target.takes_format(format) => KeywordAction::Keep,
            ("pattern" | "format", _) => KeywordAction::Describe,
            (keyword, value) if self.target.takes_count(keyword, value) => KeywordAction::Keep,
            (keyword, _) => self.target.action(keyword),
        };
        match action {
            KeywordAction::Keep => {
                self.spend_text(value.as_str().map_or(0, str::len));
                builder.out.set(keyword.clone(), CowValue::Value(value));
            }
            KeywordAction::Describe if is_trivial(keyword, &value) => self.report(keyword, ChangeKind::Dropped),
            KeywordAction::Describe => self.describe(keyword, &value, builder),
            KeywordAction::Drop => self.report(keyword, ChangeKind::Dropped),
        }
    }

    /// Moves a keyword to the description.
    pub(super) fn describe(&mut self, keyword: &str, value: &Value, builder: &mut SchemaBuilder<'d>) {
        self.report_described(keyword);
        builder.notes.keyword(keyword, value);
    }

    /// Moves a keyword with a lowered schema to the description.
    pub(super) fn describe_lowered(&mut self, keyword: &str, value: &CowValue<'d>, builder: &mut SchemaBuilder<'d>) {
        self.report_described(keyword);
        builder.notes.json(keyword, value);
    }

    /// Sets a keyword with a lowered schema, or moves it to the description.
    pub(super) fn keep_or_describe(
        &mut self,
        keyword: &'static str,
        lowered: impl Into<CowValue<'d>>,
        keeps: bool,
        builder: &mut SchemaBuilder<'d>,
    ) {
        match lowered.into() {
            lowered if keeps => builder.set(keyword, lowered),
            lowered => self.describe_lowered(keyword, &lowered, builder),
        }
    }

    fn report_described(&mut self, keyword: &str) {
        self.report(keyword, ChangeKind::Described);
        let constrains = !is_annotation(keyword) && keyword != "format" && !keyword.starts_with("content");
        self.loosened += usize::from(constrains);
    }
}

impl ValueKind {
    pub(super) fn of(keyword: &str) -> Option<Self> {
        Some(match keyword {
            "title" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => Self::Text,
            "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => Self::Flag,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Self::Number,
            "multipleOf" => Self::Positive,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => Self::Count,
            "examples" => Self::List,
            "default" => Self::Anything,
            _ => return None,
        })
    }

    pub(super) fn is(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Positive => value.as_f64().is_some_and(|number| number > 0.0),
            Self::Count => value.is_u64(),
            Self::List => value.is_array(),
            Self::Anything => true,
        }
    }

    /// Corrects a value: some servers write counts as `2.0`.
    fn corrected<'d>(self, value: &Cow<'d, Value>) -> Cow<'d, Value> {
        match (self, value.as_f64()) {
            (Self::Count, Some(number)) if value.is_f64() && number.fract() == 0.0 && (0.0..1e15).contains(&number) => {
                Cow::Owned(Value::from(number as u64))
            }
            _ => value.clone(),
        }
    }
}

/// Returns `true` if the description need not mention the keyword.
fn is_trivial(keyword: &str, value: &Value) -> bool {
    match keyword {
        "default" => value.is_null(),
        "examples" => value.as_array().is_some_and(Vec::is_empty),
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => value == false,
        "minLength" | "minItems" | "minProperties" => value == 0,
        _ => false,
    }
}

/// Returns `true` if a value is nested more deeply than a schema may contain.
pub(super) fn is_deep(value: &Value) -> bool {
    fn reaches(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(items) => depth == 0 || items.iter().any(|item| reaches(item, depth - 1)),
            Value::Object(map) => depth == 0 || map.values().any(|value| reaches(value, depth - 1)),
            _ => false,
        }
    }
    reaches(value, MAX_DEPTH)
}
