//! The record for a request in progress.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::observer::Observer;
use super::record::{CallOutcome, CallRecord, ClientLabel, ErrorType, TraceRecord, UpstreamSpan};
use super::trace_context::{IncomingTrace, TraceForwarding, with_traceparent};
use crate::method::Method;
use ropeway_core::tool::{Alias, Digest, TraceParent};
use ropeway_mcp::ServerInfo;

/// The request data that is known when its message is read.
pub(crate) struct RequestStart<'a> {
    pub(crate) method: Option<Method>,
    pub(crate) method_name: &'a str,
    /// The request id as JSON.
    pub(crate) id: &'a str,
    pub(crate) principal: Arc<str>,
    pub(crate) key_id: Option<Arc<str>>,
    pub(crate) bytes_in: usize,
}

/// The record for a request in progress. Dropping it records that the request was cancelled.
pub(crate) struct PendingRecord {
    observer: Arc<Observer>,
    started: Instant,
    /// Not shared until it is finished.
    record: Arc<CallRecord>,
    arguments: Option<Bytes>,
    forwarding: TraceForwarding,
    is_finished: bool,
}

impl PendingRecord {
    pub(super) fn new(observer: Arc<Observer>, start: RequestStart<'_>) -> Self {
        let redactor = observer.redactor();
        let unknown = start.method.is_none().then(|| CallRecord::text(start.method_name, &redactor));
        let record = CallRecord {
            time: SystemTime::now(),
            call_id: observer.next_call_id(),
            trace: None,
            principal: start.principal,
            key_id: start.key_id,
            client: None,
            profile: None,
            request_id: if start.id.len() <= 256 { start.id.into() } else { Box::default() },
            method: start.method,
            unknown_method: unknown,
            server: None,
            target: None,
            own_name: None,
            digest: None,
            denied_by: None,
            outcome: CallOutcome::Cancelled,
            code: None,
            duration: Duration::ZERO,
            bytes_in: start.bytes_in,
            bytes_out: 0,
            upstream: Vec::new(),
        };
        let forwarding = TraceForwarding::default();
        Self {
            observer,
            started: Instant::now(),
            record: Arc::new(record),
            arguments: None,
            forwarding,
            is_finished: false,
        }
    }

    fn edit(&mut self, change: impl FnOnce(&mut CallRecord)) {
        if let Some(record) = Arc::get_mut(&mut self.record) {
            change(record);
        }
    }

    /// Notes the request's target, its arguments if the audit log includes them, and its trace.
    pub(crate) fn note_params(&mut self, target: Option<&str>, arguments: Option<&str>, trace: IncomingTrace) {
        let target = target.map(|target| CallRecord::text(target, &self.observer.redactor()));
        self.arguments = arguments.and_then(|arguments| self.observer.audited_arguments(arguments));
        let parent = trace.parent;
        let own = self.observer.span(parent);
        self.forwarding = trace.forwarding(own.is_some());
        let trace = match own {
            Some(context) => Some(TraceRecord { context, parent, is_own: true }),
            None => parent.map(|context| TraceRecord { context, parent: None, is_own: false }),
        };
        self.edit(|record| (record.target, record.trace) = (target, trace));
    }

    pub(crate) fn note_client(&mut self, client: Arc<ClientLabel>, profile: Arc<str>) {
        self.edit(|record| (record.client, record.profile) = (Some(client), Some(profile)));
    }

    /// Notes the request's server and the server's own name for the target.
    pub(crate) fn note_server(&mut self, server: &Alias, own_name: Option<&str>) {
        let own_name = own_name.map(|name| CallRecord::text(name, &self.observer.redactor()));
        self.edit(|record| {
            record.server = Some(server.clone());
            // Task ids are sealed, because they may be server secrets.
            record.own_name = own_name.filter(|_| record.target_key() != "task");
        });
    }

    /// Notes the tool definition's digest.
    pub(crate) fn note_digest(&mut self, digest: Digest) {
        self.edit(|record| record.digest = Some(digest));
    }

    /// Notes that the tool has reported an error.
    pub(crate) fn note_tool_error(&mut self) {
        self.edit(|record| record.outcome = CallOutcome::ToolError);
    }

    /// Notes that client input is requested.
    pub(crate) fn note_input_required(&mut self) {
        self.edit(|record| record.outcome = CallOutcome::InputRequired);
    }

    /// Notes the rule or limit that refuses the request.
    pub(crate) fn note_denied(&mut self, rule: &'static str) {
        self.edit(|record| record.denied_by = Some(rule));
    }

    /// Returns how the client's trace context is forwarded.
    pub(crate) fn forwarding(&self) -> TraceForwarding {
        self.forwarding.clone()
    }

    /// Begins a request to a server. Returns its `_meta`.
    pub(crate) fn begin_upstream(&self, server: &Alias, meta: &str, transport: &'static str) -> (UpstreamCall, String) {
        let parent = self.record.trace.filter(|trace| trace.is_own).map(|trace| trace.context);
        let context = parent.map(|parent| (parent, parent.child()));
        let meta = match context {
            Some((_, context)) => with_traceparent(meta, context),
            None => meta.to_owned(),
        };
        let method = self.record.method;
        (UpstreamCall { server: server.clone(), method, context, transport, started: Instant::now() }, meta)
    }

    /// Ends a request to a server.
    pub(crate) fn end_upstream(&mut self, call: UpstreamCall, error: Option<ErrorType>, info: Option<Arc<ServerInfo>>) {
        let (duration, after) = (call.started.elapsed(), call.started.duration_since(self.started));
        if let Some(method) = call.method {
            self.observer.add_upstream(call.server.as_str(), method, error, duration);
        }
        if let Some((parent, context)) = call.context.filter(|(_, context)| context.is_sampled()) {
            let UpstreamCall { server, transport, .. } = call;
            let span = UpstreamSpan { parent, context, server, after, duration, error, transport, info };
            self.edit(|record| record.upstream.push(span));
        }
    }

    /// Ends the record. An outcome that was noted before replaces [`CallOutcome::Ok`].
    pub(crate) fn finish(mut self, outcome: CallOutcome, code: Option<i64>, bytes_out: usize) {
        self.edit(|record| {
            let is_noted = record.outcome != CallOutcome::Cancelled;
            if outcome != CallOutcome::Ok || !is_noted {
                record.outcome = outcome;
            }
            record.code = code;
            record.bytes_out = bytes_out;
        });
        // Dropping the record passes it to the observer.
        self.is_finished = true;
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        let (duration, is_finished) = (self.started.elapsed(), self.is_finished);
        self.edit(|record| {
            record.duration = duration;
            if !is_finished {
                record.outcome = CallOutcome::Cancelled;
            }
        });
        self.observer.record(self.record.clone(), self.arguments.take());
    }
}

/// A request to a server in progress.
pub(crate) struct UpstreamCall {
    server: Alias,
    method: Option<Method>,
    /// The spans for the client's request, and for this one.
    context: Option<(TraceParent, TraceParent)>,
    transport: &'static str,
    started: Instant,
}
