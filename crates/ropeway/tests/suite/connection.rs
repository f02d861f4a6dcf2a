//! The life cycle of a connection: states, disconnects, reconnects and their events.

use std::time::{Duration, Instant};

use ropeway::config::EraChoice;
use ropeway::event::{Event, Events};
use ropeway::mcp::{ConnectionState, Handlers, Mcp};
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError, CancelToken};
use ropeway_testing::{ExtraTool, FaultRule};
use serde_json::{Map, json};

use crate::fast_config::{
    SOON, arguments, at, call, call_in, cannot_connect, chain, child, connect, echo_fails, event, fast_config, in_era,
    in_process, listening, ms, names, state, still_works, text, until,
};
use crate::scene::scene;

fn grown(script: &mut Script, name: &str) {
    script.extra_tools.push(ExtraTool::new(json!({"name": name}), json!({"content": []})));
}

/// Stops a server and waits until the client has noticed the closed connections.
async fn stop(http: &HttpScriptedServer) {
    http.stop();
    tokio::time::sleep(ms(100)).await;
}

async fn knows_nobody(server: &Mcp) {
    let told = "server `peer` is not connected";
    let cx = CallContext::default();
    assert_eq!(server.list_tools().await.err().map(|error| error.to_string()).as_deref(), Some(told));
    assert_eq!(server.list_tool_definitions().await.expect_err("an error").to_string(), told);
    assert_eq!(server.refresh_tools().await.err().expect("an error").to_string(), told);
    assert_eq!(echo_fails(server).await, told);
    let request = server.request("resources/list", Map::new(), &cx).await;
    assert!(matches!(request, Err(CallError::NotConnected { .. })), "{request:?}");
    assert!(!server.is_connected());
    assert_eq!(server.server_info(), None);
    assert!(matches!(*server.state().borrow(), ConnectionState::Closed));
}

#[test]
fn a_connection_can_be_created_without_a_runtime_or_server() {
    let server = Mcp::new(fast_config(at("http://127.0.0.1:1/mcp".to_owned())));
    assert!(!server.is_connected());
    assert_eq!(server.alias().to_string(), "peer");
    assert_eq!(server.stderr_tail(), Vec::<String>::new());
}

#[test]
fn methods_fail_before_connect_and_after_close() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let server = Mcp::new(fast_config(scripted.in_process()));
        server.subscribe("test://hello");
        server.unsubscribe("test://hello");
        knows_nobody(&server).await;
        server.close().await;
        knows_nobody(&server).await;
        server.connect().await.expect("a connection");
        let tools = server.list_tools().await.expect("tools");
        assert!(server.is_connected());
        server.close().await;
        knows_nobody(&server).await;
        let stale = tools[0].call(arguments(json!({"message": "hi"})), &CallContext::default()).await;
        assert!(matches!(stale, Err(CallError::NotConnected { .. })), "{stale:?}");
        server.connect().await.expect("a connection again");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn states_and_events_arrive_in_order() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo").nth(1), Fault::exit()));
        let server = Mcp::new(fast_config(scripted.in_process()));
        let mut states = server.state();
        let mut events = server.events();
        assert!(matches!(*states.borrow_and_update(), ConnectionState::Closed));
        server.connect().await.expect("a connection");
        assert!(matches!(*states.borrow_and_update(), ConnectionState::Ready { .. }));
        let told = echo_fails(&server).await;
        assert_eq!(told, "server `peer` is unavailable: the server closed the connection");
        still_works(&server).await;
        server.close().await;
        assert!(matches!(*states.borrow_and_update(), ConnectionState::Closed));
        let mut seen = Vec::new();
        event(&mut events, |event| {
            let value = serde_json::to_value(&event).expect("JSON");
            assert_eq!(value["server"], "peer", "{value}");
            seen.push(value["event"].as_str().expect("a name").to_owned());
            matches!(event, Event::Closed { .. }).then_some(())
        })
        .await;
        let (calls, states): (Vec<&str>, Vec<&str>) =
            seen.iter().map(String::as_str).partition(|event| event.starts_with("mcp."));
        let around = ["server.connecting", "server.ready"];
        assert_eq!(states, [&around[..], &["server.down"], &around[..], &["server.closed"]].concat());
        assert_eq!(calls, ["mcp.tool_failed", "mcp.tool_called"]);
    });
}

