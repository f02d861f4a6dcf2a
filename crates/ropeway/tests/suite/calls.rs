//! Calls: concurrent, timed out, cancelled and over the size limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway::config::{EraChoice, ServerConfig, Transport};
use ropeway::mcp::Mcp;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError, CancelToken};
use ropeway_testing::{HttpScript, ResponseFormat};
use serde_json::{Value, json};

use crate::fast_config::{
    SOON, at, call, call_in, chain, child, connect, echo_fails, fast_config, in_era, in_process, listening, ms, names,
    still_works, text, until, warnings,
};
use crate::scene::scene;

/// Runs a test over every transport concurrently, each with its own server.
async fn over_every_way(script: Script, test: impl AsyncFn(&'static str, &ScriptedServer, ServerConfig)) {
    let pipe = async |way, era| {
        let scripted = ScriptedServer::new(script.clone());
        test(way, &scripted, in_era(era, scripted.in_process())).await;
    };
    let http = async |way, era| {
        let http = listening(script.clone()).await;
        test(way, &http, in_era(era, at(http.url()))).await;
    };
    let sse = async {
        let http = listening(script.clone()).await;
        test("legacy SSE", &http, fast_config(Transport::Sse(at(http.sse_url())))).await;
    };
    tokio::join!(
        pipe("legacy pipe", EraChoice::Legacy),
        pipe("modern pipe", EraChoice::Modern),
        http("legacy HTTP", EraChoice::Legacy),
        http("modern HTTP", EraChoice::Modern),
        sse,
    );
}

/// Settings for more concurrent calls than a busy machine answers in the usual time.
fn in_bulk(mut config: ServerConfig) -> ServerConfig {
    (config.timeouts.idle, config.timeouts.total) = (4 * SOON, 4 * SOON);
    config
}

/// Returns the request of the n-th tool call.
async fn nth_call(scripted: &ScriptedServer, n: usize) -> Value {
    tokio::time::timeout(SOON, scripted.wait_for("tools/call", n)).await.expect("the call in time")
}

/// Waits until the server has received the cancellation of this request, in the form of its era.
async fn told_of(way: &str, scripted: &ScriptedServer, request: &Value) {
    until(&format!("the cancellation over {way}"), || scripted.cancelled().contains(&request["id"])).await;
    let notifications = scripted.received_of("notifications/cancelled");
    let named = notifications.iter().any(|message| message["params"]["requestId"] == request["id"]);
    // Over modern HTTP, closing the stream is the cancellation.
    assert_eq!(named, way != "modern HTTP", "{way}: {notifications:?}");
}

#[test]
fn mcp_call_returns_an_envelope() {
    scene(|_| async {
        let (_, server) = in_process(Script::default()).await;
        let cx = CallContext::default();
        let sum = server.call_with("add", crate::fast_config::arguments(json!({"a": 1, "b": 2})), &cx).await;
        assert_eq!(serde_json::to_value(&sum).expect("JSON")["data"], json!({"sum": 3.0}));
        assert!(!sum.meta.is_error && sum.error.is_none());
        server.close().await;
        let lost = server.call_with("add", crate::fast_config::arguments(json!({})), &CallContext::default()).await;
        let record = serde_json::to_value(&lost).expect("JSON");
        assert_eq!(record["error"]["kind"], "not_connected");
        assert_eq!(record["origin"], json!({"server": "peer", "tool": "add"}));
    });
}

/// Adds a tool that returns a number as a string, against its output schema.
fn counting(script: Script) -> Script {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let definition = json!({"name": "count", "inputSchema": {"type": "object"}, "outputSchema": schema});
    script.tool(definition, json!({"content": [], "structuredContent": {"n": "3"}}))
}

fn data(envelope: &ropeway::Envelope) -> Value {
    serde_json::to_value(envelope.data()).expect("JSON")
}

#[test]
fn results_are_cast_although_nobody_has_listed_the_tools() {
    scene(|_| async {
        over_every_way(counting(Script::default()), async |way, scripted, config| {
            let server = connect(config).await;
            // Concurrent calls share one list.
            let envelopes = tokio::join!(server.call("count", ()), server.call("count", ()), server.call("count", ()));
            for envelope in [envelopes.0, envelopes.1, envelopes.2] {
                assert_eq!(data(&envelope), json!({"n": 3}), "{way}");
            }
            // The other ways need the list before each of the first calls, for headers or tasks.
            let lists = scripted.received_of("tools/list").len();
            assert!(lists == 1 || way != "modern pipe", "{way}: {lists}");
            server.close().await;
        })
        .await;
    });
}

#[test]
fn a_call_without_structured_content_does_not_list_the_tools() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        assert_eq!(server.call("echo", json!({"message": "hi"})).await.to_string(), "hi");
        assert!(scripted.received_of("tools/list").is_empty());
        server.close().await;
    });
}

