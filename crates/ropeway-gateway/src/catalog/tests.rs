//! Tests of lists over several servers.

use std::time::Instant;

use serde_json::{Value, json};

use super::*;
use crate::catalog::router::RouterSet;
use ropeway_bridge::Bridge;
use ropeway_config::{Config, GatewaySettings, PrefixMode, ServerConfig};
use ropeway_testing::{Fault, FaultTrigger, Script, ScriptedServer};

/// A timeout that is not reached.
const LONG: Duration = Duration::from_secs(30);

/// A started bridge to scripted servers with these aliases.
async fn bridge(servers: &[(&str, &ScriptedServer)]) -> Bridge {
    let configs = servers.iter().map(|(alias, server)| ServerConfig::new(*alias, server.in_process()));
    let bridge = Bridge::builder(Config::new(configs)).no_cache().build().expect("a bridge");
    bridge.start().await.expect("a start");
    bridge
}

fn router(bridge: &Bridge, prefix: PrefixMode) -> Arc<Router> {
    let settings = GatewaySettings::default().with_prefix(prefix);
    RouterSet::build(&settings, &bridge.views(), None).get("default").expect("a profile")
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| &*entry.name).collect()
}

fn parsed(entry: &Entry) -> Value {
    serde_json::from_str(&entry.json).expect("JSON")
}

#[tokio::test]
async fn two_servers_with_one_uri_are_kept_apart() {
    let (one, two) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::legacy()));
    let bridge = bridge(&[("one", &one), ("two", &two)]).await;
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    let resources = catalog.list(&bridge, &router, (ListKind::Resources, LONG), |_| ListSource::Shared).await;
    let two_uris = ["hello", "picture", "counter"].map(|name| format!("ropeway://two/test://{name}"));
    let expected = ["test://hello", "test://picture", "test://counter", &two_uris[0], &two_uris[1], &two_uris[2]];
    assert_eq!((names(&resources), &resources.missing[..]), (expected.to_vec(), &[][..]));
    let mut other = parsed(&resources.entries[0]);
    other["uri"] = json!("ropeway://two/test://hello");
    assert_eq!(parsed(&resources.entries[3]), other);
    let templates = catalog.list(&bridge, &router, (ListKind::Templates, LONG), |_| ListSource::Shared).await;
    assert_eq!(names(&templates), ["test://items/{id}", "ropeway://two/test://items/{id}"]);
    let route = |uri: &'static str| catalog.route_uri(&bridge, &router, uri);
    let to = |server: &str, uri: &str| UriRoute::One(server.into(), uri.to_owned());
    assert_eq!(route("test://hello").await, to("one", "test://hello"));
    assert_eq!(route("ropeway://two/test://hello").await, to("two", "test://hello"));
    assert_eq!(route("test://items/7").await, to("one", "test://items/7"));
    assert_eq!(route("ropeway://two/test://items/7").await, to("two", "test://items/7"));
    assert_eq!(route("other://x").await, UriRoute::Try(["one", "two"].map(Alias::from).to_vec()));
    let template = catalog.route_template(&bridge, &router, "ropeway://two/test://items/{id}").await;
    assert_eq!(template, Some(("two".into(), "test://items/{id}".to_owned())));
    let template = catalog.route_template(&bridge, &router, "test://items/{id}").await;
    assert_eq!(template, Some(("one".into(), "test://items/{id}".to_owned())));
    bridge.stop().await;
}

#[tokio::test]
async fn prompts_are_found_by_the_names_that_are_listed() {
    let (one, two) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::legacy()));
    let bridge = bridge(&[("one", &one), ("two", &two)]).await;
    for (prefix, expected) in [
        (PrefixMode::Auto, ["one_greet", "one_plain", "two_greet", "two_plain"]),
        (PrefixMode::Never, ["greet", "plain", "two_greet", "two_plain"]),
    ] {
        let (catalog, router) = (Catalog::default(), router(&bridge, prefix));
        // Names are found before a client has listed them.
        for (name, server) in expected.iter().zip(["one", "one", "two", "two"]) {
            let own = name.trim_start_matches("one_").trim_start_matches("two_");
            assert_eq!(catalog.prompt(&bridge, &router, name).await, Some((server.into(), own.to_owned())));
        }
        assert_eq!(catalog.prompt(&bridge, &router, "other").await, None);
        let prompts = catalog.list(&bridge, &router, (ListKind::Prompts, LONG), |_| ListSource::Shared).await;
        assert_eq!(names(&prompts), expected);
        let greet = json!({"name": "two_greet", "description": "Greets a person",
            "arguments": [{"name": "name", "description": "Who", "required": true}]});
        assert_eq!(parsed(&prompts.entries[2]), greet);
    }
    bridge.stop().await;
}

#[tokio::test]
async fn one_server_is_routed_without_lists() {
    let server = ScriptedServer::new(Script::default());
    let bridge = bridge(&[("web", &server)]).await;
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    assert_eq!(catalog.prompt(&bridge, &router, "any").await, Some(("web".into(), "any".to_owned())));
    assert_eq!(catalog.route_uri(&bridge, &router, "x:y").await, UriRoute::One("web".into(), "x:y".to_owned()));
    let lists = ["prompts/list", "resources/list", "resources/templates/list"];
    assert!(lists.iter().all(|method| server.received_of(method).is_empty()));
    bridge.stop().await;
}

