//! Tools that fail, hang, disappear or answer nonsense: the model receives an error, and the turn continues.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ropeway::agent::{Agent, Step, TurnEnd, TurnLimits};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerEntry};
use ropeway::message::Dialect;
use ropeway::provider::StopReason;
use ropeway::registry::{Registry, ToolSource};
use ropeway::testing::{Script, ScriptedReply, ScriptedServer};
use ropeway::tool::{Arguments, BoxError, LocalTool, Tool, ToolDefinition, ToolOutput};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::kit::{agent, done, echo, echoing, failed, ok, results, sendable, tool};
use crate::fast_config::{SOON, fast_config};

/// Runs a turn whose model calls `tool` once, and returns the result of the call.
async fn told_of(dialect: Dialect, tool: impl Tool, limits: TurnLimits) -> (String, String, bool) {
    let name = tool.definition().name.clone();
    let replies = [ScriptedReply::text("I try.").and_call("a", name, json!({})), ScriptedReply::text("fine")];
    let agent = agent(dialect, replies).tool(tool).limits(limits).build().expect("an agent");
    let outcome = done(agent.send("go")).await;
    assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
    assert_eq!(outcome.steps, 2, "{dialect}");
    let history = agent.history();
    sendable(&history);
    let [result] = results(&history).try_into().expect("one result");
    result
}

