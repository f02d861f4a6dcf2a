//! A gateway's observer: counts, logs and exports finished requests.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::access::{self, AccessLine};
use super::audit::{self, AuditLine, CallLine, bounded_arguments};
use super::log_sink::LogSink;
use super::metrics::{Metrics, MetricsTable};
use super::pending::{PendingRecord, RequestStart};
use super::record::{CallRecord, ErrorType};
use super::refusals::{Refusals, RefusedRequest};
use super::restarts::RestartRecord;
use super::sampler::Sampler;
use super::sign_ins::SignInRecord;
use crate::method::Method;
use ropeway_config::{GatewaySettings, LogTarget};
use ropeway_core::secret::{AccountRedactor, Redactor};
use ropeway_core::sync::lock;
use ropeway_core::tool::TraceParent;

/// Number of records that are kept for the page and for `ropeway top`.
const MAX_RECENT: usize = 1_000;

/// Why a log could not be opened.
#[derive(Debug)]
pub(crate) struct ObserverError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Receives every request's record.
pub(crate) struct Observer {
    started: Instant,
    started_at: SystemTime,
    next_call: AtomicU64,
    redactor: Arc<AccountRedactor>,
    metrics: Metrics,
    recent: Mutex<VecDeque<Arc<CallRecord>>>,
    audit: Option<LogSink<AuditLine>>,
    refusals: Refusals,
    has_arguments: bool,
    access: Option<LogSink<AccessLine>>,
    spans: Option<SpanQueue>,
}

/// The queue to the span exporter.
pub(crate) struct SpanQueue {
    pub(crate) sampler: Sampler,
    pub(crate) sender: mpsc::Sender<Arc<CallRecord>>,
    pub(crate) dropped: Arc<AtomicU64>,
}

impl Observer {
    /// Opens the logs. The secrets in `redactor` are kept out of records.
    pub(crate) fn new(
        settings: &GatewaySettings,
        spans: Option<SpanQueue>,
        redactor: Arc<AccountRedactor>,
    ) -> Result<Arc<Self>, ObserverError> {
        let failed = |target: &LogTarget, source| {
            let path = match target {
                LogTarget::File(path) => path.clone(),
                LogTarget::Stderr => PathBuf::from("stderr"),
            };
            ObserverError { path, source }
        };
        let audit = settings.audit.as_ref();
        let sink = |audit: &ropeway_config::AuditSettings| {
            LogSink::start(&audit.file, audit::encode).map_err(|error| failed(&audit.file, error))
        };
        let access = settings
            .access_log
            .as_ref()
            .map(|target| LogSink::start(target, access::encode).map_err(|error| failed(target, error)));
        Ok(Arc::new(Self {
            started: Instant::now(),
            started_at: SystemTime::now(),
            next_call: AtomicU64::new(fastrand::u64(..)),
            redactor,
            metrics: Metrics::default(),
            recent: Mutex::default(),
            has_arguments: audit.is_some_and(|audit| audit.arguments),
            audit: audit.map(sink).transpose()?,
            refusals: Refusals::default(),
            access: access.transpose()?,
            spans,
        }))
    }

    /// Begins a request's record.
    pub(crate) fn begin(self: &Arc<Self>, start: RequestStart<'_>) -> PendingRecord {
        PendingRecord::new(self.clone(), start)
    }

    /// Returns the latest records, the newest one first.
    pub(crate) fn recent(&self, limit: usize) -> Vec<Arc<CallRecord>> {
        lock(&self.recent).iter().rev().take(limit).cloned().collect()
    }

    /// Copies all counts.
    pub(crate) fn metrics(&self) -> MetricsTable {
        self.metrics.table()
    }