#[test]
fn a_restart_ends_calls_with_a_transient_error_and_later_calls_wait() {
    scene(|scene| async move {
        let record_file = Some(scene.directory().join("record"));
        let script = Script { record_file: record_file.clone(), ..Script::default() };
        let server = Mcp::new(fast_config(child(&scene, &script)));
        assert!(!server.restart("nothing runs").await);
        server.connect().await.expect("a connection");
        let mut events = server.events();
        let waiting = tokio::spawn({
            let server = server.clone();
            async move { call(&server, "sleep", json!({"ms": 60_000})).await }
        });
        let record = || std::fs::read_to_string(record_file.as_ref().expect("a path")).unwrap_or_default();
        until("the call", || record().contains("\"sleep\"")).await;
        assert!(server.restart("`a.py` changed").await);
        let error = waiting.await.expect("no panic").expect_err("no answer");
        assert!(error.is_transient(), "{error}");
        assert_eq!(chain(&error), "server `peer` is unavailable: the server was restarted");
        still_works(&server).await;
        let mut seen = Vec::new();
        event(&mut events, |event| {
            let is_restart = !seen.is_empty() || matches!(event, Event::Restarting { .. });
            let is_state = !matches!(event, Event::ToolFailed { .. });
            seen.extend((is_restart && is_state).then(|| event.to_string()));
            (is_restart && matches!(event, Event::Ready { .. })).then_some(())
        })
        .await;
        assert_eq!(seen[..2], ["restarting: `a.py` changed", "connecting"]);
        server.close().await;
    });
}

#[test]
fn a_call_fails_when_the_server_dies_and_is_not_repeated() {
    scene(|scene| async move {
        let record_file = Some(scene.directory().join("record"));
        let script = Script { record_file: record_file.clone(), ..Script::default() };
        let server = connect(fast_config(child(&scene, &script))).await;
        let waiting = tokio::spawn({
            let server = server.clone();
            async move { call(&server, "sleep", json!({"ms": 60_000})).await }
        });
        let record = || std::fs::read_to_string(record_file.as_ref().expect("a path")).unwrap_or_default();
        until("the call", || record().contains("\"sleep\"")).await;
        let started = Instant::now();
        call(&server, "crash", json!({})).await.expect_err("no answer");
        let error = waiting.await.expect("no panic").expect_err("no answer");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        assert_eq!(chain(&error), "server `peer` is unavailable: the process exited (exit status: 1)");
        assert!(error.is_transient());
        still_works(&server).await;
        assert_eq!(record().matches("\"sleep\"").count(), 1);
        assert_eq!(record().matches("\"crash\"").count(), 1);
        server.close().await;
    });
}

#[test]
fn a_dead_server_is_noticed_without_a_call() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let mut config = fast_config(scripted.in_process());
        config.reconnect.enabled = false;
        let alone = connect(config).await;
        scripted.set(|script| {
            script.faults = vec![FaultRule { on: FaultTrigger::tool("echo"), fault: Fault::ExitAfterAnswer }]
        });
        still_works(&alone).await;
        state(&alone, |state| matches!(state, ConnectionState::Down { retry_at: None, .. })).await;
        assert!(!alone.is_connected());
        assert_eq!(echo_fails(&alone).await, "server `peer` is unavailable: the server closed the connection");
        scripted.set(|script| script.faults.clear());
        alone.connect().await.expect("a connection by hand");
        still_works(&alone).await;
        alone.close().await;
        server.close().await;
    });
}

#[test]
fn a_reconnect_renews_lists_and_subscriptions_in_both_eras() {
    scene(|_| async {
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let scripted = ScriptedServer::new(Script::default());
            let server = connect(in_era(era, scripted.in_process())).await;
            let asks = if era == EraChoice::Legacy { "resources/subscribe" } else { "subscriptions/listen" };
            let listens = || {
                let asked = scripted.received_of(asks);
                asked.iter().filter(|asked| asked.to_string().contains("test://hello")).count()
            };
            server.subscribe("test://hello");
            until("the subscription", || listens() == 1).await;
            assert_eq!(names(&server).await.len(), 16);
            let mut events = server.events();
            scripted.set(|script| grown(script, "new"));
            call(&server, "crash", json!({})).await.expect_err("no answer");
            until("the subscription again", || listens() == 2).await;
            event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
            assert_eq!(names(&server).await.len(), 17);
            scripted.touched("test://hello");
            let uri = event(&mut events, |event| match event {
                Event::ResourceUpdated { uri, .. } => Some(uri),
                _ => None,
            })
            .await;
            assert_eq!(uri, "test://hello");
            server.unsubscribe("test://hello");
            server.close().await;
        }
    });
}

