//! `ropeway up`, `down` and `status`: servers keep running, and other commands use them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ropeway_testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use crate::events::Following;
use crate::process_marker::{ProcessMarker, signal};
use crate::temp_home::{TempHome, entry, having};
use crate::{Ropeway, Run};

/// A configuration whose gateway ends with the test.
pub(crate) struct Background {
    temp_home: TempHome,
    process_marker: ProcessMarker,
}

impl Background {
    pub(crate) fn new(servers: &[Value]) -> Self {
        Self { temp_home: TempHome::with(servers), process_marker: ProcessMarker::new() }
    }

    fn command(&self, arguments: &[&str]) -> Ropeway {
        self.temp_home.ropeway(arguments).with(|command| self.process_marker.put_on(command))
    }

    /// Runs a command to its end. The gateway keeps running.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let Ropeway { mut command, .. } = self.command(arguments);
        Run::from(command.output().expect("ropeway starts"))
    }

    fn folder(&self) -> PathBuf {
        self.temp_home.path().join(".local/state/ropeway/run")
    }

    fn file(&self, extension: &str) -> PathBuf {
        let files = fs::read_dir(self.folder()).expect("a folder").flatten().map(|file| file.path());
        files.into_iter().find(|path| path.extension().is_some_and(|end| end == extension)).expect("a file")
    }

    fn info(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file("json")).expect("a description")).expect("JSON")
    }

    /// Returns the process of a server of [`counted`] that was started last.
    fn process(&self, alias: &str) -> u32 {
        let starts = fs::read_to_string(self.temp_home.path().join(format!("{alias}.starts"))).expect("a start");
        starts.lines().last().and_then(|line| line.parse().ok()).expect("a process")
    }

    /// Returns how often a server of [`counted`] was started.
    fn starts(&self, alias: &str) -> usize {
        fs::read_to_string(self.temp_home.path().join(format!("{alias}.starts"))).unwrap_or_default().lines().count()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let run = self.run(&["down"]);
        assert!(std::thread::panicking() || run.code == Some(0), "{}{}", run.stdout, run.stderr);
    }
}

/// Returns the demo server, which counts its starts. While the file `broken` exists, it fails.
fn counted(alias: &str) -> Value {
    let program = env!("CARGO_BIN_EXE_ropeway");
    let script = format!(
        "if [ -e broken ]; then echo broken >&2; exit 1; fi; echo $$$$ >> {alias}.starts; exec {program} demo-server"
    );
    json!({"alias": alias, "command": "sh", "args": ["-c", script]})
}

#[test]
fn servers_keep_running_between_commands() {
    let up = Background::new(&[counted("a")]);
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.starts_with("started (process ") && run.stdout.contains("6 tools"), "{}", run.stdout);
    for _ in 0..2 {
        let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
        assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""));
    }
    up.run(&["tools"]).expect(0);
    assert_eq!(up.starts("a"), 1);
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.starts_with("already running (process "), "{}", run.stdout);
    up.run(&["call", "a.calculate", "expression=1", "--direct"]).expect(0);
    assert_eq!(up.starts("a"), 2);
    let Ropeway { mut command, .. } = up.command(&["call", "a.calculate", "expression=1"]);
    Run::from(command.env("ROPEWAY_DIRECT", "1").output().expect("ropeway starts")).expect(0);
    assert_eq!(up.starts("a"), 3);
    let status = up.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["pid"], up.info()["pid"]);
    assert_eq!((&status["running"], &status["servers"][0]["tools"]), (&json!(true), &json!(6)), "{status}");
    assert_eq!(up.run(&["down"]).expect(0).stdout, "stopped\n");
    assert_eq!(up.run(&["down"]).expect(0).stdout, "not running\n");
    assert_eq!(up.run(&["status", "--json"]).expect(3).json(), json!({"running": false}));
    up.run(&["call", "a.calculate", "expression=1"]).expect(0);
    assert_eq!(up.starts("a"), 4);
}

