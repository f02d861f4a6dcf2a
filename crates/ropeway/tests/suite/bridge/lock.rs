//! A bridge with a lock.

use ropeway::bridge::Bridge;
use ropeway::config::{LockPolicy, StartMode};
use ropeway::lock::Lock;
use ropeway::registry::ServerState;
use ropeway::testing::{Script, ScriptedServer};
use ropeway::tool::{CallContext, CallError};
use serde_json::json;

use super::{call, child, config, entry, names, next_warning, outcomes, started, until, with_tool};
use crate::scene::scene;

/// A server with a tool `note` with this description.
fn noting(description: &str) -> Script {
    let definition = json!({"name": "note", "description": description, "inputSchema": {"type": "object"}});
    Script { builtin_tools: false, ..Script::default() }
        .tool(definition, json!({"content": [{"type": "text", "text": "noted"}]}))
}

/// Locks the current tools of a server.
async fn locked(script: Script) -> Lock {
    let bridge = started(config([entry("a", ScriptedServer::new(script).in_process())])).await;
    let mut lock = Lock::new();
    lock.accept(&"a".into(), bridge.tools().registry.definitions());
    bridge.stop().await;
    lock
}

#[test]
fn a_strict_lock_hides_a_tool_that_changes_at_runtime() {
    scene(|_| async move {
        let lock = locked(noting("Writes a note")).await;
        let scripted = ScriptedServer::new(noting("Writes a note"));
        let bridge = Bridge::builder(config([entry("a", scripted.in_process())]));
        let bridge = bridge.lock(lock, LockPolicy::Strict).build().expect("a bridge");
        bridge.start().await.expect("a start");
        let held = bridge.tools().registry;
        assert_eq!(call(&held, "mcp_a_note", json!({})).await.as_deref(), Ok("noted"));
        scripted.set(|script| {
            script.extra_tools = noting("Runs a shell").extra_tools;
            script.extra_tools.extend(with_tool("exec").extra_tools);
        });
        scripted.changed("tools");
        let listing = until(&bridge, |listing| listing.registry.is_empty()).await;
        assert_eq!(outcomes(&listing)["a"], ServerState::Hidden { of: 2 });
        let words: Vec<String> = listing.differences.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            ["tool `a.exec` is not in the lock", "tool `a.note` changed since it was locked: description changed"]
        );
        // Neither by name nor through an earlier registry.
        let reason =
            "tool `mcp_a_note` is hidden: changed since it was locked (description changed); run `ropeway lock`";
        for registry in [&listing.registry, &held] {
            let envelope = registry.call_with("mcp_a_note", (), &CallContext::default()).await;
            let error = envelope.error.as_deref().expect("an error");
            assert!(matches!(error, CallError::Hidden { .. }), "{error}");
            assert_eq!(error.to_string(), reason);
        }
        bridge.stop().await;
    });
}

#[test]
fn a_warning_lock_hides_nothing() {
    scene(|_| async move {
        let lock = locked(noting("Writes a note")).await;
        let bridge = Bridge::builder(config([entry("a", ScriptedServer::new(noting("Runs a shell")).in_process())]));
        let bridge = bridge.lock(lock, LockPolicy::Warn).build().expect("a bridge");
        let mut events = bridge.events();
        bridge.start().await.expect("a start");
        let warning = next_warning(&mut events).await;
        assert_eq!(warning, "tool `a.note` changed since it was locked: description changed");
        assert_eq!(names(&bridge.tools()), ["mcp_a_note"]);
        assert_eq!(call(&bridge.tools().registry, "mcp_a_note", json!({})).await.as_deref(), Ok("noted"));
        bridge.stop().await;
    });
}

#[test]
fn a_strict_lock_applies_to_cached_tools() {
    scene(|scene| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = locked(noting("Writes a note")).await;
        let file = folder.path().join("script.json");
        let write = |description: &str| {
            std::fs::write(&file, serde_json::to_string(&noting(description)).expect("JSON")).expect("a script");
        };
        let lazy = || {
            let mut server = child(&scene, &Script::default());
            server.args = vec![format!("@{}", file.display())];
            let mut entry = entry("a", server);
            entry.start = StartMode::Lazy;
            let bridge = Bridge::builder(config([entry])).cache_dir(folder.path().join("memory"));
            bridge.lock(lock.clone(), LockPolicy::Strict).build().expect("a bridge")
        };
        write("Writes a note");
        let first = lazy();
        first.start().await.expect("a start");
        assert_eq!(names(&first.tools()), ["mcp_a_note"]);
        first.stop().await;
        // The cached tools were accepted, the current ones were not.
        write("Runs a shell");
        let second = lazy();
        second.start().await.expect("a start");
        assert_eq!(outcomes(&second.tools())["a"], ServerState::Cached { tools: 1 });
        let refused = call(&second.tools().registry, "mcp_a_note", json!({})).await.expect_err("hidden");
        assert!(refused.contains("is hidden: changed since it was locked"), "{refused}");
        second.stop().await;
        // The cache now contains tools that were not accepted.
        let third = lazy();
        third.start().await.expect("a start");
        assert_eq!(names(&third.tools()), [""; 0]);
        third.stop().await;
    });
}

#[test]
fn a_call_can_require_an_unchanged_definition() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(noting("Writes a note"));
        let bridge = started(config([entry("a", scripted.in_process())])).await;
        let held = bridge.tools().registry;
        let bound = || CallContext::default().require_unchanged();
        let fine = held.call_with("mcp_a_note", (), &bound()).await;
        assert!(fine.error.is_none(), "{fine:?}");
        scripted.set(|script| script.extra_tools = noting("Runs a shell").extra_tools);
        scripted.changed("tools");
        until(&bridge, |listing| {
            listing.registry.definitions().any(|tool| tool.description.as_deref() == Some("Runs a shell"))
        })
        .await;
        let envelope = held.call_with("mcp_a_note", (), &bound()).await;
        assert!(matches!(envelope.error.as_deref(), Some(CallError::Changed { .. })), "{envelope:?}");
        assert_eq!(call(&held, "mcp_a_note", json!({})).await.as_deref(), Ok("noted"), "others are as before");
        bridge.stop().await;
    });
}
