//! Limits: each ends a turn, is named in the outcome, and leaves a history that can be continued.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::agent::{Agent, Approval, Policy, TurnEnd, TurnLimit, TurnLimits};
use ropeway::message::Dialect;
use ropeway::provider::{Provider, ProviderSettings, StopReason};
use ropeway::testing::{ModelAnswer, ModelServer, ScriptedReply};
use ropeway::tool::{Arguments, BoxError, LocalTool};
use serde_json::json;

use super::kit::{agent, done, echo, echoing, failed, lines, ok, results, sendable, tool};

#[tokio::test]
async fn the_step_limit_ends_a_turn_and_the_next_turn_starts_over() {
    for dialect in Dialect::ALL {
        let replies = [echoing("a", "x"), echoing("b", "y"), ScriptedReply::text("fine")];
        let agent = agent(dialect, replies).tool(echo()).limits(TurnLimits::default().with_steps(1));
        let agent = agent.build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Steps(1)), 1), "{dialect}");
        sendable(&agent.history());
        let outcome = done(agent.resume()).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Steps(1)), 1), "{dialect}");
        let outcome = done(agent.resume()).await;
        assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
        sendable(&agent.history());
        let words = "call not made: reached the limit of 1 step";
        assert_eq!(results(&agent.history()), [failed("a", words), failed("b", words)], "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_turn_in_the_middle_of_a_call() {
    for dialect in Dialect::ALL {
        let swamp = tool("swamp", |_, _| std::future::pending::<Result<String, BoxError>>());
        let both = ScriptedReply::call("a", "swamp", json!({})).and_call("b", "echo", json!({"text": "x"}));
        let limits = TurnLimits::default().with_time(Duration::from_secs(7));
        let agent = agent(dialect, [both, ScriptedReply::text("fine")]).tool(swamp).tool(echo()).limits(limits);
        let agent = agent.build().expect("an agent");
        let begun = tokio::time::Instant::now();
        let outcome = done(agent.send("go")).await;
        assert_eq!(outcome.end, TurnEnd::Limit(TurnLimit::Time(Duration::from_secs(7))), "{dialect}");
        assert_eq!(begun.elapsed(), Duration::from_secs(7), "{dialect}");
        sendable(&agent.history());
        let [(call, _, is_error), second] = results(&agent.history()).try_into().expect("two results");
        assert_eq!((call.as_str(), is_error, second), ("a", true, ok("b", "x")), "{dialect}");
        assert_eq!(done(agent.send("well?")).await.text, "fine", "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_turn_that_awaits_approval() {
    for dialect in Dialect::ALL {
        let time = Duration::from_secs(7);
        let agent = agent(dialect, [echoing("a", "x"), ScriptedReply::text("fine")])
            .tool(echo())
            .policy(Policy::new().ask("*"))
            .on_approval(|_| std::future::pending::<Approval>())
            .limits(TurnLimits::default().with_time(time))
            .build()
            .expect("an agent");
        assert_eq!(done(agent.send("go")).await.end, TurnEnd::Limit(TurnLimit::Time(time)), "{dialect}");
        sendable(&agent.history());
        let told: Vec<bool> = results(&agent.history()).into_iter().map(|(_, _, is_error)| is_error).collect();
        assert_eq!(told, [true], "{dialect}");
        assert_eq!(done(agent.send("well?")).await.text, "fine", "{dialect}");
    }
}

#[tokio::test]
async fn the_time_limit_ends_a_turn_whose_model_hangs() {
    for dialect in Dialect::ALL {
        let server = ModelServer::start([ModelAnswer::silence()]).await;
        let server = server.expect("a port");
        let settings = ProviderSettings::new(dialect).with_base_url(server.url()).with_key("a-key-for-tests");
        let time = Duration::from_millis(100);
        let agent = Agent::builder().provider(Provider::new(settings).expect("a provider")).model("m");
        let agent = agent.limits(TurnLimits::default().with_time(time)).build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Time(time)), 1), "{dialect}");
        sendable(&agent.history());
        assert_eq!(lines(&agent.history()), ["user: go"], "{dialect}");
        server.left().await;
    }
}