#[test]
fn a_strict_lock_also_applies_to_a_gateway_in_the_background_and_to_doctor() {
    let up = Background::new(&[counted("a")]);
    up.run(&["lock", "--yes"]).expect(0);
    let config = json!({"lock": "strict", "servers": [counted("a"), counted("b")]});
    up.temp_home.write("ropeway.yaml", &config.to_string());
    up.run(&["up"]);
    let commands = [
        &["tools"][..],
        &["doctor"],
        &["call", "b.calculate", "expression=6*7"],
        &["events", "--timeout", "3s", "--direct"],
        &["events", "--timeout", "3s", "--json", "--direct"],
    ];
    for command in commands {
        let run = up.run(command);
        let output = format!("{}{}", run.stdout, run.stderr);
        assert!(output.contains("it is not in `ropeway.lock`"), "{command:?}: {output}");
    }
    assert_eq!(up.run(&["call", "a.calculate", "expression=6*7"]).expect(0).stdout.trim(), "42");
    assert_eq!(up.starts("b"), 0);
    up.run(&["lock", "--yes"]).expect(0);
    up.run(&["down"]).expect(0);
    up.run(&["up"]).expect(0);
    assert_eq!(up.run(&["call", "b.calculate", "expression=6*7"]).expect(0).stdout.trim(), "42");
}

#[test]
fn a_gateway_in_the_background_needs_no_session_keys() {
    let up = Background::new(&[]);
    let config = json!({"gateway": {"keys": ["${ROPEWAY_TEST_UNSET}"]}, "servers": [counted("a")]});
    up.temp_home.write("ropeway.yaml", &config.to_string());
    up.run(&["up"]).expect(0);
    assert_eq!(up.run(&["call", "a.calculate", "expression=6*7"]).expect(0).stdout.trim(), "42");
    assert_eq!(up.starts("a"), 1);
}

#[test]
fn the_socket_of_a_killed_gateway_is_replaced() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    let pid = up.info()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process");
    signal("KILL", pid);
    let began = Instant::now();
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(up.file("sock").exists());
    let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
    assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""));
    up.run(&["status"]).expect(3);
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.starts_with("started"), "{}", run.stdout);
    assert_ne!(up.info()["pid"], json!(pid));
}

#[test]
fn a_gateway_of_another_version_is_not_used_and_replaced() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    let mut info = up.info();
    let pid = info["pid"].clone();
    info["version"] = json!("0.0.0");
    fs::write(up.file("json"), info.to_string()).expect("a description");
    let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
    assert!(run.stderr.contains("warning: the running gateway is version 0.0.0"), "{}", run.stderr);
    assert_eq!((run.stdout.trim(), up.starts("a")), ("42", 2));
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.starts_with("restarted"), "{}", run.stdout);
    assert_ne!(up.info()["pid"], pid);
}

#[test]
fn a_changed_file_is_loaded_before_its_servers_are_used() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    up.temp_home.configure(&[counted("a"), counted("b")]);
    let run = up.run(&["call", "b.calculate", "expression=6*7"]).expect(0);
    assert_eq!(run.stdout.trim(), "42");
    let waiting = "waiting for server `b`: the running gateway is starting it\n";
    assert!(["", waiting].contains(&run.stderr.as_str()), "{}", run.stderr);
    up.run(&["call", "b.calculate", "expression=6*7"]).expect(0);
    assert_eq!((up.starts("a"), up.starts("b")), (1, 1));
}

#[test]
fn a_gateway_whose_socket_is_deleted_stops_and_leaves_the_next_one_alone() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    let first = u32::try_from(up.info()["pid"].as_u64().expect("a pid")).expect("a pid");
    fs::remove_dir_all(up.folder()).expect("removed");
    up.run(&["up"]).expect(0);
    let second = up.info()["pid"].clone();
    let began = Instant::now();
    while PathBuf::from(format!("/proc/{first}/exe")).exists() {
        assert!(began.elapsed().as_secs() < 60, "the first gateway still runs");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(up.info()["pid"], second);
    assert_eq!(up.run(&["call", "a.calculate", "expression=6*7"]).expect(0).stdout.trim(), "42");
    assert_eq!(up.starts("a"), 2);
}

