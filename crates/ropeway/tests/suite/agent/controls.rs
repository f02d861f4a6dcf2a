//! Turns under control of the host: queued, stopped, dropped, detached.

use ropeway::agent::{Agent, AgentError, TurnEnd, TurnOutcome};
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::provider::StopReason;
use ropeway::testing::ScriptedReply;
use serde_json::json;

use super::kit::{Gate, agent, done, failed, gate, lines, ok, results, sendable};

/// Returns an agent whose model calls `gate` and then says `fine`, in every turn.
fn gated(dialect: Dialect) -> (Agent, Gate) {
    let (tool, gate) = gate();
    let replies =
        [ScriptedReply::call("a", "gate", json!({})), ScriptedReply::text("fine"), ScriptedReply::text("again")];
    (agent(dialect, replies).tool(tool).build().expect("an agent"), gate)
}

fn came_to(outcome: &TurnOutcome) -> (&str, &TurnEnd) {
    (&outcome.text, &outcome.end)
}

const DONE: TurnEnd = TurnEnd::Done(StopReason::EndTurn);

#[tokio::test]
async fn messages_are_answered_in_the_order_they_were_sent() {
    for dialect in Dialect::ALL {
        let agent = agent(dialect, ["one", "two", "three"].map(ScriptedReply::text)).build().expect("an agent");
        let turns = ["1", "2", "3"].map(|text| agent.send(text));
        for (turn, text) in turns.into_iter().zip(["one", "two", "three"]) {
            assert_eq!(came_to(&done(turn).await), (text, &DONE), "{dialect}");
        }
        sendable(&agent.history());
        let said = ["user: 1", "model: one", "user: 2", "model: two", "user: 3", "model: three"];
        assert_eq!(lines(&agent.history()), said, "{dialect}");
    }
}

#[tokio::test]
async fn a_turn_cancelled_in_the_queue_is_skipped() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let first = agent.send("1");
        gate.begun.notified().await;
        let (second, third) = (agent.send("2"), agent.send("3"));
        second.cancel();
        assert_eq!(came_to(&done(second).await), ("", &TurnEnd::Cancelled), "{dialect}");
        gate.go.notify_one();
        assert_eq!(came_to(&done(first).await), ("fine", &DONE), "{dialect}");
        assert_eq!(came_to(&done(third).await), ("again", &DONE), "{dialect}");
        sendable(&agent.history());
        let said = ["user: 1", "model:  <a>", "tools: <a>", "model: fine", "user: 3", "model: again"];
        assert_eq!(lines(&agent.history()), said, "{dialect}");
    }
}

#[tokio::test]
async fn a_turn_stopped_in_the_queue_ends_immediately() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let first = agent.send("1");
        gate.begun.notified().await;
        let (second, third) = (agent.send("2"), agent.send("3"));
        second.stop();
        // The first turn is still running.
        assert_eq!(came_to(&done(second).await), ("", &TurnEnd::Stopped), "{dialect}");
        gate.go.notify_one();
        assert_eq!(came_to(&done(first).await), ("fine", &DONE), "{dialect}");
        assert_eq!(came_to(&done(third).await), ("again", &DONE), "{dialect}");
    }
}

#[tokio::test]
async fn sending_an_empty_input_resumes() {
    for dialect in Dialect::ALL {
        let agent = agent(dialect, [ScriptedReply::text("fine")]).build().expect("an agent");
        let nothing = || Vec::<Message>::new();
        let refused = agent.send(nothing()).finish().await;
        assert!(matches!(refused, Err(AgentError::NothingToAnswer)), "{dialect}: {refused:?}");
        agent.replace_history(Conversation::new().with("q")).await;
        assert_eq!(came_to(&done(agent.send(nothing())).await), ("fine", &DONE), "{dialect}");
        assert_eq!(lines(&agent.history()), ["user: q", "model: fine"], "{dialect}");
    }
}

#[tokio::test]
async fn a_stopped_turn_completes_its_calls() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let turn = agent.send("go");
        gate.begun.notified().await;
        turn.stop();
        gate.go.notify_one();
        let outcome = done(turn).await;
        assert_eq!((came_to(&outcome), outcome.steps), (("", &TurnEnd::Stopped), 1), "{dialect}");
        sendable(&agent.history());
        assert_eq!(results(&agent.history()), [ok("a", "open")], "{dialect}");
        assert_eq!(came_to(&done(agent.resume()).await), ("fine", &DONE), "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn a_stopped_agent_begins_no_waiting_turn() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let first = agent.send("1");
        gate.begun.notified().await;
        let second = agent.send("2");
        agent.stop();
        gate.go.notify_one();
        assert_eq!(came_to(&done(first).await), ("", &TurnEnd::Stopped), "{dialect}");
        assert_eq!(came_to(&done(second).await), ("", &TurnEnd::Stopped), "{dialect}");
        sendable(&agent.history());
        assert_eq!(came_to(&done(agent.send("3")).await), ("fine", &DONE), "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn a_cancelled_agent_ends_all_turns() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let first = agent.send("1");
        gate.begun.notified().await;
        let second = agent.send("2");
        agent.cancel();
        assert_eq!(came_to(&done(first).await), ("", &TurnEnd::Cancelled), "{dialect}");
        assert_eq!(came_to(&done(second).await), ("", &TurnEnd::Cancelled), "{dialect}");
        gate.over.await.expect_err("nothing is sent");
        sendable(&agent.history());
        assert_eq!(came_to(&done(agent.send("3")).await), ("fine", &DONE), "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn dropping_a_turn_cancels_it() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let turn = agent.send("go");
        gate.begun.notified().await;
        drop(turn);
        gate.over.await.expect_err("nothing is sent");
        assert_eq!(came_to(&done(agent.send("again")).await), ("fine", &DONE), "{dialect}");
        sendable(&agent.history());
        let words = "Error: the call was cancelled. Do not call it again unless the user asks for it.";
        assert_eq!(results(&agent.history()), [failed("a", words)], "{dialect}");
    }
}

#[tokio::test]
async fn a_detached_turn_runs_to_its_end() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let turn = agent.send("go");
        gate.begun.notified().await;
        turn.detach();
        gate.go.notify_one();
        assert_eq!(came_to(&done(agent.send("again")).await), ("again", &DONE), "{dialect}");
        sendable(&agent.history());
        let said = ["user: go", "model:  <a>", "tools: <a>", "model: fine", "user: again", "model: again"];
        assert_eq!(lines(&agent.history()), said, "{dialect}");
    }
}

#[tokio::test]
async fn a_turn_outlives_its_agent() {
    for dialect in Dialect::ALL {
        let (agent, gate) = gated(dialect);
        let turn = agent.send("go");
        drop(agent);
        gate.begun.notified().await;
        gate.go.notify_one();
        assert_eq!(came_to(&done(turn).await), ("fine", &DONE), "{dialect}");
    }
}
