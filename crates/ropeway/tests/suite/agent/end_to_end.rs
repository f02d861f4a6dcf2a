//! Whole turns: large outputs, many tools, context, `generate`, and tracing.

use std::sync::{Arc, Mutex};

use ropeway::agent::{
    Agent, AgentError, GenerateRequest, ModelOptions, OutputBudget, Step, TurnEnd, TurnInput, TurnLimit, TurnLimits,
    generate, stream,
};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerEntry};
use ropeway::content::{Blob, ContentPart};
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::provider::{Provider, ProviderSettings, StopReason};
use ropeway::registry::{ContextItem, ContextSource};
use ropeway::testing::{ModelServer, Script, ScriptedReply, ScriptedServer, model};
use ropeway::tool::{Arguments, BoxFuture, CallContext, LocalTool, Tool, ToolDefinition, ToolOutput, TraceParent};
use ropeway_agent::OutputStore;
use serde_json::{Value, json};

use super::kit::{agent, done, echo, echoing, results, sendable, tool};
use crate::fast_config::fast_config;
use crate::log::logged;
use crate::scene::scene;

/// Returns a Chat Completions model over HTTP that records its requests.
async fn listening(replies: impl IntoIterator<Item = ScriptedReply>) -> (ModelServer, Provider) {
    let answers = replies.into_iter().map(|reply| reply.answer(Dialect::Chat));
    let server = ModelServer::start(answers).await.expect("a free port");
    let settings = ProviderSettings::new(Dialect::Chat).with_base_url(format!("{}/v1", server.url())).with_key("a-key");
    (server, Provider::new(settings).expect("a provider"))
}

fn tool_names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_large_output_is_truncated_and_readable_with_read_more() {
    let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    let long = tool("long", move |_, _| std::future::ready(Ok(lines.clone())));
    for dialect in Dialect::ALL {
        let replies = [
            ScriptedReply::call("a", "long", json!({})),
            ScriptedReply::call("b", "read_more", json!({"output": "o1", "from": 0, "find": "line 1999"})),
            ScriptedReply::text("done"),
        ];
        let agent = agent(dialect, replies).tool(long.clone()).budget(OutputBudget::default().with_text_bytes(2000));
        let agent = agent.spill(OutputStore::new().with_parent_folder(std::env::temp_dir())).build().expect("an agent");
        assert_eq!(done(agent.send("q")).await.text, "done");
        let history = agent.history();
        let told = results(&history);
        assert!(told[0].1.starts_with("line 0\n") && told[0].1.len() < 2300, "{}", told[0].1);
        assert!(told[0].1.contains("call `read_more` with output \"o1\" and from "), "{}", told[0].1);
        assert!(told[1].1.starts_with("line 1999\n"), "{}", told[1].1);
        sendable(&history);
        let folder = agent.spill_folder().expect("an output was stored");
        drop(agent);
        assert!(!folder.exists(), "the folder is deleted with the agent");
    }
}

#[tokio::test]
async fn two_agents_share_an_output_store_of_the_host() {
    let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(3000))));
    let spill = OutputStore::new().with_parent_folder(std::env::temp_dir());
    let mut agents = Vec::new();
    for number in 1..=2 {
        let agent = agent(Dialect::Chat, [ScriptedReply::call("a", "long", json!({})), ScriptedReply::text("done")])
            .tool(long.clone())
            .budget(OutputBudget::default().with_text_bytes(2000))
            .spill(spill.clone())
            .build()
            .expect("an agent");
        done(agent.send("q")).await;
        let name = format!("o{number}");
        assert!(results(&agent.history())[0].1.contains(&format!("with output \"{name}\"")), "{name}");
        let folder = spill.folder().expect("an output was stored");
        assert_eq!(std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect("a text"), "x".repeat(3000));
        agents.push(agent);
    }
}

#[tokio::test]
async fn forty_large_outputs_do_not_fill_the_context_window() {
    let text = tool("text", |_, _| std::future::ready(Ok("x".repeat(30_000))));
    let calls = (0..40).fold(ScriptedReply::nothing(), |reply, at| reply.and_call(format!("c{at}"), "text", json!({})));
    let agent = agent(Dialect::Chat, [calls, ScriptedReply::text("done")]).tool(text).build().expect("an agent");
    done(agent.send("q")).await;
    let told: usize = results(&agent.history()).iter().map(|(_, text, _)| text.len()).sum();
    assert!((150_000..230_000).contains(&told), "{told}");
}

