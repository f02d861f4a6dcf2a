//! State that an agent's handles and turns share: the turn queue, and the preparation for each turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::agent_loop::AgentLoop;
use super::context::AgentContext;
use super::history::History;
use super::input::TurnInput;
use super::sources::{SourceFailures, Sources};
use super::step::Step;
use super::turn::{AgentError, StepSink, Tracer, TurnControl, TurnEnd, TurnOutcome, TurnTask};
use super::turn_context::TurnContext;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::duration::format_duration;
use ropeway_core::event::Events;
use ropeway_core::sync::OnDrop;
use ropeway_core::tool::TraceParent;
use ropeway_mcp::Handlers;

/// How long a turn waits for servers that an earlier turn has given up on.
const SHORT_WAIT: Duration = Duration::from_millis(300);

/// Minimum time that a turn waits for context, even if the servers used up the time.
const MIN_CONTEXT_WAIT: Duration = Duration::from_secs(1);

/// The state that all handles and turns of an agent share.
pub(super) struct AgentShared {
    pub(super) agent_loop: Arc<AgentLoop>,
    pub(super) history: History,
    /// The builder's system prompt. It overrides a history's.
    pub(super) system: Option<String>,
    pub(super) sources: Sources,
    /// Handlers for servers that are added later.
    pub(super) handlers: Handlers,
    pub(super) events: Events,
    pub(super) tracer: Option<Tracer>,
    pub(super) traceparent: Option<TraceParent>,
    pub(super) queue: Mutex<TurnQueue>,
}

/// The turns that have not ended.
#[derive(Default)]
pub(super) struct TurnQueue {
    /// Closes when the turn that was sent last ends.
    pub(super) last: Option<oneshot::Receiver<()>>,
    pub(super) controls: Vec<TurnControl>,
}

impl AgentShared {
    /// Runs one turn, after those before it in the queue.
    pub(super) async fn run(
        self: Arc<Self>,
        task: TurnTask,
        previous: Option<oneshot::Receiver<()>>,
        done: oneshot::Sender<()>,
        input: Option<TurnInput>,
    ) {
        let TurnTask { sink, control, outcome } = task;
        // Marks the turn as ended, even if its task panics.
        let end_guard = OnDrop(|| control.end());
        let mut previous = std::pin::pin!(wait_for(previous));
        let early_end = tokio::select! {
            biased;
            () = control.cancel.cancelled() => Some(TurnEnd::Cancelled),
            () = control.stop.cancelled() => Some(TurnEnd::Stopped),
            () = &mut previous => None,
        };
        if let Some(end) = early_end {
            drop(sink);
            drop(end_guard);
            let _ = outcome.send(Ok(TurnOutcome::empty(end)));
            // Keeps `done` until then: the next turn must not overtake those before this one.
            previous.await;
            return;
        }
        let result = self.turn(input, &sink, &control).await;
        drop(sink);
        drop(end_guard);
        drop(done);
        let _ = outcome.send(result);
    }

    async fn turn(
        &self,
        input: Option<TurnInput>,
        sink: &StepSink,
        control: &TurnControl,
    ) -> Result<TurnOutcome, AgentError> {
        let deadline = self.agent_loop.limits.time.and_then(|time| Instant::now().checked_add(time));
        // A turn whose task was aborted may have left calls without results.
        self.history.close_calls();
        let traceparent = input.as_ref().and_then(|input| input.traceparent).or(self.traceparent);
        match input {
            Some(input) if !input.messages.is_empty() => self.history.extend(input.messages),
            _ if self.history.needs_reply() => {}
            _ => return Err(AgentError::NothingToAnswer),
        }
        let no_tools = Default::default();
        let sources = Some(&self.sources);
        let turn =
            TurnContext { history: &self.history, tools: &no_tools, sources, sink, control, deadline, traceparent };
        let interrupted = tokio::select! {
            biased;
            why = turn.interrupted() => Some(why),
            () = self.prepare(sink) => None,
        };
        if let Some(why) = interrupted {
            return Ok(TurnOutcome::empty(self.agent_loop.turn_end(why)));
        }
        let missing: Vec<ServerStatus> = self.sources.statuses().into_iter().filter(ServerStatus::is_missing).collect();
        if let Some(required) = missing.iter().find(|server| server.required) {
            return Err(self.unavailable(required));
        }
        let tools = self.sources.exposed_tools();
        self.sources.take_collisions().iter().for_each(|collision| sink.warn(collision.to_string()));
        let outcome = self.agent_loop.run_turn(&TurnContext { tools: &tools, ..turn }).await?;
        Ok(TurnOutcome { missing, ..outcome })
    }

