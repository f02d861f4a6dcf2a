//! The settings of the export over OTLP.

use std::time::Duration;

use reqwest::Url;

use crate::observe::Sampler;
use ropeway_core::secret::Secret;

/// Where a gateway sends spans and metrics, and how.
///
/// [`from_variables`](Self::from_variables) reads the `OTEL_*` variables of OpenTelemetry.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    pub(super) traces: Option<OtlpEndpoint>,
    pub(super) metrics: Option<OtlpEndpoint>,
    /// The attributes of the resource.
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    /// Maximum number of requests whose spans wait for the export.
    pub(super) queue: usize,
    /// Maximum number of requests in one export.
    pub(super) batch: usize,
    /// Maximum time between a request and the export of its spans.
    pub(super) delay: Duration,
    /// Time between two exports of metrics.
    pub(super) interval: Duration,
}

/// The endpoint of one signal.
#[derive(Clone, Debug)]
pub(super) struct OtlpEndpoint {
    pub(super) url: Url,
    pub(super) headers: Vec<(String, Secret)>,
    pub(super) timeout: Duration,
}
