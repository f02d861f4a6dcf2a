//! Real servers: popular ones, and a small test server on every official SDK.

mod bridge;
mod browser;
mod discovery;
mod manifest;
mod oidc;
mod oidc_sign_in;
mod protected;
mod resources;
mod roots;
mod sdks;
mod slow_start;
mod telemetry;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::config::{EraChoice, ServerConfig, Transport};
use ropeway::content::ContentPart;
use ropeway::event::Events;
use ropeway::mcp::{ElicitationAnswer, Era, Handlers, Mcp};
use ropeway::tool::{Arguments, CallContext, Progress, ToolOutput};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::scene::scene;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

async fn connect(transport: impl Into<Transport>) -> Mcp {
    connect_in(EraChoice::Auto, transport).await
}

async fn connect_in(era: EraChoice, transport: impl Into<Transport>) -> Mcp {
    connect_with(Handlers::new(), era, transport).await
}

async fn connect_with(handlers: Handlers, era: EraChoice, transport: impl Into<Transport>) -> Mcp {
    let mut config = ServerConfig::new("peer", transport);
    config.era = era;
    let server = Mcp::with_host(config, handlers, Events::default());
    if let Err(error) = server.connect().await {
        panic!("{error:?}\n{}", server.stderr_tail().join("\n"));
    }
    assert!(server.is_connected());
    server
}

/// Answers every elicitation with the same content.
fn answering(content: Value) -> Handlers {
    let content = arguments(content);
    Handlers::new().on_elicitation(move |_| {
        let answer = ElicitationAnswer::Accept(content.clone());
        async move { Ok(answer) }
    })
}

fn arguments(value: Value) -> Arguments {
    value.as_object().cloned().expect("an object")
}

async fn call(server: &Mcp, tool: &str, with: Value) -> ToolOutput {
    call_in(server, tool, with, &CallContext::default()).await
}

async fn call_in(server: &Mcp, tool: &str, with: Value, cx: &CallContext) -> ToolOutput {
    server.call_tool_with(tool, arguments(with), cx).await.unwrap_or_else(|error| panic!("`{tool}`: {error:?}"))
}

/// Returns the text of a successful result.
async fn text(server: &Mcp, tool: &str, with: Value) -> String {
    let output = call(server, tool, with).await;
    assert!(!output.is_error, "{output:?}");
    output.plain_text().expect("text only")
}

/// Returns the text of a result with `isError`.
async fn failure(server: &Mcp, tool: &str, with: Value) -> String {
    let output = call(server, tool, with).await;
    assert!(output.is_error, "{output:?}");
    output.plain_text().expect("text only")
}

/// Makes a call, and returns its progress and result.
async fn with_progress(server: &Mcp, tool: &str, with: Value) -> (ToolOutput, Vec<(f64, Option<f64>)>) {
    let heard: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = Arc::clone(&heard);
    let cx = CallContext::default().with_progress(move |progress| sink.lock().expect("no panic").push(progress));
    let output = call_in(server, tool, with, &cx).await;
    let heard = heard.lock().expect("no panic").iter().map(|at| (at.progress, at.total)).collect();
    (output, heard)
}

async fn names(server: &Mcp) -> Vec<String> {
    let tools = server.list_tool_definitions().await.expect("a list of tools");
    tools.into_iter().map(|tool| tool.name).collect()
}

/// Returns the server's name, era and protocol version.
fn identity(server: &Mcp) -> (String, Era, String) {
    let info = server.server_info().expect("a connected server");
    (info.name.clone(), info.era, info.protocol_version.clone())
}

fn legacy(name: &str) -> (String, Era, String) {
    (name.to_owned(), Era::Legacy, LEGACY.to_owned())
}

fn modern(name: &str) -> (String, Era, String) {
    (name.to_owned(), Era::Modern, MODERN.to_owned())
}

async fn close(server: Mcp) {
    server.close().await;
    assert!(!server.is_connected());
}

// The reference server `everything`.

