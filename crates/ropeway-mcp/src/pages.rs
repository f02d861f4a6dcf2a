//! Fetches paginated lists
//! ([pagination](https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination)).

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::connection::Connection;
use super::redaction::redact_entry;
use super::request::Request;
use super::session::Session;
use super::timeouts::RequestTimeouts;
use crate::protocol::{Page, code};
use ropeway_config::ServerLimits;
use ropeway_core::error_chain::chain;
use ropeway_core::json;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{BoxFuture, CallContext, CallError};

/// A server's paginated list.
#[derive(Clone, Copy, Debug)]
pub struct PagedList {
    /// The method that returns a page.
    pub method: &'static str,
    /// The result field that holds the entries.
    pub key: &'static str,
    /// The word for an entry, in warnings.
    pub noun: &'static str,
}

/// Maximum time for all pages in a list.
const MAX_LIST_TIME: Duration = Duration::from_secs(120);

/// Maximum cursor size.
const MAX_CURSOR_BYTES: usize = 64 << 10;

/// The entries of a page from this size are redacted on another thread.
const LARGE_PAGE: usize = 128 << 10;

/// Maximum warnings about one list. Further ones are counted.
const MAX_WARNINGS: usize = 10;

/// Describes a list as a whole.
#[derive(Debug, Default)]
pub(crate) struct ListSummary {
    /// How long the list may be cached; zero if a page is missing.
    pub(crate) ttl: Option<Duration>,
    /// A hash over the received bytes.
    pub(crate) digest: u64,
    /// A warning that names the limit that truncated the list.
    pub(crate) truncation: Option<String>,
}

/// Applies the configured limits to a list.
#[derive(Debug)]
struct ListBudget {
    limits: ServerLimits,
    entries: usize,
    bytes: usize,
    left_out: usize,
}

impl ListBudget {
    fn new(limits: ServerLimits) -> Self {
        Self { limits, entries: 0, bytes: 0, left_out: 0 }
    }

    /// Returns the maximum size for a single entry.
    fn entry_bytes(&self) -> usize {
        self.limits.list_bytes / 8
    }

    /// Counts an entry. Returns `false` if it exceeds a limit.
    fn take(&mut self, size: usize) -> bool {
        let fits = self.reached().is_none() && self.bytes + size <= self.limits.list_bytes;
        if fits {
            self.entries += 1;
            self.bytes += size;
        } else {
            self.left_out += 1;
        }
        fits
    }

    /// Returns the limit that is reached, for a warning.
    fn reached(&self) -> Option<String> {
        let ServerLimits { list_entries, list_bytes, .. } = self.limits;
        if self.entries >= list_entries {
            return Some(format!("the limit of {list_entries} entries (`list_entries`)"));
        }
        (self.left_out > 0 || self.bytes >= list_bytes)
            .then(|| format!("the limit of {list_bytes} bytes (`list_bytes`)"))
    }
}

/// Emits a limited number of warnings about one list's entries.
#[derive(Debug)]
pub(crate) struct ListWarnings<'a> {
    connection: &'a Connection,
    count: usize,
}

impl<'a> ListWarnings<'a> {
    pub(crate) fn new(connection: &'a Connection) -> Self {
        Self { connection, count: 0 }
    }

    pub(crate) fn warn(&mut self, message: &str) {
        self.count += 1;
        if self.count <= MAX_WARNINGS {
            self.connection.host.warn(message);
        }
    }
}

impl Drop for ListWarnings<'_> {
    fn drop(&mut self) {
        if let Some(more) = self.count.checked_sub(MAX_WARNINGS).filter(|more| *more > 0) {
            self.connection.host.warn(&format!("{more} more invalid entries"));
        }
    }
}

