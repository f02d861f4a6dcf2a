//! Lists of a server, page by page: the one loop that all of them share.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::redaction;
use super::session::Session;
use super::shared::{Shared, chain};
use super::tools::unreadable;
use super::transport::Request;
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

/// What is known about a list besides its entries.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    /// How long it may be kept; not at all when a page is missing.
    pub(crate) ttl: Option<Duration>,
    /// Equal for lists that came in the same words.
    pub(crate) digest: u64,
}

/// Fetches a list and hands each entry to `take`, with the session that it came over.
///
/// A server that does not know the question has nothing to list. A later page that fails is a warning.
pub(crate) async fn fetch(
    shared: &Arc<Shared>,
    list: Paged,
    cx: &CallContext,
    mut take: impl FnMut(&RawValue, &Session),
) -> Result<Whole, CallError> {
    let clocks = shared.clocks(cx);
    let noun = list.noun;
    let mut whole = Whole::default();
    let mut digest = DefaultHasher::new();
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    for page_number in 1.. {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})).to_string();
        let request = Request { idempotent: true, ..Request::new(list.method, params.as_bytes()) };
        let (answer, session) = match shared.request(&request, cx, clocks, None).await {
            Ok(answer) => answer,
            Err(CallError::Refused { code: code::METHOD_NOT_FOUND, .. }) if page_number == 1 => break,
            Err(error) if page_number == 1 => return Err(error),
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
        let page = Page::read(&result, list.key);
        whole.ttl = [whole.ttl, page.ttl].into_iter().flatten().min();
        for entry in page.items {
            take(&entry, &session);
        }
        cursor = match page.next_cursor {
            None => break,
            Some(next) if !seen.insert(next.clone()) => {
                shared.host.warn(&format!("the {noun} list repeats its cursor `{next}`: the rest is left out"));
                break;
            }
            Some(_) if page_number >= shared.config.limits.pages => {
                shared.host.warn(&format!("the {noun} list has more than {page_number} pages: the rest is left out"));
                break;
            }
            next => next,
        };
    }
    whole.digest = digest.finish();
    Ok(whole)
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
    let take = |entry: &RawValue, _: &Session| {
        let Some(entry) = redaction::entry(shared.host.mask(), entry) else {
            return shared.host.warn(&format!("an entry of the {} list cannot be redacted and is left out", list.noun));
        };
        match read(serde_json::from_str(entry.get()).unwrap_or_default()) {
            Ok(entry) => entries.push(entry),
            Err(why) => shared.host.warn(&format!("the {} list holds {why}", list.noun)),
        }
    };
    fetch(shared, list, &cx, take).await?;
    Ok(entries)
}
