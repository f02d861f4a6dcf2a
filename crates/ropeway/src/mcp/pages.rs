//! Lists of a server, page by page: the one loop that all of them share.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::inbox::Clocks;
use super::redaction;
use super::session::Session;
use super::shared::Shared;
use super::tools::unreadable;
use super::transport::Request;
use crate::config::ServerLimits;
use crate::error_chain::chain;
use crate::json;
use crate::protocol::{Page, code};
use crate::tool::{CallContext, CallError};

/// A list that servers give out in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paged {
    /// How to ask for it.
    pub(crate) method: &'static str,
    /// Where its entries are in an answer.
    pub(crate) key: &'static str,
    /// What an entry is called in words.
    pub(crate) noun: &'static str,
}

/// How long the pages of one list may take in all, unless its caller has less time.
const LONGEST_LIST: Duration = Duration::from_secs(120);

/// The longest cursor that is sent back.
const LONGEST_CURSOR: usize = 64 << 10;

/// How many odd entries of one list are told; the others are counted.
const MOST_COMPLAINTS: usize = 10;

/// What is known about a list besides its entries.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// How long it may be kept; not at all when a page is missing.
    pub(crate) ttl: Option<Duration>,
    /// Equal for lists that came in the same words.
    pub(crate) digest: u64,
    /// Which limit the list has reached, in words; what came before it is used.
    pub(crate) cut: Option<String>,
}

/// How much of a list is left to be taken.
#[derive(Debug)]
struct Budget {
    limits: ServerLimits,
    entries: usize,
    bytes: usize,
    left_out: usize,
}

impl Budget {
    fn new(limits: ServerLimits) -> Self {
        Self { limits, entries: 0, bytes: 0, left_out: 0 }
    }

    /// The largest entry: one must not be all there is.
    fn entry_bytes(&self) -> usize {
        self.limits.list_bytes / 8
    }

    /// Counts an entry; false when there is no room for it.
    fn take(&mut self, size: usize) -> bool {
        let fits = self.reached().is_none() && self.bytes + size <= self.limits.list_bytes;
        match fits {
            true => {
                self.entries += 1;
                self.bytes += size;
            }
            false => self.left_out += 1,
        }
        fits
    }

    /// The limit that is reached, in words.
    fn reached(&self) -> Option<String> {
        let ServerLimits { list_entries, list_bytes, .. } = self.limits;
        if self.left_out > 0 || self.bytes >= list_bytes {
            let limit = match self.entries >= list_entries {
                true => format!("its limit of {list_entries} entries (`list_entries`)"),
                false => format!("its limit of {list_bytes} bytes (`list_bytes`)"),
            };
            return Some(limit);
        }
        (self.entries >= list_entries).then(|| format!("its limit of {list_entries} entries (`list_entries`)"))
    }
}

/// Tells what is odd about the entries of one list, but not without end.
#[derive(Debug)]
pub(crate) struct Complaints<'a> {
    shared: &'a Shared,
    count: usize,
}

impl<'a> Complaints<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared, count: 0 }
    }

    pub(crate) fn warn(&mut self, message: &str) {
        self.count += 1;
        if self.count <= MOST_COMPLAINTS {
            self.shared.host.warn(message);
        }
    }
}

impl Drop for Complaints<'_> {
    fn drop(&mut self) {
        if let Some(more) = self.count.checked_sub(MOST_COMPLAINTS).filter(|more| *more > 0) {
            self.shared.host.warn(&format!("{more} more invalid entries"));
        }
    }
}

