//! Resources that were read for a conversation, until the server reports a change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::task::AbortHandle;

use ropeway_core::content::EmbeddedResource;
use ropeway_core::event::{Event, EventStream};
use ropeway_core::sync::lock;
use ropeway_mcp::Mcp;

/// One server's resources, as last read for a conversation.
///
/// The slot owns the cache, so a new slot begins with an empty one. A conversation stores what it reads. The listener task, which
/// [`listen`](Self::listen) spawns, removes what the server reports as changed, and counts up `changes`. A reader notes the count
/// before its request and passes it to `store`, which discards a read that a change has overtaken.
///
/// The two locks are never taken together. The task locks `cached` for one event and releases it before it awaits the next; it
/// refers to `cached` weakly. Dropping the cache aborts the task.
#[derive(Debug, Default)]
pub(super) struct ContextCache {
    cached: Arc<Mutex<CachedResources>>,
    listener: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct CachedResources {
    /// Counts the changes that the server reported. A read that began before a change is not stored.
    changes: u64,
    uris: Option<Vec<String>>,
    contents: HashMap<String, Arc<[EmbeddedResource]>>,
}

impl ContextCache {
    pub(super) fn uris(&self) -> Option<Vec<String>> {
        lock(&self.cached).uris.clone()
    }

    pub(super) fn contents(&self, uri: &str) -> Option<Arc<[EmbeddedResource]>> {
        lock(&self.cached).contents.get(uri).cloned()
    }

    /// Returns how often the cache was invalidated so far.
    pub(super) fn changes(&self) -> u64 {
        lock(&self.cached).changes
    }

    pub(super) fn store_uris(&self, changes: u64, uris: &[String]) {
        let mut cached = lock(&self.cached);
        if cached.changes == changes {
            cached.uris = Some(uris.to_vec());
        }
    }

    pub(super) fn store(&self, changes: u64, uri: &str, contents: &Arc<[EmbeddedResource]>) {
        let mut cached = lock(&self.cached);
        if cached.changes == changes {
            cached.contents.insert(uri.to_owned(), contents.clone());
        }
    }

    /// Starts to follow the server's events. With `has_secrets`, URIs in events may be redacted.
    pub(super) fn listen(&self, mcp: &Mcp, has_secrets: bool) {
        let mut listener = lock(&self.listener);
        if listener.as_ref().is_none_or(AbortHandle::is_finished) {
            let invalidate = invalidate(Arc::downgrade(&self.cached), mcp.events(), has_secrets);
            *listener = Some(tokio::spawn(invalidate).abort_handle());
        }
    }
}

impl Drop for ContextCache {
    fn drop(&mut self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

/// Removes resources that the server reports as changed.
async fn invalidate(cached: Weak<Mutex<CachedResources>>, mut events: EventStream, has_secrets: bool) {
    while let Some(event) = events.next().await {
        let Some(cached) = cached.upgrade() else { return };
        let mut cached = lock(&cached);
        match event {
            Event::ResourceUpdated { uri, .. } if !has_secrets => {
                cached.contents.remove(&uri);
            }
            // The URI may be redacted.
            Event::ResourceUpdated { .. } => cached.contents.clear(),
            Event::ResourcesChanged { .. } => {
                cached.uris = None;
                cached.contents.clear();
            }
            // Changes in between were not reported.
            Event::Ready { .. } | Event::Lagged { .. } => {
                cached.uris = None;
                cached.contents.clear();
            }
            _ => continue,
        }
        cached.changes += 1;
    }
}
