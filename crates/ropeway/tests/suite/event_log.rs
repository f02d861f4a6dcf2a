//! The event log: the lines of a call, with and without payloads.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ropeway::config::Secret;
use ropeway::event::Events;
use ropeway::mcp::{Handlers, Mcp};
use ropeway::secret::Redactor;
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::CallContext;
use ropeway_core::event::EventLog;
use serde_json::{Value, json};

use crate::fast_config::{call_in, fast_config};
use crate::scene::scene;

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log lines of a successful and a failed call, without fields that change between runs.
async fn lines(events: Events) -> Vec<Value> {
    let paper = Paper::default();
    let log = EventLog::start(&events, paper.clone()).expect("a thread");
    let mut config = fast_config(ScriptedServer::new(Script::legacy()).in_process());
    config.redactor = Redactor::new(&[Secret::new("s3cret")]);
    let server = Mcp::with_host(config, Handlers::new(), events);
    server.connect().await.expect("a connection");
    let with = json!({"message": "open and s3cret"});
    call_in(&server, "echo", with.clone(), &CallContext::new("one")).await.expect("an answer");
    call_in(&server, "refuse", with, &CallContext::new("two")).await.expect_err("a refusal");
    server.close().await;
    log.close().await.expect("all is written");
    let text = String::from_utf8(paper.0.lock().expect("no panic").clone()).expect("UTF-8");
    let steady = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("a line of JSON");
        let fields = line.as_object_mut().expect("an object");
        assert!(fields.remove("time").is_some());
        fields.remove("took_ms");
        line
    };
    text.lines().map(steady).collect()
}

/// The lines before and after those of the calls.
fn around(calls: [Value; 2]) -> Vec<Value> {
    let [first, second] = calls;
    vec![
        json!({"event": "server.connecting", "server": "peer", "failures": 0}),
        json!({"event": "server.ready", "server": "peer", "protocol_version": "2025-11-25"}),
        first,
        second,
        json!({"event": "server.closed", "server": "peer"}),
    ]
}

const CAUSE: &str = "server `peer` returned error -32000: the tool refuses";

#[test]
fn a_log_contains_no_payloads_by_default() {
    scene(|_| async {
        let expected = around([
            json!({"event": "mcp.tool_called", "server": "peer", "tool": "echo", "call": "one", "is_error": false}),
            json!({"event": "mcp.tool_failed", "server": "peer", "tool": "refuse", "call": "two", "cause": CAUSE}),
        ]);
        assert_eq!(lines(Events::default()).await, expected);
    });
}

#[test]
fn a_log_with_payloads_redacts_secrets() {
    scene(|_| async {
        let arguments = json!({"message": "open and ***"});
        let result = json!({"content": [{"type": "text", "text": "open and ***"}]});
        let mut lines = lines(Events::default().with_payloads()).await;
        let told = lines[2]["result"]["content"].take();
        assert_eq!(json!({"content": told}), result);
        lines[2]["result"] = Value::Null;
        let expected = around([
            json!({"event": "mcp.tool_called", "server": "peer", "tool": "echo", "call": "one", "is_error": false,
                "arguments": arguments, "result": null}),
            json!({"event": "mcp.tool_failed", "server": "peer", "tool": "refuse", "call": "two", "cause": CAUSE,
                "arguments": arguments}),
        ]);
        assert_eq!(lines, expected);
    });
}
