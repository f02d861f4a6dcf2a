//! The log output of `-v` and `-vv`.

use ropeway_testing::{HttpScriptedServer, Script, ScriptedReply};
use serde_json::json;

use crate::chat::Model;
use crate::temp_home::{TempHome, entry, having};
use crate::terminal::Terminal;
use crate::{Ropeway, Run};

/// Returns the log lines without their timestamps, which are validated.
fn logged(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| {
            let (time, rest) = line.split_once(' ')?;
            let is_time = time.len() == 13 && time.ends_with('Z') && time.as_bytes()[2] == b':';
            is_time.then_some(rest)
        })
        .collect()
}

/// Returns `true` if a line is a message of this server in this direction that contains these words.
fn is_message(line: &str, server: &str, arrow: &str, words: &str) -> bool {
    line.starts_with(&format!("trace {server} {arrow} {{")) && line.contains(words)
}

#[test]
fn verbose_lines_describe_events_of_each_server() {
    let run = Run::of(&["call", "calculate", "expression=1", "-v"]).expect(0);
    assert_eq!(run.stdout, "1\n");
    let lines = logged(&run.stderr);
    assert_eq!(lines.len(), run.stderr.lines().count(), "{}", run.stderr);
    let expected = ["debug demo connecting", "debug demo ready, MCP 2026-07-28", "debug demo calculate answered after"];
    for (line, words) in lines.iter().zip(expected) {
        assert!(line.starts_with(words), "{line}");
    }
    assert_eq!(lines.last(), Some(&"debug demo closed"));
    assert!(!run.stderr.contains("{ ") && !run.stderr.contains("jsonrpc"), "{}", run.stderr);
}

#[test]
fn every_message_is_logged_in_both_directions_over_every_transport() {
    let temp_home = TempHome::with(&[entry("peer", &Script::default())]);
    let check = |run: Run, server: &str| {
        assert_eq!(run.stdout, "hi\n");
        let lines = logged(&run.stderr);
        for (arrow, words) in [("→", "\"method\":\"tools/call\""), ("←", "\"result\""), ("→", "tools/list")] {
            assert!(lines.iter().any(|line| is_message(line, server, arrow, words)), "{arrow} {words}: {}", run.stderr);
        }
    };
    check(temp_home.ropeway(&["call", "peer.echo", "message=hi", "-vv"]).run().expect(0), "peer");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for transport in ["http", "sse"] {
            let server = HttpScriptedServer::start(Script::default()).await.expect("a free port");
            let url = if transport == "sse" { server.sse_url() } else { server.url() };
            let run = tokio::task::spawn_blocking(move || {
                Run::of(&["call", "echo", "message=hi", "-vv", "--url", &url, "--transport", transport])
            });
            let run = run.await.expect("a run").expect(0);
            let host = server.url().split('/').nth(2).expect("a host").to_owned();
            check(run, &host[..host.len().min(20)]);
        }
    });
}

#[test]
fn calls_and_chats_join_the_trace_of_their_caller() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let joins = |ropeway: crate::Ropeway, value: &str| {
        let run = ropeway.with(|command| {
            command.env("TRACEPARENT", value);
        });
        let run = run.run().expect(0);
        let is_call = |line: &&&str| is_message(line, "demo", "→", "tools/call") && line.contains(trace);
        logged(&run.stderr).iter().find(is_call).map(|line| (*line).to_owned())
    };
    let call = || crate::Ropeway::new(&["call", "calculate", "expression=1+1", "-vv"]);
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let sent = joins(call(), &parent).expect("a call in the trace");
    assert!(sent.contains(&format!("\"traceparent\":\"00-{trace}-")), "{sent}");
    assert!(!sent.contains("b7ad6b7169203331"), "the call has a span of its own: {sent}");
    assert_eq!(joins(call(), "00-0-0-00"), None);
    let model = Model::saying([
        ScriptedReply::call("a", "calculate", json!({"expression": "1+1"})),
        ScriptedReply::text("Two."),
    ]);
    assert!(joins(model.chat(&["-p", "go", "-vv", "--yes"]), &parent).is_some());
}

#[test]
fn doctor_and_tools_and_chat_log_messages_on_standard_error_only() {
    for command in [&["tools", "-vv"][..], &["doctor", "-vv"], &["health", "-vv", "--json"]] {
        let run = Run::of(command).expect(0);
        assert!(!run.stdout.contains("trace ") && !run.stdout.contains("\"jsonrpc\""), "{}", run.stdout);
        let lines = logged(&run.stderr);
        assert!(lines.iter().any(|line| is_message(line, "demo", "→", "server/discover")), "{}", run.stderr);
    }
    let model = Model::saying([
        ScriptedReply::call("a", "calculate", json!({"expression": "1+1"})),
        ScriptedReply::text("Two."),
    ]);
    let run = model.chat(&["-p", "go", "-vv", "--yes"]).run().expect(0);
    assert_eq!(run.stdout, "Two.\n");
    assert!(logged(&run.stderr).iter().any(|line| is_message(line, "demo", "→", "1+1")), "{}", run.stderr);
}

#[test]
fn a_long_message_is_truncated_with_the_number_of_bytes() {
    let text = format!("sk-{}", "x".repeat(10_000));
    let run = Run::of(&["call", "fail", &format!("message={text}"), "-vv"]);
    let line = logged(&run.stderr).into_iter().find(|line| is_message(line, "demo", "→", "tools/call"));
    let line = line.unwrap_or_else(|| panic!("{}", run.stderr));
    assert!(line.ends_with(" more bytes)") && line.len() < 2_300, "{} bytes: {line}", line.len());
}

#[test]
fn a_logged_message_holds_neither_secrets_nor_control_characters() {
    let words = "t0ken-of-the-peer \u{1b}[2J\u{202e}";
    let tool = json!({"name": "tell", "description": words, "inputSchema": {"type": "object"}});
    let script = Script::default().tool(tool, json!({"content": [{"type": "text", "text": words}]}));
    let peer = having(entry("peer", &script), json!({"env": {"API_TOKEN": "t0ken-of-the-peer"}}));
    let run = TempHome::with(&[peer]).ropeway(&["call", "peer.tell", "-vv"]).run().expect(0);
    assert!(run.stderr.contains("***") && !run.stderr.contains("t0ken-of-the-peer"), "{}", run.stderr);
    assert!(!run.stderr.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{:?}", run.stderr);
}

#[test]
fn verbose_lines_fit_the_terminal() {
    for columns in [40, 80, 200] {
        let verbose = Ropeway::new(&["call", "calculate", "expression=1", "-v"]);
        let screen = Terminal { columns, coloured: false }.show(verbose);
        assert_eq!(screen.code, Some(0), "{}", screen.text);
        let most = usize::from(columns);
        assert!(screen.text.lines().all(|line| line.chars().count() <= most), "{columns}:\n{}", screen.text);
    }
}

#[test]
fn the_log_file_keeps_its_json_lines_beside_verbose_output() {
    let temp_home = TempHome::new();
    temp_home.ropeway(&["call", "calculate", "expression=1", "-vv", "--log-file", "log"]).run().expect(0);
    let log = std::fs::read_to_string(temp_home.path().join("log")).expect("a log");
    let events: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["server.connecting", "server.ready", "mcp.tool_called", "server.closed"]);
}
