//! `ropeway chat` without a terminal: one message, lines of a script, and saved files.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ropeway_core::message::Dialect;
use ropeway_testing::{ModelAnswer, ModelServer, Script, ScriptedReply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::temp_home::{TempHome, entry};
use crate::{Ropeway, Run};

/// Said where no server is given.
const DEMO: &str = "No servers configured; using the built-in demo server. Add one with `ropeway add NAME -- COMMAND`, or use `--stdio COMMAND` or `--url URL`.\n";

/// Time limit of any wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A scripted model and a directory for the chat.
pub(crate) struct Model {
    pub(crate) temp_home: TempHome,
    pub(crate) server: ModelServer,
    /// Dropping it ends the server thread.
    _end: oneshot::Sender<()>,
}

impl Model {
    pub(crate) fn saying(sayings: impl IntoIterator<Item = ScriptedReply>) -> Self {
        Self::answering(sayings.into_iter().map(|saying| saying.answer(Dialect::Chat)))
    }

    pub(crate) fn answering(answers: impl IntoIterator<Item = ModelAnswer>) -> Self {
        let answers: Vec<ModelAnswer> = answers.into_iter().collect();
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        // The server runs on its own thread, since the test blocks on the client.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = ModelServer::start(answers).await.expect("a free port");
                tell.send(server).expect("somebody who asks");
                let _ = ended.await;
            });
        });
        Self { temp_home: TempHome::new(), server: told.recv().expect("a server"), _end: end }
    }

    /// Waits for this many requests to the model.
    pub(crate) fn asked(&self, count: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let waiting = async { tokio::time::timeout(PATIENCE, self.server.asked(count)).await };
        runtime.block_on(waiting).expect("a question in time");
    }

    /// Returns a chat with the model that is not started yet.
    pub(crate) fn chat(&self, arguments: &[&str]) -> Ropeway {
        let url = format!("{}/v1", self.server.url());
        let model = ["chat", "--base-url", &url, "--model", "parrot"];
        self.temp_home.ropeway(&[&model[..], arguments].concat()).with(|command| {
            for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_API_KEY"] {
                command.env_remove(name);
            }
        })
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.chat(arguments).run()
    }

    /// Runs a chat with this standard input.
    pub(crate) fn fed(&self, arguments: &[&str], input: &str) -> Run {
        let mut running = self
            .chat(arguments)
            .with(|command| {
                command.stdin(Stdio::piped());
            })
            .start();
        running.child.stdin.take().expect("input").write_all(input.as_bytes()).expect("ropeway reads");
        running.end()
    }

    /// Returns the role and text of each message in the last request.
    pub(crate) fn wait_for(&self) -> Vec<(String, String)> {
        let bodies = self.server.bodies();
        let messages = bodies.last().and_then(|body| body["messages"].as_array()).cloned().unwrap_or_default();
        let text = |content: &Value| match content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            _ => String::new(),
        };
        let word = |message: &Value| (message["role"].as_str().unwrap_or("?").to_owned(), text(&message["content"]));
        messages.iter().map(word).collect()
    }
}

pub(crate) fn said(heard: &[(&str, &str)]) -> Vec<(String, String)> {
    heard.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

/// Replaces durations with a fixed one.
fn timeless(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_time = |at: usize| matches!(words.get(at + 1), Some(&("ms" | "µs" | "s")));
    let word = |at: usize| if is_time(at) { "7" } else { words[at] };
    let text = (0..words.len()).map(word).collect::<Vec<_>>().join(" ");
    text.replace("7 µs", "7 ms").replace("7 s ", "7 ms ")
}

#[test]
fn one_message_prints_only_the_answer() {
    let model = Model::saying([ScriptedReply::text("Hello, \u{1b}[31myou.\u{1b}[0m")]);
    let run = model.run(&["-p", "hi", "--system", "Be kind."]).expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("Hello, you.\n", DEMO));
    assert_eq!(model.wait_for(), said(&[("system", "Be kind."), ("user", "hi")]));
    let body = &model.server.bodies()[0];
    assert_eq!((&body["model"], &body["stream"]), (&json!("parrot"), &json!(true)));
    let tools: Vec<&str> =
        body["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert_eq!(tools[..6], ["calculate", "chart", "countdown", "fail", "statistics", "time"]);
}

#[test]
fn a_message_can_come_from_standard_input() {
    let model = Model::saying([ScriptedReply::text("a lot")]);
    let run = model.fed(&["-p", "-", "--no-tools"], "what\nis this?\n").expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("a lot\n", ""));
    assert_eq!(model.wait_for(), said(&[("user", "what\nis this?\n")]));
    assert_eq!(model.server.bodies()[0].get("tools"), None);
}

