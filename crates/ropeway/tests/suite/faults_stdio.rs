//! Child processes: exit, descendants, environment and stderr.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use ropeway::config::StdioServer;
use ropeway::event::Event;
use ropeway::mcp::{ConnectionState, Mcp};
use ropeway::testing::{Fault, FaultTrigger, Script};
use ropeway_testing::{Grandchild, ProcessScript, StdoutNoise, WriteStyle};
use serde_json::json;

use crate::fast_config::{
    SOON, call, chain, child, connect, echo_fails, event, fast_config, ms, names, state, still_works, text, until,
};
use crate::scene::scene;

fn process(process: ProcessScript) -> Script {
    Script { process, ..Script::default() }
}

/// Returns the process id of the server and of its child, if it has one.
async fn pids(server: &Mcp) -> (u64, Option<u64>) {
    let pids = call(server, "pid", json!({})).await.expect("an answer").structured.expect("numbers");
    (pids["server"].as_u64().expect("a number"), pids["grandchild"].as_u64())
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A process that has exited without being waited for is a zombie.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn environment(pid: u64) -> BTreeSet<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("an environment");
    let variables = environment.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
    variables.map(|variable| String::from_utf8_lossy(variable).into_owned()).collect()
}

#[test]
fn an_exit_during_a_call_fails_it_and_restarts_the_server() {
    scene(|scene| async move {
        let state_file = Some(scene.directory().join("state"));
        for (fault, told) in [
            (Fault::Exit { after_ms: 0, code: 3 }, "the process exited (exit status: 3)"),
            (Fault::Exit { after_ms: 100, code: 0 }, "the process exited (exit status: 0)"),
            (Fault::ExitMidAnswer, "the process exited (exit status: 1)"),
        ] {
            let script = Script { state_file: state_file.clone(), ..Script::default() };
            let script = script.fault(FaultTrigger::tool("echo").nth(1), fault.clone());
            let server = connect(fast_config(child(&scene, &script))).await;
            let before = pids(&server).await.0;
            let started = Instant::now();
            assert_eq!(echo_fails(&server).await, format!("server `peer` is unavailable: {told}"), "{fault:?}");
            assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
            still_works(&server).await;
            assert_ne!(pids(&server).await.0, before);
            server.close().await;
            fs::remove_file(scene.directory().join("state")).expect("the state");
        }
    });
}

#[test]
fn a_response_just_before_the_exit_is_delivered() {
    scene(|scene| async move {
        let script = Script::default().fault(FaultTrigger::tool("echo"), Fault::ExitAfterAnswer);
        let server = connect(fast_config(child(&scene, &script))).await;
        for _ in 0..3 {
            still_works(&server).await;
            state(&server, |state| !matches!(state, ConnectionState::Ready { .. })).await;
        }
        server.close().await;
    });
}

#[test]
fn a_server_that_closes_its_stdout_is_terminated() {
    scene(|scene| async move {
        let state_file = Some(scene.directory().join("state"));
        let script = Script { state_file, ..Script::default() };
        let server =
            connect(fast_config(child(&scene, &script.fault(FaultTrigger::tool("echo").nth(1), Fault::CloseOutput))))
                .await;
        let before = pids(&server).await.0;
        let started = Instant::now();
        assert_eq!(echo_fails(&server).await, "server `peer` is unavailable: the server closed the connection");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        still_works(&server).await;
        until("the end of the first process", || !is_alive(before)).await;
        server.close().await;
    });
}

#[test]
fn noise_and_arbitrary_chunks_on_a_pipe_are_tolerated() {
    scene(|scene| async move {
        for writing in [
            WriteStyle { split: Some(3), crlf: true, bom: true, ..WriteStyle::default() },
            WriteStyle { merge: Some(20), ..WriteStyle::default() },
        ] {
            let script = Script { writing, ..Script::default() }
                .fault(FaultTrigger::connect(), StdoutNoise::Text("npm warn something".to_owned()))
                .fault(FaultTrigger::any(), StdoutNoise::InvalidUtf8)
                .fault(FaultTrigger::any(), StdoutNoise::Blank)
                .fault(FaultTrigger::any(), StdoutNoise::CutJson);
            let server = connect(fast_config(child(&scene, &script))).await;
            assert_eq!(names(&server).await.len(), 16);
            assert_eq!(names(&server).await.len(), 16);
            let before = server.invalid_lines();
            for _ in 0..5 {
                still_works(&server).await;
            }
            assert!(server.invalid_lines() >= before + 5, "{before} and {}", server.invalid_lines());
            server.close().await;
        }
    });
}

