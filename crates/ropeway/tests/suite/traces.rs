//! Tracing: the span of a call and the sent `traceparent`.

use ropeway::mcp::Mcp;
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::{Arguments, CallContext, TraceParent};
use serde_json::{Value, json};

use crate::fast_config::{arguments, at, call, call_in, child, connect, fast_config, in_process, listening, ms};
use crate::log::{Log, Span, logged};
use crate::scene::scene;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn parent() -> TraceParent {
    PARENT.parse().expect("a traceparent")
}

/// Returns the `traceparent` of the n-th call, counted from zero.
fn told(scripted: &ScriptedServer, method: &str, n: usize) -> Value {
    scripted.received_of(method)[n]["params"]["_meta"]["traceparent"].clone()
}

/// Returns the fields of a span that are the same in every run.
fn steady(span: &Span) -> Vec<(&str, &str)> {
    let changing = ["traceparent", "jsonrpc.request.id", "gen_ai.tool.call.id"];
    let fields = span.fields.iter().filter(|(name, _)| !changing.contains(&name.as_str()));
    fields.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn calls(log: &Log) -> Vec<Span> {
    log.spans().into_iter().filter(|span| span.name == "mcp.client").collect()
}

#[test]
fn without_a_subscriber_no_traceparent_is_sent() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        call(&server, "echo", json!({"message": "hi"})).await.expect("an answer");
        assert_eq!(told(&scripted, "tools/call", 0), Value::Null);
        server.close().await;
    });
}

#[test]
fn a_call_within_a_trace_sends_a_child_traceparent() {
    scene(|_| async {
        let (scripted, server) = in_process(Script::default()).await;
        let cx = CallContext::default().with_traceparent(parent()).with_meta("tracestate", json!("a=b"));
        call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect("an answer");
        let child: TraceParent =
            told(&scripted, "tools/call", 0).as_str().expect("text").parse().expect("a traceparent");
        assert_eq!(child.trace_id(), parent().trace_id());
        assert_ne!(child.span_id(), parent().span_id());
        assert_eq!(scripted.received_of("tools/call")[0]["params"]["_meta"]["tracestate"], "a=b");

        server.get_prompt_with("plain", Arguments::new(), &cx).await.expect("a prompt");
        let other: TraceParent =
            told(&scripted, "prompts/get", 0).as_str().expect("text").parse().expect("a traceparent");
        assert_eq!(other.trace_id(), parent().trace_id());
        assert_ne!(other.span_id(), child.span_id());

        // The caller's own value is sent unchanged, and once.
        let cx = cx.with_meta("traceparent", json!("by hand"));
        call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect("an answer");
        assert_eq!(told(&scripted, "tools/call", 1), "by hand");
        server.close().await;
    });
}

async fn failures(server: &Mcp) {
    let echo = call(server, "echo", json!({"message": "hi"})).await.expect("an answer");
    assert!(!echo.is_error);
    call(server, "fail", json!({})).await.expect("the tool's own failure");
    call(server, "refuse", json!({})).await.expect_err("a refusal");
    let cx = CallContext::default().with_timeout(ms(30));
    call_in(server, "sleep", json!({"ms": 10_000}), &cx).await.expect_err("no answer in time");
    let cx = CallContext::default();
    let given_up = server.call_tool_with("sleep", arguments(json!({"ms": 10_000})), &cx);
    tokio::time::timeout(ms(30), given_up).await.expect_err("it was given up");
    server.get_prompt_with("greet", Arguments::new(), &CallContext::default()).await.expect_err("a refusal");
    server.read_resource_with("test://hello", &CallContext::default()).await.expect("a resource");
}

fn expected<'a>(transport: &[(&'a str, &'a str)], version: &'a str) -> Vec<Vec<(&'a str, &'a str)>> {
    let span = |name: &'a str, about: &[(&'a str, &'a str)], end: &[(&'a str, &'a str)]| {
        let mut fields = vec![("otel.name", name), ("otel.kind", "client"), ("server", "peer")];
        fields.push(("mcp.method.name", name.split(' ').next().unwrap_or_default()));
        fields.extend_from_slice(about);
        fields.extend_from_slice(transport);
        fields.push(("mcp.protocol.version", version));
        fields.extend_from_slice(end);
        fields
    };
    let tool = |name: &'a str, end: &[(&'a str, &'a str)]| {
        let tool = name.split(' ').next_back().unwrap_or_default();
        span(name, &[("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", tool)], end)
    };
    let error = |kind: &'a str| [("error.type", kind), ("otel.status_code", "ERROR")];
    let refused =
        |code: &'a str| [("rpc.response.status_code", code), ("error.type", code), ("otel.status_code", "ERROR")];
    vec![
        tool("tools/call echo", &[]),
        tool("tools/call fail", &error("tool_error")),
        tool("tools/call refuse", &refused("-32000")),
        tool("tools/call sleep", &error("timeout")),
        tool("tools/call sleep", &error("cancelled")),
        span("prompts/get greet", &[("gen_ai.prompt.name", "greet")], &refused("-32602")),
        span("resources/read", &[("mcp.resource.uri", "test://hello")], &[]),
    ]
}

#[test]
fn a_traced_call_is_a_span_and_sends_its_traceparent() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let config = fast_config(scripted.in_process());
        let log = logged(move |_| async move {
            let server = connect(config).await;
            failures(&server).await;
            server.close().await;
        })
        .await;
        let spans = calls(&log);
        let fields: Vec<_> = spans.iter().map(steady).collect();
        assert_eq!(fields, expected(&[("network.transport", "pipe")], "2026-07-28"));
        let sent = spans[0].field("traceparent").expect("a traceparent");
        assert_eq!(told(&scripted, "tools/call", 0), sent);
        assert_eq!(
            scripted.received_of("tools/call")[0]["id"].to_string(),
            spans[0].field("jsonrpc.request.id").expect("an id")
        );
        let other: TraceParent = spans[1].field("traceparent").expect("a traceparent").parse().expect("one of ours");
        assert_ne!(other.trace_id(), sent.parse::<TraceParent>().expect("one of ours").trace_id());
    });
}

#[test]
fn a_span_names_the_transport() {
    scene(|scene| async move {
        let scripted = listening(Script::legacy()).await;
        let configs = [fast_config(at(scripted.url())), fast_config(child(&scene, &Script::legacy()))];
        let log = logged(move |_| async move {
            for config in configs {
                let server = connect(config).await;
                failures(&server).await;
                server.close().await;
            }
        })
        .await;
        let spans = calls(&log);
        let fields: Vec<_> = spans.iter().map(steady).collect();
        let http = expected(&[("network.transport", "tcp"), ("network.protocol.name", "http")], "2025-11-25");
        let pipe = expected(&[("network.transport", "pipe")], "2025-11-25");
        assert_eq!(fields, [http, pipe].concat());
    });
}

#[test]
fn a_span_within_a_trace_records_the_sent_traceparent() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let config = fast_config(scripted.in_process());
        let log = logged(move |_| async move {
            let server = connect(config).await;
            let cx = CallContext::default().with_traceparent(parent());
            call_in(&server, "echo", json!({"message": "hi"}), &cx).await.expect("an answer");
            server.close().await;
        })
        .await;
        let span = calls(&log).remove(0);
        let child: TraceParent = span.field("traceparent").expect("a traceparent").parse().expect("one of ours");
        assert_eq!(child.trace_id(), parent().trace_id());
        assert_eq!(told(&scripted, "tools/call", 0), child.to_string());
    });
}
