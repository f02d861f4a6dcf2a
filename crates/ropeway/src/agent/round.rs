//! A round: the calls of one answer, made side by side, and their results in the order of the calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::crew::{Cut, Scene};
use super::offer::Meant;
use super::policy::{Approval, ApprovalRequest, Permission};
use super::{Crew, Step, trace};
use crate::checked::CheckedTool;
use crate::envelope::Envelope;
use crate::message::{CallArguments, ToolCall, ToolResult};
use crate::tool::{Arguments, CallContext, CallError, CallId, Origin, ToolDefinition};

/// How much longer than its time a call is waited for: it should end by itself, unless it holds its thread.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of one answer on their way.
pub(super) struct Round<'a> {
    crew: &'a Arc<Crew>,
    scene: &'a Scene<'a>,
    calls: &'a [ToolCall],
    /// Calls that may be made, in their order.
    ready: VecDeque<Job>,
    /// Calls that somebody must agree to, in their order.
    unasked: VecDeque<Job>,
    /// The call that somebody is being asked about.
    asked: Option<Job>,
    asking: JoinSet<Approval>,
    /// The tasks of the calls, also of those that were given up and hold their thread nevertheless.
    running: JoinSet<(Envelope, ToolResult)>,
    /// The calls that are waited for.
    started: HashMap<Id, Started>,
}

/// A call that is to be made.
struct Job {
    at: usize,
    tool: CheckedTool,
    arguments: Arguments,
}

/// A call that is being made.
struct Started {
    at: usize,
    tool: CheckedTool,
    task: AbortHandle,
    overdue: Instant,
}

impl<'a> Round<'a> {
    pub(super) fn new(crew: &'a Arc<Crew>, scene: &'a Scene<'a>, calls: &'a [ToolCall]) -> Self {
        Self {
            crew,
            scene,
            calls,
            ready: VecDeque::new(),
            unasked: VecDeque::new(),
            asked: None,
            asking: JoinSet::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
        }
    }

    /// Makes all calls. Each has a result in the history afterwards, also when the turn is cut short.
    pub(super) async fn run(mut self) -> Option<Cut> {
        self.plan();
        loop {
            self.go_on();
            if self.started.is_empty() && self.asked.is_none() {
                self.balance().await;
                return None;
            }
            let overdue = self.started.values().map(|started| started.overdue).min();
            tokio::select! {
                biased;
                cut = self.scene.cut() => {
                    self.give_up();
                    return Some(cut);
                }
                Some(done) = self.running.join_next_with_id() => self.ended(done),
                Some(approval) = self.asking.join_next(), if self.asked.is_some() => {
                    // Whoever is asked and falls over has not agreed.
                    self.decide(approval.unwrap_or_else(|_| Approval::deny()));
                }
                () = sleep_until(overdue) => self.abandon(),
            }
        }
    }

    /// What becomes of each call.
    fn plan(&mut self) {
        let most = self.crew.limits.calls_per_step;
        for (at, call) in self.calls.iter().enumerate() {
            if at >= most {
                let words = format!("the call was not made: at most {most} calls are made at once");
                self.scene.history.settle(at, ToolResult::error(call, words));
                continue;
            }
            match self.scene.offer.meant(call) {
                Meant::Nothing { name, error } => {
                    self.tell_started(at, &name, Origin::Local);
                    let envelope = Envelope::from_error(id(call), name, Origin::Local, Duration::ZERO, error);
                    self.answered(at, envelope);
                }
                Meant::Tool { tool, arguments, is_own } => {
                    let job = Job { at, tool, arguments };
                    match self.crew.desk.permission(job.tool.definition()) {
                        _ if is_own => self.ready.push_back(job),
                        Permission::Allow => self.ready.push_back(job),
                        Permission::Ask => self.unasked.push_back(job),
                        Permission::Deny => {
                            self.tell(&job);
                            self.refused(&job, "the host does not allow it");
                        }
                    }
                }
            }
        }
    }

    /// Starts what may be started, and asks about what must be asked about.
    fn go_on(&mut self) {
        let most = self.crew.limits.parallel_calls.max(1);
        loop {
            let first = |jobs: &VecDeque<Job>| jobs.front().map_or(usize::MAX, |job| job.at);
            let in_order = most > 1 || first(&self.ready) < first(&self.unasked);
            let has_room = self.started.len() < most && (most > 1 || self.asked.is_none());
            let Some(job) = self.ready.pop_front_if(|_| in_order && has_room) else { break };
            self.tell(&job);
            self.start(job);
        }
        let in_turn = most > 1 || self.started.is_empty();
        while self.asked.is_none()
            && let Some(job) = self.unasked.pop_front_if(|_| in_turn)
        {
            self.tell(&job);
            self.ask(job);
        }
    }

    fn ask(&mut self, job: Job) {
        // It may have been agreed to while it waited.
        match (self.crew.desk.permission(job.tool.definition()), &self.crew.desk.asker) {
            (Permission::Allow, _) => self.start(job),
            (Permission::Ask, Some(asker)) => {
                let definition = job.tool.definition();
                let request = ApprovalRequest {
                    call: id(&self.calls[job.at]),
                    tool: definition.name.clone(),
                    origin: definition.origin.clone(),
                    annotations: definition.annotations.clone(),
                    arguments: job.arguments.clone(),
                };
                let asker = asker.clone();
                self.asking.spawn(async move { asker(request).await });
                self.asked = Some(job);
            }
            _ => self.refused(&job, "it needs approval, and there is nobody who could be asked"),
        }
    }

