//! Observability: records, metrics, logs and spans of requests.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ropeway::config::{AuditSettings, Config, GatewaySettings};
use ropeway::gateway::Gateway;
use ropeway::testing::{ModelAnswer, ModelServer, Script, ScriptedServer};
use ropeway_gateway::{OtlpSettings, fetch_stats};
use serde_json::{Value, json};

use super::kit::{GatewayKit, bare, call, entry, modern, modern_call, post, request};
use crate::fast_config::{SOON, until};
use crate::scene::scene;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Returns the settings of an audit log and an access log in a folder.
fn logging(folder: &Path) -> (GatewaySettings, PathBuf, PathBuf) {
    let (audit, access) = (folder.join("audit.jsonl"), folder.join("access.jsonl"));
    let settings = GatewaySettings::default()
        .with_audit(AuditSettings::new(audit.clone()).with_arguments(true))
        .with_access_log(&access);
    (settings, audit, access)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Returns the value of a sample on a page of metrics.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

async fn metrics(kit: &GatewayKit) -> String {
    let reply = kit.send(&bare("GET", "/metrics", "Host: localhost\r\n")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.headers["content-type"].starts_with("text/plain; version=0.0.4"), "{reply:?}");
    reply.body
}

/// Starts a gateway that exports to a collector.
async fn exporting(collector: &str, more: &[(&str, &str)]) -> GatewayKit {
    let get = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.to_owned()),
        "OTEL_BSP_SCHEDULE_DELAY" => Some("100".to_owned()),
        name => more.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()),
    };
    let (otlp, warnings) = OtlpSettings::from_variables(get);
    assert_eq!(warnings, [""; 0]);
    let scripted = ScriptedServer::new(Script::default());
    let config = Config::default().with_server(entry("scripted", &scripted));
    GatewayKit::launch(scripted, Gateway::builder(config).otlp(otlp.expect("settings"))).await
}

