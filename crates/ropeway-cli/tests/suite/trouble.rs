//! Servers that are missing, do not answer, send too much, or do not exit.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use ropeway_testing::{Fault, FaultTrigger, Grandchild, HttpFault, ProcessScript, Script, StdoutNoise, UnknownMethods};
use serde_json::json;

use crate::fault_run::{BRIEF, FaultRun, LATE, PATIENT, Site, binary, run_url};
use crate::process_marker::{command_line, signal};
use crate::temp_home::TempHome;
use crate::terminal::Terminal;
use crate::{Ropeway, Run};

fn faulty(method: &str, fault: impl Into<Fault>) -> Script {
    Script::default().fault(FaultTrigger::method(method), fault)
}

impl Run {
    /// Asserts this exit code, an empty standard output, and an error that names the server and the cause.
    fn fails(self, code: i32, words: &[&str]) -> Self {
        let run = self.expect(code);
        assert_eq!(run.stdout, "");
        assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
        for words in words {
            assert_eq!(run.stderr.matches(words).count(), 1, "`{words}` is not said once:\n{}", run.stderr);
        }
        run
    }
}

#[test]
fn a_tool_that_reports_a_failure_exits_with_1_and_its_message() {
    let run = FaultRun::scripted("call fail message=sorry", &Script::default()).run().expect(1);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("sorry\n", "error: tool `fail` failed\n"));
}

#[test]
fn a_refused_call_ends_with_1() {
    let run = FaultRun::scripted("call refuse", &Script::default()).run();
    run.fails(1, &["server `scripted-server` returned error -32000: the tool refuses"]);
}

#[test]
fn an_answer_that_is_too_large_ends_with_1() {
    let script = faulty("tools/call", Fault::Giant { bytes: 70 << 20 });
    let run = FaultRun::scripted("call echo message=hi", &script).run();
    run.fails(1, &["response of server `scripted-server` exceeds 67108864 bytes"]);
}

#[test]
fn a_large_answer_is_printed_whole() {
    let run = FaultRun::scripted("call blob bytes=8000000", &Script::default()).run().expect(0);
    assert_eq!((run.stdout.len(), run.stderr.as_str()), (8_000_001, ""));
}

#[test]
fn arguments_that_do_not_fit_end_with_2_and_the_tool_is_not_called() {
    let run = FaultRun::scripted("call add a=1", &faulty("tools/call", Fault::exit())).run();
    run.fails(
        2,
        &["invalid arguments for tool `add`\n  required property `b` is missing\n", "add(a: number, b: number)"],
    );
}

#[test]
fn a_server_that_cannot_be_started_ends_with_3_and_the_cause_once() {
    let run = FaultRun::new("tools", "/no/such/program --flag").run();
    run.fails(3, &["error: server `program` is unavailable\n  caused by: could not start `/no/such/program`\n"]);
}

#[test]
fn a_server_that_dies_at_once_exits_with_3_and_its_stderr() {
    let run = FaultRun::new("tools", "sh -c 'echo no licence >&2; exit 7'").run();
    run.fails(3, &["server `sh` is unavailable", "exit status: 7", "no licence"]);
}

#[test]
fn a_server_that_dies_during_a_call_exits_with_3() {
    for (command, script) in [
        ("tools", Script::legacy().fault(FaultTrigger::method("initialize"), Fault::exit())),
        ("tools", faulty("tools/list", Fault::exit())),
        ("tools", faulty("tools/list", Fault::ExitMidAnswer)),
        ("call crash", Script::default()),
        ("call echo message=hi", faulty("tools/call", Fault::CloseOutput)),
    ] {
        FaultRun::scripted(command, &script).run().fails(3, &["server `scripted-server` "]);
    }
}

#[test]
fn a_server_that_dies_of_an_unknown_method_gets_the_legacy_era() {
    let script = Script { unknown_methods: UnknownMethods::Exit, ..Script::legacy() };
    let run = FaultRun::scripted("call echo message=hi", &script).run().expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("hi\n", ""));
}

