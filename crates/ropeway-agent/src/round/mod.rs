//! A round: one reply's tool calls, run concurrently, with results in call order.

mod abort;
mod job;
mod reporter;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use self::abort::AbortReason;
use self::job::{CallOutput, FinishedCall, Job, RunningCall};
use self::reporter::RoundReporter;
use super::agent_loop::AgentLoop;
use super::exposed_tools::ResolvedCall;
use super::policy::{Approval, ApprovalRequest, Permission};
use super::step::Step;
use super::trace;
use super::turn_context::{Interruption, TurnContext};
use ropeway_core::checked::CheckedTool;
use ropeway_core::message::ToolCall;
use ropeway_core::sync::sleep_until;
use ropeway_core::tool::{
    CallContext, CallError, CancelToken, Digest, Origin, ToolCallError, ToolDefinition, differences,
};

/// How long after its timeout a call is abandoned. A call ends by itself at its timeout, unless it blocks its thread.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of approval requests for one call whose tool keeps changing.
const MAX_CHANGES: usize = 3;

/// One reply's calls.
pub(super) struct Round<'a> {
    agent_loop: &'a Arc<AgentLoop>,
    turn: &'a TurnContext<'a>,
    calls: &'a [ToolCall],
    reporter: RoundReporter<'a>,
    /// Allowed calls that wait for a free slot, in order.
    ready: VecDeque<Job>,
    /// Calls that need approval, in order.
    unapproved: VecDeque<Job>,
    /// The call that awaits approval; one at a time.
    awaiting: Option<Job>,
    approval: JoinSet<Approval>,
    /// The tasks of all calls, including aborted ones that still block their thread.
    tasks: JoinSet<FinishedCall>,
    running: HashMap<Id, RunningCall>,
    outputs: Vec<CallOutput>,
    /// The first fatal error, with the tool's name.
    fatal: Option<(String, ToolCallError)>,
}

/// How one reply's calls ended.
pub(super) enum RoundEnd {
    Done,
    Interrupted(Interruption),
    /// A host tool or callback returned a fatal error.
    Fatal {
        tool: String,
        error: ToolCallError,
    },
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.running.values().for_each(RunningCall::abort);
    }
}

impl<'a> Round<'a> {
    pub(super) fn new(agent_loop: &'a Arc<AgentLoop>, turn: &'a TurnContext<'a>, calls: &'a [ToolCall]) -> Self {
        Self {
            agent_loop,
            turn,
            calls,
            reporter: RoundReporter { turn, calls },
            ready: VecDeque::new(),
            unapproved: VecDeque::new(),
            awaiting: None,
            approval: JoinSet::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            outputs: Vec::new(),
            fatal: None,
        }
    }

    /// Makes all calls. Afterwards each has a result in the history, even if the turn was interrupted.
    pub(super) async fn run(mut self) -> RoundEnd {
        self.plan();
        loop {
            if let Some((tool, error)) = self.fatal.take() {
                self.abort_all(AbortReason::Fatal);
                self.balance().await;
                return RoundEnd::Fatal { tool, error };
            }
            self.advance();
            if self.running.is_empty() && self.awaiting.is_none() {
                self.balance().await;
                return RoundEnd::Done;
            }
            let overdue = self.running.values().map(|call| call.overdue).min();
            tokio::select! {
                biased;
                why = self.turn.interrupted() => {
                    self.abort_all(AbortReason::Interrupted(why));
                    self.balance().await;
                    return RoundEnd::Interrupted(why);
                }
                Some(done) = self.tasks.join_next_with_id() => self.joined(done),
                Some(approval) = self.approval.join_next(), if self.awaiting.is_some() => {
                    // A handler that panics denies the call.
                    self.decide(approval.unwrap_or_else(|_| Approval::deny()));
                }
                () = sleep_until(overdue) => self.abandon_overdue(),
            }
        }
    }

