//! Calls that the host answers: `on_tool_call`, its errors, and summaries of calls.

use std::sync::{Arc, Mutex};

use ropeway::agent::{
    Agent, AgentError, Approval, ApprovalRequest, GenerateRequest, Policy, Step, ToolCallRequest, generate, stream,
};
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::secret::{Redactor, Secret};
use ropeway::testing::{Script, ScriptedReply, model};
use ropeway::tool::{
    Arguments, BoxError, CallContext, CallError, LocalTool, Tool, ToolCallError, ToolDefinition, ToolOutput,
};
use serde_json::{Value, json};

use super::kit::{agent, done, echo, failed, gate, ok, results, sendable, tool};
use crate::fast_config::{SOON, chain, in_process};
use crate::scene::scene;

/// Returns a request with one tool `t`, which takes a number `n`.
fn request() -> GenerateRequest {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    GenerateRequest::new("m", Conversation::new().with("q"))
        .with_tools([ToolDefinition::new("t").with_input_schema(schema)])
}

/// Returns a model that calls `t` once and then says `done`.
fn calling(dialect: Dialect) -> ropeway::provider::Provider {
    model(dialect, [ScriptedReply::call("a", "t", json!({"n": 1})), ScriptedReply::text("done")])
}

#[test]
fn a_host_streams_with_the_definitions_of_a_server_and_calls_its_tools() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script::default()).await;
        let tools: Arc<[Arc<dyn Tool>]> = server.list_tools().await.expect("tools").into();
        let calls = ScriptedReply::call("a", "echo", json!({"message": "hi"})).and_call("b", "refuse", json!({}));
        let definitions = server.list_tool_definitions().await.expect("definitions");
        for dialect in Dialect::ALL {
            let provider = model(dialect, [calls.clone(), ScriptedReply::text("done")]);
            let request = GenerateRequest::new("m", Conversation::new().with("Say hi")).with_tools(definitions.clone());
            let tools = tools.clone();
            let mut generation = stream(&provider, request, move |call: ToolCallRequest| {
                let tool = tools.iter().find(|tool| tool.definition().name == call.name).cloned();
                async move {
                    let Some(tool) = tool else { return Ok(None) };
                    Ok(Some(tool.call(call.arguments, &call.context).await?))
                }
            });
            let mut ids = Vec::new();
            while let Some(step) = generation.next().await {
                if let Step::CallFinished { call, envelope } = step {
                    ids.push((call.0, envelope.id.0.clone()));
                    // The callback passes on an error of the server unchanged.
                    let is_refusal = matches!(envelope.error.as_deref(), Some(CallError::Refused { .. }));
                    assert_eq!(is_refusal, envelope.tool == "refuse", "{envelope:?}");
                }
            }
            ids.sort();
            assert_eq!(ids, [("a".to_owned(), "a".to_owned()), ("b".to_owned(), "b".to_owned())]);
            let generated = generation.finish().await.expect("an outcome");
            assert_eq!(generated.outcome.text, "done");
            let told = results(&generated.conversation);
            assert_eq!(told[0], ok("a", "hi"));
            assert!(told[1].2 && told[1].1.contains("the tool refuses"), "{told:?}");
        }
        server.close().await;
    });
}

#[tokio::test]
async fn an_error_of_the_callback_is_reported_to_the_model() {
    for dialect in Dialect::ALL {
        let provider = calling(dialect);
        let plain = generate(&provider, request(), |_| async { Err("the printer is out of paper".into()) });
        let generated = plain.await.expect("the turn goes on");
        assert_eq!(generated.outcome.text, "done");
        let words = "Error: tool `t` failed: the printer is out of paper. Try another way, or tell the user.";
        assert_eq!(results(&generated.conversation), [failed("a", words)]);
        sendable(&generated.conversation);
    }
}

#[tokio::test]
async fn a_retryable_error_is_reported_as_such() {
    let error = || ToolCallError::new("busy").with_kind("rate_limit").into_retryable();
    let mut generation = stream(&calling(Dialect::Chat), request(), move |_| async move { Err(error()) });
    let mut seen = None;
    while let Some(step) = generation.next().await {
        if let Step::CallFinished { envelope, .. } = step {
            seen = envelope.error.clone();
        }
    }
    let seen = seen.expect("an error");
    assert!(seen.is_transient());
    let expected = json!({"type": "rate_limit", "message": "busy", "fatal": false, "retryable": true});
    assert_eq!(json!(seen.as_tool_call_error()), expected, "the host finds its own error");
    let told = results(&generation.finish().await.expect("an outcome").conversation);
    assert_eq!(
        told[0].1,
        "Error: tool `t` failed: busy. The same call may succeed later: try it once more, or continue without it."
    );
}