#[test]
fn a_result_is_returned_as_it_is_if_the_list_fails() {
    scene(|_| async {
        let refused = Fault::Error(json!({"code": -32000, "message": "no list"}));
        let script = counting(Script::default()).fault(FaultTrigger::method("tools/list"), refused);
        over_every_way(script, async |way, scripted, config| {
            let server = connect(config).await;
            let mut events = server.events();
            for _ in 0..2 {
                let envelope = server.call("count", ()).await;
                assert_eq!((data(&envelope), envelope.error.is_none()), (json!({"n": "3"}), true), "{way}: {envelope}");
            }
            let lists = scripted.received_of("tools/list").len();
            assert!(lists == 1 || way != "modern pipe", "{way}: a session whose list fails is asked again");
            let warnings = warnings(&mut events);
            assert!(warnings.iter().any(|it| it.starts_with("results are not cast")), "{way}: {warnings:?}");
            server.close().await;
        })
        .await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_delays_one_result_by_five_seconds() {
    let script = counting(Script::default()).fault(FaultTrigger::method("tools/list"), Fault::Hang);
    let scripted = ScriptedServer::new(script);
    let server = connect(ServerConfig::new("peer", scripted.in_process())).await;
    let timed = async |cx: &CallContext| {
        let begun = tokio::time::Instant::now();
        let envelope = server.call_with("count", (), cx).await;
        assert_eq!((data(&envelope), envelope.error.is_none()), (json!({"n": "3"}), true));
        begun.elapsed().as_secs()
    };
    let fast_config = CallContext::default().with_timeout(Duration::from_secs(2));
    assert_eq!(timed(&fast_config).await, 2, "the deadline of the call applies");
    assert_eq!(timed(&CallContext::default()).await, 5);
    assert_eq!(timed(&CallContext::default()).await, 0, "once per session");
    server.close().await;
}

#[test]
fn a_structured_null_counts_in_the_modern_era_only() {
    scene(|_| async {
        for (era, structured) in [(EraChoice::Legacy, None), (EraChoice::Modern, Some(Value::Null))] {
            let result = json!({"content": [{"type": "text", "text": "words"}], "structuredContent": null});
            let script = Script::default().tool(json!({"name": "null", "inputSchema": {"type": "object"}}), result);
            let scripted = ScriptedServer::new(script);
            let server = connect(in_era(era, scripted.in_process())).await;
            let envelope = server.call("null", ()).await;
            assert_eq!(envelope.to_string(), "words", "{era:?}");
            assert_eq!(envelope.meta.structured_content, structured, "{era:?}");
            assert_eq!(data(&envelope), structured.map_or(json!("words"), |_| json!(null)), "{era:?}");
            server.close().await;
        }
    });
}

#[test]
fn a_slow_call_does_not_delay_others() {
    scene(|_| async {
        over_every_way(Script::default(), async |way, _, config| {
            let server = connect(config).await;
            names(&server).await;
            let slow = tokio::spawn({
                let server = server.clone();
                async move { text(&server, "sleep", json!({"ms": 1000})).await }
            });
            for _ in 0..5 {
                still_works(&server).await;
            }
            assert!(!slow.is_finished(), "{way}");
            assert_eq!(slow.await.expect("an answer"), "slept 1000 ms", "{way}");
            server.close().await;
        })
        .await;
    });
}

#[test]
fn responses_out_of_order_reach_their_calls() {
    scene(|_| async {
        over_every_way(Script::default(), async |way, _, config| {
            let server = connect(config).await;
            let calls = (0..20).map(|n| {
                let server = server.clone();
                let ms = 200 - n * 10;
                tokio::spawn(async move { (text(&server, "sleep", json!({"ms": ms})).await, ms) })
            });
            for call in calls.collect::<Vec<_>>() {
                let (answer, ms) = call.await.expect("an answer");
                assert_eq!(answer, format!("slept {ms} ms"), "{way}");
            }
            server.close().await;
        })
        .await;
    });
}

#[test]
fn over_a_thousand_concurrent_calls_get_their_own_responses() {
    scene(|scene| async move {
        let server = connect(in_bulk(fast_config(child(&scene, &Script::default())))).await;
        let calls = (0..2000).map(|n| {
            let server = server.clone();
            tokio::spawn(async move { text(&server, "echo", json!({"message": format!("number {n}")})).await })
        });
        for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(call.await.expect("an answer"), format!("number {n}"));
        }
        server.close().await;
    });
}

#[test]
fn hundreds_of_concurrent_http_calls_get_their_own_responses() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let server = connect(in_bulk(in_era(era, at(http.url())))).await;
            let calls = (0..300).map(|n| {
                let server = server.clone();
                tokio::spawn(async move { text(&server, "echo", json!({"message": format!("number {n}")})).await })
            });
            for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
                assert_eq!(call.await.expect("an answer"), format!("number {n}"));
            }
            server.close().await;
        }
    });
}