#[test]
fn tool_calls_are_shown_and_the_model_gets_their_results() {
    let calls = ScriptedReply::text("I count.").and_call("a", "calculate", json!({"expression": "6*7"})).and_call(
        "b",
        "fail",
        json!({"message": "on purpose"}),
    );
    let model = Model::saying([calls, ScriptedReply::text("It is 42.")]);
    let run = model.run(&["-p", "6*7?", "--yes"]).expect(0);
    assert_eq!(run.stdout, "I count.\nIt is 42.\n");
    let lines: Vec<String> = run.stderr.lines().skip(1).map(timeless).collect();
    assert_eq!(lines[..2], ["● demo.calculate(expression: \"6*7\")", "● demo.fail(message: \"on purpose\")"]);
    let mut ends = lines[2..].to_vec();
    ends.sort();
    assert_eq!(ends, ["  ✓ demo.calculate 7 ms  42", "  ✗ demo.fail 7 ms  on purpose"]);
    let heard = model.wait_for();
    assert_eq!(heard[2..], said(&[("tool", "42"), ("tool", &heard[3].1)]));
    assert!(heard[3].1.contains("on purpose"), "{heard:?}");
}

#[test]
fn images_are_listed_by_size_and_saved_on_request() {
    let call = || ScriptedReply::call("a", "chart", json!({"values": [3, 1, 2]}));
    let answers = ["drawn", "kept", "kept, too"].map(|text| [call(), ScriptedReply::text(text)]);
    let model = Model::saying(answers.into_iter().flatten());
    let run = model.run(&["-p", "draw"]).expect(0);
    assert!(run.stderr.contains("\n    image/png, "), "{}", run.stderr);
    let run = model.run(&["-p", "draw", "--save-files", "out"]).expect(0);
    assert!(run.stderr.contains(" KB → out/chart-1.png\n"), "{}", run.stderr);
    let picture = std::fs::read(model.temp_home.path().join("out/chart-1.png")).expect("a file");
    assert!(picture.starts_with(b"\x89PNG"));
    let run = model.run(&["-p", "draw", "--save-files", "json", "--json"]).expect(0);
    assert!(run.stderr.starts_with("image/png, ") && run.stderr.ends_with(" → json/chart-1.png\n"), "{}", run.stderr);
    assert_eq!(std::fs::read(model.temp_home.path().join("json/chart-1.png")).expect("a file"), picture);
}

#[test]
fn every_step_is_a_line_of_json_and_the_last_is_the_outcome() {
    let call = ScriptedReply::reasoning("hm").and_call("a", "calculate", json!({"expression": "1+1"}));
    let model = Model::saying([call, ScriptedReply::text("It is 2.")]);
    let run = model.run(&["-p", "1+1?", "--json"]).expect(0);
    assert_eq!(run.stderr, "");
    let steps: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let mut kinds: Vec<&str> = steps.iter().filter_map(|step| step["step"].as_str()).collect();
    // Adjacent text is joined when it arrives faster than it is printed.
    kinds.dedup();
    assert_eq!(
        kinds,
        ["servers", "reasoning", "answered", "call_started", "call_finished", "text", "answered", "final"]
    );
    let text: String =
        steps.iter().filter(|step| step["step"] == "text").filter_map(|step| step["text"].as_str()).collect();
    assert_eq!(text, "It is 2.");
    let ready = json!([{"server": "demo", "state": "ready", "outcome": "ready", "tools": 6}]);
    assert_eq!((&steps[0]["statuses"], &steps[0]["verdicts"]), (&ready, &ready));
    assert_eq!(
        steps[3],
        json!({"step": "call_started", "call": "a", "tool": "calculate", "origin": {"server": "demo", "tool": "calculate"},
            "arguments": {"expression": "1+1"}})
    );
    assert_eq!(steps[4]["meta"]["content"][0]["text"], "2");
    assert_eq!(
        steps[steps.len() - 1],
        json!({"step": "final", "text": "It is 2.", "end": {"reason": "done", "stop": "end_turn"}, "steps": 2,
            "usage": {"input": 20, "output": 10, "cache_read": 0, "cache_write": 0, "reasoning": 0}})
    );
}

