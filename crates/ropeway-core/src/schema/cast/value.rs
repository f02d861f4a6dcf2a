//! JSON value types, comparison and conversion.

use std::borrow::Cow;

use serde_json::{Number, Value};

/// Returns `true` if the value has this type.
pub(super) fn has_type(value: &Value, kind: &str) -> bool {
    match (kind, value) {
        ("integer", Value::Number(number)) => is_whole(number),
        ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        // Unknown types accept anything.
        (kind, _) => !["null", "boolean", "integer", "number", "string", "array", "object"].contains(&kind),
    }
}

/// Returns `true` for whole numbers in any notation, and for numbers beyond `f64`'s range without a fraction.
fn is_whole(number: &Number) -> bool {
    match number.as_f64() {
        Some(float) => float.fract() == 0.0,
        None => {
            let text = number.to_string();
            !text.contains('.') || text.contains(['e', 'E'])
        }
    }
}

/// Returns a whole number that was written with a decimal point as an integer.
pub(super) fn whole(value: &Value) -> Option<Value> {
    /// Whole numbers up to here are exact in `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = value.as_f64().filter(|float| value.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT)?;
    Some(Value::from(float as i64))
}

/// Returns a scalar as text.
pub(super) fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Some(Cow::Owned(whole(value).as_ref().unwrap_or(value).to_string())),
        _ => None,
    }
}

/// Converts a scalar to another type if the conversion is unambiguous.
pub(super) fn converted(value: &Value, kind: &str) -> Option<Value> {
    match (kind, value) {
        ("integer", Value::String(text)) => {
            let number = Value::Number(number(text)?);
            whole(&number).or(Some(number)).filter(|number| !number.is_f64())
        }
        ("number", Value::String(text)) => number(text).map(Value::Number),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        _ => None,
    }
}

/// Parses a JSON number, if a JSON value can hold all its digits.
fn number(text: &str) -> Option<Number> {
    /// Significant `f64` digits.
    const DIGITS: usize = 16;
    // The parser would accept surrounding whitespace.
    if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) || !text.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    let digits = text.chars().filter(char::is_ascii_digit).count();
    (!number.is_f64() || digits <= DIGITS).then_some(number)
}

/// Compares two values as JSON Schema does: 1 equals 1.0.
pub(super) fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let float = |number: &Number| number.as_f64();
            a == b || ((a.is_f64() || b.is_f64()) && float(a).is_some_and(|a| float(b) == Some(a)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}
