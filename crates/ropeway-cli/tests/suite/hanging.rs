//! Servers that hang or start slowly: they do not delay other servers, and slow starts are distinguished from hanging ones.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use ropeway_testing::{Script, ScriptedReply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Ropeway;
use crate::chat::Model;
use crate::chat_terminal::Window;
use crate::temp_home::{TempHome, entry};

/// Returns a server that never responds, with a timeout longer than any test.
fn stuck(alias: &str) -> Value {
    json!({"alias": alias, "command": "sleep", "args": ["1000"], "timeouts": {"connect": "1h"}})
}

/// Returns a hanging and an available server.
fn beside_a_stuck_one() -> TempHome {
    TempHome::with(&[stuck("stuck"), entry("good", &Script::default())])
}

#[test]
fn tools_lists_a_ready_server_while_another_one_hangs() {
    let temp_home = beside_a_stuck_one();
    let mut running = temp_home.ropeway(&["tools"]).start();
    let mut lines = BufReader::new(running.child.stdout.take().expect("output")).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.starts_with("● good · "), "{first}");
    let id = Pid::from_raw(running.child.id().try_into().expect("an id")).expect("an id");
    kill_process(id, Signal::INT).expect("it still waits for the other one");
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn tools_of_a_server_that_hangs_are_listed_from_memory() {
    let temp_home = TempHome::new();
    let script = temp_home.write("server", &format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_ropeway")));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let slow = json!({"alias": "slow", "command": script, "timeouts": {"connect": "1h"}});
    temp_home.configure(&[slow, entry("good", &Script::default())]);
    temp_home.run("tools").expect(0);
    temp_home.write("server", "#!/bin/sh\nexec sleep 1000\n");
    let run = temp_home.run("tools").expect(5);
    assert!(run.stdout.contains("◐ slow · still connecting; 6 tools (cached)\n  slow.calculate("), "{}", run.stdout);
    let run = temp_home.run("tools --names").expect(0);
    assert!(run.stdout.contains("good.echo\n") && run.stdout.contains("slow.time\n"), "{}", run.stdout);
    let run = temp_home.run("tools").expect(0);
    assert!(run.stdout.contains("◐ slow · 6 tools (cached; starts on the first call)\n"), "{}", run.stdout);
    let run = temp_home.run("tools --find calculate").expect(0);
    assert!(run.stdout.contains("slow.calculate("), "{}", run.stdout);
}

/// Returns the time of the quickest of a few runs: the machine may be busy.
fn quickest(run: impl Fn()) -> Duration {
    let timed = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..3).map(timed).min().expect("a time")
}

#[test]
fn a_server_that_hangs_costs_two_seconds_once() {
    let commands =
        [("call echo message=hi", "hi\n"), ("tools --names", "good.echo\n"), ("tools --find echo", "good.echo(")];
    for (command, expected) in commands {
        let temp_home = beside_a_stuck_one();
        let run = temp_home.run(command);
        assert!(run.stdout.contains(expected), "{}", run.stdout);
        assert!(format!("{}{}", run.stdout, run.stderr).contains("stuck"), "{}{}", run.stdout, run.stderr);
        let took = quickest(|| {
            let run = temp_home.run(command).expect(0);
            assert!(run.stdout.contains(expected), "{}", run.stdout);
        });
        // Less than the time for which a command waits.
        assert!(took < Duration::from_secs(2), "{command} took {took:?}");
    }
}