#[test]
fn a_flood_on_stderr_delays_nothing_and_its_end_is_kept() {
    scene(|scene| async move {
        let script = process(ProcessScript { stderr_bytes: 1 << 20, ..ProcessScript::default() })
            .fault(FaultTrigger::tool("echo"), Fault::Stderr { bytes: 1 << 20 });
        let mut config = fast_config(child(&scene, &script));
        config.limits.stderr_bytes = 1000;
        let server = connect(config).await;
        still_works(&server).await;
        let line = "a line on stderr that nobody has asked for, sixty-four in all..";
        until("the tail", || server.stderr_tail().len() == 15).await;
        assert!(server.stderr_tail().iter().all(|kept| kept == line));
        server.close().await;
        assert_eq!(server.stderr_tail().len(), 15, "it is kept after the end");
    });
}

#[test]
fn the_end_of_stderr_explains_an_exit() {
    scene(|scene| async move {
        let script = "read line; echo starting >&2; echo 'KEY is not set' >&2; exit 3";
        let mut config = fast_config(scene.stdio("sh", ["-c", script]));
        config.reconnect.enabled = false;
        let server = Mcp::new(config);
        let told = chain(&server.connect().await.expect_err("no connection"));
        let words = "the process exited (exit status: 3): `KEY is not set`";
        assert_eq!(told, format!("could not connect to server `peer`: {words}"));
        assert_eq!(echo_fails(&server).await, format!("server `peer` is unavailable: {words}"));
        assert_eq!(server.stderr_tail(), ["starting", "KEY is not set"]);
        server.close().await;
    });
}

#[test]
fn the_signal_that_killed_a_server_is_reported() {
    scene(|scene| async move {
        let mut config = fast_config(child(&scene, &Script::default()));
        config.reconnect.enabled = false;
        let server = connect(config).await;
        let mut events = server.events();
        let pid = i32::try_from(pids(&server).await.0).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("its end");
        let cause = event(&mut events, |event| match event {
            Event::Down { cause, retry_in: None, .. } => Some(cause),
            _ => None,
        })
        .await;
        assert_eq!(cause, "the process exited (signal: 9 (SIGKILL))");
        server.close().await;
    });
}

#[test]
fn a_server_gets_time_to_exit_after_its_stdin_closes() {
    scene(|scene| async move {
        let mut config = fast_config(child(&scene, &Script::default()));
        config.timeouts.close = SOON;
        let server = connect(config).await;
        let pid = pids(&server).await.0;
        let started = Instant::now();
        server.close().await;
        assert!(!is_alive(pid));
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
    });
}