#[test]
fn filters_and_names_are_the_same_with_and_without_a_gateway() {
    let tools = json!({"tools": {"rename": {"calculate": "calc"}, "deny": ["fail", "calc"]}, "prefix": "x_"});
    let up = Background::new(&[having(counted("a"), tools), counted("b")]);
    let direct = up.run(&["tools", "--json"]).expect(0).json();
    up.run(&["up"]).expect(0);
    let shared = up.run(&["tools", "--json"]).expect(0).json();
    let names = |list: &Value| {
        let servers = list["servers"].as_array().cloned().unwrap_or_default();
        let tools = servers.iter().flat_map(|server| server["tools"].as_array().cloned().unwrap_or_default());
        tools.map(|tool| tool["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&direct), names(&shared));
    assert!(names(&shared).contains(&json!("x_calc")), "{shared}");
    assert_eq!(up.run(&["call", "a.calc", "expression=6*7"]).expect(0).stdout.trim(), "42");
    assert_eq!(up.starts("a"), 2);
}

#[test]
fn a_server_that_the_gateway_does_not_have_fails_as_usual() {
    let up = Background::new(&[counted("a"), json!({"alias": "gone", "command": "/no/such/program"})]);
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.contains("gone"), "{}", run.stdout);
    let run = up.run(&["tools", "gone"]).expect(3);
    assert!(run.stderr.contains("could not start `/no/such/program`"), "{}", run.stderr);
}

/// Returns the demo server, which counts its starts and takes its time.
fn slow(alias: &str, seconds: u32) -> Value {
    let program = env!("CARGO_BIN_EXE_ropeway");
    let script = format!("echo $$$$ >> {alias}.starts; sleep {seconds}; exec {program} demo-server");
    json!({"alias": alias, "command": "sh", "args": ["-c", script]})
}

#[test]
fn a_server_that_the_gateway_is_starting_is_waited_for_and_not_started_again() {
    let up = Background::new(&[slow("a", 4)]);
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.contains("◐ a · connecting"), "{}", run.stdout);
    let run = up.run(&["tools", "a", "--names"]).expect(0);
    assert!(run.stdout.contains("a.calculate"), "{}", run.stdout);
    assert_eq!(run.stderr, "waiting for server `a`: the running gateway is starting it\n");
    assert_eq!(up.starts("a"), 1);
}

#[test]
fn up_with_wait_returns_when_the_servers_are_ready() {
    let up = Background::new(&[slow("a", 3), counted("b")]);
    let run = up.run(&["up", "--wait"]).expect(0);
    assert!(run.stdout.contains("● a · 6 tools") && run.stdout.contains("● b · 6 tools"), "{}", run.stdout);
    assert!(run.stderr.starts_with("waiting for a"), "{}", run.stderr);
}

#[test]
fn a_server_that_hangs_or_fails_in_the_gateway_delays_no_command() {
    let hung = json!({"alias": "hung", "command": "sleep", "args": ["1000"], "timeouts": {"connect": "1h"}});
    let up = Background::new(&[hung, json!({"alias": "gone", "command": "/no/such/program"}), counted("a")]);
    up.run(&["up"]).expect(0);
    let run = up.run(&["call", "calculate", "expression=6*7"]).expect(0);
    assert_eq!(run.stdout.trim(), "42");
    let run = up.run(&["tools", "--names"]).expect(0);
    assert!(run.stdout.contains("a.calculate\n"), "{}", run.stdout);
    for words in ["◐ hung · still starting in the running gateway\n", "could not start `/no/such/program`"] {
        assert!(run.stderr.contains(words), "{words}\n{}", run.stderr);
    }
    assert!(!run.stderr.contains("hung · down"), "{}", run.stderr);
    assert!(!run.stderr.contains("starting it for this command"), "{}", run.stderr);
    assert_eq!(up.starts("a"), 1);
}

#[test]
fn the_era_version_and_transport_of_a_server_are_its_own_behind_a_gateway() {
    let up = Background::new(&[having(counted("a"), json!({"era": "legacy"}))]);
    let facts = |health: Value| {
        let server = &health["servers"][0];
        assert!(server["latency_ms"].is_number(), "{server}");
        ["era", "protocol_version", "transport", "name", "tools"].map(|key| server[key].clone())
    };
    let direct = facts(up.run(&["health", "--json"]).expect(0).json());
    assert_eq!(direct[..3], [json!("legacy"), json!("2025-11-25"), json!("stdio")]);
    up.run(&["up"]).expect(0);
    assert_eq!(facts(up.run(&["health", "--json"]).expect(0).json()), direct);
    let run = up.run(&["tools", "a"]).expect(0);
    assert!(run.stdout.contains("MCP 2025-11-25"), "{}", run.stdout);
    let list = up.run(&["tools", "--json"]).expect(0).json();
    assert_eq!(list["servers"][0]["era"], "legacy");
    let run = up.run(&["call", "a.calculate", "expression=1", "-v"]).expect(0);
    assert!(run.stderr.contains("2025-11-25") && !run.stderr.contains("2026-07-28"), "{}", run.stderr);
    assert_eq!(up.starts("a"), 2);
}

#[test]
fn servers_of_a_gateway_for_commands_are_offered_what_commands_answer() {
    let up = Background::new(&[]);
    let record = up.temp_home.path().join("record");
    let script = Script { record_file: Some(record.clone()), ..Script::default() };
    up.temp_home.configure(&[having(entry("a", &script), json!({"era": "legacy"}))]);
    up.run(&["up"]).expect(0);
    let heard = fs::read_to_string(&record).expect("a record");
    assert!(heard.contains("elicitation") && !heard.contains("sampling") && !heard.contains("roots"), "{heard}");
}

#[test]
fn only_the_owner_can_reach_the_socket() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    let mode = |path: PathBuf| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(up.folder()), mode(up.file("sock")), mode(up.file("json"))), (0o700, 0o600, 0o600));
    fs::set_permissions(up.folder(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
    assert!(run.stderr.contains("warning: other users can access"), "{}", run.stderr);
    assert_eq!(up.starts("a"), 2);
    fs::set_permissions(up.folder(), fs::Permissions::from_mode(0o700)).expect("permissions");
}

#[test]
fn a_gateway_that_does_not_start_shows_its_log() {
    let up = Background::new(&[counted("a")]);
    up.run(&["up"]).expect(0);
    up.run(&["down"]).expect(0);
    let socket = up.file("lock").with_extension("sock");
    fs::create_dir(&socket).expect("a folder");
    let run = up.run(&["up"]).expect(3);
    assert!(run.stderr.contains("the gateway did not start"), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("could not listen on `{}`", socket.display())), "{}", run.stderr);
    fs::remove_dir(&socket).expect("a folder");
    let empty = TempHome::new();
    let run = empty.run("up").expect(2);
    assert!(run.stderr.contains("no configuration file found"), "{}", run.stderr);
}

