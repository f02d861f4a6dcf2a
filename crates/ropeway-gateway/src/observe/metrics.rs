//! Counters and histograms for all requests, with bounded label values.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::histogram::Histogram;
use super::latency::LatencyHistogram;
use super::record::{CallRecord, ErrorType};
use super::sign_ins::{SignInAction, SignInOutcome, SignInRecord};
use crate::method::Method;
use ropeway_core::sync::lock;

/// Maximum number of tool and prompt names per server. All others are counted together.
const MAX_NAMES_PER_SERVER: usize = 200;

/// Maximum number of names across all servers.
const MAX_NAMES: usize = 2_000;

/// Maximum number of servers. Further ones, which come from frequent reloads, are counted together.
const MAX_SERVERS: usize = 1_000;

/// The label for all names above the limits.
pub(crate) const OTHER: &str = "other";

/// Counts requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<MetricsTable>);

/// The counts at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricsTable {
    operations: Vec<LabelledOperation>,
    /// By server; requests that the gateway answers itself have no server.
    servers: HashMap<Box<str>, ServerIndex>,
    names: usize,
    /// Requests to servers.
    upstream: HashMap<Box<str>, HashMap<Method, OperationSeries>>,
    /// Requests that a limit has refused, by the limit's name.
    refused: HashMap<&'static str, u64>,
    /// Sign-ins and sign-outs, by their outcome.
    sign_ins: HashMap<(SignInAction, &'static str), u64>,
    /// Responses by HTTP status.
    responses: HashMap<u16, u64>,
    bytes_in: u64,
    bytes_out: u64,
}

/// The positions of a server's operations.
#[derive(Clone, Debug, Default)]
struct ServerIndex {
    names: usize,
    methods: HashMap<Option<Method>, HashMap<Box<str>, usize>>,
}

#[derive(Clone, Debug)]
struct LabelledOperation {
    server: Box<str>,
    method: Option<Method>,
    name: Box<str>,
    operation: Operation,
}

/// One method's requests for one tool or prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operation {
    pub(crate) series: OperationSeries,
    pub(crate) latency: LatencyHistogram,
}

/// Durations by outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationSeries {
    ok: Histogram,
    failed: Vec<(ErrorType, Histogram)>,
}

impl OperationSeries {
    fn add(&mut self, error: Option<ErrorType>, duration: Duration) {
        let Some(error) = error else { return self.ok.add(duration) };
        let known = self.failed.iter_mut().find(|(known, _)| *known == error);
        match known {
            Some((_, histogram)) => histogram.add(duration),
            None => {
                let mut histogram = Histogram::default();
                histogram.add(duration);
                self.failed.push((error, histogram));
            }
        }
    }

    /// Returns the histograms that are not empty, each with the kind of failure.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (Option<ErrorType>, &Histogram)> {
        let ok = Some((None, &self.ok)).filter(|(_, histogram)| histogram.count() > 0);
        ok.into_iter().chain(self.failed.iter().map(|(error, histogram)| (Some(*error), histogram)))
    }

    /// Returns the number of failures.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.iter().map(|(_, histogram)| histogram.count()).sum()
    }
}

impl Metrics {
    /// Counts a request.
    pub(super) fn add(&self, record: &CallRecord) {
        // Only names that a server has listed are labels, not arbitrary client input.
        let server = record.server.as_ref().map_or("", |server| server.as_str());
        let is_named = matches!(record.method, Some(Method::CallTool | Method::GetPrompt));
        let name = record.own_name.as_deref().filter(|_| is_named && !server.is_empty()).unwrap_or_default();
        let mut table = lock(&self.0);
        if let Some(rule) = record.denied_by {
            *table.refused.entry(rule).or_default() += 1;
        }
        table.bytes_in += record.bytes_in as u64;
        table.bytes_out += record.bytes_out as u64;
        let operation = table.operation(server, record.method, name);
        operation.series.add(record.error_type(), record.duration);
        operation.latency.add(record.duration);
    }

    /// Counts a request to a server.
    pub(super) fn add_upstream(&self, server: &str, method: Method, error: Option<ErrorType>, duration: Duration) {
        let mut table = lock(&self.0);
        let server =
            if table.upstream.len() < MAX_SERVERS || table.upstream.contains_key(server) { server } else { OTHER };
        if !table.upstream.contains_key(server) {
            table.upstream.insert(server.into(), HashMap::new());
        }
        if let Some(methods) = table.upstream.get_mut(server) {
            methods.entry(method).or_default().add(error, duration);
        }
    }

    /// Counts a request that a limit has refused.
    pub(super) fn add_refused(&self, rule: &'static str) {
        *lock(&self.0).refused.entry(rule).or_default() += 1;
    }

    /// Counts a sign-in or sign-out.
    pub(super) fn add_sign_in(&self, record: &SignInRecord) {
        let mut table = lock(&self.0);
        if let SignInOutcome::Denied(rule) = record.outcome {
            *table.refused.entry(rule).or_default() += 1;
        }
        *table.sign_ins.entry((record.action, record.outcome.as_str())).or_default() += 1;
    }

    /// Counts an HTTP response.
    pub(super) fn add_response(&self, status: u16) {
        *lock(&self.0).responses.entry(status).or_default() += 1;
    }

    /// Copies all counts.
    pub(super) fn table(&self) -> MetricsTable {
        lock(&self.0).clone()
    }
}

impl MetricsTable {
    /// Returns an operation's counts and creates them if the limits permit it. An existing operation costs no allocation.
    fn operation(&mut self, server: &str, method: Option<Method>, name: &str) -> &mut Operation {
        let at = self.find(server, method, name).unwrap_or_else(|| self.find_or_insert(server, method, name));
        &mut self.operations[at].operation
    }

