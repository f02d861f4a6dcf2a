//! Cancellation: at every point, a turn ends immediately and its history can be continued.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ropeway::agent::{Agent, AgentError, Approval, Policy, TurnControl, TurnEnd};
use ropeway::message::Dialect;
use ropeway::provider::StopReason;
use ropeway::registry::{Registry, ToolSource};
use ropeway::testing::{ModelServer, ScriptedReply};
use ropeway::tool::{BoxFuture, LocalTool};
use serde_json::json;
use tokio::sync::Notify;

use super::kit::{agent, done, echo, echoing, failed, gate, lines, ok, results, sendable, tool};

/// Returns two rounds of calls with text and reasoning, and enough replies for later turns.
fn replies() -> Vec<ScriptedReply> {
    let first = ScriptedReply::reasoning("It takes two.")
        .and_text("I begin now.")
        .and_call("a", "echo", json!({"text": "one"}))
        .and_call("b", "slow", json!({}));
    let second = ScriptedReply::call("c", "slow", json!({})).and_call("d", "nowhere", json!({}));
    [first, second].into_iter().chain(std::iter::repeat_n(ScriptedReply::text("That is all."), 4)).collect()
}

/// Returns a tool that yields before it answers.
fn slow() -> LocalTool {
    tool("slow", |_, _| async {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Ok("slowly")
    })
}

/// Asserts that the next turn works.
async fn goes_on(agent: &Agent) {
    sendable(&agent.history());
    let outcome = done(agent.send("and now?")).await;
    assert_eq!(outcome.end, TurnEnd::Done(StopReason::EndTurn));
    assert_eq!(outcome.text, "That is all.");
    sendable(&agent.history());
}

#[tokio::test]
async fn a_turn_cancelled_at_any_step_can_be_continued() {
    for dialect in Dialect::ALL {
        let mut cancelled = 0;
        // Cancels one step later each time, until no step is left.
        for at in 1.. {
            let control: Arc<OnceLock<TurnControl>> = Arc::default();
            let (steps, cancels) = (AtomicUsize::new(0), control.clone());
            let tracer = move |_: &_| {
                if steps.fetch_add(1, Ordering::SeqCst) + 1 == at {
                    cancels.get().expect("it was told before the first step").cancel();
                }
            };
            let agent = agent(dialect, replies()).tool(echo()).tool(slow()).tracer(tracer).build().expect("an agent");
            let turn = agent.send("go");
            control.set(turn.control()).expect("once");
            let outcome = done(turn).await;
            match outcome.end {
                TurnEnd::Cancelled => cancelled += 1,
                TurnEnd::Done(StopReason::EndTurn) => break,
                other => panic!("{dialect}, step {at}: {other:?}"),
            }
            goes_on(&agent).await;
        }
        // Reasoning, text, two replies, and the starts and ends of four calls.
        assert!(cancelled >= 15, "{dialect}: {cancelled}");
    }
}

#[tokio::test]
async fn a_turn_cancelled_at_any_moment_can_be_continued() {
    for dialect in Dialect::ALL {
        let mut cancelled = 0;
        // Cancels one poll later each time, until the turn ends before.
        for moments in 0.. {
            let agent = agent(dialect, replies()).tool(echo()).tool(slow()).build().expect("an agent");
            let turn = agent.send("go");
            for _ in 0..moments {
                tokio::task::yield_now().await;
            }
            turn.cancel();
            match done(turn).await.end {
                TurnEnd::Cancelled => cancelled += 1,
                TurnEnd::Done(StopReason::EndTurn) => break,
                other => panic!("{dialect}, moment {moments}: {other:?}"),
            }
            goes_on(&agent).await;
        }
        assert!(cancelled >= 4, "{dialect}: {cancelled}");
    }
}

#[tokio::test]
async fn a_turn_cancelled_before_it_begins_has_no_steps() {
    for dialect in Dialect::ALL {
        let agent = agent(dialect, [ScriptedReply::text("That is all.")]).build().expect("an agent");
        let turn = agent.send("go");
        turn.cancel();
        let outcome = done(turn).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Cancelled, 0), "{dialect}");
        goes_on(&agent).await;
    }
}

/// A source that is never ready.
#[derive(Clone, Default)]
struct Never(Arc<Notify>);

impl ToolSource for Never {
    fn registry(&self) -> Registry {
        Registry::default()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_cancelled_while_servers_connect() {
    for dialect in Dialect::ALL {
        let never = Never::default();
        let agent =
            agent(dialect, [ScriptedReply::text("That is all.")]).source(never.clone()).build().expect("an agent");
        let turn = agent.send("go");
        never.0.notified().await;
        turn.cancel();
        let outcome = done(turn).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Cancelled, 0), "{dialect}");
        // The next turn waits up to its limit, and continues without the source.
        goes_on(&agent).await;
    }
}