#[test]
fn state_is_kept_between_calls() {
    // The server counts the calls: the third one fails.
    let third = FaultTrigger::tool("echo").nth(3);
    let refusal = Fault::Error(json!({"code": -32000, "message": "the third call"}));
    for script in [Script::default(), Script::legacy()] {
        let up = Background::new(&[entry("web", &script.fault(third.clone(), refusal.clone()))]);
        up.run(&["up"]).expect(0);
        for code in [0, 0, 1, 0] {
            let run = up.run(&["call", "web.echo", "message=hi"]).expect(code);
            assert_eq!(run.stderr.contains("the third call"), code == 1, "{}", run.stderr);
        }
    }
}

#[test]
fn a_lazy_server_starts_with_its_first_use_and_keeps_running() {
    let lazy = having(counted("lazy"), json!({"start": "lazy"}));
    let up = Background::new(&[counted("a"), lazy]);
    // A lazy server is started once to list its tools, which are cached from then on.
    up.run(&["tools"]).expect(0);
    assert_eq!((up.starts("a"), up.starts("lazy")), (1, 1));
    let run = up.run(&["up"]).expect(0);
    assert!(run.stdout.starts_with("started"), "{}", run.stdout);
    up.run(&["call", "a.calculate", "expression=1"]).expect(0);
    assert_eq!((up.starts("a"), up.starts("lazy")), (2, 1), "{}", up.run(&["status"]).stdout);
    for _ in 0..3 {
        let run = up.run(&["call", "lazy.calculate", "expression=6*7"]).expect(0);
        assert_eq!((run.stdout.trim(), run.stderr.as_str()), ("42", ""));
        assert_eq!(up.starts("lazy"), 2);
    }
    let run = up.run(&["tools", "lazy", "--names"]).expect(0);
    assert!(run.stdout.contains("calculate"), "{}", run.stdout);
    assert_eq!((up.starts("a"), up.starts("lazy")), (2, 2));
}

