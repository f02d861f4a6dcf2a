//! Observability: request records, metrics, logs, and spans.
//!
//! Each client request becomes one [`CallRecord`] when it ends. The [`Observer`] counts it, keeps the latest ones, and passes it
//! to the audit log and to the span exporter. Both have bounded queues: a slow disk or collector never delays a request.

pub(crate) mod event_text;
pub(crate) mod otlp;
pub(crate) mod stats_client;

mod access;
mod audit;
mod histogram;
mod latency;
mod log_sink;
mod metrics;
mod observer;
mod pending;
mod prometheus;
mod record;
mod refusals;
mod restarts;
mod sampler;
mod sign_ins;
mod slot;
mod stats;
mod trace_context;

pub(crate) use self::access::AccessRecord;
pub(crate) use self::histogram::{BOUNDS, Histogram};
pub use self::latency::LatencyHistogram;
pub(crate) use self::metrics::{MetricsTable, OperationSeries};
pub(crate) use self::observer::{Observer, ObserverError, SpanQueue};
pub(crate) use self::pending::{PendingRecord, RequestStart, UpstreamCall};
pub(crate) use self::prometheus::{CONTENT_TYPE, Gauge, MetricsPage};
pub(crate) use self::record::{CallOutcome, CallRecord, ClientLabel, ErrorType, UpstreamSpan};
pub(crate) use self::refusals::RefusedRequest;
pub(crate) use self::restarts::RestartRecord;
pub(crate) use self::sampler::Sampler;
pub(crate) use self::sign_ins::{SignInAction, SignInOutcome, SignInRecord};
pub(crate) use self::slot::RecordSlot;
pub use self::stats::{GatewayStats, OperationStats};
pub(crate) use self::trace_context::{IncomingTrace, TraceForwarding};
