//! Task ids: sealed, so that they name the server and belong to one principal.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::principal::Principal;
use crate::client::seal::{KeyRing, SealKind};
use ropeway_core::json;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::{ScanError, is_key, scan_object};

/// The `_meta` member that names a message's task
/// ([2025-11-25](https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks)).
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The content of a task id.
#[derive(Serialize, Deserialize)]
pub(crate) struct TaskRoute {
    pub(crate) server: Alias,
    pub(crate) task: String,
}

/// Seals a task id, always to the same id. Returns `None` if it is not a string. The server decides when the task expires.
pub(crate) fn seal_task(keys: &KeyRing, principal: &Principal, server: &Alias, task: &[u8]) -> Option<String> {
    let task = json::from_slice(task).ok()?;
    let payload = serde_json::to_vec(&TaskRoute { server: server.clone(), task }).unwrap_or_default();
    Some(keys.seal_lasting(SealKind::Task, principal.id(), &payload))
}

/// Replaces the task in a server's message with the one that the principal knows. Returns `None` if the message belongs to no
/// task.
pub(crate) fn with_sealed_task(
    keys: &KeyRing,
    principal: &Principal,
    server: &Alias,
    params: &RawValue,
) -> Option<Box<RawValue>> {
    memchr::memmem::find(params.get().as_bytes(), RELATED_TASK.as_bytes())?;
    let sealed = replace_ids(params.get().as_bytes(), &[], |task| seal_task(keys, principal, server, task)).ok()?;
    RawValue::from_string(String::from_utf8(sealed.to_vec()).ok()?).ok()
}

/// Replaces the task in a client's answer with the one that the server knows. Returns `None` if the answer belongs to no task.
pub(crate) fn with_own_task(keys: &KeyRing, principal: &Principal, answer: &RawValue) -> Option<Box<RawValue>> {
    memchr::memmem::find(answer.get().as_bytes(), RELATED_TASK.as_bytes())?;
    let own = |task: &[u8]| {
        let payload = keys.open(SealKind::Task, principal.id(), &json::from_slice::<String>(task).ok()?).ok()?;
        Some(serde_json::from_slice::<TaskRoute>(&payload).ok()?.task)
    };
    let replaced = replace_ids(answer.get().as_bytes(), &[], own).ok()?;
    RawValue::from_string(String::from_utf8(replaced.to_vec()).ok()?).ok()
}

/// Replaces the task ids in a result, and copies everything else. An id for which `replace` returns `None` stays.
pub(crate) fn replace_task_ids(result: &[u8], replace: impl Fn(&[u8]) -> Option<String>) -> Result<Bytes, ScanError> {
    replace_ids(result, &["taskId", "task"], replace)
}

/// Replaces the related task's id, and those under `keys`: an id, or an object with one.
fn replace_ids(text: &[u8], keys: &[&str], replace: impl Fn(&[u8]) -> Option<String>) -> Result<Bytes, ScanError> {
    let mut ids = Vec::new();
    let mut tasks = Vec::new();
    let mut meta = None;
    scan_object(text, |key, member| {
        if is_key(key, "_meta") {
            meta = Some(member.value);
        } else if is_key(key, "taskId") && keys.contains(&"taskId") {
            ids.push(member.value);
        } else if is_key(key, "task") && keys.contains(&"task") {
            tasks.push(member.value);
        }
    })?;
    if let Some(meta) = meta.filter(|meta| text[meta.clone()].starts_with(b"{")) {
        tasks.extend(object_members(text, &meta, RELATED_TASK)?);
    }
    for task in tasks.into_iter().filter(|task| text[task.clone()].starts_with(b"{")) {
        ids.extend(object_members(text, &task, "taskId")?);
    }
    ids.sort_by_key(|id| id.start);
    let mut replaced = Vec::with_capacity(text.len());
    let mut done = 0;
    for id in ids {
        let Some(own) = replace(&text[id.clone()]) else { continue };
        replaced.extend_from_slice(&text[done..id.start]);
        replaced.extend_from_slice(Value::from(own).to_string().as_bytes());
        done = id.end;
    }
    replaced.extend_from_slice(&text[done..]);
    Ok(replaced.into())
}

/// Returns a key's values in the object at a text range.
fn object_members(text: &[u8], object: &Range<usize>, wanted: &str) -> Result<Vec<Range<usize>>, ScanError> {
    let mut values = Vec::new();
    scan_object(&text[object.clone()], |key, member| {
        if is_key(key, wanted) {
            values.push(object.start + member.value.start..object.start + member.value.end);
        }
    })?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ids_of_tasks_are_replaced_in_a_result() {
        let replaced = |result: &str| {
            let replace = |id: &[u8]| json::from_slice::<String>(id).ok().map(|id| format!("own \"{id}\""));
            let replaced = replace_task_ids(result.as_bytes(), replace).expect("an object");
            String::from_utf8(replaced.to_vec()).expect("text")
        };
        for (result, expected) in [
            (r#"{"taskId":"a"}"#, r#"{"taskId":"own \"a\""}"#),
            (
                r#"{ "task": {"n":1.10, "taskId": "a" }, "x":"\ud800"}"#,
                r#"{ "task": {"n":1.10, "taskId": "own \"a\"" }, "x":"\ud800"}"#,
            ),
            (r#"{"t\u0061skId":"a","taskId":"b"}"#, r#"{"t\u0061skId":"own \"a\"","taskId":"own \"b\""}"#),
            (
                r#"{"_meta":{"x":{"taskId":"a"},"io.modelcontextprotocol/related-task":{"taskId":"b","n":1.0}},"content":[]}"#,
                r#"{"_meta":{"x":{"taskId":"a"},"io.modelcontextprotocol/related-task":{"taskId":"own \"b\"","n":1.0}},"content":[]}"#,
            ),
            (
                r#"{"task":"a","taskId":7,"content":[{"taskId":"b"}]}"#,
                r#"{"task":"a","taskId":7,"content":[{"taskId":"b"}]}"#,
            ),
        ] {
            assert_eq!(replaced(result), expected);
        }
        assert!(replace_task_ids(b"[]", |_| None).is_err());
    }

    #[test]
    fn a_client_and_a_server_know_the_task_of_a_message_by_their_own_ids() {
        let keys = KeyRing::generate().expect("keys");
        let (principal, server) = (Principal::from("ann"), Alias::from("s"));
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let message = raw(r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}},"taskId":"x"}"#);
        let sealed = with_sealed_task(&keys, &principal, &server, &message).expect("a task");
        let id = seal_task(&keys, &principal, &server, br#""t-1""#).expect("an id");
        assert_eq!(sealed.get(), message.get().replace("t-1", &id));
        let back = with_own_task(&keys, &principal, &sealed).expect("a task");
        assert_eq!(back.get(), message.get());
        // Another principal's id stays.
        let other = with_own_task(&keys, &Principal::from("bob"), &sealed).expect("a task");
        assert_eq!(other.get(), sealed.get());
        assert!(with_sealed_task(&keys, &principal, &server, &raw(r#"{"taskId":"x"}"#)).is_none());
    }
}