#[tokio::test]
async fn the_token_limit_ends_a_turn_after_the_reply_that_exceeds_it() {
    for dialect in Dialect::ALL {
        let replies = [
            echoing("a", "x").costing(60, 20),
            echoing("b", "y").costing(90, 20),
            ScriptedReply::text("fine").costing(100, 1),
        ];
        let agent = agent(dialect, replies).tool(echo()).limits(TurnLimits::default().with_tokens(150));
        let agent = agent.build().expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.end, outcome.steps), (TurnEnd::Limit(TurnLimit::Tokens(150)), 2), "{dialect}");
        assert_eq!((outcome.usage.input, outcome.usage.output), (150, 40), "{dialect}");
        sendable(&agent.history());
        let words = "call not made: reached the limit of 150 tokens";
        assert_eq!(results(&agent.history()), [ok("a", "x"), failed("b", words)], "{dialect}");
        assert_eq!(done(agent.resume()).await.text, "fine", "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn a_reply_without_calls_beyond_a_limit_is_complete() {
    for dialect in Dialect::ALL {
        let limits = TurnLimits::default().with_tokens(10).with_steps(1);
        let agent =
            agent(dialect, [ScriptedReply::text("fine").costing(60, 20)]).limits(limits).build().expect("an agent");
        assert_eq!(done(agent.send("go")).await.end, TurnEnd::Done(StopReason::EndTurn), "{dialect}");
        sendable(&agent.history());
    }
}

/// Returns a tool that takes a second, the maximum number of concurrent calls, and a log of starts and ends.
fn slow() -> (LocalTool, Arc<AtomicUsize>, Arc<Mutex<Vec<String>>>) {
    let (running, most, log) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::default());
    let (seen, written): (_, Arc<Mutex<Vec<String>>>) = (most.clone(), Arc::clone(&log));
    let tool = tool("slow", move |arguments: Arguments, _| {
        let (running, most, log) = (running.clone(), most.clone(), log.clone());
        async move {
            let name = arguments["n"].to_string();
            log.lock().expect("no poison").push(format!("{name} begins"));
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            log.lock().expect("no poison").push(format!("{name} ends"));
            Ok(name)
        }
    });
    (tool, seen, written)
}

fn calls(count: usize) -> ScriptedReply {
    (0..count).fold(ScriptedReply::nothing(), |reply, number| {
        reply.and_call(format!("c{number}"), "slow", json!({"n": number}))
    })
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_step_run_concurrently() {
    for dialect in Dialect::ALL {
        let (slow, most, _) = slow();
        let agent = agent(dialect, [calls(32), ScriptedReply::text("fine")]).tool(slow).build().expect("an agent");
        let begun = tokio::time::Instant::now();
        done(agent.send("go")).await;
        assert_eq!((begun.elapsed(), most.load(Ordering::SeqCst)), (Duration::from_secs(1), 32), "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited() {
    for dialect in Dialect::ALL {
        let (slow, most, _) = slow();
        let limits = TurnLimits::default().with_parallel_calls(3);
        let agent = agent(dialect, [calls(7), ScriptedReply::text("fine")]).tool(slow).limits(limits).build();
        let agent = agent.expect("an agent");
        let begun = tokio::time::Instant::now();
        done(agent.send("go")).await;
        assert_eq!((begun.elapsed(), most.load(Ordering::SeqCst)), (Duration::from_secs(3), 3), "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test(start_paused = true)]
async fn sequential_calls_run_in_order() {
    for dialect in Dialect::ALL {
        let (slow, most, log) = slow();
        let agent = agent(dialect, [calls(3), ScriptedReply::text("fine")])
            .tool(slow)
            .limits(TurnLimits::default().sequential());
        let agent = agent.build().expect("an agent");
        done(agent.send("go")).await;
        let log = std::mem::take(&mut *log.lock().expect("no poison"));
        assert_eq!(log, ["0 begins", "0 ends", "1 begins", "1 ends", "2 begins", "2 ends"], "{dialect}");
        assert_eq!(most.load(Ordering::SeqCst), 1, "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_of_a_step_are_reported_as_not_made() {
    for dialect in Dialect::ALL {
        let (slow, _, log) = slow();
        let limits = TurnLimits::default().with_calls_per_step(2);
        let agent = agent(dialect, [calls(4), ScriptedReply::text("fine")]).tool(slow).limits(limits).build();
        let agent = agent.expect("an agent");
        let outcome = done(agent.send("go")).await;
        assert_eq!((outcome.text.as_str(), outcome.end), ("fine", TurnEnd::Done(StopReason::EndTurn)), "{dialect}");
        assert_eq!(log.lock().expect("no poison").len(), 4, "{dialect}");
        sendable(&agent.history());
        let words = "call not made: at most 2 calls per step";
        let told = [ok("c0", "0"), ok("c1", "1"), failed("c2", words), failed("c3", words)];
        assert_eq!(results(&agent.history()), told, "{dialect}");
    }
}
