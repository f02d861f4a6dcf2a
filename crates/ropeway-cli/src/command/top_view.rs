//! The `ropeway top` view: what happened between two counts from a gateway.

use std::collections::HashMap;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ropeway_bridge::registry::ServerStatus;
use ropeway_core::duration::format_duration;
use ropeway_gateway::{GatewayStats, LatencyHistogram, OperationStats};
use serde_json::{Value, json};

use crate::terminal::style::faint;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{clean_line, cut};

const ERROR: Style = AnsiColor::Red.on_default();

/// Columns omitted on narrow terminals, in order: p50, request count, server, requests per second, errors.
const LEAST_IMPORTANT: [usize; 5] = [4, 2, 0, 1, 3];

/// The lines above the rows: two with totals, an empty one and the header.
const HEAD_LINES: usize = 5;

/// The requests within a period.
pub(super) struct Window {
    period: Duration,
    uptime: Duration,
    connections: usize,
    sessions: usize,
    requests: usize,
    dropped: (u64, u64),
    servers: Vec<ServerStatus>,
    rows: Vec<Row>,
}

/// Requests with the same method and tool.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    server: String,
    method: String,
    name: String,
    errors: u64,
    latency: LatencyHistogram,
}

impl Window {
    /// Returns all requests since the gateway's start.
    pub(super) fn since_start(stats: &GatewayStats) -> Self {
        Self::new(stats, Duration::from_millis(stats.uptime_ms), stats.operations.iter().map(Row::new).collect())
    }

    /// Returns the requests between two counts. A gateway that was restarted meanwhile is counted from its start.
    pub(super) fn between(earlier: &GatewayStats, later: &GatewayStats) -> Self {
        if later.uptime_ms < earlier.uptime_ms {
            return Self::since_start(later);
        }
        let known: HashMap<_, _> = earlier.operations.iter().map(|operation| (key(operation), operation)).collect();
        let row = |operation: &OperationStats| {
            let mut row = Row::new(operation);
            if let Some(before) = known.get(&key(operation)) {
                row.errors = row.errors.saturating_sub(before.errors);
                row.latency = row.latency.since(&before.latency);
            }
            row
        };
        let period = Duration::from_millis(later.uptime_ms - earlier.uptime_ms);
        Self::new(later, period, later.operations.iter().map(row).collect())
    }

    fn new(stats: &GatewayStats, period: Duration, mut rows: Vec<Row>) -> Self {
        // The busiest come first; those without requests stay, so that the view does not jump.
        rows.sort_by_key(|row| (std::cmp::Reverse(row.latency.count()), row.server.clone(), row.title()));
        Self {
            period,
            uptime: Duration::from_millis(stats.uptime_ms),
            connections: stats.connections,
            sessions: stats.sessions,
            requests: stats.requests,
            dropped: (stats.dropped_lines, stats.dropped_spans),
            servers: stats.servers.clone(),
            rows,
        }
    }

    /// Returns one server's requests, or all.
    fn total(&self, server: Option<&str>) -> Row {
        let mut total = Row {
            server: server.unwrap_or_default().to_owned(),
            method: String::new(),
            name: String::new(),
            errors: 0,
            latency: LatencyHistogram::default(),
        };
        for row in self.rows.iter().filter(|row| server.is_none_or(|server| row.server == server)) {
            total.errors += row.errors;
            total.latency.merge(&row.latency);
        }
        total
    }

    fn per_second(&self, row: &Row) -> f64 {
        row.latency.count() as f64 / self.period.as_secs_f64().max(0.001)
    }
}

fn key(operation: &OperationStats) -> (&str, &str, &str) {
    (&operation.server, &operation.method, &operation.name)
}

impl Row {
    fn new(operation: &OperationStats) -> Self {
        let OperationStats { server, method, name, errors, latency, .. } = operation;
        let (server, method, name) = (server.clone(), method.clone(), name.clone());
        Self { server, method, name, errors: *errors, latency: latency.clone() }
    }

    /// Returns the tool or prompt, or else the method.
    fn title(&self) -> String {
        match (self.name.as_str(), self.method.as_str()) {
            ("", "") => "(unknown method)".to_owned(),
            ("", method) => method.to_owned(),
            (name, _) => name.to_owned(),
        }
    }

    fn quantile(&self, share: f64) -> Option<Duration> {
        self.latency.quantile(share)
    }
}

/// Formats a view that fits these columns and rows.
pub(super) fn render(window: &Window, width: Option<usize>, rows: usize) -> String {
    let total = window.total(None);
    let latency = |share| total.quantile(share).map_or_else(|| "-".to_owned(), format_duration);
    let lines = [
        format!(
            "up {} · connections: {}, sessions: {}, in progress: {}",
            format_duration(window.uptime.max(Duration::from_secs(1))),
            window.connections,
            window.sessions,
            window.requests
        ),
        format!(
            "{:.1} requests/s · p50 {} · p99 {} · requests: {}, errors: {}",
            window.per_second(&total),
            latency(0.5),
            latency(0.99),
            total.latency.count(),
            total.errors
        ),
    ];
    let fit = |line: &str| cut(&clean_line(line), width.unwrap_or(usize::MAX));
    let mut text: String = lines.iter().map(|line| fit(line) + "\n").collect();
    if window.dropped != (0, 0) {
        let (lines, spans) = window.dropped;
        text.push_str(&faint(&fit(&format!("dropped: {lines} audit lines, {spans} spans"))));
    }
    let down: Vec<&str> =
        window.servers.iter().filter(|server| !is_up(server)).map(|server| server.server.as_str()).collect();
    if !down.is_empty() {
        text.push_str(&faint(&fit(&format!("not available: {}", down.join(", ")))));
    }
    if window.rows.is_empty() {
        return text + "\nno requests yet\n";
    }
    let header = ["SERVER", "REQ/S", "REQUESTS", "ERRORS", "P50", "P99", "TOOL OR METHOD"];
    let mut table = Table::new(&header, Overflow::Cut).with_narrowest_last(8).with_optional(&LEAST_IMPORTANT);
    let room = rows.saturating_sub(HEAD_LINES + text.lines().count() - lines.len()).max(1);
    window.rows.iter().take(room).for_each(|row| table.row(cells(window, row)));
    text + "\n" + &table.render(width, 0)
}