#[test]
fn a_large_response_does_not_delay_small_ones() {
    scene(|scene| async move {
        let http = listening(Script::default()).await;
        for config in [fast_config(child(&scene, &Script::default())), fast_config(at(http.url()))] {
            let server = connect(config).await;
            names(&server).await;
            let big = tokio::spawn({
                let server = server.clone();
                async move { text(&server, "blob", json!({"bytes": 5_000_000})).await.len() }
            });
            let mut slowest = Duration::ZERO;
            while !big.is_finished() {
                let started = Instant::now();
                still_works(&server).await;
                slowest = slowest.max(started.elapsed());
            }
            assert_eq!(big.await.expect("an answer"), 5_000_000);
            // A child has one pipe, so small responses wait for the bytes of the large one.
            assert!(slowest < SOON / 2, "{slowest:?}");
            server.close().await;
        }
    });
}

#[test]
fn http_connections_are_reused() {
    // A connection is free again when its task has run after the end of a response. With several threads, the next call may come
    // first and open another connection, so on a busy machine the number depends on which thread is stopped. One thread runs its
    // tasks in the same order at any load.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for answers in [ResponseFormat::Json, ResponseFormat::Sse] {
            for era in [EraChoice::Legacy, EraChoice::Modern] {
                let http =
                    listening(Script { http: HttpScript { answers, ..HttpScript::default() }, ..Script::default() })
                        .await;
                let server = connect(in_era(era, at(http.url()))).await;
                for _ in 0..20 {
                    still_works(&server).await;
                }
                // One for the calls, one for an event stream whose end was not read yet, one for the standalone stream, and one
                // for concurrent messages of the handshake.
                let accepted = http.accepted_connections();
                assert!(accepted <= 4, "{answers:?}, {era:?}: {accepted} connections");
                server.close().await;
            }
        }
    });
}

#[test]
fn a_silent_call_hits_the_idle_timeout_and_is_cancelled() {
    scene(|_| async {
        let script = Script::default().fault(FaultTrigger::tool("echo"), Fault::Hang);
        over_every_way(script, async |way, scripted, mut config| {
            config.timeouts.idle = ms(2000);
            let server = connect(config).await;
            let started = Instant::now();
            let error = call(&server, "echo", json!({"message": "hi"})).await.expect_err("no answer");
            assert!(matches!(error, CallError::Timeout { idle: true, .. }), "{way}: {error:?}");
            assert!(chain(&error).starts_with("server `peer` timed out after "), "{way}: {}", chain(&error));
            assert!((ms(2000)..SOON / 2).contains(&started.elapsed()), "{way}: {:?}", started.elapsed());
            let request = nth_call(scripted, 1).await;
            told_of(way, scripted, &request).await;
            assert_eq!(text(&server, "locate", json!({"region": "eu"})).await, "eu", "{way}");
            server.close().await;
        })
        .await;
    });
}