#[test]
fn every_request_is_recorded_with_its_outcome() {
    scene(|_| async {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        kit.modern("tools/list", json!({})).await;
        kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
        kit.send(&modern_call("fail", json!({}))).await;
        kit.send(&modern_call("refuse", json!({}))).await;
        kit.send(&modern_call("no_such_tool", json!({}))).await;
        kit.post(&session, &request(1, "prompts/get", json!({"name": "plain"}))).await;
        kit.post(&session, &request(2, "resources/read", json!({"uri": "test://hello"}))).await;
        kit.post(&session, &request(3, "no/such/method", json!({}))).await;
        let calls = kit.gateway.recent_calls(100);
        let shown: Vec<Value> = calls
            .iter()
            .rev()
            .map(|call| {
                let target =
                    ["tool", "prompt", "uri"].iter().find_map(|key| call.get(key)).cloned().unwrap_or_default();
                json!([call["method"], call["server"], target, call["outcome"], call["code"], call["era"]])
            })
            .collect();
        let expected = [
            json!(["initialize", null, null, "ok", null, "legacy"]),
            json!(["tools/list", null, null, "ok", null, "modern"]),
            json!(["tools/call", "scripted", "echo", "ok", null, "modern"]),
            json!(["tools/call", "scripted", "fail", "tool_error", null, "modern"]),
            json!(["tools/call", "scripted", "refuse", "error", -32000, "modern"]),
            json!(["tools/call", null, "no_such_tool", "error", -32602, "modern"]),
            json!(["prompts/get", "scripted", "plain", "ok", null, "legacy"]),
            json!(["resources/read", "scripted", "test://hello", "ok", null, "legacy"]),
            json!(["no/such/method", null, null, "error", -32601, "legacy"]),
        ];
        assert_eq!(shown, expected);
        let echo = &calls[calls.len() - 3];
        assert!(echo["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{echo}");
        assert!(echo["bytes_in"].as_u64() > Some(100) && echo["bytes_out"].as_u64() > Some(10), "{echo}");
        assert_eq!(
            (&echo["decision"], &echo["profile"], &echo["request_id"]),
            (&json!("allow"), &json!("default"), &json!(7))
        );
        kit.stop().await;
    });
}

#[test]
fn a_disconnect_is_recorded_as_a_cancellation() {
    scene(|_| async {
        let kit = GatewayKit::start(Script::default()).await;
        let stream = kit.open(&modern_call("sleep", json!({"ms": 600_000}))).await;
        until("a call", || kit.gateway.status().requests == 1).await;
        drop(stream);
        until("a record", || !kit.gateway.recent_calls(1).is_empty()).await;
        let call = &kit.gateway.recent_calls(1)[0];
        assert_eq!([&call["tool"], &call["outcome"]], ["sleep", "cancelled"], "{call}");
        let page = metrics(&kit).await;
        let labels =
            r#"mcp_method_name="tools/call",server="scripted",gen_ai_tool_name="sleep",error_type="cancelled""#;
        assert_eq!(
            sample(&page, &format!("mcp_server_operation_duration_seconds_count{{{labels}}}")),
            Some(1.0),
            "{page}"
        );
        kit.stop().await;
    });
}

#[test]
fn a_refused_call_names_the_limit() {
    scene(|_| async {
        let mut settings = GatewaySettings::default();
        settings.limits.calls_per_client = 1;
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let session = kit.session().await;
        let running = kit.open(&post(&session, &call(1, "sleep", json!({"ms": 600_000})))).await;
        until("a call", || kit.gateway.status().requests == 1).await;
        assert_eq!(kit.post(&session, &call(2, "echo", json!({"message": "hi"}))).await.status, 429);
        let refused = &kit.gateway.recent_calls(1)[0];
        assert_eq!([&refused["decision"], &refused["rule"]], ["deny", "calls_per_client"], "{refused}");
        let page = metrics(&kit).await;
        assert_eq!(sample(&page, r#"ropeway_limit_rejected_total{limit="calls_per_client"}"#), Some(1.0), "{page}");
        assert_eq!(sample(&page, "ropeway_inflight"), Some(1.0), "{page}");
        kit.post(&session, &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
            .await;
        drop(running);
        kit.stop().await;
    });
}

#[test]
fn hostile_names_stay_within_their_line_and_label() {
    scene(|_| async {
        let folder = tempfile::tempdir().expect("a folder");
        let (settings, audit, access) = logging(folder.path());
        let name = "evil\"} 1\n# TYPE x\\";
        let tool = json!({"name": name, "description": "x", "inputSchema": {"type": "object"}});
        let script = Script::default().tool(tool, json!({"content": []}));
        let kit = GatewayKit::start_with(script, settings).await;
        let session = kit.session_with(json!({})).await;
        let reply = kit.post(&session, &request(1, "tools/call", json!({"name": name}))).await;
        let listed = kit.post(&session, &request(2, "tools/list", json!({}))).await.json();
        let shown = listed["result"]["tools"].as_array().expect("tools").iter();
        let is_listed = shown.clone().any(|tool| tool["name"] == name);
        kit.post(&session, &request(3, "no\n\"such\"\u{1b}[2J", json!({}))).await;
        kit.send("GET /evil%0a\"path HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\"b\r\nConnection: close\r\n\r\n")
            .await;
        let page = metrics(&kit).await;
        for line in page.lines() {
            let is_sample = line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
            assert!(line.starts_with("# HELP ") || line.starts_with("# TYPE ") || is_sample, "{line}");
        }
        if is_listed {
            assert_eq!(reply.status, 200, "{reply:?}");
            assert!(page.contains(r#"gen_ai_tool_name="evil\"} 1\n# TYPE x\\""#), "{page}");
        }
        kit.stop().await;
        let audited = lines(&audit);
        assert!(audited.iter().any(|line| line["tool"] == name), "{audited:?}");
        assert!(audited.iter().any(|line| line["method"] == "no\n\"such\"\u{1b}[2J"), "{audited:?}");
        let accessed = lines(&access);
        let evil = accessed.iter().find(|line| line["path"].as_str().is_some_and(|path| path.starts_with("/evil")));
        let evil = evil.unwrap_or_else(|| panic!("{accessed:?}"));
        assert_eq!(
            (&evil["status"], &evil["method"], &evil["user_agent"]),
            (&json!(404), &json!("GET"), &json!("a\"b"))
        );
        assert!(evil["remote"].as_str().is_some_and(|remote| remote.starts_with("127.0.0.1:")), "{evil}");
    });
}

#[test]
fn the_audit_log_has_redacted_arguments_and_survives_rotation() {
    scene(|_| async {
        let folder = tempfile::tempdir().expect("a folder");
        let (settings, audit, _) = logging(folder.path());
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        kit.send(&modern_call("echo", json!({"message": "hi", "api_key": "k-123"}))).await;
        until("a line", || lines(&audit).len() == 1).await;
        let old = folder.path().join("audit.jsonl.1");
        std::fs::rename(&audit, &old).expect("renamed");
        kit.gateway.reopen_logs();
        kit.send(&modern_call("echo", json!({"message": "again"}))).await;
        kit.stop().await;
        let (first, second) = (lines(&old), lines(&audit));
        assert_eq!(first[0]["arguments"], json!({"message": "hi", "api_key": "***"}));
        assert_eq!((second.len(), &second[0]["arguments"]["message"]), (1, &json!("again")));
    });
}

#[test]
fn a_log_that_cannot_be_opened_stops_the_start() {
    scene(|_| async {
        let settings =
            GatewaySettings::default().with_audit(AuditSettings::new(PathBuf::from("/no/such/folder/audit")));
        let built = Gateway::builder(Config::default()).settings(settings).build();
        let error = built.err().expect("an error").to_string();
        assert_eq!(error, "could not open the log `/no/such/folder/audit`");
    });
}

#[test]
fn many_tool_names_do_not_grow_the_metrics() {
    scene(|_| async {
        let mut script = Script::default();
        for n in 0..400 {
            let tool = json!({"name": format!("tool{n}"), "inputSchema": {"type": "object"}});
            script = script.tool(tool, json!({"content": []}));
        }
        let kit = GatewayKit::start(script).await;
        let session = kit.session().await;
        for n in 0..400 {
            let reply = kit.post(&session, &request(n + 1, "tools/call", json!({"name": format!("tool{n}")}))).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            // Names that do not exist are not labels at all.
            kit.post(&session, &request(n + 1, "tools/call", json!({"name": format!("unknown{n}")}))).await;
        }
        let page = metrics(&kit).await;
        let names = page.lines().filter(|line| line.contains("_count{") && line.contains("gen_ai_tool_name=")).count();
        assert_eq!(names, 201, "200 names and all others together");
        let other = r#"mcp_method_name="tools/call",server="scripted",gen_ai_tool_name="other""#;
        assert_eq!(sample(&page, &format!("mcp_server_operation_duration_seconds_count{{{other}}}")), Some(200.0));
        let stats = fetch_stats(&format!("http://{}/mcp", kit.address), None, SOON).await.expect("stats");
        assert!(stats.operations.len() < 220, "{}", stats.operations.len());
        let count: u64 =
            stats.operations.iter().filter(|row| row.method == "tools/call").map(|row| row.latency.count()).sum();
        assert_eq!(count, 800);
        kit.stop().await;
    });
}

#[test]
fn without_an_exporter_the_trace_context_passes_through() {
    scene(|_| async {
        let kit = GatewayKit::start(Script::default()).await;
        let call =
            |meta: Value| modern("tools/call", json!({"name": "echo", "arguments": {"message": "hi"}, "_meta": meta}));
        kit.send(&call(json!({"traceparent": PARENT, "tracestate": "a=b"}))).await;
        let header = format!("Traceparent: {PARENT}\r\nTracestate: c=d\r\nContent-Length");
        kit.send(&call(json!({})).replacen("Content-Length", &header, 1)).await;
        kit.send(&call(json!({"traceparent": "by hand"}))).await;
        let sent = kit.scripted.received_of("tools/call");
        let context = |n: usize| {
            let meta = &sent[n]["params"]["_meta"];
            json!([meta["traceparent"], meta["tracestate"]])
        };
        assert_eq!(context(0), json!([PARENT, "a=b"]));
        assert_eq!(context(1), json!([PARENT, "c=d"]));
        assert_eq!(context(2), json!(["by hand", null]));
        assert_eq!(kit.gateway.recent_calls(2)[1]["trace_id"], TRACE);
        kit.stop().await;
    });
}

#[test]
fn spans_of_client_gateway_and_server_are_joined() {
    scene(|_| async {
        let collector =
            ModelServer::start((0..20).map(|_| ModelAnswer::json(200, &json!({})))).await.expect("a collector");
        let kit = exporting(&collector.url(), &[("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1")]).await;
        let call = json!({"name": "echo", "arguments": {"message": "hi"}, "_meta": {"traceparent": PARENT}});
        kit.send(&modern("tools/call", call)).await;
        let sent = kit.scripted.received_of("tools/call")[0]["params"]["_meta"]["traceparent"].clone();
        let sent = sent.as_str().expect("a traceparent").to_owned();
        assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01") && sent != PARENT, "{sent}");
        kit.stop().await;
        let exports = collector.requests();
        let traces: Vec<_> = exports.iter().filter(|request| request.path == "/v1/traces").collect();
        assert_eq!(traces.len(), 1, "{exports:?}");
        assert_eq!(traces[0].header("content-type"), Some("application/x-protobuf"));
        assert_eq!(traces[0].header("api-key"), Some("k1"));
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect()
        };
        let has = |bytes: &[u8]| traces[0].body.windows(bytes.len()).any(|window| window == bytes);
        // The trace, the span of the client, and the span that the server got.
        for id in [TRACE, &PARENT[36..52], &sent[36..52]] {
            assert!(has(&hex(id)), "{id}");
        }
        assert!(has(b"tools/call echo") && has(b"service.name") && has(b"gen_ai.tool.name"));
        assert!(exports.iter().any(|request| request.path == "/v1/metrics"), "{exports:?}");
    });
}

#[test]
fn an_unsampled_trace_is_not_exported_but_passed_on() {
    scene(|_| async {
        let collector =
            ModelServer::start((0..20).map(|_| ModelAnswer::json(200, &json!({})))).await.expect("a collector");
        let kit = exporting(&collector.url(), &[("OTEL_METRICS_EXPORTER", "none")]).await;
        let unsampled = PARENT.replace("-01", "-00");
        let call = json!({"name": "echo", "arguments": {"message": "hi"}, "_meta": {"traceparent": unsampled}});
        kit.send(&modern("tools/call", call)).await;
        let sent = kit.scripted.received_of("tools/call")[0]["params"]["_meta"]["traceparent"].clone();
        assert!(sent.as_str().is_some_and(|sent| sent.contains(TRACE) && sent.ends_with("-00")), "{sent}");
        kit.stop().await;
        assert_eq!(collector.requests().len(), 0);
    });
}

#[test]
fn a_collector_that_hangs_or_is_down_never_delays_calls() {
    scene(|_| async {
        let hanging = ModelServer::start((0..50).map(|_| ModelAnswer::silence())).await.expect("a collector");
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let down = format!("http://{}", closed.local_addr().expect("an address"));
        drop(closed);
        for collector in [hanging.url(), down] {
            let small = [("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
            let kit = exporting(&collector, &small).await;
            let began = Instant::now();
            for _ in 0..60 {
                let reply = kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
                assert_eq!(reply.status, 200, "{reply:?}");
            }
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            let page = metrics(&kit).await;
            assert!(sample(&page, "ropeway_dropped_spans_total") >= Some(20.0), "{page}");
            let began = Instant::now();
            kit.stop().await;
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        }
    });
}
