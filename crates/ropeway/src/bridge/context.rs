//! What a server has to say before a conversation: its instructions, and the resources that the configuration names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::slot::Slot;
use crate::config::ResourceSettings;
use crate::content::{ContentPart, EmbeddedResource, ResourceContents};
use crate::event::{Event, EventStream};
use crate::mcp::{Era, Mcp, ServerInfo, chain};
use crate::registry::{ContextItem, Glob};
use crate::tool::CallContext;

/// How long a conversation waits for one resource.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most resources that one pattern may stand for.
const MOST: usize = 256;

/// Resources that were read, until the server says that they have changed.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    kept: Mutex<Kept>,
    listener: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Counts what the server has told, so that what was read before is known to be old.
    changes: u64,
    uris: Option<Vec<String>>,
    contents: HashMap<String, Arc<[EmbeddedResource]>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

/// What one server has to say.
pub(super) async fn of(slot: &Arc<Slot>) -> Vec<ContextItem> {
    let Some((mcp, info)) = slot.mcp().and_then(|mcp| Some((mcp.clone(), mcp.server_info()?))) else {
        return Vec::new();
    };
    let mut items = Vec::new();
    if let Some(text) = info.instructions.as_ref().filter(|_| slot.entry.instructions) {
        items.push(ContextItem::new("instructions", vec![ContentPart::text(text)]).with_server(slot.alias().clone()));
    }
    let settings = &slot.entry.resources;
    if !settings.context.is_empty() {
        items.extend(resources(slot, &mcp, &info, settings).await);
    }
    items
}

async fn resources(slot: &Arc<Slot>, mcp: &Mcp, info: &ServerInfo, settings: &ResourceSettings) -> Vec<ContextItem> {
    // What cannot tell its changes is read anew for every conversation.
    let tells = info.era == Era::Modern || info.can(&["resources", "subscribe"]);
    if tells {
        slot.shelf().listen(slot, mcp);
    }
    let uris = match slot.shelf().uris() {
        Some(uris) => uris,
        None => {
            let changes = slot.shelf().changes();
            let uris = named(slot, mcp, &settings.context).await;
            if tells {
                uris.iter().for_each(|uri| mcp.subscribe(uri));
                slot.shelf().keep_uris(changes, &uris);
            }
            uris
        }
    };
    let mut reads = JoinSet::new();
    for (number, uri) in uris.iter().cloned().enumerate() {
        let (slot, mcp) = (slot.clone(), mcp.clone());
        reads.spawn(async move { (number, read(&slot, &mcp, &uri, tells).await) });
    }
    let mut contents = reads.join_all().await;
    contents.sort_by_key(|(number, _)| *number);

    let mut budget = settings.context_bytes;
    let item = |(number, contents): (usize, Option<Arc<[EmbeddedResource]>>)| {
        let parts = contents?.iter().map(|resource| within(resource, &mut budget)).collect::<Vec<_>>();
        Some(ContextItem::new(uris[number].clone(), parts).with_server(slot.alias().clone()))
    };
    contents.into_iter().filter_map(item).collect()
}

