//! Servers of an agent: one connection as a source of tools.

use std::future::Future;
use std::time::Duration;

use ropeway::agent::AgentServer;
use ropeway::config::ServerConfig;
use ropeway::event::{Event, Events};
use ropeway::mcp::{ConnectionState, Handlers, Mcp};
use ropeway::registry::{ContextItem, ContextSource, ServerState, ToolSource, naming};
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use ropeway::tool::{Alias, CallContext};
use ropeway_agent::ServerSource;
use serde_json::json;

use crate::fast_config::{SOON, arguments, at, call, connect, event, fast_config, listening, ms, state, still_works};
use crate::scene::scene;

/// Returns a script with these tools.
fn with_tools(names: &[&str]) -> Script {
    let script = Script { builtin_tools: false, ..Script::default() };
    names.iter().fold(script, |script, name| {
        let definition = json!({"name": name, "inputSchema": {"type": "object"}});
        script.tool(definition, json!({"content": [{"type": "text", "text": name}]}))
    })
}

fn source(server: impl Into<AgentServer>) -> ServerSource {
    server.into().into_source(Handlers::new(), Events::default())
}

fn names(source: &ServerSource) -> Vec<String> {
    source.registry().definitions().map(|definition| definition.name.clone()).collect()
}

fn outcome(source: &ServerSource) -> ServerState {
    let mut statuses = source.statuses();
    assert_eq!(statuses.len(), 1);
    assert_eq!(statuses[0].server.as_str(), "peer");
    statuses.remove(0).state
}

fn closed() -> ServerState {
    ServerState::Down { cause: "the connection is closed".to_owned() }
}

/// Asserts that a future completes without waiting.
async fn at_once(future: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = future => {}
        () = std::future::ready(()) => panic!("it waits"),
    }
}

#[test]
fn nothing_is_connected_before_the_first_turn() {
    scene(|_| async {
        let scripted = ScriptedServer::new(with_tools(&["one", "two"]));
        let source = source(fast_config(scripted.in_process()));
        assert_eq!((outcome(&source), names(&source)), (ServerState::NotStarted, Vec::new()));
        assert!(source.registry().ptr_eq(&source.registry()), "nothing is always the same nothing");
        assert_eq!(scripted.connections(), 0);
        source.ready().await;
        assert_eq!(names(&source), ["mcp_peer_one", "mcp_peer_two"]);
        assert_eq!(outcome(&source), ServerState::Ready { tools: 2 });
    });
}

#[test]
fn a_tool_with_an_invalid_schema_is_reported_with_the_cause_and_can_be_called() {
    scene(|_| async {
        let mut script = with_tools(&["odd"]);
        script.extra_tools[0].definition["inputSchema"] =
            json!({"type": "object", "properties": {"a": {"type": "strin"}}});
        let events = Events::default();
        let mut told = events.subscribe();
        let server = AgentServer::from(fast_config(ScriptedServer::new(script).in_process()));
        let source = server.into_source(Handlers::new(), events);
        source.ready().await;
        let warning = event(&mut told, |event| match event {
            Event::Warning { message, .. } => Some(message),
            _ => None,
        })
        .await;
        assert!(warning.contains("input schema of tool `odd`") && warning.contains("strin"), "{warning}");
        let envelope = source.registry().call("mcp_peer_odd", json!({"a": 1})).await;
        assert_eq!(envelope.to_string(), "odd");
    });
}

#[test]
fn a_prefix_is_put_before_sanitized_names() {
    scene(|_| async {
        let long = "a tool.with/a name that is longer than any model would take it, by far and more";
        let scripted = ScriptedServer::new(with_tools(&["read", long]));
        let server = |prefix| AgentServer::from(fast_config(scripted.in_process())).with_prefix(prefix);
        let peer = Alias::from("peer");
        for (given, meant) in [("fs", "fs_"), ("", "")] {
            let source = source(server(given));
            source.ready().await;
            assert_eq!(names(&source), ["read", long].map(|name| naming::tool_name(meant, &peer, name)));
        }
    });
}

#[test]
fn an_unchanged_server_is_not_listed_again() {
    scene(|_| async {
        // A list with a time to live of zero, and one without.
        for script in [Script::legacy(), Script::modern()] {
            let scripted = ScriptedServer::new(script);
            let source = source(fast_config(scripted.in_process()));
            source.ready().await;
            let (registry, asked) = (source.registry(), scripted.received_of("tools/list").len());
            for _ in 0..3 {
                at_once(source.ready()).await;
                assert!(source.registry().ptr_eq(&registry));
            }
            assert_eq!(scripted.received_of("tools/list").len(), asked);
        }
    });
}