#[test]
fn a_server_that_crashed_is_waited_for_and_not_started_twice() {
    let up = Background::new(&[counted("a"), counted("b")]);
    up.run(&["up"]).expect(0);
    for round in 1..=3 {
        signal("KILL", up.process("a"));
        let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
        assert_eq!(run.stdout.trim(), "42");
        let waiting = "waiting for server `a`: the running gateway is reconnecting it\n";
        assert!(["", waiting].contains(&run.stderr.as_str()), "{}", run.stderr);
        // Only the gateway has started another process, which serves the next call as well.
        assert_eq!(up.starts("a"), 1 + round);
        up.run(&["call", "a.calculate", "expression=6*7"]).expect(0);
        assert_eq!(up.starts("a"), 1 + round);
    }
    assert_eq!(up.starts("b"), 1);
}

#[test]
fn a_server_that_stays_down_in_the_gateway_is_an_error() {
    let up = Background::new(&[having(counted("a"), json!({"timeouts": {"grace": "1s"}})), counted("b")]);
    up.run(&["up"]).expect(0);
    up.temp_home.write("broken", "");
    signal("KILL", up.process("a"));
    std::thread::sleep(Duration::from_millis(300));
    let run = up.run(&["call", "a.calculate", "expression=6*7"]).expect(3);
    for words in ["the running gateway is reconnecting it", "server `a` is down", "--direct"] {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    // A command for several servers uses the others, and says which one is missing.
    let run = up.run(&["tools", "--names"]).expect(0);
    assert!(run.stdout.contains("b.calculate"), "{}", run.stdout);
    assert!(run.stderr.contains("warning: server `a` is down"), "{}", run.stderr);
    assert_eq!((up.starts("a"), up.starts("b")), (1, 1));
}

#[test]
fn events_follows_the_running_gateway() {
    let up = Background::new(&[counted("a"), counted("b")]);
    up.run(&["up"]).expect(0);
    let mut following = Following::start(&up.temp_home, &["events", "a"]);
    let mut said = BufReader::new(following.running.child.stderr.take().expect("messages")).lines();
    let first = said.next().expect("a line").expect("text");
    assert_eq!(first, "following the events of the running gateway");
    up.run(&["call", "b.calculate", "expression=1"]).expect(0);
    up.run(&["call", "a.calculate", "expression=1"]).expect(0);
    let line = following.until(|line| line.contains("calculate"));
    assert!(line.contains("● a "), "{line}");
    assert_eq!((up.starts("a"), up.starts("b")), (1, 1));
    following.end();
}