/// The URIs that the configuration means, each once.
async fn named(slot: &Slot, mcp: &Mcp, patterns: &[String]) -> Vec<String> {
    let is_glob = |pattern: &&String| pattern.contains(['*', '?', '[', '{']);
    let mut uris: Vec<String> = patterns.iter().filter(|pattern| !is_glob(pattern)).cloned().collect();
    // What is no glob was refused with the settings.
    let globs: Vec<Glob> = patterns.iter().filter(is_glob).filter_map(|pattern| Glob::new(pattern).ok()).collect();
    if !globs.is_empty() {
        match tokio::time::timeout(PATIENCE, mcp.list_resources()).await {
            Ok(Ok(listed)) => {
                let listed = listed.into_iter().map(|resource| resource.uri);
                let named = |uri: &String| globs.iter().any(|glob| glob.matches(uri));
                uris.extend(listed.filter(named).take(MOST));
            }
            Ok(Err(error)) => {
                slot.roof().warn(Some(slot.alias()), format!("its resources could not be listed: {}", chain(&error)));
            }
            Err(_) => {
                let message = format!("its resources could not be listed within {PATIENCE:?}");
                slot.roof().warn(Some(slot.alias()), message);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    uris.retain(|uri| seen.insert(uri.clone()));
    uris
}

async fn read(slot: &Slot, mcp: &Mcp, uri: &str, keep: bool) -> Option<Arc<[EmbeddedResource]>> {
    if let Some(contents) = slot.shelf().contents(uri) {
        return Some(contents);
    }
    let changes = slot.shelf().changes();
    match mcp.read_resource(uri, &CallContext::default().with_timeout(PATIENCE)).await {
        Ok(contents) => {
            let contents: Arc<[EmbeddedResource]> = contents.into();
            if keep {
                slot.shelf().keep(changes, uri, &contents);
            }
            Some(contents)
        }
        Err(error) => {
            let message = format!("resource `{uri}` could not be read: {}", chain(&error));
            slot.roof().warn(Some(slot.alias()), message);
            None
        }
    }
}

/// As much of a resource as there is room for, and a line that tells of the rest.
fn within(resource: &EmbeddedResource, budget: &mut usize) -> ContentPart {
    let (size, text) = match &resource.contents {
        ResourceContents::Text(text) => (text.len(), Some(text)),
        ResourceContents::Blob(base64) => (base64.len(), None),
    };
    if size <= *budget {
        *budget -= size;
        return ContentPart::Resource(resource.clone());
    }
    let room = std::mem::take(budget);
    let Some(text) = text else {
        let kind = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
        return ContentPart::text(format!("[`{}` is left out: {size} bytes of base64, {kind}]", resource.uri));
    };
    let cut = text.floor_char_boundary(room);
    let missing = size - cut;
    let mut resource = resource.clone();
    resource.contents = ResourceContents::Text(format!("{}\n[{missing} of {size} bytes are left out]", &text[..cut]));
    ContentPart::Resource(resource)
}

impl Shelf {
    fn uris(&self) -> Option<Vec<String>> {
        lock(&self.kept).uris.clone()
    }

    fn contents(&self, uri: &str) -> Option<Arc<[EmbeddedResource]>> {
        lock(&self.kept).contents.get(uri).cloned()
    }

    fn changes(&self) -> u64 {
        lock(&self.kept).changes
    }

    fn keep_uris(&self, changes: u64, uris: &[String]) {
        let mut kept = lock(&self.kept);
        if kept.changes == changes {
            kept.uris = Some(uris.to_vec());
        }
    }

    fn keep(&self, changes: u64, uri: &str, contents: &Arc<[EmbeddedResource]>) {
        let mut kept = lock(&self.kept);
        if kept.changes == changes {
            kept.contents.insert(uri.to_owned(), contents.clone());
        }
    }

    /// Hears from now on what has changed.
    fn listen(&self, slot: &Arc<Slot>, mcp: &Mcp) {
        let mut listener = lock(&self.listener);
        if listener.as_ref().is_none_or(AbortHandle::is_finished) {
            *listener = Some(tokio::spawn(forget(Arc::downgrade(slot), mcp.events())).abort_handle());
        }
    }
}

/// Forgets what the server says has changed.
async fn forget(slot: Weak<Slot>, mut events: EventStream) {
    while let Some(event) = events.next().await {
        let Some(slot) = slot.upgrade() else { return };
        let mut kept = lock(&slot.shelf().kept);
        match event {
            Event::ResourceUpdated { uri, .. } => {
                kept.contents.remove(&uri);
            }
            Event::ResourcesChanged { .. } => kept.uris = None,
            // Whatever happened meanwhile was not told.
            Event::Ready { .. } | Event::Lagged { .. } => {
                kept.uris = None;
                kept.contents.clear();
            }
            _ => continue,
        }
        kept.changes += 1;
    }
}
