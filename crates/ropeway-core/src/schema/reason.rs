//! Messages that explain how a value violates its schema.

use std::borrow::Cow;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::tool::ArgumentProblem;

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 8;

/// Maximum reason length in characters.
const MAX_REASON: usize = 300;

/// Maximum path length in characters.
const MAX_PATH: usize = 300;

/// Maximum length of a quoted value or name in characters.
const MAX_QUOTE: usize = 60;

/// Maximum number of names or values in a list.
const MAX_LIST: usize = 12;

/// Returns the first problems, without duplicates.
pub(super) fn problems<'a>(errors: impl Iterator<Item = ValidationError<'a>>) -> Vec<ArgumentProblem> {
    let mut problems = Vec::new();
    for error in errors {
        add(&mut problems, &error);
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
    }
    problems
}

/// Explains why a schema does not compile.
pub(super) fn explain_schema_error(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Referencing(jsonschema::ReferencingError::Unretrievable { uri, .. }) => {
            format!("`{}` is a remote reference, which is not fetched", truncated(uri, MAX_QUOTE * 2))
        }
        Kind::Referencing(error) => truncated(&error.to_string(), MAX_REASON).into_owned(),
        _ => {
            let at = error.instance_path().as_str();
            let reason = reason(error);
            match at {
                "" => reason,
                at => format!("at `{}`: {reason}", truncated(at, MAX_PATH)),
            }
        }
    }
}

/// Truncates a text to `limit` characters.
pub(super) fn truncated(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// Returns a value's type with its article.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns a type's name with its article.
pub(super) fn with_article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}

/// Quotes a value, truncated.
pub(super) fn quoted(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => type_of(value).to_owned(),
        Value::String(text) => format!("`{}`", Value::from(&*truncated(text, MAX_QUOTE))),
        scalar => format!("`{scalar}`"),
    }
}