#[tokio::test]
async fn a_tool_that_panics_is_reported_to_the_model() {
    for dialect in Dialect::ALL {
        let tool = tool("bomb", |_, _| async { if true { panic!("no way") } else { Ok("") } });
        let words = "Error: tool `bomb` failed: panicked: no way. Try another way, or tell the user.";
        assert_eq!(told_of(dialect, tool, TurnLimits::default()).await, failed("a", words), "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_aborted_at_its_timeout() {
    for dialect in Dialect::ALL {
        let tool = tool("swamp", |_, _| std::future::pending::<Result<String, BoxError>>());
        let limits = TurnLimits::default().with_call_time(Duration::from_secs(5));
        let words = "Error: tool `swamp` failed: timed out after 5 s. Try another way, or tell the user.";
        assert_eq!(told_of(dialect, tool, limits).await, failed("a", words), "{dialect}");
    }
}

/// Returns a tool that blocks its thread until the sender is dropped.
fn stone() -> (LocalTool, mpsc::Sender<()>, Arc<Notify>) {
    let (hold, held) = mpsc::channel::<()>();
    let (held, begun) = (Mutex::new(held), Arc::new(Notify::new()));
    let tells = begun.clone();
    let stone = tool("stone", move |_, _| {
        tells.notify_one();
        let _ = held.lock().expect("no poison").recv();
        async { Ok("rolled away") }
    });
    (stone, hold, begun)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_is_abandoned() {
    let (stone, _hold, _) = stone();
    let limits = TurnLimits::default().with_call_time(Duration::from_millis(10));
    let words = "Error: tool `stone` failed: timed out after 10 ms. Try another way, or tell the user.";
    let told = tokio::time::timeout(SOON, told_of(Dialect::Chat, stone, limits)).await.expect("an end in time");
    assert_eq!(told, failed("a", words));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_tool_blocks_its_thread_can_be_cancelled() {
    for dialect in Dialect::ALL {
        let (stone, _hold, begun) = stone();
        let replies = [ScriptedReply::call("a", "stone", json!({})), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(stone).build().expect("an agent");
        let turn = agent.send("go");
        begun.notified().await;
        turn.cancel();
        let cancelled = tokio::time::timeout(SOON, done(turn)).await.expect("an end in time");
        assert_eq!(cancelled.end, TurnEnd::Cancelled, "{dialect}");
        assert_eq!(done(agent.send("again")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn fifty_megabytes_do_not_reach_the_model() {
    for dialect in Dialect::ALL {
        let tool = tool("flood", |_, _| async { Ok("all work and no play ".repeat(50 * (1 << 20) / 21)) });
        let (call, text, is_error) = told_of(dialect, tool, TurnLimits::default()).await;
        assert_eq!((call.as_str(), is_error), ("a", false), "{dialect}");
        assert!(text.starts_with("all work and no play "), "{dialect}");
        assert!(text.len() < 1 << 20, "{dialect}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn invalid_structured_content_is_sent_with_a_warning() {
    for dialect in Dialect::ALL {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let definition = ToolDefinition::new("count").with_output_schema(schema);
        let tool = LocalTool::new(definition, |_, _| async { Ok::<_, BoxError>(json!({"n": "many"})) });
        let replies = [ScriptedReply::call("a", "count", json!({})), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(tool).build().expect("an agent");
        let mut turn = agent.send("go");
        let mut warned = Vec::new();
        while let Some(step) = turn.next().await {
            if let Step::CallFinished { envelope, .. } = step {
                warned.extend(envelope.warnings.iter().map(|problem| problem.path.clone()));
            }
        }
        assert_eq!(done(turn).await.text, "fine", "{dialect}");
        assert_eq!(warned, ["/n"], "{dialect}");
        sendable(&agent.history());
        assert_eq!(results(&agent.history()), [ok("a", "{\"n\":\"many\"}")], "{dialect}");
    }
}

#[tokio::test]
async fn a_tool_with_empty_output_has_a_result() {
    for dialect in Dialect::ALL {
        let tool = tool("mute", |_, _| async { Ok(ToolOutput::default()) });
        assert_eq!(told_of(dialect, tool, TurnLimits::default()).await, ok("a", ""), "{dialect}");
    }
}

#[tokio::test]
async fn an_error_result_is_reported_to_the_model() {
    for dialect in Dialect::ALL {
        let answers = tool("no", |_, _| async { Ok(ToolOutput::error("closed on Mondays")) });
        assert_eq!(
            told_of(dialect, answers, TurnLimits::default()).await,
            failed("a", "closed on Mondays"),
            "{dialect}"
        );
        let fails = tool("no", |_, _| async { Err::<String, BoxError>("out of rope".into()) });
        let words = "Error: tool `no` failed: out of rope. Try another way, or tell the user.";
        assert_eq!(told_of(dialect, fails, TurnLimits::default()).await, failed("a", words), "{dialect}");
    }
}

/// A source whose tools can be replaced.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Registry>>);

impl Shelf {
    fn put(&self, tools: impl IntoIterator<Item = LocalTool>) {
        let mut registry = Registry::default();
        for tool in tools {
            registry.register(Arc::new(tool));
        }
        *self.0.lock().expect("no poison") = registry;
    }
}

impl ToolSource for Shelf {
    fn registry(&self) -> Registry {
        self.0.lock().expect("no poison").clone()
    }
}

#[tokio::test]
async fn a_tool_removed_between_turns_is_reported_as_unknown() {
    for dialect in Dialect::ALL {
        let shelf = Shelf::default();
        shelf.put([echo()]);
        let replies =
            [echoing("a", "one"), ScriptedReply::text("good"), echoing("b", "two"), ScriptedReply::text("a pity")];
        let agent = agent(dialect, replies).source(shelf.clone()).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "good", "{dialect}");
        shelf.put([]);
        assert_eq!(done(agent.send("again")).await.text, "a pity", "{dialect}");
        sendable(&agent.history());
        let gone = "Error: unknown tool `echo`. Call only tools that you were offered, by their exact names.";
        assert_eq!(results(&agent.history()), [ok("a", "one"), failed("b", gone)], "{dialect}");
    }
}

#[tokio::test]
async fn a_tool_removed_during_a_turn_stays_until_its_end() {
    for dialect in Dialect::ALL {
        let shelf = Shelf::default();
        let emptied = shelf.clone();
        let leave = tool("leave", move |_, _| {
            emptied.put([]);
            async { Ok("gone") }
        });
        shelf.put([leave]);
        let call = |id: &str| ScriptedReply::call(id, "leave", json!({}));
        let agent = agent(dialect, [call("a"), call("b"), ScriptedReply::text("fine")]);
        let agent = agent.source(shelf).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
        assert_eq!(results(&agent.history()), [ok("a", "gone"), ok("b", "gone")], "{dialect}");
    }
}

fn with_tool(name: &str) -> Script {
    let definition = json!({"name": name, "inputSchema": {"type": "object"}});
    let result = json!({"content": [{"type": "text", "text": name}]});
    Script { builtin_tools: false, ..Script::default() }.tool(definition, result)
}

#[tokio::test]
async fn a_renamed_tool_is_called_by_its_new_name() {
    for dialect in Dialect::ALL {
        let scripted = ScriptedServer::new(with_tool("weather_now"));
        let mut server = fast_config(scripted.in_process());
        server.alias = "sky".into();
        let bridge = Bridge::new(Config::default().with_server(ServerEntry::new(server))).expect("a bridge");
        bridge.start().await.expect("a start");
        let replies = [
            ScriptedReply::call("a", "mcp_sky_weather_now", json!({})),
            ScriptedReply::text("so far so good"),
            ScriptedReply::call("b", "mcp_sky_weather_now", json!({})),
            ScriptedReply::call("c", "mcp_sky_weather_today", json!({})),
            ScriptedReply::text("fine"),
        ];
        let agent = agent(dialect, replies).bridge(bridge.clone()).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "so far so good", "{dialect}");
        scripted.set(|script| script.extra_tools = with_tool("weather_today").extra_tools);
        scripted.changed("tools");
        let renamed = bridge.until(|listing| listing.registry.get("mcp_sky_weather_today").is_some());
        tokio::time::timeout(SOON, renamed).await.expect("another name in time");
        assert_eq!(done(agent.send("again")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
        let gone = "Error: unknown tool `mcp_sky_weather_now`. Did you mean `mcp_sky_weather_today`? \
                    Call only tools that you were offered, by their exact names.";
        let told = [ok("a", "weather_now"), failed("b", gone), ok("c", "weather_today")];
        assert_eq!(results(&agent.history()), told, "{dialect}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn an_added_tool_is_available_from_the_next_turn_on() {
    for dialect in Dialect::ALL {
        let replies =
            [echoing("a", "one"), ScriptedReply::text("a pity"), echoing("b", "two"), ScriptedReply::text("good")];
        let agent: Agent = agent(dialect, replies).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "a pity", "{dialect}");
        agent.add_tool(echo());
        assert_eq!(done(agent.send("again")).await.text, "good", "{dialect}");
        sendable(&agent.history());
        let told: Vec<bool> = results(&agent.history()).into_iter().map(|(_, _, is_error)| is_error).collect();
        assert_eq!(told, [true, false], "{dialect}");
    }
}

#[tokio::test]
async fn a_call_is_reported_step_by_step() {
    for dialect in Dialect::ALL {
        let tool = tool("climb", |_: Arguments, cx| async move {
            cx.report(ropeway::tool::Progress { progress: 1.0, total: Some(2.0), message: None });
            Ok("up")
        });
        let replies =
            [ScriptedReply::text("I climb.").and_call("a", "climb", json!({"to": "top"})), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(tool).build().expect("an agent");
        let mut turn = agent.send("go");
        let mut steps: Vec<Value> = Vec::new();
        while let Some(step) = turn.next().await {
            let mut step = serde_json::to_value(&step).expect("JSON");
            step.as_object_mut().expect("an object").remove("took_ms");
            // Adjacent text is joined when the reader is slower than the model.
            match steps.last_mut() {
                Some(last) if last["step"] == "text" && step["step"] == "text" => {
                    last["text"] =
                        format!("{}{}", last["text"].as_str().expect("text"), step["text"].as_str().expect("text"))
                            .into();
                }
                _ => steps.push(step),
            }
        }
        let usage = json!({"input": 10, "output": 5, "cache_read": 0, "cache_write": 0, "reasoning": 0});
        let content = json!([{"type": "text", "text": "up"}]);
        let expected = [
            json!({"step": "text", "text": "I climb."}),
            json!({"step": "answered", "stop": "tool_use", "usage": usage}),
            json!({"step": "call_started", "call": "a", "tool": "climb", "origin": "local", "arguments": {"to": "top"}}),
            json!({"step": "call_progress", "call": "a", "progress": 1.0, "total": 2.0, "message": null}),
            json!({"step": "call_finished", "call": "a", "id": "a", "tool": "climb", "origin": "local", "data": "up",
                "meta": {"is_error": false, "content": content}}),
            json!({"step": "text", "text": "fine"}),
            json!({"step": "answered", "stop": "end_turn", "usage": usage}),
        ];
        assert_eq!(steps, expected, "{dialect}");
    }
}