#[test]
fn progress_resets_the_idle_timeout() {
    scene(|_| async {
        over_every_way(Script::default(), async |way, _, mut config| {
            config.timeouts.idle = ms(3000);
            let server = connect(config).await;
            assert_eq!(text(&server, "sleep", json!({"ms": 4000, "steps": 40})).await, "slept 4000 ms", "{way}");
            server.close().await;
        })
        .await;
    });
}

#[test]
fn progress_does_not_extend_the_deadline() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let cx = CallContext::default().with_timeout(ms(2000)).with_idle_timeout(ms(1900));
        let error = call_in(&server, "sleep", json!({"ms": 9000, "steps": 90}), &cx).await.expect_err("no answer");
        assert!(matches!(error, CallError::Timeout { idle: false, .. }), "{error:?}");
        let request = nth_call(&scripted, 1).await;
        told_of("modern pipe", &scripted, &request).await;
        still_works(&server).await;
        server.close().await;

        let mut config = fast_config(scripted.in_process());
        config.timeouts.total = ms(300);
        let server = connect(config).await;
        let error = call(&server, "sleep", json!({"ms": 9000, "steps": 90})).await.expect_err("no answer");
        assert!(matches!(error, CallError::Timeout { idle: false, .. }), "{error:?}");
        server.close().await;
    });
}

#[test]
fn a_late_response_is_ignored() {
    scene(|_| async {
        // The server ignores the cancellation.
        let (scripted, server) = in_process(Script::default()).await;
        let cx = CallContext::default().with_timeout(ms(100));
        call_in(&server, "sleep", json!({"ms": 5000}), &cx).await.expect_err("no answer");
        let id = nth_call(&scripted, 1).await["id"].clone();
        scripted.push(json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "late"}]}}));
        for _ in 0..5 {
            still_works(&server).await;
        }
        server.close().await;
    });
}