#[test]
fn a_server_that_ignores_signals_is_killed() {
    scene(|scene| async move {
        for ignore_sigterm in [false, true] {
            let script = process(ProcessScript { ignore_eof: true, ignore_sigterm, ..ProcessScript::default() });
            let server = connect(fast_config(child(&scene, &script))).await;
            let pid = pids(&server).await.0;
            let started = Instant::now();
            server.close().await;
            assert!(!is_alive(pid));
            // One grace period after the end of the input, one after SIGTERM.
            assert!((ms(300)..SOON / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
        }
    });
}

#[test]
fn grandchildren_that_ignore_signals_are_killed_with_the_server() {
    scene(|scene| async move {
        for grandchild in [Grandchild::HoldingPipes, Grandchild::Detached, Grandchild::OwnSession] {
            let script = process(ProcessScript { grandchild: Some(grandchild), ..ProcessScript::default() });
            for way in ["close", "drop", "crash"] {
                let server = connect(fast_config(child(&scene, &script))).await;
                let (pid, Some(grandchild)) = pids(&server).await else { panic!("no grandchild") };
                match way {
                    "close" => server.close().await,
                    "drop" => drop(server),
                    _ => {
                        let started = Instant::now();
                        let told = call(&server, "crash", json!({})).await.expect_err("no answer");
                        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
                        assert!(chain(&told).contains("exit status: 1"), "{}", chain(&told));
                        until("the grandchild's end", || !is_alive(grandchild)).await;
                        still_works(&server).await;
                        server.close().await;
                    }
                }
                until("their end", || !is_alive(pid) && !is_alive(grandchild)).await;
            }
        }
    });
}

#[test]
fn a_server_gets_a_minimal_environment_and_its_own_variables() {
    scene(|scene| async move {
        const MINIMAL: [&str; 27] = [
            "CURL_CA_BUNDLE",
            "DENO_CERT",
            "GIT_SSL_CAINFO",
            "GIT_SSL_CAPATH",
            "HOME",
            "LANG",
            "LC_ALL",
            "LC_CTYPE",
            "LOGNAME",
            "NIX_SSL_CERT_FILE",
            "NODE_EXTRA_CA_CERTS",
            "NPM_CONFIG_CAFILE",
            "PATH",
            "PIP_CERT",
            "REQUESTS_CA_BUNDLE",
            "SHELL",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
            "TERM",
            "TMPDIR",
            "TZ",
            "USER",
            "UV_NATIVE_TLS",
            "UV_SYSTEM_CERTS",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_RUNTIME_DIR",
        ];
        let server = child(&scene, &Script::default()).with_env("TOKEN", "a secret").with_env("HOME", "/nowhere");
        // Processes of a server are found by this variable.
        let server = server.with_env("ROPEWAY_SERVER_ID", "none");
        let given: BTreeSet<String> = server.env.iter().map(|(name, _)| name.clone()).collect();
        let connected = connect(fast_config(server.clone())).await;
        let got = environment(pids(&connected).await.0);
        assert!(got.contains("TOKEN=a secret") && got.contains("HOME=/nowhere"), "{got:?}");
        assert!(!got.contains("ROPEWAY_SERVER_ID=none"), "{got:?}");
        let names: BTreeSet<&str> = got.iter().filter_map(|variable| variable.split('=').next()).collect();
        for name in &names {
            let is_mark = *name == "ROPEWAY_SERVER_ID";
            assert!(
                is_mark || MINIMAL.contains(name) || given.contains(*name),
                "`{name}` is nothing that it should know"
            );
        }
        assert!(names.contains("PATH"));
        connected.close().await;

        let mut server = server;
        server.inherit_env = true;
        let connected = connect(fast_config(server)).await;
        let got = environment(pids(&connected).await.0);
        let ours: Vec<(String, String)> = std::env::vars().filter(|(name, _)| !given.contains(name)).collect();
        assert!(ours.iter().any(|(name, _)| !MINIMAL.contains(&name.as_str())), "cargo gives us more than that");
        assert!(ours.iter().all(|(name, value)| got.contains(&format!("{name}={value}"))), "{got:?}");
        connected.close().await;
    });
}

#[test]
fn a_server_runs_in_its_working_directory() {
    scene(|scene| async move {
        let mut server = child(&scene, &Script::default());
        server.cwd = Some(scene.directory().to_owned());
        let connected = connect(fast_config(server)).await;
        let folder = fs::read_link(format!("/proc/{}/cwd", pids(&connected).await.0)).expect("a folder");
        assert_eq!(folder, scene.directory().canonicalize().expect("a folder"));
        connected.close().await;
    });
}

#[test]
fn dropping_a_handle_with_pending_calls_leaks_nothing() {
    scene(|scene| async move {
        let script = process(ProcessScript { ignore_eof: true, ignore_sigterm: true, ..ProcessScript::default() });
        let server = connect(fast_config(child(&scene, &script))).await;
        let pid = pids(&server).await.0;
        let calls = (0..10).map(|_| {
            let server = server.clone();
            tokio::spawn(async move { call(&server, "sleep", json!({"ms": 60_000})).await })
        });
        let calls: Vec<_> = calls.collect();
        tokio::time::sleep(ms(100)).await;
        for call in &calls {
            call.abort();
        }
        drop(server);
        drop(calls);
        until("its end", || !is_alive(pid)).await;
    });
}

#[test]
fn a_tool_keeps_its_connection_open_until_dropped() {
    scene(|scene| async move {
        let server = connect(fast_config(child(&scene, &Script::default()))).await;
        let pid = pids(&server).await.0;
        let tools = server.list_tools_with_prefix("peer").await.expect("tools");
        drop(server);
        let echo = tools.iter().find(|tool| tool.definition().name == "peer_echo").expect("a tool").clone();
        drop(tools);
        tokio::time::sleep(ms(100)).await;
        let output = echo.call(crate::fast_config::arguments(json!({"message": "hi"})), &Default::default()).await;
        assert_eq!(output.expect("an answer").plain_text().as_deref(), Some("hi"));
        drop(echo);
        until("its end", || !is_alive(pid)).await;
    });
}

/// Connects on a separate runtime and thread, and runs `end` there.
fn on_another_runtime(server: StdioServer, end: impl FnOnce(tokio::runtime::Runtime, Mcp) + Send + 'static) -> u64 {
    let (sender, receiver) = std::sync::mpsc::channel();
    let host = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
        let (connected, pid) = runtime.block_on(async {
            let connected = connect(fast_config(server)).await;
            let pid = pids(&connected).await.0;
            (connected, pid)
        });
        sender.send(pid).expect("a listener");
        end(runtime, connected);
    });
    let pid = receiver.recv().expect("a pid");
    // The thread may panic on purpose.
    let _ = host.join();
    pid
}

