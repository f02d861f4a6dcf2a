//! A bridge with many real servers, over all transports and in both eras, from one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropeway::bridge::Bridge;
use ropeway::config::{Config, Secrets};
use ropeway::event::Event;
use ropeway::registry::{Registry, ServerState};
use ropeway::tool::{Arguments, CallContext};
use ropeway_bridge::ToolListing;
use serde_json::{Value, json};

use crate::scene::{Listening, Scene, scene};

/// Longer than the slowest server takes to start, with all others starting concurrently on two cores.
const PATIENCE: Duration = Duration::from_secs(45);

/// Stdio servers: the name in `servers.json`, and a tool with its arguments.
const PROCESSES: [(&str, &str, &str); 10] = [
    ("everything", "echo", r#"{"message": "hi"}"#),
    ("filesystem", "list_allowed_directories", "{}"),
    ("memory", "read_graph", "{}"),
    ("time", "get_current_time", r#"{"timezone": "UTC"}"#),
    ("sqlite", "list_tables", "{}"),
    ("typescript", "add", r#"{"a": 1, "b": 2}"#),
    ("mcp1", "add", r#"{"a": 1, "b": 2}"#),
    ("mcp2", "add", r#"{"a": 1, "b": 2}"#),
    ("fastmcp", "add", r#"{"a": 1, "b": 2}"#),
    ("rmcp", "", "{}"),
];

/// HTTP servers, and the transport in the file.
const LISTENING: [(&str, &str); 4] =
    [("everything-sse", "sse"), ("typescript-http", "streamable-http"), ("mcp1-http", "http"), ("mcp2-http", "")];

/// Returns the file with all servers.
fn write(scene: &Scene, listening: &BTreeMap<&str, Listening>, change: impl Fn(&str, &mut Value)) -> PathBuf {
    let mut servers = Vec::new();
    for (name, ..) in PROCESSES {
        let server = scene.server(name);
        let env: serde_json::Map<_, _> =
            server.env.iter().map(|(name, value)| (name.clone(), json!(value.expose()))).collect();
        servers.push(json!({"alias": name, "command": server.command, "args": server.args, "env": env,
            "cwd": scene.directory()}));
    }
    for (name, transport) in LISTENING {
        let mut entry = json!({"alias": name, "url": listening[name].url()});
        if !transport.is_empty() {
            entry["transport"] = json!(transport);
        }
        servers.push(entry);
    }
    for entry in &mut servers {
        let alias = entry["alias"].as_str().unwrap_or_default().to_owned();
        change(&alias, entry);
    }
    // JSON is valid YAML. The file has one line per server.
    let lines: Vec<String> = servers.iter().map(|entry| format!("  - {entry}")).collect();
    let text = format!("defaults:\n  timeouts: {{connect: 60s}}\nservers:\n{}\n", lines.join("\n"));
    let path = scene.directory().join("ropeway.yaml");
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a file");
    fs::rename(&new, &path).expect("in place");
    path
}

fn load(path: &Path) -> Config {
    Config::load(path, &Secrets::none()).unwrap_or_else(|error| panic!("{error}"))
}

fn outcome<'a>(listing: &'a ToolListing, alias: &str) -> &'a ServerState {
    &listing.statuses.iter().find(|status| status.server.as_str() == alias).expect("a status").state
}

fn is_ready(listing: &ToolListing, alias: &str) -> bool {
    matches!(outcome(listing, alias), ServerState::Ready { .. })
}

async fn until(bridge: &Bridge, done: impl FnMut(&ToolListing) -> bool) -> ToolListing {
    let waited = tokio::time::timeout(PATIENCE, bridge.until(done)).await;
    waited.unwrap_or_else(|_| panic!("not in time: {:?}", bridge.tools().statuses))
}

async fn answers(registry: &Registry, tool: &str, arguments: &str) {
    let arguments: Arguments = serde_json::from_str(arguments).expect("an object");
    let envelope = registry.call_with(tool, arguments, &CallContext::default()).await;
    assert!(!envelope.meta.is_error, "`{tool}`: {envelope:?}");
}

/// Returns the process of a server, by a word of its command line.
fn process(scene: &Scene, word: &str) -> i32 {
    let found = scene.processes().into_iter().find(|(_, command)| command.contains(word));
    found.unwrap_or_else(|| panic!("`{word}` does not run: {:?}", scene.processes())).0
}

#[test]
fn fourteen_real_servers_from_one_file_survive_faults() {
    scene(|scene| async move {
        let mut listening = BTreeMap::new();
        for (name, _) in LISTENING {
            listening.insert(name, scene.http_server(name).await);
        }
        let file = write(&scene, &listening, |_, _| {});
        let bridge = Bridge::new(load(&file)).expect("a bridge");
        bridge.start().await.expect("a start");

        // All servers are ready, in both eras, and can be called.
        let listing =
            until(&bridge, |listing| listing.statuses.iter().all(|v| is_ready(listing, v.server.as_str()))).await;
        assert_eq!(listing.statuses.len(), PROCESSES.len() + LISTENING.len());
        for (alias, tool, arguments) in PROCESSES.into_iter().filter(|(_, tool, _)| !tool.is_empty()) {
            answers(&listing.registry, &format!("mcp_{alias}_{tool}"), arguments).await;
        }
        let health = bridge.health_check().await;
        assert!(health.is_healthy(), "{health:?}");
        let mut eras: Vec<String> = health.servers.iter().map(|server| format!("{:?}", server.era)).collect();
        eras.sort();
        eras.dedup();
        assert_eq!(eras, ["Some(Legacy)", "Some(Modern)"]);

        // One server is killed: its tools come back automatically, and the others are not affected.
        let killed = process(&scene, "mcp-server-time");
        let pid = rustix::process::Pid::from_raw(killed).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is alive");
        until(&bridge, |listing| !is_ready(listing, "time")).await;
        answers(&bridge.tools().registry, "mcp_everything_echo", r#"{"message": "hi"}"#).await;
        let listing = until(&bridge, |listing| is_ready(listing, "time")).await;
        answers(&listing.registry, "mcp_time_get_current_time", r#"{"timezone": "UTC"}"#).await;
        assert_ne!(process(&scene, "mcp-server-time"), killed);

        // An HTTP server restarts on the same port: the next call works.
        listening.get_mut("mcp1-http").expect("a server").restart().await;
        answers(&bridge.tools().registry, "mcp_mcp1-http_add", r#"{"a": 1, "b": 2}"#).await;

        // The file changes for one server: only that server is restarted.
        let before = scene.processes();
        let mut events = bridge.events();
        bridge.watch(&file, Secrets::none());
        write(&scene, &listening, |alias, entry| {
            if alias == "sqlite" {
                entry["args"] = json!(["--db-path", "other.db"]);
            }
        });
        let reloaded = async {
            loop {
                if let Some(Event::Reloaded { started, stopped, restarted }) = events.next().await {
                    return (started, stopped, restarted);
                }
            }
        };
        let (started, stopped, restarted) = tokio::time::timeout(PATIENCE, reloaded).await.expect("a reload");
        assert!(started.is_empty() && stopped.is_empty(), "{started:?} {stopped:?}");
        assert_eq!(restarted, ["sqlite".into()]);
        let listing = until(&bridge, |listing| is_ready(listing, "sqlite")).await;
        answers(&listing.registry, "mcp_sqlite_list_tables", "{}").await;
        let others = |processes: Vec<(i32, String)>| -> Vec<(i32, String)> {
            processes.into_iter().filter(|(_, command)| !command.contains("sqlite")).collect()
        };
        assert_eq!(others(scene.processes()), others(before));

        // The file becomes invalid: the old configuration stays, and a warning is emitted.
        fs::write(&file, "servers: [\n\t- what").expect("a file");
        let warned = async {
            loop {
                if let Some(Event::Warning { server: None, message }) = events.next().await {
                    return message;
                }
            }
        };
        let warning = tokio::time::timeout(PATIENCE, warned).await.expect("a warning");
        assert!(warning.contains("using the previous one") && warning.contains("ropeway.yaml:"), "{warning}");
        answers(&bridge.tools().registry, "mcp_sqlite_list_tables", "{}").await;

        bridge.stop().await;
        drop(listening);
    });
}
