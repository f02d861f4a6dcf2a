//! Manifests with real servers.

use std::path::Path;
use std::time::Duration;

use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::registry::ServerState;
use ropeway::tool::CallContext;
use serde_json::{Value, json};

use super::arguments;
use crate::manifest::{manifest, program};
use crate::scene::{Scene, scene};

/// Longer than the slowest server takes to start.
const PATIENCE: Duration = Duration::from_secs(45);

async fn started(scene: &Scene, name: &str, url: &str) -> Bridge {
    let mut words = program(["FILES_COMMAND", "FILES_ARGS", "FILES_ENV"], &scene.server("filesystem")).to_vec();
    words.push(("EVERYTHING_URL", json!(url)));
    let secrets = Secrets::none().with_fn(|name| (name == "EVERYTHING_TOKEN").then_some("t0ken-from-code"));
    let path = Path::new("nowhere").join(name);
    let config = Config::parse(&manifest(name, &words), &path, &secrets).unwrap_or_else(|error| panic!("{error}"));
    let bridge = Bridge::new(config).expect("a bridge");
    bridge.start().await.expect("a start");
    let is_ready = |outcome: &ServerState| matches!(outcome, ServerState::Ready { .. });
    let is_wanted = |server: &str| matches!(server, "everything" | "files");
    let all = bridge.until_statuses(|statuses| {
        statuses.iter().filter(|status| is_wanted(status.server.as_str())).all(|status| is_ready(&status.state))
    });
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("not in time: {:?}", bridge.statuses()));
    bridge
}

fn names(bridge: &Bridge) -> Vec<String> {
    bridge.tools().registry.definitions().map(|definition| definition.name.clone()).collect()
}

async fn answer(bridge: &Bridge, tool: &str, with: Value) -> String {
    let envelope = bridge.tools().registry.call_with(tool, arguments(with), &CallContext::default()).await;
    assert!(!envelope.meta.is_error, "{envelope:?}");
    ropeway::content::plain_text(&envelope.meta.content).expect("text only")
}

#[test]
fn the_manifest_of_an_extension_runs_with_its_filters_and_secrets() {
    scene(|scene| async move {
        let listening = scene.http_server("everything-http").await;
        let bridge = started(&scene, "extension.yaml", listening.url()).await;
        let mut names = names(&bridge);
        names.sort();
        let expected = [
            "fs_list_allowed_directories",
            "fs_read_media_file",
            "fs_read_multiple_files",
            "fs_read_text_file",
            "mcp_everything_echo",
        ];
        assert_eq!(names, expected);
        assert_eq!(answer(&bridge, "mcp_everything_echo", json!({"message": "hi"})).await, "Echo: hi");
        assert!(answer(&bridge, "fs_list_allowed_directories", json!({})).await.contains("Allowed directories"));
        let outcome = |alias: &str| {
            bridge.statuses().into_iter().find(|status| status.server.as_str() == alias).expect("a status").state
        };
        assert_eq!(outcome("tracker"), ServerState::Skipped { secrets: vec!["TRACKER_TOKEN".into()] });
        assert_eq!(outcome("unused"), ServerState::Disabled);
        bridge.stop().await;
    });
}

#[test]
fn the_services_of_an_application_run_with_their_filters() {
    scene(|scene| async move {
        let listening = scene.http_server("everything-http").await;
        let bridge = started(&scene, "services.yaml", listening.url()).await;
        assert_eq!(names(&bridge), ["mcp_files_list_allowed_directories", "mcp_everything_echo"]);
        let registry = bridge.tools().registry;
        let echo = registry.definitions().find(|tool| tool.name == "mcp_everything_echo").expect("a tool");
        assert!(echo.description.as_deref().is_some_and(|text| text.starts_with("[MCP: everything] ")), "{echo:?}");
        assert_eq!(answer(&bridge, "mcp_everything_echo", json!({"message": "hi"})).await, "Echo: hi");
        bridge.stop().await;
    });
}
