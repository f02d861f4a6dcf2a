//! The handshake: detecting the era of a server.

use std::time::Instant;

use ropeway::config::{EraChoice, ServerConfig, Transport};
use ropeway::event::Event;
use ropeway::mcp::{ConnectionState, Era, Mcp};
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script, ScriptedServer};
use ropeway_testing::{FaultRule, HttpFault, UnknownMethods, unusual};
use serde_json::{Value, json};

use crate::fast_config::{
    SOON, at, call, cannot_connect, child, connect, event, fast_config, in_era, listening, ms, names, silent_at_probe,
    state, still_works, until, warnings,
};
use crate::scene::scene;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

fn agreed(server: &Mcp) -> (Era, String) {
    let info = server.server_info().expect("a connected server");
    (info.era, info.protocol_version.clone())
}

fn count(scripted: &ScriptedServer, method: &str) -> usize {
    scripted.received_of(method).len()
}

async fn is_modern(server: &Mcp, scripted: &ScriptedServer) {
    assert_eq!(agreed(server), (Era::Modern, MODERN.to_owned()));
    still_works(server).await;
    assert_eq!(count(scripted, "notifications/initialized"), 0);
}

async fn is_legacy(server: &Mcp, scripted: &ScriptedServer) {
    assert_eq!(agreed(server), (Era::Legacy, LEGACY.to_owned()));
    still_works(server).await;
    assert_eq!(count(scripted, "notifications/initialized"), 1);
}

fn refused(code: i64, data: Value) -> Fault {
    Fault::Error(json!({"code": code, "message": "not so", "data": data}))
}

#[test]
fn a_server_that_answers_the_probe_is_modern() {
    scene(|_| async {
        for script in [Script::default(), Script::modern()] {
            let scripted = ScriptedServer::new(script.clone());
            let server = connect(fast_config(scripted.in_process())).await;
            is_modern(&server, &scripted).await;
            assert_eq!((scripted.connections(), count(&scripted, "initialize")), (1, 0));
            server.close().await;
            let http = listening(script).await;
            let server = connect(fast_config(at(http.url()))).await;
            is_modern(&server, &http).await;
            assert_eq!(count(&http, "initialize"), 0);
            server.close().await;
        }
    });
}

#[test]
fn a_server_that_rejects_the_probe_is_legacy_on_the_same_pipe() {
    scene(|_| async {
        for unknown_methods in [UnknownMethods::MethodNotFound, UnknownMethods::InvalidParams] {
            let script = Script { unknown_methods, ..Script::legacy() };
            let scripted = ScriptedServer::new(script.clone());
            let server = connect(fast_config(scripted.in_process())).await;
            is_legacy(&server, &scripted).await;
            assert_eq!(scripted.connections(), 1);
            server.close().await;
            let http = listening(script).await;
            let server = connect(fast_config(at(http.url()))).await;
            is_legacy(&server, &http).await;
            server.close().await;
        }
    });
}

#[test]
fn a_server_that_ignores_the_probe_is_sent_initialize() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script { unknown_methods: UnknownMethods::Silence, ..Script::legacy() });
        let started = Instant::now();
        let server = connect(silent_at_probe(scripted.in_process())).await;
        assert!((ms(300)..SOON / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
        is_legacy(&server, &scripted).await;
        assert_eq!(scripted.connections(), 1);
        server.close().await;

        let http = listening(Script::default().fault(FaultTrigger::method("server/discover"), Fault::Hang)).await;
        let server = connect(silent_at_probe(at(http.url()))).await;
        is_legacy(&server, &http).await;
        server.close().await;
    });
}

