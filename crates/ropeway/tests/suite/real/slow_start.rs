//! Servers on every SDK that take longer to start than the probe waits: each is used in the era in which it answers.

use std::time::Duration;

use ropeway::config::{ServerConfig, StdioServer};
use ropeway::event::Events;
use ropeway::mcp::{Era, Handlers, Mcp};
use serde_json::json;

use super::{call, names};
use crate::scene::{Scene, scene};

/// The start delay, in seconds. `server/discover` and `initialize` both wait in the pipe then.
fn delay() -> u64 {
    std::env::var("ROPEWAY_TEST_START_DELAY").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(7)
}

/// Returns the server behind a delay.
fn slow(scene: &Scene, server: &StdioServer, variables: &[(&str, &str)]) -> StdioServer {
    let words = format!(r#"sleep {}; exec "$0" "$@""#, delay());
    let args = ["-c".to_owned(), words, server.command.clone()].into_iter().chain(server.args.clone());
    variables.iter().fold(scene.stdio("sh", args), |server, (name, value)| server.with_env(*name, *value))
}

/// Asserts that a slow server works in an era.
async fn check(scene: &Scene, name: &str, variables: &[(&str, &str)], tool: &str, era: Era) {
    let server = slow(scene, &scene.server(name), variables);
    let server = Mcp::with_host(ServerConfig::new("peer", server), Handlers::new(), Events::default());
    if let Err(error) = server.connect().await {
        panic!("{name}: {error:?}\n{}", server.stderr_tail().join("\n"));
    }
    let info = server.server_info().expect("a connected server");
    println!("{name} after {} s: {:?}, {}", delay(), info.era, info.protocol_version);
    assert_eq!(info.era, era, "{name}");
    assert!(names(&server).await.iter().any(|known| known == tool), "{name}");
    // A modern result without `resultType`, or a request without its envelope, would fail.
    let arguments = if tool == "add" { json!({"a": 2, "b": 3}) } else { json!({"message": "hi"}) };
    let output = call(&server, tool, arguments).await;
    assert!(!output.is_error, "{name}: {output:?}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(server.is_connected(), "{name}");
    server.close().await;
}

#[test]
fn a_slow_server_on_the_typescript_sdk_1_is_legacy() {
    scene(|scene| async move { check(&scene, "everything", &[], "echo", Era::Legacy).await });
}

#[test]
fn a_slow_server_on_the_typescript_sdk_2_accepts_initialize() {
    scene(|scene| async move { check(&scene, "typescript", &[], "add", Era::Legacy).await });
}

#[test]
fn a_slow_modern_server_on_the_typescript_sdk_2_is_modern() {
    scene(|scene| async move { check(&scene, "typescript", &[("MODERN_ONLY", "1")], "add", Era::Modern).await });
}

#[test]
fn a_slow_server_on_the_python_sdk_1_is_legacy() {
    scene(|scene| async move { check(&scene, "mcp1", &[], "add", Era::Legacy).await });
}

#[test]
fn a_slow_server_on_the_python_sdk_2_is_modern() {
    scene(|scene| async move { check(&scene, "mcp2", &[], "add", Era::Modern).await });
}

#[test]
fn a_slow_server_on_fastmcp_is_modern() {
    scene(|scene| async move { check(&scene, "fastmcp", &[], "add", Era::Modern).await });
}

#[test]
fn a_slow_server_on_the_rust_sdk_accepts_initialize() {
    scene(|scene| async move { check(&scene, "rmcp", &[], "add", Era::Legacy).await });
}

#[test]
fn a_slow_modern_server_on_the_rust_sdk_is_restarted_as_modern() {
    scene(|scene| async move { check(&scene, "rmcp", &[("MODERN_ONLY", "1")], "add", Era::Modern).await });
}
