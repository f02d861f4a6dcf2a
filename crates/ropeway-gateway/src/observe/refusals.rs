//! Requests that a limit or rule refused before they were read, for the audit log: at most one line per principal, rule and
//! second. Requests without a principal, such as those with a wrong key, share a line: they cannot flood the log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use tokio::time::Instant;

use crate::client::principal::Principal;
use ropeway_core::event::timestamp;
use ropeway_core::sync::lock;

/// Minimum time between two lines about the same principal and limit.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of principals and limits that are tracked. The metrics also count the others.
const MAX_FOLLOWED: usize = 10_000;

/// A refused request.
pub(crate) struct RefusedRequest {
    /// The principal; empty if the request is not authenticated.
    pub(crate) principal: Arc<str>,
    pub(crate) key_id: Option<Arc<str>>,
    /// The limit or rule.
    pub(crate) rule: &'static str,
}

impl RefusedRequest {
    /// Creates the record for a principal's request.
    pub(crate) fn new(principal: &Principal, rule: &'static str) -> Self {
        Self { principal: principal.shared_id(), key_id: principal.key_id(), rule }
    }
}

/// A line about refused requests.
pub(super) struct RefusalLine {
    time: SystemTime,
    request: RefusedRequest,
    /// Number of requests that the line stands for.
    count: u64,
}

impl Serialize for RefusalLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &timestamp(self.time))?;
        map.serialize_entry("principal", &*self.request.principal)?;
        if let Some(key) = &self.request.key_id {
            map.serialize_entry("key_id", &**key)?;
        }
        map.serialize_entry("decision", "deny")?;
        map.serialize_entry("rule", self.request.rule)?;
        map.serialize_entry("outcome", "error")?;
        map.serialize_entry("count", &self.count)?;
        map.end()
    }
}

/// One principal's refusals by one limit.
struct Refused {
    key_id: Option<Arc<str>>,
    written_at: Instant,
    /// Number of requests since the last line.
    count: u64,
}

impl Refused {
    fn is_due(&self) -> bool {
        self.written_at.elapsed() >= INTERVAL
    }
}

/// The latest refused requests.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Followed>);

#[derive(Default)]
struct Followed {
    refused: HashMap<(Arc<str>, &'static str), Refused>,
    /// When old entries were last removed.
    trimmed_at: Option<Instant>,
}

impl Followed {
    /// Returns `true` if another principal or limit can be tracked.
    fn has_room(&mut self) -> bool {
        // When many principals flood the gateway, a refusal must not search all entries each time.
        let is_recent = || self.trimmed_at.is_some_and(|trimmed_at| trimmed_at.elapsed() < INTERVAL);
        if self.refused.len() >= MAX_FOLLOWED && !is_recent() {
            self.trimmed_at = Some(Instant::now());
            self.refused.retain(|_, refused| refused.count > 0 || !refused.is_due());
        }
        self.refused.len() < MAX_FOLLOWED
    }
}

impl Refusals {
    /// Adds a request. Returns its line, unless the last one is too recent: the next one counts this request then.
    pub(super) fn add(&self, request: RefusedRequest) -> Option<RefusalLine> {
        let mut followed = lock(&self.0);
        let key = (request.principal.clone(), request.rule);
        let (time, now) = (SystemTime::now(), Instant::now());
        let Some(known) = followed.refused.get_mut(&key) else {
            if !followed.has_room() {
                return None;
            }
            let known = Refused { key_id: request.key_id.clone(), written_at: now, count: 0 };
            followed.refused.insert(key, known);
            return Some(RefusalLine { time, request, count: 1 });
        };
        known.count += 1;
        known.key_id.clone_from(&request.key_id);
        if !known.is_due() {
            return None;
        }
        known.written_at = now;
        Some(RefusalLine { time, request, count: std::mem::take(&mut known.count) })
    }

    /// Returns the lines about requests that have none yet; with `all`, also those whose last line is recent.
    pub(super) fn take_due(&self, all: bool) -> Vec<RefusalLine> {
        let mut lines = Vec::new();
        lock(&self.0).refused.retain(|(principal, rule), refused| {
            if !refused.is_due() && !all {
                return true;
            }
            let count = std::mem::take(&mut refused.count);
            if count == 0 {
                return false;
            }
            refused.written_at = Instant::now();
            let request = RefusedRequest { principal: principal.clone(), key_id: refused.key_id.clone(), rule };
            lines.push(RefusalLine { time: SystemTime::now(), request, count });
            true
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(refusals: &Refusals, principal: &str) -> Option<u64> {
        let request = RefusedRequest { principal: principal.into(), key_id: None, rule: "rate" };
        refusals.add(request).map(|line| line.count)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_becomes_one_line_per_principal_and_second() {
        let refusals = Refusals::default();
        assert_eq!((refuse(&refusals, "key:ann"), refuse(&refusals, "key:bob")), (Some(1), Some(1)));
        for _ in 0..1000 {
            assert_eq!(refuse(&refusals, "key:ann"), None);
        }
        assert!(refusals.take_due(false).is_empty());
        tokio::time::advance(INTERVAL).await;
        assert_eq!(refuse(&refusals, "key:ann"), Some(1001));
        assert_eq!(refuse(&refusals, "key:ann"), None);
        tokio::time::advance(INTERVAL).await;
        let counts: Vec<u64> = refusals.take_due(false).iter().map(|line| line.count).collect();
        assert_eq!(counts, [1], "the end of the flood is counted, too");
        tokio::time::advance(INTERVAL).await;
        assert!(refusals.take_due(false).is_empty());
        assert!(lock(&refusals.0).refused.is_empty(), "principals are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_principals_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..2 * MAX_FOLLOWED {
            refuse(&refusals, &format!("jwt:{number}"));
        }
        assert_eq!(lock(&refusals.0).refused.len(), MAX_FOLLOWED);
        tokio::time::advance(INTERVAL).await;
        assert_eq!(refuse(&refusals, "jwt:later"), Some(1));
        assert_eq!(lock(&refusals.0).refused.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_the_decision_and_the_rule() {
        let request = RefusedRequest { principal: "key:ann".into(), key_id: Some("k1".into()), rule: "rate" };
        let line = Refusals::default().add(request).expect("a line");
        let mut line = serde_json::to_value(&line).expect("JSON");
        assert!(line["time"].take().is_string());
        let expected = serde_json::json!({"time": null, "principal": "key:ann", "key_id": "k1", "decision": "deny",
            "rule": "rate", "outcome": "error", "count": 1});
        assert_eq!(line, expected);
    }
}