#[test]
fn retry_delays_grow_up_to_the_maximum() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("initialize"), Fault::exit()));
        let mut config = in_era(EraChoice::Legacy, scripted.in_process());
        config.reconnect.initial_delay = ms(20);
        config.reconnect.max_delay = ms(80);
        let server = Mcp::new(config);
        let mut events = server.events();
        cannot_connect(&server).await;
        let mut waits: Vec<Duration> = Vec::new();
        event(&mut events, |event| match event {
            Event::Down { retry_in, .. } => {
                waits.push(retry_in.expect("another try"));
                (waits.len() == 6).then_some(())
            }
            _ => None,
        })
        .await;
        for (wait, full) in waits.iter().zip([20, 40, 80, 80, 80, 80]) {
            assert!(*wait <= ms(full), "{waits:?}");
        }
        // Jitter removes up to half, and the event may be emitted a moment later.
        assert!(waits[2..].iter().max() >= Some(&ms(35)), "{waits:?}");
        server.close().await;
    });
}

#[test]
fn a_server_that_dies_when_ready_is_restarted_with_backoff() {
    scene(|_| async {
        let scripted = ScriptedServer::new(
            Script::legacy().fault(FaultTrigger::method("notifications/initialized"), Fault::exit()),
        );
        let mut config = in_era(EraChoice::Legacy, scripted.in_process());
        config.reconnect.initial_delay = ms(40);
        config.reconnect.max_delay = ms(10_000);
        let server = Mcp::new(config);
        // Whether the first attempt counts as successful depends on timing.
        let _ = server.connect().await;
        tokio::time::sleep(ms(1200)).await;
        // 0, 20–40, 40–80, 80–160, 160–320, 320–640 and 640–1280 ms.
        let tries = scripted.connections();
        assert!((3..=9).contains(&tries), "{tries} tries");
        server.close().await;
    });
}

#[test]
fn a_call_to_a_down_server_fails_with_the_cause_after_the_grace() {
    scene(|_| async {
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let http = listening(Script::default()).await;
            let mut config = in_era(era, at(http.url()));
            config.timeouts.grace = ms(300);
            let server = connect(config).await;
            names(&server).await;
            stop(&http).await;
            let started = Instant::now();
            let told = echo_fails(&server).await;
            assert!((ms(250)..SOON / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
            assert!(told.starts_with("server `peer` is unavailable: could not connect: "), "{told}");
            assert!(told.to_lowercase().contains("connection refused"), "{told}");
            // The cached list is stale.
            let told = chain(&server.list_tool_definitions().await.expect_err("no list"));
            assert!(told.starts_with("server `peer` is unavailable: "), "{told}");
            // The state may still be that of the lost connection.
            state(&server, |state| !matches!(state, ConnectionState::Ready { .. })).await;
            http.restart().await.expect("the same port");
            state(&server, |state| matches!(state, ConnectionState::Ready { .. })).await;
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn a_call_names_the_last_failure_during_the_next_attempt() {
    scene(|_| async {
        let script = Script::legacy()
            .fault(FaultTrigger::tool("echo").nth(1), Fault::exit())
            .fault(FaultTrigger::method("initialize").nth(2), Fault::exit())
            .fault(FaultTrigger::method("initialize").nth(3), Fault::Hang);
        let scripted = ScriptedServer::new(script);
        let mut config = in_era(EraChoice::Legacy, scripted.in_process());
        config.timeouts.grace = ms(100);
        let server = connect(config).await;
        echo_fails(&server).await;
        // The second attempt has failed, and the third one gets no response.
        state(&server, |state| matches!(state, ConnectionState::Connecting { failures: 1 })).await;
        let told = echo_fails(&server).await;
        assert!(told.starts_with("server `peer` is unavailable: ") && !told.contains("not ready"), "{told}");
        drop(server);
    });
}

#[test]
fn a_call_to_a_down_server_succeeds_if_it_returns_in_time() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(fast_config(at(http.url()))).await;
        stop(&http).await;
        let waiting = tokio::spawn({
            let server = server.clone();
            async move { text(&server, "echo", json!({"message": "hi"})).await }
        });
        state(&server, |state| matches!(state, ConnectionState::Down { .. })).await;
        tokio::time::sleep(ms(100)).await;
        http.restart().await.expect("the same port");
        assert_eq!(waiting.await.expect("an answer"), "hi");
        server.close().await;
    });
}

#[test]
fn a_call_that_waits_for_the_server_can_be_cancelled() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(fast_config(at(http.url()))).await;
        stop(&http).await;
        let cancel = CancelToken::new();
        let cx = CallContext::default().with_cancel(cancel.clone());
        let waiting = tokio::spawn({
            let server = server.clone();
            async move { call_in(&server, "echo", json!({"message": "hi"}), &cx).await }
        });
        state(&server, |state| matches!(state, ConnectionState::Down { .. })).await;
        let started = Instant::now();
        cancel.cancel();
        let error = waiting.await.expect("no panic").expect_err("no answer");
        assert!(matches!(error, CallError::Cancelled), "{error:?}");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        server.close().await;
    });
}

