//! The scripted server, driven over raw connections.

use std::time::Duration;

use ropeway::config::Transport;
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script, ScriptedServer};
use ropeway_testing::{
    FaultRule, Grandchild, HttpFault, HttpScript, OfferedTransports, PagingStyle, ProcessScript, ResponseFormat,
    StdoutNoise, SupportedEras, UnknownMethods, UnknownSession, WriteStyle, unusual,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(10);

/// A client that reads and writes lines.
struct Lines<R, W> {
    read: BufReader<R>,
    write: W,
}

type Pipe = Lines<tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

fn pipe(scripted: &ScriptedServer) -> Pipe {
    let Transport::InProcess(server) = scripted.in_process() else { panic!("another transport") };
    let (read, write) = tokio::io::split(server.open());
    Lines { read: BufReader::new(read), write }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    async fn send(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.expect("the server reads");
    }

    /// Returns the next line; empty at the end.
    async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        let read = self.read.read_until(b'\n', &mut line);
        tokio::time::timeout(PATIENCE, read).await.expect("a line in time").expect("a line");
        line
    }

    async fn next(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_slice(&line).unwrap_or_else(|_| panic!("not JSON: {:?}", String::from_utf8_lossy(&line)))
    }

    /// Sends a message and reads the next one.
    async fn ask(&mut self, message: Value) -> Value {
        self.send(&message).await;
        self.next().await
    }

    async fn initialize(&mut self, capabilities: Value) -> Value {
        let client = json!({ "name": "test", "version": "0" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client });
        let answer = self.ask(request(0, "initialize", params)).await;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        answer
    }

    async fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.ask(call(id, tool, arguments)).await
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

fn echo(id: u64) -> Value {
    call(id, "echo", json!({ "message": "hi" }))
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {}, "url": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    request(id, method, params)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

mod on_a_pipe {
    use super::*;

    #[tokio::test]
    async fn the_default_script_supports_the_legacy_era() {
        let mut client = pipe(&ScriptedServer::new(Script::default()));
        assert_eq!(client.ask(request(9, "tools/list", json!({}))).await["error"]["code"], -32600);
        let hello = client.initialize(json!({})).await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(hello["result"]["serverInfo"]["name"], "scripted");
        let tools = client.ask(request(1, "tools/list", json!({}))).await["result"].clone();
        let names: Vec<&Value> = tools["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
        assert!(names.starts_with(&[&json!("echo"), &json!("add"), &json!("sleep")]), "{names:?}");
        assert!(tools.get("resultType").is_none());
        assert_eq!(text(&client.ask(echo(2)).await), "hi");
        let sum = client.call(3, "add", json!({ "a": 1, "b": 2 })).await;
        assert_eq!(sum["result"]["structuredContent"], json!({ "sum": 3.0 }));
        assert_eq!(client.call(4, "fail", json!({})).await["result"]["isError"], true);
        assert_eq!(client.call(5, "refuse", json!({})).await["error"]["code"], -32000);
        assert_eq!(client.call(6, "nothing", json!({})).await["error"]["code"], -32602);
        assert_eq!(client.ask(request(7, "ping", json!({}))).await["result"], json!({}));
        assert_eq!(client.ask(request(8, "logging/setLevel", json!({ "level": "info" }))).await["result"], json!({}));
        let read = client.ask(request(9, "resources/read", json!({ "uri": "test://items/7" }))).await;
        assert_eq!(read["result"]["contents"][0]["text"], "item 7");
        assert_eq!(client.ask(request(10, "resources/read", json!({ "uri": "x:" }))).await["error"]["code"], -32002);
        let greet = json!({ "name": "greet", "arguments": { "name": "Ada" } });
        let prompt = client.ask(request(11, "prompts/get", greet)).await;
        assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Please greet Ada.");
        let complete = request(12, "completion/complete", json!({ "argument": { "name": "name", "value": "al" } }));
        assert_eq!(client.ask(complete).await["result"]["completion"]["values"], json!(["alice", "albert"]));
        assert_eq!(client.ask(request(13, "server/discover", json!({}))).await["error"]["code"], -32601);
        let image = client.call(14, "blob", json!({ "bytes": 9, "kind": "image" })).await;
        assert_eq!(image["result"]["content"][0]["mimeType"], "image/png");
        let logged = client.call(15, "log", json!({ "level": "warning", "message": "careful" })).await;
        assert_eq!(logged["params"], json!({ "level": "warning", "logger": "scripted", "data": "careful" }));
    }

    #[tokio::test]
    async fn the_default_script_supports_the_modern_era() {
        let mut client = pipe(&ScriptedServer::new(Script { ttl_ms: 7, ..Script::default() }));
        let hello = client.ask(modern(1, "server/discover", json!({}))).await["result"].clone();
        assert_eq!(hello["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(hello["resultType"], "complete");
        assert_eq!(hello["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "scripted");
        let tools = client.ask(modern(2, "tools/list", json!({}))).await["result"].clone();
        assert_eq!((&tools["ttlMs"], &tools["cacheScope"]), (&json!(7), &json!("private")));
        let params = json!({ "name": "echo", "arguments": { "message": "hi" } });
        let answer = client.ask(modern(3, "tools/call", params)).await;
        assert_eq!((text(&answer), &answer["result"]["resultType"]), ("hi", &json!("complete")));
        assert_eq!(client.ask(modern(4, "ping", json!({}))).await["error"]["code"], -32601);
        let mut old = modern(5, "tools/list", json!({}));
        old["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
        let refused = client.ask(old).await;
        assert_eq!(refused["error"]["data"], json!({ "supported": ["2026-07-28"], "requested": "2099-01-01" }));
    }

    #[tokio::test]
    async fn a_server_of_one_era_refuses_the_other() {
        let mut client = pipe(&ScriptedServer::new(Script::modern()));
        assert_eq!(client.initialize(json!({})).await["error"]["code"], -32022);
        assert_eq!(client.ask(request(1, "tools/list", json!({}))).await["error"]["code"], -32602);
        let mut client = pipe(&ScriptedServer::new(Script::legacy()));
        assert_eq!(client.ask(modern(1, "server/discover", json!({}))).await["error"]["code"], -32601);
        assert_eq!(client.initialize(json!({})).await["result"]["protocolVersion"], "2025-11-25");
        let mut client = pipe(&ScriptedServer::new(Script { first_message_settles_era: true, ..Script::default() }));
        assert!(client.ask(modern(1, "server/discover", json!({}))).await["result"].is_object());
        assert_eq!(client.initialize(json!({})).await["error"]["code"], -32022);
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_methods_are_answered_as_scripted() {
        let client = |unknown_methods| pipe(&ScriptedServer::new(Script { unknown_methods, ..Script::legacy() }));
        let probe = modern(1, "server/discover", json!({}));
        for (unknown, code) in [(UnknownMethods::MethodNotFound, -32601), (UnknownMethods::InvalidParams, -32602)] {
            assert_eq!(client(unknown).ask(probe.clone()).await["error"]["code"], code);
        }
        let mut ending = client(UnknownMethods::Exit);
        ending.send(&probe).await;
        assert_eq!(ending.line().await, b"");
        let mut silent = client(UnknownMethods::Silence);
        silent.send(&probe).await;
        assert_eq!(silent.initialize(json!({})).await["id"], 0);
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_reports_progress_and_can_be_cancelled() {
        let scripted = ScriptedServer::new(Script::default());
        let mut client = pipe(&scripted);
        client.initialize(json!({})).await;
        let mut sleep = call(1, "sleep", json!({ "ms": 1000, "steps": 2 }));
        sleep["params"]["_meta"] = json!({ "progressToken": "t" });
        client.send(&sleep).await;
        assert_eq!(client.next().await["params"]["progress"], 1);
        let second = json!({ "progressToken": "t", "progress": 2, "total": 2, "message": "step 2 of 2" });
        assert_eq!(client.next().await["params"], second);
        assert_eq!(text(&client.next().await), "slept 1000 ms");
        client.send(&call(2, "sleep", json!({ "ms": 1000 }))).await;
        client
            .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } }))
            .await;
        scripted.wait_for("notifications/cancelled", 1).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(client.ask(echo(3)).await["id"], 3);
        assert_eq!(scripted.cancelled(), [json!(2)]);
    }

    #[tokio::test]
    async fn a_legacy_client_gets_requests_during_a_call() {
        let mut client = pipe(&ScriptedServer::new(Script::default()));
        client.initialize(json!({ "elicitation": {}, "sampling": {} })).await;
        for (id, tool, method) in [(1, "elicit", "elicitation/create"), (2, "sample", "sampling/createMessage")] {
            let question = client.call(id, tool, json!({})).await;
            assert_eq!(question["method"], method);
            let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
            let answer = client.ask(answer).await;
            assert_eq!((&answer["id"], text(&answer)), (&json!(id), r#"{"action":"accept"}"#));
        }
        // The client declared no roots.
        assert_eq!(client.call(3, "roots", json!({})).await["result"]["isError"], true);
    }

    #[tokio::test]
    async fn a_modern_client_gets_input_requests_in_rounds() {
        let mut client = pipe(&ScriptedServer::new(Script::default()));
        let mut params = json!({ "name": "elicit", "arguments": { "rounds": 2 } });
        let mut answer = client.ask(modern(1, "tools/call", params.clone())).await;
        for round in ["round-1", "round-2"] {
            assert_eq!(answer["result"]["resultType"], "input_required");
            assert_eq!(answer["result"]["inputRequests"]["answer"]["method"], "elicitation/create");
            assert_eq!(answer["result"]["requestState"], round);
            params["requestState"] = json!(round);
            params["inputResponses"] = json!({ "answer": { "action": "decline" } });
            answer = client.ask(modern(2, "tools/call", params.clone())).await;
        }
        assert_eq!(text(&answer), r#"{"action":"decline"}"#);
        params["requestState"] = json!("forged");
        assert_eq!(client.ask(modern(3, "tools/call", params)).await["error"]["code"], -32602);
        let roots = client.ask(modern(4, "tools/call", json!({ "name": "roots" }))).await;
        assert_eq!(roots["error"]["data"], json!({ "requiredCapabilities": { "roots": {} } }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_polled_as_each_era_requires() {
        let mut client = pipe(&ScriptedServer::new(Script::default()));
        let params = json!({ "name": "task", "arguments": { "ms": 500 } });
        let task = client.ask(modern(1, "tools/call", params)).await["result"].clone();
        assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
        let get = modern(2, "tasks/get", json!({ "taskId": task["taskId"] }));
        assert_eq!(client.ask(get.clone()).await["result"]["status"], "working");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let done = client.ask(get).await["result"].clone();
        assert_eq!(done["status"], "completed");
        assert_eq!(done["result"]["content"][0]["text"], "the task is done");

        client.initialize(json!({})).await;
        assert_eq!(client.call(3, "task", json!({})).await["error"]["code"], -32601);
        let mut start = call(4, "task", json!({ "ms": 500 }));
        start["params"]["task"] = json!({ "ttl": 60_000 });
        let task = client.ask(start).await["result"]["task"].clone();
        assert_eq!(task["status"], "working");
        let result = client.ask(request(5, "tasks/result", json!({ "taskId": task["taskId"] }))).await;
        assert_eq!(text(&result), "the task is done");
    }

    #[tokio::test]
    async fn changes_reach_subscribers() {
        let scripted = ScriptedServer::new(Script::default());
        let mut legacy = pipe(&scripted);
        legacy.initialize(json!({})).await;
        legacy.ask(request(1, "resources/subscribe", json!({ "uri": "test://hello" }))).await;
        let mut listener = pipe(&scripted);
        let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://hello"] });
        let acknowledged = listener.ask(modern(7, "subscriptions/listen", json!({ "notifications": wanted }))).await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"], wanted);
        scripted.changed("prompts");
        scripted.changed("tools");
        scripted.touched("test://other");
        scripted.touched("test://hello");
        scripted.push(json!({ "jsonrpc": "2.0", "method": "notifications/odd" }));
        let tag = json!({ "io.modelcontextprotocol/subscriptionId": 7 });
        let changed = listener.next().await;
        assert_eq!(changed["method"], "notifications/tools/list_changed");
        assert_eq!(changed["params"]["_meta"], tag);
        assert_eq!(listener.next().await["params"], json!({ "uri": "test://hello", "_meta": tag }));
        assert_eq!(listener.next().await["method"], "notifications/odd");
        for method in ["prompts/list_changed", "tools/list_changed", "resources/updated", "odd"] {
            assert_eq!(legacy.next().await["method"], format!("notifications/{method}"));
        }
        scripted.end_listening();
        let end = listener.next().await;
        assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(7), &json!("complete")));
        legacy.send(&call(2, "grow", json!({ "name": "new" }))).await;
        let mut both = [legacy.next().await["method"].clone(), legacy.next().await["method"].clone()];
        both.sort_by_key(Value::is_null);
        assert_eq!(both, [json!("notifications/tools/list_changed"), Value::Null]);
        assert_eq!(text(&legacy.call(3, "new", json!({})).await), "grown");
    }

    #[tokio::test]
    async fn a_scripted_tool_returns_its_scripted_results() {
        let odd_result = json!({ "content": unusual::blocks(), "extra": 1 });
        let script = Script { extra_tools: unusual::tools(), builtin_tools: false, ..Script::default() }
            .tool(json!({ "name": "raw" }), odd_result.clone());
        let mut client = pipe(&ScriptedServer::new(script));
        client.initialize(json!({})).await;
        let listed = client.ask(request(1, "tools/list", json!({}))).await["result"]["tools"].clone();
        assert_eq!(listed.as_array().map(Vec::len), Some(unusual::tools().len() + 1));
        assert_eq!(listed[2], json!({ "name": "true_schema", "inputSchema": true }));
        assert_eq!(client.call(2, "raw", json!({})).await["result"], odd_result);
        assert_eq!(client.ask(echo(3)).await["error"]["code"], -32602);
    }

    #[tokio::test]
    async fn lists_are_paginated() {
        let scripted = ScriptedServer::new(Script { page_size: Some(2), ..Script::default() });
        let mut client = pipe(&scripted);
        client.initialize(json!({})).await;
        let mut seen = Vec::new();
        for paging in [PagingStyle::Honest, PagingStyle::NumericCursors, PagingStyle::Endless, PagingStyle::Repeated] {
            scripted.set(|script| script.paging = paging);
            let first = client.ask(request(1, "resources/list", json!({}))).await["result"].clone();
            let params = json!({ "cursor": first["nextCursor"] });
            let second = client.ask(request(2, "resources/list", params)).await["result"].clone();
            let count = second["resources"].as_array().map(Vec::len);
            seen.push(json!([first["nextCursor"], second["nextCursor"], count]));
        }
        let honest = [json!(["page-1", null, 1]), json!([1, null, 1])];
        assert_eq!(seen, [&honest[..], &[json!(["page-1", "page-2", 2]), json!(["page-1", "page-1", 2])]].concat());
        assert_eq!(client.ask(request(3, "tools/list", json!({ "cursor": "x" }))).await["error"]["code"], -32602);
    }

    #[tokio::test]
    async fn the_first_connection_dies_and_the_second_works() {
        let scripted =
            ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo").connection(1), Fault::exit()));
        for dies in [true, false] {
            let mut client = pipe(&scripted);
            client.initialize(json!({})).await;
            client.send(&echo(1)).await;
            assert_eq!(client.line().await.is_empty(), dies);
        }
        assert_eq!(scripted.connections(), 2);
        assert_eq!(scripted.received_of("tools/call").len(), 2);
    }

    #[tokio::test]
    async fn a_fault_only_triggers_at_its_count() {
        let fault = Fault::Error(json!({ "code": 1 }));
        let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo").nth(2), fault));
        let mut client = pipe(&scripted);
        client.initialize(json!({})).await;
        let mut failed = Vec::new();
        for id in 1..=3 {
            failed.push(client.ask(echo(id)).await.get("error").is_some());
        }
        assert_eq!(failed, [false, true, false]);
        scripted.set(|script| {
            script.faults = vec![FaultRule { on: FaultTrigger::any().first(1), fault: Fault::NoJsonrpc }]
        });
        assert!(client.ask(echo(4)).await.get("jsonrpc").is_none());
        assert!(client.ask(echo(5)).await.get("jsonrpc").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_and_late_responses_do_not_delay_others() {
        let script = Script::default()
            .fault(FaultTrigger::tool("echo").nth(1), Fault::Hang)
            .fault(FaultTrigger::tool("echo").nth(2), Fault::late(5000));
        let mut client = pipe(&ScriptedServer::new(script));
        client.initialize(json!({})).await;
        client.send(&echo(1)).await;
        let begin = tokio::time::Instant::now();
        assert_eq!(client.ask(echo(2)).await["id"], 2);
        assert!(begin.elapsed() >= Duration::from_secs(5));
        assert_eq!(client.ask(echo(3)).await["id"], 3);
    }

    #[tokio::test]
    async fn a_server_that_closed_its_output_still_reads() {
        let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo"), Fault::CloseOutput));
        let mut client = pipe(&scripted);
        client.initialize(json!({})).await;
        client.send(&echo(1)).await;
        assert_eq!(client.line().await, b"");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/x" })).await;
        scripted.wait_for("notifications/x", 1).await;
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_written_in_the_scripted_style() {
        let slow = WriteStyle { split: Some(3), pause_ms: 1, ..WriteStyle::default() };
        let script = Script { writing: slow, ..Script::default() }
            .fault(FaultTrigger::tool("echo"), StdoutNoise::Text("Server started".to_owned()))
            .fault(FaultTrigger::tool("echo"), StdoutNoise::Blank)
            .fault(FaultTrigger::tool("echo"), StdoutNoise::InvalidUtf8);
        let scripted = ScriptedServer::new(script);
        let mut client = pipe(&scripted);
        let begin = tokio::time::Instant::now();
        client.initialize(json!({})).await;
        assert!(begin.elapsed() >= Duration::from_millis(50), "slow bytes take time");
        scripted.set(|script| script.writing = WriteStyle { crlf: true, bom: true, ..WriteStyle::default() });
        client.send(&echo(1)).await;
        assert_eq!(client.line().await, b"Server started\n");
        assert_eq!(client.line().await, b"\n");
        assert!(String::from_utf8(client.line().await).is_err());
        let line = client.line().await;
        assert!(line.starts_with(b"\xef\xbb\xbf{") && line.ends_with(b"}\r\n"));
        scripted.set(|script| script.writing = WriteStyle { merge: Some(3), ..WriteStyle::default() });
        for id in 2..5 {
            client.send(&request(id, "ping", json!({}))).await;
        }
        let written = client.read.fill_buf().await.expect("bytes").to_vec();
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), 3, "one write for three answers");
    }

    #[tokio::test]
    async fn giant_responses_and_notifications_are_sent() {
        let script = Script::default()
            .fault(FaultTrigger::connect(), Fault::GiantUnasked { bytes: 3 << 20 })
            .fault(FaultTrigger::tool("echo"), Fault::Giant { bytes: 5 << 20 });
        let mut client = pipe(&ScriptedServer::new(script));
        assert!(client.line().await.len() > 3 << 20);
        client.initialize(json!({})).await;
        client.send(&echo(1)).await;
        assert!(client.line().await.len() > 5 << 20);
    }
}

#[test]
fn a_script_round_trips_through_json() {
    let script = Script::legacy()
        .fault(FaultTrigger::tool("echo").nth(2), Fault::late(5))
        .fault(FaultTrigger::method("GET"), HttpFault::Reset)
        .fault(FaultTrigger::connect().connection(1), StdoutNoise::Blank)
        .tool(json!({ "name": "x" }), json!({}));
    let text = serde_json::to_string(&script).expect("a script is JSON");
    assert_eq!(serde_json::from_str::<Script>(&text).expect("and back"), script);
    assert_eq!(serde_json::from_str::<Script>(r#"{"eras":"modern"}"#).expect("short"), Script::modern());
    assert!(serde_json::from_str::<Script>(r#"{"erass":"modern"}"#).is_err());
}

mod over_stdio {
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::scene::{Scene, scene};

    struct Child {
        child: tokio::process::Child,
        lines: Lines<tokio::process::ChildStdout, tokio::process::ChildStdin>,
    }

    fn spawn(scene: &Scene, script: &Script) -> Child {
        let server = ropeway::testing::stdio(script, env!("CARGO_BIN_EXE_scripted-server"));
        let mut child = tokio::process::Command::new(server.command)
            .args(server.args)
            .envs(scene.mark())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary is there");
        let (read, write) = (child.stdout.take().expect("stdout"), child.stdin.take().expect("stdin"));
        Child { child, lines: Lines { read: BufReader::new(read), write } }
    }

    async fn wait(child: &mut tokio::process::Child, patience: Duration) -> Option<i32> {
        let status = tokio::time::timeout(patience, child.wait()).await.ok()?.expect("a status");
        Some(status.code().unwrap_or(-1))
    }

    fn signal(signal: Signal, pid: u64) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).is_ok()
    }

    #[test]
    fn the_process_ends_with_its_input() {
        scene(|scene| async move {
            let mut server = spawn(&scene, &Script::default());
            server.lines.initialize(json!({})).await;
            assert_eq!(text(&server.lines.ask(echo(1)).await), "hi");
            drop(server.lines);
            assert_eq!(wait(&mut server.child, PATIENCE).await, Some(0));
        });
    }

    #[test]
    fn the_state_file_is_kept_across_restarts() {
        scene(|scene| async move {
            let folder = scene.directory();
            let state_file = Some(folder.join("state"));
            let record_file = Some(folder.join("record"));
            let script = Script { state_file, record_file, ..Script::default() }
                .fault(FaultTrigger::method("initialize").nth(1), Fault::exit())
                .fault(FaultTrigger::tool("echo").connection(3), Fault::ExitMidAnswer);
            let mut first = spawn(&scene, &script);
            first.lines.send(&request(0, "initialize", json!({}))).await;
            assert_eq!(first.lines.line().await, b"");
            assert_eq!(wait(&mut first.child, PATIENCE).await, Some(1));
            let mut second = spawn(&scene, &script);
            second.lines.initialize(json!({})).await;
            assert_eq!(text(&second.lines.ask(echo(1)).await), "hi");
            let mut third = spawn(&scene, &script);
            third.lines.initialize(json!({})).await;
            third.lines.send(&echo(1)).await;
            let half = third.lines.line().await;
            assert!(!half.is_empty() && !half.ends_with(b"\n"), "half an answer");
            let record = std::fs::read_to_string(folder.join("record")).expect("a record");
            assert_eq!(record.lines().count(), 7, "{record}");
        });
    }

    #[test]
    fn the_process_outlives_its_output() {
        scene(|scene| async move {
            let mut server = spawn(&scene, &Script::default().fault(FaultTrigger::tool("echo"), Fault::CloseOutput));
            server.lines.initialize(json!({})).await;
            server.lines.send(&echo(1)).await;
            assert_eq!(server.lines.line().await, b"");
            assert_eq!(wait(&mut server.child, Duration::from_millis(300)).await, None);
        });
    }

    #[test]
    fn a_flood_on_stderr_blocks_nothing() {
        scene(|scene| async move {
            let process = ProcessScript { stderr_bytes: 1 << 20, ..ProcessScript::default() };
            let script =
                Script { process, ..Script::default() }.fault(FaultTrigger::any(), Fault::Stderr { bytes: 1 << 20 });
            let mut server = spawn(&scene, &script);
            assert_eq!(server.lines.initialize(json!({})).await["id"], 0);
        });
    }

    #[test]
    fn a_process_that_ignores_sigterm_has_to_be_killed() {
        scene(|scene| async move {
            let grandchild = Some(Grandchild::HoldingPipes);
            let process = ProcessScript {
                ignore_eof: true,
                ignore_sigterm: true,
                grandchild,
                lifetime_ms: 20_000,
                ..ProcessScript::default()
            };
            let mut server = spawn(&scene, &Script { process, ..Script::default() });
            server.lines.initialize(json!({})).await;
            let pids = server.lines.call(1, "pid", json!({})).await["result"]["structuredContent"].clone();
            let pid = server.child.id().expect("it runs").into();
            assert_eq!(pids["server"], pid);
            let grandchild = pids["grandchild"].as_u64().expect("a grandchild");
            let Lines { mut read, write } = server.lines;
            drop(write);
            signal(Signal::TERM, pid);
            let ended = wait(&mut server.child, Duration::from_millis(500)).await;
            assert_eq!(ended, None, "neither the end of its input nor SIGTERM ends it");
            server.child.kill().await.expect("SIGKILL does");
            signal(Signal::TERM, grandchild);
            let mut rest = Vec::new();
            let held = tokio::time::timeout(Duration::from_millis(500), read.read_to_end(&mut rest)).await;
            assert!(held.is_err(), "the grandchild holds the pipe open");
            assert!(signal(Signal::KILL, grandchild));
            // The `sleep 1` of its shell may hold the pipe a moment longer.
            tokio::time::timeout(PATIENCE, read.read_to_end(&mut rest)).await.expect("it is free now").expect("bytes");
        });
    }

    #[test]
    fn the_binary_serves_http_and_prints_its_url() {
        scene(|scene| async move {
            let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_scripted-server"))
                .args(["--http", "0", r#"{"http":{"sessions":false,"answers":"json"}}"#])
                .envs(scene.mark())
                .stdout(std::process::Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .expect("the binary is there");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).await.expect("a URL");
            let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
            let stream = TcpStream::connect(address.expect("a URL")).await.expect("it listens");
            let mut stream = BufReader::new(stream);
            over_http::write(&mut stream, "POST", "/mcp", &over_http::POST, &echo(1).to_string()).await;
            assert_eq!(text(&over_http::reply(&mut stream).await.expect("a reply").json()), "hi");
            let crash = call(2, "crash", json!({})).to_string();
            over_http::write(&mut stream, "POST", "/mcp", &over_http::POST, &crash).await;
            assert_eq!(wait(&mut child, PATIENCE).await, Some(1));
        });
    }
}

mod over_http {
    use super::*;

    type Stream = BufReader<TcpStream>;

    /// A response with its body, chunks joined.
    #[derive(Debug)]
    pub(crate) struct Reply {
        status: u16,
        head: String,
        body: String,
    }

    impl Reply {
        fn header(&self, name: &str) -> Option<&str> {
            let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
            headers.find(|(key, _)| *key == name).map(|(_, value)| value)
        }

        pub(crate) fn json(&self) -> Value {
            serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON in {self:?}"))
        }

        fn events(&self) -> Vec<Value> {
            let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
            data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
        }

        /// Returns the last message, from an event stream or a body.
        fn answer(&self) -> Value {
            match self.header("Content-Type") {
                Some("text/event-stream") => self.events().pop().expect("an event"),
                _ => self.json(),
            }
        }
    }

    fn port(server: &HttpScriptedServer) -> u16 {
        let url = server.url();
        url.trim_start_matches("http://127.0.0.1:").trim_end_matches("/mcp").parse().expect("a port")
    }

    async fn connect(server: &HttpScriptedServer) -> Stream {
        BufReader::new(TcpStream::connect(("127.0.0.1", port(server))).await.expect("it listens"))
    }

    pub(crate) async fn write(stream: &mut Stream, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.expect("it reads");
    }

    async fn head(stream: &mut Stream) -> Option<(u16, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = tokio::time::timeout(PATIENCE, stream.read_line(&mut head)).await.expect("a head in time");
            if read.ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, head.replace("\r\n", "\n")))
    }

    async fn chunk(stream: &mut Stream) -> Option<String> {
        let mut size = String::new();
        tokio::time::timeout(PATIENCE, stream.read_line(&mut size)).await.expect("a chunk in time").ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut bytes = vec![0; size + 2];
        stream.read_exact(&mut bytes).await.ok()?;
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).expect("UTF-8"))
    }

    /// Reads a complete response; `None` if the connection breaks.
    pub(crate) async fn reply(stream: &mut Stream) -> Option<Reply> {
        let (status, head) = head(stream).await?;
        let mut reply = Reply { status, head, body: String::new() };
        if reply.header("Transfer-Encoding").is_some() {
            while let Some(chunk) = chunk(stream).await {
                reply.body += &chunk;
            }
        } else {
            let length = reply.header("Content-Length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes).await.ok()?;
            reply.body = String::from_utf8(bytes).expect("UTF-8");
        }
        Some(reply)
    }

    pub(crate) const POST: [(&str, &str); 2] =
        [("Accept", "application/json, text/event-stream"), ("Content-Type", "application/json")];

    async fn try_post(server: &HttpScriptedServer, headers: &[(&str, &str)], message: &Value) -> Option<Reply> {
        let mut stream = connect(server).await;
        write(&mut stream, "POST", "/mcp", &[&POST, headers].concat(), &message.to_string()).await;
        reply(&mut stream).await
    }

    async fn post(server: &HttpScriptedServer, headers: &[(&str, &str)], message: &Value) -> Reply {
        try_post(server, headers, message).await.expect("a reply")
    }

    async fn initialize(server: &HttpScriptedServer) -> String {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} } });
        let hello = post(server, &[], &request(0, "initialize", params)).await;
        assert_eq!(hello.answer()["result"]["protocolVersion"], "2025-06-18");
        hello.header("Mcp-Session-Id").expect("a session").to_owned()
    }

    async fn post_modern(server: &HttpScriptedServer, extra: &[(&str, &str)], message: &Value) -> Reply {
        let method = message["method"].as_str().expect("a method");
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        post(server, &[&headers, extra].concat(), message).await
    }

    async fn start(script: Script) -> HttpScriptedServer {
        HttpScriptedServer::start(script).await.expect("a free port")
    }

    fn with_http(http: HttpScript) -> Script {
        Script { http, ..Script::default() }
    }

    #[tokio::test]
    async fn a_legacy_session_lasts_from_initialize_to_delete() {
        for answers in [ResponseFormat::Sse, ResponseFormat::Json] {
            let server = start(with_http(HttpScript { answers, ..HttpScript::default() })).await;
            let session = initialize(&server).await;
            let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            assert_eq!(post(&server, &headers, &initialized).await.status, 202);
            // Several requests share one connection.
            let mut stream = connect(&server).await;
            for id in 1..4 {
                write(&mut stream, "POST", "/mcp", &[&POST[..], &headers].concat(), &echo(id).to_string()).await;
                assert_eq!(text(&reply(&mut stream).await.expect("a reply").answer()), "hi");
            }
            assert_eq!(post(&server, &[], &echo(4)).await.status, 400);
            let bad_version = [headers[0], ("MCP-Protocol-Version", "1999-01-01")];
            assert_eq!(post(&server, &bad_version, &echo(5)).await.status, 400);
            write(&mut stream, "DELETE", "/mcp", &headers, "").await;
            assert_eq!(reply(&mut stream).await.expect("a reply").status, 200);
            assert_eq!(post(&server, &headers, &echo(6)).await.status, 404);
            let last = server.requests().pop().expect("a request");
            assert_eq!(last.header("mcp-session-id"), Some(session.as_str()));
        }
    }

    #[tokio::test]
    async fn requests_to_the_client_use_the_stream_of_the_call() {
        let server = start(Script::default()).await;
        let session = initialize(&server).await;
        let headers = [("Mcp-Session-Id", session.as_str())];
        let mut stream = connect(&server).await;
        let elicit = call(1, "elicit", json!({})).to_string();
        write(&mut stream, "POST", "/mcp", &[&POST[..], &headers].concat(), &elicit).await;
        head(&mut stream).await.expect("a head");
        let event = chunk(&mut stream).await.expect("a question");
        assert!(event.contains("elicitation/create"), "{event}");
        let answer = json!({ "jsonrpc": "2.0", "id": "question-1", "result": { "action": "cancel" } });
        assert_eq!(post(&server, &headers, &answer).await.status, 202);
        assert!(chunk(&mut stream).await.expect("the answer").contains("cancel"));
        assert_eq!(chunk(&mut stream).await, None);
    }

    #[tokio::test]
    async fn notifications_use_the_get_stream() {
        let server = start(Script::default()).await;
        let session = initialize(&server).await;
        server.changed("tools");
        let mut stream = connect(&server).await;
        let headers = [("Accept", "text/event-stream"), ("Mcp-Session-Id", &session)];
        write(&mut stream, "GET", "/mcp", &headers, "").await;
        assert_eq!(head(&mut stream).await.expect("a head").0, 200);
        assert!(chunk(&mut stream).await.expect("an event").contains("tools/list_changed"));
        server.push(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
        assert!(chunk(&mut stream).await.expect("an event").contains("ping"));
        server.set(|script| script.http.get_stream = false);
        let mut stream = connect(&server).await;
        write(&mut stream, "GET", "/mcp", &headers, "").await;
        assert_eq!(reply(&mut stream).await.expect("a reply").status, 405);
    }

    #[tokio::test]
    async fn the_modern_era_checks_its_headers() {
        let server = start(Script::default()).await;
        let hello = post_modern(&server, &[], &modern(1, "server/discover", json!({}))).await;
        assert_eq!(hello.answer()["result"]["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(hello.header("Mcp-Session-Id"), None);
        let echo = modern(2, "tools/call", json!({ "name": "echo", "arguments": { "message": "hi" } }));
        assert_eq!(text(&post_modern(&server, &[("Mcp-Name", "echo")], &echo).await.answer()), "hi");
        assert_eq!(text(&post_modern(&server, &[("Mcp-Name", "=?base64?ZWNobw==?=")], &echo).await.answer()), "hi");
        for wrong in [vec![], vec![("Mcp-Name", "add")]] {
            let refused = post_modern(&server, &wrong, &echo).await;
            assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(-32020)));
        }
        assert_eq!(post(&server, &[("MCP-Protocol-Version", "2026-07-28")], &echo).await.status, 400);
        let locate = modern(3, "tools/call", json!({ "name": "locate", "arguments": { "region": "eu" } }));
        assert_eq!(post_modern(&server, &[("Mcp-Name", "locate")], &locate).await.status, 400);
        let headers = [("Mcp-Name", "locate"), ("Mcp-Param-Region", "eu")];
        assert_eq!(text(&post_modern(&server, &headers, &locate).await.answer()), "eu");
        assert_eq!(post_modern(&server, &[], &modern(4, "no/such", json!({}))).await.status, 404);
        server.set(|script| script.eras = SupportedEras::Modern);
        let refused = post(&server, &[], &request(5, "initialize", json!({ "protocolVersion": "2025-11-25" }))).await;
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(-32022)));
        server.set(|script| script.eras = SupportedEras::Legacy);
        let refused = post_modern(&server, &[], &modern(6, "server/discover", json!({}))).await;
        assert_eq!((refused.status, refused.json().get("id")), (400, None));
    }

    #[tokio::test]
    async fn a_modern_subscription_ends_when_the_client_disconnects() {
        let server = start(Script::default()).await;
        let listen = modern(1, "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
        let mut stream = connect(&server).await;
        write(&mut stream, "POST", "/mcp", &[&POST[..], &headers].concat(), &listen.to_string()).await;
        head(&mut stream).await.expect("a head");
        assert!(chunk(&mut stream).await.expect("an event").contains("acknowledged"));
        server.changed("prompts");
        server.changed("tools");
        assert!(chunk(&mut stream).await.expect("an event").contains("tools/list_changed"));
        drop(stream);
        for _ in 0..500 {
            if server.cancelled() == [json!(1)] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("leaving was not noticed");
    }

    #[tokio::test]
    async fn a_session_is_unknown_after_a_restart() {
        for (unknown_session, status) in [(UnknownSession::BadRequest, 400), (UnknownSession::NotFound, 404)] {
            let server = start(with_http(HttpScript { unknown_session, ..HttpScript::default() })).await;
            let session = initialize(&server).await;
            server.restart().await.expect("the same port");
            let refused = post(&server, &[("Mcp-Session-Id", &session)], &echo(1)).await;
            assert_eq!(refused.status, status);
            assert_eq!(refused.json().get("id").is_none(), status == 400);
            assert_eq!(server.connections(), 2);
            initialize(&server).await;
        }
    }

    #[tokio::test]
    async fn legacy_sse_answers_on_its_only_stream() {
        let server =
            start(with_http(HttpScript { offers: OfferedTransports::LegacySse, ..HttpScript::default() })).await;
        assert_eq!(post(&server, &[], &request(0, "initialize", json!({}))).await.status, 405);
        for path in ["/sse", "/mcp"] {
            let mut stream = connect(&server).await;
            write(&mut stream, "GET", path, &[("Accept", "text/event-stream")], "").await;
            head(&mut stream).await.expect("a head");
            let endpoint = chunk(&mut stream).await.expect("an event");
            let endpoint = endpoint.strip_prefix("event: endpoint\ndata: ").expect("the endpoint").trim();
            let mut poster = connect(&server).await;
            let hello = request(0, "initialize", json!({ "protocolVersion": "2024-11-05", "capabilities": {} }));
            for message in [hello, echo(1)] {
                write(&mut poster, "POST", endpoint, &POST, &message.to_string()).await;
                assert_eq!(reply(&mut poster).await.expect("a reply").status, 202);
            }
            assert!(chunk(&mut stream).await.expect("an event").contains("2024-11-05"));
            assert!(chunk(&mut stream).await.expect("an event").contains(r#""text":"hi""#));
        }
    }

    #[tokio::test]
    async fn http_faults_are_applied() {
        let server =
            start(with_http(HttpScript { sessions: false, answers: ResponseFormat::Json, ..HttpScript::default() }))
                .await;
        let spoil = async |fault: Fault| {
            server.set(|script| script.faults = vec![FaultRule { on: FaultTrigger::tool("echo"), fault }]);
            try_post(&server, &[], &echo(1)).await
        };
        assert_eq!(text(&post(&server, &[], &echo(1)).await.json()), "hi");
        let date = "Fri, 31 Jul 2099 00:00:00 GMT";
        let busy = spoil(Fault::header_status(429, "Retry-After", date)).await.expect("a reply");
        assert_eq!((busy.status, busy.header("Retry-After")), (429, Some(date)));
        let page = spoil(Fault::status(500, "<h1>Sorry</h1>")).await.expect("a reply");
        assert_eq!((page.status, page.body.as_str()), (500, "<h1>Sorry</h1>"));
        assert_eq!(spoil(HttpFault::Accepted.into()).await.expect("a reply").status, 202);
        let lie = spoil(HttpFault::ContentType("text/html".to_owned()).into()).await.expect("a reply");
        assert_eq!((lie.header("Content-Type"), text(&lie.json())), (Some("text/html"), "hi"));
        assert!(spoil(HttpFault::Reset.into()).await.is_none());
        assert!(spoil(HttpFault::Truncate.into()).await.is_none());
        assert!(spoil(HttpFault::ResetAfterHead.into()).await.is_none());
        assert_eq!(spoil(HttpFault::SlowHead { ms: 1 }.into()).await.expect("a reply").status, 200);
        assert!(spoil(Fault::exit()).await.is_none());
        let elsewhere = spoil(Fault::redirect(307, "/moved/mcp")).await.expect("a reply");
        assert_eq!((elsewhere.status, elsewhere.header("Location")), (307, Some("/moved/mcp")));
        server.set(|script| script.faults.clear());
        let mut stream = connect(&server).await;
        write(&mut stream, "POST", "/moved/mcp", &POST, &echo(1).to_string()).await;
        assert_eq!(text(&reply(&mut stream).await.expect("a reply").json()), "hi");
        server.set(|script| script.http.chunked = true);
        assert_eq!(text(&post(&server, &[], &echo(1)).await.json()), "hi");
        server.set(|script| script.http.answers = ResponseFormat::Sse);
        let idless = spoil(Fault::idless_error(-32000, "lost")).await.expect("a reply").answer();
        assert_eq!(idless, json!({ "jsonrpc": "2.0", "error": { "code": -32000, "message": "lost" } }));
        assert_eq!(spoil(HttpFault::Truncate.into()).await.expect("a head").body, "");
    }

    #[tokio::test]
    async fn the_server_restarts_after_a_crash_during_a_response() {
        let script = with_http(HttpScript { sessions: false, ..HttpScript::default() });
        let server = start(script.fault(FaultTrigger::tool("echo").connection(1), Fault::ExitMidAnswer)).await;
        let half = post(&server, &[], &echo(1)).await.body;
        assert!(half.starts_with('{') && !half.ends_with('}'), "{half}");
        assert_eq!(text(&post(&server, &[], &echo(2)).await.answer()), "hi");
        assert_eq!(server.connections(), 2);
    }

    #[tokio::test]
    async fn a_session_expires_between_requests() {
        let server = start(Script::default().fault(FaultTrigger::tool("echo").nth(2), HttpFault::ForgetSession)).await;
        let session = initialize(&server).await;
        let mut statuses = Vec::new();
        for id in 1..=3 {
            statuses.push(post(&server, &[("Mcp-Session-Id", &session)], &echo(id)).await.status);
        }
        assert_eq!(statuses, [200, 404, 404]);
    }

    #[tokio::test]
    async fn a_cut_stream_can_be_resumed() {
        let cut = HttpFault::CutStream { after: 0, retry_ms: 10, resumable: true };
        let server = start(Script::default().fault(FaultTrigger::tool("sleep"), cut)).await;
        let session = initialize(&server).await;
        let headers = [("Mcp-Session-Id", session.as_str())];
        let begun = post(&server, &headers, &call(1, "sleep", json!({ "ms": 50 }))).await;
        assert_eq!(begun.events(), Vec::<Value>::new());
        assert!(begun.body.contains("retry: 10\n"), "{}", begun.body);
        let id = begun.body.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id");
        let mut stream = connect(&server).await;
        write(&mut stream, "GET", "/mcp", &[("Last-Event-ID", id), headers[0]], "").await;
        assert_eq!(text(&reply(&mut stream).await.expect("the rest").answer()), "slept 50 ms");
    }

    #[tokio::test]
    async fn comments_are_sent_on_idle_streams() {
        let http = HttpScript { comment_every_ms: Some(5), sessions: false, ..HttpScript::default() };
        let server = start(with_http(http).fault(FaultTrigger::tool("echo"), Fault::Hang)).await;
        let mut stream = connect(&server).await;
        write(&mut stream, "POST", "/mcp", &POST, &echo(1).to_string()).await;
        head(&mut stream).await.expect("a head");
        for _ in 0..5 {
            assert_eq!(chunk(&mut stream).await.as_deref(), Some(": still here\n\n"));
        }
    }
}
