//! `ropeway serve --watch`: a stdio server is restarted when its files change.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::json;

use crate::fault_run::binary;
use crate::serve::{PATIENCE, Serving, text_of};
use crate::temp_home::TempHome;

/// Writes a server with one tool, as a shell script.
fn write_server(temp_home: &TempHome, tool: &str) {
    let definition = json!({"name": tool, "inputSchema": {"type": "object"}});
    let record_file = Some(temp_home.path().join("record"));
    let script = Script { builtin_tools: false, record_file, ..Script::default() }
        .tool(definition, json!({"content": [{"type": "text", "text": tool}]}))
        .fault(FaultTrigger::tool("hang"), Fault::Hang);
    let script = serde_json::to_string(&script).expect("JSON");
    let words = [binary().to_string_lossy().into_owned(), script];
    let command = shlex::try_join(words.iter().map(String::as_str)).expect("words");
    temp_home.write("server.sh", &format!("exec {command}\n"));
}

/// Reads standard error up to a line with this text.
fn read_until(serving: &mut Serving, text: &str) {
    let stderr = serving.running.child.stderr.as_mut().expect("a pipe");
    let lines = BufReader::with_capacity(1, stderr).lines();
    let mut read = Vec::new();
    for line in lines.map(|line| line.expect("UTF-8")) {
        if line.contains(text) {
            return;
        }
        read.push(line);
    }
    panic!("no `{text}` in {read:#?}");
}

/// Waits until the gateway has a tool.
fn wait_for_tool(serving: &Serving, tool: &str) {
    let began = Instant::now();
    loop {
        let tools = serving.tools();
        if tools == [tool] {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{tools:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const RESTART: &str = "restarting server `sh`: `server.sh` changed";

#[test]
fn a_server_whose_script_is_edited_is_restarted() {
    let temp_home = TempHome::new();
    write_server(&temp_home, "first");
    let mut serving = Serving::in_place(&temp_home, &["--command", "sh server.sh", "--watch"]);
    wait_for_tool(&serving, "first");
    temp_home.write("notes.md", "not code");
    write_server(&temp_home, "second");
    read_until(&mut serving, RESTART);
    wait_for_tool(&serving, "second");
    temp_home.write("server.sh", "echo broken >&2; exit 3\n");
    read_until(&mut serving, RESTART);
    read_until(&mut serving, "server `sh` is unavailable");
    // The next edit starts the server without the delay of a retry.
    write_server(&temp_home, "third");
    read_until(&mut serving, RESTART);
    wait_for_tool(&serving, "third");
    let stderr = serving.end().expect(0).stderr;
    assert!(!stderr.contains("restarting"), "{stderr}");
}

#[test]
fn a_call_in_flight_fails_with_the_reason_and_later_calls_wait() {
    let temp_home = TempHome::new();
    write_server(&temp_home, "hang");
    let serving = Serving::in_place(&temp_home, &["--command", "sh server.sh", "--watch"]);
    wait_for_tool(&serving, "hang");
    let call = serving.call("hang", json!({}));
    let began = Instant::now();
    while !std::fs::read_to_string(temp_home.path().join("record")).unwrap_or_default().contains("tools/call") {
        assert!(began.elapsed() < PATIENCE, "the call did not arrive");
        std::thread::sleep(Duration::from_millis(5));
    }
    write_server(&temp_home, "next");
    let answer = text_of(call);
    assert!(answer.contains("the server was restarted"), "{answer}");
    wait_for_tool(&serving, "next");
    assert!(text_of(serving.call("next", json!({}))).contains(r#""text":"next""#));
    serving.end().expect(0);
}

#[test]
fn given_paths_are_watched_instead_of_the_script() {
    let temp_home = TempHome::new();
    write_server(&temp_home, "first");
    temp_home.write("tools.json", "1");
    let serving = Serving::in_place(&temp_home, &["--command", "sh server.sh", "--watch", "tools.json"]);
    wait_for_tool(&serving, "first");
    write_server(&temp_home, "second");
    temp_home.write("tools.json", "22");
    wait_for_tool(&serving, "second");
    let stderr = serving.end().expect(0).stderr;
    assert!(stderr.contains("restarting server `sh`: `tools.json` changed"), "{stderr}");
}

#[test]
fn a_watch_without_files_is_refused_or_explained() {
    let temp_home = TempHome::new();
    let run = temp_home.run("serve --listen 127.0.0.1:0 --watch missing.py").expect(2);
    assert!(run.stderr.contains("could not watch `missing.py`"), "{}", run.stderr);
    temp_home.configure(&[json!({"alias": "web", "url": "http://127.0.0.1:1/mcp"})]);
    let run = temp_home.run("serve --listen 127.0.0.1:0 --watch").expect(2);
    assert!(run.stderr.contains("`--watch` needs a stdio server"), "{}", run.stderr);
}