#[test]
fn a_call_that_waits_for_the_server_keeps_its_own_deadline() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(fast_config(at(http.url()))).await;
        stop(&http).await;
        let cx = CallContext::default().with_timeout(ms(200));
        let started = Instant::now();
        call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect_err("no answer");
        assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        server.close().await;
    });
}

#[test]
fn closing_fails_pending_calls() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let scripted = ScriptedServer::new(Script::default());
        for config in [
            fast_config(scripted.in_process()),
            in_era(EraChoice::Legacy, at(http.url())),
            in_era(EraChoice::Modern, at(http.url())),
        ] {
            let server = connect(config).await;
            let waiting = tokio::spawn({
                let server = server.clone();
                async move { call(&server, "sleep", json!({"ms": 60_000})).await }
            });
            tokio::time::sleep(ms(100)).await;
            let started = Instant::now();
            server.close().await;
            let error = waiting.await.expect("no panic").expect_err("no answer");
            assert_eq!(error.to_string(), "server `peer` was stopped while the call was in flight");
            assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
        }
    });
}

#[test]
fn closing_or_dropping_ends_a_handshake() {
    scene(|scene| async move {
        let script = Script::default()
            .fault(FaultTrigger::method("server/discover"), Fault::Hang)
            .fault(FaultTrigger::method("initialize"), Fault::Hang);
        let http = listening(script.clone()).await;
        for config in [fast_config(child(&scene, &script)), fast_config(at(http.url()))] {
            for drops in [false, true] {
                let server = Mcp::new(config.clone());
                let connecting = tokio::spawn({
                    let server = server.clone();
                    async move { server.connect().await }
                });
                tokio::time::sleep(ms(200)).await;
                let started = Instant::now();
                if drops {
                    connecting.abort();
                    drop(server);
                } else {
                    server.close().await;
                    let error = connecting.await.expect("no panic").expect_err("no connection");
                    assert_eq!(chain(&error), "could not connect to server `peer`: the connection was closed");
                }
                assert!(started.elapsed() < SOON / 2, "{:?}", started.elapsed());
            }
        }
    });
}

#[test]
fn a_burst_of_changes_causes_few_refreshes() {
    scene(|_| async {
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let scripted = ScriptedServer::new(Script::default());
            let server = connect(in_era(era, scripted.in_process())).await;
            names(&server).await;
            if era == EraChoice::Modern {
                scripted.wait_for("subscriptions/listen", 1).await;
            }
            let before = scripted.received_of("tools/list").len();
            let mut events = server.events();
            scripted.set(|script| grown(script, "new"));
            for _ in 0..500 {
                scripted.changed("tools");
            }
            event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
            assert_eq!(names(&server).await.len(), 17);
            tokio::time::sleep(ms(200)).await;
            let lists = scripted.received_of("tools/list").len() - before;
            assert!((1..=4).contains(&lists), "{lists} lists");
            server.close().await;
        }
    });
}

