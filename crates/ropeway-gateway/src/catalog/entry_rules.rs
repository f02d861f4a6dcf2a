//! Checks list entries against the types that clients accept, so that one odd entry does not break a whole list.
//!
//! The official SDKs validate a list as a whole: one tool without `"type": "object"` makes all servers' tools unavailable. The
//! rules follow the TypeScript SDKs 1 and 2 and the Python SDKs 1 and 2, whichever is stricter: they do not accept `null` for an
//! optional member, and require `name` for resources. A member that clients would refuse is replaced or removed, and everything
//! else keeps its text. An entry without a meaning for clients is refused.

mod members;
mod output_schema;

use std::borrow::Cow;
use std::convert::Infallible;

use serde_json::Value;

use self::members::{Change, edit_object};
use crate::catalog::list_kind::ListKind;
use ropeway_core::json::without_lone_surrogates;
use ropeway_mcp::protocol::{Era, is_deeper_than};

/// Maximum entry nesting. The Python SDKs' parser accepts 200 levels for a message.
const MAX_DEPTH: usize = 180;

/// Returns an entry as clients accept it.
///
/// # Errors
///
/// Returns the reason if clients cannot accept it.
pub(crate) fn check_entry(kind: ListKind, entry: &str, era: Era) -> Result<Cow<'_, str>, String> {
    if is_deeper_than(entry.as_bytes(), MAX_DEPTH) {
        return Err("is nested too deeply".to_owned());
    }
    // JavaScript accepts lone surrogates, other parsers refuse the whole message.
    match without_lone_surrogates(entry) {
        Cow::Borrowed(entry) => check_members(kind, entry, era),
        Cow::Owned(entry) => check_members(kind, &entry, era).map(|checked| checked.into_owned().into()),
    }
}