async fn everything(transport: impl Into<Transport>) {
    let server = connect(transport).await;
    assert_eq!(identity(&server), legacy("mcp-servers/everything"));
    assert!(server.server_info().is_some_and(|info| info.instructions.is_some()));
    let names = names(&server).await;
    for name in ["echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"] {
        assert!(names.iter().any(|known| known == name), "`{name}` is not among {names:?}");
    }

    assert_eq!(text(&server, "echo", json!({"message": "grüß dich"})).await, "Echo: grüß dich");
    assert_eq!(text(&server, "get-sum", json!({"a": 2, "b": 3})).await, "The sum of 2 and 3 is 5.");
    let weather = call(&server, "get-structured-content", json!({"location": "Chicago"})).await;
    let expected = json!({"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82});
    assert_eq!(weather.structured, Some(expected));

    let picture = call(&server, "get-tiny-image", json!({})).await;
    let image = picture.content.iter().find_map(|part| match part {
        ContentPart::Image(blob) => Some(blob),
        _ => None,
    });
    let image = image.expect("an image among the parts");
    assert_eq!(image.mime_type, "image/png");
    assert!(image.bytes().expect("base64").starts_with(b"\x89PNG"));

    let refusal = failure(&server, "echo", json!({})).await;
    assert!(refusal.contains("message"), "{refusal}");

    let (output, heard) =
        with_progress(&server, "trigger-long-running-operation", json!({"duration": 0.3, "steps": 3})).await;
    assert!(!output.is_error, "{output:?}");
    assert_eq!(heard, [1.0, 2.0, 3.0].map(|at| (at, Some(3.0))));
    close(server).await;
}

#[test]
fn everything_works_over_stdio() {
    scene(|scene| async move { everything(scene.server("everything")).await });
}

#[test]
fn everything_works_over_streamable_http() {
    scene(|scene| async move { everything(scene.http_server("everything-http").await.http()).await });
}

#[test]
fn everything_works_over_sse() {
    scene(|scene| async move { everything(scene.http_server("everything-sse").await.sse()).await });
}

#[test]
fn a_real_sse_server_is_detected_behind_a_plain_url() {
    scene(|scene| async move { everything(scene.http_server("everything-sse").await.http()).await });
}

#[test]
fn everything_asks_the_user_and_gets_the_answer() {
    scene(|scene| async move {
        let handlers = answering(json!({"name": "Ada", "check": true}));
        let server = connect_with(handlers, EraChoice::Auto, scene.server("everything")).await;
        let output = call(&server, "trigger-elicitation-request", json!({})).await;
        let told = serde_json::to_string(&output).expect("JSON");
        assert!(told.contains("Ada"), "{told}");
        close(server).await;
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_on_its_port_answers_the_next_call() {
    scene(|scene| async move {
        for name in ["everything-http", "rmcp-http"] {
            let mut listening = scene.http_server(name).await;
            let server = connect_in(EraChoice::Legacy, listening.http()).await;
            let before = text(&server, "echo", json!({"message": "before"})).await;
            assert!(before.ends_with("before"), "{before}");
            listening.restart().await;
            let after = text(&server, "echo", json!({"message": "after"})).await;
            assert!(after.ends_with("after"), "{after}");
            close(server).await;
        }
    });
}

#[test]
fn a_modern_server_that_is_killed_and_started_again_answers_the_next_call() {
    scene(|scene| async move {
        let mut listening = scene.http_server("typescript-http").await;
        let server = connect(listening.http()).await;
        assert_eq!(call(&server, "add", json!({"a": 1, "b": 1})).await.structured, Some(json!({"sum": 2})));
        listening.restart().await;
        assert_eq!(call(&server, "add", json!({"a": 2, "b": 2})).await.structured, Some(json!({"sum": 4})));
        close(server).await;
    });
}

// The other reference servers.

#[test]
fn files_are_written_and_read_inside_the_allowed_folder_only() {
    scene(|scene| async move {
        let server = connect(scene.server("filesystem")).await;
        assert_eq!(identity(&server), legacy("secure-filesystem-server"));
        assert!(names(&server).await.contains(&"read_text_file".to_owned()));
        let path = scene.directory().join("note.txt");
        let written = call(&server, "write_file", json!({"path": path, "content": "hello\n"})).await;
        assert!(!written.is_error, "{written:?}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "hello\n");
        let read = call(&server, "read_text_file", json!({"path": path})).await;
        assert_eq!(read.structured, Some(json!({"content": "hello\n"})));
        let refusal = failure(&server, "read_text_file", json!({"path": "/etc/hostname"})).await;
        assert!(refusal.starts_with("Access denied"), "{refusal}");
        close(server).await;
    });
}

#[test]
fn stored_memories_survive_a_restart() {
    scene(|scene| async move {
        let ada = json!({"name": "Ada", "entityType": "person", "observations": ["writes programs"]});
        let server = connect(scene.server("memory")).await;
        assert_eq!(identity(&server), legacy("memory-server"));
        assert_eq!(names(&server).await.len(), 9);
        let made = call(&server, "create_entities", json!({"entities": [ada]})).await;
        assert_eq!(made.structured, Some(json!({"entities": [ada]})));
        let nobody = json!({"observations": [{"entityName": "Bob", "contents": ["is not there"]}]});
        assert_eq!(failure(&server, "add_observations", nobody).await, "Entity with name Bob not found");
        close(server).await;

        let server = connect(scene.server("memory")).await;
        let found = call(&server, "search_nodes", json!({"query": "Ada"})).await;
        assert_eq!(found.structured, Some(json!({"entities": [ada], "relations": []})));
        close(server).await;
    });
}

#[test]
fn a_time_is_converted_in_both_eras() {
    scene(|scene| async move {
        for (choice, expected) in [(EraChoice::Auto, modern("mcp-time")), (EraChoice::Legacy, legacy("mcp-time"))] {
            let server = connect_in(choice, scene.server("time")).await;
            assert_eq!(identity(&server), expected);
            assert_eq!(names(&server).await, ["get_current_time", "convert_time"]);
            let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
            let converted = call(&server, "convert_time", noon).await;
            assert_eq!(converted.structured.expect("a structured answer")["time_difference"], json!("+9.0h"));
            let refusal = failure(&server, "get_current_time", json!({"timezone": "Nowhere/Land"})).await;
            assert!(refusal.contains("Nowhere/Land"), "{refusal}");
            close(server).await;
        }
    });
}

#[test]
fn a_repository_is_read_through_git() {
    scene(|scene| async move {
        let repository = scene.directory();
        let git = |args: &[&str]| {
            let mut command = std::process::Command::new("git");
            let author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
            let output = command.current_dir(repository).args(author).args(args).output().expect("git");
            assert!(output.status.success(), "{output:?}");
        };
        git(&["init", "--quiet", "--initial-branch=main"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "a first step"]);

        let server = connect(scene.server("git")).await;
        assert_eq!(identity(&server), modern("mcp-git"));
        assert_eq!(names(&server).await.len(), 12);
        let log = text(&server, "git_log", json!({"repo_path": repository})).await;
        assert!(log.contains("a first step"), "{log}");
        let refusal = failure(&server, "git_show", json!({"repo_path": repository, "revision": "nowhere"})).await;
        assert!(refusal.contains("nowhere"), "{refusal}");
        close(server).await;
    });
}

/// Answers every request on a port of 127.0.0.1 with the same page, until the task is aborted.
async fn web(page: &'static str) -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/page.txt", listener.local_addr().expect("its number"));
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let (status, body) = match request[..read].starts_with(b"GET /page.txt ") {
                true => ("200 OK", page),
                false => ("404 Not Found", ""),
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            // The client may have disconnected.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, serving)
}

#[test]
fn a_page_is_fetched() {
    scene(|scene| async move {
        let (url, serving) = web("words from the web").await;
        let server = connect(scene.server("fetch")).await;
        assert_eq!(identity(&server), modern("mcp-fetch"));
        assert_eq!(names(&server).await, ["fetch"]);
        let page = text(&server, "fetch", json!({"url": url})).await;
        assert!(page.contains("words from the web"), "{page}");
        let refusal = failure(&server, "fetch", json!({"url": url.replace("page", "nothing")})).await;
        assert!(refusal.contains("404"), "{refusal}");
        close(server).await;
        serving.abort();
    });
}

#[test]
fn a_database_is_written_and_read() {
    scene(|scene| async move {
        let server = connect(scene.server("sqlite")).await;
        assert_eq!(identity(&server), legacy("sqlite"));
        assert!(names(&server).await.contains(&"read_query".to_owned()));
        text(&server, "create_table", json!({"query": "create table numbers (n integer)"})).await;
        text(&server, "write_query", json!({"query": "insert into numbers values (7)"})).await;
        assert_eq!(text(&server, "read_query", json!({"query": "select n from numbers"})).await, "[{'n': 7}]");
        // It reports errors as plain text, without `isError`.
        let complaint = text(&server, "read_query", json!({"query": "select m from numbers"})).await;
        assert_eq!(complaint, "Database error: no such column: m");
        close(server).await;
    });
}

// The small test servers, one on each SDK.

async fn small(transport: impl Into<Transport>, choice: EraChoice, expected: (String, Era, String)) -> Mcp {
    let server = connect_in(choice, transport).await;
    assert_eq!(identity(&server), expected);
    let tools = server.list_tool_definitions().await.expect("a list of tools");
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert!(names.starts_with(&["add", "dot", "refuse", "count"]), "{names:?}");
    assert_eq!(tools[0].description.as_deref(), Some("Adds two numbers"));
    assert_eq!(tools[0].output_schema.as_deref().expect("a schema")["required"], json!(["sum"]));

    assert_eq!(call(&server, "add", json!({"a": 2, "b": 3})).await.structured, Some(json!({"sum": 5})));
    let picture = call(&server, "dot", json!({})).await;
    match picture.content.as_slice() {
        [ContentPart::Image(dot)] => {
            assert_eq!(dot.mime_type, "image/png");
            assert_eq!(dot.bytes().expect("base64").len(), 70);
        }
        other => panic!("{other:?}"),
    }
    let refusal = failure(&server, "refuse", json!({"reason": "not today"})).await;
    assert!(refusal.ends_with("not today"), "{refusal}");
    server
}

/// Tests a small server completely, including progress.
async fn small_with_progress(transport: impl Into<Transport>, choice: EraChoice, expected: (String, Era, String)) {
    let server = small(transport, choice, expected).await;
    let (output, heard) = with_progress(&server, "count", json!({"to": 3})).await;
    assert_eq!(output.plain_text().as_deref(), Some("counted to 3"));
    assert_eq!(heard, [1.0, 2.0, 3.0].map(|at| (at, Some(3.0))));
    close(server).await;
}

/// Tests the elicitation of a small server, which asks for a colour.
async fn asks(transport: impl Into<Transport>, choice: EraChoice) {
    let server = connect_with(answering(json!({"colour": "green"})), choice, transport).await;
    assert_eq!(text(&server, "ask", json!({})).await, "you said green");
    close(server).await;
}

#[test]
fn typescript_on_stdio_is_modern() {
    scene(|scene| async move {
        small_with_progress(scene.server("typescript"), EraChoice::Auto, modern("typescript")).await;
    });
}

#[test]
fn typescript_on_stdio_is_legacy_if_configured() {
    scene(|scene| async move {
        small_with_progress(scene.server("typescript"), EraChoice::Legacy, legacy("typescript")).await;
    });
}

#[test]
fn typescript_over_http_is_modern() {
    scene(|scene| async move {
        let listening = scene.http_server("typescript-http").await;
        small_with_progress(listening.http(), EraChoice::Auto, modern("typescript")).await;
    });
}

#[test]
fn typescript_over_http_is_legacy_if_configured() {
    scene(|scene| async move {
        let listening = scene.http_server("typescript-http").await;
        small_with_progress(listening.http(), EraChoice::Legacy, legacy("typescript")).await;
    });
}

#[test]
fn typescript_asks_in_both_eras() {
    scene(|scene| async move {
        asks(scene.server("typescript"), EraChoice::Auto).await;
        asks(scene.server("typescript"), EraChoice::Legacy).await;
        // Its legacy HTTP is stateless, so it cannot send requests to the client.
        asks(scene.http_server("typescript-http").await.http(), EraChoice::Auto).await;
    });
}

#[test]
fn python_two_on_stdio_is_modern() {
    scene(|scene| async move {
        small_with_progress(scene.server("mcp2"), EraChoice::Auto, modern("mcp2")).await;
    });
}

#[test]
fn python_two_on_stdio_is_legacy_if_configured() {
    scene(|scene| async move {
        small_with_progress(scene.server("mcp2"), EraChoice::Legacy, legacy("mcp2")).await;
    });
}

#[test]
fn python_two_over_http_is_modern() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp2-http").await;
        small_with_progress(listening.http(), EraChoice::Auto, modern("mcp2")).await;
        small_with_progress(listening.http(), EraChoice::Modern, modern("mcp2")).await;
    });
}

#[test]
fn python_two_over_http_is_legacy_if_configured() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp2-http").await;
        small_with_progress(listening.http(), EraChoice::Legacy, legacy("mcp2")).await;
    });
}

#[test]
fn python_two_without_sessions_answers_in_plain_json() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp2-http-stateless").await;
        close(small(listening.http(), EraChoice::Auto, modern("mcp2")).await).await;
        close(small(listening.http(), EraChoice::Legacy, legacy("mcp2")).await).await;
    });
}

