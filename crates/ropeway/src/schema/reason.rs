//! Reasons: what is wrong with a value, in words that help to put it right.

use std::borrow::Cow;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::tool::ArgumentProblem;

/// How many problems are named.
const MAX_PROBLEMS: usize = 8;

/// How many characters a reason has.
const MAX_REASON: usize = 300;

/// How many characters a path has.
const MAX_PATH: usize = 300;

/// How many characters one value or name has that is quoted in a reason.
const MAX_QUOTE: usize = 60;

/// How many names or values a list in a reason has.
const MAX_LIST: usize = 12;

/// The first problems, the same one only once.
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

/// Why a schema does not compile.
pub(super) fn of_schema(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Referencing(jsonschema::ReferencingError::Unretrievable { uri, .. }) => {
            format!("`{}` is outside of it, and nothing is fetched", shortened(uri, MAX_QUOTE * 2))
        }
        Kind::Referencing(error) => shortened(&error.to_string(), MAX_REASON).into_owned(),
        _ => {
            let at = error.instance_path().as_str();
            let reason = reason(error);
            match at {
                "" => reason,
                at => format!("at `{}`: {reason}", shortened(at, MAX_PATH)),
            }
        }
    }
}

/// The text, or its beginning where it is too long.
pub(super) fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// What a value is, with its article.
pub(super) fn kind_of(value: &Value) -> &'static str {
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

/// The name of a type, with its article.
pub(super) fn with_article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}

/// A value as it is quoted in a reason: never a long one.
pub(super) fn quoted(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => kind_of(value).to_owned(),
        Value::String(text) => format!("`{}`", Value::from(&*shortened(text, MAX_QUOTE))),
        scalar => format!("`{scalar}`"),
    }
}

/// A list of names or values, as in `a`, `b` and 3 more.
pub(super) fn listed(mut items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    let shown: Vec<String> = items.by_ref().take(MAX_LIST).collect();
    match count - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A problem whose words have a sensible length.
pub(super) fn problem(path: &str, reason: &str) -> ArgumentProblem {
    ArgumentProblem { path: shortened(path, MAX_PATH).into_owned(), reason: shortened(reason, MAX_REASON).into_owned() }
}

/// Adds what an error says, in the words of the alternative that was probably meant.
fn add(problems: &mut Vec<ArgumentProblem>, error: &ValidationError<'_>) {
    if problems.len() >= MAX_PROBLEMS {
        return;
    }
    match error.kind() {
        // A match was given up: whether the text fits is not known.
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {}
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => match meant(context, error) {
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

/// The alternative that a value was probably meant to be: the only one that has the value's type and
/// whose constants it carries.
fn meant<'c>(
    context: &'c [Vec<ValidationError<'static>>],
    whole: &ValidationError<'_>,
) -> Option<&'c [ValidationError<'static>]> {
    let here = whole.instance_path().as_str();
    let mut candidates = context.iter().filter(|errors| {
        !errors.is_empty()
            && errors.iter().all(|error| match error.kind() {
                Kind::Type { .. } | Kind::FalseSchema => error.instance_path().as_str() != here,
                // One step below is where a variant's tag stands.
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

/// Why none of several alternatives fits.
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
        return format!("must be {}, not {}", wanted.join(" or "), kind_of(whole.instance()));
    }
    let alternatives = context.iter().enumerate().filter_map(|(at, errors)| {
        // A wrong constant says which alternative this is not.
        let constant = errors.iter().find(|error| matches!(error.kind(), Kind::Constant { .. }));
        let first = constant.or(errors.first())?;
        let below = first.instance_path().as_str().strip_prefix(here).unwrap_or_default();
        let place = if below.is_empty() { String::new() } else { format!("`{}` ", shortened(below, MAX_QUOTE)) };
        Some(format!("({}) {place}{}", at + 1, shortened(&reason(first), MAX_QUOTE * 2)))
    });
    let alternatives: Vec<String> = alternatives.take(MAX_LIST).collect();
    format!("fits none of {} alternatives: {}", context.len(), alternatives.join("; "))
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => with_article(kind.as_str()),
        TypeKind::Multiple(kinds) => {
            // They come in the order of the alphabet; "or null" reads better last.
            let (null, rest): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| kind.as_str() == "null");
            rest.iter().chain(&null).map(|kind| with_article(kind.as_str())).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn names(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("`{}`", shortened(name, MAX_QUOTE))))
}

/// What one error says.
fn reason(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Type { kind } => format!("must be {}, not {}", types(kind), kind_of(error.instance())),
        Kind::Required { property } => match property.as_str() {
            Some(name) => format!("the required property `{}` is missing", shortened(name, MAX_QUOTE)),
            None => "a required property is missing".to_owned(),
        },
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("there is no such property: {}; leave it out", names(unexpected))
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
            format!("must match the pattern `{}`, unlike {}", shortened(pattern, 120), quoted(error.instance()))
        }
        Kind::UniqueItems => "must not have the same item twice".to_owned(),
        Kind::Contains => "lacks an item that must be among them".to_owned(),
        Kind::PropertyNames { error } => format!("has a property whose name is not allowed: {}", reason(error)),
        Kind::OneOfMultipleValid { .. } => {
            "fits more than one of the alternatives, of which it must fit one".to_owned()
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => no_alternative(context, error),
        Kind::FalseSchema => "must not be there".to_owned(),
        Kind::Not { .. } => "is a value that is ruled out".to_owned(),
        // The rest speaks for itself, without its value, which may be long.
        _ => error.masked().to_string(),
    }
}
/// A number of things, in words.
fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}
