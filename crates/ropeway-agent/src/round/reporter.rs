//! Reporting: the results and steps for one round's calls.

use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use crate::step::Step;
use crate::turn_context::TurnContext;
use ropeway_core::checked::CheckedTool;
use ropeway_core::envelope::Envelope;
use ropeway_core::message::{CallArguments, ToolCall, ToolResult};
use ropeway_core::tool::{Arguments, CallError, CallId, Origin, ToolDefinition};

/// Writes results to the history and reports steps to the host. Calls go by their index in the reply.
#[derive(Clone, Copy)]
pub(super) struct RoundReporter<'a> {
    pub(super) turn: &'a TurnContext<'a>,
    pub(super) calls: &'a [ToolCall],
}

impl RoundReporter<'_> {
    pub(super) fn id(&self, index: usize) -> CallId {
        CallId(self.calls[index].id.clone())
    }

    /// Reports a call's start, once.
    pub(super) fn started(&self, job: &mut Job) {
        if std::mem::replace(&mut job.is_reported, true) {
            return;
        }
        let ToolDefinition { name, origin, .. } = job.tool.definition();
        let summary = self.summary(&job.tool, &job.arguments);
        let arguments = CallArguments::Object(job.arguments.clone());
        let (tool, origin) = (name.clone(), origin.clone());
        self.turn.sink.send(Step::CallStarted { call: self.id(job.index), tool, origin, arguments, summary });
    }

    /// Reports a call that names an unknown tool or has unusable arguments.
    pub(super) fn invalid(&self, index: usize, tool: String, error: CallError) {
        let (call, origin) = (self.id(index), Origin::Local);
        let arguments = self.calls[index].arguments.clone();
        let step = Step::CallStarted { call: call.clone(), tool: tool.clone(), origin, arguments, summary: None };
        self.turn.sink.send(step);
        self.answered(index, Envelope::from_error(call, tool, Origin::Local, Duration::ZERO, error));
    }

    pub(super) fn denied(&self, job: &Job, reason: &str) {
        let definition = job.tool.definition();
        let error = CallError::Denied { tool: definition.name.clone(), reason: reason.to_owned() };
        self.failed(job.index, definition, error);
    }

    pub(super) fn failed(&self, index: usize, definition: &ToolDefinition, error: CallError) {
        let (call, origin) = (self.id(index), definition.origin.clone());
        self.answered(index, Envelope::from_error(call, &definition.name, origin, Duration::ZERO, error));
    }

    fn answered(&self, index: usize, envelope: Envelope) {
        let result = envelope.to_result(&self.calls[index]);
        self.finished(index, Arc::new(envelope), result);
    }

    pub(super) fn finished(&self, index: usize, envelope: Arc<Envelope>, result: ToolResult) {
        self.turn.history.set_result(index, result);
        self.turn.sink.send(Step::CallFinished { call: self.id(index), envelope });
    }

    /// Sets the result for a call that was never reported as started.
    pub(super) fn skipped(&self, index: usize, message: impl Into<String>) {
        self.turn.history.set_result(index, ToolResult::error(&self.calls[index], message));
    }

    /// Returns the tool's own call summary, redacted.
    pub(super) fn summary(&self, tool: &CheckedTool, arguments: &Arguments) -> Option<String> {
        let secrets = self.turn.sources.map(|sources| sources.secrets()).unwrap_or_default();
        tool.summary(arguments, &secrets)
    }
}
