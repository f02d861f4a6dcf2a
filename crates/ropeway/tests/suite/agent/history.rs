//! History: a plain value that can be saved at any moment and continued by any model.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use ropeway::agent::{Agent, Step, TurnEnd};
use ropeway::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ToolCall};
use ropeway::provider::StopReason;
use ropeway::testing::ScriptedReply;
use serde_json::json;

use super::kit::{agent, done, echo, echoing, failed, gate, lines, ok, results, sendable};

#[tokio::test]
async fn a_history_saved_mid_turn_continues_in_every_other_dialect() {
    for dialect in Dialect::ALL {
        let (tool, gate) = gate();
        let both = ScriptedReply::reasoning("Both.").and_call("a", "echo", json!({"text": "x"})).and_call(
            "b",
            "gate",
            json!({}),
        );
        let first = agent(dialect, [both, ScriptedReply::text("fine")]).system("Be brief.").tool(tool).tool(echo());
        let first = first.build().expect("an agent");
        let turn = first.send("go");
        gate.begun.notified().await;
        let saved = serde_json::to_string(&first.history()).expect("JSON");
        let loaded: Conversation = serde_json::from_str(&saved).expect("a conversation");
        sendable(&loaded);
        assert_eq!(loaded.system.as_deref(), Some("Be brief."), "{dialect}");
        let unfinished = failed("b", "no result: the call has not finished");
        assert_eq!(results(&loaded).last(), Some(&unfinished), "{dialect}");
        for other in Dialect::ALL {
            let second = agent(other, [echoing("c", "y"), ScriptedReply::text("on it goes")]).tool(echo());
            let second = second.history(loaded.clone()).build().expect("an agent");
            let outcome = done(second.resume()).await;
            assert_eq!((outcome.text.as_str(), outcome.end), ("on it goes", TurnEnd::Done(StopReason::EndTurn)));
            sendable(&second.history());
            let said =
                ["user: go", "model:  <a> <b>", "tools: <a> <b>", "model:  <c>", "tools: <c>", "model: on it goes"];
            assert_eq!(lines(&second.history()), said, "{dialect} to {other}");
        }
        gate.go.notify_one();
        assert_eq!(done(turn).await.text, "fine", "{dialect}");
        sendable(&first.history());
        assert_eq!(results(&first.history()), [ok("a", "x"), ok("b", "open")], "{dialect}");
    }
}

#[tokio::test]
async fn a_conversation_that_ends_at_a_call_can_be_continued() {
    // The state after a host was killed before it saved the result.
    let call = AssistantPart::ToolCall(ToolCall::new("a", "echo", serde_json::Map::new()));
    let left = Conversation::new().with("go").with(AssistantMessage::new(vec![call]));
    for dialect in Dialect::ALL {
        for turn in [|agent: &Agent| agent.resume(), |agent: &Agent| agent.send("well?")] {
            let agent = agent(dialect, [echoing("b", "y"), ScriptedReply::text("fine")]).tool(echo());
            let agent = agent.history(left.clone()).build().expect("an agent");
            assert_eq!(done(turn(&agent)).await.text, "fine", "{dialect}");
            assert_eq!(results(&agent.history()), [ok("b", "y")], "{dialect}");
        }
    }
}

#[tokio::test]
async fn one_conversation_continues_through_all_dialects() {
    let mut history = Conversation::new().with_system("Be brief.");
    for (number, dialect) in Dialect::ALL.into_iter().enumerate() {
        let call =
            ScriptedReply::reasoning("Once more.").and_text("I call.").and_call("a", "echo", json!({"text": "x"}));
        let agent = agent(dialect, [call, ScriptedReply::text(format!("done {number}"))]).tool(echo()).history(history);
        let agent = agent.build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, format!("done {number}"), "{dialect}");
        history = agent.history();
        sendable(&history);
        assert_eq!(history.messages.len(), 4 * (number + 1), "{dialect}");
    }
    assert_eq!(results(&history), vec![ok("a", "x"); 4]);
    assert_eq!(history.system.as_deref(), Some("Be brief."));
}

