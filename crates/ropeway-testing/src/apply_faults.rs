//! Applies faults to a response.

use std::time::Duration;

use serde_json::{Value, json};

use super::action::{Action, TimedAction};
use super::fault::Fault;

/// The action after the response.
enum AfterResponse {
    Done,
    Hang,
    Exit { after_ms: u64, code: i32 },
    ExitMidAnswer,
    ExitAfterAnswer,
    CloseOutput,
}

/// Returns the actions that answer a request (`to`) with its faults; without an answer, only the faults' actions.
pub(super) fn apply_faults(
    faults: &[Fault],
    to: Option<&Value>,
    token: Option<&Value>,
    answer: Option<Value>,
) -> Vec<TimedAction> {
    let mut answer = answer;
    let mut rest = Vec::new();
    let (mut before, mut after): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let (mut wait, mut copies, mut batch, mut end, mut body) = (0, 1, false, AfterResponse::Done, None);
    for fault in faults {
        match fault {
            Fault::Exit { after_ms, code } => end = AfterResponse::Exit { after_ms: *after_ms, code: *code },
            Fault::ExitMidAnswer => end = AfterResponse::ExitMidAnswer,
            Fault::ExitAfterAnswer => end = AfterResponse::ExitAfterAnswer,
            Fault::CloseOutput => end = AfterResponse::CloseOutput,
            Fault::Hang => end = AfterResponse::Hang,
            Fault::Late { ms } => wait += ms,
            Fault::Twice => copies += 1,
            Fault::Batch => batch = true,
            Fault::Body(text) => body = Some(text),
            Fault::Before(messages) => before.extend(messages.iter().cloned()),
            Fault::After(messages) => after.extend(messages.iter().cloned()),
            Fault::GiantUnasked { bytes } => before
                .push(notification("notifications/message", json!({ "level": "info", "data": "x".repeat(*bytes) }))),
            Fault::Storm { method, count } => {
                before.extend(std::iter::repeat_n(json!({ "jsonrpc": "2.0", "method": method }), *count));
            }
            Fault::OddProgress => before.extend(odd_progress(token)),
            Fault::Noise(noise) => rest.push(Action::Raw { bytes: noise.bytes(), to: to.cloned() }),
            Fault::Stderr { bytes } => rest.push(Action::Stderr { bytes: *bytes }),
            Fault::StderrLine(line) => rest.push(Action::StderrLine(line.clone())),
            // Handled by the HTTP server.
            Fault::Http(_) => {}
            fault => answer = answer.map(|answer| rewrite(answer, fault)),
        }
    }
    let mut actions = rest;
    let text = answer.as_ref().map(|answer| match body {
        Some(body) => format!(r#"{{"jsonrpc":"2.0","id":{},{body}}}"#, answer["id"]),
        None => answer.to_string(),
    });
    if let (true, Some(answer)) = (batch, answer) {
        before.push(answer);
        let text = Value::Array(before).to_string();
        actions.extend(std::iter::repeat_n(Action::Send { text, to: to.cloned(), answer: true }, copies));
    } else {
        let said = |message: &Value| Action::Send { text: message.to_string(), to: to.cloned(), answer: false };
        actions.extend(before.iter().map(said));
        let speaks = matches!(end, AfterResponse::Done | AfterResponse::ExitAfterAnswer);
        if let Some(text) = text.clone().filter(|_| speaks) {
            actions.extend(std::iter::repeat_n(Action::Send { text, to: to.cloned(), answer: true }, copies));
        }
        actions.extend(after.iter().map(said));
    }
    let mut last_wait = 0;
    match end {
        AfterResponse::Done => actions.extend(to.filter(|_| text.is_some()).map(|to| Action::Done { to: to.clone() })),
        AfterResponse::Hang => {}
        AfterResponse::Exit { after_ms, code } => {
            last_wait = after_ms;
            actions.push(Action::Exit(code));
        }
        AfterResponse::ExitMidAnswer => {
            let mut bytes = text.unwrap_or_default().into_bytes();
            bytes.truncate(bytes.len() / 2);
            actions.push(Action::Raw { bytes, to: to.cloned() });
            actions.push(Action::Exit(1));
        }
        AfterResponse::ExitAfterAnswer => actions.push(Action::Exit(0)),
        AfterResponse::CloseOutput => actions.push(Action::CloseOutput),
    }
    let mut actions: Vec<TimedAction> =
        actions.into_iter().map(|action| TimedAction { after: Duration::ZERO, action }).collect();
    if let Some(last) = actions.last_mut() {
        last.after += Duration::from_millis(last_wait);
    }
    if let Some(first) = actions.first_mut() {
        first.after += Duration::from_millis(wait);
    }
    actions
}

/// Applies a fault that changes a response's content.
fn rewrite(mut answer: Value, fault: &Fault) -> Value {
    match fault {
        Fault::IdlessError { code, message, null_id } => {
            answer = json!({ "jsonrpc": "2.0", "error": { "code": code, "message": message } });
            if *null_id {
                answer["id"] = Value::Null;
            }
        }
        Fault::ErrorNull => answer["error"] = Value::Null,
        Fault::NoJsonrpc => remove(&mut answer, "/jsonrpc"),
        Fault::IdAsString => {
            if let Some(id) = answer["id"].as_u64() {
                answer["id"] = json!(id.to_string());
            }
        }
        Fault::IdAsFloat => {
            if let Some(id) = answer["id"].as_f64() {
                answer["id"] = json!(id);
            }
        }
        Fault::Result(result) => {
            remove(&mut answer, "/error");
            answer["result"] = result.clone();
        }
        Fault::Error(error) => {
            remove(&mut answer, "/result");
            answer["error"] = error.clone();
        }
        Fault::Set { pointer, value } => set(&mut answer, pointer, value.clone()),
        Fault::Remove { pointer } => remove(&mut answer, pointer),
        Fault::Giant { bytes } => {
            let body = if answer.get("error").is_some() { "error" } else { "result" };
            if answer[body].is_object() {
                answer[body]["padding"] = json!("x".repeat(*bytes));
            }
        }
        _ => {}
    }
    answer
}

/// Sets the value at a pointer, whose parent must exist.
fn set(message: &mut Value, pointer: &str, value: Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        *message = value;
        return;
    };
    match message.pointer_mut(parent) {
        Some(Value::Object(object)) => {
            object.insert(unescape(key), value);
        }
        Some(Value::Array(items)) => match key.parse::<usize>() {
            Ok(index) if index < items.len() => items[index] = value,
            _ => items.push(value),
        },
        _ => {}
    }
}