    /// Resolves each call and applies the policy to it.
    fn plan(&mut self) {
        let max = self.agent_loop.limits.calls_per_step;
        for (index, call) in self.calls.iter().enumerate() {
            if index >= max {
                self.reporter.skipped(index, format!("call not made: at most {max} calls per step"));
                continue;
            }
            match self.turn.tools.resolve(call) {
                ResolvedCall::Invalid { name, error } => self.reporter.invalid(index, name, error),
                ResolvedCall::Tool { tool, arguments, is_builtin } => {
                    let tool = if is_builtin { tool } else { self.current(tool) };
                    let decision = self.agent_loop.approver.decide(tool.definition());
                    let only_unchanged = decision.only_unchanged && !is_builtin;
                    let mut job = Job { index, tool, arguments, is_reported: false, only_unchanged, changes: 0 };
                    match decision.permission {
                        _ if is_builtin => self.ready.push_back(job),
                        Permission::Allow => self.ready.push_back(job),
                        Permission::Ask => self.unapproved.push_back(job),
                        Permission::Deny => {
                            self.reporter.started(&mut job);
                            self.reporter.denied(&job, "not allowed by the host's policy");
                        }
                    }
                }
            }
        }
    }

    /// Starts calls and requests approvals, as far as the limits allow.
    fn advance(&mut self) {
        self.start_ready();
        while self.request_next_approval() {
            // The call may have been approved since.
            self.start_ready();
        }
    }

    /// Starts ready calls while slots are free. With one slot, calls start in the reply's order.
    fn start_ready(&mut self) {
        let slots = self.agent_loop.limits.parallel_calls.max(1);
        loop {
            let first = |jobs: &VecDeque<Job>| jobs.front().map_or(usize::MAX, |job| job.index);
            let in_order = slots > 1 || first(&self.ready) < first(&self.unapproved);
            let has_slot = self.running.len() < slots && (slots > 1 || self.awaiting.is_none());
            let Some(mut job) = self.ready.pop_front_if(|_| in_order && has_slot) else { break };
            self.reporter.started(&mut job);
            self.start(job);
        }
    }

    /// Requests approval for the next call, unless another request is open. Returns `false` if it did not.
    fn request_next_approval(&mut self) -> bool {
        let in_order = self.agent_loop.limits.parallel_calls > 1 || self.running.is_empty();
        let may_ask = in_order && self.awaiting.is_none();
        let Some(job) = self.unapproved.pop_front_if(|_| may_ask) else { return false };
        // The tool may have been approved since the round was planned.
        let decision = self.agent_loop.approver.decide(job.tool.definition());
        self.request_approval(job, decision.permission, decision.changes);
        true
    }

    /// Returns a tool's current version, which may differ from the one sent to the model.
    fn current(&self, tool: CheckedTool) -> CheckedTool {
        let definition = tool.definition();
        let (Some(sources), Origin::Server { .. }) = (self.turn.sources, &definition.origin) else { return tool };
        if self.agent_loop.approver.policy.is_uniform() {
            return tool;
        }
        match sources.exposed_tools().all.get(&definition.name) {
            Some(current) if current.definition().origin == definition.origin => current.clone(),
            _ => tool,
        }
    }

    fn request_approval(&mut self, mut job: Job, permission: Permission, changes: Vec<String>) {
        match (permission, &self.agent_loop.approver.handler) {
            (Permission::Allow, _) => self.enqueue(job),
            (Permission::Ask, Some(handler)) => {
                // A call that cannot be made needs no decision.
                if let Some(error) = job.tool.argument_error(&job.arguments) {
                    self.reporter.started(&mut job);
                    return self.reporter.failed(job.index, job.tool.definition(), error);
                }
                let summary = self.reporter.summary(&job.tool, &job.arguments);
                let (call, definition) = (self.reporter.id(job.index), job.tool.definition().clone());
                let request = ApprovalRequest {
                    summary,
                    changes,
                    ..ApprovalRequest::new(call, definition, job.arguments.clone())
                };
                let handler = handler.clone();
                self.reporter.started(&mut job);
                self.approval.spawn(async move { handler(request).await });
                self.awaiting = Some(job);
            }
            _ => {
                self.reporter.started(&mut job);
                self.reporter.denied(&job, "it requires approval, and no one is available to approve it");
            }
        }
    }