#[tokio::test]
async fn a_turn_is_cancelled_while_a_call_awaits_approval() {
    for dialect in Dialect::ALL {
        let asked = Arc::new(Notify::new());
        let told = asked.clone();
        let agent = agent(dialect, [echoing("a", "x"), ScriptedReply::text("That is all.")])
            .tool(echo())
            .policy(Policy::new().ask("*"))
            .on_approval(move |_| {
                told.notify_one();
                std::future::pending::<Approval>()
            })
            .build()
            .expect("an agent");
        let turn = agent.send("go");
        asked.notified().await;
        turn.cancel();
        assert_eq!(done(turn).await.end, TurnEnd::Cancelled, "{dialect}");
        let words = "Error: the call was cancelled. Do not call it again unless the user asks for it.";
        assert_eq!(results(&agent.history()), [failed("a", words)], "{dialect}");
        goes_on(&agent).await;
    }
}

#[tokio::test]
async fn a_turn_is_cancelled_while_calls_run() {
    for dialect in Dialect::ALL {
        let (tool, gate) = gate();
        let both = ScriptedReply::call("a", "gate", json!({})).and_call("b", "echo", json!({"text": "x"}));
        let agent = agent(dialect, [both, ScriptedReply::text("That is all.")]).tool(tool).tool(echo()).build();
        let agent = agent.expect("an agent");
        let turn = agent.send("go");
        gate.begun.notified().await;
        turn.cancel();
        assert_eq!(done(turn).await.end, TurnEnd::Cancelled, "{dialect}");
        // The call is dropped.
        gate.over.await.expect_err("nothing is sent");
        let words = "Error: the call was cancelled. Do not call it again unless the user asks for it.";
        // Finished calls keep their results.
        assert_eq!(results(&agent.history()), [failed("a", words), ok("b", "x")], "{dialect}");
        goes_on(&agent).await;
    }
}

#[tokio::test]
async fn a_call_that_ends_with_its_turn_keeps_its_result() {
    for dialect in Dialect::ALL {
        let control: Arc<OnceLock<TurnControl>> = Arc::default();
        let ends = control.clone();
        let leave = tool("leave", move |_, _| {
            ends.get().expect("it was told before the first call").cancel();
            std::future::ready(Ok("left"))
        });
        let replies = [ScriptedReply::call("a", "leave", json!({})), ScriptedReply::text("That is all.")];
        let agent = agent(dialect, replies).tool(leave).build().expect("an agent");
        let turn = agent.send("go");
        control.set(turn.control()).expect("once");
        assert_eq!(done(turn).await.end, TurnEnd::Cancelled, "{dialect}");
        // The call has finished, and the model must know.
        assert_eq!(results(&agent.history()), [ok("a", "left")], "{dialect}");
        goes_on(&agent).await;
    }
}

#[tokio::test]
async fn a_turn_cancelled_during_a_reply_keeps_the_text_so_far() {
    for dialect in Dialect::ALL {
        let begun = ScriptedReply::text("I begin ").events(dialect);
        let half = begun.find("begin").map(|at| at + begun[at..].find("\n\n").expect("an event") + 2).expect("a word");
        let answer = ropeway::testing::ModelAnswer::events(&begun[..half]).stall();
        let server =
            ModelServer::start([answer, ScriptedReply::text("That is all.").answer(dialect)]).await.expect("a port");
        let settings = ropeway::provider::ProviderSettings::new(dialect).with_base_url(server.url()).with_key("a-key");
        let provider = ropeway::provider::Provider::new(settings).expect("a provider");
        let agent = Agent::builder().provider(provider).model("m").build().expect("an agent");
        let mut turn = agent.send("go");
        let mut text = String::new();
        while !text.contains("begin") {
            if let ropeway::agent::Step::Text { text: piece, .. } = turn.next().await.expect("a step") {
                text += &piece;
            }
        }
        turn.cancel();
        let outcome = done(turn).await;
        assert_eq!((outcome.text, outcome.end), (text, TurnEnd::Cancelled), "{dialect}");
        // The connection to the provider is closed.
        server.left().await;
        assert_eq!(lines(&agent.history()), ["user: go", "model: I begin "], "{dialect}");
        goes_on(&agent).await;
    }
}

#[tokio::test]
async fn a_turn_aborted_at_any_step_can_be_continued() {
    for dialect in Dialect::ALL {
        let mut lost = 0;
        for at in 1.. {
            let steps = AtomicUsize::new(0);
            let tracer = move |_: &_| assert!(steps.fetch_add(1, Ordering::SeqCst) + 1 != at, "a tracer that panics");
            let agent = agent(dialect, replies()).tool(echo()).tool(slow()).tracer(tracer).build().expect("an agent");
            match agent.send("go").finish().await {
                Ok(outcome) => {
                    assert_eq!(outcome.end, TurnEnd::Done(StopReason::EndTurn), "{dialect}");
                    break;
                }
                Err(AgentError::Lost) => lost += 1,
                Err(error) => panic!("{dialect}, step {at}: {error}"),
            }
            goes_on(&agent).await;
        }
        assert!(lost >= 15, "{dialect}: {lost}");
    }
}