#[test]
fn a_burst_of_changes_does_not_delay_a_call() {
    scene(|_| async {
        for method in ["notifications/tools/list_changed", "notifications/odd", "notifications/message"] {
            let script = Script::default().fault(FaultTrigger::tool("echo"), Fault::storm(method, 5_000));
            let (_scripted, server) = in_process(script).await;
            names(&server).await;
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn notifications_with_unusual_params_end_no_connection() {
    scene(|_| async {
        let methods = ["message", "resources/updated", "progress", "cancelled", "tools/list_changed", "tasks/status"];
        let params = [json!([1]), json!("s"), json!(1), json!(null), json!({"data": [[]], "level": {}, "uri": []})];
        let messages = methods.iter().flat_map(|method| {
            let method = format!("notifications/{method}");
            params.clone().map(|params| json!({"jsonrpc": "2.0", "method": method, "params": params}))
        });
        let odd = Fault::Before(messages.collect());
        let (scripted, server) = in_process(Script::default().fault(FaultTrigger::tool("echo"), odd)).await;
        let mut events = server.events();
        for _ in 0..3 {
            still_works(&server).await;
        }
        event(&mut events, |event| matches!(event, Event::Log { .. }).then_some(())).await;
        assert_eq!(scripted.received_of("tools/call").len(), 3, "no call is repeated on a new connection");
        server.close().await;
    });
}

#[test]
fn a_slow_listener_misses_events_and_delays_no_call() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let events = Events::new(8);
        let server = Mcp::with_host(fast_config(scripted.in_process()), Handlers::new(), events);
        let mut slow = server.events();
        server.connect().await.expect("a connection");
        for _ in 0..100 {
            still_works(&server).await;
        }
        server.close().await;
        let Some(Event::Lagged { missed }) = slow.next().await else { panic!("no word of what was lost") };
        // Connecting, ready, a hundred calls, closed.
        assert_eq!(missed, 103 - 8);
        assert!(matches!(slow.next().await, Some(Event::ToolCalled { .. })));
    });
}

#[test]
fn log_messages_and_resource_updates_arrive_in_order() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::legacy()).await;
        server.subscribe("test://hello");
        scripted.wait_for("resources/subscribe", 1).await;
        let mut events = server.events();
        for n in 0..50 {
            text(&server, "log", json!({"level": "warning", "message": format!("{n}")})).await;
        }
        scripted.touched("test://hello");
        scripted.changed("prompts");
        scripted.changed("resources");
        let mut heard = Vec::new();
        event(&mut events, |event| match event {
            Event::Log { level, logger, data, .. } => {
                assert_eq!((level.as_str(), logger.as_deref()), ("warning", Some("scripted")));
                heard.push(data.as_str().unwrap_or_default().to_owned());
                None
            }
            Event::ResourceUpdated { .. } => {
                heard.push("updated".to_owned());
                None
            }
            Event::PromptsChanged { .. } => {
                heard.push("prompts".to_owned());
                None
            }
            Event::ResourcesChanged { .. } => Some(()),
            _ => None,
        })
        .await;
        let mut expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        expected.extend(["updated".to_owned(), "prompts".to_owned()]);
        assert_eq!(heard, expected);
        server.close().await;
    });
}

#[test]
fn a_server_that_allows_one_listen_request_gets_a_new_subscription() {
    scene(|_| async {
        let busy = Fault::Error(json!({"code": -32000, "message": "already listening"}));
        let script = Script::modern().fault(FaultTrigger::method("subscriptions/listen").nth(2), busy);
        let (scripted, server) = in_process(script).await;
        names(&server).await;
        scripted.wait_for("subscriptions/listen", 1).await;
        server.subscribe("test://one");
        let third =
            tokio::time::timeout(SOON, scripted.wait_for("subscriptions/listen", 3)).await.expect("asked again");
        assert_eq!(third["params"]["notifications"]["resourceSubscriptions"], json!(["test://one"]));
        server.close().await;
    });
}

