//! `ropeway serve`: one endpoint for all servers, over HTTP and standard input and output.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client_files::{Home, demo};
use crate::process_marker::signal;
use crate::temp_home::{TRUST, TempHome};
use crate::{Ropeway, Run, Running};

/// Time limit on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MODERN: &str = "2026-07-28";

pub(crate) fn entry(alias: &str) -> Value {
    json!({"alias": alias, "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]})
}

/// A gateway that listens on a free port.
pub(crate) struct Serving {
    pub(crate) running: Running,
    pub(crate) url: String,
}

impl Serving {
    pub(crate) fn start(ropeway: Ropeway) -> Self {
        let mut running = ropeway.start();
        let mut line = String::new();
        let output = running.child.stdout.as_mut().expect("a pipe");
        BufReader::with_capacity(1, output).read_line(&mut line).expect("a line");
        let url = serde_json::from_str::<Value>(&line).ok().and_then(|line| Some(line["url"].as_str()?.to_owned()));
        let Some(url) = url else { panic!("{line}{}", running.end().stderr) };
        Self { running, url }
    }

    pub(crate) fn in_place(temp_home: &TempHome, more: &[&str]) -> Self {
        Self::start(temp_home.ropeway(&[&["serve", "--listen", "127.0.0.1:0", "--json"], more].concat()))
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL").0
    }

    /// Sends a request, whose response can be read from the returned stream.
    pub(crate) fn send(&self, headers: &[(&str, &str)], body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (path, body) =
            (self.url.split_once("127.0.0.1").expect("a URL").1.split_once('/').expect("a path").1, body.to_string());
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "POST /{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Connection: close\r\nContent-Length: {}\r\n{more}\r\n{body}",
            self.address(),
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("a request");
        stream
    }

    /// Sends a modern request.
    fn modern(&self, method: &str, name: Option<&str>, mut params: Value) -> TcpStream {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let mut headers = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        self.send(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value) -> TcpStream {
        self.modern("tools/call", Some(tool), json!({"name": tool, "arguments": arguments}))
    }

    pub(crate) fn tools(&self) -> Vec<String> {
        let list = json_of(self.modern("tools/list", None, json!({})));
        let tools = list["result"]["tools"].as_array().expect("tools").iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Ends the gateway with a signal.
    pub(crate) fn end(self) -> Run {
        signal("TERM", self.running.child.id());
        self.running.end()
    }
}

pub(crate) fn text_of(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}

pub(crate) fn json_of(stream: TcpStream) -> Value {
    let text = text_of(stream);
    let body = text.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn all_servers_are_one_endpoint_for_both_eras() {
    let temp_home = TempHome::with(&[entry("a"), entry("b")]);
    let serving = Serving::in_place(&temp_home, &[]);
    // A list waits for the servers.
    let tools = serving.tools();
    let answer = json_of(serving.call("b_calculate", json!({"expression": "6*7"})));
    assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    assert!(tools.contains(&"a_time".to_owned()) && tools.contains(&"b_time".to_owned()), "{tools:?}");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
    let hello = text_of(serving.send(&[], &hello));
    let session = hello.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.to_owned())
    });
    let session = session.unwrap_or_else(|| panic!("{hello}"));
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "a_calculate", "arguments": {"expression": "1+1"}}});
    let answer = json_of(serving.send(&[("Mcp-Session-Id", &session)], &call));
    assert_eq!(answer["result"]["content"][0]["text"], "2", "{answer}");
    let run = serving.end().expect(0);
    assert!(
        run.stderr.contains("/mcp (12 tools of 2 servers), page at http://")
            || run.stderr.contains("connected: 12 tools"),
        "{}",
        run.stderr
    );
    let keys = std::fs::metadata(temp_home.path().join(".local/state/ropeway/gateway/keys")).expect("keys");
    assert_eq!(keys.permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_a_configuration_the_demo_server_is_served_as_it_is() {
    let temp_home = TempHome::new();
    let serving = Serving::in_place(&temp_home, &[]);
    assert!(serving.tools().contains(&"calculate".to_owned()));
    serving.end().expect(0);
    let serving =
        Serving::in_place(&temp_home, &["--command", &format!("{} demo-server", env!("CARGO_BIN_EXE_ropeway"))]);
    assert!(serving.tools().contains(&"calculate".to_owned()));
    serving.end().expect(0);
}

#[test]
fn standard_output_carries_the_protocol_only() {
    let temp_home = TempHome::with(&[entry("a"), json!({"alias": "gone", "command": "/no/such/program"})]);
    let mut running = temp_home
        .ropeway(&["serve", "--stdio", "-v"])
        .with(|command| {
            command.stdin(Stdio::piped());
        })
        .start();
    let mut input = running.child.stdin.take().expect("a pipe");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    writeln!(input, "{hello}\n{list}").expect("requests");
    let mut lines = BufReader::new(running.child.stdout.take().expect("a pipe")).lines();
    let mut seen = Vec::new();
    while !seen.contains(&json!(2)) {
        let line = lines.next().expect("a line").expect("text");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        seen.push(message["id"].clone());
    }
    drop(input);
    running.end().expect(0);
    let run = temp_home.run("serve --stdio --json").expect(2);
    assert_eq!(run.stdout, "");
}

#[test]
fn a_port_in_use_names_its_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let run = Run::of(&["serve", "--listen", &address]).expect(3);
    assert!(run.stderr.contains(&format!("could not listen on `{address}`")), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("process {} (", std::process::id())), "{}", run.stderr);
    assert!(run.stderr.contains("try `--listen 127.0.0.1:0`"), "{}", run.stderr);
}

