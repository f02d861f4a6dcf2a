//! OTLP metrics
//! (<https://github.com/open-telemetry/opentelemetry-proto/blob/v1.7.0/opentelemetry/proto/metrics/v1/metrics.proto>).

use std::time::SystemTime;

use super::attributes::{nanos, resource, scope, text};
use super::protobuf::Message;
use crate::method::Method;
use crate::observe::{BOUNDS, Histogram, MetricsTable, OperationSeries};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// The field for a histogram's attributes.
const ATTRIBUTES: u32 = 9;

/// A number without attributes.
pub(super) struct Number {
    pub(super) name: &'static str,
    pub(super) value: u64,
    /// Whether the number never decreases.
    pub(super) is_counter: bool,
}

/// The period that counts belong to, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Period {
    start: u64,
    end: u64,
}

/// Encodes an `ExportMetricsServiceRequest`.
pub(super) fn request(
    attributes: &[(String, String)],
    (start, now): (f64, SystemTime),
    table: &MetricsTable,
    numbers: &[Number],
) -> Vec<u8> {
    let period = Period { start: (start * 1e9) as u64, end: nanos(now) };
    let mut scope_metrics = Message::default();
    scope_metrics.message(1, &scope());
    scope_metrics.message(2, &server_durations(period, table));
    scope_metrics.message(2, &client_durations(period, table));
    for number in numbers {
        scope_metrics.message(2, &number.encode(period));
    }
    let mut resource_metrics = Message::default();
    resource_metrics.message(1, &resource(attributes));
    resource_metrics.message(2, &scope_metrics);
    let mut request = Message::default();
    request.message(1, &resource_metrics);
    request.into_bytes()
}

fn server_durations(period: Period, table: &MetricsTable) -> Message {
    let mut points = Message::default();
    for (server, method, name, operation) in table.operations() {
        let (tool, prompt) = if method == Some(Method::GetPrompt) { ("", name) } else { (name, "") };
        let method = method.map_or("_OTHER", Method::as_str);
        let labels = [
            ("mcp.method.name", method),
            ("gen_ai.tool.name", tool),
            ("gen_ai.prompt.name", prompt),
            ("ropeway.server", server),
        ];
        add_points(&mut points, period, &labels, &operation.series);
    }
    durations("mcp.server.operation.duration", "Duration of requests of clients.", points)
}

fn client_durations(period: Period, table: &MetricsTable) -> Message {
    let mut points = Message::default();
    for (server, method, series) in table.upstream() {
        add_points(&mut points, period, &[("mcp.method.name", method.as_str()), ("ropeway.server", server)], series);
    }
    durations("mcp.client.operation.duration", "Duration of requests to servers.", points)
}

/// Creates a histogram metric. `points` is the message `Histogram` without its temporality.
fn durations(name: &str, description: &str, mut points: Message) -> Message {
    points.number(2, CUMULATIVE);
    let mut metric = Message::default();
    metric.text(1, name);
    metric.text(2, description);
    metric.text(3, "s");
    metric.message(9, &points);
    metric
}

fn add_points(points: &mut Message, period: Period, labels: &[(&str, &str)], series: &OperationSeries) {
    for (error, histogram) in series.histograms() {
        let mut point = point(period, histogram);
        for (key, value) in labels {
            text(&mut point, ATTRIBUTES, key, value);
        }
        text(&mut point, ATTRIBUTES, "error.type", error.map_or("", |error| error.as_str()));
        points.message(1, &point);
    }
}

fn point(period: Period, histogram: &Histogram) -> Message {
    let mut point = Message::default();
    point.fixed64(2, period.start);
    point.fixed64(3, period.end);
    point.fixed64(4, histogram.count());
    point.double(5, histogram.sum);
    point.packed64(6, histogram.buckets);
    point.packed64(7, BOUNDS.map(f64::to_bits));
    point
}

impl Number {
    fn encode(&self, period: Period) -> Message {
        let mut point = Message::default();
        point.fixed64(2, period.start);
        point.fixed64(3, period.end);
        point.fixed64(6, self.value);
        let mut data = Message::default();
        data.message(1, &point);
        let mut metric = Message::default();
        metric.text(1, self.name);
        if self.is_counter {
            data.number(2, CUMULATIVE);
            data.number(3, 1);
            metric.message(7, &data);
        } else {
            metric.message(5, &data);
        }
        metric
    }
}
