//! `ropeway top`, and the logs and metrics of a gateway that it reads.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process_marker::signal;
use crate::serve::{PATIENCE, Serving, entry, json_of};
use crate::temp_home::TempHome;
use crate::up::Background;

/// Returns a place whose gateway has these settings.
fn temp_home(gateway: &Value) -> TempHome {
    let temp_home = TempHome::new();
    temp_home.write("ropeway.yaml", &json!({"gateway": gateway, "servers": [entry("a"), entry("b")]}).to_string());
    temp_home
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_statistics_of_a_gateway_are_shown_by_its_url() {
    let temp_home = temp_home(&json!({}));
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    for _ in 0..3 {
        json_of(serving.call("a_calculate", json!({"expression": "6*7"})));
    }
    json_of(serving.call("b_calculate", json!({"expression": "6 *"})));
    let shown = temp_home.ropeway(&["top", &serving.url, "--once", "--json"]).run().expect(0).json();
    let rows = shown["operations"].as_array().expect("operations");
    let first = rows.iter().find(|row| row["server"] == "a" && row["name"] == "calculate").expect("a row");
    assert_eq!((&first["method"], &first["requests"], &first["errors"]), (&json!("tools/call"), &json!(3), &json!(0)));
    assert!(first["p50_ms"].as_f64() > Some(0.0) && first["p99_ms"].as_f64() >= first["p50_ms"].as_f64(), "{first}");
    let second = rows.iter().find(|row| row["server"] == "b" && row["name"] == "calculate").expect("a row");
    assert_eq!(second["errors"], 1, "{second}");
    assert_eq!(shown["servers"][0]["server"], "a");
    let text = temp_home.ropeway(&["top", &serving.url, "--once"]).run().expect(0).stdout;
    assert!(text.starts_with("up ") && text.contains("SERVER") && text.contains("calculate"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    serving.end().expect(0);
}

#[test]
fn a_live_view_prints_one_line_of_json_for_each_update() {
    let temp_home = temp_home(&json!({}));
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    let mut top = temp_home.ropeway(&["top", &serving.url, "--interval", "100ms", "--json"]).start();
    let mut output = BufReader::new(top.child.stdout.take().expect("a pipe"));
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let total = next();
    assert!(total["requests"].as_u64() >= Some(1), "{total}");
    json_of(serving.call("a_calculate", json!({"expression": "6*7"})));
    let is_counted = (0..200).any(|_| {
        next()["operations"]
            .as_array()
            .expect("rows")
            .iter()
            .any(|row| row["name"] == "calculate" && row["requests"] == 1)
    });
    assert!(is_counted);
    // The reader is gone.
    drop(output);
    assert_eq!(top.end().code, Some(0));
    serving.end().expect(0);
}

#[test]
fn the_gateway_in_the_background_is_shown_without_a_url() {
    let up = Background::new(&[entry("a")]);
    let run = up.run(&["top", "--once"]).expect(3);
    assert!(run.stderr.contains("no gateway is running") && run.stderr.contains("ropeway up"), "{}", run.stderr);
    up.run(&["up"]).expect(0);
    up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
    let shown = up.run(&["top", "--once", "--json"]).expect(0).json();
    let rows = shown["operations"].as_array().expect("operations");
    assert!(
        rows.iter().any(|row| row["server"] == "a" && row["name"] == "calculate" && row["requests"] == 1),
        "{shown}"
    );
}

#[test]
fn a_url_without_a_gateway_fails_with_the_reason() {
    let temp_home = TempHome::new();
    let run = temp_home.ropeway(&["top", "ftp://x", "--once"]).run().expect(2);
    assert!(run.stderr.contains("`ftp://x` is not an http:// or https:// URL"), "{}", run.stderr);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi").expect("a response");
    });
    let run = temp_home.ropeway(&["top", &url, "--once"]).run().expect(3);
    assert!(run.stderr.contains("is not a ropeway gateway"), "{}", run.stderr);
    answering.join().expect("no panic");
    let run = temp_home.ropeway(&["top", &url, "--once"]).run().expect(3);
    assert!(run.stderr.contains("could not read the statistics of"), "{}", run.stderr);
}

#[test]
fn a_hangup_opens_the_logs_again() {
    let temp_home = temp_home(&json!({"audit": {"file": "audit.jsonl"}, "access_log": {"file": "access.jsonl"}}));
    let (audit, access) = (temp_home.path().join("audit.jsonl"), temp_home.path().join("access.jsonl"));
    let serving = Serving::in_place(&temp_home, &[]);
    serving.tools();
    json_of(serving.call("a_calculate", json!({"expression": "6*7"})));
    until("lines", || lines(&audit).len() == 2 && lines(&access).len() == 2);
    for (path, name) in [(&audit, "audit.1"), (&access, "access.1")] {
        std::fs::rename(path, temp_home.path().join(name)).expect("renamed");
    }
    signal("HUP", serving.running.child.id());
    until("new files", || audit.exists() && access.exists());
    json_of(serving.call("b_calculate", json!({"expression": "1+1"})));
    serving.end().expect(0);
    let line = &lines(&audit)[0];
    assert_eq!([&line["server"], &line["tool"], &line["name"]], ["b", "calculate", "b_calculate"], "{line}");
    assert_eq!(lines(&access)[0]["path"], "/mcp");
    assert_eq!(lines(&temp_home.path().join("audit.1")).len(), 2);
}

#[test]
fn metrics_are_served_and_a_wrong_protocol_is_a_warning() {
    let temp_home = temp_home(&json!({}));
    let serve = temp_home.ropeway(&["serve", "--listen", "127.0.0.1:0", "--json"]).with(|command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    });
    let serving = Serving::start(serve);
    serving.tools();
    let mut stream = TcpStream::connect(serving.address()).expect("a connection");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a response");
    assert!(page.contains("ropeway_server_up{server=\"a\"} 1\n"), "{page}");
    let run = serving.end().expect(0);
    let warning =
        "warning: traces are not exported: `OTEL_EXPORTER_OTLP_PROTOCOL=grpc` is not supported; try `http/protobuf`";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
}
