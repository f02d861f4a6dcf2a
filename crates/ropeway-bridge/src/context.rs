//! Server text that goes before a conversation: its instructions, and the resources that the configuration names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::slot::ServerSlot;
use crate::registry::ContextItem;
use ropeway_config::{Glob, ResourceSettings};
use ropeway_core::content::{ContentPart, EmbeddedResource, ResourceContents};
use ropeway_core::error_chain::chain;
use ropeway_core::tool::CallContext;
use ropeway_mcp::{Mcp, ServerInfo};

/// Timeout for listing the resources, and for reading one.
const RESOURCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of resources that one pattern selects.
const MAX_MATCHES: usize = 256;

/// Returns one server's context. A sleeping server is started.
pub(super) async fn context_of(slot: &Arc<ServerSlot>) -> Vec<ContextItem> {
    let settings = &slot.entry.resources;
    if settings.context.is_empty() && !slot.entry.instructions {
        return Vec::new();
    }
    // A failure shows in the server's status.
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

async fn resources(slot: &ServerSlot, mcp: &Mcp, info: &ServerInfo, settings: &ResourceSettings) -> Vec<ContextItem> {
    // Only content whose changes the server reports is cached.
    let reports_list = info.has_capability(&["resources", "listChanged"]);
    let reports_contents = info.has_capability(&["resources", "subscribe"]);
    if reports_list || reports_contents {
        slot.context_cache.listen(mcp, !slot.redactor.is_empty());
    }
    let uris = match slot.context_cache.uris() {
        Some(uris) => uris,
        None => {
            let changes = slot.context_cache.changes();
            let (uris, is_complete) = resolve_uris(slot, mcp, &settings.context).await;
            if reports_list && is_complete {
                slot.context_cache.store_uris(changes, &uris);
            }
            uris
        }
    };
    let contents = join_all(uris.iter().map(|uri| read(slot, mcp, uri, reports_contents))).await;

    let mut budget = settings.context_bytes;
    let item = |(uri, contents): (String, Option<Arc<[EmbeddedResource]>>)| {
        let parts = contents?.iter().map(|resource| truncate(resource, &mut budget)).collect::<Vec<_>>();
        Some(ContextItem::new(uri, parts).with_server(slot.alias().clone()))
    };
    uris.into_iter().zip(contents).filter_map(item).collect()
}

/// Returns the URIs that the patterns select, without duplicates, and whether the server could list its resources.
async fn resolve_uris(slot: &ServerSlot, mcp: &Mcp, patterns: &[String]) -> (Vec<String>, bool) {
    let is_glob = |pattern: &String| pattern.contains(['*', '?', '[', '{']);
    let mut listed = Vec::new();
    let mut problem = None;
    if patterns.iter().any(is_glob) {
        match tokio::time::timeout(RESOURCE_TIMEOUT, mcp.list_resources()).await {
            Ok(Ok(resources)) => listed = resources.into_iter().map(|resource| resource.uri).collect(),
            Ok(Err(error)) => problem = Some(format!("could not list resources: {}", chain(&error))),
            Err(_) => problem = Some(format!("could not list resources: timed out after {RESOURCE_TIMEOUT:?}")),
        }
    }
    problem.iter().for_each(|problem| slot.warn(problem));
    let mut uris = Vec::new();
    for pattern in patterns {
        // Invalid globs were rejected with the configuration.
        let glob = Some(pattern).filter(|pattern| is_glob(pattern)).and_then(|pattern| Glob::new(pattern).ok());
        let matching = listed.iter().filter(|uri| glob.as_ref().is_some_and(|glob| glob.matches(uri)));
        let matching: Vec<String> = matching.take(MAX_MATCHES).cloned().collect();
        match glob {
            Some(_) if !matching.is_empty() => uris.extend(matching),
            Some(_) if pattern.contains('*') => {
                if problem.is_none() {
                    slot.warn(&format!("no resource matches `{pattern}`"));
                }
            }
            // A URI may contain the other characters literally.
            _ => uris.push(pattern.clone()),
        }
    }
    let mut seen = HashSet::new();
    uris.retain(|uri| seen.insert(uri.clone()));
    (uris, problem.is_none())
}

async fn read(slot: &ServerSlot, mcp: &Mcp, uri: &str, is_subscribable: bool) -> Option<Arc<[EmbeddedResource]>> {
    if let Some(contents) = slot.context_cache.contents(uri) {
        return Some(contents);
    }
    let changes = slot.context_cache.changes();
    // Until the server has confirmed the subscription, a change may go unreported.
    let is_confirmed = is_subscribable && mcp.is_subscription_confirmed(uri);
    if is_subscribable {
        mcp.subscribe(uri);
    }
    match mcp.read_resource_with(uri, &CallContext::default().with_timeout(RESOURCE_TIMEOUT)).await {
        Ok(contents) => {
            let contents: Arc<[EmbeddedResource]> = contents.into();
            if is_confirmed {
                slot.context_cache.store(changes, uri, &contents);
            }
            Some(contents)
        }
        Err(error) => {
            slot.warn(&format!("could not read resource `{uri}`: {}", chain(&error)));
            None
        }
    }
}

/// Returns as much of a resource as fits in the budget, with a note about the rest.
fn truncate(resource: &EmbeddedResource, budget: &mut usize) -> ContentPart {
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
    let end = text.floor_char_boundary(room);
    let missing = size - end;
    let mut resource = resource.clone();
    resource.contents = ResourceContents::Text(format!("{}\n[{missing} of {size} bytes are left out]", &text[..end]));
    ContentPart::Resource(resource)
}