#[test]
fn the_last_line_of_json_reports_a_failure() {
    let last = |run: &Run| -> Value {
        let line = run.stdout.lines().last().unwrap_or_else(|| panic!("no line, but {}", run.stderr));
        serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))
    };
    let refused = ModelAnswer::json(401, &json!({"error": {"message": "Incorrect key"}}));
    let events = ScriptedReply::text("one two").events(Dialect::Chat);
    let half = events.find("two").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let broken = ModelAnswer::events(&events[..half]);
    for (answer, code, words) in [
        (refused, 4, "Incorrect key"),
        (broken, 3, "request to model `parrot` failed: "),
        (ModelAnswer::silence(), 5, "the chat timed out after 2 s"),
    ] {
        let run = Model::answering([answer]).run(&["-p", "hi", "--json", "--timeout", "2s"]).expect(code);
        let last = last(&run);
        assert_eq!((&last["step"], &last["exit"]), (&json!("failed"), &json!(code)), "{last}");
        assert!(last["error"].as_str().is_some_and(|error| error.contains(words)), "{last}");
    }
    let run = Model::saying([]).run(&["-p", "hi", "--json", "--resume", "nothing.json"]).expect(2);
    assert_eq!(last(&run), json!({"step": "failed", "error": "file `nothing.json` does not exist", "exit": 2}));
    // A limit is an outcome.
    let call = ScriptedReply::call("a", "calculate", json!({"expression": "1"}));
    let run = Model::saying([call]).run(&["-p", "hi", "--json", "--max-steps", "1"]).expect(1);
    assert_eq!(last(&run)["step"], "final");
}

#[test]
fn a_turn_that_reaches_a_limit_names_it_and_exits_with_1() {
    let again = |id: &str| ScriptedReply::call(id, "calculate", json!({"expression": "1"}));
    let model = Model::saying(["a", "b", "c"].map(again));
    let run = model.run(&["-p", "go", "--max-steps", "2"]).expect(1);
    let end = "error: turn stopped: reached the limit of 2 steps\n  raise the limit with `--max-steps`\n";
    assert!(run.stderr.ends_with(end), "{}", run.stderr);
    assert_eq!(model.server.bodies().len(), 2);
}