    /// Returns the time since the gateway was built.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns when the gateway was built, in seconds since 1970.
    pub(crate) fn started_at(&self) -> f64 {
        self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    /// Returns the number of lines that the audit log and the access log have dropped.
    pub(crate) fn dropped_lines(&self) -> (u64, u64) {
        (self.audit.as_ref().map_or(0, LogSink::dropped), self.access.as_ref().map_or(0, LogSink::dropped))
    }

    /// Returns the number of spans that were dropped because the exporter is too slow.
    pub(crate) fn dropped_spans(&self) -> u64 {
        self.spans.as_ref().map_or(0, |spans| spans.dropped.load(Ordering::Relaxed))
    }

    /// Sets the configuration's secrets, which are kept out of records like all accounts' tokens.
    pub(crate) fn set_secrets(&self, secrets: Redactor) {
        self.redactor.set_configured(secrets);
    }

    /// Opens the log files again, because they were renamed.
    pub(crate) fn reopen_logs(&self) {
        self.audit.iter().for_each(LogSink::reopen);
        self.access.iter().for_each(LogSink::reopen);
    }

    /// Waits until the lines so far are written, up to `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        let flushed = async {
            if let Some(audit) = &self.audit {
                self.write_refusals(true);
                audit.flush().await;
            }
            if let Some(access) = &self.access {
                access.flush().await;
            }
        };
        if tokio::time::timeout(limit, flushed).await.is_err() {
            tracing::warn!("the gateway logs are incomplete: writing them timed out");
        }
    }

    /// Counts a request that a limit or rule refused before its message was read, and adds it to the audit log.
    pub(crate) fn add_refused_request(&self, request: RefusedRequest) {
        self.metrics.add_refused(request.rule);
        if let Some(audit) = &self.audit
            && let Some(line) = self.refusals.add(request)
        {
            audit.write(AuditLine::Refusal(line));
        }
    }

    /// Counts a sign-in or sign-out, and adds it to the audit log.
    pub(crate) fn add_sign_in(&self, record: SignInRecord) {
        self.metrics.add_sign_in(&record);
        if let Some(audit) = &self.audit {
            audit.write(AuditLine::SignIn(record));
        }
    }

    /// Adds a server restart to the audit log.
    pub(crate) fn add_restart(&self, record: RestartRecord) {
        if let Some(audit) = &self.audit {
            audit.write(AuditLine::Restart(record));
        }
    }

    /// Writes lines about refused requests that have none yet; with `all`, also those whose last line is recent.
    pub(crate) fn write_refusals(&self, all: bool) {
        if let Some(audit) = &self.audit {
            self.refusals.take_due(all).into_iter().for_each(|line| audit.write(AuditLine::Refusal(line)));
        }
    }

    /// Counts an HTTP response.
    pub(crate) fn add_response(&self, status: u16) {
        self.metrics.add_response(status);
    }

    pub(super) fn add_upstream(&self, server: &str, method: Method, error: Option<ErrorType>, duration: Duration) {
        self.metrics.add_upstream(server, method, error, duration);
    }

    pub(super) fn has_access_log(&self) -> bool {
        self.access.is_some()
    }

    pub(super) fn write_access(&self, line: AccessLine) {
        if let Some(log) = &self.access {
            log.write(line);
        }
    }

    pub(super) fn redactor(&self) -> Redactor {
        self.redactor.current()
    }

    /// Returns an id that starts at a random number, so that two gateways' ids differ.
    pub(super) fn next_call_id(&self) -> u64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a request's span, if spans are exported.
    pub(super) fn span(&self, parent: Option<TraceParent>) -> Option<TraceParent> {
        self.spans.as_ref().map(|spans| spans.sampler.span(parent))
    }

    /// Returns a call's arguments for the audit log, if it includes them.
    pub(super) fn audited_arguments(&self, arguments: &str) -> Option<Bytes> {
        (self.has_arguments && self.audit.is_some()).then(|| bounded_arguments(arguments))
    }

    /// Receives a finished request's record.
    pub(super) fn record(&self, record: Arc<CallRecord>, arguments: Option<Bytes>) {
        self.metrics.add(&record);
        if let Some(audit) = &self.audit {
            let redactor = if arguments.is_some() { self.redactor() } else { Redactor::default() };
            audit.write(AuditLine::Call(CallLine { record: record.clone(), arguments, redactor }));
        }
        let is_sampled = record.trace.is_some_and(|trace| trace.is_own && trace.context.is_sampled());
        if let Some(spans) = self.spans.as_ref().filter(|_| is_sampled)
            && spans.sender.try_send(record.clone()).is_err()
        {
            spans.dropped.fetch_add(1, Ordering::Relaxed);
        }
        let evicted = {
            let mut recent = lock(&self.recent);
            let evicted = if recent.len() >= MAX_RECENT { recent.pop_front() } else { None };
            recent.push_back(record);
            evicted
        };
        // Freed after the lock is released.
        drop(evicted);
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::CallOutcome;
    use super::super::trace_context::IncomingTrace;
    use super::*;
    use ropeway_core::secret::Secret;

    fn observer(spans: Option<SpanQueue>) -> Arc<Observer> {
        let observer = Observer::new(&GatewaySettings::default(), spans, Arc::default()).expect("an observer");
        observer.set_secrets(Redactor::new(&[Secret::new("s3cret-value")]));
        observer
    }

    fn begin(observer: &Arc<Observer>) -> PendingRecord {
        let method_name = "tools/call";
        observer.begin(RequestStart {
            method: Method::parse(method_name),
            method_name,
            id: "1",
            principal: "".into(),
            key_id: None,
            bytes_in: 1,
        })
    }

    #[test]
    fn only_the_latest_records_are_kept() {
        let observer = observer(None);
        for _ in 0..3 * MAX_RECENT {
            begin(&observer).finish(CallOutcome::Ok, None, 0);
        }
        let recent = observer.recent(usize::MAX);
        assert_eq!((recent.len(), observer.recent(7).len()), (MAX_RECENT, 7));
        assert_eq!(recent[0].call_id, recent[1].call_id.wrapping_add(1), "the newest one comes first");
    }

    #[test]
    fn a_record_that_is_dropped_was_cancelled() {
        let observer = observer(None);
        let mut pending = begin(&observer);
        pending.note_params(Some("a?s3cret-value"), None, IncomingTrace::default());
        drop(pending);
        let recent = observer.recent(1);
        assert_eq!((recent[0].outcome, recent[0].target.as_deref()), (CallOutcome::Cancelled, Some("a?***")));
    }

    #[test]
    fn an_outcome_that_was_noted_stays_unless_the_request_fails() {
        let observer = observer(None);
        let mut pending = begin(&observer);
        pending.note_tool_error();
        pending.finish(CallOutcome::Ok, None, 5);
        assert_eq!(observer.recent(1)[0].outcome, CallOutcome::ToolError);
        let mut pending = begin(&observer);
        pending.note_tool_error();
        pending.finish(CallOutcome::Error, Some(-32603), 5);
        assert_eq!(observer.recent(1)[0].outcome, CallOutcome::Error);
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let (sender, mut spans) = mpsc::channel(2);
        let observer = observer(Some(SpanQueue { sampler: Sampler::default(), sender, dropped: Arc::default() }));
        for _ in 0..5 {
            let mut pending = begin(&observer);
            pending.note_params(None, None, IncomingTrace::default());
            pending.finish(CallOutcome::Ok, None, 0);
        }
        assert_eq!((spans.len(), observer.dropped_spans()), (2, 3));
        assert!(spans.try_recv().is_ok_and(|record| record.trace.is_some_and(|trace| trace.is_own)));
    }
}