#[test]
fn a_url_without_a_listener_ends_with_3() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = free.local_addr().expect("an address").to_string();
    drop(free);
    let run = run_url("tools", &format!("http://{host}/mcp"), PATIENT);
    run.fails(3, &[&format!("server `{host}` is unavailable"), "Connection refused"]);
}

#[test]
fn a_url_of_a_web_page_exits_with_3_and_the_reason() {
    let page = Fault::status(200, "<!doctype html><title>Welcome</title>");
    let site = Site::start(&Script::default().fault(FaultTrigger::any(), page));
    site.run("tools").fails(3, &["is unavailable"]);
    let gone = Site::start(&Script::default().fault(FaultTrigger::any(), Fault::status(503, "down for repair")));
    run_url("tools", &gone.url, PATIENT).fails(3, &["is unavailable", "HTTP 503"]);
}

#[test]
fn a_connection_that_breaks_during_a_call_ends_with_3() {
    for fault in [HttpFault::Reset, HttpFault::ResetAfterHead, HttpFault::Truncate] {
        let site = Site::start(&faulty("tools/call", fault));
        site.run("call echo message=hi").fails(3, &["is unavailable"]);
    }
}

#[test]
fn a_server_that_requires_authentication_exits_with_4_and_a_fix() {
    let who = Fault::header_status(401, "WWW-Authenticate", "Bearer realm=\"here\"");
    for method in ["server/discover", "tools/list", "tools/call"] {
        let site = Site::start(&faulty(method, who.clone()));
        let run = site.run("call echo message=hi");
        run.fails(4, &["needs authentication", "Bearer realm=\"here\"", "--bearer"]);
    }
}

#[test]
fn a_silent_server_exits_with_5() {
    FaultRun::new("tools", "sleep 60")
        .within(BRIEF)
        .run()
        .fails(5, &["server `sleep` did not respond within 3 s", "connecting"]);
}

#[test]
fn a_server_that_hangs_at_any_step_ends_with_5_and_the_step() {
    for (script, step) in [
        (
            faulty("server/discover", Fault::Hang).fault(FaultTrigger::method("initialize"), Fault::Hang),
            "connecting to",
        ),
        (Script::legacy().fault(FaultTrigger::method("initialize"), Fault::Hang), "connecting to"),
        (faulty("tools/list", Fault::Hang), "listing the tools of"),
        (faulty("tools/call", Fault::Hang), "waiting for"),
    ] {
        let run = FaultRun::scripted("call echo message=hi", &script).within(BRIEF).run();
        run.fails(5, &["server `scripted-server` did not respond within 3 s", step]);
    }
}

#[test]
fn a_url_that_hangs_at_any_step_ends_with_5_and_the_step() {
    let hung = faulty("server/discover", Fault::Hang).fault(FaultTrigger::method("initialize"), Fault::Hang);
    let steps = [
        (hung, "connecting to"),
        (faulty("tools/list", Fault::Hang), "listing the tools of"),
        (faulty("tools/call", Fault::Hang), "waiting for"),
    ];
    for (script, step) in steps {
        let site = Site::start(&script);
        run_url("call echo message=hi", &site.url, BRIEF).fails(5, &["did not respond within 3 s", step]);
    }
}

#[test]
fn a_url_that_is_silent_at_the_probe_is_used_in_the_time_that_is_left() {
    let site = Site::start(&faulty("server/discover", Fault::Hang));
    let run = run_url("call echo message=hi", &site.url, 4 * BRIEF).expect(0);
    assert_eq!(run.stdout, "hi\n");
}

#[test]
fn a_call_that_takes_too_long_ends_with_5_though_it_reports_progress() {
    let script = Script::default();
    FaultRun::scripted("call sleep ms=60000 steps=600", &script)
        .within(BRIEF)
        .run()
        .fails(5, &["did not respond within 3 s"]);
}