#[test]
fn provider_errors_have_their_own_exit_codes() {
    let error = |status, message: &str| ModelAnswer::json(status, &json!({"error": {"message": message}}));
    for (answer, code, words) in [
        (error(401, "Incorrect key"), 4, "--key-env"),
        (error(404, "no model `parrot`"), 2, "no model `parrot`"),
        (error(400, "what?"), 2, "what?"),
    ] {
        let run = Model::answering([answer]).run(&["-p", "hi"]).expect(code);
        assert!(run.stderr.contains("error: request to model `parrot` failed\n  caused by: "), "{}", run.stderr);
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
    let run = Model::answering([ModelAnswer::silence()]).run(&["-p", "hi", "--timeout", "1s"]).expect(5);
    assert!(run.stderr.ends_with("error: the chat timed out after 1 s\n"), "{}", run.stderr);
    let down = TempHome::new().run("chat -p hi --base-url http://127.0.0.1:1/v1 --model parrot --no-tools").expect(3);
    assert!(down.stderr.starts_with("error: request to model `parrot` failed\n  caused by: "), "{}", down.stderr);
}

#[test]
fn calls_that_need_approval_are_denied_without_a_terminal() {
    let call = || ScriptedReply::call("a", "fail", json!({}));
    let model = Model::saying([call(), ScriptedReply::text("Then not."), call(), ScriptedReply::text("No.")]);
    let run = model.run(&["-p", "go", "--ask", "demo.*"]).expect(0);
    assert_eq!(run.stdout, "Then not.\n");
    let told = "● demo.fail()\n  ✗ tool `fail` was not called: it requires approval, and no one is available to approve it\n    \
        use `--allow fail` to allow it, or `--yes` to allow all calls\n";
    assert_eq!(run.stderr, format!("{DEMO}{told}"));
    let heard = &model.wait_for()[2].1;
    assert!(heard.contains("no one is available to approve it"), "{heard}");
    let run = model.run(&["-p", "go", "--yes", "--deny", "f*"]).expect(0);
    let told = "● demo.fail()\n  ✗ tool `fail` was not called: not allowed by the host's policy\n";
    assert_eq!(run.stderr, format!("{DEMO}{told}"));
}

#[test]
fn the_allow_hint_matches_one_tool_even_if_it_is_named_star() {
    let model = Model::saying([ScriptedReply::call("a", "mcp_s__", json!({})), ScriptedReply::text("Then not.")]);
    let star = json!({"name": "*", "inputSchema": {"type": "object"}});
    model.temp_home.configure(&[entry("s", &Script::legacy().tool(star, json!({"content": []})))]);
    let run = model.run(&["-p", "go"]).expect(0);
    assert!(run.stderr.starts_with("● s.\"*\"()\n"), "{}", run.stderr);
    assert!(
        run.stderr.ends_with("    use `--allow mcp_s__` to allow it, or `--yes` to allow all calls\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn invalid_usage_is_reported_before_any_request() {
    let model = Model::saying([]);
    for (arguments, words) in [
        (&["-p", " "][..], "the message is empty"),
        (&["-p", "hi", "--allow", "a["], "invalid pattern `a[`"),
        (&["-p", "hi", "--resume", "nothing.json"], "file `nothing.json` does not exist"),
        (&["-p", "hi", "--max-steps", "0"], "0 is not in 1.."),
        (&["-p", "hi", "--save", "/dev/null"], "`/dev/null` is not a regular file"),
        (&["-p", "hi", "--save", "."], "`.` is not a regular file"),
        (&["-p", "hi", "--yes", "--ask", "a"], "cannot be used with"),
        (&["-p", "hi", "--no-tools", "--url", "http://127.0.0.1:1/mcp"], "cannot be used with"),
    ] {
        let run = model.run(arguments).expect(2);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    }
    assert_eq!(model.server.requests().len(), 0);
}

#[test]
fn a_conversation_is_saved_and_resumed() {
    let call = ScriptedReply::call("a", "calculate", json!({"expression": "2+2"}));
    let model = Model::saying([call, ScriptedReply::text("Four."), ScriptedReply::text("Yes.")]);
    model.run(&["-p", "2+2?", "--save", "talk.json"]).expect(0);
    let run = model.run(&["-p", "sure?", "--resume", "talk.json", "--save", "talk.json"]).expect(0);
    assert_eq!(run.stdout, "Yes.\n");
    let heard = [("user", "2+2?"), ("assistant", ""), ("tool", "4"), ("assistant", "Four."), ("user", "sure?")];
    assert_eq!(model.wait_for(), said(&heard));
    let saved: Value =
        serde_json::from_str(&std::fs::read_to_string(model.temp_home.path().join("talk.json")).expect("a file"))
            .expect("JSON");
    assert_eq!(saved["messages"].as_array().map(Vec::len), Some(6));
    assert_eq!(mode(&model.temp_home.path().join("talk.json")), 0o600);

    model.temp_home.write("broken.json", "{\"messages\": [\n  oops]}");
    let run = model.run(&["-p", "hi", "--resume", "broken.json"]).expect(2);
    assert_eq!(run.stderr, "error: broken.json:2:3: not a ropeway conversation file: expected value\n");
    let run = model.run(&["-p", "hi", "--save", "broken.json"]).expect(2);
    assert!(run.stderr.contains("or remove this file first"), "{}", run.stderr);
    let run = model.run(&["-p", "hi", "--save", "talk.json"]).expect(2);
    let told = "error: `talk.json` contains another conversation\n  \
        use `--resume talk.json --save talk.json` to continue it, or choose another file name\n";
    assert_eq!(run.stderr, told);
    assert_eq!(model.server.bodies().len(), 3);
}

#[test]
fn spilled_outputs_are_removed_however_the_process_ends() {
    let long = json!({"name": "long", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
    let result = json!({"content": [{"type": "text", "text": "secret ".repeat(15_000)}]});
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::KILL] {
        let call = ScriptedReply::call("a", "mcp_scripted_long", json!({})).answer(Dialect::Chat);
        let model = Model::answering([call, ModelAnswer::silence()]);
        model.temp_home.configure(&[entry("scripted", &Script::default().tool(long.clone(), result.clone()))]);
        let temporary = model.temp_home.path().join("tmp");
        std::fs::create_dir(&temporary).expect("a folder");
        let mut running = model
            .chat(&["-p", "go", "--yes"])
            .with(|command| {
                command.env("TMPDIR", &temporary);
            })
            .start();
        // The request mentions the output, so it is stored by now.
        model.asked(2);
        let told = model.server.bodies()[1]["messages"].to_string();
        assert!(told.contains("call `read_more` with output"), "{told}");
        let id = Pid::from_raw(running.child.id().try_into().expect("an id")).expect("an id");
        kill_process(id, signal).expect("a process");
        running.child.wait().expect("an end");
        // After SIGKILL the server sees the end of its input, and takes a moment.
        let began = std::time::Instant::now();
        while !running.others().is_empty() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<_> = std::fs::read_dir(&temporary).expect("a folder").flatten().map(|file| file.path()).collect();
        assert!(left.is_empty(), "{signal:?} leaves {left:?}");
    }
}

#[test]
fn a_saved_conversation_becomes_private() {
    let model = Model::saying([ScriptedReply::text("Hello!")]);
    let path = model.temp_home.write("talk.json", "");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("permissions");
    model.run(&["-p", "hi", "--no-tools", "--save", "talk.json"]).expect(0);
    assert_eq!(mode(&path), 0o600);
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn each_line_of_a_script_is_a_message_or_a_command() {
    let model = Model::saying([ScriptedReply::text("One."), ScriptedReply::text("Two.")]);
    let run = model.fed(&[], "first\n\n/model cockatoo --force\n/clear\nsecond\n/quit\nnever\n").expect(0);
    assert_eq!(run.stdout, "One.\nTwo.\n");
    assert_eq!(run.stderr, format!("{DEMO}switched to cockatoo\nconversation cleared\n"));
    assert_eq!(model.server.bodies()[1]["model"], "cockatoo");
    assert_eq!(model.wait_for(), said(&[("user", "second")]));
    let run = model.fed(&[], "/tolos\n").expect(2);
    assert!(run.stderr.contains("did you mean `/tools`?"), "{}", run.stderr);
    let run = model.fed(&["--no-tools"], "/tools\n").expect(0);
    assert_eq!(run.stderr, "no tools: the chat was started with --no-tools\n");
    model.temp_home.write("secret.json", "{\"messages\": []}");
    for line in ["/save talk.json\n", "/load secret.json\n"] {
        let run = model.fed(&["--no-tools"], line).expect(2);
        let told = "error: `/save` and `/load` need a terminal\n  \
            use `--save FILE` and `--resume FILE` instead\n";
        assert_eq!(run.stderr, told);
    }
    assert!(!model.temp_home.path().join("talk.json").exists());
}

#[test]
fn the_help_fits_into_a_hundred_columns() {
    let help = TempHome::new().run("chat --help").expect(0).stdout;
    let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(long, [] as [&str; 0]);
}

#[test]
fn approval_rules_of_the_file_apply() {
    let call = || ScriptedReply::call("a", "mcp_demo_fail", json!({"message": "made"}));
    let model = Model::saying([
        call(),
        ScriptedReply::text("1"),
        call(),
        ScriptedReply::text("2"),
        call(),
        ScriptedReply::text("3"),
    ]);
    let demo = json!({"alias": "demo", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]});
    let rules = |rules: Value| {
        let file = json!({"servers": [demo], "chat": {"tools": rules}});
        model.temp_home.write("ropeway.yaml", &file.to_string());
    };
    let heard = |arguments: &[&str]| {
        model.run(&[&["-p", "go"], arguments].concat()).expect(0);
        model.wait_for()[2].1.clone()
    };
    rules(json!({"deny": ["demo.fail"]}));
    assert!(heard(&["--yes"]).contains("not allowed by the host's policy"));
    rules(json!({"allow": ["demo.*"]}));
    assert!(heard(&["--ask", "demo.fail"]).contains("no one is available to approve it"));
    rules(json!({"ask": ["demo.fail"]}));
    assert!(heard(&["--allow", "demo.*"]).contains("made"));
}

#[test]
fn ctrl_c_ends_a_pending_prompt() {
    let model = Model::answering([ModelAnswer::silence()]);
    let running = model.chat(&["-p", "hi"]).start();
    model.asked(1);
    let id = Pid::from_raw(running.child.id().try_into().expect("an id")).expect("an id");
    kill_process(id, Signal::INT).expect("a process");
    let run = running.end().expect(130);
    assert_eq!(run.stdout, "");
}

#[test]
fn a_missing_server_is_reported_and_the_others_are_used() {
    let model = Model::saying([ScriptedReply::text("ok")]);
    let demo = json!({"alias": "demo", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]});
    model.temp_home.configure(&[demo, json!({"alias": "gone", "command": "/no/such/program"})]);
    let run = model.run(&["-p", "hi"]).expect(0);
    assert_eq!(run.stdout, "ok\n");
    assert!(run.stderr.starts_with("✗ gone · down\n    could not start `/no/such/program`"), "{}", run.stderr);
    let tools = model.server.bodies()[0]["tools"].clone();
    assert_eq!(tools[0]["function"]["name"], "mcp_demo_calculate");
    let run = model.run(&["gnoe", "-p", "hi"]).expect(2);
    assert!(run.stderr.contains("did you mean `gone`?") && !run.stderr.contains("-p TEXT"), "{}", run.stderr);
    let run = model.run(&["what is the time"]).expect(2);
    assert!(run.stderr.ends_with("  use `-p TEXT` to send a message to the model\n"), "{}", run.stderr);
}

#[test]
fn a_closed_output_ends_the_chat_successfully() {
    let events = ScriptedReply::text("one two").events(Dialect::Chat);
    let half = events.find("two").and_then(|at| events[..at].rfind("data:")).expect("a word");
    let model = Model::answering([ModelAnswer::events(&events[..half]).stall()]);
    let mut running = model.chat(&["-p", "hi"]).start();
    drop(running.child.stdout.take());
    running.end().expect(0);
}

#[test]
fn secrets_are_redacted_even_when_streamed_in_pieces() {
    let pieces = ["sk-", "of-the", "-parrot"].map(|piece| {
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": piece}}]});
        format!("data: {chunk}\n\n")
    });
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let events = format!("{}data: {end}\n\ndata: [DONE]\n\n", pieces.concat());
    for json in [false, true] {
        let model = Model::answering([ModelAnswer::events(events.clone())]);
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let run = model.chat(&[&["-p", "hi", "--save", "talk.json", "--key-env", "PARROT_KEY"], more].concat()).with(
            |command| {
                command.env("PARROT_KEY", "sk-of-the-parrot");
            },
        );
        let run = run.run().expect(0);
        assert!(run.stdout.contains("***") && !run.stdout.contains("sk-"), "{}", run.stdout);
        let saved = std::fs::read_to_string(model.temp_home.path().join("talk.json")).expect("a file");
        assert!(saved.contains("***") && !saved.contains("sk-"), "{saved}");
    }
}

#[test]
fn sampling_needs_an_option_and_elicitation_a_terminal() {
    let ask = || ScriptedReply::call("a", "mcp_scripted_sample", json!({"prompt": "Say cheese."}));
    let elicit = ScriptedReply::call("b", "mcp_scripted_elicit", json!({}));
    let model = Model::saying([
        ask(),
        ScriptedReply::text("No."),
        ask(),
        ScriptedReply::text("Cheese."),
        elicit,
        ScriptedReply::text("Yes."),
    ]);
    model.temp_home.configure(&[entry("scripted", &Script::legacy())]);
    let run = model.run(&["-p", "go", "--yes"]).expect(0);
    assert_eq!(run.stdout, "No.\n");
    assert_eq!(model.server.bodies().len(), 2);
    let run = model.run(&["-p", "go", "--yes", "--allow-sampling"]).expect(0);
    assert_eq!(run.stdout, "Yes.\n");
    let bodies = model.server.bodies();
    assert_eq!(bodies[3]["messages"], json!([{"role": "user", "content": "Say cheese."}]));
    let heard = model.wait_for();
    assert!(heard[2].1.contains("Cheese.") && heard[4].1.contains("decline"), "{heard:?}");
}
