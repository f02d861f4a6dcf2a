//! Settings with short timeouts, and helpers for connection tests.

use std::error::Error;
use std::time::Duration;

use ropeway::config::{EraChoice, HttpServer, ServerConfig, StdioServer, Transport};
use ropeway::event::{Event, EventStream, Events};
use ropeway::mcp::{ConnectionState, Handlers, Mcp};
use ropeway::testing::{HttpScriptedServer, Script, ScriptedServer};
use ropeway::tool::{Arguments, CallContext, CallError, ToolOutput};
use serde_json::{Value, json};

use crate::scene::Scene;

/// Longer than any step should take, even on an overloaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns settings with short timeouts for a server with the alias `peer`.
pub(crate) fn fast_config(transport: impl Into<Transport>) -> ServerConfig {
    let mut config = ServerConfig::new("peer", transport);
    config.timeouts.connect = SOON;
    // A server that answers the probe late counts as legacy, so a busy machine must have time for it.
    config.timeouts.probe = SOON;
    config.timeouts.idle = SOON;
    config.timeouts.total = SOON;
    config.timeouts.close = ms(300);
    config.timeouts.grace = SOON;
    config.reconnect.initial_delay = ms(20);
    config.reconnect.max_delay = ms(200);
    config
}

pub(crate) fn in_era(era: EraChoice, transport: impl Into<Transport>) -> ServerConfig {
    let mut config = fast_config(transport);
    config.era = era;
    config
}

/// Returns settings for a server that does not answer the probe.
pub(crate) fn silent_at_probe(transport: impl Into<Transport>) -> ServerConfig {
    let mut config = fast_config(transport);
    config.timeouts.probe = ms(300);
    config
}

pub(crate) async fn connect(config: ServerConfig) -> Mcp {
    connect_with(Handlers::new(), config).await
}

pub(crate) async fn connect_with(handlers: Handlers, config: ServerConfig) -> Mcp {
    let server = Mcp::with_host(config, handlers, Events::default());
    if let Err(error) = server.connect().await {
        panic!("{}\n{}", chain(&error), server.stderr_tail().join("\n"));
    }
    server
}

/// Connects to a scripted server within this process.
pub(crate) async fn in_process(script: Script) -> (ScriptedServer, Mcp) {
    let scripted = ScriptedServer::new(script);
    let server = connect(fast_config(scripted.in_process())).await;
    (scripted, server)
}

/// Starts a scripted server as a child process of the scene.
pub(crate) fn child(scene: &Scene, script: &Script) -> StdioServer {
    let script = serde_json::to_string(script).expect("a script");
    scene.stdio(env!("CARGO_BIN_EXE_scripted-server"), [script])
}

/// Starts a scripted HTTP server.
pub(crate) async fn listening(script: Script) -> HttpScriptedServer {
    HttpScriptedServer::start(script).await.expect("a free port")
}

pub(crate) fn at(url: String) -> HttpServer {
    HttpServer::new(url)
}

pub(crate) fn arguments(value: Value) -> Arguments {
    value.as_object().cloned().expect("an object")
}

pub(crate) async fn call(server: &Mcp, tool: &str, with: Value) -> Result<ToolOutput, CallError> {
    call_in(server, tool, with, &CallContext::default()).await
}

pub(crate) async fn call_in(server: &Mcp, tool: &str, with: Value, cx: &CallContext) -> Result<ToolOutput, CallError> {
    let call = server.call_tool_with(tool, arguments(with), cx);
    tokio::time::timeout(5 * SOON, call).await.expect("an outcome in time")
}

/// Returns the text of a tool's output.
pub(crate) async fn text(server: &Mcp, tool: &str, with: Value) -> String {
    let output = call(server, tool, with).await.unwrap_or_else(|error| panic!("`{tool}`: {}", chain(&error)));
    output.plain_text().expect("text only")
}

/// Calls `echo`, to check that the server answers.
pub(crate) async fn echo(server: &Mcp) -> Result<String, String> {
    let output = call(server, "echo", json!({"message": "hi"})).await;
    output.map(|output| output.plain_text().expect("text only")).map_err(|error| chain(&error))
}

/// Asserts that a later call succeeds.
pub(crate) async fn still_works(server: &Mcp) {
    assert_eq!(echo(server).await.as_deref(), Ok("hi"));
}

/// Returns the error of a call of `echo` with its causes.
pub(crate) async fn echo_fails(server: &Mcp) -> String {
    echo(server).await.expect_err("no answer")
}

/// Returns the error of a failed connection with its causes.
pub(crate) async fn cannot_connect(server: &Mcp) -> String {
    let outcome = tokio::time::timeout(2 * SOON, server.connect()).await.expect("an outcome in time");
    chain(&outcome.expect_err("no connection"))
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

/// Waits until a condition is true.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if so() {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("not in time: {what}");
}

/// Waits for a state of the connection.
pub(crate) async fn state(server: &Mcp, wanted: impl FnMut(&ConnectionState) -> bool) -> ConnectionState {
    let mut state = server.state();
    let state = tokio::time::timeout(SOON, state.wait_for(wanted)).await.expect("the state in time");
    state.expect("a connection").clone()
}

/// Returns the next matching event and skips the others.
pub(crate) async fn event<T>(events: &mut EventStream, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let next = async {
        loop {
            if let Some(found) = wanted(events.next().await.expect("an event")) {
                return found;
            }
        }
    };
    tokio::time::timeout(SOON, next).await.expect("the event in time")
}

/// Returns the warnings so far.
pub(crate) fn warnings(events: &mut EventStream) -> Vec<String> {
    let mut warnings = Vec::new();
    while let Some(event) = events.try_next() {
        if let Event::Warning { message, .. } = event {
            warnings.push(message);
        }
    }
    warnings
}

pub(crate) async fn names(server: &Mcp) -> Vec<String> {
    let tools = server.list_tool_definitions().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    tools.into_iter().map(|tool| tool.name).collect()
}
