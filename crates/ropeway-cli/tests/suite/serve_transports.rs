//! `ropeway serve` on a Unix socket, standard input and output and legacy HTTP+SSE, and without free file descriptors.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process_marker::signal;
use crate::serve::{MODERN, PATIENCE, Serving, entry, json_of};
use crate::temp_home::TempHome;

/// Waits until a condition is true.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the members of a modern request.
fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn calculate(expression: &str) -> Value {
    json!({"name": "calculate", "arguments": {"expression": expression}})
}

/// Calculates over HTTP on a Unix socket.
fn calculated(socket: &Path, expression: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let body = modern(1, "tools/call", calculate(expression)).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: calculate\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let body = text.split_once("\r\n\r\n").expect("a body").1;
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
    answer["result"]["content"][0]["text"].clone()
}

fn on_socket(temp_home: &TempHome, socket: &Path) -> Serving {
    Serving::start(temp_home.ropeway(&["serve", "--listen", &format!("unix:{}", socket.display()), "--json"]))
}

#[test]
fn a_unix_socket_belongs_to_its_owner() {
    let temp_home = TempHome::with(&[entry("a")]);
    let socket = temp_home.path().join("gateway.sock");
    let serving = on_socket(&temp_home, &socket);
    assert_eq!(serving.url, format!("unix:{}", socket.display()));
    let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(calculated(&socket, "6*7"), "42");
    // A second gateway leaves the socket to the first one.
    let run = temp_home.ropeway(&["serve", "--listen", &format!("unix:{}", socket.display())]).run().expect(3);
    assert!(run.stderr.contains(&format!("could not listen on `{}`", socket.display())), "{}", run.stderr);
    assert!(run.stderr.contains("another program listens on the socket"), "{}", run.stderr);
    assert_eq!(calculated(&socket, "1+1"), "2");
    serving.end().expect(0);
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn a_stale_socket_is_replaced_and_other_files_are_not() {
    let temp_home = TempHome::with(&[entry("a")]);
    let socket = temp_home.path().join("gateway.sock");
    let killed = on_socket(&temp_home, &socket);
    assert_eq!(calculated(&socket, "6*7"), "42");
    let id = killed.running.child.id();
    signal("KILL", id);
    // Its server ends with its input.
    until("the end of the server", || killed.running.others().is_empty());
    assert_eq!(killed.running.end().code, None);
    assert!(socket.exists());
    let serving = on_socket(&temp_home, &socket);
    assert_eq!(calculated(&socket, "1+1"), "2");
    serving.end().expect(0);
    std::fs::write(&socket, "precious").expect("a file");
    let run = temp_home.ropeway(&["serve", "--listen", &format!("unix:{}", socket.display())]).run().expect(3);
    assert!(run.stderr.contains("could not listen on"), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&socket).expect("a file"), "precious");
}

#[test]
fn standard_input_serves_both_eras() {
    let temp_home = TempHome::with(&[entry("a")]);
    let stdio = temp_home.ropeway(&["serve", "--stdio"]).with(|command| {
        command.stdin(Stdio::piped());
    });
    let mut running = stdio.start();
    let mut input = running.child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(running.child.stdout.take().expect("a pipe")).lines();
    let mut ask = |message: Value| {
        writeln!(input, "{message}").expect("a request");
        loop {
            let line = lines.next().expect("a line").expect("text");
            let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if answer["id"] == message["id"] && answer.get("method").is_none() {
                return answer;
            }
        }
    };
    let discovered = ask(modern(1, "server/discover", json!({})));
    assert_eq!(discovered["result"]["supportedVersions"], json!([MODERN]), "{discovered}");
    let answer = ask(modern(2, "tools/call", calculate("6*7")));
    assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let early = ask(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": calculate("1")}));
    assert_eq!(early["error"]["code"], -32600, "{early}");
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    let hello = ask(json!({"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": hello}));
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18", "{hello}");
    let answer = ask(json!({"jsonrpc": "2.0", "id": "five", "method": "tools/call", "params": calculate("1+1")}));
    assert_eq!(answer["result"]["content"][0]["text"], "2", "{answer}");
    assert_eq!(answer["result"].get("resultType"), None, "{answer}");
    // Both eras alternate on one pipe.
    let answer = ask(modern(6, "tools/call", calculate("2+2")));
    assert_eq!(answer["result"]["content"][0]["text"], "4", "{answer}");
    drop(input);
    running.end().expect(0);
}

#[test]
fn legacy_sse_clients_call_tools() {
    let temp_home = TempHome::with(&[entry("a"), entry("b")]);
    let serving = Serving::in_place(&temp_home, &[]);
    let sse = format!("http://{}/sse", serving.address());
    let client = TempHome::new();
    for (url, tool) in [(sse.clone(), "b_calculate"), (format!("{sse}/a"), "calculate")] {
        for transport in ["sse", "auto"] {
            let words = ["call", tool, "expression=6*7", "--url", &url, "--transport", transport];
            let run = client.ropeway(&words).run().expect(0);
            assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""), "{url} {transport}");
        }
    }
    serving.end().expect(0);
}

#[test]
fn a_gateway_without_free_file_descriptors_recovers() {
    let temp_home = TempHome::with(&[entry("a")]);
    let script = "ulimit -n 48; exec \"$0\" serve --listen 127.0.0.1:0 --json";
    let words = ["-c", script, env!("CARGO_BIN_EXE_ropeway")];
    let serving = Serving::start(temp_home.of(Path::new("/bin/sh"), &words));
    assert!(serving.tools().contains(&"calculate".to_owned()));
    let address = serving.address().to_owned();
    // More connections than it has file descriptors; those that it cannot accept wait in the queue.
    let connections: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    let folder = format!("/proc/{}/fd", serving.running.child.id());
    until("no free file descriptor", || std::fs::read_dir(&folder).is_ok_and(|files| files.count() >= 47));
    let before = cpu_ticks(serving.running.child.id());
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let (used, passed) = (cpu_ticks(serving.running.child.id()) - before, began.elapsed());
    // It waits between two attempts, instead of using the whole processor (100 ticks per second).
    assert!(u128::from(used) * 10 < passed.as_millis() / 2, "{used} ticks in {passed:?}");
    drop(connections);
    let answer = json_of(serving.call("calculate", json!({"expression": "6*7"})));
    assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    let run = serving.end().expect(0);
    assert!(!run.stderr.contains("panic"), "{}", run.stderr);
}

/// Returns the processor time of a process, in hundredths of a second.
fn cpu_ticks(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    [11, 12].iter().map(|at: &usize| fields[*at].parse::<u64>().expect("a number")).sum()
}
