//! The OpenTelemetry and Prometheus projects' own packages read what the gateway exports.

use std::fs;
use std::path::{Path, PathBuf};

use ropeway::config::{Config, ServerConfig, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{ModelAnswer, ModelServer, Script, ScriptedServer};
use ropeway_gateway::OtlpSettings;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::scene::scene;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A name that needs escapes.
const HOSTILE: &str = "evil\"\\\nname";

fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("servers").join(path);
    assert!(path.exists(), "the packages are not installed: run cargo xtask servers");
    path
}

/// Serves a gateway on a pipe, and runs one call of each kind.
async fn run_calls(gateway: &Gateway) {
    let (client, server) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(server);
    let serving = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.serve_stdio(None, input, output).await }
    });
    let (input, mut output) = tokio::io::split(client);
    let mut lines = BufReader::new(input).lines();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "judge", "version": "1"}, "traceparent": PARENT,
    });
    let requests = [
        ("tools/call", json!({"name": "echo", "arguments": {"message": "hi"}})),
        ("tools/call", json!({"name": "fail", "arguments": {}})),
        ("tools/call", json!({"name": HOSTILE, "arguments": {}})),
        ("resources/read", json!({"uri": "test://hello"})),
        ("prompts/get", json!({"name": "plain"})),
    ];
    for (id, (method, mut params)) in requests.into_iter().enumerate() {
        params["_meta"] = meta.clone();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        output.write_all(format!("{message}\n").as_bytes()).await.expect("a pipe");
        lines.next_line().await.expect("a line").expect("a response");
    }
    drop((lines, output));
    serving.await.expect("no panic");
}

/// Fetches the page of metrics.
async fn metrics_page(gateway: &Gateway) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.serve_http(listener).await }
    });
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("a response");
    serving.abort();
    text.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

fn attributes(span: &Value) -> Vec<(&str, &str)> {
    let pairs = span["attributes"].as_array().expect("attributes").iter();
    pairs
        .map(|pair| (pair["key"].as_str().expect("a key"), pair["value"]["stringValue"].as_str().expect("text")))
        .collect()
}

#[test]
fn other_projects_read_the_spans_and_metrics() {
    scene(|scene| async move {
        let answers = (0..20).map(|_| ModelAnswer::json(200, &json!({})));
        let collector = ModelServer::start(answers).await.expect("a collector");
        let get = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.url()),
            "OTEL_SERVICE_NAME" => Some("judged".to_owned()),
            _ => None,
        };
        let otlp = OtlpSettings::from_variables(get).0.expect("settings");
        let tool = json!({"name": HOSTILE, "inputSchema": {"type": "object"}});
        let scripted = ScriptedServer::new(Script::default().tool(tool, json!({"content": []})));
        let entry = ServerEntry::new(ServerConfig::new("scripted", scripted.in_process()));
        let gateway = Gateway::builder(Config::default().with_server(entry)).otlp(otlp).build().expect("a gateway");
        gateway.start().await.expect("a start");
        run_calls(&gateway).await;
        let folder = scene.directory();
        fs::write(folder.join("metrics.txt"), metrics_page(&gateway).await).expect("a file");
        gateway.drain(std::time::Duration::from_secs(5)).await;
        for (number, request) in collector.requests().into_iter().enumerate() {
            let signal = request.path.trim_start_matches("/v1/").to_owned();
            fs::write(folder.join(format!("{signal}-{number}.bin")), request.body).expect("a file");
        }
        let decode = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/telemetry/decode.py");
        let mut command = Command::new(installed("telemetry/bin/python"));
        command.arg(decode).arg(folder).envs(scene.mark());
        let output = command.kill_on_drop(true).output().await.expect("a judge");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let read: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}\n{said}"));
        check_spans(&read["traces"]);
        check_metrics(&read);
    });
}

fn check_spans(traces: &Value) {
    let resource = &traces[0]["resourceSpans"][0];
    assert!(attributes(&resource["resource"]).contains(&("service.name", "judged")), "{resource}");
    let spans: Vec<&Value> = traces
        .as_array()
        .expect("exports")
        .iter()
        .flat_map(|export| export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans"))
        .collect();
    let find = |name: &str, kind: &str| {
        let found = spans.iter().find(|span| span["name"] == name && span["kind"] == kind);
        *found.unwrap_or_else(|| panic!("no {kind} `{name}` in {spans:?}"))
    };
    for (name, attribute) in [
        ("tools/call echo", ("gen_ai.tool.name", "echo")),
        ("prompts/get plain", ("gen_ai.prompt.name", "plain")),
        ("resources/read", ("mcp.resource.uri", "test://hello")),
        (&format!("tools/call {HOSTILE}"), ("gen_ai.tool.name", HOSTILE)),
    ] {
        let (server, client) = (find(name, "SPAN_KIND_SERVER"), find(name, "SPAN_KIND_CLIENT"));
        assert_eq!(server["traceId"], client["traceId"], "one trace");
        assert_eq!(server["spanId"], client["parentSpanId"], "joined");
        assert!(
            attributes(server).contains(&attribute) && attributes(client).contains(&attribute),
            "{server} {client}"
        );
        assert!(attributes(server).contains(&("mcp.protocol.version", "2026-07-28")), "{server}");
        assert!(attributes(client).contains(&("network.transport", "pipe")), "{client}");
        let time = |key: &str| -> u64 { server[key].as_str().and_then(|text| text.parse().ok()).expect("a time") };
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{server}");
    }
    let failed = find("tools/call fail", "SPAN_KIND_SERVER");
    assert_eq!(failed["status"]["code"], "STATUS_CODE_ERROR");
    assert!(attributes(failed).contains(&("error.type", "tool_error")), "{failed}");
}

fn check_metrics(read: &Value) {
    let exported = read["metrics"].as_array().expect("exports").last().expect("an export");
    let metrics = exported["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let duration = metrics.iter().find(|metric| metric["name"] == "mcp.server.operation.duration").expect("a metric");
    assert_eq!(
        (&duration["unit"], &duration["histogram"]["aggregationTemporality"]),
        (&json!("s"), &json!("AGGREGATION_TEMPORALITY_CUMULATIVE"),)
    );
    let points = duration["histogram"]["dataPoints"].as_array().expect("points");
    let echo = points.iter().find(|point| attributes(point).contains(&("gen_ai.tool.name", "echo"))).expect("a point");
    assert_eq!((&echo["count"], echo["explicitBounds"].as_array().map(Vec::len)), (&json!("1"), Some(14)), "{echo}");
    assert_eq!(echo["bucketCounts"].as_array().map(Vec::len), Some(15), "{echo}");
    let family = &read["families"]["mcp_server_operation_duration_seconds"];
    assert_eq!(family["type"], "histogram");
    let samples = family["samples"].as_array().expect("samples");
    let hostile = samples.iter().filter(|sample| sample[1]["gen_ai_tool_name"] == HOSTILE).count();
    assert_eq!(hostile, 17, "15 buckets, the sum and the count");
    assert_eq!(read["families"]["ropeway_server_up"]["samples"][0][2], 1.0);
}