    /// Applies the answer to the open approval request.
    fn decide(&mut self, approval: Approval) {
        let Some(mut job) = self.awaiting.take() else { return };
        if !matches!(approval, Approval::Deny { .. }) {
            // An approval covers the definition that was shown. If the tool has changed since, ask again.
            let current = self.current(job.tool.clone());
            let (shown, now) = (job.tool.definition(), current.definition());
            if Digest::of_approved(shown) != Digest::of_approved(now) {
                let changes = differences(shown, now);
                job.changes += 1;
                job.tool = current;
                if job.changes > MAX_CHANGES {
                    return self.reporter.denied(&job, "the tool kept changing while it awaited approval");
                }
                return match self.agent_loop.approver.policy.permission(job.tool.definition()) {
                    Permission::Deny => self.reporter.denied(&job, "not allowed by the host's policy"),
                    _ => self.request_approval(job, Permission::Ask, changes),
                };
            }
        }
        match approval {
            Approval::Allow => self.enqueue(job),
            Approval::Always => {
                self.agent_loop.approver.approvals.allow(job.tool.definition());
                self.enqueue(job);
            }
            Approval::AlwaysReadOnly => {
                self.allow_read_only(job.tool.definition());
                self.enqueue(job);
            }
            Approval::Deny { reason: None } => self.reporter.denied(&job, "rejected by the user"),
            Approval::Deny { reason: Some(reason) } => {
                self.reporter.denied(&job, &format!("rejected by the user: {reason}"));
            }
        }
    }

    /// Approves this tool, and all tools from its server that are currently marked read-only.
    fn allow_read_only(&self, definition: &ToolDefinition) {
        let approvals = &self.agent_loop.approver.approvals;
        approvals.allow(definition);
        if let (Some(sources), Origin::Server { server, .. }) = (self.turn.sources, &definition.origin) {
            let tools = sources.exposed_tools();
            approvals.allow_read_only(tools.all.of_server(server).map(|tool| tool.definition()));
        }
    }

    /// Queues an approved call at its place in the reply's order.
    fn enqueue(&mut self, job: Job) {
        let position = self.ready.partition_point(|other| other.index < job.index);
        self.ready.insert(position, job);
    }

    fn start(&mut self, job: Job) {
        let Job { index, tool, arguments, only_unchanged, .. } = job;
        let call = self.calls[index].clone();
        let timeout = self.agent_loop.limits.call_time;
        let (sink, id) = (self.turn.sink.downgrade(), self.reporter.id(index));
        let cancel = CancelToken::new();
        let mut cx = CallContext::new(call.id.clone())
            .with_cancel(cancel.clone())
            .with_timeout(timeout)
            .with_progress(move |progress| sink.send(Step::CallProgress { call: id.clone(), progress }));
        if only_unchanged {
            cx = cx.require_unchanged();
        }
        if let Some(parent) = self.turn.traceparent {
            cx = cx.with_traceparent(parent);
        }
        let (agent_loop, checked, on_error) = (self.agent_loop.clone(), tool.clone(), cancel.clone());
        let can_read_more = self.turn.tools.can_read_more();
        // The task runs outside the turn's span, so it needs its own parent span.
        let span = trace::call_span(tool.definition(), &call.id).or_current();
        let run = async move {
            let envelope = checked.call(arguments, &cx).await;
            if envelope.error.is_some() {
                // Work may continue in other tasks, for example after a timeout.
                on_error.cancel();
            }
            let (result, remainder) = agent_loop.result(&call, &envelope, can_read_more).await;
            FinishedCall { envelope, result, remainder }
        };
        let task = self.tasks.spawn(run.instrument(span));
        let one_year = Duration::from_secs(365 * 24 * 3600);
        let overdue = Instant::now() + timeout.min(one_year) + GRACE;
        self.running.insert(task.id(), RunningCall { index, tool, task, cancel, overdue });
    }

