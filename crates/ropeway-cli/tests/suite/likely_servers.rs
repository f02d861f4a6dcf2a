//! A tool's name without its server starts only the servers that may have the tool.

use std::path::PathBuf;

use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::place::{Place, entry, having};

fn record(place: &Place, alias: &str) -> PathBuf {
    place.path().join(format!("{alias}.record"))
}

/// Returns a server with this tool in addition to the built-in ones.
fn server(place: &Place, alias: &str, tool: &str, is_error: bool) -> Value {
    let answer = json!({"content": [{"type": "text", "text": alias}], "isError": is_error});
    let script = Script { record_file: Some(record(place, alias)), ..Script::default() };
    entry(alias, &script.tool(json!({"name": tool, "inputSchema": {"type": "object"}}), answer))
}

/// Returns the number of calls of each server since the last check; `None` for a server that was not started.
fn calls(place: &Place) -> [Option<usize>; 2] {
    ["a", "b"].map(|alias| {
        let heard = std::fs::read_to_string(record(place, alias)).ok()?;
        std::fs::remove_file(record(place, alias)).expect("removed");
        Some(heard.matches("tools/call").count())
    })
}

fn place(is_error: bool) -> Place {
    let place = Place::new();
    place.configure(&[server(&place, "a", "of_a", is_error), server(&place, "b", "of_b", is_error)]);
    place
}

#[test]
fn a_name_starts_only_the_servers_that_had_the_tool_the_last_time() {
    let place = place(false);
    assert_eq!(place.run("call of_a").expect(0).stdout, "a\n");
    assert!(matches!(calls(&place), [Some(1), Some(0)]), "nothing was remembered");
    assert_eq!(place.run("call of_a").expect(0).stdout, "a\n");
    assert_eq!(calls(&place), [Some(1), None]);
    assert_eq!(place.run("call of_b").expect(0).stdout, "b\n");
    assert_eq!(calls(&place), [None, Some(1)]);
    // A name that both servers have is still ambiguous.
    let run = place.run("call echo message=hi").expect(2);
    assert!(run.stderr.contains("name the server: `a.echo`, `b.echo`"), "{}", run.stderr);
    calls(&place);
    // A name that is not cached starts all servers, since their tools may have changed.
    let run = place.run("call of_aa").expect(2);
    assert!(run.stderr.contains("did you mean `a.of_a`"), "{}", run.stderr);
    assert_eq!(calls(&place), [Some(0), Some(0)]);
}

#[test]
fn a_tool_that_a_server_has_since_is_found() {
    let place = place(false);
    place.run("tools").expect(0);
    let folder = place.path().join(".cache/ropeway/tools");
    for file in folder.read_dir().expect("a folder").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a file");
        std::fs::write(file.path(), text.replace("of_b", "gone").replace("of_a", "of_b")).expect("written");
    }
    // According to the cache, `a` has the tool.
    assert_eq!(place.run("call of_b").expect(0).stdout, "b\n");
    assert_eq!(place.run("call of_b").expect(0).stdout, "b\n");
}

#[test]
fn a_tool_that_fails_is_called_once() {
    let place = place(true);
    place.run("tools").expect(0);
    calls(&place);
    assert_eq!(place.run("call of_b").expect(1).stdout, "b\n");
    assert_eq!(calls(&place), [None, Some(1)]);
}

#[test]
fn a_changed_entry_is_not_taken_for_the_server_that_was_remembered() {
    let place = place(false);
    place.run("tools").expect(0);
    let [a, b] = ["a", "b"].map(|alias| server(&place, alias, "moved", false));
    place.configure(&[having(a, json!({"enabled": false})), b]);
    calls(&place);
    assert_eq!(place.run("call moved").expect(0).stdout, "b\n");
}