#[tokio::test]
async fn an_image_that_is_too_large_is_replaced_by_a_notice() {
    let picture = ContentPart::Image(Blob::new("image/png", &[0; 9000]));
    let paint = tool("paint", move |_, _| std::future::ready(Ok(picture.clone())));
    let agent = agent(Dialect::Anthropic, [ScriptedReply::call("a", "paint", json!({})), ScriptedReply::text("done")])
        .tool(paint)
        .budget(OutputBudget::default().with_blob_bytes(1000))
        .spill(OutputStore::new().with_parent_folder(std::env::temp_dir()))
        .build()
        .expect("an agent");
    done(agent.send("q")).await;
    let told = results(&agent.history())[0].1.clone();
    assert!(told.contains("image/png") && told.contains("9.0 kB"), "{told}");
    let file = agent.spill_folder().expect("it is kept").join("o1-1.png");
    assert_eq!(std::fs::read(file).expect("a file").len(), 9000);
}

#[tokio::test]
async fn many_tools_are_found_with_find_tools_and_call_tool() {
    let many = (0..120).map(|number| {
        let definition =
            ToolDefinition::new(format!("tool_{number}")).with_description(format!("Counts item{number} sheep"));
        let answer =
            move |arguments: Arguments, _| std::future::ready(Ok(format!("{number} {}", Value::Object(arguments))));
        Arc::new(LocalTool::new(definition, answer)) as Arc<dyn Tool>
    });
    let replies = [
        ScriptedReply::call("a", "find_tools", json!({"query": "item77", "limit": 1})),
        ScriptedReply::call("b", "call_tool", json!({"name": "tool_77", "arguments": {"x": 1}})),
        ScriptedReply::text("done"),
    ];
    let (model, provider) = listening(replies).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let agent = Agent::builder().provider(provider).model("m").tools(many).search_over(100).tracer(move |step| {
        if let Step::CallStarted { tool, .. } = step {
            seen.lock().expect("no panic").push(tool.clone());
        }
    });
    let agent = agent.build().expect("an agent");
    assert_eq!(done(agent.send("q")).await.text, "done");
    let told = results(&agent.history());
    let found: Value = serde_json::from_str(&told[0].1).expect("JSON");
    assert_eq!(found[0]["name"], "tool_77");
    assert_eq!(told[1].1, "77 {\"x\":1}");
    assert_eq!(
        *steps.lock().expect("no panic"),
        ["find_tools", "tool_77"],
        "a call is told by the tool that was meant"
    );
    let bodies = model.bodies();
    let shown = tool_names(&bodies[0]);
    assert!(shown.contains(&"find_tools") && shown.contains(&"call_tool") && shown.len() <= 104, "{shown:?}");
    assert_eq!(shown, tool_names(&bodies[2]), "the listed tools stay the same, for the provider's cache");
}

#[tokio::test]
async fn a_call_through_call_tool_has_the_budget_of_its_tool() {
    let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(5000))));
    let through = ScriptedReply::call("a", "call_tool", json!({"name": "long", "arguments": {}}));
    let agent = agent(Dialect::Chat, [through, ScriptedReply::text("done")]).tool(echo()).tool(long).search_over(1);
    let agent = agent.budget_for("long", OutputBudget::default().with_text_bytes(1000)).build().expect("an agent");
    done(agent.send("q")).await;
    let told = results(&agent.history()).remove(0).1;
    assert!(told.starts_with(&"x".repeat(1000)) && told.contains("[4,000 of 5,000 bytes omitted;"), "{told}");
}

#[tokio::test]
async fn an_agent_without_read_more_gets_truncated_text_only() {
    let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(5000))));
    let replies = [ScriptedReply::call("a", "long", json!({})), ScriptedReply::text("done")];
    let agent = agent(Dialect::Chat, replies).tool(long).budget(OutputBudget::default().with_text_bytes(1000));
    let agent = agent.without_read_more().build().expect("an agent");
    done(agent.send("q")).await;
    assert_eq!(agent.tools().len(), 1);
    assert_eq!(results(&agent.history())[0].1, format!("{}\n[4,000 of 5,000 bytes omitted]", "x".repeat(1000)));
}

