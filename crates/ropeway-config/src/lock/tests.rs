//! Tests of locks and their text.

use serde_json::json;

use super::*;
use crate::Sandbox;
use ropeway_core::tool::{Alias, Digest, Origin, ToolDefinition};

fn tool(name: &str, description: &str) -> ToolDefinition {
    let mut definition = ToolDefinition::new(format!("mcp_files_{name}"))
        .with_description(description)
        .with_input_schema(json!({"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}));
    definition.origin = Origin::Server { server: "files".into(), tool: name.into() };
    definition
}

fn files() -> Alias {
    "files".into()
}

fn lock() -> Lock {
    let mut lock = Lock::new();
    lock.accept(&files(), &[tool("note", "Writes a note"), tool("list", "Lists")]);
    lock
}

#[test]
fn a_lock_round_trips_through_its_text() {
    let text = lock().to_text();
    assert!(text.find("\"list\"") < text.find("\"note\"") && text.find("\"a\"") < text.find("\"b\""), "{text}");
    let read = Lock::parse(&text, "ropeway.lock").expect("a lock");
    assert_eq!((read.to_text(), &read), (text, &lock()));
    assert_eq!(read.compare(&files(), &[tool("note", "Writes a note"), tool("list", "Lists")]), []);
}

#[test]
fn new_changed_and_removed_tools_are_described() {
    let words: Vec<String> = lock()
        .compare(&files(), &[tool("note", "Runs a shell"), tool("exec", "Runs")])
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        words,
        [
            "tool `files.exec` is not in the lock",
            "tool `files.note` changed since it was locked: description changed",
            "tool `files.list` is in the lock, but the server does not provide it",
        ]
    );
}

#[test]
fn approvals_are_kept_for_unchanged_tools() {
    let mut lock = lock();
    lock.allow(&tool("note", "Writes a note"));
    let always = |lock: &Lock| lock.get(&files(), "note").and_then(|tool| tool.always);
    assert_eq!(always(&lock), Some(Digest::of_approved(&tool("note", "Writes a note"))));
    lock.accept(&files(), &[tool("note", "Writes a note")]);
    assert!(always(&lock).is_some() && lock.has_approvals());
    let read = Lock::parse(&lock.to_text(), "x").expect("a lock");
    assert_eq!(read, lock);
    lock.accept(&files(), &[tool("note", "Runs a shell")]);
    assert_eq!(always(&lock), None);
    let mut untrusted = read;
    untrusted.clear_approvals();
    assert!(!untrusted.has_approvals());
}

#[test]
fn only_the_digest_of_a_large_definition_is_stored() {
    let mut lock = Lock::new();
    let huge = tool("note", &"x".repeat(1 << 20));
    lock.accept(&files(), [&huge]);
    assert!(lock.to_text().len() < 1000);
    let lock = Lock::parse(&lock.to_text(), "x").expect("a lock");
    assert_eq!(lock.check(&huge), None);
    let difference = lock.check(&tool("note", "y")).expect("a difference");
    assert_eq!(difference.to_string(), "tool `files.note` changed since it was locked: definition changed");
}

#[test]
fn an_invalid_lock_is_an_error_with_its_line() {
    let said = |text: &str| Lock::parse(text, "ropeway.lock").expect_err("no lock").to_string();
    assert_eq!(said(""), "ropeway.lock:1: not valid JSON: EOF while parsing a value");
    assert_eq!(said("{\n \"version\": 1,\n oops}"), "ropeway.lock:3: not valid JSON: key must be a string");
    assert_eq!(
        said("{\"version\": 1, \"servers\": {}, \"x\": 1}"),
        "ropeway.lock:1: unknown field `x`, expected `version` or `servers`"
    );
    assert_eq!(
        said("{\"version\": 7, \"new\": true}"),
        "ropeway.lock: lock version 7 is not supported (latest supported: 1)"
    );
    let forged = lock().to_text().replace("Writes a note", "Writes a Note");
    assert_eq!(said(&forged), "ropeway.lock: digest mismatch for `files.note`");
    assert_eq!(said("{\"version\": 0}"), "ropeway.lock: unknown lock version 0");
    let deep = format!("{{\"version\": 1, \"servers\": {}1{}}}", "[".repeat(1000), "]".repeat(1000));
    assert!(said(&deep).starts_with("ropeway.lock:1: "), "{}", said(&deep));
}

#[test]
fn a_sandbox_is_kept_next_to_the_tools_of_its_server() {
    let mut lock = lock();
    let before = lock.to_text();
    let sandbox = Sandbox::new().with_read("/srv").with_memory(1 << 20);
    lock.accept_sandbox(&files(), Some(&sandbox));
    let read = Lock::parse(&lock.to_text(), "x").expect("a lock");
    assert_eq!((&read, read.compare_sandbox(&files(), Some(&sandbox))), (&lock, None));
    let wider = sandbox.clone().with_network(true);
    let difference = read.compare_sandbox(&files(), Some(&wider)).expect("a difference");
    assert!(difference.widens());
    assert_eq!(
        difference.reason(),
        "its sandbox is wider than the locked one (network allowed); run `ropeway lock` to accept it"
    );
    let mut same_tools = read.clone();
    same_tools.accept(&files(), &[tool("note", "Writes a note")]);
    assert_eq!(same_tools.compare_sandbox(&files(), Some(&sandbox)), None, "accepting tools keeps it");

    // A lock without sandboxes has the format of older versions.
    lock.accept_sandbox(&files(), None);
    assert_eq!(lock.to_text(), before);
    assert_eq!(lock.compare_sandbox(&files(), None), None);
    let added = lock.compare_sandbox(&files(), Some(&sandbox)).expect("a difference");
    assert!(!added.widens());
    let unknown = read.to_text().replace("\"memory\"", "\"memories\"");
    let said = Lock::parse(&unknown, "ropeway.lock").expect_err("no lock").to_string();
    assert!(said.contains("unknown field `memories`"), "{said}");
}