fn remove(message: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    match message.pointer_mut(parent) {
        Some(Value::Object(object)) => {
            object.shift_remove(&unescape(key));
        }
        Some(Value::Array(items)) => {
            if let Some(index) = key.parse().ok().filter(|index| *index < items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

fn odd_progress(token: Option<&Value>) -> Vec<Value> {
    let own = token.cloned().unwrap_or_else(|| json!("no-such-token"));
    [
        json!({ "progressToken": "nobody-gave-this", "progress": 1 }),
        json!({ "progressToken": own, "progress": 3, "total": 4 }),
        json!({ "progressToken": own, "progress": 1, "total": 4 }),
        json!({ "progressToken": own, "progress": "half" }),
        json!({ "progressToken": own }),
        json!({ "progressToken": null, "progress": 1 }),
        json!({ "progressToken": own, "progress": 4, "total": 4, "message": 7 }),
    ]
    .into_iter()
    .map(|params| notification("notifications/progress", params))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StdoutNoise;

    fn said(faults: &[Fault]) -> Vec<String> {
        let answer = json!({ "jsonrpc": "2.0", "id": 3, "result": { "a": { "b": 1 } } });
        apply_faults(faults, Some(&json!(3)), None, Some(answer))
            .into_iter()
            .filter_map(|action| match action.action {
                Action::Send { text, .. } => Some(text),
                Action::Raw { bytes, .. } => Some(String::from_utf8_lossy(&bytes).into_owned()),
                Action::Exit(_) => Some("exit".to_owned()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn each_fault_changes_the_response() {
        let whole = r#"{"jsonrpc":"2.0","id":3,"result":{"a":{"b":1}}}"#;
        for (fault, expected) in [
            (Fault::Twice, vec![whole, whole]),
            (Fault::ErrorNull, vec![r#"{"jsonrpc":"2.0","id":3,"result":{"a":{"b":1}},"error":null}"#]),
            (Fault::NoJsonrpc, vec![r#"{"id":3,"result":{"a":{"b":1}}}"#]),
            (Fault::IdAsString, vec![r#"{"jsonrpc":"2.0","id":"3","result":{"a":{"b":1}}}"#]),
            (Fault::IdAsFloat, vec![r#"{"jsonrpc":"2.0","id":3.0,"result":{"a":{"b":1}}}"#]),
            (Fault::Batch, vec![r#"[{"jsonrpc":"2.0","id":3,"result":{"a":{"b":1}}}]"#]),
            (Fault::idless_error(-1, "no"), vec![r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#]),
            (Fault::error_without_message(), vec![r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32000}}"#]),
            (Fault::set("/result/a/c", true), vec![r#"{"jsonrpc":"2.0","id":3,"result":{"a":{"b":1,"c":true}}}"#]),
            (Fault::remove("/result/a/b"), vec![r#"{"jsonrpc":"2.0","id":3,"result":{"a":{}}}"#]),
            (Fault::Hang, vec![]),
            (Fault::exit(), vec!["exit"]),
            (Fault::ExitMidAnswer, vec![&whole[..whole.len() / 2], "exit"]),
            (Fault::ExitAfterAnswer, vec![whole, "exit"]),
            (StdoutNoise::Blank.into(), vec!["\n", whole]),
            (
                Fault::storm("x", 2),
                vec![r#"{"jsonrpc":"2.0","method":"x"}"#, r#"{"jsonrpc":"2.0","method":"x"}"#, whole],
            ),
        ] {
            assert_eq!(said(std::slice::from_ref(&fault)), expected, "{fault:?}");
        }
    }

    #[test]
    fn faults_combine() {
        let said = said(&[Fault::unknown_notification(), Fault::Batch, Fault::Twice, Fault::NoJsonrpc]);
        let both =
            r#"[{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":1}},{"id":3,"result":{"a":{"b":1}}}]"#;
        assert_eq!(said, [both, both]);
    }

    #[test]
    fn a_giant_response_has_the_requested_size() {
        assert!(said(&[Fault::Giant { bytes: 100_000 }])[0].len() >= 100_000);
    }
}
