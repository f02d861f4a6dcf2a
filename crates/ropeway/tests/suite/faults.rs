//! Unusual responses: each is accepted, or fails only its own call.

use std::time::Instant;

use ropeway::config::EraChoice;
use ropeway::content::ContentPart;
use ropeway::event::Event;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError};
use ropeway_testing::{FaultRule, StdoutNoise, WriteStyle, unusual};
use serde_json::json;

use crate::fast_config::{
    SOON, arguments, call, call_in, chain, connect, echo, echo_fails, event, fast_config, in_era, in_process, ms,
    names, still_works, text, until, warnings,
};
use crate::scene::scene;

fn spoiled(fault: impl Into<Fault>) -> Script {
    Script::default().fault(FaultTrigger::tool("echo").nth(1), fault)
}

#[test]
fn a_response_with_minor_violations_is_accepted() {
    scene(|_| async {
        for fault in [
            Fault::ErrorNull,
            Fault::NoJsonrpc,
            Fault::IdAsString,
            Fault::IdAsFloat,
            Fault::Batch,
            Fault::Twice,
            Fault::unknown_notification(),
            Fault::unasked_answer(),
            Fault::OddProgress,
            Fault::set("/extra", json!({"a": [1]})),
            Fault::set("/result/extra", json!({"a": [1]})),
            Fault::set("/result/_meta", json!("a string")),
            Fault::set("/result/isError", json!("no")),
            Fault::Noise(StdoutNoise::Text("Server is listening on stdio".to_owned())),
            Fault::Noise(StdoutNoise::Blank),
            Fault::Noise(StdoutNoise::InvalidUtf8),
            Fault::Noise(StdoutNoise::Text("{\"level\":\"info\",\"msg\":\"a log line in JSON\"}".to_owned())),
            Fault::Noise(StdoutNoise::Text("[]".to_owned())),
            Fault::Noise(StdoutNoise::Text("[[[[[[".repeat(1000))),
        ] {
            let (_scripted, server) = in_process(spoiled(fault.clone())).await;
            assert_eq!(echo(&server).await.as_deref(), Ok("hi"), "{fault:?}");
            assert_eq!(echo(&server).await.as_deref(), Ok("hi"), "after {fault:?}");
            server.close().await;
        }
    });
}

