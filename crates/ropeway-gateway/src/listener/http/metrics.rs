//! `/metrics` and `/api/stats`.

use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::body::Body;
use super::response;
use crate::observe::{self, Gauge, MetricsPage};
use crate::shared::GatewayShared;
use ropeway_bridge::registry::ServerState;

/// Responds with all metrics in the Prometheus text format.
pub(super) fn page(shared: &GatewayShared) -> Response<Body> {
    let mut response = response::document(200, text(shared));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(observe::CONTENT_TYPE));
    response
}

/// Responds with the counts for `ropeway top`.
pub(super) fn stats(shared: &GatewayShared) -> Response<Body> {
    response::document(200, serde_json::to_vec(&shared.stats()).unwrap_or_default())
}

fn text(shared: &GatewayShared) -> String {
    let mut page = MetricsPage::default();
    page.requests(&shared.observer.metrics());
    let status = shared.status();
    let gauge = |name, help, value: usize| Gauge { name, help, value: value as f64 };
    page.gauges(
        "gauge",
        &[
            gauge("ropeway_connections", "Open client connections.", status.connections),
            gauge("ropeway_sessions", "Sessions of legacy clients in memory.", status.sessions),
            gauge("ropeway_inflight", "Requests in progress.", status.requests),
            gauge("ropeway_parked_calls", "Calls waiting for input from their clients.", status.parked),
            gauge("ropeway_open_questions", "Questions from servers that are waiting for an answer.", status.questions),
            gauge("ropeway_streams", "Event streams of legacy clients.", status.streams),
            gauge("ropeway_listeners", "Modern clients listening for changes.", status.listeners),
            gauge("ropeway_subscriptions", "Resources with subscribers.", status.subscriptions),
            gauge("ropeway_isolated_connections", "Server connections used by a single client.", status.isolated),
            Gauge {
                name: "process_start_time_seconds",
                help: "Start time of the gateway in seconds since the Unix epoch.",
                value: shared.observer.started_at(),
            },
        ],
    );
    let (audit, access) = shared.observer.dropped_lines();
    let counter = |name, help, value: u64| Gauge { name, help, value: value as f64 };
    page.gauges(
        "counter",
        &[
            counter("ropeway_audit_dropped_lines_total", "Dropped lines of the audit log.", audit),
            counter("ropeway_access_log_dropped_lines_total", "Dropped lines of the access log.", access),
            counter("ropeway_dropped_spans_total", "Dropped spans.", shared.observer.dropped_spans()),
        ],
    );
    page.family("ropeway_server_up", "gauge", "Whether a server is available.");
    for server in shared.bridge.statuses() {
        let is_up = matches!(server.state, ServerState::Ready { .. } | ServerState::Cached { .. });
        page.sample("ropeway_server_up", &[("server", server.server.as_str())], u8::from(is_up));
    }
    page.family("ropeway_build_info", "gauge", "The version of the gateway.");
    page.sample("ropeway_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.into_text()
}
