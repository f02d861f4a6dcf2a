//! Events as text: for the web page, and for `ropeway events`.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::json;

use ropeway_core::event::{Event, timestamp};

/// Maximum bytes per event. Larger ones arrive without their details.
pub(crate) const MAX_EVENT: usize = 64 << 10;

/// Returns an event with its time as a JSON line.
pub(crate) fn event_text(event: &Event) -> String {
    #[derive(Serialize)]
    struct Timed<'a, T> {
        time: String,
        #[serde(flatten)]
        event: &'a T,
    }
    fn text(event: &impl Serialize) -> String {
        serde_json::to_string(&Timed { time: timestamp(SystemTime::now()), event }).unwrap_or_default()
    }
    let data = text(event);
    if data.len() <= MAX_EVENT {
        return data;
    }
    let kind = serde_json::to_value(event).ok().and_then(|event| event.get("event").cloned());
    text(&json!({ "event": kind, "server": event.server(), "truncated": true }))
}
