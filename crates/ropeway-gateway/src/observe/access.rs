//! Access log lines: one per HTTP request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::observer::Observer;
use super::record::bounded;
use ropeway_core::event::timestamp;

/// An HTTP request. Dropping it writes its line, because the response is sent or the client has disconnected.
pub(crate) struct AccessRecord {
    observer: Arc<Observer>,
    started: Instant,
    /// `None` once the line is written.
    line: Option<AccessLine>,
}

#[derive(Debug, Serialize)]
pub(super) struct AccessLine {
    #[serde(serialize_with = "write_time")]
    time: SystemTime,
    /// The client's address. `None` on Unix sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<SocketAddr>,
    method: Box<str>,
    /// Without the query, which may contain a session token.
    path: Box<str>,
    status: u16,
    ms: f64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Box<str>>,
}

fn write_time<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*time))
}

impl AccessRecord {
    /// Begins a request's line. Returns `None` without an access log.
    pub(crate) fn begin(
        observer: &Arc<Observer>,
        remote: Option<SocketAddr>,
        (method, path): (&str, &str),
        user_agent: Option<&str>,
    ) -> Option<Self> {
        if !observer.has_access_log() {
            return None;
        }
        let line = AccessLine {
            time: SystemTime::now(),
            remote,
            method: bounded(method).into(),
            path: bounded(path).into(),
            status: 0,
            ms: 0.0,
            bytes_out: 0,
            user_agent: user_agent.map(|agent| bounded(agent).into()),
        };
        Some(Self { observer: observer.clone(), started: Instant::now(), line: Some(line) })
    }

    /// Notes the response status.
    pub(crate) fn note_status(&mut self, status: u16) {
        self.line.iter_mut().for_each(|line| line.status = status);
    }

    /// Adds to the response body's size.
    pub(crate) fn note_bytes(&mut self, bytes: usize) {
        self.line.iter_mut().for_each(|line| line.bytes_out += bytes as u64);
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.ms = self.started.elapsed().as_micros() as f64 / 1000.0;
            self.observer.write_access(line);
        }
    }
}

/// Appends a line's JSON.
pub(super) fn encode(line: &AccessLine, text: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(text, line);
}
