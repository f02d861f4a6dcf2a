//! Sends spans and metrics to a collector. Requests never wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::metrics::{self, Number};
use super::settings::{OtlpEndpoint, OtlpSettings};
use super::spans;
use crate::observe::{CallRecord, SpanQueue};
use crate::shared::GatewayShared;
use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;
use ropeway_web::{client, retry_after};

/// Interval between queue checks. Waking a task for every request would cost more.
const TICK: Duration = Duration::from_millis(100);

/// The waiting times before a batch is sent again.
const BACKOFF: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Maximum delay that a collector can request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Time limit for the last export.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// Minimum time between two warnings about a collector that does not accept data.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Sends spans and metrics to a collector while a gateway runs.
///
/// The gateway's handles share one exporter. Requests only touch the [`SpanQueue`], a bounded channel whose sender
/// never waits: a full queue drops the record and counts it. The exporter begins as waiting, [`start`](Self::start)
/// makes it running, and [`finish`](Self::finish) turns it off.
///
/// While it runs, a [`JoinSet`] holds a task for each configured signal. The span task is the channel's only reader.
/// The metrics task has a weak reference to the gateway and ends once the gateway is dropped. The mutex guards the
/// state only, and `finish` takes the state out before it waits for the tasks. Dropping the exporter aborts the tasks,
/// and queued records are lost.
pub(crate) struct Exporter(Mutex<ExporterState>);

enum ExporterState {
    /// Nothing is exported, or everything has been.
    Off,
    Waiting(Box<WaitingExport>),
    Running {
        stop: CancelToken,
        tasks: JoinSet<()>,
    },
}

/// An export that is not started.
struct WaitingExport {
    settings: OtlpSettings,
    spans: mpsc::Receiver<Arc<CallRecord>>,
    dropped: Arc<AtomicU64>,
}

impl Exporter {
    /// Returns the exporter, and its span queue if spans are exported.
    pub(crate) fn new(settings: Option<OtlpSettings>) -> (Self, Option<SpanQueue>) {
        let Some(settings) = settings else { return (Self(Mutex::new(ExporterState::Off)), None) };
        let (sender, spans) = mpsc::channel(settings.queue);
        let dropped = Arc::<AtomicU64>::default();
        let queue = SpanQueue { sampler: settings.sampler, sender, dropped: dropped.clone() };
        let queue = settings.traces.is_some().then_some(queue);
        let waiting = Box::new(WaitingExport { settings, spans, dropped });
        (Self(Mutex::new(ExporterState::Waiting(waiting))), queue)
    }

    /// Starts a gateway's export, unless it is started already.
    pub(crate) fn start(&self, shared: &Arc<GatewayShared>) {
        let mut state = lock(&self.0);
        *state = match std::mem::replace(&mut *state, ExporterState::Off) {
            ExporterState::Waiting(waiting) => waiting.start(Arc::downgrade(shared)),
            state => state,
        };
    }

    /// Sends the collected data, and stops.
    pub(crate) async fn finish(&self) {
        let state = std::mem::replace(&mut *lock(&self.0), ExporterState::Off);
        let ExporterState::Running { stop, mut tasks } = state else { return };
        stop.cancel();
        let finished = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_EXPORT + TICK, finished).await;
    }
}

impl WaitingExport {
    fn start(self, shared: Weak<GatewayShared>) -> ExporterState {
        let Self { settings, spans, dropped } = self;
        let stop = CancelToken::new();
        let mut tasks = JoinSet::new();
        if let Some(target) = settings.traces.as_ref().and_then(Target::new) {
            let export = SpanExport { settings: settings.clone(), spans, dropped, target, stop: stop.clone() };
            tasks.spawn(export.run());
        }
        if let Some(target) = settings.metrics.as_ref().and_then(Target::new) {
            tasks.spawn(export_metrics(shared, settings, target, stop.clone()));
        }
        ExporterState::Running { stop, tasks }
    }
}

/// The task that exports spans.
struct SpanExport {
    settings: OtlpSettings,
    spans: mpsc::Receiver<Arc<CallRecord>>,
    dropped: Arc<AtomicU64>,
    target: Target,
    stop: CancelToken,
}