/// Joins names or values, as in "`a`, `b` and 3 more".
pub(super) fn listed(mut items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    let shown: Vec<String> = items.by_ref().take(MAX_LIST).collect();
    match count - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Creates a problem with truncated texts.
pub(super) fn problem(path: &str, reason: &str) -> ArgumentProblem {
    ArgumentProblem { path: truncated(path, MAX_PATH).into_owned(), reason: truncated(reason, MAX_REASON).into_owned() }
}

/// Adds an error, in terms of the alternative that was probably meant.
fn add(problems: &mut Vec<ArgumentProblem>, error: &ValidationError<'_>) {
    if problems.len() >= MAX_PROBLEMS {
        return;
    }
    match error.kind() {
        // The match was aborted, so the result is unknown.
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {}
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => match likely_alternative(context, error) {
            Some(alternative) => alternative.iter().for_each(|error| add(problems, error)),
            None => push(problems, problem(error.instance_path().as_str(), &no_alternative(context, error))),
        },
        _ => push(problems, problem(error.instance_path().as_str(), &reason(error))),
    }
}

fn push(problems: &mut Vec<ArgumentProblem>, problem: ArgumentProblem) {
    if !problems.contains(&problem) {
        problems.push(problem);
    }
}

/// Returns the alternative that was probably meant: the only one that has the value's type and constants.
fn likely_alternative<'c>(
    context: &'c [Vec<ValidationError<'static>>],
    whole: &ValidationError<'_>,
) -> Option<&'c [ValidationError<'static>]> {
    let here = whole.instance_path().as_str();
    let mut candidates = context.iter().filter(|errors| {
        !errors.is_empty()
            && errors.iter().all(|error| match error.kind() {
                Kind::Type { .. } | Kind::FalseSchema => error.instance_path().as_str() != here,
                // A variant's tag is one level below.
                Kind::Constant { .. } => {
                    error.instance_path().as_str().matches('/').count() > here.matches('/').count() + 1
                }
                _ => true,
            })
    });
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Explains why no alternative matches.
fn no_alternative(context: &[Vec<ValidationError<'static>>], whole: &ValidationError<'_>) -> String {
    let here = whole.instance_path().as_str();
    let wanted: Option<Vec<String>> = context
        .iter()
        .map(|errors| {
            errors.iter().find_map(|error| match error.kind() {
                Kind::Type { kind } if error.instance_path().as_str() == here => Some(types(kind)),
                Kind::Constant { expected_value } if error.instance_path().as_str() == here => {
                    Some(quoted(expected_value))
                }
                _ => None,
            })
        })
        .collect();
    if let Some(mut wanted) = wanted {
        wanted.dedup();
        return format!("must be {}, not {}", wanted.join(" or "), type_of(whole.instance()));
    }
    let alternatives = context.iter().enumerate().filter_map(|(at, errors)| {
        // A wrong constant identifies the alternative.
        let constant = errors.iter().find(|error| matches!(error.kind(), Kind::Constant { .. }));
        let first = constant.or(errors.first())?;
        let below = first.instance_path().as_str().strip_prefix(here).unwrap_or_default();
        let place = if below.is_empty() { String::new() } else { format!("`{}` ", truncated(below, MAX_QUOTE)) };
        Some(format!("({}) {place}{}", at + 1, truncated(&reason(first), MAX_QUOTE * 2)))
    });
    let alternatives: Vec<String> = alternatives.take(MAX_LIST).collect();
    format!("matches none of {} alternatives: {}", context.len(), alternatives.join("; "))
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => with_article(kind.as_str()),
        TypeKind::Multiple(kinds) => {
            // Types are sorted by name; "or null" reads better at the end.
            let (null, rest): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| kind.as_str() == "null");
            rest.iter().chain(&null).map(|kind| with_article(kind.as_str())).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn names(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("`{}`", truncated(name, MAX_QUOTE))))
}

/// Explains one error.
fn reason(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind } => format!("must be {}, not {}", types(kind), type_of(error.instance())),
        Kind::Required { property } => match property.as_str() {
            Some(name) => format!("required property `{}` is missing", truncated(name, MAX_QUOTE)),
            None => "required property is missing".to_owned(),
        },
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("unknown property: {}; leave it out", names(unexpected))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => {
                format!("must be one of {}, not {}", listed(options.iter().map(quoted)), quoted(error.instance()))
            }
            None => "is not one of the allowed values".to_owned(),
        },
        Kind::Constant { expected_value } => {
            format!("must be {}, not {}", quoted(expected_value), quoted(error.instance()))
        }
        Kind::Minimum { limit } => format!("must be at least {limit}, not {}", quoted(error.instance())),
        Kind::Maximum { limit } => format!("must be at most {limit}, not {}", quoted(error.instance())),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}, not {}", quoted(error.instance())),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}, not {}", quoted(error.instance())),
        Kind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {multiple_of}, not {}", quoted(error.instance()))
        }
        Kind::MinLength { limit } => format!("must have at least {}", count(*limit, "character", "characters")),
        Kind::MaxLength { limit } => format!("must have at most {}", count(*limit, "character", "characters")),
        Kind::MinItems { limit } => format!("must have at least {}", count(*limit, "item", "items")),
        Kind::MaxItems { limit } => format!("must have at most {}", count(*limit, "item", "items")),
        Kind::AdditionalItems { limit } => format!("must have at most {}", count(*limit as u64, "item", "items")),
        Kind::UnevaluatedItems { .. } => "has more items than are allowed".to_owned(),
        Kind::MinProperties { limit } => format!("must have at least {}", count(*limit, "property", "properties")),
        Kind::MaxProperties { limit } => format!("must have at most {}", count(*limit, "property", "properties")),
        Kind::Pattern { pattern } => {
            format!("must match the pattern `{}`, not {}", truncated(pattern, 120), quoted(error.instance()))
        }
        Kind::UniqueItems => "must not contain duplicate items".to_owned(),
        Kind::Contains => "must contain a matching item".to_owned(),
        Kind::PropertyNames { error } => format!("has a property whose name is not allowed: {}", reason(error)),
        Kind::OneOfMultipleValid { .. } => "matches more than one alternative, must match exactly one".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => no_alternative(context, error),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::Not { .. } => "is a forbidden value".to_owned(),
        // `masked` leaves out the value, which may be long.
        _ => error.masked().to_string(),
    }
}

/// Formats a count with its noun.
fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}
