//! The demo server, driven line by line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::process_marker::ProcessMarker;
use crate::{Ropeway, Running};

/// A running demo server.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    // Dropped last, when the server has exited.
    _mark: ProcessMarker,
}

impl Server {
    fn start() -> Self {
        let listening = Ropeway::new(&["demo-server"]).with(|command| {
            command.stdin(Stdio::piped());
        });
        let Running { mut child, process_marker, .. } = listening.start();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, input, output, _mark: process_marker }
    }

    /// Starts a server that is initialized in the legacy era.
    fn legacy() -> Self {
        let mut server = Self::start();
        let result = server.ask("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
        assert_eq!(result["result"]["protocolVersion"], "2025-06-18");
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        server
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("its input"), "{line}").expect("the server reads");
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.write(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string());
        let reply = self.read();
        assert_eq!((&reply["jsonrpc"], &reply["id"]), (&json!("2.0"), &json!(7)), "{reply}");
        reply
    }

    /// Sends a request of the stateless era.
    fn ask_modern(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, modern(params))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let reply = self.ask_modern("tools/call", json!({"name": tool, "arguments": arguments}));
        reply.get("result").unwrap_or_else(|| panic!("{reply}")).clone()
    }

    fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert!(result.get("isError").is_none(), "{result}");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    }

    fn failure(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modern(params: Value) -> Value {
    let Value::Object(mut params) = params else { panic!("params are an object") };
    let meta = params.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    Value::Object(params)
}

#[test]
fn the_legacy_era_initializes_lists_and_calls() {
    let mut server = Server::legacy();
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
    let list = server.ask("tools/list", json!({}))["result"].clone();
    assert_eq!(list.as_object().expect("an object").keys().collect::<Vec<_>>(), ["tools"]);
    let names: Vec<&str> =
        list["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["calculate", "chart", "countdown", "fail", "statistics", "time"]);
    let result = server.ask("tools/call", json!({"name": "calculate", "arguments": {"expression": "6*7"}}));
    assert_eq!(result["result"], json!({"content": [{"type": "text", "text": "42"}]}));
}

#[test]
fn the_modern_era_discovers_lists_and_calls_without_a_handshake() {
    let mut server = Server::start();
    let found = server.ask_modern("server/discover", json!({}))["result"].clone();
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "demo");
    let list = server.ask_modern("tools/list", json!({}))["result"].clone();
    for result in [&found, &list] {
        assert_eq!(result["resultType"], "complete");
        assert!(result["ttlMs"].is_u64(), "{result}");
        assert_eq!(result["cacheScope"], "public");
    }
    let call = server.call("calculate", json!({"expression": "6*7"}));
    assert_eq!((&call["resultType"], &call["content"][0]["text"]), (&json!("complete"), &json!("42")));
    assert!(call.get("ttlMs").is_none());
}

#[test]
fn both_eras_work_on_one_pipe() {
    let mut server = Server::legacy();
    assert_eq!(server.ask_modern("tools/list", json!({}))["result"]["resultType"], "complete");
    assert!(server.ask("tools/list", json!({}))["result"].get("resultType").is_none());
}

#[test]
fn a_request_that_breaks_the_rules_of_its_era_is_refused() {
    let mut server = Server::start();
    let code = |reply: Value| reply["error"]["code"].as_i64().expect("an error");
    assert_eq!(code(server.ask("tools/list", json!({}))), -32602);
    assert_eq!(code(server.ask_modern("ping", json!({}))), -32601);
    let other = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}});
    let reply = server.ask("tools/list", other);
    assert_eq!(reply["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2030-01-01"}));
    assert_eq!(code(reply), -32022);
    let bare = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    assert_eq!(code(server.ask("tools/list", bare)), -32602);
    assert_eq!(code(server.ask_modern("resources/list", json!({}))), -32601);
    assert_eq!(code(server.ask_modern("tools/list", json!({"cursor": "x"}))), -32602);
    assert_eq!(code(server.ask_modern("tools/call", json!({"name": "nothing"}))), -32602);
    assert_eq!(code(server.ask_modern("tools/call", json!({}))), -32602);
    assert_eq!(code(server.ask_modern("tools/call", json!({"name": "time", "arguments": [1]}))), -32602);
}