/// Redacts a page's entries; `None` stands for an entry that cannot be redacted.
///
/// A large page is redacted on another thread: text with many escapes takes seconds, and other servers must not wait for it.
async fn redacted<'a>(redactor: &Redactor, entries: Vec<&'a RawValue>) -> Vec<Option<Cow<'a, RawValue>>> {
    let size: usize = entries.iter().map(|entry| entry.get().len()).sum();
    if redactor.is_empty() || size < LARGE_PAGE {
        return entries.into_iter().map(|entry| redact_entry(redactor, entry)).collect();
    }
    let (redactor, count) = (redactor.clone(), entries.len());
    let owned: Vec<Box<RawValue>> = entries.into_iter().map(ToOwned::to_owned).collect();
    let redact = move || {
        let redact = |entry: &RawValue| redact_entry(&redactor, entry).map(|entry| Cow::Owned(entry.into_owned()));
        owned.iter().map(|entry| redact(entry)).collect()
    };
    // After a panic, no entry is used.
    tokio::task::spawn_blocking(redact).await.unwrap_or_else(|_| vec![None; count])
}

/// Fetches a list and passes each entry to `take`, redacted, with the session that it was received on.
///
/// If the server does not support the method, the list is empty. If a later page fails or the list reaches a limit, the entries
/// so far are used, and a warning is emitted.
///
/// Boxed, so that it is compiled here and not again in every crate that awaits it.
pub(crate) fn fetch<'a>(
    connection: &'a Arc<Connection>,
    list: PagedList,
    cx: &'a CallContext,
    take: &'a mut TakeEntry<'_>,
) -> BoxFuture<'a, Result<ListSummary, CallError>> {
    Box::pin(fetch_pages(connection, list, cx, take))
}

/// Takes one list entry.
type TakeEntry<'a> = dyn FnMut(&RawValue, &Session, &mut ListWarnings<'_>) + Send + 'a;

