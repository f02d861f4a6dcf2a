//! Models that call unknown tools, send malformed calls, or never end.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway::agent::{TurnEnd, TurnLimit, TurnLimits};
use ropeway::message::{Dialect, Message};
use ropeway::provider::StopReason;
use ropeway::testing::ScriptedReply;
use ropeway::tool::{Arguments, LocalTool, ToolDefinition};
use serde_json::json;

use super::kit::{agent, done, echo, echoing, failed, lines, ok, results, sendable, tool};

/// Returns a tool that counts its calls.
fn counting(name: &str) -> (LocalTool, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tool = LocalTool::new(ToolDefinition::new(name).with_input_schema(schema), move |_, _| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(number.to_string()) }
    });
    (tool, calls)
}

#[tokio::test]
async fn an_unknown_tool_is_reported_with_the_nearest_name() {
    for dialect in Dialect::ALL {
        let replies =
            [ScriptedReply::call("a", "ecko", json!({"text": "x"})), echoing("b", "x"), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(echo()).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
        let unknown = "Error: unknown tool `ecko`. Did you mean `echo`? Call only tools that you were offered, by their exact names.";
        assert_eq!(results(&agent.history()), [failed("a", unknown), ok("b", "x")], "{dialect}");
    }
}

#[tokio::test]
async fn a_model_that_repeats_itself_reaches_a_limit() {
    for dialect in Dialect::ALL {
        let replies = (0..20).map(|number| echoing(&format!("c{number}"), "again"));
        let agent = agent(dialect, replies).tool(echo()).limits(TurnLimits::default().with_repeats(3));
        let agent = agent.build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Repeats(3)), 4), "{dialect}");
        sendable(&agent.history());
        let refused = "call not made: repeated the same calls 3 times with the same results";
        let told = [ok("c0", "again"), ok("c1", "again"), ok("c2", "again"), failed("c3", refused)];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}

#[tokio::test]
async fn a_model_that_never_ends_reaches_the_step_limit() {
    for dialect in Dialect::ALL {
        let replies = (0..20).map(|number| ScriptedReply::call(format!("c{number}"), "next", json!({})));
        let (next, calls) = counting("next");
        let agent = agent(dialect, replies).tool(next).limits(TurnLimits::default().with_steps(4));
        let agent = agent.build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Steps(4)), 4), "{dialect}");
        // The last calls are not made: no model request would follow.
        assert_eq!(calls.load(Ordering::SeqCst), 3, "{dialect}");
        sendable(&agent.history());
        let limit = failed("c3", "call not made: reached the limit of 4 steps");
        assert_eq!(results(&agent.history()), [ok("c0", "0"), ok("c1", "1"), ok("c2", "2"), limit], "{dialect}");
    }
}

#[tokio::test]
async fn malformed_arguments_are_reported_and_not_sent() {
    for dialect in Dialect::ALL {
        let (next, calls) = counting("next");
        let broken = ScriptedReply::written_call("a", "next", "{\"n\": ").and_written_call("b", "next", "[1]");
        let agent = agent(dialect, [broken, ScriptedReply::text("fine")]).tool(next).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{dialect}");
        sendable(&agent.history());
        let told = |problem: &str| {
            format!(
                "Error: invalid arguments for tool `next`, which was not called.\n- {problem}\n\
                 Correct the arguments and call the tool again."
            )
        };
        // Gemini cannot send half an object.
        let half = match dialect {
            Dialect::Gemini => "the arguments must be a JSON object, not a string",
            _ => "the arguments are not valid JSON: EOF while parsing a value at line 1 column 6",
        };
        let list = "the arguments must be a JSON object, not an array";
        assert_eq!(results(&agent.history()), [failed("a", &told(half)), failed("b", &told(list))], "{dialect}");
    }
}

#[tokio::test]
async fn arguments_that_are_not_an_object_are_reported_and_not_sent() {
    for dialect in Dialect::ALL {
        let (next, calls) = counting("next");
        let replies = [ScriptedReply::call("a", "next", json!({"n": {"of": "them"}})), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(next).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{dialect}");
        sendable(&agent.history());
        let [(call, told, is_error)] = results(&agent.history()).try_into().expect("one result");
        assert_eq!((call.as_str(), is_error), ("a", true), "{dialect}");
        assert!(
            told.starts_with("Error: invalid arguments for tool `next`, which was not called.\n- at `/n`: "),
            "{told}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn forty_calls_run_within_limits_and_report_in_order() {
    for dialect in Dialect::ALL {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = most.clone();
        // Later calls end sooner.
        let slow = tool("slow", move |arguments: Arguments, _| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                let number = arguments["n"].as_u64().unwrap_or_default();
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1_000 - 10 * number)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(number.to_string())
            }
        });
        let asked = (0..40).fold(ScriptedReply::nothing(), |reply, number| {
            reply.and_call(format!("c{number}"), "slow", json!({"n": number}))
        });
        let limits = TurnLimits::default().with_parallel_calls(8);
        let agent =
            agent(dialect, [asked, ScriptedReply::text("fine")]).tool(slow).limits(limits).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        assert_eq!(seen.load(Ordering::SeqCst), 8, "{dialect}");
        sendable(&agent.history());
        let expected: Vec<_> = (0..40).map(|number| ok(&format!("c{number}"), &number.to_string())).collect();
        assert_eq!(results(&agent.history()), expected, "{dialect}");
    }
}

