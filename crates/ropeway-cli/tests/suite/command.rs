//! The commands, against the embedded demo server.

use std::io::Write as _;
use std::process::Stdio;

use ropeway_testing::{HttpScriptedServer, Script};
use serde_json::json;

use crate::{Ropeway, Run};

#[test]
fn without_a_command_the_demo_tools_are_shown() {
    let run = Run::of(&[]).expect(0);
    for words in [
        "calculate(expression: string)",
        "chart(values: number[], title?: string, kind?: \"bar\" | \"line\" = \"bar\")",
        "ropeway call calculate expression=",
        "ropeway add NAME -- COMMAND\n",
        "ropeway import\n",
        "ropeway tools --stdio",
        "ropeway tools --url",
    ] {
        assert!(run.stdout.contains(words), "{words}\n{}", run.stdout);
    }
    assert!(!run.stdout.contains('\u{1b}'), "colour into a pipe");
    assert_eq!(run.stderr, "");
}

#[test]
fn tools_are_listed_as_signatures_with_descriptions() {
    let run = Run::of(&["tools"]).expect(0);
    assert!(run.stdout.starts_with("demo "), "{}", run.stdout);
    assert!(run.stdout.contains("6 tools"));
    assert!(
        run.stdout.contains("time(zone?: string = \"UTC\")\n    Returns the current date and time"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 80), "{}", run.stdout);
    assert_eq!(run.stderr, "");
}

#[test]
fn tools_as_json_are_definitions_with_their_server() {
    for (era, version) in [("modern", "2026-07-28"), ("legacy", "2025-11-25")] {
        let list = Run::of(&["tools", "--json", "--era", era]).expect(0).json();
        let server = &list["servers"][0];
        assert_eq!((&server["server"], &server["name"]), (&json!("demo"), &json!("demo")));
        assert_eq!(server["status"], json!({"state": "ready", "outcome": "ready", "tools": 6}));
        // The former name of `status`.
        assert_eq!(server["verdict"], server["status"]);
        assert_eq!((&server["era"], &server["protocol_version"]), (&json!(era), &json!(version)));
        let names: Vec<&str> =
            server["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["calculate", "chart", "countdown", "fail", "statistics", "time"]);
        assert_eq!(server["tools"][0]["input_schema"]["required"], json!(["expression"]));
    }
}

#[test]
fn a_call_prints_the_text_of_the_answer() {
    let run = Run::of(&["call", "calculate", "expression=2*(3+4)"]).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("14\n", ""));
    let run = Run::of(&["call", "demo.calculate", "expression=1+1"]).expect(0);
    assert_eq!(run.stdout, "2\n");
}

#[test]
fn a_structured_answer_is_printed_once_as_the_text_of_the_tool() {
    let run = Run::of(&["call", "statistics", "values=[1, 2, 3]"]).expect(0);
    assert!(run.stdout.starts_with("{\"count\":3,"), "{}", run.stdout);
    assert_eq!(run.json()["mean"], 2.0);
}

#[test]
fn a_call_as_json_is_one_document_with_all_of_the_answer() {
    let result = Run::of(&["call", "statistics", "values=[1, 2, 3]", "--json"]).expect(0).json();
    assert_eq!((&result["tool"], &result["meta"]["is_error"]), (&json!("statistics"), &json!(false)));
    assert_eq!(result["origin"], json!({"server": "demo", "tool": "statistics"}));
    assert_eq!(result["data"]["count"], 3);
    let meta = result["meta"].as_object().expect("an object");
    assert!(!meta.contains_key("content") && !meta.contains_key("structured_content"), "{meta:?}");
    assert!(result["took_ms"].as_f64().is_some_and(|took| took > 0.0));
}

