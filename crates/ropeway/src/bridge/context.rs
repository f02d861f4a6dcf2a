//! What a server has to say before a conversation: its instructions, and the resources that the configuration names.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::slot::{Slot, lock};
use crate::config::{Glob, ResourceSettings};
use crate::content::{ContentPart, EmbeddedResource, ResourceContents};
use crate::event::{Event, EventStream};
use crate::mcp::{Mcp, ServerInfo, chain};
use crate::registry::ContextItem;
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
    /// What we have asked to hear of. What was read in the same moment may be old before we hear it.
    subscribed: HashSet<String>,
    contents: HashMap<String, Arc<[EmbeddedResource]>>,
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

/// What one server has to say. One that sleeps is woken for it.
pub(super) async fn of(slot: &Arc<Slot>) -> Vec<ContextItem> {
    let settings = &slot.entry.resources;
    if settings.context.is_empty() && !slot.entry.instructions {
        return Vec::new();
    }
    // That it cannot be woken is its verdict.
    let _ = slot.wake().await;
    let Some((mcp, info)) = slot.mcp().and_then(|mcp| Some((mcp.clone(), mcp.server_info()?))) else {
        return Vec::new();
    };
    let mut items = Vec::new();
    if let Some(text) = info.instructions.as_ref().filter(|_| slot.entry.instructions) {
        items.push(ContextItem::instructions(slot.alias().clone(), text));
    }
    if !settings.context.is_empty() {
        items.extend(resources(slot, &mcp, &info, settings).await);
    }
    items
}

async fn resources(slot: &Arc<Slot>, mcp: &Mcp, info: &ServerInfo, settings: &ResourceSettings) -> Vec<ContextItem> {
    // What a server cannot tell the changes of is asked for anew each time.
    let tells_list = info.has_capability(&["resources", "listChanged"]);
    let tells_contents = info.has_capability(&["resources", "subscribe"]);
    if tells_list || tells_contents {
        slot.shelf().listen(slot, mcp);
    }
    let uris = match slot.shelf().uris() {
        Some(uris) => uris,
        None => {
            let changes = slot.shelf().changes();
            let (uris, is_whole) = named(slot, mcp, &settings.context).await;
            if tells_list && is_whole {
                slot.shelf().keep_uris(changes, &uris);
            }
            uris
        }
    };
    let mut reads = JoinSet::new();
    for (number, uri) in uris.iter().cloned().enumerate() {
        let (slot, mcp) = (slot.clone(), mcp.clone());
        reads.spawn(async move { (number, read(&slot, &mcp, &uri, tells_contents).await) });
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

/// The URIs that the configuration means, each once, and whether those are all.
async fn named(slot: &Slot, mcp: &Mcp, patterns: &[String]) -> (Vec<String>, bool) {
    let is_glob = |pattern: &String| pattern.contains(['*', '?', '[', '{']);
    let mut listed = Vec::new();
    let mut problem = None;
    if patterns.iter().any(is_glob) {
        match tokio::time::timeout(PATIENCE, mcp.list_resources()).await {
            Ok(Ok(resources)) => listed = resources.into_iter().map(|resource| resource.uri).collect(),
            Ok(Err(error)) => problem = Some(format!("its resources could not be listed: {}", chain(&error))),
            Err(_) => problem = Some(format!("its resources could not be listed within {PATIENCE:?}")),
        }
    }
    problem.iter().for_each(|problem| slot.warn(problem));
    let mut uris = Vec::new();
    for pattern in patterns {
        // What is no glob was refused with the settings.
        let glob = Some(pattern).filter(|pattern| is_glob(pattern)).and_then(|pattern| Glob::new(pattern).ok());
        let matching = listed.iter().filter(|uri| glob.as_ref().is_some_and(|glob| glob.matches(uri)));
        let matching: Vec<String> = matching.take(MOST).cloned().collect();
        match glob {
            Some(_) if !matching.is_empty() => uris.extend(matching),
            Some(_) if pattern.contains('*') => {
                if problem.is_none() {
                    slot.warn(&format!("`{pattern}` matches none of its resources"));
                }
            }
            // A URI may hold such characters as they are.
            _ => uris.push(pattern.clone()),
        }
    }
    let mut seen = HashSet::new();
    uris.retain(|uri| seen.insert(uri.clone()));
    (uris, problem.is_none())
}

async fn read(slot: &Slot, mcp: &Mcp, uri: &str, tells: bool) -> Option<Arc<[EmbeddedResource]>> {
    if let Some(contents) = slot.shelf().contents(uri) {
        return Some(contents);
    }
    let (changes, was_subscribed) = slot.shelf().begin(uri, tells);
    if tells {
        mcp.subscribe(uri);
    }
    match mcp.read_resource(uri, &CallContext::default().with_timeout(PATIENCE)).await {
        Ok(contents) => {
            let contents: Arc<[EmbeddedResource]> = contents.into();
            if was_subscribed {
                slot.shelf().keep(changes, uri, &contents);
            }
            Some(contents)
        }
        Err(error) => {
            slot.warn(&format!("resource `{uri}` could not be read: {}", chain(&error)));
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

    /// A read begins: how much had changed by then, and whether we would have heard of it.
    fn begin(&self, uri: &str, tells: bool) -> (u64, bool) {
        let mut kept = lock(&self.kept);
        (kept.changes, tells && !kept.subscribed.insert(uri.to_owned()))
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
            // A name with a secret in it is told without.
            Event::ResourceUpdated { uri, .. } if slot.mask().is_empty() => {
                kept.contents.remove(&uri);
            }
            Event::ResourceUpdated { .. } => kept.contents.clear(),
            Event::ResourcesChanged { .. } => {
                kept.uris = None;
                kept.contents.clear();
            }
            // Whatever happened meanwhile was not told.
            Event::Ready { .. } | Event::Lagged { .. } => {
                kept.uris = None;
                kept.contents.clear();
                kept.subscribed.clear();
            }
            _ => continue,
        }
        kept.changes += 1;
    }
}