    fn decide(&mut self, approval: Approval) {
        let Some(job) = self.asked.take() else { return };
        match approval {
            Approval::Allow => self.start(job),
            Approval::Always => {
                self.crew.desk.allow_always(job.tool.definition());
                self.start(job);
            }
            Approval::Deny { reason: None } => self.refused(&job, "the user said no"),
            Approval::Deny { reason: Some(reason) } => self.refused(&job, &format!("the user said no: {reason}")),
        }
    }

    fn start(&mut self, job: Job) {
        let Job { at, tool, arguments } = job;
        let call = self.calls[at].clone();
        let time = self.crew.limits.call_time;
        let (sink, told) = (self.scene.sink.downgrade(), id(&call));
        let mut cx = CallContext::new(call.id.clone())
            .with_cancel(self.scene.control.cancel.clone())
            .with_timeout(time)
            .with_progress(move |progress| sink.tell(Step::CallProgress { call: told.clone(), progress }));
        if let Some(parent) = self.scene.traceparent {
            cx = cx.with_traceparent(parent);
        }
        let (crew, checked) = (self.crew.clone(), tool.clone());
        let reads_on = self.scene.offer.reads_on();
        // Whoever traces finds the call within the turn, also on another thread.
        let span = trace::of_call(tool.definition(), &call.id).or_current();
        let running = async move {
            let envelope = checked.call(arguments, &cx).await;
            let result = crew.result(&call, &checked.definition().name, &envelope, reads_on).await;
            (envelope, result)
        };
        let task = self.running.spawn(running.instrument(span));
        let far = Duration::from_secs(365 * 24 * 3600);
        let overdue = Instant::now() + time.min(far) + GRACE;
        self.started.insert(task.id(), Started { at, tool, task, overdue });
    }

    fn ended(&mut self, done: Result<(Id, (Envelope, ToolResult)), JoinError>) {
        match done {
            Ok((id, (envelope, result))) => self.finish(id, Ok((envelope, result))),
            Err(error) => self.finish(error.id(), Err("it ended without an answer")),
        }
    }

    fn finish(&mut self, id: Id, done: Result<(Envelope, ToolResult), &'static str>) {
        // One that was given up may still come to its end.
        let Some(Started { at, tool, .. }) = self.started.remove(&id) else { return };
        match done {
            Ok((envelope, result)) => self.settle(at, envelope, result),
            Err(why) => {
                let error = CallError::Failed { tool: tool.definition().name.clone(), source: why.into() };
                self.failed(at, tool.definition(), error);
            }
        }
    }

    /// Gives up calls that do not end by themselves when their time is over.
    fn abandon(&mut self) {
        let now = Instant::now();
        let late: Vec<Id> = self.started.iter().filter(|(_, call)| call.overdue <= now).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(Started { at, tool, task, .. }) = self.started.remove(&id) {
                task.abort();
                self.failed(at, tool.definition(), tool.timed_out(self.crew.limits.call_time));
            }
        }
    }

    /// Cancels everything.
    fn give_up(&mut self) {
        // What has ended meanwhile was done, whatever becomes of the turn.
        while let Some(done) = self.running.try_join_next_with_id() {
            self.ended(done);
        }
        let mut left: Vec<(usize, CheckedTool)> = Vec::new();
        for (_, Started { at, tool, task, .. }) in self.started.drain() {
            task.abort();
            left.push((at, tool));
        }
        self.asking.abort_all();
        left.extend(self.asked.take().map(|job| (job.at, job.tool)));
        left.sort_by_key(|(at, _)| *at);
        for (at, tool) in left {
            self.failed(at, tool.definition(), CallError::Cancelled);
        }
        let unseen: Vec<Job> = self.ready.drain(..).chain(self.unasked.drain(..)).collect();
        for job in unseen {
            let words = "the call was not made: the turn was cancelled";
            self.scene.history.settle(job.at, ToolResult::error(&self.calls[job.at], words));
        }
    }

    /// Sees to it that all results together do not fill the model's window.
    async fn balance(&self) {
        for (at, mut result, budget) in self.scene.history.oversized(&self.crew.budgets) {
            result.content = self.crew.fit(&result.content, budget, self.scene.offer.reads_on()).await.into_owned();
            self.scene.history.settle(at, result);
        }
    }

    fn refused(&self, job: &Job, why: &str) {
        let definition = job.tool.definition();
        let error = CallError::Denied { tool: definition.name.clone(), reason: why.to_owned() };
        self.failed(job.at, definition, error);
    }

    fn failed(&self, at: usize, definition: &ToolDefinition, error: CallError) {
        let (call, origin) = (id(&self.calls[at]), definition.origin.clone());
        self.answered(at, Envelope::from_error(call, &definition.name, origin, Duration::ZERO, error));
    }

    fn answered(&self, at: usize, envelope: Envelope) {
        let result = envelope.to_result(&self.calls[at]);
        self.settle(at, envelope, result);
    }

    fn settle(&self, at: usize, envelope: Envelope, result: ToolResult) {
        self.scene.history.settle(at, result);
        let envelope = Arc::new(envelope);
        self.scene.sink.tell(Step::CallFinished { call: id(&self.calls[at]), envelope });
    }

    fn tell(&self, job: &Job) {
        let ToolDefinition { name, origin, .. } = job.tool.definition();
        let arguments = CallArguments::Object(job.arguments.clone());
        let call = id(&self.calls[job.at]);
        self.scene.sink.tell(Step::CallStarted { call, tool: name.clone(), origin: origin.clone(), arguments });
    }

    fn tell_started(&self, at: usize, tool: &str, origin: Origin) {
        let call = &self.calls[at];
        let arguments = call.arguments.clone();
        self.scene.sink.tell(Step::CallStarted { call: id(call), tool: tool.to_owned(), origin, arguments });
    }
}

fn id(call: &ToolCall) -> CallId {
    CallId(call.id.clone())
}

pub(super) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
