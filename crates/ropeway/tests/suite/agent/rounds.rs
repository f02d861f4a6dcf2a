//! Rounds: how the calls of one answer share the room that they have, in time and in the model's window.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::agent::{Approval, End, Limit, Limits, Policy};
use ropeway::message::Dialect;
use ropeway::testing::Saying;
use ropeway::tool::{BoxError, CallContext, LocalTool};
use serde_json::json;
use tokio::sync::{Notify, oneshot};

use super::kit::{agent, done, failed, ok, results, sendable, tool};

/// So many calls of one tool at once.
fn calls(count: usize, tool: &str) -> Saying {
    (0..count).fold(Saying::nothing(), |saying, at| saying.and_call(format!("c{at}"), tool, json!({})))
}

/// A tool that takes a second, and how many of its calls ran at most.
fn slow() -> (LocalTool, Arc<AtomicUsize>) {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let tool = tool("slow", move |_, _| {
        let (running, most) = (running.clone(), most.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok("slowly")
        }
    });
    (tool, seen)
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_agreed_to_wait_for_their_room_like_all_others() {
    for (limits, count, room) in
        [(Limits::default().sequential(), 3, 1), (Limits::default().with_parallel_calls(4), 40, 4)]
    {
        for answer in [Approval::Always, Approval::Allow] {
            let (slow, most) = slow();
            let asked = Arc::new(AtomicUsize::new(0));
            let (counted, approval) = (asked.clone(), answer.clone());
            let agent = agent(Dialect::Chat, [calls(count, "slow"), Saying::text("fine")])
                .tool(slow)
                .policy(Policy::new().ask("*"))
                .on_approval(move |_| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(approval.clone())
                })
                .limits(limits.clone())
                .build()
                .expect("an agent");
            let begun = tokio::time::Instant::now();
            assert_eq!(done(agent.send("go")).await.text, "fine");
            let took = Duration::from_secs((count / room) as u64);
            assert_eq!((most.load(Ordering::SeqCst), begun.elapsed()), (room, took), "{answer:?}");
            let times = if answer == Approval::Always { 1 } else { count };
            assert_eq!(asked.load(Ordering::SeqCst), times, "{answer:?}");
            let told: Vec<_> = (0..count).map(|at| ok(&format!("c{at}"), "slowly")).collect();
            assert_eq!(results(&agent.history()), told);
        }
    }
}

/// A tool whose work is done elsewhere, until its switch is pressed: then it is told.
fn elsewhere() -> (LocalTool, Arc<Notify>, oneshot::Receiver<()>) {
    let (pressed, heard) = oneshot::channel::<()>();
    let (pressed, begun) = (Mutex::new(Some(pressed)), Arc::new(Notify::new()));
    let told = begun.clone();
    let tool = tool("elsewhere", move |_, cx: CallContext| {
        let pressed = pressed.lock().expect("no poison").take();
        let switch = cx.cancel().expect("a switch").clone();
        tokio::spawn(async move {
            switch.cancelled().await;
            pressed.map(|pressed| pressed.send(()))
        });
        told.notify_one();
        std::future::pending::<Result<String, BoxError>>()
    });
    (tool, begun, heard)
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_a_call_presses_its_switch() {
    for (limits, end) in [
        (Limits::default(), End::Cancelled),
        (Limits::default().with_time(Duration::from_secs(7)), End::Limit(Limit::Time(Duration::from_secs(7)))),
        (Limits::default().with_call_time(Duration::from_secs(5)), End::Done(ropeway::provider::StopReason::EndTurn)),
    ] {
        let (tool, begun, pressed) = elsewhere();
        let agent = agent(Dialect::Chat, [calls(1, "elsewhere"), Saying::text("fine")]).tool(tool).limits(limits);
        let agent = agent.build().expect("an agent");
        let turn = agent.send("go");
        begun.notified().await;
        if end == End::Cancelled {
            turn.cancel();
        }
        assert_eq!(done(turn).await.end, end);
        tokio::time::timeout(Duration::from_secs(60), pressed).await.expect("in time").expect("it is told");
    }
}

#[tokio::test]
async fn a_call_that_went_well_leaves_its_switch_alone() {
    let seen: Arc<Mutex<Option<CallContext>>> = Arc::default();
    let keeps = seen.clone();
    let tool = tool("fine", move |_, cx| {
        *keeps.lock().expect("no poison") = Some(cx);
        std::future::ready(Ok("fine"))
    });
    let agent = agent(Dialect::Chat, [calls(1, "fine"), Saying::text("done")]).tool(tool).build().expect("an agent");
    let turn = agent.send("go");
    let control = turn.control();
    done(turn).await;
    control.cancel();
    let cx = seen.lock().expect("no poison").take().expect("it was called");
    assert!(!cx.cancel().expect("a switch").is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_time_is_over_is_not_told_as_cancelled() {
    for dialect in Dialect::ALL {
        let swamp = tool("swamp", |_, _| std::future::pending::<Result<String, BoxError>>());
        let asked = tool("asked", |_, _| std::future::ready(Ok("never")));
        let sayings = calls(2, "swamp").and_call("a", "asked", json!({})).and_call("b", "asked", json!({}));
        let limits = Limits::default().with_time(Duration::from_secs(7));
        let agent = agent(dialect, [sayings, Saying::text("fine")])
            .tool(swamp)
            .tool(asked)
            .policy(Policy::new().ask("asked"))
            .on_approval(|_| std::future::pending::<Approval>())
            .limits(limits)
            .build()
            .expect("an agent");
        done(agent.send("go")).await;
        let words = |tool, why| format!("Error: tool `{tool}` failed: {why}. Try another way, or tell the user.");
        let late = words("swamp", "it had given no answer when the turn's time was over");
        let unasked = words("asked", "it had not begun when the turn's time was over");
        let told = [
            failed("c0", &late),
            failed("c1", &late),
            failed("a", &unasked),
            failed("b", "the call was not made: the turn's time was over"),
        ];
        assert_eq!(results(&agent.history()), told, "{dialect}");
        sendable(&agent.history());
    }
}
