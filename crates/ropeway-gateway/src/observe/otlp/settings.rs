//! OTLP export settings.

use std::time::Duration;

use reqwest::Url;

use crate::observe::Sampler;
use ropeway_core::secret::Secret;

/// Where a gateway sends spans and metrics, and how.
///
/// [`from_variables`](Self::from_variables) reads OpenTelemetry's `OTEL_*` variables.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    pub(super) traces: Option<OtlpEndpoint>,
    pub(super) metrics: Option<OtlpEndpoint>,
    /// The resource attributes.
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    /// Maximum number of requests whose spans wait for the export.
    pub(super) queue: usize,
    /// Maximum number of requests in one export.
    pub(super) batch: usize,
    /// Maximum time between a request and its spans' export.
    pub(super) delay: Duration,
    /// Time between two metrics exports.
    pub(super) interval: Duration,
}

/// One signal's endpoint.
#[derive(Clone, Debug)]
pub(super) struct OtlpEndpoint {
    pub(super) url: Url,
    pub(super) headers: Vec<(String, Secret)>,
    pub(super) timeout: Duration,
}
