//! Tests of leases, views and isolated connections.

use std::ops::Range;

use serde_json::{Value, json};

use super::*;
use crate::registry::ServerState;
use ropeway_config::lock::Lock;
use ropeway_config::{Config, HttpServer, LockPolicy, ServerConfig, StartMode, ToolOverride};
use ropeway_core::tool::ArgumentMapping;
use ropeway_mcp::{RawCaller, RawReply, RawRequest, RequestTag};
use ropeway_testing::{HttpScriptedServer, Script, ScriptedServer};

struct Caller;

impl RawCaller for Caller {
    fn key(&self) -> RequestTag {
        RequestTag(1)
    }

    fn on_progress(&self, _: &str, _: Range<usize>) {}
}

async fn forward(lease: &ServerLease, tool: &str, arguments: Value) -> Result<RawReply, CallError> {
    let request = RawRequest {
        method: "tools/call".into(),
        params: json!({"name": tool, "arguments": arguments}).to_string().into(),
        name: Some(tool.to_owned()),
        meta: String::new(),
        modern_meta: r#""io.modelcontextprotocol/clientCapabilities":{}"#.into(),
        arguments: None,
        as_task: false,
    };
    lease.guard(lease.mcp.forward(request, Arc::new(Caller), lease.context())).await
}

async fn echo(lease: &ServerLease) -> String {
    let reply = forward(lease, "echo", json!({"message": "hi"})).await.expect("a reply");
    let result: Value = serde_json::from_slice(&reply.result).expect("JSON");
    result["content"][0]["text"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn a_raw_call_wakes_a_lazy_server() {
    let scripted = HttpScriptedServer::start(Script::default()).await.expect("a free port");
    let folder = tempfile::tempdir().expect("a folder");
    let mut entry = ServerEntry::new(ServerConfig::new("web", HttpServer::new(scripted.url())));
    entry.start = StartMode::Lazy;
    let bridge = || {
        let config = Config::default().with_server(entry.clone());
        Bridge::builder(config).cache_dir(folder.path()).build().expect("a bridge")
    };
    let first = bridge();
    first.start().await.expect("a start");
    first.stop().await;
    let second = bridge();
    second.start().await.expect("a start");
    assert!(matches!(second.views()[0].status.state, ServerState::Cached { .. }));
    let lease = second.connect_for(&"web".into(), Some("echo")).await.expect("a lease");
    assert_eq!(echo(&lease).await, "hi");
    assert!(matches!(second.views()[0].status.state, ServerState::Ready { .. }));
    second.stop().await;
}

#[tokio::test]
async fn a_request_right_after_a_change_of_the_file_waits_for_its_server() {
    let (first, second) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::default()));
    let config = |server: &ScriptedServer, limit| {
        let mut entry = ServerEntry::new(ServerConfig::new("web", server.in_process()));
        entry.tools.deny = vec![format!("{limit}")];
        Config::default().with_server(entry)
    };
    let bridge = Bridge::builder(config(&first, 0)).no_cache().build().expect("a bridge");
    bridge.start().await.expect("a start");
    // Other rules for the same process, another process, and two changes in a row.
    let changes = [vec![(&first, 1)], vec![(&second, 1)], vec![(&first, 2), (&first, 3)]];
    for change in changes {
        for (server, limit) in change {
            bridge.apply(config(server, limit)).expect("a configuration");
            assert!(matches!(bridge.views()[0].status.state, ServerState::Connecting), "{limit}");
        }
        let lease = bridge.connect_for(&"web".into(), Some("echo")).await.expect("a lease");
        assert_eq!(echo(&lease).await, "hi");
    }
    bridge.stop().await;
}

#[tokio::test]
async fn an_isolated_connection_has_its_own_process() {
    let scripted = ScriptedServer::new(Script::default());
    let config = Config::new([ServerConfig::new("web", scripted.in_process())]);
    let bridge = Bridge::builder(config).no_cache().build().expect("a bridge");
    bridge.start().await.expect("a start");
    let isolated = bridge.isolated(&"web".into(), Handlers::new()).expect("a connection");
    assert_eq!(scripted.connections(), 1, "it is not connected yet");
    let lease = bridge.connect_isolated(&"web".into(), Some("echo"), &isolated).await.expect("a lease");
    let shared = bridge.connect_for(&"web".into(), None).await.expect("a lease");
    assert_eq!((scripted.connections(), lease.mcp.link() == shared.mcp.link()), (2, false));
    assert_eq!((echo(&lease).await, echo(&shared).await), ("hi".to_owned(), "hi".to_owned()));
    isolated.close().await;
    assert_eq!(echo(&shared).await, "hi");
    assert!(bridge.isolated(&"other".into(), Handlers::new()).is_none());
}