#[test]
fn a_cancel_token_cancels_a_call_in_both_eras() {
    scene(|_| async {
        over_every_way(Script::default(), async |way, scripted, config| {
            let server = connect(config).await;
            let cancel = CancelToken::new();
            let cx = CallContext::default().with_cancel(cancel.clone());
            let waiting = tokio::spawn({
                let server = server.clone();
                async move { call_in(&server, "sleep", json!({"ms": 9000}), &cx).await }
            });
            let request = nth_call(scripted, 1).await;
            cancel.cancel();
            let error = waiting.await.expect("no panic").expect_err("no answer");
            assert!(matches!(error, CallError::Cancelled), "{way}: {error:?}");
            told_of(way, scripted, &request).await;
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn dropping_a_call_cancels_it_in_both_eras() {
    scene(|_| async {
        over_every_way(Script::default(), async |way, scripted, config| {
            let server = connect(config).await;
            let waiting = tokio::spawn({
                let server = server.clone();
                async move { call(&server, "sleep", json!({"ms": 9000})).await }
            });
            let request = nth_call(scripted, 1).await;
            let mut events = server.events();
            waiting.abort();
            told_of(way, scripted, &request).await;
            let cause = crate::fast_config::event(&mut events, |event| match event {
                ropeway::event::Event::ToolFailed { cause, .. } => Some(cause),
                _ => None,
            });
            assert_eq!(cause.await, "the call was cancelled");
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn a_call_with_a_cancelled_token_is_not_sent() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let cancel = CancelToken::new();
        cancel.cancel();
        let cx = CallContext::default().with_cancel(cancel);
        let error = call_in(&server, "sleep", json!({"ms": 9000}), &cx).await.expect_err("no answer");
        assert!(matches!(error, CallError::Cancelled), "{error:?}");
        // The call may have been sent, but was cancelled then.
        still_works(&server).await;
        let sent = scripted.received_of("tools/call").iter().filter(|call| call["params"]["name"] == "sleep").count();
        assert_eq!(scripted.cancelled().len(), sent);
        server.close().await;
    });
}

/// Checks that a response over the limit fails only its own call.
async fn too_much(way: &str, server: Mcp, limit: usize) {
    names(&server).await;
    let meanwhile = tokio::spawn({
        let server = server.clone();
        async move { text(&server, "sleep", json!({"ms": 300})).await }
    });
    let started = Instant::now();
    let error = call(&server, "blob", json!({"bytes": 3 * limit})).await.expect_err("too much");
    assert!(matches!(error, CallError::TooLarge { .. }), "{way}: {}", chain(&error));
    assert_eq!(chain(&error), format!("response of server `peer` exceeds {limit} bytes"), "{way}");
    assert!(started.elapsed() < SOON / 2, "{way}");
    assert_eq!(meanwhile.await.expect("an answer"), "slept 300 ms", "{way}");
    assert!(server.is_connected(), "{way}");
    assert_eq!(text(&server, "blob", json!({"bytes": limit / 2})).await.len(), limit / 2, "{way}");
    server.close().await;
}

#[test]
fn a_response_over_the_limit_fails_only_its_call() {
    scene(|scene| async move {
        over_every_way(Script::default(), async |way, _, mut config| {
            config.limits.message_bytes = 100_000;
            too_much(way, connect(config).await, 100_000).await;
        })
        .await;
        let mut config = fast_config(child(&scene, &Script::default()));
        config.limits.message_bytes = 100_000;
        too_much("child", connect(config).await, 100_000).await;
    });
}

#[test]
fn a_json_body_over_the_limit_fails_only_its_call() {
    scene(|_| async {
        for chunked in [false, true] {
            let http = HttpScript { answers: ResponseFormat::Json, chunked, ..HttpScript::default() };
            let http = listening(Script { http, ..Script::default() }).await;
            for era in [EraChoice::Legacy, EraChoice::Modern] {
                let mut config = in_era(era, at(http.url()));
                config.limits.message_bytes = 100_000;
                too_much("JSON", connect(config).await, 100_000).await;
            }
        }
    });
}

#[test]
fn the_size_limit_is_exact() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let mut config = fast_config(scripted.in_process());
        config.limits.message_bytes = 10_000;
        let server = connect(config).await;
        let told = call(&server, "blob", json!({"bytes": 10_000})).await.expect_err("too much");
        assert!(matches!(told, CallError::TooLarge { limit: 10_000, .. }), "{told:?}");
        assert_eq!(text(&server, "blob", json!({"bytes": 9_000})).await.len(), 9_000);
        server.close().await;
    });
}

#[test]
fn a_huge_unrequested_message_is_ignored() {
    scene(|_| async {
        let script = Script::default().fault(FaultTrigger::tool("echo"), Fault::GiantUnasked { bytes: 1_000_000 });
        over_every_way(script, async |way, _, mut config| {
            config.limits.message_bytes = 100_000;
            let server = connect(config).await;
            still_works(&server).await;
            assert!(server.is_connected(), "{way}");
            still_works(&server).await;
            server.close().await;
        })
        .await;
    });
}

#[test]
fn clones_share_one_connection() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let done = Arc::new(AtomicUsize::new(0));
        let handles = (0..10).map(|_| {
            let (server, done) = (server.clone(), done.clone());
            tokio::spawn(async move {
                server.connect().await.expect("a connection");
                still_works(&server).await;
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        for handle in handles.collect::<Vec<_>>() {
            handle.await.expect("no panic");
        }
        assert_eq!((done.load(Ordering::Relaxed), scripted.connections()), (10, 1));
        drop(server);
    });
}

#[test]
fn calls_to_a_server_that_does_not_read_time_out() {
    scene(|scene| async move {
        let mut script = Script::default();
        script.process.start_delay_ms = 1500;
        let mut config = fast_config(child(&scene, &script));
        config.timeouts.connect = ms(400);
        config.reconnect.enabled = false;
        let server = Mcp::new(config);
        let started = Instant::now();
        let told = crate::fast_config::cannot_connect(&server).await;
        assert!(told.starts_with("could not connect to server `peer`: the server was not ready within 4"), "{told}");
        assert!(started.elapsed() < SOON / 2);
        let told = echo_fails(&server).await;
        assert!(told.starts_with("server `peer` is unavailable: the server was not ready within 4"), "{told}");
        server.close().await;
    });
}
