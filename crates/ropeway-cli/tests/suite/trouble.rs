//! Servers that are not there, do not answer, or do not let go.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::{Run, ropeway};

/// A server over HTTP that answers everything in one way.
fn http_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(32) {
            let mut stream = stream;
            let mut request = [0; 8192];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_server_that_cannot_be_started_ends_with_3_and_the_cause_once() {
    let run = Run::of(&["tools", "--stdio", "/no/such/program --flag"]).expect(3);
    assert_eq!(run.stdout, "");
    assert!(
        run.stderr
            .starts_with("error: server `program` is unavailable\n  caused by: could not start `/no/such/program`\n"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stderr.matches("could not start").count(), 1, "{}", run.stderr);
}

#[test]
fn a_server_that_dies_at_once_ends_with_3_and_its_last_words() {
    let run = Run::of(&["tools", "--stdio", "sh -c 'echo no licence >&2; exit 1'"]).expect(3);
    assert_eq!(run.stderr.matches("no licence").count(), 1, "{}", run.stderr);
}

#[test]
fn a_url_where_nobody_listens_ends_with_3() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", free.local_addr().expect("an address"));
    drop(free);
    Run::of(&["tools", "--url", &url, "--timeout", "10s"]).expect(3);
}

#[test]
fn a_server_that_asks_who_we_are_ends_with_4() {
    let url = http_server(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"here\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let run = Run::of(&["tools", "--url", &url, "--timeout", "10s"]).expect(4);
    assert!(run.stderr.contains("--bearer"), "{}", run.stderr);
}

#[test]
fn a_server_that_never_answers_ends_with_5_in_time() {
    let started = Instant::now();
    Run::of(&["tools", "--stdio", "sleep 60", "--timeout", "1s"]).expect(5);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn a_call_that_takes_too_long_ends_with_5_in_time() {
    let started = Instant::now();
    let run = Run::of(&["call", "countdown", "seconds=60", "--timeout", "1s"]).expect(5);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("within 1s"), "{}", run.stderr);
}

#[test]
fn a_server_that_ignores_every_signal_to_end_is_ended_in_time() {
    let stubborn = "sh -c 'trap \"\" TERM HUP INT; cat >/dev/null; sleep 60'";
    let started = Instant::now();
    Run::of(&["tools", "--stdio", stubborn, "--timeout", "1s"]).expect(5);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// A process that has ended but that nobody has asked about yet is not alive.
#[cfg(unix)]
fn is_alive(id: &str) -> bool {
    let found = std::process::Command::new("ps").args(["-o", "stat=", "-p", id]).output().expect("ps runs");
    let state = String::from_utf8_lossy(&found.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

#[cfg(unix)]
#[test]
fn an_interrupted_command_ends_its_server_and_says_so_by_its_exit_code() {
    for (signal, code, server) in [("INT", 130, "sleep 60"), ("TERM", 143, "sleep 60"), ("INT", 130, "exec yes")] {
        // The server tells its process id, and then never answers, or never ends to say something else.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pid");
        let server = format!("sh -c 'echo $$ > {}; {server}'", file.display());
        let mut child = ropeway(&["tools", "--stdio", &server])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ropeway starts");
        let started = Instant::now();
        let server_id = loop {
            match std::fs::read_to_string(&file) {
                Ok(id) if id.ends_with('\n') => break id.trim().to_owned(),
                _ if started.elapsed() > Duration::from_secs(10) => panic!("the server did not start"),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let told = std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(told.expect("kill runs").success());
        assert_eq!(child.wait().expect("an end").code(), Some(code));
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !is_alive(&server_id)
        });
        assert!(gone, "the server outlived the command");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = ropeway(&["tools"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ropeway starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("output")).read_line(&mut line).expect("a line");
    let run = Run::from(child.wait_with_output().expect("an end")).expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn words_of_a_server_cannot_command_the_terminal() {
    let run = Run::of(&["call", "fail", "message=\u{1b}[2J\u{1b}]0;owned\u{7}hidden\u{9b}31m text"]).expect(1);
    assert_eq!(run.stdout, "hidden text\n");
    let run = Run::of(&["call", "fail", "message=\u{9b}31m\u{1b}[2J", "--json"]).expect(1);
    assert!(!run.stdout.contains(['\u{9b}', '\u{1b}']), "{}", run.stdout);
    assert_eq!(run.json()["meta"]["content"][0]["text"], "\u{9b}31m\u{1b}[2J");
}