fn stubborn() -> Script {
    process(ProcessScript { ignore_eof: true, ignore_sigterm: true, ..ProcessScript::default() })
}

#[test]
fn dropping_the_runtime_terminates_its_servers() {
    scene(|scene| async move {
        let pid = on_another_runtime(child(&scene, &stubborn()), |runtime, server| {
            drop(runtime);
            drop(server);
        });
        until("its end", || !is_alive(pid)).await;
        let pid = on_another_runtime(child(&scene, &stubborn()), |runtime, server| {
            runtime.shutdown_background();
            drop(server);
        });
        until("its end", || !is_alive(pid)).await;
        let pid = on_another_runtime(child(&scene, &stubborn()), |runtime, server| {
            drop(server);
            drop(runtime);
        });
        until("its end", || !is_alive(pid)).await;
    });
}

#[test]
fn a_panic_of_the_program_terminates_its_servers() {
    scene(|scene| async move {
        let pid = on_another_runtime(child(&scene, &stubborn()), |runtime, server| {
            runtime.block_on(async move {
                let _connected = server;
                panic!("on purpose");
            });
        });
        until("its end", || !is_alive(pid)).await;
    });
}

#[test]
fn end_children_terminates_servers_before_an_exit() {
    scene(|scene| async move {
        let server = child(&scene, &stubborn());
        let (marker, value) = (&server.env[0].0, server.env[0].1.expose());
        // `cargo test` builds the examples of a package beside its tests.
        let tests = std::env::current_exe().expect("this program");
        let host =
            tests.parent().and_then(std::path::Path::parent).expect("target/debug").join("examples/leave_at_once");
        assert!(host.exists(), "`{}` is missing: cargo build -p ropeway --examples", host.display());
        let mut command = Command::new(host);
        command.arg(&server.command).args(&server.args).env(marker, value).stdout(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("its end");
        assert!(output.status.success(), "{}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "connected\n");
    });
}

#[test]
fn many_servers_start_and_end_concurrently() {
    scene(|scene| async move {
        let servers = (0..8).map(|_| {
            let config = fast_config(child(&scene, &Script::default()));
            tokio::spawn(async move {
                let server = connect(config).await;
                assert_eq!(text(&server, "echo", json!({"message": "hi"})).await, "hi");
                server.close().await;
            })
        });
        for server in servers.collect::<Vec<_>>() {
            server.await.expect("no panic");
        }
    });
}