#[test]
fn python_two_over_sse_is_legacy() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp2-sse").await;
        small_with_progress(listening.sse(), EraChoice::Auto, legacy("mcp2")).await;
        small_with_progress(listening.http(), EraChoice::Auto, legacy("mcp2")).await;
    });
}

#[test]
fn python_two_asks_in_both_eras() {
    scene(|scene| async move {
        asks(scene.server("mcp2"), EraChoice::Auto).await;
        asks(scene.server("mcp2"), EraChoice::Legacy).await;
        let listening = scene.http_server("mcp2-http").await;
        asks(listening.http(), EraChoice::Auto).await;
        asks(listening.http(), EraChoice::Legacy).await;
    });
}

#[test]
fn python_one_is_legacy_on_stdio() {
    scene(|scene| async move {
        small_with_progress(scene.server("mcp1"), EraChoice::Auto, legacy("mcp1")).await;
    });
}

#[test]
fn python_one_is_legacy_over_http() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp1-http").await;
        small_with_progress(listening.http(), EraChoice::Auto, legacy("mcp1")).await;
    });
}

#[test]
fn python_one_is_legacy_over_sse() {
    scene(|scene| async move {
        let listening = scene.http_server("mcp1-sse").await;
        small_with_progress(listening.sse(), EraChoice::Auto, legacy("mcp1")).await;
    });
}

