//! Text of a tool in a pipe ends with a newline, `--raw` writes it byte for byte, and failures are JSON for scripts.

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::fault_run::Site;
use crate::real::filesystem;
use crate::temp_home::{TempHome, entry};
use crate::terminal::Terminal;

/// All kinds of line breaks, escape sequences, other control characters, and no line break at the end.
const TEXT: &str =
    "one\r\ntwo\n\r\n\u{1b}[31mred\u{1b}[0m\u{7}\ttab\u{b}\u{feff}\u{202e}\n\n日本 \u{1b}]0;title\u{7}end";

fn answering(text: &str) -> Script {
    let result = json!({"content": [{"type": "text", "text": text}]});
    Script::default().tool(json!({"name": "say", "inputSchema": {"type": "object"}}), result)
}

fn ended(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn bytes(temp_home: &TempHome, typed: &str) -> Vec<u8> {
    let words = shlex::split(typed).expect("words of a shell");
    let mut ropeway = temp_home.ropeway(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let output = ropeway.command.output().expect("ropeway runs");
    assert!(output.status.success(), "{typed}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_file_of_the_filesystem_server_is_written_exactly() {
    let (files, folder) = filesystem("files");
    let temp_home = TempHome::with(&[files]);
    for text in [TEXT, "ends\n", "ends\r\n\n\n", "\n", "no end"] {
        let path = folder.path().join("text");
        std::fs::write(&path, text).expect("a file");
        let call = format!("call files.read_text_file path={}", path.display());
        assert_eq!(bytes(&temp_home, &format!("{call} --raw")), text.as_bytes(), "{text:?}");
        assert_eq!(bytes(&temp_home, &call), ended(text).as_bytes(), "{text:?}");
    }
    // The comparison that a script would make.
    let path = folder.path().join("text");
    std::fs::write(&path, TEXT).expect("a file");
    let script = format!(
        "'{}' call files.read_text_file path='{1}' --raw | sha256sum; sha256sum < '{1}'",
        env!("CARGO_BIN_EXE_ropeway"),
        path.display()
    );
    let mut shell = temp_home.ropeway(&[]);
    shell.command = {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &script])
            .current_dir(temp_home.path())
            .env("HOME", temp_home.path())
            .env("ROPEWAY_TRUST", "1");
        command
    };
    let sums = shell.run().expect(0).stdout;
    let sums: Vec<&str> = sums.lines().collect();
    assert_eq!((sums.len(), sums.first()), (2, sums.last()));
}

/// Runs commands in a shell that sends standard error and standard output to one pipe.
fn merged(temp_home: &TempHome, commands: &str) -> String {
    let mut shell = temp_home.ropeway(&[]);
    let mut command = std::process::Command::new("sh");
    let commands = commands.replace("ropeway", env!("CARGO_BIN_EXE_ropeway"));
    command.args(["-c", &format!("{{ {commands}; }} 2>&1 | cat")]);
    command.current_dir(temp_home.path()).env("HOME", temp_home.path()).env("ROPEWAY_TRUST", "1");
    shell.command = command;
    shell.run().expect(0).stdout
}

#[test]
fn results_of_a_loop_and_messages_are_lines_of_their_own() {
    let failing = json!({"content": [{"type": "text", "text": "no luck"}], "isError": true});
    let script = answering("one").tool(json!({"name": "fail", "inputSchema": {"type": "object"}}), failing);
    let temp_home = TempHome::with(&[entry("a", &script)]);
    assert_eq!(merged(&temp_home, "for i in 1 2; do ropeway call a.say; done"), "one\none\n");
    let message = "error: tool `a.fail` failed\n";
    assert_eq!(merged(&temp_home, "ropeway call a.fail"), format!("no luck\n{message}"));
    // Byte for byte, but the message starts a line.
    assert_eq!(merged(&temp_home, "ropeway call a.fail --raw"), format!("no luck\n{message}"));
    let verbose = merged(&temp_home, "ropeway call a.say --raw -v");
    assert!(verbose.lines().any(|line| line == "one"), "{verbose}");
    let run = temp_home.run("call a.fail --raw").expect(1);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("no luck", message));
}

#[test]
fn a_terminal_gets_no_escapes_unless_raw_asks_for_them() {
    let temp_home = TempHome::with(&[entry("a", &answering("\u{1b}[2J\u{9b}31mred\u{7}\r\nend"))]);
    let show = |words: &[&str]| Terminal { columns: 80, coloured: true }.show(temp_home.ropeway(words)).text;
    assert_eq!(show(&["call", "a.say"]), "red\nend\n");
    assert_eq!(show(&["call", "a.say", "--raw"]), "\u{1b}[2J\u{9b}31mred\u{7}\r\nend");
}