#[test]
fn a_changed_list_applies_from_the_next_turn_on() {
    scene(|_| async {
        for script in [Script::legacy(), Script::modern()] {
            let is_modern = script == Script::modern();
            let scripted = ScriptedServer::new(script);
            let events = Events::default();
            let mut told = events.subscribe();
            let source = AgentServer::from(fast_config(scripted.in_process())).into_source(Handlers::new(), events);
            source.ready().await;
            if is_modern {
                // The server notifies only subscribers.
                scripted.wait_for("subscriptions/listen", 1).await;
            }
            let before = source.registry();
            let grown =
                before.call_with("mcp_peer_grow", arguments(json!({"name": "late"})), &CallContext::default()).await;
            assert!(grown.error.is_none(), "{grown:?}");
            event(&mut told, |event| matches!(event, Event::ToolsChanged { .. }).then_some(())).await;
            source.ready().await;
            let after = source.registry();
            assert!(before.get("mcp_peer_late").is_none() && after.get("mcp_peer_late").is_some());
            assert_eq!(outcome(&source), ServerState::Ready { tools: before.len() + 1 });
            source.ready().await;
            assert!(source.registry().ptr_eq(&after));
        }
    });
}

#[test]
fn a_server_that_is_down_is_waited_for_once_and_used_when_back() {
    scene(|_| async {
        let scripted = ScriptedServer::new(with_tools(&["one"]).fault(FaultTrigger::connect(), Fault::exit()));
        let events = Events::default();
        let mut told = events.subscribe();
        let source = AgentServer::from(fast_config(scripted.in_process())).into_source(Handlers::new(), events);
        source.ready().await;
        assert_eq!(names(&source), [""; 0]);
        for _ in 0..3 {
            at_once(source.ready()).await;
            assert!(
                matches!(outcome(&source), ServerState::Down { .. } | ServerState::Connecting),
                "{:?}",
                outcome(&source)
            );
        }
        scripted.set(|script| script.faults.clear());
        event(&mut told, |event| matches!(event, Event::Ready { .. }).then_some(())).await;
        source.ready().await;
        assert_eq!(
            (outcome(&source), names(&source)),
            (ServerState::Ready { tools: 1 }, vec!["mcp_peer_one".to_owned()])
        );
    });
}