    fn find(&self, server: &str, method: Option<Method>, name: &str) -> Option<usize> {
        self.servers.get(server)?.methods.get(&method)?.get(name).copied()
    }

    fn find_or_insert(&mut self, server: &str, method: Option<Method>, name: &str) -> usize {
        let has_room = self.servers.len() < MAX_SERVERS || self.servers.contains_key(server);
        let server = if has_room { server } else { OTHER };
        let names_of_server = self.servers.get(server).map_or(0, |index| index.names);
        let has_room = name.is_empty() || (names_of_server < MAX_NAMES_PER_SERVER && self.names < MAX_NAMES);
        let name = if has_room { name } else { OTHER };
        if let Some(at) = self.find(server, method, name) {
            return at;
        }
        let at = self.operations.len();
        let operation = Operation::default();
        self.operations.push(LabelledOperation { server: server.into(), method, name: name.into(), operation });
        let index = self.servers.entry(server.into()).or_default();
        index.methods.entry(method).or_default().insert(name.into(), at);
        if !name.is_empty() && name != OTHER {
            index.names += 1;
            self.names += 1;
        }
        at
    }

    /// Returns all client operations, sorted: the server, the method, the name and the counts.
    pub(crate) fn operations(&self) -> Vec<(&str, Option<Method>, &str, &Operation)> {
        let labelled = self.operations.iter().map(|LabelledOperation { server, method, name, operation }| {
            let (server, name): (&str, &str) = (server, name);
            (server, *method, name, operation)
        });
        let mut all: Vec<_> = labelled.collect();
        all.sort_by(|left, right| (left.0, left.1, left.2).cmp(&(right.0, right.1, right.2)));
        all
    }

    /// Returns all requests to servers, sorted: the server, the method and the counts.
    pub(crate) fn upstream(&self) -> Vec<(&str, Method, &OperationSeries)> {
        let mut all: Vec<(&str, Method, &OperationSeries)> = Vec::new();
        for (server, methods) in &self.upstream {
            all.extend(methods.iter().map(|(method, series)| (&**server, *method, series)));
        }
        all.sort_by_key(|(server, method, _)| (*server, *method));
        all
    }

    /// Returns how many requests each limit has refused, sorted.
    pub(crate) fn refused(&self) -> Vec<(&'static str, u64)> {
        sorted(&self.refused)
    }

    /// Returns how many sign-ins and sign-outs there were by action and outcome, sorted.
    pub(crate) fn sign_ins(&self) -> Vec<((SignInAction, &'static str), u64)> {
        sorted(&self.sign_ins)
    }

    /// Returns the HTTP response counts by status, sorted.
    pub(crate) fn responses(&self) -> Vec<(u16, u64)> {
        sorted(&self.responses)
    }

    /// Returns the total bytes in messages, and in results.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes_in, self.bytes_out)
    }
}

fn sorted<K: Copy + Ord>(counts: &HashMap<K, u64>) -> Vec<(K, u64)> {
    let mut all: Vec<_> = counts.iter().map(|(key, count)| (*key, *count)).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::super::record::CallOutcome;
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn the_number_of_labels_is_bounded() {
        let metrics = Metrics::default();
        for n in 0..100_000 {
            metrics.add(&CallRecord { own_name: Some(format!("tool{n}").into()), ..record() });
        }
        let table = metrics.table();
        let operations = table.operations();
        assert_eq!(operations.len(), MAX_NAMES_PER_SERVER + 1);
        let other = operations.iter().find(|(_, _, name, _)| *name == OTHER).expect("the others");
        assert_eq!(other.3.latency.count(), 100_000 - MAX_NAMES_PER_SERVER as u64);
    }

    #[test]
    fn the_number_of_servers_is_bounded() {
        let metrics = Metrics::default();
        for n in 0..2 * MAX_SERVERS {
            let server = format!("server{n}");
            metrics.add(&CallRecord { server: Some(server.as_str().into()), ..record() });
            metrics.add_upstream(&server, Method::CallTool, None, Duration::ZERO);
        }
        let table = metrics.table();
        assert_eq!((table.servers.len(), table.upstream.len()), (MAX_SERVERS + 1, MAX_SERVERS + 1));
    }

    #[test]
    fn names_that_clients_make_up_are_not_labels() {
        let metrics = Metrics::default();
        let unknown = CallRecord { server: None, own_name: None, ..record() };
        metrics.add(&unknown);
        metrics.add(&CallRecord { method: None, unknown_method: Some("evil".into()), ..unknown.clone() });
        metrics.add(&CallRecord { method: Some(Method::ReadResource), own_name: Some("file:///a".into()), ..record() });
        let table = metrics.table();
        let labels: Vec<_> =
            table.operations().iter().map(|(server, method, name, _)| (*server, *method, *name)).collect();
        let expected = [("", None, ""), ("", Some(Method::CallTool), ""), ("files", Some(Method::ReadResource), "")];
        assert_eq!(labels, expected);
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let metrics = Metrics::default();
        let failed = CallRecord { outcome: CallOutcome::Error, code: Some(-32602), ..record() };
        metrics.add(&record());
        metrics.add(&failed);
        metrics.add(&CallRecord { denied_by: Some("calls"), ..failed });
        let table = metrics.table();
        let operations = table.operations();
        let (_, _, _, operation) = operations[0];
        let counts: Vec<_> =
            operation.series.histograms().map(|(error, histogram)| (error, histogram.count())).collect();
        assert_eq!(counts, [(None, 1), (Some(ErrorType::of_code(-32602)), 2)]);
        assert_eq!((operation.series.failures(), table.refused(), table.bytes()), (2, vec![("calls", 1)], (30, 60)));
    }
}
