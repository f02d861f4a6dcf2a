//! One server's list, fetched once for all clients.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalog::entry_rules::check_entry;
use crate::catalog::list_kind::{ListKind, ListNames};
use ropeway_core::duration::format_duration;
use ropeway_core::error_chain::chain;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::{Era, one_line};
use ropeway_mcp::{LinkKey, Mcp, PagedList, RawList};

/// Maximum entries and bytes in one server's list. Further entries are dropped with a warning.
const MAX_ENTRIES: usize = 10_000;
const MAX_BYTES: usize = 8 << 20;

/// Maximum bytes in a name, URI or URI template. Entries with longer ones are dropped, since no request can name them.
const MAX_ID_BYTES: usize = 8 << 10;

/// A server's list, kept until it changes or expires.
///
/// [`Catalog`](super::Catalog) and a fetch in progress own it together. `state` is locked to read or replace a value, never
/// across an `.await`. At most one fetch runs at a time, in a task that continues when its callers time out, so that a later
/// caller finds the result. [`FetchGuard`] stores the outcome and ends the fetch when it is dropped, even after a panic, and
/// `finished` wakes all callers. Dropping the list does not stop a fetch: the task owns a clone.
#[derive(Default)]
pub(crate) struct ServerList {
    state: Mutex<ListState>,
    /// Notified when a request ends.
    finished: watch::Sender<u64>,
}

#[derive(Default)]
struct ListState {
    entries: Option<Arc<ServerEntries>>,
    /// Counts the changes that the server has reported.
    changes: u64,
    /// The last request's failure.
    failure: Option<String>,
    is_fetching: bool,
}

/// A list's entries.
#[derive(Debug)]
pub(crate) struct ServerEntries {
    pub(crate) entries: Vec<ServerEntry>,
    /// The entries that are not listed, with the reasons.
    pub(crate) left_out: Vec<String>,
    /// The connection that the list was received on.
    pub(crate) link: LinkKey,
    fetched: Instant,
    ttl: Option<Duration>,
    /// [`ListState::changes`] when the request started.
    changes: u64,
}

/// A list entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerEntry {
    /// The name, URI or URI template.
    pub(crate) id: Box<str>,
    /// The entry as the server sent it, in one line.
    pub(crate) json: Arc<str>,
}

impl Default for ServerEntries {
    fn default() -> Self {
        let (entries, left_out) = (Vec::new(), Vec::new());
        Self { entries, left_out, link: LinkKey(0), fetched: Instant::now(), ttl: None, changes: 0 }
    }
}

impl ServerEntries {
    /// Requests a server's list. Fails with the error and its causes.
    pub(crate) async fn request(mcp: &Mcp, kind: ListKind) -> Result<Self, String> {
        let ListNames { method, key, capability, noun, .. } = kind.names();
        let RawList { entries, ttl } =
            mcp.list_raw(PagedList { method, key, noun }, capability).await.map_err(|error| chain(&error))?;
        let (entries, left_out) = read_entries(mcp.alias().as_str(), kind, &entries);
        Ok(Self { entries, left_out, link: mcp.link(), fetched: Instant::now(), ttl, changes: 0 })
    }

    /// Returns how long clients may cache the list.
    pub(crate) fn remaining_ttl(&self) -> Duration {
        self.ttl.unwrap_or_default().saturating_sub(self.fetched.elapsed())
    }

    fn is_fresh(&self, link: LinkKey, changes: u64) -> bool {
        self.link == link && self.changes == changes && self.ttl.is_none_or(|ttl| self.fetched.elapsed() < ttl)
    }
}

impl ServerList {
    /// Returns the cached entries, which may be outdated.
    pub(crate) fn known(&self) -> Option<Arc<ServerEntries>> {
        lock(&self.state).entries.clone()
    }

    /// Makes the next request fetch the list again.
    pub(crate) fn invalidate(&self) {
        lock(&self.state).changes += 1;
    }

    /// Returns the current entries, or the reason why they are missing. A request that takes longer than `timeout` continues, so
    /// that a later one finds its result.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        mcp: &Mcp,
        kind: ListKind,
        timeout: Duration,
    ) -> Result<Arc<ServerEntries>, String> {
        let (link, deadline) = (mcp.link(), Instant::now() + timeout);
        let late = || format!("no response within {}", format_duration(timeout));
        let wanted = lock(&self.state).changes;
        loop {
            let mut finished = {
                let mut state = lock(&self.state);
                if let Some(entries) = state.entries.clone().filter(|entries| entries.is_fresh(link, state.changes)) {
                    return Ok(entries);
                }
                let finished = self.finished.subscribe();
                if !std::mem::replace(&mut state.is_fetching, true) {
                    let (list, changes) = (FetchGuard(self.clone()), state.changes);
                    tokio::spawn(list.run(mcp.clone(), kind, changes));
                }
                finished
            };
            // The sender is part of this list.
            tokio::time::timeout_at(deadline, finished.changed()).await.map_err(|_| late())?.map_err(|_| late())?;
            let state = lock(&self.state);
            match (&state.failure, &state.entries) {
                // The request may have begun before the change that the caller knows of.
                (None, Some(entries)) if entries.link == link && entries.changes < wanted => {}
                (None, Some(entries)) if entries.link == link => return Ok(entries.clone()),
                (failure, _) => return Err(failure.clone().unwrap_or_else(late)),
            }
        }
    }
}

