//! A round: the calls of one answer, made side by side, and their results in the order of the calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::budget::Rest;
use super::crew::{Cut, Scene};
use super::offer::Meant;
use super::policy::{Approval, ApprovalRequest, Permission};
use super::{Crew, Step, trace};
use crate::checked::CheckedTool;
use crate::envelope::Envelope;
use crate::message::{CallArguments, ToolCall, ToolResult};
use crate::sync::sleep_until;
use crate::tool::{
    Arguments, CallContext, CallError, CallId, CancelToken, DefinitionChange, Digest, Origin, ToolCallError,
    ToolDefinition, differences,
};

/// How much longer than its time a call is waited for: it should end by itself, unless it holds its thread.
const GRACE: Duration = Duration::from_secs(1);

/// How often a person is asked again about one call because the tool changed before the answer came.
const MOST_CHANGES: usize = 3;

/// The calls of one answer on their way.
pub(super) struct Round<'a> {
    crew: &'a Arc<Crew>,
    scene: &'a Scene<'a>,
    calls: &'a [ToolCall],
    /// Calls that may be made and have no room yet, in their order.
    ready: VecDeque<Job>,
    /// Calls that somebody must agree to, in their order.
    unasked: VecDeque<Job>,
    /// The call that somebody is being asked about.
    asked: Option<Job>,
    asking: JoinSet<Approval>,
    /// The tasks of the calls, also of those that were given up and hold their thread nevertheless.
    running: JoinSet<Ended>,
    /// The calls that are waited for.
    started: HashMap<Id, Started>,
    /// The outputs so far as they came: how much of each there is room for is known when all are there.
    outputs: Vec<Output>,
    /// The first fatal error of the host, and the tool that was called.
    fatal: Option<(String, ToolCallError)>,
}

/// How the calls of one answer ended.
pub(super) enum RoundEnd {
    /// All calls have ended.
    Done,
    /// The turn was cut short.
    Cut(Cut),
    /// The host's own code ended the turn.
    Fatal { tool: String, error: ToolCallError },
}

/// Why calls are given up.
#[derive(Clone, Copy)]
enum GiveUp {
    Cut(Cut),
    /// Another call of the same answer has failed fatally.
    Fatal,
}

/// A call that is to be made.
struct Job {
    at: usize,
    tool: CheckedTool,
    arguments: Arguments,
    /// The host has heard of it.
    is_told: bool,
    /// It is made only if the tool is what it was when this was decided.
    is_bound: bool,
    /// How often the tool changed while somebody was being asked about it.
    changed: usize,
}

/// A call that has ended by itself.
struct Ended {
    envelope: Envelope,
    result: ToolResult,
    rest: Option<Rest>,
}

/// What a call brought, and what has become of that which its result does not have.
struct Output {
    at: usize,
    envelope: Arc<Envelope>,
    rest: Option<Rest>,
}

/// A call that is being made.
struct Started {
    at: usize,
    tool: CheckedTool,
    task: AbortHandle,
    /// The call's own switch: whoever works for it elsewhere sees that nobody waits any more.
    cancel: CancelToken,
    overdue: Instant,
}