#[test]
fn garbage_gets_an_error_and_the_server_continues() {
    let mut server = Server::legacy();
    for (line, code) in [("{\"half\":", -32700), ("[]", -32600), ("42", -32600), ("\"\\ud800\"", -32600)] {
        server.write(line);
        let reply = server.read();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &json!(code)), "{line}");
    }
    let deep = "[".repeat(100_000);
    server.write(&deep);
    assert_eq!(server.read()["error"]["code"], -32700);
    server.write("");
    server.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
    server.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":99}}");
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn a_message_that_is_too_long_is_skipped() {
    let mut server = Server::legacy();
    let long = "x".repeat(17 << 20);
    server.write(&long);
    assert_eq!(server.read()["error"]["code"], -32600);
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn calculate_evaluates_and_locates_errors() {
    let mut server = Server::start();
    assert_eq!(server.text("calculate", json!({"expression": "-2^2 + sqrt(16) * (1 - 0.5) % 3"})), "-2");
    let failure = server.failure("calculate", json!({"expression": "2 + * 3"}));
    assert!(failure.starts_with("at character 5: expected a number"), "{failure}");
    assert!(failure.ends_with("  2 + * 3\n      ^"), "{failure}");
}

#[test]
fn time_accepts_zones_and_suggests_similar_ones() {
    let mut server = Server::start();
    let now = server.text("time", json!({"zone": "Asia/Kathmandu"}));
    assert!(now.ends_with("in Asia/Kathmandu (UTC+05:45)"), "{now}");
    assert!(server.text("time", json!({})).ends_with("in UTC (UTC+00:00)"));
    let failure = server.failure("time", json!({"zone": "Europe/Lisbom"}));
    assert!(failure.contains("`Europe/Lisbon`"), "{failure}");
}

#[test]
fn statistics_are_structured_and_repeated_as_text() {
    let mut server = Server::start();
    let result = server.call("statistics", json!({"values": [4, 1, 3, 2]}));
    let expected = json!({"count": 4, "mean": 2.5, "median": 2.5, "min": 1.0, "max": 4.0, "stddev": 1.25_f64.sqrt()});
    assert_eq!(result["structuredContent"], expected);
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), expected);
}

#[test]
fn a_chart_is_a_png_image_of_the_documented_size() {
    let mut server = Server::start();
    for kind in ["bar", "line"] {
        let result = server.call("chart", json!({"values": [3, -1, 4], "title": "Digits", "kind": kind}));
        let picture = &result["content"][1];
        assert_eq!((&picture["type"], &picture["mimeType"]), (&json!("image"), &json!("image/png")));
        let bytes = ropeway_core::content::decode_base64(picture["data"].as_str().expect("data")).expect("base64");
        let reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG file");
        assert_eq!((reader.info().width, reader.info().height), (640, 360));
    }
}

#[test]
fn invalid_arguments_are_tool_errors() {
    let mut server = Server::start();
    for (tool, arguments, expected) in [
        ("chart", json!({}), "missing argument `values`"),
        ("chart", json!({"values": []}), "argument `values` must contain at least one number"),
        ("chart", json!({"values": [1, "x"]}), "argument `values` contains a value that is not a number at position 2"),
        ("chart", json!({"values": [1], "titel": "x"}), "unknown argument `titel`: did you mean `title`?"),
        ("chart", json!({"values": [1], "kind": "pie"}), "`kind` must be \"bar\" or \"line\", not \"pie\""),
        ("calculate", json!({"expression": 3}), "argument `expression` must be a string"),
        ("countdown", json!({"seconds": 1e9}), "`seconds` must be between 0 and 600"),
        ("fail", json!({"message": "on purpose"}), "on purpose"),
        ("fail", json!({}), "this tool always fails"),
    ] {
        assert_eq!(server.failure(tool, arguments), expected);
    }
}

#[test]
fn a_countdown_reports_progress_and_does_not_block_other_calls() {
    let mut server = Server::legacy();
    let params =
        json!({"name": "countdown", "arguments": {"seconds": 0.6, "steps": 2}, "_meta": {"progressToken": "p"}});
    server.write(&json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": params}).to_string());
    assert_eq!(server.ask("ping", json!({}))["result"], json!({}));
    for (step, text) in [(1.0, "1 to go"), (2.0, "lift-off")] {
        let expected = json!({"progressToken": "p", "progress": step, "total": 2.0, "message": text});
        assert_eq!(server.read()["params"], expected);
    }
    let done = server.read();
    assert_eq!(done["id"], "slow");
    assert_eq!(done["result"]["content"][0]["text"], "Counted down for 0.6 seconds in 2 steps.");
}

#[test]
fn a_cancelled_countdown_ends_without_an_answer() {
    let mut server = Server::legacy();
    let params = json!({"name": "countdown", "arguments": {"seconds": 0.5, "steps": 1}});
    server.write(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string());
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    server.write(&cancelled.to_string());
    // The answer to a later request comes first.
    server.write(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string());
    assert_eq!(server.read()["id"], 2);
}

#[test]
fn the_server_exits_at_the_end_of_input_even_during_a_call() {
    let mut server = Server::legacy();
    let params = json!({"name": "countdown", "arguments": {"seconds": 60}});
    server.write(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string());
    drop(server.input.take());
    let started = Instant::now();
    let status = loop {
        match server.child.try_wait().expect("a child") {
            Some(status) => break status,
            None if started.elapsed() > Duration::from_secs(10) => panic!("the server did not end"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(status.success());
}