#[test]
fn an_address_of_other_machines_is_refused() {
    for address in ["0.0.0.0:8931", "[::]:8931", "192.0.2.1:8931"] {
        let run = Run::of(&["serve", "--listen", address]).expect(2);
        let words = format!("listening on `{address}` needs authentication");
        assert!(run.stderr.contains(&words), "{}", run.stderr);
        assert!(run.stderr.contains("try `--listen 127.0.0.1:8931`"), "{}", run.stderr);
    }
    let temp_home = TempHome::new();
    temp_home.write("ropeway.yaml", "gateway: {listen: 0.0.0.0:8931}\nservers: []\n");
    temp_home.run("serve").expect(2);
    let run = Run::of(&["serve", "--profile", "nothing"]).expect(2);
    assert!(run.stderr.contains("unknown profile or server `nothing`"), "{}", run.stderr);
}

#[test]
fn a_signal_lets_calls_in_progress_finish() {
    let temp_home = TempHome::with(&[entry("a")]);
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    let call = serving.call("countdown", json!({"seconds": 2}));
    std::thread::sleep(Duration::from_millis(700));
    let run = serving.end().expect(0);
    let answer = text_of(call);
    assert!(answer.contains("\"content\""), "{answer}\n{}", run.stderr);
}

#[test]
fn a_second_signal_ends_the_gateway_at_once() {
    let temp_home = TempHome::with(&[entry("a")]);
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    let _call = serving.call("countdown", json!({"seconds": 60}));
    std::thread::sleep(Duration::from_millis(500));
    let id = serving.running.child.id();
    signal("TERM", id);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    signal("INT", id);
    serving.running.end().expect(130);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_slow_server_does_not_delay_the_address() {
    let temp_home = TempHome::with(&[entry("a"), json!({"alias": "slow", "command": "sleep", "args": ["1000"]})]);
    let began = Instant::now();
    let serving = Serving::in_place(&temp_home, &[]);
    assert!(serving.tools().contains(&"a_calculate".to_owned()));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    std::thread::sleep(Duration::from_millis(500));
    let run = serving.end().expect(0);
    assert!(run.stderr.contains("1 connecting)"), "{}", run.stderr);
}

#[test]
fn a_broken_server_is_reported_once_at_the_start() {
    let temp_home = TempHome::with(&[json!({"alias": "broken", "command": "/no/such/program"}), entry("good")]);
    let run = temp_home.run("serve --listen 127.0.0.1:0 --timeout 3s").expect(0);
    let words = "warning: server `broken` is unavailable: could not start `/no/such/program`: ";
    assert!(run.stderr.contains(words), "{}", run.stderr);
    assert_eq!(run.stderr.matches("server `broken`").count(), 1, "{}", run.stderr);
}

#[test]
fn a_changed_project_file_is_not_loaded_until_it_is_trusted() {
    let home = Home::with_config(&format!("servers:\n{}", demo("a")));
    let untrusting = |arguments: &[&str]| {
        home.command(arguments).with(|command| {
            command.env_remove(TRUST);
        })
    };
    untrusting(&["trust"]).run().expect(0);
    let serving = Serving::start(untrusting(&["serve", "--listen", "127.0.0.1:0", "--json"]));
    assert!(serving.tools().contains(&"calculate".to_owned()));
    home.write("work/ropeway.yaml", &format!("servers:\n{}{}", demo("a"), demo("b")));
    std::thread::sleep(Duration::from_secs(2));
    assert!(serving.tools().contains(&"calculate".to_owned()), "the previous configuration stays in use");
    untrusting(&["trust"]).run().expect(0);
    let began = Instant::now();
    while !serving.tools().contains(&"b_calculate".to_owned()) {
        assert!(began.elapsed() < PATIENCE, "{:?}", serving.tools());
        std::thread::sleep(Duration::from_millis(100));
    }
    let run = serving.end().expect(0);
    assert!(
        run.stderr.contains("configuration not reloaded") && run.stderr.contains("is not trusted"),
        "{}",
        run.stderr
    );
}