#[tokio::test]
async fn a_fatal_error_ends_the_turn_and_every_call_has_a_result() {
    for dialect in Dialect::ALL {
        let calls = ScriptedReply::call("a", "t", json!({"n": 1})).and_call("b", "t", json!({"n": 2}));
        let provider = model(dialect, [calls.costing(70, 7), ScriptedReply::text("never")]);
        let failure = generate(&provider, request(), |call| async move {
            match call.id.0.as_str() {
                "a" => Err(ToolCallError::fatal("the licence has expired").with_kind("licence")),
                _ => std::future::pending().await,
            }
        });
        let failure = tokio::time::timeout(SOON, failure).await.expect("no hang").expect_err("it is fatal");
        match &failure.error {
            AgentError::ToolCall { tool, usage, steps, source } => {
                assert_eq!((tool.as_str(), usage.input, *steps), ("t", 70, 1));
                assert_eq!((source.kind.as_str(), source.fatal), ("licence", true));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(chain(&failure), "tool `t` returned a fatal error: the licence has expired");
        let told = results(&failure.conversation);
        assert_eq!(
            told.iter().map(|result| (result.0.as_str(), result.2)).collect::<Vec<_>>(),
            [("a", true), ("b", true)]
        );
        assert!(matches!(failure.conversation.messages.last(), Some(Message::Tool { .. })));
        sendable(&failure.conversation);
    }
}

#[tokio::test]
async fn a_fatal_error_ends_the_turn_while_others_wait_for_approval() {
    let (gate_tool, _gate) = gate();
    let fatal = LocalTool::new(ToolDefinition::new("fatal"), |_: Arguments, _| async {
        Err::<&str, _>(ToolCallError::fatal("no disk").into())
    });
    let calls = ScriptedReply::call("a", "gate", json!({})).and_call("b", "echo", json!({"text": "x"})).and_call(
        "c",
        "fatal",
        json!({}),
    );
    let agent = agent(Dialect::Chat, [calls, ScriptedReply::text("never")]).tools([gate_tool, echo(), fatal]);
    let agent = agent.policy(Policy::new().ask("echo")).on_approval(|_| std::future::pending::<Approval>());
    let agent = agent.build().expect("an agent");
    let ended = tokio::time::timeout(SOON, agent.send("q").finish()).await.expect("no hang");
    let error = ended.expect_err("a local tool of the host may end the turn, too");
    assert_eq!(chain(&error), "tool `fatal` returned a fatal error: no disk");
    assert_eq!(results(&agent.history()).len(), 3);
    sendable(&agent.history());
}

#[tokio::test]
async fn the_callback_gets_parsed_arguments_and_no_malformed_ones() {
    #[derive(serde::Deserialize)]
    struct Wanted {
        n: u32,
    }
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let calls = ScriptedReply::call("a", "t", json!({"n": 7})).and_call("b", "t", json!({"n": "x"})).and_call(
        "c",
        "t",
        json!({"n": -1}),
    );
    let log = seen.clone();
    let provider = model(Dialect::Chat, [calls, ScriptedReply::text("done")]);
    let generated = generate(&provider, request(), move |call| {
        log.lock().expect("no poison").push(call.id.0.clone());
        async move {
            let Wanted { n } = call.parse()?;
            Ok(Some(ToolOutput::text(format!("{n} {}", call.arguments["n"]))))
        }
    });
    let told = results(&generated.await.expect("an outcome").conversation);
    assert_eq!(told[0], ok("a", "7 7"));
    assert!(told[1].2 && told[1].1.contains("/n"), "{told:?}");
    assert!(told[2].2 && told[2].1.contains("invalid arguments"), "{told:?}");
    let mut seen = seen.lock().expect("no poison").clone();
    seen.sort();
    assert_eq!(seen, ["a", "c"], "invalid arguments never reach the callback");
}

#[tokio::test]
async fn errors_of_many_kinds_convert_with_a_question_mark() {
    fn io() -> Result<(), ToolCallError> {
        Err(std::io::Error::other("disk"))?
    }
    fn boxed() -> Result<(), ToolCallError> {
        Err(BoxError::from("box"))?
    }
    fn parsed() -> Result<Value, ToolCallError> {
        Ok(serde_json::from_str("{")?)
    }
    fn fatal() -> Result<(), ToolCallError> {
        Err(BoxError::from(ToolCallError::fatal("kept")))?
    }
    assert_eq!(io().expect_err("an error").message, "disk");
    assert_eq!(boxed().expect_err("an error").message, "box");
    assert!(parsed().is_err_and(|error| !error.fatal && error.kind == "execution"));
    assert!(fatal().is_err_and(|error| error.fatal), "a boxed fatal error stays fatal");
}

/// Returns a tool that deletes a file and has a summary.
fn delete() -> LocalTool {
    tool("delete", |_, _| std::future::ready(Ok("gone")))
        .with_summary(|arguments| format!("Delete {}", arguments["path"].as_str().unwrap_or("nothing")))
}

#[tokio::test]
async fn a_summary_is_shown_beside_the_arguments_in_steps_and_approvals() {
    let hostile = "/tmp/a\u{1b}[2K\n(harmless) \u{202e}key=open-sesame-42";
    let reply = ScriptedReply::call("a", "delete", json!({"path": hostile})).and_call("b", "delete", json!({}));
    let asked: Arc<Mutex<Vec<ApprovalRequest>>> = Arc::default();
    let log = asked.clone();
    let agent = agent(Dialect::Chat, [reply, ScriptedReply::text("done")])
        .tool(delete())
        .secrets(Redactor::new([&Secret::new("open-sesame-42")]))
        .policy(Policy::new().ask("*"))
        .on_approval(move |request| {
            log.lock().expect("no poison").push(request);
            async { Approval::Allow }
        })
        .build()
        .expect("an agent");
    let mut turn = agent.send("q");
    let mut steps = Vec::new();
    while let Some(step) = turn.next().await {
        if let Step::CallStarted { summary, arguments, .. } = &step {
            steps.push((summary.clone(), arguments.to_string().contains("open-sesame-42")));
            assert_eq!(json!(step).get("summary").is_some(), summary.is_some());
        }
    }
    done(turn).await;
    let shown = Some("Delete /tmp/a (harmless) key=***".to_owned());
    assert_eq!(steps, [(shown.clone(), true), (None, false)], "a summary that panics is omitted");
    let asked = asked.lock().expect("no poison");
    assert_eq!(asked.iter().map(|request| request.summary.clone()).collect::<Vec<_>>(), [shown, None]);
    assert_eq!(asked[0].arguments["path"], json!(hostile), "the real arguments are always there");
    assert_eq!(results(&agent.history()), [ok("a", "gone"), ok("b", "gone")]);
}

#[test]
fn tools_of_servers_have_no_summary_and_tools_of_the_agent_have_one() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script::default()).await;
        let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(100_000))));
        let replies = [
            ScriptedReply::call("a", "mcp_peer_echo", json!({"message": "hi"})).and_call("b", "long", json!({})),
            ScriptedReply::call("c", "read_more", json!({"output": "o1", "from": 50_000})),
            ScriptedReply::text("done"),
        ];
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let agent = Agent::builder().provider(model(Dialect::Chat, replies)).model("m").mcp(server.clone()).tool(long);
        let agent = agent.tracer(move |step| {
            if let Step::CallStarted { tool, summary, .. } = step {
                log.lock().expect("no poison").push((tool.clone(), summary.clone()));
            }
        });
        let agent = agent.build().expect("an agent");
        done(agent.send("q")).await;
        let expected = [
            ("mcp_peer_echo".to_owned(), None),
            ("long".to_owned(), None),
            ("read_more".to_owned(), Some("Read output \"o1\" from byte 50,000".to_owned())),
        ];
        assert_eq!(*seen.lock().expect("no poison"), expected);
        server.close().await;
    });
}

#[test]
fn calls_that_share_a_context_have_their_own_ids() {
    scene(|_| async {
        let (_scripted, server) = in_process(Script::default()).await;
        let mut events = server.events();
        let cx = CallContext::default();
        for _ in 0..3 {
            server
                .call_tool_with("echo", Arguments::from_iter([("message".to_owned(), json!("hi"))]), &cx)
                .await
                .expect("hi");
        }
        let mut ids = Vec::new();
        for _ in 0..3 {
            let called = crate::fast_config::event(&mut events, |event| match event {
                ropeway::event::Event::ToolCalled { call, .. } => Some(call.0),
                _ => None,
            });
            ids.push(called.await);
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{ids:?}");
        server.close().await;
    });
}