#[tokio::test]
async fn a_stopped_server_ends_its_raw_calls() {
    let scripted = ScriptedServer::new(Script::default());
    let config = Config::new([ServerConfig::new("web", scripted.in_process())]);
    let bridge = Bridge::builder(config).no_cache().build().expect("a bridge");
    bridge.start().await.expect("a start");
    let (alias, slot) = ("web".into(), bridge.views()[0].slot);
    let lease = bridge.connect_for(&alias, Some("sleep")).await.expect("a lease");
    let stop = async {
        scripted.wait_for("tools/call", 1).await;
        bridge.stop().await;
    };
    let (outcome, ()) = tokio::join!(forward(&lease, "sleep", json!({"ms": 60_000})), stop);
    assert!(matches!(outcome, Err(CallError::Stopped { .. })), "{outcome:?}");
    assert!(matches!(forward(&lease, "echo", json!({})).await, Err(CallError::NotConnected { .. })));
    assert!(matches!(bridge.connect_for(&alias, None).await, Err(CallError::NotConnected { .. })));
    assert_ne!(bridge.views()[0].slot, slot);
}

#[tokio::test]
async fn a_view_has_the_tools_under_their_names_without_a_prefix() {
    let scripted = ScriptedServer::new(Script::default());
    let mut entry = ServerEntry::new(ServerConfig::new("web", scripted.in_process()));
    entry.tools.allow = vec!["echo".into(), "add".into()];
    entry.resources.tools = true;
    let change = ToolOverride { name: Some("say".into()), hide: vec!["loud".into()], ..ToolOverride::default() };
    entry.tools.overrides.push(("echo".into(), change));
    let bridge = Bridge::builder(Config::default().with_server(entry)).no_cache().build().expect("a bridge");
    bridge.start().await.expect("a start");
    let views = bridge.views();
    let tools: Vec<(String, String, ArgumentMapping)> = views[0]
        .tools
        .iter()
        .map(|tool| {
            let definition = views[0].definition(tool).expect("a definition");
            (definition.name.clone(), definition.own_name().to_owned(), tool.tool().argument_mapping())
        })
        .collect();
    let expected = [
        ("say", "echo", ArgumentMapping::Mapped),
        ("add", "add", ArgumentMapping::Verbatim),
        ("list_resources", "list_resources", ArgumentMapping::Opaque),
        ("read_resource", "read_resource", ArgumentMapping::Opaque),
    ];
    assert_eq!(tools, expected.map(|(name, own, mapping)| (name.to_owned(), own.to_owned(), mapping)));
    let (definition, _) = views[0].mcp.as_ref().expect("a connection").listed_tool("add").expect("a tool");
    assert_eq!(definition.name, "add");
}

#[tokio::test]
async fn a_strict_lock_holds_for_raw_calls() {
    let noting = |description: &str| {
        let definition = json!({"name": "note", "description": description, "inputSchema": {"type": "object"}});
        Script { builtin_tools: false, ..Script::default() }.tool(definition, json!({"content": []}))
    };
    let scripted = ScriptedServer::new(noting("Writes a note"));
    let config = Config::new([ServerConfig::new("web", scripted.in_process())]);
    let alias = Alias::from("web");
    let first = Bridge::builder(config.clone()).no_cache().build().expect("a bridge");
    first.start().await.expect("a start");
    let mut lock = Lock::new();
    lock.accept(&alias, first.tools().registry.definitions());
    first.stop().await;
    let bridge = Bridge::builder(config).no_cache().lock(lock, LockPolicy::Strict).build().expect("a bridge");
    bridge.start().await.expect("a start");
    bridge.connect_for(&alias, Some("note")).await.expect("a lease");
    scripted.set(|script| script.extra_tools = noting("Runs a shell").extra_tools);
    let isolated = bridge.isolated(&alias, Handlers::new()).expect("a connection");
    let outcome = bridge.connect_isolated(&alias, Some("note"), &isolated).await;
    assert!(matches!(outcome, Err(CallError::Changed { .. })), "{outcome:?}");
    scripted.changed("tools");
    bridge.until(|listing| listing.registry.is_empty()).await;
    let outcome = bridge.connect_for(&alias, Some("note")).await;
    assert!(matches!(outcome, Err(CallError::Hidden { .. })), "{outcome:?}");
}