/// Fetches a list and hands each entry to `take`, with the session that it came over.
///
/// A server that does not know the question has nothing to list. A later page that fails is a warning, and so is a list
/// that reaches its limits: what came before is used.
pub(crate) async fn fetch(
    shared: &Arc<Shared>,
    list: Paged,
    cx: &CallContext,
    mut take: impl FnMut(&RawValue, &Session, &mut Complaints<'_>),
) -> Result<Whole, CallError> {
    let clocks = shared.clocks(cx);
    let noun = list.noun;
    let limits = shared.config.limits;
    let mut whole = Whole::default();
    let mut budget = Budget::new(limits);
    let mut complaints = Complaints::new(shared);
    let mut page_bytes = 0;
    let mut digest = DefaultHasher::new();
    let mut cursor: Option<String> = None;
    // The hashes of all cursors so far: the cursors themselves may be long.
    let mut seen = HashSet::new();
    for page_number in 1.. {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})).to_string();
        let request = Request { idempotent: true, ..Request::new(list.method, params.as_bytes()) };
        // A page that was never asked for in time is not a page that is missing.
        let end = clocks.started + LONGEST_LIST;
        let page_clocks = match page_number {
            1 => clocks,
            _ => Clocks { deadline: clocks.deadline.min(end), ..clocks },
        };
        let (answer, session) = match shared.request(&request, cx, page_clocks, None).await {
            Ok(answer) => answer,
            Err(CallError::Refused { code: code::METHOD_NOT_FOUND, .. }) if page_number == 1 => break,
            Err(error) if page_number == 1 => return Err(error),
            Err(CallError::Timeout { .. }) if end < clocks.deadline && Instant::now() >= end => {
                whole.cut = Some(format!("its limit of {LONGEST_LIST:?} after {} pages", page_number - 1));
                break;
            }
            Err(error @ (CallError::Cancelled | CallError::Timeout { .. })) => return Err(error),
            Err(error) => {
                // What is not the whole list is not kept.
                whole.ttl = Some(Duration::ZERO);
                shared.host.warn(&format!("page {page_number} of the {noun} list is missing: {}", chain(&error)));
                break;
            }
        };
        answer.digest(&mut digest);
        let result: Box<RawValue> = answer.read(&shared.host).map_err(|error| unreadable(shared, error))?;
        drop(answer);
        let result = json::repair_raw(result);
        page_bytes += result.get().len();
        let page = Page::read_up_to(&result, list.key, limits.list_entries.saturating_sub(budget.entries));
        whole.ttl = [whole.ttl, page.ttl].into_iter().flatten().min();
        for entry in page.items {
            let size = entry.get().len();
            if size > budget.entry_bytes() {
                let most = budget.entry_bytes();
                complaints
                    .warn(&format!("the {noun} list holds an entry of {size} bytes: those over {most} are left out"));
            } else if budget.take(size) {
                take(entry, &session, &mut complaints);
            }
        }
        budget.left_out += page.left_out;
        let is_last = page.next_cursor.is_none();
        // What comes beside the entries counts as well: the server could send it without end.
        if page_bytes >= limits.list_bytes {
            budget.bytes = budget.bytes.max(limits.list_bytes);
        }
        whole.cut = budget.reached().filter(|_| !is_last || budget.left_out > 0);
        if whole.cut.is_some() {
            break;
        }
        cursor = match page.next_cursor {
            None => break,
            Some(next) if next.len() > LONGEST_CURSOR => {
                shared
                    .host
                    .warn(&format!("the {noun} list has a cursor of {} bytes: the rest is left out", next.len()));
                break;
            }
            Some(next) if !seen.insert(hash(&next)) => {
                shared.host.warn(&format!("the {noun} list repeats its cursor `{next}`: the rest is left out"));
                break;
            }
            Some(_) if page_number >= limits.pages => {
                shared.host.warn(&format!("the {noun} list has more than {page_number} pages: the rest is left out"));
                break;
            }
            next => next,
        };
    }
    if let Some(cut) = &mut whole.cut {
        *cut = format!("the {noun} list has reached {cut}: the rest is left out");
        shared.host.warn(cut);
    }
    whole.digest = digest.finish();
    Ok(whole)
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// The entries of a list that is read anew each time. Nothing is asked of a server that says that it has no such list.
pub(crate) async fn entries<T>(
    shared: &Arc<Shared>,
    list: Paged,
    capability: &str,
    read: impl Fn(Value) -> Result<T, String>,
) -> Result<Vec<T>, CallError> {
    let cx = CallContext::default();
    let session = shared.session(&cx, shared.clocks(&cx)).await?;
    // A server that says nothing at all about itself may have anything.
    if !session.info.capabilities.is_empty() && !session.info.can(&[capability]) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    let take = |entry: &RawValue, _: &Session, complaints: &mut Complaints<'_>| {
        let Some(entry) = redaction::entry(shared.host.mask(), entry) else {
            return complaints.warn(&format!("an entry of the {} list cannot be redacted and is left out", list.noun));
        };
        match read(json::from_str(entry.get()).unwrap_or_default()) {
            Ok(entry) => entries.push(entry),
            Err(why) => complaints.warn(&format!("the {} list holds {why}", list.noun)),
        }
    };
    fetch(shared, list, &cx, take).await?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_names_the_limit_that_was_reached() {
        let budget = |list_entries, list_bytes| {
            Budget::new(ServerLimits { list_entries, list_bytes, ..ServerLimits::default() })
        };
        let mut few = budget(2, 100);
        assert!(few.take(10) && few.take(10));
        assert!(!few.take(10));
        assert_eq!(few.reached().as_deref(), Some("its limit of 2 entries (`list_entries`)"));
        let mut small = budget(9, 25);
        assert!(small.take(10) && small.take(10));
        assert_eq!(small.reached(), None);
        assert!(!small.take(10));
        // A smaller one that would fit does not come after one that did not.
        assert!(!small.take(1));
        assert_eq!((small.entries, small.left_out), (2, 2));
        assert_eq!(small.reached().as_deref(), Some("its limit of 25 bytes (`list_bytes`)"));
    }
}