#[test]
fn python_one_asks_over_every_transport() {
    scene(|scene| async move {
        asks(scene.server("mcp1"), EraChoice::Auto).await;
        asks(scene.http_server("mcp1-http").await.http(), EraChoice::Auto).await;
        asks(scene.http_server("mcp1-sse").await.sse(), EraChoice::Auto).await;
    });
}

#[test]
fn fastmcp_on_stdio_is_modern() {
    scene(|scene| async move {
        small_with_progress(scene.server("fastmcp"), EraChoice::Auto, modern("fastmcp")).await;
    });
}

#[test]
fn fastmcp_on_stdio_is_legacy_if_configured() {
    scene(|scene| async move {
        small_with_progress(scene.server("fastmcp"), EraChoice::Legacy, legacy("fastmcp")).await;
    });
}

#[test]
fn fastmcp_over_http_supports_both_eras() {
    scene(|scene| async move {
        let listening = scene.http_server("fastmcp-http").await;
        small_with_progress(listening.http(), EraChoice::Auto, modern("fastmcp")).await;
        small_with_progress(listening.http(), EraChoice::Legacy, legacy("fastmcp")).await;
    });
}

#[test]
fn fastmcp_without_sessions_supports_both_eras() {
    scene(|scene| async move {
        let listening = scene.http_server("fastmcp-http-stateless").await;
        small_with_progress(listening.http(), EraChoice::Auto, modern("fastmcp")).await;
        small_with_progress(listening.http(), EraChoice::Legacy, legacy("fastmcp")).await;
    });
}

