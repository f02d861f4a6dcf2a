//! Edits a JSON object's members in its text. Members that are kept keep their text.

use std::borrow::Cow;

use ropeway_mcp::protocol::{Member, scan_object};

/// The change to a member's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Keep,
    /// The value becomes this JSON text.
    Replace(String),
    /// The member is removed.
    Remove,
}

/// Applies a change to each member. `change` gets the key and the value's JSON text.
///
/// A text that is not an object is not changed.
pub(super) fn edit_object<E>(
    text: &str,
    mut change: impl FnMut(&str, &str) -> Result<Change, E>,
) -> Result<Cow<'_, str>, E> {
    let mut members: Vec<Member> = Vec::new();
    if scan_object(text.as_bytes(), |_, member| members.push(member)).is_err() {
        return Ok(Cow::Borrowed(text));
    }
    let mut changes = Vec::with_capacity(members.len());
    for member in &members {
        let value = &text[member.value.clone()];
        changes.push(change(&decoded(&text[member.key.clone()]), value)?);
    }
    if changes.iter().all(|change| *change == Change::Keep) {
        return Ok(Cow::Borrowed(text));
    }
    if !changes.contains(&Change::Remove) {
        return Ok(Cow::Owned(replaced(text, &members, &changes)));
    }
    let mut edited = String::with_capacity(text.len());
    for (member, change) in members.iter().zip(&changes) {
        let comma = if edited.is_empty() { "{" } else { "," };
        match change {
            Change::Keep => edited.extend([comma, &text[member.span()]]),
            Change::Replace(value) => edited.extend([comma, &text[member.span().start..member.value.start], value]),
            Change::Remove => {}
        }
    }
    edited.push_str(if edited.is_empty() { "{}" } else { "}" });
    Ok(Cow::Owned(edited))
}

/// Replaces values, and copies the text between them.
fn replaced(text: &str, members: &[Member], changes: &[Change]) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut done = 0;
    for (member, change) in members.iter().zip(changes) {
        if let Change::Replace(value) = change {
            edited.push_str(&text[done..member.value.start]);
            edited.push_str(value);
            done = member.value.end;
        }
    }
    edited.push_str(&text[done..]);
    edited
}

/// Adds a member at the beginning of an object.
pub(super) fn with_first_member(object: &str, member: &str) -> String {
    let inside = object.trim_start().strip_prefix('{').unwrap_or("}");
    let comma = if inside.trim_start().starts_with('}') { "" } else { "," };
    format!("{{{member}{comma}{inside}")
}

/// Adds a member at the end of an object.
pub(super) fn with_member(object: &str, member: &str) -> String {
    let inside = object.trim_end().strip_suffix('}').unwrap_or("{");
    let comma = if inside.trim() == "{" { "" } else { "," };
    format!("{inside}{comma}{member}}}")
}

/// Decodes a key's escapes.
fn decoded(key: &str) -> Cow<'_, str> {
    if !key.contains('\\') {
        return Cow::Borrowed(key);
    }
    serde_json::from_str::<String>(&format!("\"{key}\"")).map_or(Cow::Borrowed(key), Cow::Owned)
}
