//! A tool's name without its server starts only the servers that may have the tool.

use std::path::PathBuf;

use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::temp_home::{TempHome, entry, having};

fn record(temp_home: &TempHome, alias: &str) -> PathBuf {
    temp_home.path().join(format!("{alias}.record"))
}

/// Returns a server with this tool in addition to the built-in ones.
fn server(temp_home: &TempHome, alias: &str, tool: &str, is_error: bool) -> Value {
    let answer = json!({"content": [{"type": "text", "text": alias}], "isError": is_error});
    let script = Script { record_file: Some(record(temp_home, alias)), ..Script::default() };
    entry(alias, &script.tool(json!({"name": tool, "inputSchema": {"type": "object"}}), answer))
}

/// Returns the number of calls of each server since the last check; `None` for a server that was not started.
fn calls(temp_home: &TempHome) -> [Option<usize>; 2] {
    ["a", "b"].map(|alias| {
        let heard = std::fs::read_to_string(record(temp_home, alias)).ok()?;
        std::fs::remove_file(record(temp_home, alias)).expect("removed");
        Some(heard.matches("tools/call").count())
    })
}

fn temp_home(is_error: bool) -> TempHome {
    let temp_home = TempHome::new();
    temp_home.configure(&[server(&temp_home, "a", "of_a", is_error), server(&temp_home, "b", "of_b", is_error)]);
    temp_home
}

#[test]
fn a_name_starts_only_the_servers_that_had_the_tool_the_last_time() {
    let temp_home = temp_home(false);
    assert_eq!(temp_home.run("call of_a").expect(0).stdout, "a\n");
    assert!(matches!(calls(&temp_home), [Some(1), Some(0)]), "nothing was remembered");
    assert_eq!(temp_home.run("call of_a").expect(0).stdout, "a\n");
    assert_eq!(calls(&temp_home), [Some(1), None]);
    assert_eq!(temp_home.run("call of_b").expect(0).stdout, "b\n");
    assert_eq!(calls(&temp_home), [None, Some(1)]);
    // A name that both servers have is still ambiguous.
    let run = temp_home.run("call echo message=hi").expect(2);
    assert!(run.stderr.contains("name the server: `a.echo`, `b.echo`"), "{}", run.stderr);
    calls(&temp_home);
    // A name that is not cached starts all servers, since their tools may have changed.
    let run = temp_home.run("call of_aa").expect(2);
    assert!(run.stderr.contains("did you mean `a.of_a`"), "{}", run.stderr);
    assert_eq!(calls(&temp_home), [Some(0), Some(0)]);
}

#[test]
fn a_tool_that_a_server_has_since_is_found() {
    let temp_home = temp_home(false);
    temp_home.run("tools").expect(0);
    let folder = temp_home.path().join(".cache/ropeway/tools");
    for file in folder.read_dir().expect("a folder").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a file");
        std::fs::write(file.path(), text.replace("of_b", "gone").replace("of_a", "of_b")).expect("written");
    }
    // According to the cache, `a` has the tool.
    assert_eq!(temp_home.run("call of_b").expect(0).stdout, "b\n");
    assert_eq!(temp_home.run("call of_b").expect(0).stdout, "b\n");
}

#[test]
fn a_tool_that_fails_is_called_once() {
    let temp_home = temp_home(true);
    temp_home.run("tools").expect(0);
    calls(&temp_home);
    assert_eq!(temp_home.run("call of_b").expect(1).stdout, "b\n");
    assert_eq!(calls(&temp_home), [None, Some(1)]);
}

#[test]
fn a_changed_entry_is_not_taken_for_the_server_that_was_remembered() {
    let temp_home = temp_home(false);
    temp_home.run("tools").expect(0);
    let [a, b] = ["a", "b"].map(|alias| server(&temp_home, alias, "moved", false));
    temp_home.configure(&[having(a, json!({"enabled": false})), b]);
    calls(&temp_home);
    assert_eq!(temp_home.run("call moved").expect(0).stdout, "b\n");
}
