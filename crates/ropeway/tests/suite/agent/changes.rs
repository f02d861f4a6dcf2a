//! The tools and servers of an agent: added, removed, missing, required.

use ropeway::agent::{Agent, AgentBuilder, AgentError, AgentServer, TurnEnd};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerConfig, ServerEntry};
use ropeway::event::{Event, Events};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings, StopReason};
use ropeway::registry::{Registry, ServerState};
use ropeway::testing::{Fault, FaultTrigger, ModelServer, Script, ScriptedReply, ScriptedServer, model};
use ropeway::tool::{Arguments, LocalTool, Tool, ToolDefinition};
use serde_json::{Value, json};

use super::kit::{done, echo, echoing, ok, results, sendable, tool};
use crate::fast_config::{SOON, chain, connect, event, fast_config, ms, still_works, text, until};
use crate::scene::scene;

/// Returns a model over HTTP that records its requests, and an agent of it.
async fn listening(replies: impl IntoIterator<Item = ScriptedReply>) -> (ModelServer, AgentBuilder) {
    let answers = replies.into_iter().map(|reply| reply.answer(Dialect::Chat));
    let server = ModelServer::start(answers).await.expect("a free port");
    let settings = ProviderSettings::new(Dialect::Chat).with_base_url(format!("{}/v1", server.url())).with_key("a-key");
    let provider = Provider::new(settings).expect("a provider");
    (server, Agent::builder().provider(provider).model("m"))
}

/// Returns the names of the tools in each model request.
fn sent(model: &ModelServer) -> Vec<Vec<String>> {
    let names = |body: &Value| {
        let tools = body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    };
    model.bodies().iter().map(names).collect()
}

fn names(registry: &Registry) -> Vec<String> {
    registry.definitions().map(|definition| definition.name.clone()).collect()
}

fn named(alias: &str, mut config: ServerConfig) -> ServerConfig {
    config.alias = alias.into();
    config
}

/// Returns a server with one tool, which answers its own name.
fn server(alias: &str, tool: &str) -> (ScriptedServer, ServerConfig) {
    let script = Script { builtin_tools: false, ..Script::default() };
    let definition = json!({"name": tool, "inputSchema": {"type": "object"}});
    let scripted = ScriptedServer::new(script.tool(definition, json!({"content": [{"type": "text", "text": tool}]})));
    let config = named(alias, fast_config(scripted.in_process()));
    (scripted, config)
}

/// Returns a server that cannot be connected and is not retried.
fn dead(alias: &str) -> ServerConfig {
    let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::connect(), Fault::exit()));
    let mut config = named(alias, fast_config(scripted.in_process()));
    config.reconnect.enabled = false;
    config
}

#[test]
fn an_agent_takes_many_tools_and_many_servers_at_once() {
    scene(|_| async {
        let calls = ScriptedReply::call("a", "files_read", json!({}))
            .and_call("b", "mcp_designs_latest", json!({}))
            .and_call("c", "echo", json!({"text": "hi"}));
        let (model, builder) = listening([calls, ScriptedReply::text("done")]).await;
        let ((_files, files), (_designs, designs)) = (server("files", "read"), server("designs", "latest"));
        let (files, designs) = (connect(files).await, connect(designs).await);
        let other = LocalTool::new(ToolDefinition::new("other"), |_: Arguments, _| async { Ok("") });
        let agent = builder
            .tools([echo(), other])
            .mcps([AgentServer::from(files.clone()).with_prefix("files"), designs.clone().into()])
            .build()
            .expect("an agent");
        let outcome = done(agent.send("Get the latest designs")).await;
        assert_eq!((outcome.text.as_str(), outcome.missing), ("done", Vec::new()));
        assert_eq!(results(&agent.history()), [ok("a", "read"), ok("b", "latest"), ok("c", "hi")]);
        let expected = ["files_read", "mcp_designs_latest", "echo", "other", "read_more"];
        assert_eq!(sent(&model), [expected, expected]);
        assert_eq!(names(&agent.tools()), expected, "tools() is what is sent");
        drop(agent);
        // The agent does not close connections of the host.
        for server in [files, designs] {
            assert!(server.is_connected());
            server.close().await;
        }
    });
}

#[tokio::test]
async fn an_agent_accepts_a_list_of_shared_tools() {
    let shared: Vec<std::sync::Arc<dyn Tool>> = vec![std::sync::Arc::new(echo())];
    let provider = model(Dialect::Chat, [echoing("a", "hi"), ScriptedReply::text("done")]);
    let agent = Agent::builder().provider(provider).model("m").tools(shared).build().expect("an agent");
    done(agent.send("q")).await;
    assert_eq!(results(&agent.history()), [ok("a", "hi")]);
}