#[test]
fn fastmcp_over_sse_is_legacy() {
    scene(|scene| async move {
        let listening = scene.http_server("fastmcp-sse").await;
        small_with_progress(listening.sse(), EraChoice::Auto, legacy("fastmcp")).await;
    });
}

// The official Rust SDK.

async fn rust(transport: impl Into<Transport>, choice: EraChoice, expected: (String, Era, String)) {
    let server = connect_with(answering(json!({"name": "Ada"})), choice, transport).await;
    assert_eq!(identity(&server), expected);
    let names = names(&server).await;
    assert!(names.contains(&"add".to_owned()), "{names:?}");
    let sum = call(&server, "add", json!({"a": 2, "b": 3})).await.structured.expect("a structured answer");
    assert_eq!(sum["sum"].as_f64(), Some(5.0));
    assert_eq!(failure(&server, "fail", json!({})).await, "this tool always fails");
    let (output, heard) = with_progress(&server, "slow", json!({"steps": 2, "millis": 5})).await;
    assert_eq!(output.plain_text().as_deref(), Some("2 steps done"));
    assert_eq!(heard, [1.0, 2.0].map(|at| (at, Some(2.0))));
    assert_eq!(text(&server, "ask", json!({})).await, "hello Ada");
    close(server).await;
}