fn is_up(server: &ServerStatus) -> bool {
    crate::connect::advice::is_available(&server.state)
}

fn cells(window: &Window, row: &Row) -> [Cell; 7] {
    let latency = |share| Cell::new(&row.quantile(share).map_or_else(|| "-".to_owned(), format_duration));
    let errors = Cell::new(&row.errors.to_string());
    [
        Cell::new(if row.server.is_empty() { "-" } else { &row.server }),
        Cell::new(&format!("{:.1}", window.per_second(row))),
        Cell::new(&row.latency.count().to_string()),
        if row.errors > 0 { errors.styled(ERROR) } else { errors },
        latency(0.5),
        latency(0.99),
        Cell::new(&row.title()),
    ]
}

/// Returns a view as JSON.
pub(super) fn to_json(window: &Window) -> Value {
    let servers = window.servers.iter().map(|server| {
        let mut shown = counts(window, &window.total(Some(server.server.as_str())));
        shown["server"] = json!(server.server);
        shown["state"] = json!(server.state);
        shown
    });
    let operations = window.rows.iter().map(|row| {
        let mut shown = counts(window, row);
        shown["server"] = json!(row.server);
        shown["method"] = json!(row.method);
        if !row.name.is_empty() {
            shown["name"] = json!(row.name);
        }
        shown
    });
    let (servers, operations): (Vec<Value>, Vec<Value>) = (servers.collect(), operations.collect());
    let mut shown = counts(window, &window.total(None));
    shown["period_s"] = json!(window.period.as_secs_f64());
    shown["uptime_s"] = json!(window.uptime.as_secs());
    shown["connections"] = json!(window.connections);
    shown["sessions"] = json!(window.sessions);
    shown["in_progress"] = json!(window.requests);
    shown["dropped_lines"] = json!(window.dropped.0);
    shown["dropped_spans"] = json!(window.dropped.1);
    shown["servers"] = json!(servers);
    shown["operations"] = json!(operations);
    shown
}

fn counts(window: &Window, row: &Row) -> Value {
    let millis = |share| row.quantile(share).map(|latency| latency.as_micros() as f64 / 1000.0);
    json!({
        "requests": row.latency.count(),
        "errors": row.errors,
        "requests_per_second": window.per_second(row),
        "p50_ms": millis(0.5),
        "p99_ms": millis(0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::text::columns;

    fn stats(uptime_ms: u64, operations: Value) -> GatewayStats {
        let servers = json!([{"server": "files", "state": "ready", "tools": 1}]);
        let stats = json!({
            "uptime_ms": uptime_ms, "connections": 1, "sessions": 2, "requests": 3, "dropped_lines": 0,
            "dropped_spans": 0, "servers": servers, "operations": operations,
        });
        serde_json::from_value(stats).expect("stats")
    }

    fn operation(name: &str, count: u32, errors: u64) -> Value {
        json!({"server": "files", "method": "tools/call", "name": name, "errors": errors, "latency": [[40, count]]})
    }

    #[test]
    fn a_view_shows_what_happened_since_the_view_before() {
        let earlier = stats(1_000, json!([operation("read", 100, 1)]));
        let later = stats(3_000, json!([operation("read", 120, 2), operation("write", 60, 0)]));
        let window = Window::between(&earlier, &later);
        let shown = to_json(&window);
        assert_eq!(
            (&shown["requests"], &shown["errors"], &shown["requests_per_second"]),
            (&json!(80), &json!(1), &json!(40.0))
        );
        assert_eq!(shown["operations"][0]["name"], "write");
        assert_eq!(shown["operations"][1]["requests"], 20);
        assert_eq!((&shown["servers"][0]["server"], &shown["servers"][0]["requests"]), (&json!("files"), &json!(80)));
        // A restarted gateway begins again.
        assert_eq!(to_json(&Window::between(&later, &earlier))["requests"], 100);
    }

    #[test]
    fn a_view_fits_into_narrow_and_low_terminals() {
        let names: Vec<Value> = (0..50).map(|n| operation(&format!("tool_with_a_long_name_{n}"), 5, 0)).collect();
        let window = Window::since_start(&stats(1_000, json!(names)));
        for width in [20, 30, 40, 60, 80, 110] {
            let text = anstream::adapter::strip_str(&render(&window, Some(width), 12)).to_string();
            assert!(text.lines().all(|line| columns(line) <= width), "{width}:\n{text}");
            assert!(text.lines().count() <= 12, "{width}:\n{text}");
            assert!(text.contains("P99") && text.contains("tool"), "{width}:\n{text}");
        }
        assert_eq!(render(&window, None, usize::MAX).lines().count(), 4 + 50);
    }

    #[test]
    fn hostile_names_cannot_control_the_terminal() {
        let window = Window::since_start(&stats(1_000, json!([operation("a\u{1b}[2Jb\nc", 5, 0)])));
        let text = render(&window, Some(80), 20);
        assert!(!text.contains("\u{1b}[2J") && text.lines().count() == 5, "{text:?}");
    }
}