#[test]
fn a_server_that_floods_standard_output_ends_with_5() {
    FaultRun::new("tools", "yes").within(BRIEF).run().fails(5, &["server `yes` did not respond within 3 s"]);
    FaultRun::new("tools", "sh -c 'exec cat /dev/zero'")
        .within(BRIEF)
        .run()
        .fails(5, &["server `sh` did not respond within 3 s"]);
}

#[test]
fn a_server_that_floods_standard_error_ends_with_5() {
    let run = FaultRun::new("tools", "sh -c 'yes alas >&2'").within(BRIEF).run();
    let run = run.fails(5, &["server `sh` did not respond within 3 s"]);
    assert!((1..=20).contains(&run.stderr.matches("alas").count()), "{}", run.stderr);
}

#[test]
fn an_endless_list_does_not_block_the_command() {
    for paging in [ropeway_testing::PagingStyle::Endless, ropeway_testing::PagingStyle::Repeated] {
        let script = Script { paging, page_size: Some(1), ..Script::default() };
        let run = FaultRun::scripted("tools", &script).run();
        assert!(matches!(run.code, Some(0 | 3)), "{:?}\n{}", run.code, run.stderr);
    }
}

#[test]
fn noise_and_notifications_do_not_hide_the_answer() {
    let script =
        Script { process: ProcessScript { stderr_bytes: 4 << 20, ..ProcessScript::default() }, ..Script::default() }
            .fault(FaultTrigger::any(), StdoutNoise::Text("Listening on stdio!".into()))
            .fault(FaultTrigger::any(), StdoutNoise::InvalidUtf8)
            .fault(FaultTrigger::any(), Fault::storm("notifications/message", 1000))
            .fault(FaultTrigger::any(), Fault::unknown_request())
            .fault(FaultTrigger::any(), Fault::OddProgress);
    let run = FaultRun::scripted("call echo message=hi", &script).run().expect(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("hi\n", ""));
}

/// A server that only SIGKILL terminates, like its child processes.
fn stubborn(grandchild: Grandchild) -> Script {
    let process = ProcessScript {
        ignore_eof: true,
        ignore_sigterm: true,
        grandchild: Some(grandchild),
        ..ProcessScript::default()
    };
    Script { process, ..Script::default() }
}

#[test]
fn a_server_that_ignores_signals_is_killed_with_its_children() {
    for grandchild in [Grandchild::HoldingPipes, Grandchild::Detached] {
        let run = FaultRun::scripted("call echo message=hi", &stubborn(grandchild)).run().expect(0);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("hi\n", ""));
        let hangs = stubborn(grandchild).fault(FaultTrigger::method("tools/call"), Fault::Hang);
        FaultRun::scripted("call echo message=hi", &hangs)
            .within(BRIEF)
            .run()
            .fails(5, &["did not respond within 3 s"]);
        let ends = stubborn(grandchild).fault(FaultTrigger::method("tools/call"), Fault::exit());
        FaultRun::scripted("call echo message=hi", &ends).run().fails(3, &["is unavailable"]);
    }
}

#[test]
fn a_signal_ends_the_command_and_every_process_of_its_server() {
    let hangs = stubborn(Grandchild::HoldingPipes).fault(FaultTrigger::method("tools/list"), Fault::Hang);
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        for fault_run in [
            FaultRun::scripted("tools", &hangs),
            FaultRun::new("tools", "sleep 60"),
            FaultRun::new("tools", "yes"),
            FaultRun::new("tools", "sh -c 'yes >&2'"),
        ] {
            let mut running = fault_run.start();
            let id = running.child.id();
            // Long enough to hit any point between the start and the hang.
            std::thread::sleep(Duration::from_millis(u64::from(id % 5) * 40));
            let told = Instant::now();
            signal(name, id);
            assert_eq!(running.child.wait().expect("an end").code(), Some(code));
            assert!(told.elapsed() < LATE, "{:?}", told.elapsed());
        }
    }
}