#[test]
fn resources_and_prompts_go_into_a_pipe_as_they_are() {
    let resource = json!({"contents": [{"uri": "test://hello", "text": TEXT}]});
    let message = json!({"messages": [{"role": "user", "content": {"type": "text", "text": TEXT}}]});
    let script = Script::default()
        .fault(FaultTrigger::method("resources/read"), Fault::Body(format!("\"result\":{resource}")))
        .fault(FaultTrigger::method("prompts/get"), Fault::Body(format!("\"result\":{message}")));
    let temp_home = TempHome::with(&[entry("a", &script)]);
    assert_eq!(bytes(&temp_home, "read a test://hello"), ended(TEXT).as_bytes());
    assert_eq!(bytes(&temp_home, "read a test://hello --raw"), TEXT.as_bytes());
    assert_eq!(bytes(&temp_home, "prompt a.plain --raw"), TEXT.as_bytes());
    assert_eq!(bytes(&temp_home, "prompt a.plain"), format!("user:\n{TEXT}\n").as_bytes());
}

#[test]
fn raw_writes_a_binary_resource_to_a_pipe_only() {
    let temp_home = TempHome::with(&[entry("a", &Script::default())]);
    assert_eq!(bytes(&temp_home, "read a test://picture --raw"), b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes(&temp_home, "read a test://picture"), b"test://picture\nimage/png, 8 B\n");
    let read = temp_home.ropeway(&["read", "a", "test://picture", "--raw"]);
    let screen = Terminal { columns: 80, coloured: false }.show(read);
    assert!(screen.text.starts_with("test://picture\nimage/png, 8 B\n"), "{}", screen.text);
}

/// Returns the JSON document of a failed command, which also prints the error for people.
fn failed(temp_home: &TempHome, typed: &str, code: i32) -> Value {
    let run = temp_home.run(&format!("{typed} --json")).expect(code);
    assert!(code == 1 || run.stderr.contains("error: "), "{typed}: {}", run.stderr);
    let mut document = run.json();
    assert_eq!(document["error"]["exit_code"], code, "{document}");
    document["error"].take()
}

#[test]
fn every_failure_has_one_shape_as_json() {
    let temp_home = TempHome::with(&[
        entry("good", &Script::default()),
        json!({"alias": "gone", "command": "/no/such/program"}),
        json!({"alias": "off", "command": "true", "enabled": false}),
    ]);
    for (typed, code, kind, retryable, words) in [
        ("call gone.echo", 3, "unavailable", true, "could not start `/no/such/program`"),
        ("tools gone --config nowhere.yaml", 2, "config", false, "nowhere.yaml"),
        ("call good.ecoh", 2, "unknown_tool", false, "unknown tool `ecoh`"),
        ("call good.echo", 2, "invalid_arguments", false, "invalid arguments for tool `good.echo`"),
        ("call good.echo x", 2, "invalid_arguments", false, "invalid argument `x`"),
        ("call good.refuse", 1, "refused", false, "refuse"),
        ("call good.fail message=sorry", 1, "tool_error", false, "failed"),
        ("call off.echo", 2, "usage", false, "off"),
        ("read good nope://x", 2, "usage", false, ""),
        ("call", 2, "usage", false, "TOOL"),
        ("call good.echo --timeout soon", 2, "usage", false, "soon"),
    ] {
        let error = failed(&temp_home, typed, code);
        assert_eq!((&error["kind"], &error["retryable"]), (&json!(kind), &json!(retryable)), "{typed}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{typed}: {error}");
    }
    let hints = failed(&temp_home, "call good.ecoh", 2);
    assert_eq!(hints["hints"], json!(["did you mean `echo`?"]));
    let answer = temp_home.run("call good.fail message=sorry --json").expect(1).json();
    assert_eq!((&answer["data"], &answer["meta"]["is_error"]), (&json!("sorry"), &json!(true)));
    let broken = temp_home.write("broken.yaml", "servers: [");
    let error = failed(&temp_home, &format!("tools --config {}", broken.display()), 2);
    assert_eq!(error["kind"], "config");
}

#[test]
fn a_failure_as_json_shows_no_secret() {
    let error = json!({"code": -32000, "message": "it is t0ken-t0ken-t0ken"});
    let site = Site::start(&Script::default().fault(FaultTrigger::tool("refuse"), Fault::Error(error)));
    let run = crate::Run::of(&["call", "refuse", "--url", &site.url, "--bearer", "t0ken-t0ken-t0ken", "--json"]);
    let run = run.expect(1);
    assert!(!run.stdout.contains("t0ken-t0ken") && run.stdout.contains("***"), "{}", run.stdout);
}

#[test]
fn a_timeout_is_one_document_however_it_ends_the_command() {
    let hangs = Script::default().fault(FaultTrigger::tool("echo"), Fault::Hang);
    let temp_home = TempHome::with(&[entry("a", &hangs)]);
    let error = failed(&temp_home, "call a.echo message=hi --timeout 1s", 5);
    assert_eq!((&error["kind"], &error["retryable"]), (&json!("timeout"), &json!(true)));
}

#[test]
fn an_answer_whose_files_cannot_be_saved_is_still_printed() {
    let temp_home = TempHome::new();
    temp_home.write("file", "");
    let run = temp_home.run("call chart values=[1] --save file/out --json").expect(2);
    let document = run.json();
    assert!(document["data"][1]["data"].as_str().is_some_and(|data| !data.is_empty()), "{document}");
    assert_eq!(document["error"]["exit_code"], 2);
}