#[tokio::test]
async fn a_removed_tool_is_not_sent_from_the_next_turn_on() {
    let (model, builder) =
        listening([ScriptedReply::text("one"), ScriptedReply::text("two"), ScriptedReply::text("three")]).await;
    let other = tool("other", |_, _| std::future::ready(Ok("x")));
    let agent = builder.tools([echo(), other]).build().expect("an agent");
    done(agent.send("q")).await;
    assert!(agent.remove_tool("echo"));
    assert!(!agent.remove_tool("echo") && !agent.remove_tool("read_more"));
    done(agent.send("q")).await;
    assert!(agent.remove_tool("other"));
    assert!(agent.tools().is_empty(), "without tools, read_more is not sent");
    done(agent.send("q")).await;
    let none: [&str; 0] = [];
    assert_eq!(sent(&model), [&["echo", "other", "read_more"][..], &["other", "read_more"], &none]);
}

#[tokio::test]
async fn tools_returns_what_is_sent_when_there_are_too_many() {
    let many = (0..12).map(|number| tool(&format!("tool_{number}"), |_, _| std::future::ready(Ok("x"))));
    let (model, builder) = listening([ScriptedReply::text("done")]).await;
    let agent = builder.tools(many).search_over(10).build().expect("an agent");
    done(agent.send("q")).await;
    let listed = names(&agent.tools());
    assert_eq!(sent(&model)[..], std::slice::from_ref(&listed)[..]);
    assert!(
        ["find_tools", "call_tool", "read_more"].iter().all(|name| listed.iter().any(|it| it == name)),
        "{listed:?}"
    );
    assert!(agent.tools().get("tool_11").is_none() && agent.all_tools().get("tool_11").is_some());
    assert_eq!(agent.all_tools().len(), 12);
}

#[test]
fn a_server_removed_while_a_call_runs_completes_the_call() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let replies = [
            ScriptedReply::call("a", "mcp_peer_sleep", json!({"ms": 300})),
            ScriptedReply::text("done"),
            ScriptedReply::text("two"),
        ];
        let (model, builder) = listening(replies).await;
        let events = Events::default();
        let mut told = events.subscribe();
        let agent = builder.events(events).mcp(fast_config(scripted.in_process())).build().expect("an agent");
        let turn = agent.send("q");
        scripted.wait_for("tools/call", 1).await;
        assert!(agent.remove_mcp("peer"));
        assert!(!agent.remove_mcp("peer"));
        assert_eq!(done(turn).await.text, "done");
        let told_of = results(&agent.history());
        assert!(!told_of[0].2 && told_of[0].1.contains("slept"), "{told_of:?}");
        // A connection of the agent closes with the turn that used it.
        event(&mut told, |event| matches!(event, Event::Closed { .. }).then_some(())).await;
        assert!(agent.tools().is_empty() && agent.statuses().is_empty());
        assert_eq!(done(agent.send("q")).await.text, "two");
        let counts: Vec<bool> =
            sent(&model).iter().map(|names| names.iter().any(|it| it == "mcp_peer_sleep")).collect();
        assert_eq!(counts, [true, true, false]);
        sendable(&agent.history());
    });
}

#[test]
fn removing_a_server_of_the_host_leaves_its_connection_open() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let server = connect(fast_config(scripted.in_process())).await;
        let agent = Agent::builder()
            .provider(model(Dialect::Chat, [ScriptedReply::text("a"), ScriptedReply::text("b")]))
            .model("m");
        let agent = agent.mcp(server.clone()).build().expect("an agent");
        done(agent.send("q")).await;
        assert!(agent.remove_mcp("peer"));
        done(agent.send("q")).await;
        still_works(&server).await;
        agent.add_mcp(server.clone());
        assert_eq!(agent.connect().await.len(), 1);
        assert!(agent.tools().get("mcp_peer_echo").is_some(), "it can be added again");
        server.close().await;
    });
}

#[test]
fn servers_added_and_removed_while_turns_run_never_break_one() {
    scene(|_| async {
        let texts = (0..20).map(|number| ScriptedReply::text(format!("{number}")));
        let agent = Agent::builder().provider(model(Dialect::Chat, texts)).model("m").tool(echo());
        let agent = agent.build().expect("an agent");
        let turns: Vec<_> = (0..20).map(|_| agent.send("q")).collect();
        let changing = {
            let agent = agent.clone();
            async move {
                for number in 0..20 {
                    let (_scripted, config) = server("peer", "one");
                    agent.add_mcp(AgentServer::from(config).with_instructions());
                    tokio::time::sleep(ms(number % 3)).await;
                    assert!(agent.remove_mcp("peer"));
                }
            }
        };
        let all = async {
            for (number, turn) in turns.into_iter().enumerate() {
                assert_eq!(done(turn).await.text, number.to_string());
            }
        };
        tokio::time::timeout(6 * SOON, async { tokio::join!(changing, all) }).await.expect("no hang");
        assert!(agent.statuses().is_empty());
    });
}