/// A request in progress. Dropping it lets another one start.
struct FetchGuard(Arc<ServerList>);

impl FetchGuard {
    async fn run(self, mcp: Mcp, kind: ListKind, changes: u64) {
        let fetched = ServerEntries::request(&mcp, kind).await;
        let mut state = lock(&self.0.state);
        match fetched {
            Ok(entries) => {
                state.entries = Some(Arc::new(ServerEntries { changes, ..entries }));
                state.failure = None;
            }
            Err(problem) => state.failure = Some(problem),
        }
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        lock(&self.0.state).is_fetching = false;
        self.0.finished.send_modify(|count| *count += 1);
    }
}

/// Reads a list's entries, within the limits. Also returns the reasons for entries that clients cannot accept.
fn read_entries(server: &str, kind: ListKind, raw: &[Box<RawValue>]) -> (Vec<ServerEntry>, Vec<String>) {
    let ListNames { id: id_key, noun, .. } = kind.names();
    let mut entries = Vec::new();
    let mut left_out = Vec::new();
    let (mut bytes, mut invalid) = (0, 0);
    for entry in raw {
        let Some(id) = member(entry.get(), id_key).filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES) else {
            invalid += 1;
            continue;
        };
        bytes += entry.get().len();
        if entries.len() >= MAX_ENTRIES || bytes > MAX_BYTES {
            let left_out = raw.len() - entries.len() - invalid;
            tracing::warn!(server, "left out {left_out} entries of the {noun} list: it is too large");
            break;
        }
        // The rules are the same in both eras, except for tools.
        match check_entry(kind, entry.get(), Era::Legacy) {
            Ok(json) => entries.push(ServerEntry { id: id.into(), json: one_line(json).into() }),
            Err(reason) => left_out.push(format!("`{id}` {reason}")),
        }
    }
    if invalid > 0 {
        tracing::warn!(server, "left out {invalid} entries of the {noun} list without a valid `{id_key}`");
    }
    for reason in &left_out {
        tracing::warn!(server, "left out {noun} {reason}");
    }
    (entries, left_out)
}

/// Returns a string member from a JSON object.
fn member(text: &str, key: &str) -> Option<String> {
    let mut found = None;
    each_member(text, |name, value| {
        if name == key {
            found = serde_json::from_str(value.get()).ok();
        }
    })?;
    found
}

/// Replaces a member's value in a JSON object's text. Everything else is unchanged.
pub(crate) fn replace_member(text: &str, key: &str, value: &str) -> Option<String> {
    let mut replaced = String::with_capacity(text.len() + value.len());
    let mut done = 0;
    each_member(text, |name, old| {
        if name == key {
            // The value is a slice of the text.
            let start = old.get().as_ptr().addr() - text.as_ptr().addr();
            replaced.push_str(&text[done..start]);
            replaced.push_str(value);
            done = start + old.get().len();
        }
    })?;
    replaced.push_str(&text[done..]);
    Some(replaced)
}

/// Passes each member of a JSON object to `take`. Returns `None` if the text is not an object.
fn each_member<'a>(text: &'a str, take: impl FnMut(&str, &'a RawValue)) -> Option<()> {
    struct Members<F>(F);
    impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
                (self.0)(&key, value);
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Members(take)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_value_of_a_member_is_replaced() {
        let text = r#"{ "a" : 1.50, "name": "x\u0041" ,"z":{"name":"y"}, "name":null}"#;
        let expected = r#"{ "a" : 1.50, "name": "b" ,"z":{"name":"y"}, "name":"b"}"#;
        assert_eq!(replace_member(text, "name", r#""b""#).as_deref(), Some(expected));
        assert_eq!(replace_member(text, "other", "1").as_deref(), Some(text));
        assert_eq!(replace_member("[1]", "name", "1"), None);
        assert_eq!(member(r#"{"name":"x\u0041"}"#, "name").as_deref(), Some("xA"));
        assert_eq!(member(r#"{"name":7}"#, "name"), None);
    }

    #[test]
    fn a_list_is_bounded_and_keeps_its_text() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let (entries, _) = read_entries(
            "s",
            ListKind::Resources,
            &[raw("{\"uri\":\"a:b\",\n\"size\":1.0,\"x\":{}}"), raw("7"), raw(r#"{"uri":""}"#), raw(r#"{"name":"c"}"#)],
        );
        let json = r#"{"uri":"a:b","size":1.0,"x":{},"name":"a:b"}"#.into();
        assert_eq!(entries, [ServerEntry { id: "a:b".into(), json }]);
        let many: Vec<_> = (0..MAX_ENTRIES + 5).map(|number| raw(&format!(r#"{{"name":"{number}"}}"#))).collect();
        assert_eq!(read_entries("s", ListKind::Prompts, &many).0.len(), MAX_ENTRIES);
        let large = raw(&format!(r#"{{"name":"a","text":"{}"}}"#, "x".repeat(MAX_BYTES / 2)));
        assert_eq!(read_entries("s", ListKind::Prompts, &[large.clone(), large]).0.len(), 1);
    }
}