impl SpanExport {
    async fn run(mut self) {
        while self.is_ready().await {
            let batch = self.next_batch();
            let body = spans::request(&self.settings.resource, &batch);
            let is_sent = tokio::select! {
                is_sent = self.target.send(body) => is_sent,
                // The batch would delay the gateway's exit.
                () = self.stop.cancelled() => false,
            };
            if !is_sent {
                self.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
        }
        let end = Instant::now() + LAST_EXPORT;
        while !self.spans.is_empty() {
            let batch = self.next_batch();
            let body = spans::request(&self.settings.resource, &batch);
            let sent = tokio::time::timeout_at(end, self.target.send_once(body)).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Waits until a batch is complete or its first span is old. Returns `false` if the gateway stops.
    async fn is_ready(&mut self) -> bool {
        let mut first = None;
        loop {
            if self.stop.is_cancelled() {
                return false;
            }
            if !self.spans.is_empty() {
                let first = *first.get_or_insert_with(Instant::now);
                if self.spans.len() >= self.settings.batch || first.elapsed() >= self.settings.delay {
                    return true;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = self.stop.cancelled() => return false,
            }
        }
    }

    fn next_batch(&mut self) -> Vec<Arc<CallRecord>> {
        let count = self.spans.len().min(self.settings.batch);
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count
            && let Ok(record) = self.spans.try_recv()
        {
            batch.push(record);
        }
        batch
    }
}

/// Sends all metrics at an interval, and once more at the end.
async fn export_metrics(shared: Weak<GatewayShared>, settings: OtlpSettings, mut target: Target, stop: CancelToken) {
    loop {
        let is_last = tokio::select! {
            () = tokio::time::sleep(settings.interval) => false,
            () = stop.cancelled() => true,
        };
        let Some(strong) = shared.upgrade() else { return };
        let body = metrics_body(&strong, &settings);
        drop(strong);
        if is_last {
            let _ = tokio::time::timeout(LAST_EXPORT, target.send_once(body)).await;
            return;
        }
        tokio::select! {
            // The next export has the same counts and more.
            _ = target.send(body) => {}
            () = stop.cancelled() => {}
        }
    }
}

fn metrics_body(shared: &GatewayShared, settings: &OtlpSettings) -> Vec<u8> {
    let (status, observer) = (shared.status(), &shared.observer);
    let gauge = |name, value: usize| Number { name, value: value as u64, is_counter: false };
    let counter = |name, value| Number { name, value, is_counter: true };
    let numbers = [
        gauge("ropeway.connections", status.connections),
        gauge("ropeway.sessions", status.sessions),
        gauge("ropeway.inflight", status.requests),
        counter("ropeway.audit.dropped_lines", observer.dropped_lines().0),
        counter("ropeway.dropped_spans", observer.dropped_spans()),
    ];
    metrics::request(&settings.resource, (observer.started_at(), SystemTime::now()), &observer.metrics(), &numbers)
}

/// A signal's endpoint, and the client for it.
struct Target {
    endpoint: OtlpEndpoint,
    client: Client,
    warned_at: Option<Instant>,
}

/// Why a collector did not accept data.
struct Refusal {
    reason: String,
    /// The delay before a retry, if the collector sent one. `None` if a retry would not help.
    retry_after: Option<Option<Duration>>,
}

impl Target {
    fn new(endpoint: &OtlpEndpoint) -> Option<Self> {
        match client(&endpoint.url).timeout(endpoint.timeout).build() {
            Ok(client) => Some(Self { endpoint: endpoint.clone(), client, warned_at: None }),
            Err(error) => {
                tracing::warn!("telemetry is not exported: {error}");
                None
            }
        }
    }

    /// Sends data, with retries if the collector is busy or unreachable. Returns `false` if it was not accepted.
    async fn send(&mut self, body: Vec<u8>) -> bool {
        let body = bytes::Bytes::from(body);
        let mut backoff = BACKOFF.into_iter();
        loop {
            let refusal = match self.send_once(body.clone()).await {
                Ok(()) => return true,
                Err(refusal) => refusal,
            };
            let pause = refusal.retry_after.and_then(|wanted| {
                let own = backoff.next()?;
                Some(wanted.map_or(own, |wanted| wanted.min(MAX_RETRY_AFTER)))
            });
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    self.warn(&refusal.reason);
                    return false;
                }
            }
        }
    }

    async fn send_once(&self, body: impl Into<reqwest::Body>) -> Result<(), Refusal> {
        let mut request = self.client.post(self.endpoint.url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &self.endpoint.headers {
            request = request.header(name, value.expose());
        }
        let response = request.body(body).send().await.map_err(|error| {
            // The URL may contain a secret.
            let error = error.without_url();
            Refusal {
                retry_after: (!error.is_builder()).then_some(None),
                reason: ropeway_core::error_chain::chain(&error),
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        // https://opentelemetry.io/docs/specs/otlp/#failures-1
        let is_transient = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let wanted = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wanted = wanted.and_then(|value| retry_after(value, SystemTime::now()));
        Err(Refusal { reason: format!("HTTP status {status}"), retry_after: is_transient.then_some(wanted) })
    }

    fn warn(&mut self, reason: &str) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            let host = self.endpoint.url.host_str().unwrap_or_default();
            tracing::warn!("could not export telemetry to `{host}`: {reason}");
        }
    }
}