#[test]
fn sigquit_ends_the_servers_too_and_shows_in_the_status() {
    use std::os::unix::process::ExitStatusExt as _;
    let hangs = stubborn(Grandchild::HoldingPipes).fault(FaultTrigger::method("tools/list"), Fault::Hang);
    let mut running = FaultRun::scripted("tools", &hangs).start();
    let began = Instant::now();
    // The server and its child.
    while running.others().len() < 2 {
        assert!(began.elapsed() < PATIENT);
        std::thread::sleep(Duration::from_millis(10));
    }
    signal("QUIT", running.child.id());
    let status = running.child.wait().expect("an end");
    assert_eq!((status.code(), status.signal()), (None, Some(3)));
    // Dropping the mark finds leftover processes.
}

/// Returns the processes with this word in their command line.
fn running_with(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| command_line(*id).split(' ').any(|argument| argument == word)).collect()
}

#[test]
fn processes_in_their_own_session_end_with_the_command() {
    let script = serde_json::to_string(&Script::default()).expect("a script is JSON");
    // The first is found by its environment, the others only by their parent, which has exited.
    for (way, how) in [("setsid", 1), ("env -i setsid", 2), ("env -i setsid setsid", 3)] {
        let word = format!("7{}.{}{how}", std::process::id(), std::process::id());
        let server = format!("({way} sleep {word} </dev/null >/dev/null 2>&1 &) ; exec \"$0\" \"$1\"");
        let temp_home =
            TempHome::with(&[json!({"alias": "s", "command": "sh", "args": ["-c", server, binary(), script]})]);
        let run = temp_home.run("call s.echo message=hi").expect(0);
        assert_eq!(run.stdout, "hi\n");
        let began = Instant::now();
        loop {
            let left = running_with(&word);
            if left.is_empty() {
                break;
            }
            if began.elapsed() > LATE {
                left.iter().for_each(|id| signal("KILL", *id));
                panic!("{way}: {left:?} are left");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let mut running = Ropeway::new(&["tools"]).start();
    let mut line = String::new();
    BufReader::new(running.child.stdout.take().expect("output")).read_line(&mut line).expect("a line");
    let run = running.end().expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn output_of_a_server_cannot_control_the_terminal() {
    let call = Ropeway::new(&["call", "fail", "message=\u{1b}[2J\u{1b}]0;owned\u{7}hidden\u{9b}31m text"]);
    let screen = Terminal { columns: 80, coloured: false }.show(call);
    assert_eq!(screen.text, "hidden text\nerror: tool `fail` failed\n");
    let run = Run::of(&["call", "fail", "message=\u{9b}31m\u{1b}[2J", "--json"]).expect(1);
    assert!(!run.stdout.contains(['\u{9b}', '\u{1b}']), "{}", run.stdout);
    assert_eq!(run.json()["data"], "\u{9b}31m\u{1b}[2J");
}

#[test]
fn a_structured_result_is_converted_with_warnings() {
    let definition = json!({"name": "measure", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object",
        "properties": {"metres": {"type": "number"}, "exact": {"type": "boolean"}}}});
    let result = json!({"content": [], "structuredContent": {"metres": "3.5", "exact": "rather"}});
    let script = Script::default().tool(definition, result);
    let run = FaultRun::scripted("call measure", &script).run().expect(0);
    assert_eq!(run.json(), json!({"metres": 3.5, "exact": "rather"}));
    assert!(run.stderr.contains("at `/exact`: must be a boolean"), "{}", run.stderr);
    let envelope = FaultRun::scripted("call measure --json", &script).run().expect(0).json();
    assert_eq!(envelope["data"], json!({"metres": 3.5, "exact": "rather"}));
    assert_eq!(envelope["meta"]["structured_content"], json!({"metres": "3.5", "exact": "rather"}));
}