#[test]
fn a_missing_program_is_a_status_with_its_reason() {
    scene(|scene| async move {
        let mut config = fast_config(scene.stdio("/no/such/program", [""; 0]));
        config.reconnect.enabled = false;
        let source = source(config);
        source.ready().await;
        let ServerState::Down { cause } = outcome(&source) else { panic!("{:?}", outcome(&source)) };
        assert!(cause.contains("/no/such/program"), "{cause}");
        at_once(source.ready()).await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_failed_tool_list_is_not_requested_at_every_turn() {
    let error = Fault::Error(json!({"code": -32603, "message": "not today"}));
    let scripted = ScriptedServer::new(with_tools(&["one"]).fault(FaultTrigger::method("tools/list"), error));
    let source = source(ServerConfig::new("peer", scripted.in_process()));
    source.ready().await;
    let cause = "server `peer` returned error -32603: not today".to_owned();
    assert_eq!((outcome(&source), names(&source)), (ServerState::Down { cause }, Vec::new()));
    scripted.set(|script| script.faults.clear());
    at_once(source.ready()).await;
    assert_eq!(names(&source), [""; 0]);
    tokio::time::advance(Duration::from_secs(31)).await;
    source.ready().await;
    assert_eq!((outcome(&source), names(&source)), (ServerState::Ready { tools: 1 }, vec!["mcp_peer_one".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_tool_list_that_hangs_delays_a_turn_only_once() {
    let scripted = ScriptedServer::new(Script { eras: ropeway_testing::SupportedEras::Legacy, ..with_tools(&["one"]) });
    let source = source(ServerConfig::new("peer", scripted.in_process()));
    source.ready().await;
    let before = source.registry();
    scripted.set(|script| *script = script.clone().fault(FaultTrigger::method("tools/list"), Fault::Hang));
    scripted.changed("tools");
    // The connection refreshed the list itself, so it knows of the change.
    scripted.wait_for("tools/list", 2).await;
    let begun = tokio::time::Instant::now();
    source.ready().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    at_once(source.ready()).await;
    assert!(source.registry().ptr_eq(&before));
    assert_eq!(outcome(&source), ServerState::Ready { tools: 1 });
}

#[test]
fn a_connection_of_the_host_outlives_the_agent() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let mcp = connect(fast_config(scripted.in_process())).await;
        let source = source(mcp.clone());
        source.ready().await;
        assert!(source.registry().get("mcp_peer_echo").is_some());
        drop(source);
        still_works(&mcp).await;
        assert_eq!(scripted.connections(), 1);
        mcp.close().await;
    });
}

#[test]
fn a_connection_that_the_host_closes_stays_closed() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let mcp = connect(fast_config(scripted.in_process())).await;
        let source = source(mcp.clone());
        source.ready().await;
        mcp.close().await;
        at_once(source.ready()).await;
        assert_eq!((outcome(&source), names(&source)), (closed(), Vec::new()));
        assert_eq!(scripted.connections(), 1);
    });
}

#[test]
fn a_connection_closed_before_the_first_turn_stays_closed_until_the_host_opens_it() {
    scene(|_| async {
        let scripted = ScriptedServer::new(with_tools(&["one"]));
        let mcp = connect(fast_config(scripted.in_process())).await;
        mcp.close().await;
        for server in [AgentServer::from(mcp.clone()), AgentServer::from(mcp.clone()).required()] {
            let source = source(server);
            at_once(source.ready()).await;
            assert_eq!((outcome(&source), names(&source)), (closed(), Vec::new()));
            assert!(source.statuses()[0].is_missing());
            assert_eq!(scripted.connections(), 1);
        }
        let source = source(mcp.clone());
        source.ready().await;
        mcp.connect().await.expect("a connection");
        source.ready().await;
        assert_eq!(names(&source), ["mcp_peer_one"]);
        mcp.close().await;
    });
}

#[test]
fn a_connection_that_the_host_never_opened_is_opened_by_the_first_turn() {
    scene(|_| async {
        let scripted = ScriptedServer::new(with_tools(&["one"]));
        let mcp = Mcp::new(fast_config(scripted.in_process()));
        let source = source(mcp.clone());
        source.ready().await;
        assert_eq!((names(&source), mcp.is_connected()), (vec!["mcp_peer_one".to_owned()], true));
        mcp.close().await;
    });
}

#[test]
fn a_connection_of_the_agent_ends_with_it() {
    scene(|_| async {
        let scripted = ScriptedServer::new(with_tools(&["one"]));
        let events = Events::default();
        let mut told = events.subscribe();
        let source = AgentServer::from(fast_config(scripted.in_process())).into_source(Handlers::new(), events);
        source.ready().await;
        let registry = source.registry();
        drop(source);
        event(&mut told, |event| matches!(event, Event::Closed { .. }).then_some(())).await;
        let envelope = registry.call_with("mcp_peer_one", arguments(json!({})), &CallContext::default()).await;
        let error = envelope.error.expect("no connection");
        assert_eq!(error.to_string(), "server `peer` is not connected");
    });
}

#[test]
fn the_tools_of_a_reconnecting_server_stay_listed() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script { instructions: Some("Be kind.".into()), ..Script::default() });
        let mut config = fast_config(scripted.in_process());
        (config.reconnect.initial_delay, config.reconnect.max_delay) = (SOON, SOON);
        let mcp = connect(config).await;
        let source = source(AgentServer::from(mcp.clone()).with_instructions());
        source.ready().await;
        let (registry, context) = (source.registry(), source.context().await);
        assert_eq!(context, [ContextItem::instructions("peer", "Be kind.")]);
        let dies = |script: Script| {
            script.fault(FaultTrigger::tool("echo"), Fault::exit()).fault(FaultTrigger::connect(), Fault::exit())
        };
        scripted.set(|script| *script = dies(script.clone()));
        let cx = CallContext::default().with_timeout(ms(500));
        let lost = mcp.call_tool_with("echo", arguments(json!({"message": "x"})), &cx).await;
        assert!(lost.is_err(), "{lost:?}");
        // The first reconnect happens immediately, the next one much later.
        let is_far = |at: &std::time::Instant| *at > std::time::Instant::now() + ms(1000);
        state(&mcp, |state| matches!(state, ConnectionState::Down { retry_at: Some(at), .. } if is_far(at))).await;
        assert!(matches!(outcome(&source), ServerState::Down { .. }), "{:?}", outcome(&source));
        at_once(source.ready()).await;
        assert!(source.registry().ptr_eq(&registry));
        assert_eq!(source.context().await, context);
        mcp.close().await;
    });
}

#[test]
fn the_tools_of_a_server_that_needs_authentication_stay_listed() {
    scene(|_| async {
        let refusal = Fault::header_status(401, "WWW-Authenticate", "Bearer");
        let http = listening(Script::default().fault(FaultTrigger::tool("echo").nth(1), refusal)).await;
        let mcp = connect(fast_config(at(http.url()))).await;
        let source = source(mcp.clone());
        source.ready().await;
        let registry = source.registry();
        call(&mcp, "echo", json!({"message": "hi"})).await.expect_err("refused");
        state(&mcp, |state| matches!(state, ConnectionState::NeedsAuth { .. })).await;
        source.ready().await;
        assert_eq!(outcome(&source), ServerState::NeedsAuth);
        assert!(source.registry().ptr_eq(&registry));
        mcp.close().await;
    });
}

#[test]
fn instructions_are_included_only_on_request() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script { instructions: Some("Be kind.".into()), ..Script::default() });
        let silent = source(fast_config(scripted.in_process()));
        silent.ready().await;
        assert_eq!(silent.context().await, []);
        let source = source(AgentServer::from(fast_config(scripted.in_process())).with_instructions());
        assert_eq!(source.context().await, [], "the server is not connected yet");
        source.ready().await;
        assert_eq!(source.context().await, [ContextItem::instructions("peer", "Be kind.")]);
    });
}
