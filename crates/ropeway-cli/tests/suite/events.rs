//! `ropeway events`: live events.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpListener;
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use ropeway_testing::Script;
use serde_json::{Value, json};

use crate::Running;
use crate::process_marker::signal;
use crate::temp_home::{TempHome, entry};

/// A running command that prints one event per line.
pub(crate) struct Following {
    pub(crate) running: Running,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Following {
    pub(crate) fn start(temp_home: &TempHome, typed: &[&str]) -> Self {
        // Without the limit, a failing test would wait forever for a missing line. Real servers may need minutes on a busy machine.
        let mut running = temp_home.ropeway(&[typed, &["--timeout", "300s"]].concat()).start();
        let lines = BufReader::new(running.child.stdout.take().expect("output")).lines();
        Self { running, lines }
    }

    /// Returns the next matching line.
    pub(crate) fn until(&mut self, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if is_wanted(&line) {
                return line;
            }
            seen.push(line);
        }
        panic!("it never came:\n{}", seen.join("\n"));
    }

    /// Sends SIGTERM and returns the lines that follow.
    fn terminate(mut self) -> Vec<String> {
        signal("TERM", self.running.child.id());
        let rest = self.lines.by_ref().map_while(Result::ok).collect();
        assert_eq!(self.running.child.wait().expect("an end").code(), Some(143));
        rest
    }

    /// Sends SIGINT.
    pub(crate) fn end(mut self) {
        signal("INT", self.running.child.id());
        assert_eq!(self.running.child.wait().expect("an end").code(), Some(130));
    }
}

#[test]
fn the_end_of_the_command_itself_is_no_alarm() {
    let temp_home = TempHome::with(&[entry("web", &Script::default()), entry("other", &Script::default())]);
    let mut following = Following::start(&temp_home, &["events"]);
    following.until(|line| line.contains("web") && line.contains("ready"));
    following.until(|line| line.contains("other") && line.contains("ready"));
    let rest = following.terminate();
    assert!(!rest.iter().any(|line| line.contains('✗')), "{rest:?}");
}

#[test]
fn a_killed_server_restarts_and_a_changed_file_is_applied() {
    let temp_home = TempHome::with(&[entry("web", &Script::default())]);
    let mut following = Following::start(&temp_home, &["events"]);
    following.until(|line| line.ends_with("● web      ready, MCP 2026-07-28"));
    for server in following.running.others() {
        signal("KILL", server);
    }
    following.until(|line| line.contains("✗ web      down, retrying now: the process exited (signal: 9"));
    following.until(|line| line.ends_with("● web      ready, MCP 2026-07-28"));

    temp_home.configure(&[entry("web", &Script::default()), entry("new", &Script::default())]);
    following.until(|line| line.ends_with("● ropeway  configuration reloaded: started new"));
    temp_home.write("ropeway.yaml", "servers: [");
    following.until(|line| line.contains("◐ ropeway  configuration not reloaded, using the previous one: "));
    following.end();
}

#[test]
fn events_for_scripts_are_one_json_object_a_line() {
    let temp_home =
        TempHome::with(&[entry("web", &Script::default()), json!({"alias": "broken", "command": "/no/such"})]);
    let mut following = Following::start(&temp_home, &["events", "--json"]);
    let ready = following.until(|line| line.contains("server.ready"));
    let mut ready: Value = serde_json::from_str(&ready).expect("JSON");
    let time = ready.as_object_mut().expect("an object").remove("time");
    assert!(time.as_ref().and_then(Value::as_str).is_some_and(|time| time.ends_with('Z')), "{time:?}");
    assert_eq!(ready, json!({"event": "server.ready", "server": "web", "protocol_version": "2026-07-28"}));
    let down = following.until(|line| line.contains("server.down"));
    let down: Value = serde_json::from_str(&down).expect("JSON");
    assert_eq!(down["cause"], "could not start `/no/such`: No such file or directory (os error 2)");
    following.end();
}

#[test]
fn a_server_that_is_no_gateway_does_not_get_the_key() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let (sender, heads) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            let _ = sender.send(String::from_utf8_lossy(&head[..length]).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let temp_home = TempHome::new();
    let run = temp_home.ropeway(&["events", "--url", &url, "--timeout", "3s"]).with(|command| {
        command.env("ROPEWAY_KEY", "rw_secretkey");
    });
    run.run();
    let heads: Vec<String> = heads.try_iter().collect();
    assert!(heads.iter().any(|head| head.starts_with("GET /api/events")), "{heads:?}");
    assert!(heads.iter().all(|head| !head.contains("rw_secretkey")), "{heads:?}");
}

#[test]
fn events_end_when_their_time_is_over() {
    let temp_home = TempHome::with(&[entry("web", &Script::default())]);
    let run = temp_home.run("events web --timeout 1s").expect(0);
    assert!(run.stdout.contains("● web      ready"), "{}", run.stdout);
    assert_eq!(run.stderr, "");
}

#[test]
fn events_end_when_the_reader_closes_the_pipe() {
    let temp_home = TempHome::with(&[entry("web", &Script::default())]);
    let mut following = Following::start(&temp_home, &["events"]);
    following.until(|line| line.contains("ready"));
    let Following { mut running, lines } = following;
    let begun = Instant::now();
    drop(lines);
    assert_eq!(running.child.wait().expect("an end").code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
    assert_eq!(running.others(), Vec::<u32>::new());
}

#[test]
fn servers_without_events_are_listed_at_the_start() {
    let temp_home = TempHome::with(&[
        entry("web", &Script::default()),
        json!({"alias": "secretive", "command": "true", "args": ["${NO_SUCH_SECRET}"]}),
        json!({"alias": "off", "command": "true", "enabled": false}),
    ]);
    let mut following = Following::start(&temp_home, &["events"]);
    following.until(|line| line.ends_with("◐ off        disabled"));
    let skipped = "◐ secretive  server `secretive` is skipped: secret `NO_SUCH_SECRET` is not set";
    following.until(|line| line.ends_with(skipped));
    following.until(|line| line.ends_with("● web        ready, MCP 2026-07-28"));
    following.end();
}
