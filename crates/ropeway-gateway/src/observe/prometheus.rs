//! Metrics in the Prometheus text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>).

use std::fmt::{Display, Write as _};

use super::histogram::{BOUNDS, Histogram};
use super::metrics::{MetricsTable, OperationSeries};
use crate::method::Method;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

/// A number that has no labels.
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: f64,
}

#[derive(Default)]
pub(crate) struct MetricsPage(String);

impl MetricsPage {
    /// Begins a metric.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a value. Labels without a value are left out.
    pub(crate) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.0, " {value}");
    }

    fn labels(&mut self, labels: &[Label<'_>], bound: Option<&str>) {
        let labels = labels.iter().filter(|(_, value)| !value.is_empty()).copied();
        let mut is_first = true;
        for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
            self.0.push_str(if is_first { "{" } else { "," });
            is_first = false;
            let _ = write!(self.0, "{name}=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    character => self.0.push(character),
                }
            }
            self.0.push('"');
        }
        if !is_first {
            self.0.push('}');
        }
    }

    fn histogram(&mut self, name: &str, labels: &[Label<'_>], histogram: &Histogram) {
        let mut count = 0;
        for (at, bucket) in histogram.buckets.iter().enumerate() {
            count += bucket;
            let bound = BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
            let _ = write!(self.0, "{name}_bucket");
            self.labels(labels, Some(&bound));
            let _ = writeln!(self.0, " {count}");
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn series(&mut self, metric: &str, labels: &[Label<'_>; 4], series: &OperationSeries) {
        for (error, histogram) in series.histograms() {
            let mut labels = labels.to_vec();
            labels.push(("error_type", error.map_or("", |error| error.as_str())));
            self.histogram(metric, &labels, histogram);
        }
    }

    /// Adds numbers without labels.
    pub(crate) fn gauges(&mut self, kind: &str, gauges: &[Gauge]) {
        for Gauge { name, help, value } in gauges {
            self.family(name, kind, help);
            self.sample(name, &[], value);
        }
    }

    /// Adds the requests by clients and to servers.
    pub(crate) fn requests(&mut self, table: &MetricsTable) {
        const SERVER: &str = "mcp_server_operation_duration_seconds";
        self.family(SERVER, "histogram", "Duration of requests of clients.");
        for (server, method, name, operation) in table.operations() {
            let (tool, prompt) = if method == Some(Method::GetPrompt) { ("", name) } else { (name, "") };
            let method = method.map_or("_OTHER", Method::as_str);
            let labels = [
                ("mcp_method_name", method),
                ("server", server),
                ("gen_ai_tool_name", tool),
                ("gen_ai_prompt_name", prompt),
            ];
            self.series(SERVER, &labels, &operation.series);
        }
        const CLIENT: &str = "mcp_client_operation_duration_seconds";
        self.family(CLIENT, "histogram", "Duration of requests to servers.");
        for (server, method, series) in table.upstream() {
            let labels = [("mcp_method_name", method.as_str()), ("server", server), ("", ""), ("", "")];
            self.series(CLIENT, &labels, series);
        }
        self.family("ropeway_limit_rejected_total", "counter", "Requests that a limit or rule has refused.");
        for (rule, count) in table.refused() {
            self.sample("ropeway_limit_rejected_total", &[("limit", rule)], count);
        }
        self.family("ropeway_sign_ins_total", "counter", "Sign-ins to servers and sign-outs by outcome.");
        for ((action, outcome), count) in table.sign_ins() {
            self.sample("ropeway_sign_ins_total", &[("action", action.as_str()), ("outcome", outcome)], count);
        }
        self.family("ropeway_http_responses_total", "counter", "HTTP responses by status.");
        for (status, count) in table.responses() {
            self.sample("ropeway_http_responses_total", &[("code", &status.to_string())], count);
        }
        let (received, sent) = table.bytes();
        self.family("ropeway_received_bytes_total", "counter", "Bytes of the requests of clients.");
        self.sample("ropeway_received_bytes_total", &[], received);
        self.family("ropeway_sent_bytes_total", "counter", "Bytes of the results for clients.");
        self.sample("ropeway_sent_bytes_total", &[], sent);
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::metrics::Metrics;
    use super::super::record::CallRecord;
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = MetricsPage::default();
        page.sample("a_total", &[("tool", "a\"b\\c\nd é"), ("none", "")], 7);
        assert_eq!(page.into_text(), "a_total{tool=\"a\\\"b\\\\c\\nd é\"} 7\n");
    }

    #[test]
    fn a_histogram_counts_cumulatively() {
        let metrics = Metrics::default();
        for millis in [1, 15, 400_000] {
            metrics.add(&CallRecord { duration: Duration::from_millis(millis), ..record() });
        }
        let mut page = MetricsPage::default();
        page.requests(&metrics.table());
        let text = page.into_text();
        let labels = r#"mcp_method_name="tools/call",server="files",gen_ai_tool_name="read""#;
        for line in [
            format!(r#"mcp_server_operation_duration_seconds_bucket{{{labels},le="0.01"}} 1"#),
            format!(r#"mcp_server_operation_duration_seconds_bucket{{{labels},le="0.02"}} 2"#),
            format!(r#"mcp_server_operation_duration_seconds_bucket{{{labels},le="300"}} 2"#),
            format!(r#"mcp_server_operation_duration_seconds_bucket{{{labels},le="+Inf"}} 3"#),
            format!("mcp_server_operation_duration_seconds_count{{{labels}}} 3"),
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
        assert!(text.contains("# TYPE mcp_server_operation_duration_seconds histogram\n"), "{text}");
    }
}