#[tokio::test]
async fn no_notice_mentions_another_tool_named_read_more() {
    let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(5000))));
    let theirs = tool("read_more", |_, _| std::future::ready(Ok("a novel")));
    let both = ScriptedReply::call("a", "long", json!({})).and_call("b", "read_more", json!({}));
    let agent = agent(Dialect::Chat, [both, ScriptedReply::text("done")]).tool(long).tool(theirs);
    let agent = agent.budget(OutputBudget::default().with_text_bytes(1000)).build().expect("an agent");
    done(agent.send("q")).await;
    let told = results(&agent.history());
    assert_eq!(told[0].1, format!("{}\n[4,000 of 5,000 bytes omitted]", "x".repeat(1000)));
    assert_eq!(told[1].1, "a novel");
    assert_eq!(agent.spill_folder(), None, "an unreadable output is not stored");
}

#[tokio::test]
async fn an_invalid_budget_pattern_is_an_error_of_generate() {
    let request = GenerateRequest::new("m", Conversation::new().with("q"));
    let request = request.with_budget_for("a[", OutputBudget::default());
    let failed = generate(&model(Dialect::Chat, [ScriptedReply::text("done")]), request, |_| async { Ok(None) }).await;
    let error = failed.expect_err("it is no glob").error;
    assert!(matches!(&error, AgentError::Glob { pattern, .. } if pattern == "a["), "{error}");
}

/// A source of context with different content each time.
struct Diary(Mutex<Vec<&'static str>>);

impl ContextSource for Diary {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        let page = self.0.lock().expect("no panic").pop();
        let item = page.map(|page| ContextItem::new("diary", vec![ContentPart::text(page)]));
        Box::pin(std::future::ready(item.into_iter().collect()))
    }
}

#[tokio::test]
async fn context_is_refreshed_before_each_turn_and_never_saved() {
    let (model, provider) = listening([ScriptedReply::text("one"), ScriptedReply::text("two")]).await;
    let diary = Diary(Mutex::new(vec!["Tuesday.", "Monday."]));
    let agent =
        Agent::builder().provider(provider).model("m").system("Be brief.").context(diary).build().expect("an agent");
    done(agent.send("first")).await;
    done(agent.send("second")).await;
    let bodies = model.bodies();
    let text = |body: &Value| body["messages"].to_string();
    assert!(text(&bodies[0]).contains("Monday.") && !text(&bodies[0]).contains("Tuesday."));
    assert!(text(&bodies[1]).contains("Tuesday.") && !text(&bodies[1]).contains("Monday."));
    let first = bodies[0]["messages"].to_string();
    assert!(first.find("Monday.") < first.find("first"), "context precedes the message: {first}");
    let history = serde_json::to_string(&agent.history()).expect("JSON");
    assert!(!history.contains("day."), "{history}");
}

#[test]
fn context_of_a_bridge_precedes_the_conversation() {
    scene(|_| async {
        let (model, provider) = listening([ScriptedReply::text("ok")]).await;
        let script = Script { instructions: Some("Ask before you write.".to_owned()), ..Script::default() };
        let mut entry = ServerEntry::new(fast_config(ScriptedServer::new(script).in_process()));
        entry.instructions = true;
        let bridge = Bridge::new(Config::default().with_server(entry)).expect("a bridge");
        let agent = Agent::builder().provider(provider).model("m").system("Be brief.").bridge(bridge.clone());
        let agent = agent.build().expect("an agent");
        done(agent.send("q")).await;
        let body = &model.bodies()[0];
        let system = body["messages"][0]["content"].as_str().expect("a system prompt");
        assert!(system.starts_with("Be brief.") && system.contains("Ask before you write."), "{system}");
        assert!(tool_names(body).contains(&"mcp_peer_echo"), "{:?}", tool_names(body));
        assert_eq!(
            agent.history().system.as_deref(),
            Some("Be brief."),
            "a server's words are not saved as the host's"
        );
        bridge.stop().await;
    });
}