async fn fetch_pages(
    connection: &Arc<Connection>,
    list: PagedList,
    cx: &CallContext,
    take: &mut TakeEntry<'_>,
) -> Result<ListSummary, CallError> {
    let timeouts = connection.timeouts(cx);
    let noun = list.noun;
    let limits = connection.config.limits;
    let mut summary = ListSummary::default();
    let mut budget = ListBudget::new(limits);
    let mut warnings = ListWarnings::new(connection);
    let mut page_bytes = 0;
    let mut digest = DefaultHasher::new();
    let mut cursor: Option<String> = None;
    // Holds hashes instead of the cursors so far, because cursors may be long.
    let mut seen = HashSet::new();
    for page_number in 1.. {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})).to_string();
        let end = timeouts.started + MAX_LIST_TIME;
        let page_clocks = match page_number {
            1 => timeouts,
            _ => RequestTimeouts { deadline: timeouts.deadline.min(end), ..timeouts },
        };
        let request = Request::new(list.method, params.as_bytes(), cx, page_clocks);
        let (response, session) = match connection.request(&Request { idempotent: true, ..request }, None).await {
            Ok(response) => response,
            Err(CallError::Refused { code: code::METHOD_NOT_FOUND, .. }) if page_number == 1 => break,
            Err(error) if page_number == 1 => return Err(error),
            Err(CallError::Timeout { .. }) if end < timeouts.deadline && Instant::now() >= end => {
                summary.truncation = Some(format!("the limit of {MAX_LIST_TIME:?} after {} pages", page_number - 1));
                break;
            }
            Err(error @ (CallError::Cancelled | CallError::Timeout { .. })) => return Err(error),
            Err(error) => {
                // An incomplete list is not cached.
                summary.ttl = Some(Duration::ZERO);
                connection
                    .host
                    .warn(&format!("could not fetch page {page_number} of the {noun} list: {}", chain(&error)));
                break;
            }
        };
        response.digest(&mut digest);
        let result: Box<RawValue> = response.read(&connection.host).map_err(|error| connection.decode_error(error))?;
        drop(response);
        let result = json::repair_raw(result);
        page_bytes += result.get().len();
        let page = Page::read_up_to(&result, list.key, limits.list_entries.saturating_sub(budget.entries));
        summary.ttl = [summary.ttl, page.ttl].into_iter().flatten().min();
        let mut accepted = Vec::with_capacity(page.items.len());
        for entry in page.items {
            let size = entry.get().len();
            if size > budget.entry_bytes() {
                let most = budget.entry_bytes();
                warnings
                    .warn(&format!("skipped an entry of {size} bytes in the {noun} list: the limit is {most} bytes"));
            } else if budget.take(size) {
                accepted.push(entry);
            }
        }
        for entry in redacted(&connection.host.redactor(), accepted).await {
            match entry {
                Some(entry) => take(&entry, &session, &mut warnings),
                None => warnings.warn(&format!("skipped an entry of the {noun} list that cannot be redacted")),
            }
        }
        budget.left_out += page.left_out;
        let is_last = page.next_cursor.is_none();
        // Other fields count as well, because the server could send them without end.
        if page_bytes >= limits.list_bytes {
            budget.bytes = budget.bytes.max(limits.list_bytes);
        }
        summary.truncation = budget.reached().filter(|_| !is_last || budget.left_out > 0);
        if summary.truncation.is_some() {
            break;
        }
        cursor = match page.next_cursor {
            None => break,
            Some(next) if next.len() > MAX_CURSOR_BYTES => {
                connection.host.warn(&format!("truncated the {noun} list: its cursor has {} bytes", next.len()));
                break;
            }
            Some(next) if !seen.insert(hash(&next)) => {
                connection.host.warn(&format!("truncated the {noun} list: it repeats the cursor `{next}`"));
                break;
            }
            Some(_) if page_number >= limits.pages => {
                connection.host.warn(&format!("truncated the {noun} list: it has more than {page_number} pages"));
                break;
            }
            next => next,
        };
    }
    if let Some(truncation) = &mut summary.truncation {
        *truncation = format!("truncated the {noun} list: it has reached {truncation}");
        connection.host.warn(truncation);
    }
    summary.digest = digest.finish();
    Ok(summary)
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Fetches and decodes a list. Returns an empty list if the server does not declare the capability.
pub(crate) async fn entries<T: Send>(
    connection: &Arc<Connection>,
    list: PagedList,
    capability: &str,
    read: impl Fn(Value) -> Result<T, String> + Sync,
) -> Result<Vec<T>, CallError> {
    let cx = CallContext::default();
    let session = connection.session(&cx, connection.timeouts(&cx)).await?;
    // A server that declares no capabilities at all may still have the list.
    if !session.info.capabilities.is_empty() && !session.info.has_capability(&[capability]) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    let mut take = |entry: &RawValue, _: &Session, warnings: &mut ListWarnings<'_>| match read(
        json::from_str(entry.get()).unwrap_or_default(),
    ) {
        Ok(entry) => entries.push(entry),
        Err(problem) => warnings.warn(&format!("the {} list contains {problem}", list.noun)),
    };
    fetch(connection, list, &cx, &mut take).await?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use ropeway_core::secret::Secret;

    #[tokio::test]
    async fn only_a_large_page_is_redacted_on_another_thread() {
        let redactor = Redactor::new(&[Secret::new("s3cret-value")]);
        for (size, is_large) in [(10, false), (LARGE_PAGE, true)] {
            let text = format!("{} s3cret-value", "x".repeat(size));
            let entry = to_raw_value(&json!({"name": "a", "description": text})).expect("JSON");
            let mut redacting = Box::pin(redacted(&redactor, vec![&entry]));
            let first = tokio::select! {
                biased;
                entries = &mut redacting => Some(entries),
                () = std::future::ready(()) => None,
            };
            assert_eq!(first.is_none(), is_large, "other tasks run meanwhile");
            let entries = match first {
                Some(entries) => entries,
                None => redacting.await,
            };
            let entry = entries[0].as_ref().expect("an entry").get();
            assert!(entry.ends_with(" ***\"}"), "{}", &entry[entry.len() - 40..]);
        }
    }

    #[test]
    fn a_budget_names_the_limit_that_was_reached() {
        let budget = |list_entries, list_bytes| {
            ListBudget::new(ServerLimits { list_entries, list_bytes, ..ServerLimits::default() })
        };
        let mut few = budget(2, 100);
        assert!(few.take(10) && few.take(10));
        assert!(!few.take(10));
        assert_eq!(few.reached().as_deref(), Some("the limit of 2 entries (`list_entries`)"));
        let mut small = budget(9, 25);
        assert!(small.take(10) && small.take(10));
        assert_eq!(small.reached(), None);
        assert!(!small.take(10));
        // A smaller entry is not added after one that did not fit.
        assert!(!small.take(1));
        assert_eq!((small.entries, small.left_out), (2, 2));
        assert_eq!(small.reached().as_deref(), Some("the limit of 25 bytes (`list_bytes`)"));
    }
}