#[tokio::test]
async fn a_history_is_replaced_after_the_turns_before_it() {
    for dialect in Dialect::ALL {
        let (tool, gate) = gate();
        let replies =
            [ScriptedReply::call("a", "gate", json!({})), ScriptedReply::text("fine"), ScriptedReply::text("anew")];
        let agent = agent(dialect, replies).tool(tool).build().expect("an agent");
        let turn = agent.send("go");
        gate.begun.notified().await;
        let replaced = {
            let agent = agent.clone();
            tokio::spawn(async move { agent.replace_history(Conversation::new().with("once upon a time")).await })
        };
        gate.go.notify_one();
        assert_eq!(done(turn).await.text, "fine", "{dialect}");
        replaced.await.expect("no panic");
        assert_eq!(lines(&agent.history()), ["user: once upon a time"], "{dialect}");
        assert_eq!(done(agent.send("and then?")).await.text, "anew", "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: once upon a time", "user: and then?", "model: anew"], "{dialect}");
    }
}

#[tokio::test]
async fn the_system_prompt_of_the_builder_overrides_a_later_history() {
    for (own, expected) in [(Some("Be brief."), "Be brief."), (None, "Be long.")] {
        let agent = agent(Dialect::Chat, []);
        let agent = own.into_iter().fold(agent, |agent, own| agent.system(own)).build().expect("an agent");
        agent.replace_history(Conversation::new().with_system("Be long.").with("q")).await;
        assert_eq!(agent.history(), Conversation::new().with_system(expected).with("q"));
    }
}

#[tokio::test]
async fn a_dropped_replace_history_keeps_its_place_in_the_queue() {
    for dialect in Dialect::ALL {
        let (tool, gate) = gate();
        let replies =
            [ScriptedReply::call("a", "gate", json!({})), ScriptedReply::text("one"), ScriptedReply::text("two")];
        let agent = agent(dialect, replies).tool(tool).build().expect("an agent");
        let first = agent.send("1");
        gate.begun.notified().await;
        {
            // The future is dropped before the history is replaced.
            let mut replacing = pin!(agent.replace_history(Conversation::new().with("anew")));
            let waits = poll_fn(|cx| Poll::Ready(replacing.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "{dialect}");
        }
        let second = agent.send("2");
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        // The second turn waits for the first.
        assert_eq!(lines(&agent.history()), ["user: 1", "model:  <a>", "tools: <a>"], "{dialect}");
        gate.go.notify_one();
        assert_eq!(done(first).await.text, "one", "{dialect}");
        assert_eq!(done(second).await.text, "two", "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: anew", "user: 2", "model: two"], "{dialect}");
    }
}

#[tokio::test]
async fn a_history_is_complete_at_every_step() {
    for dialect in Dialect::ALL {
        let seen: Arc<Mutex<Vec<(&'static str, Conversation)>>> = Arc::default();
        let (watched, log): (Arc<OnceLock<Agent>>, _) = (Arc::default(), seen.clone());
        let look = watched.clone();
        let both =
            ScriptedReply::text("Both.").and_call("a", "echo", json!({"text": "x"})).and_call("b", "none", json!({}));
        let agent = agent(dialect, [both, ScriptedReply::text("fine")])
            .tool(echo())
            .tracer(move |step| {
                let kind = match step {
                    Step::Answered { .. } => "answered",
                    Step::CallFinished { .. } => "finished",
                    _ => "other",
                };
                let history = look.get().expect("it was told before the first step").history();
                log.lock().expect("no poison").push((kind, history));
            })
            .build()
            .expect("an agent");
        watched.set(agent.clone()).expect("once");
        done(agent.send("go")).await;
        let seen = std::mem::take(&mut *seen.lock().expect("no poison"));
        seen.iter().for_each(|(_, history)| sendable(history));
        // After the step `Answered` the history has the reply, and after `CallFinished` the result.
        let of = |kind: &'static str| seen.iter().filter(move |(other, _)| *other == kind).map(|(_, history)| history);
        let answered: Vec<Vec<String>> = of("answered").map(lines).collect();
        let first = ["user: go", "model: Both. <a> <b>", "tools: <a> <b>"].map(str::to_owned);
        assert_eq!(answered, [first.to_vec(), [&first[..], &["model: fine".to_owned()]].concat()], "{dialect}");
        let finished: Vec<bool> = of("finished").map(|history| results(history).contains(&ok("a", "x"))).collect();
        assert_eq!(finished, [false, true], "{dialect}");
    }
}