#[test]
fn an_agent_is_started_with_the_messages_of_a_prompt() {
    scene(|_| async {
        let (_scripted, server) = crate::fast_config::in_process(Script::default()).await;
        let prompt =
            server.get_prompt_with("plain", Arguments::new(), &CallContext::default()).await.expect("a prompt");
        let messages = prompt.to_messages();
        let (_model, provider) = listening([ScriptedReply::text("ok")]).await;
        let agent = Agent::builder().provider(provider).model("m").build().expect("an agent");
        done(agent.send(messages.clone())).await;
        assert_eq!(agent.history().messages[..messages.len()], messages);
        server.close().await;
    });
}

#[test]
fn servers_given_as_settings_live_as_long_as_the_agent() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default());
        let replies = [ScriptedReply::call("a", "fs_echo", json!({"message": "hi"})), ScriptedReply::text("done")];
        let agent = Agent::builder()
            .provider(model(Dialect::Gemini, replies))
            .model("m")
            .mcp_with_prefix(fast_config(scripted.in_process()), "fs")
            .build()
            .expect("an agent");
        assert_eq!(scripted.connections(), 0, "servers connect at the first turn");
        let mut turn = agent.send("q");
        let mut statuses = None;
        while let Some(step) = turn.next().await {
            if let Step::Servers { statuses: told } = step {
                statuses = Some(told.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
        assert_eq!(done(turn).await.text, "done");
        let statuses = statuses.expect("a step with the statuses");
        assert!(statuses[0].starts_with("server `peer` is ready with "), "{statuses:?}");
        assert_eq!(results(&agent.history())[0].1, "hi");
    });
}

#[tokio::test]
async fn generate_calls_the_tools_of_the_host() {
    for dialect in Dialect::ALL {
        let replies = [
            ScriptedReply::call("a", "known", json!({"x": 1})).and_call("b", "unknown", json!({})),
            ScriptedReply::text("done"),
        ];
        let request = GenerateRequest::new("m", Conversation::new().with("q"))
            .with_tools([ToolDefinition::new("known"), ToolDefinition::new("unknown")])
            .with_limits(TurnLimits::default().with_steps(3))
            .with_options(ModelOptions::default());
        let provider = model(dialect, replies);
        let generated = generate(&provider, request, |call| async move {
            Ok((call.name == "known").then(|| ToolOutput::text(format!("{} {:?}", call.id, call.arguments))))
        });
        let generated = generated.await.expect("an outcome");
        assert_eq!((generated.outcome.text.as_str(), generated.outcome.steps), ("done", 2));
        assert_eq!(generated.outcome.end, TurnEnd::Done(StopReason::EndTurn));
        let told = results(&generated.conversation);
        assert_eq!((told[0].2, told[1].2), (false, true), "{told:?}");
        assert!(told[1].1.contains("unknown tool `unknown`"), "{told:?}");
        sendable(&generated.conversation);
    }
}

#[tokio::test]
async fn a_failed_generate_returns_the_conversation() {
    let request = GenerateRequest::new("m", Conversation::new().with("q")).with_tools([ToolDefinition::new("known")]);
    let provider = model(Dialect::Responses, [ScriptedReply::call("a", "known", json!({}))]);
    let mut generation = stream(&provider, request, |_| async { Ok(Some(ToolOutput::text("yes"))) });
    let mut finished = 0;
    while let Some(step) = generation.next().await {
        finished += usize::from(matches!(step, Step::CallFinished { .. }));
    }
    let failed = generation.finish().await.expect_err("the script is over");
    assert_eq!((finished, results(&failed.conversation).len()), (1, 1));
    assert_eq!(failed.to_string(), "request to model `m` failed");
    sendable(&failed.conversation);
}