fn check_members(kind: ListKind, entry: &str, era: Era) -> Result<Cow<'_, str>, String> {
    let mut has_name = false;
    let mut has_schema = false;
    let edited = edit_object(entry, |key, value| match (kind, key) {
        (ListKind::Tools, "inputSchema") => {
            has_schema = true;
            input_schema(value, era)
        }
        (ListKind::Tools, "outputSchema") => Ok(output_schema::check(value, era)),
        (ListKind::Tools, "annotations") => Ok(object_of(value, |key, value| match key {
            "title" => kept_if(is_string(value)),
            "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => kept_if(is_boolean(value)),
            _ => Change::Keep,
        })),
        (ListKind::Tools, "execution") => Ok(object_of(value, |key, value| match key {
            "taskSupport" => kept_if(matches!(value, r#""required""# | r#""optional""# | r#""forbidden""#)),
            _ => Change::Keep,
        })),
        (ListKind::Prompts, "arguments") => Ok(arguments(value)),
        (ListKind::Resources | ListKind::Templates, "name") => {
            has_name |= is_string(value);
            Ok(kept_if(is_string(value)))
        }
        (ListKind::Resources | ListKind::Templates, "annotations") => Ok(object_of(value, resource_annotation)),
        (ListKind::Resources | ListKind::Templates, "mimeType") => Ok(kept_if(is_string(value))),
        (ListKind::Resources, "size") => Ok(kept_if(is_size(value))),
        (_, "title" | "description") => Ok(kept_if(is_string(value))),
        (_, "icons") => Ok(kept_if(are_icons(value))),
        (_, "_meta") => Ok(kept_if(value.starts_with('{'))),
        _ => Ok(Change::Keep),
    })?;
    match kind {
        ListKind::Tools if !has_schema => {
            Ok(members::with_member(&edited, r#""inputSchema":{"type":"object"}"#).into())
        }
        ListKind::Resources | ListKind::Templates if !has_name => Ok(named_by_uri(kind, &edited).into()),
        _ => Ok(edited),
    }
}

/// Names a resource by its URI.
fn named_by_uri(kind: ListKind, entry: &str) -> String {
    let mut name = "\"\"".to_owned();
    let _ = edit_object(entry, |key, value| {
        if key == kind.names().id {
            value.clone_into(&mut name);
        }
        Ok::<_, Infallible>(Change::Keep)
    });
    members::with_member(entry, &format!(r#""name":{name}"#))
}

/// Checks a tool's argument schema. The arguments are always an object.
fn input_schema(schema: &str, era: Era) -> Result<Change, String> {
    if !schema.starts_with('{') {
        return Err("has an `inputSchema` that is not an object".to_owned());
    }
    object_schema(schema, era)
        .map(|schema| if let Cow::Owned(schema) = schema { Change::Replace(schema) } else { Change::Keep })
        .map_err(|other| format!("has an `inputSchema` of the type `{other}`"))
}

/// Returns a schema with the type `object`. Fails with the type if the schema has another one.
fn object_schema(schema: &str, era: Era) -> Result<Cow<'_, str>, String> {
    let mut has_type = false;
    let edited = edit_object(schema, |key, value| match key {
        "type" => {
            has_type = true;
            object_type(value)
        }
        "$schema" => Ok(kept_if(is_string(value))),
        "properties" if era == Era::Legacy => Ok(object_of(value, |_, property| match property {
            property if property.starts_with('{') => Change::Keep,
            // Valid in JSON Schema, but not for clients.
            "false" => Change::Replace(r#"{"not":{}}"#.to_owned()),
            _ => Change::Replace("{}".to_owned()),
        })),
        "required" if era == Era::Legacy => Ok(kept_if(are_strings(value))),
        _ => Ok(Change::Keep),
    })?;
    Ok(if has_type { edited } else { members::with_first_member(&edited, r#""type":"object""#).into() })
}

fn object_type(value: &str) -> Result<Change, String> {
    match serde_json::from_str(value).unwrap_or_default() {
        Value::String(name) if name == "object" => Ok(Change::Keep),
        Value::Array(names) if names.iter().any(|name| name == "object") => {
            Ok(Change::Replace(r#""object""#.to_owned()))
        }
        Value::Null => Ok(Change::Replace(r#""object""#.to_owned())),
        Value::String(name) => Err(name.chars().take(32).collect()),
        other => Err(other.to_string().chars().take(32).collect()),
    }
}

/// Checks a prompt's arguments. Arguments without a name are removed.
fn arguments(value: &str) -> Change {
    let Ok(arguments) = serde_json::from_str::<Vec<Box<serde_json::value::RawValue>>>(value) else {
        return Change::Remove;
    };
    let argument = |argument: &str| {
        let mut has_name = false;
        let edited = edit_object(argument, |key, value| {
            has_name |= key == "name" && is_string(value);
            Ok::<_, Infallible>(match key {
                "name" | "description" | "title" => kept_if(is_string(value)),
                "required" => kept_if(is_boolean(value)),
                _ => Change::Keep,
            })
        });
        edited.ok().filter(|_| has_name).map(Cow::into_owned)
    };
    let checked: Vec<Option<String>> = arguments.iter().map(|text| argument(text.get())).collect();
    let is_fine = checked.iter().zip(&arguments).all(|(checked, text)| checked.as_deref() == Some(text.get()));
    if is_fine {
        return Change::Keep;
    }
    let kept: Vec<String> = checked.into_iter().flatten().collect();
    Change::Replace(format!("[{}]", kept.join(",")))
}

fn resource_annotation(key: &str, value: &str) -> Change {
    match key {
        "audience" => kept_if(matches!(serde_json::from_str(value), Ok(Value::Array(roles))
            if roles.iter().all(|role| role == "user" || role == "assistant"))),
        "priority" => kept_if(serde_json::from_str::<f64>(value).is_ok_and(|priority| (0.0..=1.0).contains(&priority))),
        "lastModified" => kept_if(serde_json::from_str::<String>(value).is_ok_and(|time| is_timestamp(&time))),
        _ => Change::Keep,
    }
}

/// Returns `true` for a time such as `2025-01-31T23:59:59.5Z`, with `Z` or an offset.
fn is_timestamp(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let offset_at = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, offset) = time.split_at(offset_at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let has_seconds = time.len() == 8;
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let is_offset = offset == "Z" || (offset.len() == 6 && is_clock(&offset[1..], &[23, 59]));
    is_date(date)
        && is_clock(time, if has_seconds { &[23, 59, 59] } else { &[23, 59] })
        && is_fraction
        && is_offset
        && (has_seconds || text.find('.').is_none())
}

/// Returns `true` for two digits each, separated by colons, up to these numbers.
fn is_clock(text: &str, most: &[u8]) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let is_valid = |part: &str, most: u8| {
        part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u8>().is_ok_and(|n| n <= most)
    };
    parts.len() == most.len() && parts.iter().zip(most).all(|(part, most)| is_valid(part, *most))
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |part: &str, digits: usize| {
        let is_valid = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        is_valid.then(|| part.parse::<u32>().ok()).flatten()
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// Checks a member that must be an object, and its members.
fn object_of(value: &str, check: impl Fn(&str, &str) -> Change) -> Change {
    if !value.starts_with('{') {
        return Change::Remove;
    }
    match edit_object(value, |key, value| Ok::<_, Infallible>(check(key, value))) {
        Ok(Cow::Owned(edited)) => Change::Replace(edited),
        Ok(Cow::Borrowed(_)) => Change::Keep,
    }
}

fn kept_if(is_valid: bool) -> Change {
    if is_valid { Change::Keep } else { Change::Remove }
}

fn is_string(value: &str) -> bool {
    value.starts_with('"')
}

fn is_boolean(value: &str) -> bool {
    matches!(value, "true" | "false")
}

fn is_size(value: &str) -> bool {
    serde_json::from_str::<f64>(value).is_ok_and(|size| size.is_finite() && size.fract() == 0.0)
}

fn are_strings(value: &str) -> bool {
    matches!(serde_json::from_str(value), Ok(Value::Array(items)) if items.iter().all(Value::is_string))
}

fn are_icons(value: &str) -> bool {
    let is_optional = |icon: &Value, key: &str, is_valid: fn(&Value) -> bool| icon.get(key).is_none_or(is_valid);
    let is_icon = |icon: &Value| {
        icon["src"].is_string()
            && is_optional(icon, "mimeType", Value::is_string)
            && is_optional(icon, "theme", |theme| theme == "light" || theme == "dark")
            && is_optional(icon, "sizes", |sizes| {
                sizes.as_array().is_some_and(|sizes| sizes.iter().all(Value::is_string))
            })
    };
    matches!(serde_json::from_str(value), Ok(Value::Array(icons)) if icons.iter().all(is_icon))
}

#[cfg(test)]
mod tests;
