//! Exit codes: `tools`, `health` and `doctor` agree about every kind of server that is not usable.

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::client_files::Home;
use crate::doctor::answering;
use crate::temp_home::entry;

/// Runs the commands for one server, alone in its file, and checks that all end with the same code.
fn agree(what: &str, server: &Value, more: &[&str], expected: i32) {
    let home = Home::with_config(&json!({ "servers": [server] }).to_string());
    for command in [&["tools"][..], &["tools", "s"], &["tools", "--json"], &["doctor"], &["doctor", "s"]] {
        let run = home.run(&[command, more].concat());
        assert_eq!(run.code, Some(expected), "{what}: {command:?}\n{}{}", run.stdout, run.stderr);
    }
}

#[test]
fn tools_and_doctor_end_with_the_same_code() {
    let url = |url: String| json!({"alias": "s", "url": url});
    let program = |program: &str| json!({"alias": "s", "command": program});
    agree("a missing program", &program("/no/such/program"), &[], 3);
    agree("a program that ends", &program("false"), &[], 3);
    agree("a missing folder", &json!({"alias": "s", "command": "cat", "cwd": "/no/such/folder"}), &[], 3);
    agree(
        "a program that is silent",
        &json!({"alias": "s", "command": "sleep", "args": ["1000"]}),
        &["--timeout", "2s"],
        5,
    );
    let refuse = |status: &'static str| url(format!("http://{}/mcp", answering(status)));
    agree("401", &refuse("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"), &[], 4);
    agree("403", &refuse("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"), &[], 4);
    let moved =
        "HTTP/1.1 302 Found\r\nlocation: https://example.com/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    agree("a redirect", &refuse(moved), &[], 3);
    agree("500", &refuse("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"), &[], 3);
    agree("nobody listens", &url("http://127.0.0.1:1/mcp".to_owned()), &[], 3);
    let secret = json!({"alias": "s", "command": "cat", "env": {"A": "${A_SECRET_THAT_IS_NOT_SET}"}});
    agree("a missing secret", &secret, &[], 2);
    agree("a server that is off", &json!({"alias": "s", "command": "cat", "enabled": false}), &[], 2);
    agree("an unknown key", &json!({"alias": "s", "comand": "cat"}), &[], 2);
    let refusing = Script::default()
        .fault(FaultTrigger::method("tools/list"), Fault::Error(json!({"code": -32000, "message": "not now"})));
    agree("tools that cannot be listed", &entry("s", &refusing), &[], 3);
    agree("a server that works", &entry("s", &Script::default()), &[], 0);
}