#[tokio::test]
async fn turns_requests_and_calls_are_spans_of_the_gen_ai_conventions() {
    let turn = || async {
        let agent = agent(Dialect::Anthropic, [echoing("a", "hi"), ScriptedReply::text("done")]).tool(echo());
        done(agent.build().expect("an agent").send("q")).await;
    };
    // A callsite that is first reached while a subscriber is installed may be missed.
    turn().await;
    let log = logged(move |_| turn());
    let spans = log.await.spans();
    let of = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (turns, questions, calls) = (of("invoke_agent"), of("chat"), of("execute_tool"));
    assert_eq!((turns.len(), questions.len(), calls.len()), (1, 2, 1));
    assert_eq!(turns[0].field("gen_ai.usage.input_tokens"), Some("20"));
    assert_eq!(questions[0].field("otel.name"), Some("chat m"));
    assert_eq!(questions[0].field("gen_ai.provider.name"), Some("anthropic"));
    assert_eq!(questions[1].field("gen_ai.response.finish_reasons"), Some("EndTurn"));
    assert_eq!(calls[0].field("gen_ai.tool.name"), Some("echo"));
}

#[tokio::test]
async fn unchanged_tools_are_lowered_once() {
    let agent =
        agent(Dialect::Chat, [ScriptedReply::text("one"), ScriptedReply::text("two"), ScriptedReply::text("three")])
            .tool(echo());
    let agent = agent.build().expect("an agent");
    done(agent.send("q")).await;
    let before = agent.tools();
    done(agent.send("q")).await;
    assert!(before.ptr_eq(&agent.tools()));
    agent.add_tool(tool("other", |_, _| std::future::ready(Ok("x"))));
    done(agent.send("q")).await;
    assert!(!before.ptr_eq(&agent.tools()));
    assert!(matches!(agent.history().messages.last(), Some(Message::Assistant(_))));
}

#[tokio::test]
async fn the_calls_of_a_turn_belong_to_its_trace() {
    let parent: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a traceparent");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let seen = heard.clone();
    let listen = tool("listen", move |_, cx: CallContext| {
        seen.lock().expect("no panic").push(cx.traceparent());
        std::future::ready(Ok("ok"))
    });
    let call = |id: &str| ScriptedReply::call(id, "listen", json!({}));
    let agent = agent(Dialect::Chat, [call("a"), ScriptedReply::text("one"), call("b"), ScriptedReply::text("two")])
        .tool(listen);
    let agent = agent.build().expect("an agent");
    done(agent.send(TurnInput::from("q").with_traceparent(parent))).await;
    done(agent.send("q")).await;
    assert_eq!(*heard.lock().expect("no panic"), [Some(parent), None]);
}

#[test]
fn a_turn_end_is_one_flat_json_object() {
    let time = std::time::Duration::from_secs(7);
    let ends = [
        (TurnEnd::Done(StopReason::EndTurn), json!({"reason": "done", "stop": "end_turn"})),
        (TurnEnd::Limit(TurnLimit::Steps(5)), json!({"reason": "limit", "limit": "steps", "most": 5})),
        (TurnEnd::Limit(TurnLimit::Time(time)), json!({"reason": "limit", "limit": "time_ms", "most": 7000})),
        (TurnEnd::Stopped, json!({"reason": "stopped"})),
        (TurnEnd::Cancelled, json!({"reason": "cancelled"})),
    ];
    for (end, expected) in ends {
        assert_eq!(json!(end), expected);
    }
}

#[tokio::test]
async fn a_provider_error_includes_the_usage_so_far() {
    let agent = agent(Dialect::Chat, [echoing("a", "hi").costing(70, 7)]).tool(echo()).build().expect("an agent");
    match agent.send("q").await {
        Err(AgentError::Provider { usage, steps, .. }) => assert_eq!((usage.input, usage.output, steps), (70, 7, 2)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn output_names_of_a_replaced_history_are_not_used_again() {
    let long = || tool("long", |_, _| std::future::ready(Ok("x".repeat(5000))));
    let small = OutputBudget::default().with_text_bytes(1000);
    let call = || [ScriptedReply::call("a", "long", json!({})), ScriptedReply::text("done")];
    let first = agent(Dialect::Chat, call()).tool(long()).budget(small).build().expect("an agent");
    done(first.send("q")).await;
    let second = agent(Dialect::Chat, call()).tool(long()).budget(small).build().expect("an agent");
    second.replace_history(first.history()).await;
    done(second.send("q")).await;
    let told = results(&second.history());
    assert!(told[0].1.contains("\"o1\"") && told[1].1.contains("\"o3\""), "{told:?}");
}