#[tokio::test]
async fn a_slow_server_does_not_delay_the_lists_of_others() {
    let slow = Script::default().fault(FaultTrigger::method("prompts/list"), Fault::Hang);
    let (slow, fast) = (ScriptedServer::new(slow), ScriptedServer::new(Script::default()));
    let failing = Script::default()
        .fault(FaultTrigger::method("prompts/list"), Fault::Error(json!({"code": 1, "message": "no"})));
    let failing = ScriptedServer::new(failing);
    let bridge = bridge(&[("slow", &slow), ("fast", &fast), ("failing", &failing)]).await;
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    let start = Instant::now();
    let listing =
        catalog.list(&bridge, &router, (ListKind::Prompts, Duration::from_millis(300)), |_| ListSource::Shared).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!((names(&listing), listing.ttl_ms), (vec!["fast_greet", "fast_plain"], 0));
    assert_eq!(
        json!(listing.missing),
        json!([
            {"alias": "slow", "state": "ready", "reason": "no response within 300 ms"},
            {"alias": "failing", "state": "ready", "reason": "server `failing` returned error 1: no"},
        ])
    );
    // A list in progress is not requested again.
    catalog.list(&bridge, &router, (ListKind::Prompts, Duration::from_millis(50)), |_| ListSource::Shared).await;
    assert_eq!(slow.received_of("prompts/list").len(), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_list_is_fetched_again_after_a_change_or_its_ttl() {
    let legacy = ScriptedServer::new(Script::legacy());
    let modern = ScriptedServer::new(Script { ttl_ms: 60_000, ..Script::modern() });
    let bridge = bridge(&[("legacy", &legacy), ("modern", &modern)]).await;
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    let count = || (legacy.received_of("resources/list").len(), modern.received_of("resources/list").len());
    for _ in 0..3 {
        let (one, two) = tokio::join!(
            catalog.list(&bridge, &router, (ListKind::Resources, LONG), |_| ListSource::Shared),
            catalog.list(&bridge, &router, (ListKind::Resources, LONG), |_| ListSource::Shared),
        );
        assert_eq!((one.entries.len(), two.entries.len()), (6, 6));
    }
    assert_eq!(count(), (1, 1));
    catalog.invalidate(&"legacy".into(), ChangedList::Resources);
    catalog.invalidate(&"modern".into(), ChangedList::Prompts);
    catalog.list(&bridge, &router, (ListKind::Resources, LONG), |_| ListSource::Shared).await;
    assert_eq!(count(), (2, 1));
    modern.set(|script| script.ttl_ms = 0);
    catalog.invalidate(&"modern".into(), ChangedList::Resources);
    for _ in 0..2 {
        assert_eq!(catalog.list(&bridge, &router, (ListKind::Resources, LONG), |_| ListSource::Shared).await.ttl_ms, 0);
    }
    assert_eq!(count(), (2, 3));
    catalog.retain(&["modern".into()]);
    assert!(!lock(&catalog.lists).keys().any(|(server, _)| server.as_str() == "legacy"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_stopped_server_is_named_in_lists() {
    let (web, git) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::default()));
    let configs = [ServerConfig::new("web", web.in_process()), ServerConfig::new("git", git.in_process())];
    let bridge = Bridge::builder(Config::new(configs)).no_cache().build().expect("a bridge");
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    let tools = catalog.list(&bridge, &router, (ListKind::Tools, LONG), |_| ListSource::Shared).await;
    let prompts = catalog.list(&bridge, &router, (ListKind::Prompts, LONG), |_| ListSource::Shared).await;
    let missing = json!([{"alias": "web", "state": "not_started"}, {"alias": "git", "state": "not_started"}]);
    assert_eq!((json!(tools.missing), json!(prompts.missing)), (missing.clone(), missing));
    // The router is older than the connections, and lists the tools nevertheless.
    bridge.start().await.expect("a start");
    let tools = catalog.list(&bridge, &router, (ListKind::Tools, LONG), |_| ListSource::Shared).await;
    assert!(tools.missing.is_empty() && names(&tools).contains(&"git_echo"));
    bridge.stop().await;
}

#[tokio::test]
async fn a_list_after_a_change_is_not_one_from_before_it() {
    let first = || FaultTrigger::method("prompts/list").nth(1);
    let script =
        Script::default().fault(first(), Fault::late(500)).fault(first(), Fault::set("/result/prompts/0/name", "old"));
    let server = ScriptedServer::new(script);
    let bridge = bridge(&[("web", &server)]).await;
    let (catalog, router) = (Catalog::default(), router(&bridge, PrefixMode::Auto));
    let list = || catalog.list(&bridge, &router, (ListKind::Prompts, LONG), |_| ListSource::Shared);
    let (before, after) = tokio::join!(list(), async {
        server.wait_for("prompts/list", 1).await;
        catalog.invalidate(&"web".into(), ChangedList::Prompts);
        list().await
    });
    assert_eq!((names(&before), names(&after)), (vec!["old", "plain"], vec!["greet", "plain"]));
    assert_eq!(server.received_of("prompts/list").len(), 2);
    bridge.stop().await;
}