    fn unavailable(&self, status: &ServerStatus) -> AgentError {
        let cause = match &status.state {
            ServerState::Down { cause } => cause.clone(),
            ServerState::Connecting => {
                format!("not connected within {}", format_duration(self.agent_loop.limits.connect_time))
            }
            outcome => format!("it {outcome}"),
        };
        AgentError::RequiredServer { server: status.server.clone(), source: cause.into() }
    }

    /// Waits for the servers, and puts their context before the conversation.
    async fn prepare(&self, sink: &StepSink) {
        let connect_time = self.agent_loop.limits.connect_time;
        let waiting = self.sources.waiting();
        let wait = if self.sources.gave_up_on(&waiting) { SHORT_WAIT.min(connect_time) } else { connect_time };
        let until = Instant::now().checked_add(wait);
        let SourceFailures { late, panicked } = self.sources.ready(until).await;
        self.sources.required(Instant::now().checked_add(connect_time).max(until)).await;
        if late > 0 {
            let waiting = self.sources.waiting();
            let is_known = self.sources.gave_up_on(&waiting) && !waiting.is_empty();
            let late = match &waiting[..] {
                [] => count(late, "tool source"),
                [server] => format!("server {server}"),
                servers => format!("servers {}", servers.join(", ")),
            };
            if !is_known {
                sink.warn(format!("{late} not ready after {}; skipped for this turn", format_duration(wait)));
            }
            self.sources.give_up_on(waiting);
        }
        if panicked > 0 {
            sink.warn(format!("{} panicked while starting", count(panicked, "tool source")));
        }
        if let Some(statuses) = self.sources.changed_status() {
            sink.send(Step::Servers { statuses });
        }
        let until = until.map(|until| until.max(Instant::now() + MIN_CONTEXT_WAIT));
        let (items, SourceFailures { late, panicked }) = self.sources.context(until).await;
        for (failed, problem) in [(late, "timed out"), (panicked, "panicked")] {
            if failed > 0 {
                sink.warn(format!("{} {problem}; using previous content", count(failed, "context source")));
            }
        }
        self.history.set_context(AgentContext::from_items(items));
    }
}

/// Returns a number with its noun, such as `2 tool sources`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Waits until the previous turn ends, which drops its sender.
pub(super) async fn wait_for(previous: Option<oneshot::Receiver<()>>) {
    if let Some(previous) = previous {
        let _ = previous.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Agent;
    use ropeway_core::message::Dialect;
    use ropeway_core::sync::lock;
    use ropeway_testing::{ScriptedReply, model};

    #[tokio::test]
    async fn a_turn_whose_tracer_panics_leaves_nothing_behind() {
        let agent = Agent::builder()
            .provider(model(Dialect::Chat, [ScriptedReply::text("a"), ScriptedReply::text("b")]))
            .model("m");
        let agent = agent.tracer(|_| panic!("on purpose")).build().expect("an agent");
        for _ in 0..2 {
            let lost = agent.send("q").finish().await;
            assert!(matches!(lost, Err(AgentError::Lost)), "{lost:?}");
            assert!(!lock(&agent.shared.queue).controls.iter().any(TurnControl::is_live));
        }
        assert_eq!(lock(&agent.shared.queue).controls.len(), 1, "the next turn removes it");
    }
}