impl Started {
    fn give_up(&self) {
        self.cancel.cancel();
        self.task.abort();
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        // A turn may be lost in the midst of its calls.
        self.started.values().for_each(Started::give_up);
    }
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
            outputs: Vec::new(),
            fatal: None,
        }
    }

    /// Makes all calls. Each has a result in the history afterwards, also when the turn is cut short.
    pub(super) async fn run(mut self) -> RoundEnd {
        self.plan();
        loop {
            if let Some((tool, error)) = self.fatal.take() {
                self.give_up(GiveUp::Fatal);
                self.balance().await;
                return RoundEnd::Fatal { tool, error };
            }
            self.go_on();
            if self.started.is_empty() && self.asked.is_none() {
                self.balance().await;
                return RoundEnd::Done;
            }
            let overdue = self.started.values().map(|started| started.overdue).min();
            tokio::select! {
                biased;
                cut = self.scene.cut() => {
                    self.give_up(GiveUp::Cut(cut));
                    self.balance().await;
                    return RoundEnd::Cut(cut);
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
                    let tool = if is_own { tool } else { self.current(tool) };
                    let decision = self.crew.desk.decide(tool.definition());
                    let is_bound = decision.is_bound && !is_own;
                    let mut job = Job { at, tool, arguments, is_told: false, is_bound, changed: 0 };
                    match decision.permission {
                        _ if is_own => self.ready.push_back(job),
                        Permission::Allow => self.ready.push_back(job),
                        Permission::Ask => self.unasked.push_back(job),
                        Permission::Deny => {
                            self.tell(&mut job);
                            self.refused(&job, "the host does not allow it");
                        }
                    }
                }
            }
        }
    }

    /// Starts what may be started, and asks about what must be asked about.
    fn go_on(&mut self) {
        self.start_some();
        while self.ask_one() {
            // It may have been agreed to at once.
            self.start_some();
        }
    }

    /// Starts calls as long as there is room for them. Whatever was agreed to goes through here.
    fn start_some(&mut self) {
        let most = self.crew.limits.parallel_calls.max(1);
        loop {
            let first = |jobs: &VecDeque<Job>| jobs.front().map_or(usize::MAX, |job| job.at);
            let in_order = most > 1 || first(&self.ready) < first(&self.unasked);
            let has_room = self.started.len() < most && (most > 1 || self.asked.is_none());
            let Some(mut job) = self.ready.pop_front_if(|_| in_order && has_room) else { break };
            self.tell(&mut job);
            self.start(job);
        }
    }

    /// Asks about the next call, unless somebody is being asked or it is not its turn.
    fn ask_one(&mut self) -> bool {
        let in_turn = self.crew.limits.parallel_calls > 1 || self.started.is_empty();
        let may_ask = in_turn && self.asked.is_none();
        let Some(job) = self.unasked.pop_front_if(|_| may_ask) else { return false };
        self.ask(job);
        true
    }

    /// The tool as it is now: it may have changed since the model was told of it, and it is the changed one that would be called.
    fn current(&self, tool: CheckedTool) -> CheckedTool {
        let definition = tool.definition();
        let (Some(sources), Origin::Server { .. }) = (self.scene.sources, &definition.origin) else { return tool };
        if self.crew.desk.policy.is_uniform() {
            return tool;
        }
        let offer = sources.offer();
        match offer.all.get(&definition.name) {
            Some(current) if current.definition().origin == definition.origin => current.clone(),
            _ => tool,
        }
    }

    fn ask(&mut self, job: Job) {
        // It may have been agreed to while it waited.
        let decision = self.crew.desk.decide(job.tool.definition());
        self.ask_with(job, decision.permission, decision.changes);
    }

    fn ask_with(&mut self, mut job: Job, permission: Permission, changes: Vec<DefinitionChange>) {
        match (permission, &self.crew.desk.asker) {
            (Permission::Allow, _) => self.agreed(job),
            (Permission::Ask, Some(asker)) => {
                let definition = job.tool.definition();
                let summary = self.summary(&job.tool, &job.arguments);
                let request = ApprovalRequest {
                    call: id(&self.calls[job.at]),
                    tool: definition.name.clone(),
                    origin: definition.origin.clone(),
                    annotations: definition.annotations.clone(),
                    arguments: job.arguments.clone(),
                    summary,
                    changes,
                    definition: definition.clone(),
                };
                let asker = asker.clone();
                self.tell(&mut job);
                self.asking.spawn(async move { asker(request).await });
                self.asked = Some(job);
            }
            _ => {
                self.tell(&mut job);
                self.refused(&job, "it needs approval, and there is nobody who could be asked");
            }
        }
    }

    fn decide(&mut self, approval: Approval) {
        let Some(mut job) = self.asked.take() else { return };
        if !matches!(approval, Approval::Deny { .. }) {
            // What was approved is what was shown, not what the server has made of it meanwhile.
            let current = self.current(job.tool.clone());
            let (asked, now) = (job.tool.definition(), current.definition());
            if Digest::of_approved(asked) != Digest::of_approved(now) {
                let changes = differences(asked, now);
                job.changed += 1;
                job.tool = current;
                if job.changed > MOST_CHANGES {
                    return self.refused(&job, "the tool changed each time while the user was asked about it");
                }
                let permission = self.crew.desk.policy.permission(job.tool.definition());
                return match permission {
                    Permission::Deny => self.refused(&job, "the host does not allow it"),
                    _ => self.ask_with(job, Permission::Ask, changes),
                };
            }
        }
        match approval {
            Approval::Allow => self.agreed(job),
            Approval::Always => {
                self.crew.desk.approvals.allow(job.tool.definition());
                self.agreed(job);
            }
            Approval::AlwaysReadOnly => {
                self.allow_read_only(job.tool.definition());
                self.agreed(job);
            }
            Approval::Deny { reason: None } => self.refused(&job, "the user said no"),
            Approval::Deny { reason: Some(reason) } => self.refused(&job, &format!("the user said no: {reason}")),
        }
    }

    /// Allows for good what the server of this tool calls read-only at this moment, and the tool itself.
    fn allow_read_only(&self, asked: &ToolDefinition) {
        let approvals = &self.crew.desk.approvals;
        approvals.allow(asked);
        if let (Some(sources), Origin::Server { server, .. }) = (self.scene.sources, &asked.origin) {
            let offer = sources.offer();
            approvals.allow_read_only(offer.all.of_server(server).map(|tool| tool.definition()));
        }
    }

    /// The call is made when there is room for it.
    fn agreed(&mut self, job: Job) {
        let place = self.ready.partition_point(|other| other.at < job.at);
        self.ready.insert(place, job);
    }

    fn start(&mut self, job: Job) {
        let Job { at, tool, arguments, is_bound, .. } = job;
        let call = self.calls[at].clone();
        let time = self.crew.limits.call_time;
        let (sink, told) = (self.scene.sink.downgrade(), id(&call));
        let cancel = CancelToken::new();
        let mut cx = CallContext::new(call.id.clone())
            .with_cancel(cancel.clone())
            .with_timeout(time)
            .with_progress(move |progress| sink.tell(Step::CallProgress { call: told.clone(), progress }));
        if is_bound {
            cx = cx.require_unchanged();
        }
        if let Some(parent) = self.scene.traceparent {
            cx = cx.with_traceparent(parent);
        }
        let (crew, checked, switch) = (self.crew.clone(), tool.clone(), cancel.clone());
        let reads_on = self.scene.offer.reads_on();
        // Whoever traces finds the call within the turn, also on another thread.
        let span = trace::of_call(tool.definition(), &call.id).or_current();
        let running = async move {
            let envelope = checked.call(arguments, &cx).await;
            if envelope.error.is_some() {
                // It may have been left behind, such as when its time was over.
                switch.cancel();
            }
            let (result, rest) = crew.result(&call, &envelope, reads_on).await;
            Ended { envelope, result, rest }
        };
        let task = self.running.spawn(running.instrument(span));
        let far = Duration::from_secs(365 * 24 * 3600);
        let overdue = Instant::now() + time.min(far) + GRACE;
        self.started.insert(task.id(), Started { at, tool, task, cancel, overdue });
    }

    fn ended(&mut self, done: Result<(Id, Ended), JoinError>) {
        match done {
            Ok((id, ended)) => self.finish(id, Ok(ended)),
            Err(error) => self.finish(error.id(), Err("it ended without an answer")),
        }
    }

    fn finish(&mut self, id: Id, done: Result<Ended, &'static str>) {
        // One that was given up may still come to its end.
        let Some(Started { at, tool, cancel, .. }) = self.started.remove(&id) else { return };
        match done {
            Ok(Ended { envelope, result, rest }) => {
                let reported = envelope.error.as_deref().and_then(CallError::as_tool_call_error);
                if let (Some(error), None) = (reported.filter(|error| error.fatal), &self.fatal) {
                    self.fatal = Some((envelope.tool.clone(), error.clone()));
                }
                let envelope = Arc::new(envelope);
                self.outputs.push(Output { at, envelope: envelope.clone(), rest });
                self.settle(at, envelope, result);
            }
            Err(why) => {
                cancel.cancel();
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
            if let Some(call) = self.started.remove(&id) {
                call.give_up();
                self.failed(call.at, call.tool.definition(), call.tool.timed_out(self.crew.limits.call_time));
            }
        }
    }

    /// Cancels everything.
    fn give_up(&mut self, why: GiveUp) {
        // What has ended meanwhile was done, whatever becomes of the turn.
        while let Some(done) = self.running.try_join_next_with_id() {
            self.ended(done);
        }
        let mut left: Vec<(usize, CheckedTool, &'static str)> = Vec::new();
        for (_, call) in self.started.drain() {
            call.give_up();
            left.push((call.at, call.tool, "it had given no answer when the turn's time was over"));
        }
        self.asking.abort_all();
        let waiting = self.asked.take().into_iter().chain(self.ready.drain(..)).chain(self.unasked.drain(..));
        let (told, unseen): (Vec<Job>, Vec<Job>) = waiting.partition(|job| job.is_told);
        left.extend(told.into_iter().map(|job| (job.at, job.tool, "it had not begun when the turn's time was over")));
        left.sort_by_key(|(at, ..)| *at);
        for (at, tool, late) in left {
            let error = match why {
                GiveUp::Cut(Cut::Cancelled) | GiveUp::Fatal => CallError::Cancelled,
                GiveUp::Cut(Cut::Time) => {
                    CallError::Failed { tool: tool.definition().name.clone(), source: late.into() }
                }
            };
            self.failed(at, tool.definition(), error);
        }
        let words = match why {
            GiveUp::Cut(Cut::Cancelled) => "the call was not made: the turn was cancelled",
            GiveUp::Cut(Cut::Time) => "the call was not made: the turn's time was over",
            GiveUp::Fatal => "the call was not made: another call ended the turn",
        };
        for job in unseen {
            self.scene.history.settle(job.at, ToolResult::error(&self.calls[job.at], words));
        }
    }

    /// Sees to it that all results together do not fill the model's window. Each is within its own budget already; those that
    /// must be shorter are made anew from the whole output, so that what they say of the rest is true.
    async fn balance(&mut self) {
        self.outputs.sort_by_key(|output| output.at);
        let parts: Vec<_> = self.outputs.iter().map(|output| output.envelope.parts()).collect();
        let budgets = &self.crew.budgets;
        let reads_on = self.scene.offer.reads_on();
        let own = self.outputs.iter().map(|output| budgets.of(&output.envelope.tool));
        let outputs: Vec<_> = parts.iter().map(|parts| &parts[..]).zip(own).collect();
        for (Output { at, envelope, rest }, room) in self.outputs.iter().zip(budgets.of_round(&outputs)) {
            if let Some(room) = room {
                let result = self.crew.shorter_result(&self.calls[*at], envelope, room, rest.as_ref(), reads_on).await;
                self.scene.history.settle(*at, result);
            }
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
        self.settle(at, Arc::new(envelope), result);
    }

    fn settle(&self, at: usize, envelope: Arc<Envelope>, result: ToolResult) {
        self.scene.history.settle(at, result);
        self.scene.sink.tell(Step::CallFinished { call: id(&self.calls[at]), envelope });
    }

    /// Tells the host of a call, once.
    fn tell(&self, job: &mut Job) {
        if std::mem::replace(&mut job.is_told, true) {
            return;
        }
        let ToolDefinition { name, origin, .. } = job.tool.definition();
        let summary = self.summary(&job.tool, &job.arguments);
        let arguments = CallArguments::Object(job.arguments.clone());
        let call = id(&self.calls[job.at]);
        let (tool, origin) = (name.clone(), origin.clone());
        self.scene.sink.tell(Step::CallStarted { call, tool, origin, arguments, summary });
    }

    /// The tool's own summary of a call, without the secrets that are known here.
    fn summary(&self, tool: &CheckedTool, arguments: &Arguments) -> Option<String> {
        let secrets = self.scene.sources.map(|sources| sources.secrets()).unwrap_or_default();
        tool.summary(arguments, &secrets)
    }

    fn tell_started(&self, at: usize, tool: &str, origin: Origin) {
        let call = &self.calls[at];
        let arguments = call.arguments.clone();
        let tool = tool.to_owned();
        self.scene.sink.tell(Step::CallStarted { call: id(call), tool, origin, arguments, summary: None });
    }
}

fn id(call: &ToolCall) -> CallId {
    CallId(call.id.clone())
}