#[test]
fn rust_on_stdio_supports_both_eras() {
    scene(|scene| async move {
        rust(scene.server("rmcp"), EraChoice::Auto, modern("rmcp-server")).await;
        rust(scene.server("rmcp"), EraChoice::Legacy, legacy("rmcp-server")).await;
    });
}

#[test]
fn rust_over_http_supports_both_eras() {
    scene(|scene| async move {
        let listening = scene.http_server("rmcp-http").await;
        rust(listening.http(), EraChoice::Auto, modern("rmcp-server")).await;
        rust(listening.http(), EraChoice::Legacy, legacy("rmcp-server")).await;
    });
}

// Tests with all servers.

#[test]
fn a_dropped_handle_leaves_no_process_of_a_real_server() {
    scene(|scene| async move {
        for name in ["everything", "mcp1", "mcp2", "typescript"] {
            let _dropped_at_once = connect(scene.server(name)).await;
        }
    });
}

#[test]
fn many_calls_at_once_each_get_their_own_answer() {
    scene(|scene| async move {
        let server = connect(scene.server("everything")).await;
        let calls = (0..50).map(|number| {
            let server = server.clone();
            let message = format!("number {number}");
            tokio::spawn(async move { (text(&server, "echo", json!({"message": message})).await, message) })
        });
        for call in calls.collect::<Vec<_>>() {
            let (answer, message) = call.await.expect("an answer");
            assert_eq!(answer, format!("Echo: {message}"));
        }
        close(server).await;
    });
}

#[test]
fn a_call_that_is_given_up_leaves_the_server_usable() {
    scene(|scene| async move {
        let server = connect(scene.server("everything")).await;
        let long = arguments(json!({"duration": 30, "steps": 3}));
        let cx = CallContext::default().with_timeout(Duration::from_millis(200));
        let given_up = server.call_tool_with("trigger-long-running-operation", long, &cx).await;
        assert!(given_up.is_err(), "{given_up:?}");
        assert_eq!(text(&server, "echo", json!({"message": "still here"})).await, "Echo: still here");
        close(server).await;
    });
}