#[test]
fn arguments_come_from_pairs_objects_files_and_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("arguments.json");
    std::fs::write(&file, r#"{"expression": "1+2"}"#).expect("a file");
    let file = format!("@{}", file.display());
    for arguments in [
        &["expression=1+2"][..],
        &["expression:=\"1+2\""],
        &["--args", r#"{"expression": "1+2"}"#],
        &["--args", &file],
        &["--args", r#"{"expression": "7"}"#, "expression=1+2"],
        &[r#"{"expression": "1+2"}"#],
        &[r#"{"expression": "7"}"#, "expression=1+2"],
        &["expression=1+2", r#"{"expression": "7"}"#],
        &[&file],
    ] {
        let command = [&["call", "calculate"], arguments].concat();
        assert_eq!(Run::of(&command).expect(0).stdout, "3\n", "{arguments:?}");
    }
    for arguments in [&["--args", "-"][..], &["-"]] {
        let reading = Ropeway::new(&[&["call", "calculate"], arguments].concat()).with(|command| {
            command.stdin(Stdio::piped());
        });
        let mut running = reading.start();
        running.child.stdin.take().expect("input").write_all(br#"{"expression": "1+2"}"#).expect("ropeway reads");
        assert_eq!(running.end().expect(0).stdout, "3\n", "{arguments:?}");
    }
}

#[test]
fn an_object_behind_json_is_the_arguments_and_the_answer_is_json() {
    let envelope = Run::of(&["call", "calculate", "--json", r#"{"expression": "1+2"}"#]).expect(0).json();
    assert_eq!(envelope["data"], "3");
}

#[test]
fn pictures_are_named_by_size_and_kept_on_request() {
    let run = Run::of(&["call", "chart", "values=[3,1,2]"]).expect(0);
    let line = run.stdout.lines().last().expect("a line");
    assert!(line.starts_with("image/png, ") && line.ends_with("KB"), "{line}");
    assert!(run.stderr.contains("--save"), "{}", run.stderr);

    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("out");
    let save = target.display().to_string();
    for number in 1..=2 {
        let run = Run::of(&["call", "chart", "values=[3,1,2]", "kind=line", "--save", &save]).expect(0);
        let path = target.join(format!("chart-{number}.png"));
        assert!(run.stdout.contains(&format!("→ {}", path.display())), "{}", run.stdout);
        let reader = png::Decoder::new(std::io::Cursor::new(std::fs::read(path).expect("a file"))).read_info();
        assert_eq!(reader.expect("a PNG file").info().width, 640);
    }
    let run = Run::of(&["call", "chart", "values=[3]", "--json", "--save", &save]).expect(0);
    let path = target.join("chart-3.png").display().to_string();
    let result = run.json();
    assert_eq!(result["data"][1], json!({"type": "image", "mimeType": "image/png", "path": path}));
    assert_eq!(result["saved"], json!([path]));
    assert!(run.stderr.contains("chart-3.png"), "{}", run.stderr);
}

#[test]
fn a_tool_that_fails_ends_with_1() {
    let run = Run::of(&["call", "fail", "message=on purpose"]).expect(1);
    assert_eq!(run.stdout, "on purpose\n");
    let result = Run::of(&["call", "fail", "--json"]).expect(1).json();
    assert_eq!(result["meta"]["is_error"], true);
}

#[test]
fn misspelled_arguments_end_with_2_and_a_suggestion() {
    for (arguments, words) in [
        (&["call", "chrat", "values=[1]"][..], "did you mean `chart`?"),
        (&["call", "demo.tmie"], "did you mean `time`?"),
        (&["call", "chart"], "invalid arguments for tool `chart`\n  required property `values` is missing\n"),
        (&["call", "chart", "values=[]"], "\n  at `/values`: must have at least 1 item"),
        (&["call", "chart", "values=[1]", "kind=pie"], "\n  at `/kind`: must be one of"),
        (&["call", "chart", "--args", r#"{"values": "x", "titel": 1}"#], "at `/values`: must be an array"),
        (&["call", "chart", "values=x"], "invalid value `x` for argument `values`: expected `number[]`"),
        (&["call", "chart", "values=[1]", "titel=x"], "did you mean `title`?"),
        (&["call", "chart", "values"], "a JSON object '{…}', @FILE, or - for standard input"),
        (&["call", "chart", "{}", "@args.json"], "more than one JSON object of arguments"),
        (&["call", "chart", "@/no/such/file"], "could not read `/no/such/file`"),
        (&["call", "chart", "@/dev/zero"], "not a regular file"),
        (&["call", "chart", "{values: 1}"], "`{values: 1}` is not JSON"),
        (&["call", "chart", "--args", "[1]"], "expected an object"),
        (&["call"], "TOOL"),
        (&["tolos"], "tools"),
        (&["tools", "--timeout", "soon"], "such as `5s`"),
        (&["tools", "--stdio", "a", "--url", "http://b"], "cannot be used with"),
        (&["tools", "--header", "A: b"], "--url"),
        (&["tools", "--env", "A=b"], "--stdio"),
        (&["tools", "--find", " "], "--find needs a query"),
        (&["tools", "--url", "http://a", "--env", "A=b"], "'--url <URL>' cannot be used with '--env <NAME=VALUE>'"),
        (&["tools", "--url", "http://a", "--cwd", "/"], "cannot be used with"),
        (&["tools", "--stdio", "cat", "--bearer", "X"], "cannot be used with"),
        (&["tools", "--stdio", "cat", "--transport", "sse"], "cannot be used with"),
        (&["tools", "--config", "a.yaml", "--header", "A: b"], "cannot be used with"),
        (&["tools", "--config", "a.yaml", "time", "--env", "A=b"], "cannot be used with"),
        (&["tools", "--config", "a.yaml", "--inherit-env"], "cannot be used with"),
        (&["tools", "--url", "example.com"], "is not an http:// or https:// URL"),
        (&["tools", "--stdio", "a 'b"], "a quote that is not closed"),
    ] {
        let run = Run::of(arguments).expect(2);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn help_lists_the_exit_codes() {
    for arguments in [&["--help"][..], &["help"], &["-h"]] {
        let run = Run::of(arguments).expect(0);
        for words in ["Exit codes:", "4    server needs authentication", "130  interrupted", "\nGateway:\n  serve "] {
            assert!(run.stdout.contains(words), "{arguments:?}: {}", run.stdout);
        }
    }
    for arguments in [&["down", "--help"][..], &["call", "-h"]] {
        assert!(!Run::of(arguments).expect(0).stdout.contains("Exit codes:"), "{arguments:?}");
    }
    assert!(Run::of(&["--version"]).expect(0).stdout.starts_with("ropeway "));
}

#[test]
fn logs_go_to_standard_error_only() {
    let run = Run::of(&["call", "calculate", "expression=1", "-vv"]).expect(0);
    assert_eq!(run.stdout, "1\n");
}

#[test]
fn a_server_can_be_given_on_the_command_line() {
    let server = format!("'{}' demo-server", env!("CARGO_BIN_EXE_ropeway"));
    let run = Run::of(&["call", "calculate", "expression=1", "--stdio", &server]).expect(0);
    assert_eq!(run.stdout, "1\n");
    let list = Run::of(&["tools", "--json", "--stdio", &server, "--env", "A=b", "--inherit-env"]).expect(0).json();
    assert_eq!(list["servers"][0]["tools"].as_array().map(Vec::len), Some(6));
    assert_eq!(list["servers"][0]["server"], "ropeway");
}

#[test]
fn headers_and_the_token_reach_a_server_with_every_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "secret\n").expect("a file");
    let token = format!("@{}", file.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (transport, bearer) in [("http", "secret"), ("auto", &token), ("sse", &token)] {
            let server = HttpScriptedServer::start(Script::default()).await.expect("a free port");
            let url = if transport == "sse" { server.sse_url() } else { server.url() };
            let (transport, bearer) = (transport.to_owned(), bearer.to_owned());
            let run = tokio::task::spawn_blocking(move || {
                let to = ["--url", &url, "--transport", &transport, "--bearer", &bearer];
                let headers = ["--header", "X-One: 1", "--header", "x-two:a: b", "-vv"];
                Run::of(&[&["call", "echo", "message=hi"][..], &to, &headers].concat())
            });
            let run = run.await.expect("a run").expect(0);
            assert_eq!(run.stdout, "hi\n");
            assert!(!run.stderr.contains("secret"), "{}", run.stderr);
            let requests = server.requests();
            assert!(requests.len() >= 3, "{requests:?}");
            for request in requests {
                let headers = ["authorization", "x-one", "x-two"].map(|name| request.header(name));
                assert_eq!(headers, [Some("Bearer secret"), Some("1"), Some("a: b")], "{request:?}");
            }
        }
    });
}

#[test]
fn a_stdio_server_gets_the_certificate_variables_and_few_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("seen");
    let server = format!("sh -c 'env > {}'", seen.display());
    let run = Ropeway::new(&["tools", "--stdio", &server, "--timeout", "5s"]).with(|command| {
        command.env("SSL_CERT_FILE", "/trusted.pem").env("SOMETHING_ELSE", "x");
    });
    run.run().expect(3);
    let seen = std::fs::read_to_string(seen).expect("what it saw");
    assert!(seen.contains("SSL_CERT_FILE=/trusted.pem\n"), "{seen}");
    assert!(!seen.contains("SOMETHING_ELSE"), "{seen}");
}