#[tokio::test]
async fn two_calls_with_the_same_id_are_both_made_and_answered() {
    for dialect in Dialect::ALL {
        let twice = echoing("a", "one").and_call("a", "echo", json!({"text": "two"}));
        let again = echoing("a", "three");
        let agent = agent(dialect, [twice, again, ScriptedReply::text("fine")]).tool(echo()).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
        assert_eq!(results(&agent.history()), [ok("a", "one"), ok("a", "two"), ok("a", "three")], "{dialect}");
    }
}

#[tokio::test]
async fn calls_without_ids_get_distinct_ids() {
    for dialect in Dialect::ALL {
        let twice = echoing("", "one").and_call("", "echo", json!({"text": "two"}));
        let agent = agent(dialect, [twice, echoing("", "three"), ScriptedReply::text("fine")]).tool(echo());
        let agent = agent.build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
        let (ids, told): (HashSet<String>, Vec<String>) =
            results(&agent.history()).into_iter().map(|(id, text, _)| (id, text)).unzip();
        assert_eq!((ids.len(), told), (3, ["one", "two", "three"].map(str::to_owned).to_vec()), "{dialect}");
    }
}

#[tokio::test]
async fn an_empty_reply_ends_the_turn() {
    for dialect in Dialect::ALL {
        let agent = agent(dialect, [ScriptedReply::nothing(), ScriptedReply::text("now")]).build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.text.as_str(), outcome.end), ("", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
        sendable(&agent.history());
        assert_eq!(done(agent.send("well?")).await.text, "now", "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go", "user: well?", "model: now"], "{dialect}");
    }
}

#[tokio::test]
async fn a_truncated_call_is_not_made() {
    for dialect in Dialect::ALL {
        let (next, calls) = counting("next");
        let cut = ScriptedReply::written_call("a", "next", "{\"n\": 1").stopping(StopReason::MaxTokens);
        let agent = agent(dialect, [cut, ScriptedReply::text("fine")]).tool(next).build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{dialect}");
        sendable(&agent.history());
        assert!(results(&agent.history())[0].2, "{dialect}");
    }
}

#[tokio::test]
async fn the_outcome_has_the_stop_reason() {
    for dialect in Dialect::ALL {
        for stop in [StopReason::MaxTokens, StopReason::Refusal] {
            let told = match (dialect, &stop) {
                (Dialect::Gemini, StopReason::Refusal) => StopReason::ContentFilter,
                _ => stop.clone(),
            };
            let replies = [ScriptedReply::text("No more").stopping(stop), ScriptedReply::text("fine")];
            let agent = agent(dialect, replies).build().expect("an agent");
            let outcome = done(agent.send("go")).await;
            assert_eq!((outcome.text.as_str(), outcome.end), ("No more", TurnEnd::Done(told)), "{dialect}");
            sendable(&agent.history());
            assert_eq!(done(agent.send("well?")).await.text, "fine", "{dialect}");
            sendable(&agent.history());
        }
    }
}

#[tokio::test]
async fn opaque_parts_of_a_model_stay_in_the_history() {
    for dialect in Dialect::ALL {
        let thinking = ScriptedReply::reasoning("An echo is due.").and_call("a", "echo", json!({"text": "x"}));
        let agent = agent(dialect, [thinking, ScriptedReply::text("fine")]).tool(echo()).build().expect("an agent");
        done(agent.send("go")).await;
        sendable(&agent.history());
        let history = agent.history();
        let Message::Assistant(answer) = &history.messages[1] else { panic!("an answer") };
        let from = answer.from.as_ref().expect("a speaker");
        assert_eq!((from.dialect, answer.parts.len()), (dialect, 2), "{dialect}");
    }
}

#[tokio::test]
async fn a_paused_reply_is_continued() {
    // Only these dialects pause; Gemini continues within one reply.
    let dialect = Dialect::Anthropic;
    let paused = ScriptedReply::text("I am still looking.").stopping(StopReason::Pause);
    let agent = agent(dialect, [paused, ScriptedReply::text("fine")]).build().expect("an agent");
    let outcome = done(agent.send("go")).await;
    assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)));
    assert_eq!(outcome.steps, 2);
    sendable(&agent.history());
    assert_eq!(lines(&agent.history()), ["user: go", "model: I am still looking.", "model: fine"]);
}