#[test]
fn a_list_waits_ten_seconds_for_a_server_that_was_not_ready_before() {
    let temp_home = beside_a_stuck_one();
    temp_home.run("tools --names");
    // The connection timeout is an hour.
    let words = || temp_home.run("tools").expect(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words();
    assert!(text.contains("✗ stuck · down the server was not ready within 10 s"), "{text}");
    let took = quickest(|| {
        let text = words();
        assert!(text.contains("`ropeway tools stuck` tries again"), "{text}");
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_wrong_name_is_blamed_only_on_servers_that_may_have_it() {
    let run = beside_a_stuck_one().run("tools ecoh").expect(2);
    let unknown = "error: unknown server or tool `ecoh`\n  did you mean `echo`?\n";
    assert_eq!(run.stderr, format!("{unknown}  server `stuck` is still connecting and may have it\n"));
    let temp_home = TempHome::new();
    let script = temp_home.write("server", &format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_ropeway")));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let slow = json!({"alias": "slow", "command": script, "timeouts": {"connect": "1h"}});
    temp_home.configure(&[slow, entry("good", &Script::default())]);
    temp_home.run("tools").expect(0);
    temp_home.write("server", "#!/bin/sh\nexec sleep 1000\n");
    assert_eq!(temp_home.run("tools ecoh").expect(2).stderr, unknown);
}

#[test]
fn a_name_that_the_cache_knows_for_one_server_is_called_without_the_others() {
    let temp_home = beside_a_stuck_one();
    temp_home.run("tools good").expect(0);
    let run = temp_home.run("call echo message=hi").expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("hi\n", ""));
}

#[test]
fn a_server_that_failed_slowly_is_left_alone_until_it_is_named() {
    let temp_home = TempHome::new();
    let failing = "#!/bin/sh\necho start >> starts\nsleep 1.2\necho no luck >&2\nexit 1\n";
    let script = temp_home.write("server", failing);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let slow = json!({"alias": "slow", "command": script});
    temp_home.configure(&[slow.clone(), entry("good", &Script::default())]);
    let starts = || std::fs::read_to_string(temp_home.path().join("starts")).map_or(0, |text| text.lines().count());
    temp_home.run("tools").expect(0);
    let before = starts();
    let run = temp_home.run("tools").expect(0);
    let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("`no luck`") && text.contains("`ropeway tools slow` tries again"), "{text}");
    let run = temp_home.run("call ecoh message=hi").expect(2);
    assert!(run.stderr.contains("did you mean `echo`"), "{}", run.stderr);
    temp_home.run("resources").expect(0);
    assert_eq!(starts(), before);
    // A command names it, the file has changed, or a time limit is given.
    temp_home.run("tools slow").expect(3);
    assert!(starts() > before);
    let before = starts();
    temp_home.run("tools --timeout 60").expect(0);
    assert!(starts() > before);
    let before = starts();
    temp_home.configure(&[entry("good", &Script::default()), slow]);
    temp_home.run("tools").expect(0);
    assert!(starts() > before);
    // A success is remembered, too.
    temp_home.write("server", &format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_ropeway")));
    temp_home.run("health slow").expect(0);
    let run = temp_home.run("tools").expect(0);
    assert!(run.stdout.contains("● slow · 6 tools"), "{}", run.stdout);
}

#[test]
fn a_timeout_replaces_the_short_limit_of_a_cached_server() {
    let temp_home = TempHome::new();
    let ropeway = env!("CARGO_BIN_EXE_ropeway");
    let script = temp_home.write("server", &format!("#!/bin/sh\nexec {ropeway} demo-server\n"));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    temp_home.configure(&[json!({"alias": "slow", "command": script, "timeouts": {"connect": "1h"}})]);
    temp_home.run("tools").expect(0);
    temp_home.write("server", &format!("#!/bin/sh\nsleep 7\nexec {ropeway} demo-server\n"));
    let run = temp_home.run("tools --timeout 120").expect(0);
    assert!(run.stdout.contains("● slow · 6 tools"), "{}", run.stdout);
}

#[test]
fn a_search_goes_on_without_a_server_that_hangs() {
    let run = beside_a_stuck_one().run("tools --find echo").expect(0);
    assert!(run.stdout.contains("good.echo(") && run.stdout.contains("Not searched: stuck"), "{}", run.stdout);
}

#[test]
fn a_call_by_the_name_of_a_tool_goes_on_without_a_server_that_hangs() {
    let run = beside_a_stuck_one().run("call echo message=hi").expect(0);
    assert_eq!(run.stdout, "hi\n");
    assert_eq!(run.stderr, "warning: calling `good.echo`; server `stuck` is still connecting\n");
}

#[test]
fn a_call_is_refused_while_another_owner_is_connecting() {
    let temp_home = TempHome::new();
    let script = temp_home.write("server", &format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_ropeway")));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let slow = json!({"alias": "slow", "command": script, "timeouts": {"connect": "1h"}});
    let quick = json!({"alias": "quick", "command": env!("CARGO_BIN_EXE_ropeway"), "args": ["demo-server"]});
    temp_home.configure(&[slow, quick]);
    temp_home.run("tools").expect(0);
    temp_home.write("server", "#!/bin/sh\nexec sleep 1000\n");
    let run = temp_home.run("call time").expect(2);
    assert_eq!(
        run.stderr,
        "error: tool `time` is ambiguous: server `slow` is still connecting and may have it too\n  name the server: `quick.time` or `slow.time`\n"
    );
    temp_home.run("call quick.time").expect(0);
}

#[test]
fn a_prompt_is_answered_without_a_server_that_hangs() {
    let model = Model::saying([ScriptedReply::text("Hello!")]);
    model.temp_home.configure(&[stuck("stuck"), entry("good", &Script::default())]);
    let run = model.chat(&["-p", "hi"]).run().expect(0);
    assert_eq!(run.stdout, "Hello!\n");
    assert!(run.stderr.contains("◐ stuck · still connecting\n"), "{}", run.stderr);
}

#[test]
fn a_chat_opens_and_answers_while_a_server_hangs() {
    let model = Model::saying([ScriptedReply::text("First."), ScriptedReply::text("Second.")]);
    model.temp_home.configure(&[stuck("stuck"), entry("good", &Script::default())]);
    let mut window = Window::open(model.chat(&[]));
    window.see("◐ stuck · still connecting");
    window.see("› ");
    window.press("one\r");
    window.see("server `stuck` not ready after 5 s; skipped for this turn");
    window.see("First.");
    window.see("› ");
    window.press("two\r");
    let second = window.see("Second.");
    assert!(!second.contains("not ready"), "{second}");
    window.see("› ");
    window.press("\u{4}");
    window.end().expect(0);
}

#[test]
fn a_chat_says_that_tools_are_still_loading() {
    let model = Model::saying([]);
    model.temp_home.configure(&[stuck("stuck")]);
    let mut window = Window::open(model.chat(&[]));
    window.see(" · tools still loading · /help for commands");
    window.see("› ");
    window.press("\u{4}");
    window.end().expect(0);
}

/// Creates a place with this script as the program `npx`.
fn with_npx(script: &str) -> (TempHome, Ropeway) {
    let temp_home = TempHome::new();
    let npx = temp_home.path().join("npx");
    std::fs::write(&npx, format!("#!/bin/sh\n{script}\n")).expect("a file");
    std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755)).expect("a program");
    temp_home.configure(&[json!({
        "alias": "fetched", "command": npx, "args": ["-y", "server"], "timeouts": {"connect": "1s", "download": "10m"},
    })]);
    let tools = temp_home.ropeway(&["tools"]);
    (temp_home, tools)
}

#[test]
fn a_busy_package_runner_gets_more_time_than_an_idle_one() {
    let program = env!("CARGO_BIN_EXE_ropeway");
    // Counts long enough to exceed the connection timeout of one second.
    let count = "n=0; while [ $n -lt 1500000 ]; do n=$((n+1)); done";
    let (_busy, working) = with_npx(&format!("{count}; exec {program} demo-server"));
    let (_idle, idling) = with_npx("exec sleep 1000");
    let (working, idling) = (working.start(), idling.start());
    let run = working.end().expect(0);
    assert!(run.stdout.starts_with("● fetched · 6 tools"), "{}", run.stdout);
    let run = idling.end().expect(5);
    assert!(run.stderr.contains("caused by: the server was not ready within "), "{}", run.stderr);
    assert!(run.stderr.contains("may still be downloading; run the server once in a terminal"), "{}", run.stderr);
}