#[test]
fn the_probe_takes_at_most_half_of_the_timeout() {
    scene(|_| async {
        let impatient = |transport: Transport| {
            let mut config = fast_config(transport);
            config.timeouts.probe = 100 * SOON;
            config
        };
        let silent = Script { unknown_methods: UnknownMethods::Silence, ..Script::legacy() };
        let scripted = ScriptedServer::new(silent);
        let server = connect(impatient(scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        server.close().await;
        let http = listening(Script::default().fault(FaultTrigger::method("server/discover"), Fault::Hang)).await;
        let server = connect(impatient(at(http.url()).into())).await;
        is_legacy(&server, &http).await;
        server.close().await;
    });
}

#[test]
fn a_server_that_dies_at_the_probe_is_restarted_as_legacy() {
    scene(|scene| async move {
        let scripted = ScriptedServer::new(Script { unknown_methods: UnknownMethods::Exit, ..Script::legacy() });
        let server = connect(fast_config(scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        assert_eq!((scripted.connections(), count(&scripted, "server/discover")), (2, 1));
        call(&server, "crash", json!({})).await.expect_err("no answer");
        still_works(&server).await;
        assert_eq!((scripted.connections(), count(&scripted, "server/discover")), (3, 1));
        server.close().await;

        let record_file = Some(scene.directory().join("record"));
        let script = Script { unknown_methods: UnknownMethods::Exit, record_file, ..Script::legacy() };
        let server = connect(fast_config(child(&scene, &script))).await;
        assert_eq!(agreed(&server), (Era::Legacy, LEGACY.to_owned()));
        call(&server, "crash", json!({})).await.expect_err("no answer");
        still_works(&server).await;
        let record = std::fs::read_to_string(scene.directory().join("record")).expect("a record");
        assert_eq!(record.matches("server/discover").count(), 1, "{record}");
        assert_eq!(record.matches("notifications/initialized").count(), 2, "{record}");
        server.close().await;
    });
}

#[test]
fn a_server_that_rejects_initialize_after_the_probe_is_restarted() {
    scene(|_| async {
        let initialize = FaultTrigger::method("initialize").connection(1);
        let scripted = ScriptedServer::new(Script::legacy().fault(initialize, refused(-32600, json!(null))));
        let server = connect(fast_config(scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        assert_eq!(scripted.connections(), 2);
        server.close().await;
    });
}

#[test]
fn a_late_probe_response_is_ignored_after_initialize() {
    scene(|_| async {
        let scripted =
            ScriptedServer::new(Script::default().fault(FaultTrigger::method("server/discover"), Fault::late(1200)));
        let server = connect(silent_at_probe(scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        tokio::time::sleep(ms(1100)).await;
        is_legacy(&server, &scripted).await;
        assert_eq!(scripted.connections(), 1);
        server.close().await;
    });
}

#[test]
fn a_late_probe_response_counts_if_initialize_was_rejected() {
    scene(|_| async {
        let scripted =
            ScriptedServer::new(Script::modern().fault(FaultTrigger::method("server/discover"), Fault::late(1200)));
        let server = connect(silent_at_probe(scripted.in_process())).await;
        is_modern(&server, &scripted).await;
        assert_eq!((scripted.connections(), count(&scripted, "initialize")), (1, 1));
        server.close().await;
    });
}

#[test]
fn a_server_that_starts_slowly_is_waited_for() {
    scene(|scene| async move {
        for (mut script, era) in [(Script::legacy(), Era::Legacy), (Script::modern(), Era::Modern)] {
            script.process.start_delay_ms = 800;
            let server = connect(silent_at_probe(child(&scene, &script))).await;
            assert_eq!(agreed(&server).0, era);
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn a_rejection_that_offers_our_version_is_retried_once() {
    scene(|_| async {
        let refusal = refused(-32022, json!({"supported": [MODERN], "requested": "?"}));
        let script = Script::modern().fault(FaultTrigger::method("server/discover").nth(1), refusal);
        let scripted = ScriptedServer::new(script.clone());
        let server = connect(fast_config(scripted.in_process())).await;
        is_modern(&server, &scripted).await;
        assert_eq!(count(&scripted, "server/discover"), 2);
        server.close().await;
        let http = listening(script).await;
        let server = connect(fast_config(at(http.url()))).await;
        is_modern(&server, &http).await;
        server.close().await;
    });
}

#[test]
fn a_rejection_that_offers_legacy_versions_leads_to_initialize() {
    scene(|_| async {
        let refusal = refused(-32022, json!({"supported": ["2025-06-18", LEGACY]}));
        let scripted = ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("server/discover"), refusal));
        let server = connect(fast_config(scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        server.close().await;
    });
}

#[test]
fn an_unsupported_newer_version_is_named() {
    scene(|_| async {
        let refusal = refused(-32022, json!({"supported": ["2099-01-01", "2098-01-01"]}));
        let script = Script::modern()
            .fault(FaultTrigger::method("server/discover"), refusal.clone())
            .fault(FaultTrigger::method("initialize"), refusal);
        let scripted = ScriptedServer::new(script.clone());
        let http = listening(script).await;
        for config in [fast_config(scripted.in_process()), fast_config(at(http.url()))] {
            let server = Mcp::new(config);
            let told = cannot_connect(&server).await;
            assert!(told.starts_with("could not connect to server `peer`: "), "{told}");
            assert!(told.contains("2099-01-01"), "{told}");
            server.close().await;
        }
        let scripted = ScriptedServer::new(
            Script::legacy()
                .fault(FaultTrigger::method("initialize"), Fault::set("/result/protocolVersion", "2099-01-01")),
        );
        let server = Mcp::new(fast_config(scripted.in_process()));
        let told = cannot_connect(&server).await;
        let expected = "the server only supports protocol version 2099-01-01";
        assert_eq!(told, format!("could not connect to server `peer`: {expected}"));
        server.close().await;
    });
}

#[test]
fn every_legacy_version_is_supported() {
    scene(|_| async {
        for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
            let script = Script { legacy_versions: vec![version.to_owned()], ..Script::legacy() };
            let scripted = ScriptedServer::new(script.clone());
            let server = connect(fast_config(scripted.in_process())).await;
            assert_eq!(agreed(&server), (Era::Legacy, version.to_owned()));
            still_works(&server).await;
            server.close().await;
            let http = listening(script).await;
            let server = connect(fast_config(at(http.url()))).await;
            assert_eq!(agreed(&server), (Era::Legacy, version.to_owned()));
            still_works(&server).await;
            let call = http.requests().into_iter().rfind(|request| request.method == "POST").expect("a call");
            assert_eq!(call.header("mcp-protocol-version"), Some(version));
            server.close().await;
        }
    });
}

#[test]
fn a_version_offered_in_an_error_is_used() {
    scene(|_| async {
        let refusal = refused(-32602, json!({"supported": ["2024-11-05"], "requested": LEGACY}));
        let scripted = ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("initialize").nth(1), refusal));
        let server = connect(fast_config(scripted.in_process())).await;
        assert_eq!(agreed(&server), (Era::Legacy, "2024-11-05".to_owned()));
        server.close().await;
    });
}

#[test]
fn an_unknown_version_is_used_with_a_warning() {
    scene(|_| async {
        let fault = Fault::set("/result/protocolVersion", "1999-01-01");
        let scripted = ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("initialize"), fault));
        let server = Mcp::new(fast_config(scripted.in_process()));
        let mut events = server.events();
        server.connect().await.expect("a connection");
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|warning| warning.contains("1999-01-01")), "{warnings:?}");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_configured_era_is_the_only_one_tried() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let server = connect(in_era(EraChoice::Legacy, scripted.in_process())).await;
        is_legacy(&server, &scripted).await;
        assert_eq!(count(&scripted, "server/discover"), 0);
        server.close().await;

        let http = listening(Script::default()).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        is_legacy(&server, &http).await;
        assert_eq!(count(&http, "server/discover"), 0);
        server.close().await;

        let told = "could not connect to server `peer`: the server refused the handshake: error";
        for (script, era, code) in [
            (Script::legacy(), EraChoice::Modern, "-32601: unknown method `server/discover`"),
            (Script::modern(), EraChoice::Legacy, "-32022: unsupported protocol version"),
        ] {
            let scripted = ScriptedServer::new(script);
            let server = Mcp::new(in_era(era, scripted.in_process()));
            assert_eq!(cannot_connect(&server).await, format!("{told} {code}"));
            server.close().await;
            let other = if era == EraChoice::Modern { "initialize" } else { "server/discover" };
            assert_eq!(count(&scripted, other), 0);
        }
        let http = listening(Script::modern()).await;
        let server = Mcp::new(in_era(EraChoice::Legacy, at(http.url())));
        assert_eq!(cannot_connect(&server).await, format!("{told} -32022: unsupported protocol version"));
        server.close().await;
        let http = listening(Script::legacy()).await;
        let server = Mcp::new(in_era(EraChoice::Modern, at(http.url())));
        let told = cannot_connect(&server).await;
        assert!(told.starts_with("could not connect to server `peer`: the server refused the handshake: "), "{told}");
        server.close().await;
    });
}

#[test]
fn a_server_that_changes_its_era_is_detected() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::modern());
        let server = connect(fast_config(scripted.in_process())).await;
        is_modern(&server, &scripted).await;
        scripted.set(|script| script.eras = ropeway_testing::SupportedEras::Legacy);
        scripted.set(|script| {
            script.faults = vec![FaultRule { on: FaultTrigger::tool("echo").nth(1), fault: Fault::exit() }]
        });
        call(&server, "echo", json!({"message": "hi"})).await.expect_err("no answer");
        still_works(&server).await;
        assert_eq!(agreed(&server).0, Era::Legacy);
        server.close().await;
    });
}

#[test]
fn an_unusual_initialize_result_is_accepted() {
    scene(|_| async {
        for rule in unusual::initializes() {
            let script = Script { faults: vec![rule.clone()], ..Script::legacy() };
            let scripted = ScriptedServer::new(script);
            let server = connect(fast_config(scripted.in_process())).await;
            let info = server.server_info().expect("a connected server");
            assert!(["scripted", "peer"].contains(&info.name.as_str()), "{rule:?}: {info:?}");
            still_works(&server).await;
            assert_eq!(names(&server).await.len(), 16, "{rule:?}");
            server.close().await;
        }
    });
}

#[test]
fn an_unusual_probe_result_is_accepted() {
    scene(|_| async {
        for fault in [
            Fault::remove("/result/capabilities"),
            Fault::remove("/result/_meta"),
            Fault::remove("/result/resultType"),
            Fault::remove("/result/ttlMs"),
            Fault::set("/result/instructions", 7),
            Fault::set("/result/capabilities/tools", true),
            Fault::set("/result/cacheScope", "shared"),
            Fault::set("/result/supportedVersions", json!(["2099-01-01", MODERN, 7])),
        ] {
            let scripted =
                ScriptedServer::new(Script::modern().fault(FaultTrigger::method("server/discover"), fault.clone()));
            let server = connect(fast_config(scripted.in_process())).await;
            assert_eq!(agreed(&server).0, Era::Modern, "{fault:?}");
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn server_info_is_available() {
    scene(|_| async {
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let scripted =
                ScriptedServer::new(Script { instructions: Some("Be kind.".to_owned()), ..Script::default() });
            let server = connect(in_era(era, scripted.in_process())).await;
            let info = server.server_info().expect("a connected server");
            assert_eq!((info.name.as_str(), info.version.as_str()), ("scripted", "1.0.0"));
            assert_eq!(info.instructions.as_deref(), Some("Be kind."));
            assert!(info.has_capability(&["tools", "listChanged"]) && !info.has_capability(&["sampling"]));
            server.close().await;
            assert_eq!(server.server_info(), None);
        }
    });
}

async fn never_ready(config: ServerConfig) {
    let mut config = config;
    config.timeouts.connect = ms(300);
    config.timeouts.probe = ms(100);
    config.reconnect.enabled = false;
    let server = Mcp::new(config);
    let started = Instant::now();
    let told = cannot_connect(&server).await;
    assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
    assert!(told.starts_with("could not connect to server `peer`: the server was not ready within "), "{told}");
    server.close().await;
}

#[test]
fn a_handshake_that_hangs_times_out() {
    scene(|scene| async move {
        let hanging = |script: Script| {
            script
                .fault(FaultTrigger::method("server/discover"), Fault::Hang)
                .fault(FaultTrigger::method("initialize"), Fault::Hang)
        };
        for script in [hanging(Script::default()), hanging(Script::modern())] {
            never_ready(fast_config(ScriptedServer::new(script.clone()).in_process())).await;
            never_ready(fast_config(child(&scene, &script))).await;
            let http: HttpScriptedServer = listening(script).await;
            never_ready(fast_config(at(http.url()))).await;
        }
        let http = listening(
            Script::legacy().fault(FaultTrigger::method("notifications/initialized"), HttpFault::SlowHead { ms: 50 }),
        )
        .await;
        never_ready(fast_config(at(http.url()))).await;
    });
}

#[test]
fn a_failed_handshake_reports_stderr() {
    scene(|scene| async move {
        let script = Script::legacy()
            .fault(FaultTrigger::method("initialize"), Fault::Stderr { bytes: 64 })
            .fault(FaultTrigger::method("initialize"), Fault::Exit { after_ms: 0, code: 7 });
        let mut config = in_era(EraChoice::Legacy, child(&scene, &script));
        config.reconnect.enabled = false;
        let server = Mcp::new(config);
        let told = cannot_connect(&server).await;
        let words = "a line on stderr that nobody has asked for, sixty-four in all..";
        assert_eq!(told, format!("could not connect to server `peer`: the process exited (exit status: 7): `{words}`"));
        assert_eq!(server.stderr_tail(), [words]);
        server.close().await;
    });
}

#[test]
fn a_failed_first_attempt_is_an_error_and_a_retry_may_succeed() {
    scene(|_| async {
        let scripted =
            ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("initialize").first(3), Fault::exit()));
        let mut config = in_era(EraChoice::Legacy, scripted.in_process());
        config.reconnect.initial_delay = ms(50);
        let server = Mcp::new(config);
        let mut events = server.events();
        let told = cannot_connect(&server).await;
        assert_eq!(told, "could not connect to server `peer`: the server closed the connection");
        state(&server, |state| matches!(state, ConnectionState::Ready { .. })).await;
        still_works(&server).await;
        let mut failures = Vec::new();
        event(&mut events, |event| match event {
            Event::Connecting { failures: so_far, .. } => {
                failures.push(so_far);
                None
            }
            Event::Ready { .. } => Some(()),
            _ => None,
        })
        .await;
        assert_eq!(failures, [0, 1, 2, 3]);
        server.close().await;
        until("the last connection is over", || scripted.connections() == 4).await;
    });
}