#[test]
fn an_error_of_any_shape_is_reported() {
    scene(|_| async {
        let refused = "server `peer` returned error";
        for (fault, told) in [
            (Fault::error_without_message(), format!("{refused} -32000: (no message)")),
            (Fault::error_code_out_of_range(), format!("{refused} 9000000000: a very large code")),
            (Fault::Error(json!("just words")), format!("{refused} 0: just words")),
            (Fault::Error(json!({"code": "-7", "message": ["a"]})), format!("{refused} -7: [\"a\"]")),
            (Fault::idless_error(-32600, "which one?"), format!("{refused} -32600: which one?")),
            (
                Fault::IdlessError { code: -32700, message: "parse error".to_owned(), null_id: true },
                format!("{refused} -32700: parse error"),
            ),
        ] {
            let (_scripted, server) = in_process(spoiled(fault.clone())).await;
            assert_eq!(echo_fails(&server).await, told, "{fault:?}");
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn an_error_without_an_id_explains_a_timeout() {
    scene(|_| async {
        let script =
            Script::default().fault(FaultTrigger::tool("echo").nth(1), Fault::idless_error(-32600, "which one?"));
        let (_scripted, server) = in_process(script).await;
        let slow = call(&server, "sleep", json!({"ms": 600}));
        let cx = CallContext::default().with_idle_timeout(ms(300));
        let lost = call_in(&server, "echo", json!({"message": "hi"}), &cx);
        let (slow, lost) = tokio::join!(slow, lost);
        assert_eq!(slow.expect("its answer").plain_text().as_deref(), Some("slept 600 ms"));
        let lost = lost.expect_err("no answer");
        assert!(matches!(lost, CallError::Timeout { idle: true, .. }), "{lost:?}");
        let told = chain(&lost);
        assert!(told.starts_with("server `peer` timed out after "), "{told}");
        assert!(told.ends_with(": error -32600: which one?"), "{told}");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_truncated_response_fails_its_call_at_once() {
    scene(|_| async {
        let (scripted, server) =
            in_process(Script::default().fault(FaultTrigger::tool("echo").nth(1), Fault::Hang)).await;
        let waiting = echo_fails(&server);
        let cut = async {
            let id = scripted.wait_for("tools/call", 1).await["id"].clone();
            // Once a later request is answered, the call has its outcome, and the script may change.
            server.request("prompts/list", arguments(json!({})), &CallContext::default()).await.expect("a list");
            scripted.set(|script| {
                let bytes =
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"ty\n").into_bytes();
                script.faults = vec![FaultRule {
                    on: FaultTrigger::method("resources/list"),
                    fault: StdoutNoise::Bytes(bytes).into(),
                }];
            });
            server.request("resources/list", arguments(json!({})), &CallContext::default()).await.expect("a list");
        };
        let started = Instant::now();
        let (told, ()) = tokio::join!(waiting, cut);
        assert!(started.elapsed() < SOON / 2);
        assert!(told.starts_with("server `peer` violated the protocol: "), "{told}");
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_result_is_decoded_by_its_request_not_its_shape() {
    scene(|_| async {
        let block = json!([{"type": "text", "text": "hi"}]);
        for extra in [
            json!({"action": "accept"}),
            json!({"messages": []}),
            json!({"tools": []}),
            json!({"contents": []}),
            json!({"task": {"taskId": "t"}}),
            json!({"taskId": "t", "status": "working"}),
            json!({"completion": {"values": []}}),
            json!({"protocolVersion": "2025-11-25"}),
            json!({"supportedVersions": []}),
            json!({"inputRequests": {}}),
        ] {
            let mut result = extra.clone();
            result["content"] = block.clone();
            for era in [EraChoice::Legacy, EraChoice::Modern] {
                let scripted = ScriptedServer::new(spoiled(Fault::Result(result.clone())));
                let server = connect(in_era(era, scripted.in_process())).await;
                let output = call(&server, "echo", json!({"message": "hi"})).await.expect("an output");
                assert_eq!(output.plain_text().as_deref(), Some("hi"), "{extra}");
                assert_eq!(Some(&output.extra), extra.as_object(), "{extra}");
                server.close().await;
            }
        }
    });
}

#[test]
fn a_result_without_content_is_an_empty_output() {
    scene(|_| async {
        for result in [json!({}), json!({"content": null}), json!({"content": []}), json!({"resultType": "complete"})] {
            let (_scripted, server) = in_process(spoiled(Fault::Result(result.clone()))).await;
            let output = call(&server, "echo", json!({"message": "hi"})).await.expect("an output");
            assert!(output.content.is_empty() && !output.is_error, "{result}: {output:?}");
            server.close().await;
        }
    });
}

#[test]
fn a_result_that_is_not_an_object_is_a_protocol_error() {
    scene(|_| async {
        for result in [json!(null), json!(7), json!("fine"), json!([])] {
            let (_scripted, server) = in_process(spoiled(Fault::Result(result.clone()))).await;
            let told = echo_fails(&server).await;
            assert!(told.starts_with("server `peer` violated the protocol: "), "{result}: {told}");
            still_works(&server).await;
            server.close().await;
        }
    });
}

#[test]
fn an_unknown_result_type_is_an_error_in_the_modern_era_only() {
    scene(|_| async {
        let fault = Fault::set("/result/resultType", "hologram");
        let (_scripted, server) = in_process(spoiled(fault.clone())).await;
        assert_eq!(echo_fails(&server).await, "server `peer` violated the protocol: unknown result type `hologram`");
        still_works(&server).await;
        server.close().await;
        let scripted = ScriptedServer::new(Script { faults: spoiled(fault).faults, ..Script::legacy() });
        let server = connect(fast_config(scripted.in_process())).await;
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn an_invalid_content_block_does_not_affect_the_others() {
    scene(|_| async {
        for block in unusual::blocks() {
            let good = json!({"type": "text", "text": "good"});
            let result = json!({"content": [good, block, good], "structuredContent": null});
            let (_scripted, server) = in_process(spoiled(Fault::Result(result))).await;
            let output = call(&server, "echo", json!({"message": "hi"})).await.expect("an output");
            assert_eq!(output.content.first(), Some(&ContentPart::text("good")), "{block}");
            assert_eq!(output.content.last(), Some(&ContentPart::text("good")), "{block}");
            assert_eq!(output.content.len(), 3, "{block}: {output:?}");
            assert_eq!(output.structured, Some(json!(null)));
            server.close().await;
        }
    });
}

#[test]
fn an_unknown_server_request_gets_an_error_with_its_id() {
    scene(|_| async {
        let (scripted, server) = in_process(spoiled(Fault::unknown_request())).await;
        still_works(&server).await;
        until("the refusal", || scripted.received().iter().any(|message| message["id"] == "odd-1")).await;
        let refusal = scripted.received().into_iter().find(|message| message["id"] == "odd-1");
        assert_eq!(
            refusal.expect("a refusal"),
            json!({"jsonrpc": "2.0", "id": "odd-1", "error": {"code": -32601, "message": "`odd/request` is not supported"}})
        );
        server.close().await;
    });
}

#[test]
fn a_ping_is_answered_with_its_own_id() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::legacy()).await;
        for id in [json!("a"), json!(7), json!(1.5), json!("ä\"\\")] {
            scripted.push(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            until("the answer", || scripted.received().contains(&answer)).await;
        }
        server.close().await;
    });
}

#[test]
fn a_tool_error_is_a_result_and_a_json_rpc_error_is_not() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script::default()).await;
        let failed = call(&server, "fail", json!({"message": "no luck"})).await.expect("an output");
        assert_eq!((failed.is_error, failed.plain_text().as_deref()), (true, Some("no luck")));
        let refused = call(&server, "refuse", json!({})).await.expect_err("an error");
        assert_eq!(refused.to_string(), "server `peer` returned error -32000: the tool refuses");
        let unknown = call(&server, "nothing", json!({})).await.expect_err("an error");
        assert_eq!(unknown.to_string(), "server `peer` returned error -32602: unknown tool `nothing`");
        server.close().await;
    });
}

#[test]
fn any_chunks_and_line_endings_are_accepted() {
    scene(|_| async {
        for writing in [
            WriteStyle { split: Some(1), ..WriteStyle::default() },
            WriteStyle { split: Some(7), crlf: true, bom: true, ..WriteStyle::default() },
            WriteStyle { merge: Some(50), ..WriteStyle::default() },
            WriteStyle { crlf: true, ..WriteStyle::default() },
            WriteStyle { bom: true, ..WriteStyle::default() },
        ] {
            let (_scripted, server) = in_process(Script { writing: writing.clone(), ..Script::default() }).await;
            assert_eq!(names(&server).await.len(), 16, "{writing:?}");
            let calls = (0..20).map(|n| {
                let server = server.clone();
                tokio::spawn(async move { text(&server, "echo", json!({"message": format!("ä{n}")})).await })
            });
            for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
                assert_eq!(call.await.expect("an answer"), format!("ä{n}"), "{writing:?}");
            }
            server.close().await;
        }
    });
}

#[test]
fn noise_between_messages_is_ignored() {
    scene(|_| async {
        let noisy = Script::default()
            .fault(FaultTrigger::connect(), StdoutNoise::Text("Welcome!".to_owned()))
            .fault(FaultTrigger::any(), StdoutNoise::Text("still here {".to_owned()))
            .fault(FaultTrigger::any(), StdoutNoise::InvalidUtf8)
            .fault(FaultTrigger::any(), StdoutNoise::CutJson);
        let (_scripted, server) = in_process(noisy).await;
        assert_eq!(names(&server).await.len(), 16);
        for _ in 0..10 {
            still_works(&server).await;
        }
        server.close().await;
    });
}

#[test]
fn invalid_utf8_is_replaced_with_a_warning() {
    scene(|_| async {
        let (scripted, server) =
            in_process(Script::default().fault(FaultTrigger::tool("echo").nth(1), Fault::Hang)).await;
        let mut events = server.events();
        let waiting = echo(&server);
        let mended = async {
            let id = scripted.wait_for("tools/call", 1).await["id"].clone();
            // Once a later request is answered, the call has its outcome, and the script may change.
            server.request("prompts/list", arguments(json!({})), &CallContext::default()).await.expect("a list");
            let mut bytes =
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"a")
                    .into_bytes();
            bytes.extend(b"\xff\"}]}}\n");
            scripted.set(|script| {
                script.faults = vec![FaultRule {
                    on: FaultTrigger::method("resources/list"),
                    fault: StdoutNoise::Bytes(bytes).into(),
                }];
            });
            server.request("resources/list", arguments(json!({})), &CallContext::default()).await.expect("a list");
        };
        let (answer, ()) = tokio::join!(waiting, mended);
        assert_eq!(answer.as_deref(), Ok("a\u{fffd}"));
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|warning| warning.contains("replaced invalid UTF-8")), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn a_panicking_progress_listener_does_not_end_the_reading() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script::default()).await;
        let mut events = server.events();
        let cx = CallContext::default().with_progress(|_| panic!("on purpose"));
        call_in(&server, "sleep", json!({"ms": 20, "steps": 2}), &cx).await.expect("an answer");
        assert!(warnings(&mut events).iter().any(|warning| warning.contains("panicked")));
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn progress_is_reported_in_order() {
    scene(|_| async {
        let (_scripted, server) =
            in_process(Script::default().fault(FaultTrigger::tool("sleep"), Fault::OddProgress)).await;
        let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = heard.clone();
        let mut events = server.events();
        let cx = CallContext::new("one").with_progress(move |at| sink.lock().expect("no panic").push(at.progress));
        call_in(&server, "sleep", json!({"ms": 50, "steps": 5}), &cx).await.expect("an answer");
        let heard = heard.lock().expect("no panic").clone();
        assert!(heard.len() >= 5 && heard.windows(2).all(|pair| pair[0] < pair[1]), "{heard:?}");
        let mut told = Vec::new();
        event(&mut events, |event| match event {
            Event::Progress { call, progress, .. } => {
                assert_eq!(call.0, "one");
                told.push(progress.progress);
                None
            }
            Event::ToolCalled { .. } => Some(()),
            _ => None,
        })
        .await;
        assert_eq!(told, heard);
        server.close().await;
    });
}
