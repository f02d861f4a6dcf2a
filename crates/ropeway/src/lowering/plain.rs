//! The keywords that have no schema inside.

use std::borrow::Cow;

use serde_json::Value;

use super::ChangeKind;
use super::form::Fate;
use super::keywords::Making;
use super::node::is_annotation;
use super::walker::Walker;
use super::written::Written;

/// How deep the values that a schema gives as examples may nest.
const MAX_DEPTH: usize = 16;

/// What a keyword must be.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Flag,
    Number,
    Positive,
    Count,
    List,
    Anything,
}

impl<'d> Walker<'d> {
    /// Deals with a keyword that has no schema inside.
    pub(super) fn plain(&mut self, keyword: &Cow<'d, str>, value: &Cow<'d, Value>, making: &mut Making<'d>) {
        let Some(kind) = Kind::of(keyword) else {
            // Nobody knows what it means.
            return match &**keyword {
                "example" => self.describe(keyword, value, making),
                _ => self.report(keyword, ChangeKind::Dropped),
            };
        };
        let value = kind.corrected(value);
        let fate = match (&**keyword, &*value) {
            _ if !kind.is(&value) || is_deep(&value) => Fate::Describe,
            ("pattern", Value::String(pattern)) if self.form.takes_pattern(pattern) => Fate::Keep,
            ("format", Value::String(format)) if self.form.takes_format(format) => Fate::Keep,
            ("pattern" | "format", _) => Fate::Describe,
            (keyword, value) if self.form.takes_count(keyword, value) => Fate::Keep,
            (keyword, _) => self.form.fate(keyword),
        };
        match fate {
            Fate::Keep => {
                self.spend_text(value.as_str().map_or(0, str::len));
                making.out.set(keyword.clone(), Written::Value(value));
            }
            Fate::Describe if says_nothing(keyword, &value) => self.report(keyword, ChangeKind::Dropped),
            Fate::Describe => self.describe(keyword, &value, making),
            Fate::Drop => self.report(keyword, ChangeKind::Dropped),
        }
    }

    /// Puts a keyword into words.
    pub(super) fn describe(&mut self, keyword: &str, value: &Value, making: &mut Making<'d>) {
        self.report_described(keyword);
        making.notes.keyword(keyword, value);
    }

    /// Puts a keyword into words whose schema is in the making.
    pub(super) fn describe_written(&mut self, keyword: &str, value: &Written<'d>, making: &mut Making<'d>) {
        self.report_described(keyword);
        making.notes.json(keyword, value);
    }

    fn report_described(&mut self, keyword: &str) {
        self.report(keyword, ChangeKind::Described);
        let constrains = !is_annotation(keyword) && keyword != "format" && !keyword.starts_with("content");
        self.loosened += usize::from(constrains);
    }
}

impl Kind {
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

    /// The value as it ought to be written: some write counts as `2.0`.
    fn corrected<'d>(self, value: &Cow<'d, Value>) -> Cow<'d, Value> {
        match (self, value.as_f64()) {
            (Self::Count, Some(number)) if value.is_f64() && number.fract() == 0.0 && (0.0..1e15).contains(&number) => {
                Cow::Owned(Value::from(number as u64))
            }
            _ => value.clone(),
        }
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

/// Does a value nest deeper than it may inside a schema?
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
