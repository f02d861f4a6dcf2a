//! Arguments as users type them, and URLs and commands instead of server names.

use ropeway_testing::Script;
use serde_json::json;

use crate::Run;
use crate::fault_run::{Site, binary};
use crate::temp_home::{TempHome, entry};

#[test]
fn a_call_can_be_written_as_code() {
    for (call, expected) in [
        ("calculate(expression: \"1+1\")", "2"),
        ("demo.calculate(expression: '2*3',)", "6"),
        ("calculate(expression=1+(2*3))", "7"),
        ("calculate(\"1+1\")", "2"),
    ] {
        assert_eq!(Run::of(&["call", call]).expect(0).stdout, format!("{expected}\n"), "{call}");
    }
    let run = Run::of(&["call", "statistics(values: [1, 2, 3])", "--json"]).expect(0);
    assert_eq!(run.json()["data"]["count"], 3);
    let run = Run::of(&["call", "calculate(expression: 1", "--json"]).expect(2);
    assert_eq!(run.json()["error"]["kind"], "invalid_arguments");
    let run = Run::of(&["call", "calculate(expresion: 1)"]).expect(2);
    assert!(run.stderr.contains("did you mean `expression`?"), "{}", run.stderr);
}

#[test]
fn options_and_commas_are_converted_by_the_schema() {
    for words in [
        &["statistics", "values=3,1,2"][..],
        &["statistics", "--values=3,1,2"],
        &["statistics", "--values", "3,1,2"],
        &["statistics", "--values", "[3, 1, 2]"],
    ] {
        let run = Run::of(&[&["call"], words, &["--json"]].concat()).expect(0);
        assert_eq!(run.json()["data"]["max"], 3.0, "{words:?}");
    }
    assert_eq!(Run::of(&["call", "calculate", "--expression", "1,5"]).code, Some(1), "a text keeps its commas");
    let run = Run::of(&["call", "calculate", "--expresion=1"]).expect(2);
    assert!(run.stderr.contains("has no argument `expresion`\n  did you mean `--expression`?"), "{}", run.stderr);
    let run = Run::of(&["call", "calculate", "expression=1", "--jsno"]).expect(2);
    assert!(run.stderr.contains("did you mean `--json`?"), "{}", run.stderr);
    let run = Run::of(&["call", "chart", "{\"values\": [1], \"titel\": 1}"]).expect(2);
    assert!(run.stderr.contains("unknown argument `titel`; did you mean `title`?"), "{}", run.stderr);
}

#[test]
fn an_argument_with_the_name_of_an_option_is_given_as_a_pair() {
    let schema = json!({"type": "object", "properties": {"timeout": {"type": "string"}, "raw": {"type": "boolean"}}});
    let echo = json!({"content": [{"type": "text", "text": "ok"}]});
    let temp_home = TempHome::new();
    let record = temp_home.path().join("record");
    let script = Script { record_file: Some(record.clone()), ..Script::default() };
    temp_home.configure(&[entry("a", &script.tool(json!({"name": "go", "inputSchema": schema}), echo))]);
    temp_home.run("call a.go --timeout 60s timeout=soon raw=true").expect(0);
    let heard = std::fs::read_to_string(record).expect("a record");
    assert!(heard.contains("\"timeout\":\"soon\"") && heard.contains("\"raw\":true"), "{heard}");
}

#[test]
fn a_bare_url_or_command_is_a_server() {
    let site = Site::start(&Script::default());
    assert_eq!(Run::of(&["call", &site.url, "echo", "message=hi"]).expect(0).stdout, "hi\n");
    let tools = Run::of(&["tools", &site.url, "--bearer", "t0ken"]).expect(0).stdout;
    assert!(tools.contains("echo(message: string)"), "{tools}");
    let read = Run::of(&["read", &site.url, "test://hello"]).expect(0).stdout;
    assert_eq!(read, "hello\n");
    let demo = format!("'{}' demo-server", env!("CARGO_BIN_EXE_ropeway"));
    assert_eq!(Run::of(&["call", &demo, "calculate", "expression=1+1"]).expect(0).stdout, "2\n");
    let program = binary().display().to_string();
    assert!(Run::of(&["tools", &program]).expect(0).stdout.contains("echo("));
    assert_eq!(Run::of(&["call", &program, "echo", "message=hi"]).expect(0).stdout, "hi\n");
}

#[test]
fn a_mistyped_name_runs_no_program() {
    let temp_home = TempHome::with(&[entry("files", &Script::default())]);
    let ran = temp_home.path().join("ran");
    let program = temp_home.write("fiels", &format!("#!/bin/sh\ntouch '{}'\n", ran.display()));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permissions");
    for typed in ["tools fiels", "call fiels.echo", "call fiels message=hi", "tools no/such"] {
        let run = temp_home.ropeway(&typed.split(' ').collect::<Vec<_>>()).with(|command| {
            command.env("PATH", temp_home.path());
        });
        run.run().expect(2);
        assert!(!ran.exists(), "{typed}");
    }
}