#[test]
fn ended_subscriptions_of_a_modern_server_are_renewed() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::modern()).await;
        names(&server).await;
        scripted.wait_for("subscriptions/listen", 1).await;
        scripted.set(|script| grown(script, "new"));
        scripted.end_listening();
        tokio::time::timeout(SOON, scripted.wait_for("subscriptions/listen", 2)).await.expect("asked again");
        let mut events = server.events();
        scripted.set(|script| grown(script, "newer"));
        tokio::time::sleep(ms(100)).await;
        scripted.changed("tools");
        event(&mut events, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
        assert_eq!(names(&server).await.len(), 18);
        server.close().await;
    });
}

#[test]
fn a_missing_program_and_an_invalid_url_are_named() {
    scene(|scene| async move {
        for (config, told) in [
            (
                fast_config(scene.stdio("no-such-program", [""])),
                "could not start `no-such-program`: `no-such-program` is not on the PATH",
            ),
            (fast_config(at("nonsense".to_owned())), "`nonsense` cannot be used: relative URL without a base"),
            (
                fast_config(at("ftp://example.com".to_owned())),
                "`ftp://example.com` cannot be used: only http and https",
            ),
        ] {
            let server = Mcp::new(config);
            let error = cannot_connect(&server).await;
            assert!(error.starts_with(&format!("could not connect to server `peer`: {told}")), "{error}");
            server.close().await;
        }
    });
}

#[test]
fn connect_works_after_a_cancelled_close() {
    scene(|scene| async move {
        let script = Script {
            process: ropeway_testing::ProcessScript { ignore_eof: true, ..Default::default() },
            ..Script::default()
        };
        let server = connect(fast_config(child(&scene, &script))).await;
        assert!(tokio::time::timeout(ms(20), server.close()).await.is_err(), "a stubborn server takes its time");
        server.connect().await.expect("a connection");
        tokio::time::sleep(ms(50)).await;
        assert!(server.is_connected());
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_server_that_stops_reading_is_restarted() {
    scene(|scene| async move {
        let greeting = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        let closed = scene.directory().join("closed");
        let told = closed.display();
        let deaf = format!("read a; echo '{greeting}'; read b; exec 0<&-; : > '{told}'; exec sleep 30");
        let mut config = in_era(EraChoice::Legacy, scene.stdio("sh", ["-c", &deaf]));
        config.timeouts.grace = ms(500);
        config.timeouts.idle = ms(2000);
        let server = connect(config).await;
        let mut events = server.events();
        // The shell may need a moment to close its stdin.
        let deafness = async {
            while !closed.exists() {
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::time::timeout(SOON, deafness).await.expect("it closes its ears in time");
        let error = call(&server, "echo", json!({})).await.expect_err("nobody listens");
        // On a busy machine, the next process may also accept the call before it closes its stdin, and never read it.
        assert!(matches!(error, CallError::Unavailable { .. } | CallError::Timeout { .. }), "{error:?}");
        event(&mut events, |event| matches!(event, Event::Down { .. }).then_some(())).await;
        event(&mut events, |event| matches!(event, Event::Ready { .. }).then_some(())).await;
        server.close().await;
    });
}

#[test]
fn huge_timeouts_do_not_overflow() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let mut config = fast_config(scripted.in_process());
        let timeouts = &mut config.timeouts;
        for wait in [&mut timeouts.connect, &mut timeouts.idle, &mut timeouts.total, &mut timeouts.grace] {
            *wait = std::time::Duration::MAX;
        }
        let server = connect(config).await;
        let cx =
            CallContext::default().with_timeout(std::time::Duration::MAX).with_idle_timeout(std::time::Duration::MAX);
        call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect("an answer");
        server.close().await;
    });
}

#[test]
fn a_panic_while_opening_a_server_fails_the_connection() {
    scene(|_| async {
        let server = Mcp::new(fast_config(ropeway::config::Transport::in_process(|| panic!("on purpose"))));
        let error = tokio::time::timeout(SOON, server.connect()).await.expect("in time").expect_err("no connection");
        assert_eq!(chain(&error), "could not connect to server `peer`: the connection was closed");
        assert!(tokio::time::timeout(SOON, server.connect()).await.expect("in time").is_err());
        server.close().await;
    });
}