    fn joined(&mut self, done: Result<(Id, FinishedCall), JoinError>) {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        // An abandoned call may still finish.
        let Some(RunningCall { index, tool, cancel, .. }) = self.running.remove(&id) else { return };
        let Ok((_, FinishedCall { envelope, result, remainder })) = done else {
            cancel.cancel();
            let tool = tool.definition();
            let error = CallError::Failed { tool: tool.name.clone(), source: "it ended without a result".into() };
            return self.reporter.failed(index, tool, error);
        };
        let reported = envelope.error.as_deref().and_then(CallError::as_tool_call_error);
        if let (Some(error), None) = (reported.filter(|error| error.fatal), &self.fatal) {
            self.fatal = Some((envelope.tool.clone(), error.clone()));
        }
        let envelope = Arc::new(envelope);
        self.outputs.push(CallOutput { index, envelope: envelope.clone(), remainder });
        self.reporter.finished(index, envelope, result);
    }

    /// Abandons calls that did not end at their timeout.
    fn abandon_overdue(&mut self) {
        let now = Instant::now();
        let overdue: Vec<Id> = self.running.iter().filter(|(_, call)| call.overdue <= now).map(|(id, _)| *id).collect();
        for call in overdue.iter().filter_map(|id| self.running.remove(id)) {
            call.abort();
            let error = call.tool.timed_out(self.agent_loop.limits.call_time);
            self.reporter.failed(call.index, call.tool.definition(), error);
        }
    }

    /// Aborts running calls and drops waiting ones. Each gets a result.
    fn abort_all(&mut self, reason: AbortReason) {
        // Calls that have finished by now keep their results.
        while let Some(done) = self.tasks.try_join_next_with_id() {
            self.joined(done);
        }
        let mut reported: Vec<(usize, CheckedTool, &'static str)> = Vec::new();
        for (_, call) in self.running.drain() {
            call.abort();
            reported.push((call.index, call.tool, "it was still running when the turn timed out"));
        }
        self.approval.abort_all();
        let waiting = self.awaiting.take().into_iter().chain(self.ready.drain(..)).chain(self.unapproved.drain(..));
        let (started, skipped): (Vec<Job>, Vec<Job>) = waiting.partition(|job| job.is_reported);
        let not_started = |job: Job| (job.index, job.tool, "it had not started when the turn timed out");
        reported.extend(started.into_iter().map(not_started));
        reported.sort_by_key(|(index, ..)| *index);
        for (index, tool, timed_out) in reported {
            self.reporter.failed(index, tool.definition(), reason.error(tool.definition(), timed_out));
        }
        skipped.iter().for_each(|job| self.reporter.skipped(job.index, reason.skip_message()));
    }

    /// Shortens results until all of them together are within the step budget. Each is within its own budget already. A
    /// shorter result is made from the whole output, so that its notice about omitted bytes is right.
    async fn balance(&mut self) {
        self.outputs.sort_by_key(|output| output.index);
        let parts: Vec<_> = self.outputs.iter().map(|output| output.envelope.parts()).collect();
        let AgentLoop { budgets, .. } = &**self.agent_loop;
        let can_read_more = self.turn.tools.can_read_more();
        let own = self.outputs.iter().map(|output| budgets.of(&output.envelope.tool));
        let outputs: Vec<_> = parts.iter().map(|parts| &parts[..]).zip(own).collect();
        for (output, budget) in self.outputs.iter().zip(budgets.of_round(&outputs)) {
            if let Some(budget) = budget {
                let CallOutput { index, envelope, remainder } = output;
                let call = &self.calls[*index];
                let shorter = self.agent_loop.shorter_result(call, envelope, budget, remainder.as_ref(), can_read_more);
                self.turn.history.set_result(*index, shorter.await);
            }
        }
    }
}
