//! Rounds: how the calls of one reply share slots, time and the context window.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::agent::{Agent, Approval, GenerateRequest, Policy, Step, TurnEnd, TurnLimit, TurnLimits, generate};
use ropeway::content::ContentPart;
use ropeway::message::{Conversation, Dialect};
use ropeway::testing::{ScriptedReply, model};
use ropeway::tool::{Arguments, BoxError, CallContext, LocalTool, Progress, ToolDefinition, ToolOutput};
use ropeway_agent::OutputStore;
use serde_json::json;
use tokio::sync::{Notify, oneshot};

use super::kit::{agent, done, failed, ok, results, sendable, tool};

/// Returns a reply with this many calls of one tool.
fn calls(count: usize, tool: &str) -> ScriptedReply {
    (0..count).fold(ScriptedReply::nothing(), |reply, at| reply.and_call(format!("c{at}"), tool, json!({})))
}

/// Returns a tool that takes a second, and the maximum number of its concurrent calls.
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
async fn approved_calls_wait_for_a_slot_like_all_others() {
    for (limits, count, room) in
        [(TurnLimits::default().sequential(), 3, 1), (TurnLimits::default().with_parallel_calls(4), 40, 4)]
    {
        for answer in [Approval::Always, Approval::Allow] {
            let (slow, most) = slow();
            let asked = Arc::new(AtomicUsize::new(0));
            let (counted, approval) = (asked.clone(), answer.clone());
            let agent = agent(Dialect::Chat, [calls(count, "slow"), ScriptedReply::text("fine")])
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

/// Returns a tool that works in another task until its token is cancelled, and a receiver of that cancellation.
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
async fn every_way_to_end_a_call_cancels_its_token() {
    for (limits, end) in [
        (TurnLimits::default(), TurnEnd::Cancelled),
        (
            TurnLimits::default().with_time(Duration::from_secs(7)),
            TurnEnd::Limit(TurnLimit::Time(Duration::from_secs(7))),
        ),
        (
            TurnLimits::default().with_call_time(Duration::from_secs(5)),
            TurnEnd::Done(ropeway::provider::StopReason::EndTurn),
        ),
    ] {
        let (tool, begun, pressed) = elsewhere();
        let agent =
            agent(Dialect::Chat, [calls(1, "elsewhere"), ScriptedReply::text("fine")]).tool(tool).limits(limits);
        let agent = agent.build().expect("an agent");
        let turn = agent.send("go");
        begun.notified().await;
        if end == TurnEnd::Cancelled {
            turn.cancel();
        }
        assert_eq!(done(turn).await.end, end);
        tokio::time::timeout(Duration::from_secs(60), pressed).await.expect("in time").expect("it is told");
    }
}

#[tokio::test]
async fn a_successful_call_does_not_cancel_its_token() {
    let seen: Arc<Mutex<Option<CallContext>>> = Arc::default();
    let keeps = seen.clone();
    let tool = tool("fine", move |_, cx| {
        *keeps.lock().expect("no poison") = Some(cx);
        std::future::ready(Ok("fine"))
    });
    let agent =
        agent(Dialect::Chat, [calls(1, "fine"), ScriptedReply::text("done")]).tool(tool).build().expect("an agent");
    let turn = agent.send("go");
    let control = turn.control();
    done(turn).await;
    control.cancel();
    let cx = seen.lock().expect("no poison").take().expect("it was called");
    assert!(!cx.cancel().expect("a switch").is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_times_out_is_not_reported_as_cancelled() {
    for dialect in Dialect::ALL {
        let swamp = tool("swamp", |_, _| std::future::pending::<Result<String, BoxError>>());
        let asked = tool("asked", |_, _| std::future::ready(Ok("never")));
        let replies = calls(2, "swamp").and_call("a", "asked", json!({})).and_call("b", "asked", json!({}));
        let limits = TurnLimits::default().with_time(Duration::from_secs(7));
        let agent = agent(dialect, [replies, ScriptedReply::text("fine")])
            .tool(swamp)
            .tool(asked)
            .policy(Policy::new().ask("asked"))
            .on_approval(|_| std::future::pending::<Approval>())
            .limits(limits)
            .build()
            .expect("an agent");
        done(agent.send("go")).await;
        let words = |tool, why| format!("Error: tool `{tool}` failed: {why}. Try another way, or tell the user.");
        let late = words("swamp", "it was still running when the turn timed out");
        let unasked = words("asked", "it had not started when the turn timed out");
        let told = [
            failed("c0", &late),
            failed("c1", &late),
            failed("a", &unasked),
            failed("b", "call not made: the turn timed out"),
        ];
        assert_eq!(results(&agent.history()), told, "{dialect}");
        sendable(&agent.history());
    }
}

#[tokio::test]
async fn unread_progress_is_bounded_and_other_steps_are_kept() {
    let flood = tool("flood", |_, cx: CallContext| async move {
        for number in 0..200_000 {
            let message = Some("x".repeat(1000));
            cx.report(Progress { progress: f64::from(number), total: None, message });
        }
        Ok("done".to_owned())
    });
    let agent =
        agent(Dialect::Chat, [calls(2, "flood"), ScriptedReply::text("fine")]).tool(flood).build().expect("an agent");
    let mut turn = agent.send("q");
    // Read nothing until the turn has ended: unmerged, that would be 400 MB of messages.
    while agent.history().messages.last().is_none_or(|last| !format!("{last:?}").contains("fine")) {
        tokio::task::yield_now().await;
    }
    let mut seen: Vec<String> = Vec::new();
    while let Some(step) = turn.next().await {
        seen.push(match step {
            Step::CallProgress { call, progress } => format!("progress {} {}", call.0, progress.progress),
            Step::CallStarted { call, .. } => format!("started {}", call.0),
            Step::CallFinished { call, .. } => format!("finished {}", call.0),
            Step::Text { text } => text,
            _ => continue,
        });
    }
    let place = |step: &str| seen.iter().position(|seen| seen == step).unwrap_or_else(|| panic!("{step}: {seen:?}"));
    for call in ["c0", "c1"] {
        let steps = ["started", "progress", "finished"].map(|step| match step {
            "progress" => place(&format!("progress {call} 199999")),
            step => place(&format!("{step} {call}")),
        });
        assert!(steps.is_sorted(), "{seen:?}");
    }
    assert_eq!((seen.len(), seen.last().map(String::as_str)), (7, Some("fine")));
}

/// Returns a tool that repeats its letter 60,000 times.
fn letters() -> LocalTool {
    tool("letters", |arguments: Arguments, _| {
        std::future::ready(Ok(arguments["letter"].as_str().unwrap_or_default().repeat(60_000)))
    })
}

/// Returns a reply with one call for each letter.
fn writing(letters: &[&str]) -> ScriptedReply {
    letters
        .iter()
        .fold(ScriptedReply::nothing(), |reply, letter| reply.and_call(*letter, "letters", json!({"letter": letter})))
}

/// Returns a store with named files.
fn named() -> OutputStore {
    OutputStore::new().with_parent_folder(std::env::temp_dir())
}

/// Returns the names of all stored files.
fn stored_files(agent: &Agent) -> Vec<String> {
    let folder = agent.spill_folder().expect("an output is stored");
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_output_is_truncated_once_with_a_correct_notice() {
    let letters_of = ["a", "b", "c", "d", "e"];
    // Four outputs have 50,000 bytes each; five share 200,000.
    for (count, shown) in [(4, 50_000), (5, 40_000)] {
        let written = &letters_of[..count];
        let agent = agent(Dialect::Chat, [writing(written), ScriptedReply::text("done")]).tool(letters());
        let agent = agent.spill(named()).build().expect("an agent");
        done(agent.send("q")).await;
        let files = stored_files(&agent);
        assert_eq!(files, (1..=count).map(|number| format!("o{number}.txt")).collect::<Vec<_>>());
        let folder = agent.spill_folder().expect("a folder");
        for (letter, (call, told, _)) in written.iter().zip(results(&agent.history())) {
            let whole = letter.repeat(60_000);
            let file = files.iter().find(|file| std::fs::read_to_string(folder.join(file)).is_ok_and(|it| it == whole));
            let name = file.and_then(|file| file.strip_suffix(".txt")).expect("it is stored whole");
            let line = format!(
                "[{},000 of 60,000 bytes omitted; call `read_more` with output \"{name}\" and from {shown} to continue]",
                (60_000 - shown) / 1000
            );
            assert_eq!((call.as_str(), told), (*letter, format!("{}\n{line}", letter.repeat(shown))));
        }
    }
}

#[tokio::test]
async fn generate_reports_how_much_of_an_output_was_dropped() {
    let provider = model(Dialect::Chat, [writing(&["a", "b", "c", "d", "e"]), ScriptedReply::text("done")]);
    let request = GenerateRequest::new("m", Conversation::new().with("q")).with_tools([ToolDefinition::new("letters")]);
    let generated = generate(&provider, request, |_| async { Ok(Some(ToolOutput::text("x".repeat(60_000)))) }).await;
    let told = format!("{}\n[20,000 of 60,000 bytes omitted]", "x".repeat(40_000));
    let expected = ["a", "b", "c", "d", "e"].map(|call| ok(call, &told));
    assert_eq!(results(&generated.expect("an outcome").conversation), expected);
}

#[tokio::test]
async fn pages_that_exceed_the_budget_together_are_shortened() {
    let long = tool("long", |_, _| std::future::ready(Ok("x".repeat(300_000))));
    let page = |reply: ScriptedReply, at: usize| {
        reply.and_call(format!("p{at}"), "read_more", json!({"output": "o1", "from": at * 50_000}))
    };
    let replies = [calls(1, "long"), (0..5).fold(ScriptedReply::nothing(), page), ScriptedReply::text("done")];
    let agent = agent(Dialect::Chat, replies).tool(long).spill(named()).build().expect("an agent");
    done(agent.send("q")).await;
    let line = |start: usize| {
        let [from, to] = [start * 50, start * 50 + 40].map(|thousands| match thousands {
            0 => "0".to_owned(),
            thousands => format!("{thousands},000"),
        });
        format!("[bytes {from} to {to} of 300,000 of output \"o1\"; continue with from {}]", start * 50_000 + 40_000)
    };
    let pages: Vec<_> =
        (0..5).map(|at| ok(&format!("p{at}"), &format!("{}\n{}", "x".repeat(40_000), line(at)))).collect();
    assert_eq!(results(&agent.history())[1..], pages);
    assert_eq!(stored_files(&agent), ["o1.txt"]);
}

#[tokio::test]
async fn an_output_with_too_many_parts_is_stored_once() {
    let parts = tool("parts", |_, _| std::future::ready(Ok(vec![ContentPart::text("x"); 1500])));
    let agent = agent(Dialect::Chat, [calls(1, "parts"), ScriptedReply::text("done")]).tool(parts).spill(named());
    let agent = agent.build().expect("an agent");
    done(agent.send("q")).await;
    let line = "[999 of 2,999 bytes omitted; call `read_more` with output \"o1\" and from 2000 to continue]";
    let told = results(&agent.history()).remove(0).1;
    assert!(told.ends_with(line), "{told}");
    assert_eq!(stored_files(&agent), ["o1.txt"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_balances_its_results_too() {
    for is_cancelled in [true, false] {
        let letters = letters();
        let swamp = tool("swamp", |_, _| std::future::pending::<Result<String, BoxError>>());
        let many: Vec<&str> = vec!["x"; 39];
        let calls = many.iter().enumerate().fold(calls(1, "swamp"), |reply, (at, letter)| {
            reply.and_call(format!("l{at}"), "letters", json!({"letter": letter}))
        });
        let limits =
            TurnLimits::default().with_time(Duration::from_secs(600)).with_call_time(Duration::from_secs(6000));
        let agent = agent(Dialect::Chat, [calls, ScriptedReply::text("done")]).tool(letters).tool(swamp).limits(limits);
        let agent = agent.spill(named()).build().expect("an agent");
        let mut turn = agent.send("q");
        let mut finished = 0;
        while finished < 39 {
            let step = turn.next().await.expect("a step");
            finished += usize::from(matches!(step, Step::CallFinished { .. }));
        }
        let meanwhile: usize = results(&agent.history()).iter().map(|(_, told, _)| told.len()).sum();
        assert!((39 * 50_000..40 * 50_200).contains(&meanwhile), "each is within its own budget: {meanwhile}");
        if is_cancelled {
            turn.cancel();
        }
        let end = done(turn).await.end;
        assert_eq!(end == TurnEnd::Cancelled, is_cancelled, "{end:?}");
        let told = results(&agent.history());
        let shown = 200_000 / 39;
        let lengths: Vec<usize> = told[1..].iter().map(|(_, told, _)| told.matches('x').count()).collect();
        assert_eq!(lengths, [shown; 39]);
        assert_eq!(stored_files(&agent).len(), 39);
        sendable(&agent.history());
    }
}