#[test]
fn an_unavailable_server_is_named_in_the_outcome_with_the_reason() {
    scene(|_| async {
        let (_scripted, alive) = server("alive", "one");
        let agent = Agent::builder().provider(model(Dialect::Chat, [ScriptedReply::text("done")])).model("m");
        let agent = agent.mcps([alive, dead("gone")]).build().expect("an agent");
        let outcome = done(agent.send("q")).await;
        assert_eq!((outcome.text.as_str(), &outcome.end), ("done", &TurnEnd::Done(StopReason::EndTurn)));
        assert_eq!(outcome.missing.len(), 1);
        let missing = &outcome.missing[0];
        assert_eq!(missing.server.as_str(), "gone");
        assert!(matches!(&missing.state, ServerState::Down { cause } if !cause.is_empty()), "{missing}");
        let json = json!(outcome);
        assert_eq!((&json["missing"][0]["server"], &json["missing"][0]["outcome"]), (&json!("gone"), &json!("down")));
    });
}

#[test]
fn a_turn_without_a_required_server_is_an_error_and_can_be_resumed() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::connect(), Fault::exit()));
        let mut config = fast_config(scripted.in_process());
        config.reconnect.enabled = false;
        let (model, builder) = listening([ScriptedReply::text("done")]).await;
        let agent = builder.mcp(AgentServer::from(config).required()).build().expect("an agent");
        let error = agent.send("q").finish().await.expect_err("the server is required");
        assert!(matches!(&error, AgentError::RequiredServer { server, .. } if server.as_str() == "peer"), "{error:?}");
        let words = chain(&error);
        assert!(words.starts_with("required server `peer` is unavailable: "), "{words}");
        assert!(words.len() > "required server `peer` is unavailable: ".len(), "{words}");
        assert!(model.bodies().is_empty(), "no model request is made");
        scripted.set(|script| script.faults.clear());
        let outcome = agent.resume().finish().await.expect("an outcome");
        assert_eq!((outcome.text.as_str(), outcome.missing), ("done", Vec::new()), "each turn tries again");
        sendable(&agent.history());
    });
}

#[test]
fn a_required_connection_that_the_host_closed_ends_the_turn() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let mcp = connect(fast_config(scripted.in_process())).await;
        mcp.close().await;
        let agent = Agent::builder().provider(model(Dialect::Chat, [ScriptedReply::text("done")])).model("m");
        let agent = agent.mcp(AgentServer::from(mcp.clone()).required()).build().expect("an agent");
        let error = agent.send("q").finish().await.expect_err("the server is required");
        assert_eq!(chain(&error), "required server `peer` is unavailable: the connection is closed");
        assert_eq!((scripted.connections(), mcp.is_connected()), (1, false));
    });
}

#[test]
fn a_required_server_of_a_bridge_ends_the_turn_with_its_cause() {
    scene(|scene| async move {
        let mut gone = ServerEntry::new(named("gone", fast_config(scene.stdio("/no/such/program", [""; 0]))));
        gone.required = true;
        let (_scripted, alive) = server("alive", "one");
        let bridge =
            Bridge::new(Config::default().with_server(ServerEntry::new(alive)).with_server(gone)).expect("a bridge");
        let agent = Agent::builder().provider(model(Dialect::Chat, [ScriptedReply::text("done")])).model("m");
        let agent = agent.bridge(bridge.clone()).build().expect("an agent");
        let error = agent.send("q").finish().await.expect_err("the server is required");
        let words = chain(&error);
        assert!(
            words.starts_with("required server `gone` is unavailable: ") && words.contains("/no/such/program"),
            "{words}"
        );
        bridge.stop().await;
        let stopped: Vec<ServerState> = bridge.statuses().into_iter().map(|status| status.state).collect();
        assert_eq!(stopped, [ServerState::NotStarted, ServerState::NotStarted], "a stop forgets it");
    });
}

#[test]
fn a_required_server_that_is_reconnecting_is_waited_for() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let agent = Agent::builder()
            .provider(model(Dialect::Chat, [ScriptedReply::text("one"), ScriptedReply::text("two")]))
            .model("m");
        let server = connect(fast_config(scripted.in_process())).await;
        let agent = agent.mcp(AgentServer::from(server.clone()).required()).build().expect("an agent");
        done(agent.send("q")).await;
        let _ = server.call_tool_with("crash", Arguments::new(), &ropeway::tool::CallContext::default()).await;
        let outcome = done(agent.send("q")).await;
        assert_eq!((outcome.text.as_str(), outcome.missing), ("two", Vec::new()));
        until("the server is back", || server.is_connected()).await;
        assert_eq!(text(&server, "echo", json!({"message": "hi"})).await, "hi");
        server.close().await;
    });
}
