//! Lists: tools, prompts, resources and resource templates.

use std::sync::Arc;

use serde_json::Value;

use crate::catalog::cursor::{CursorPayload, PageEnd};
use crate::catalog::{ListKind, Listing};
use crate::client::Client;
use crate::client::seal::SealKind;
use crate::method::Method;
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Dispatch, Outcome};
use crate::request::principal_tools::{add_advice, list_own};
use crate::request::reply::ResultExtras;
use crate::request::requester::Requester;
use crate::shared::GatewayShared;
use ropeway_mcp::protocol::ClientParams;

/// How long a cursor is valid.
const CURSOR_LIFETIME: std::time::Duration = std::time::Duration::from_secs(3600);

/// Maximum page size.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// The `_meta` key that names the servers whose entries are missing.
const MISSING_SERVERS: &str = "dev.ropeway/servers";

/// Handles the four list methods.
pub(crate) fn list(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    method: Method,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let kind = match method {
        Method::ListPrompts => ListKind::Prompts,
        Method::ListResources => ListKind::Resources,
        Method::ListTemplates => ListKind::Templates,
        _ => ListKind::Tools,
    };
    let cursor = params.get("cursor").map(|cursor| serde_json::from_str::<String>(cursor.get()));
    let cursor = cursor.transpose().map_err(|_| ErrorReply::invalid_params("`cursor` is not a string"))?;
    let started = requester.start(shared, params)?;
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let profile = &exchange.client.profile;
        let page = async {
            let position = match &cursor {
                Some(cursor) => Some(open_cursor(&shared_, exchange.client.principal.id(), profile, kind, cursor)?),
                None => None,
            };
            shared_.wait_for_list(&exchange.client).await;
            if kind == ListKind::Tools {
                list_own(&shared_, &exchange.client).await;
            }
            let mut listing = shared_.list(&exchange.client, kind).await?;
            add_advice(&shared_, &exchange.client, &mut listing);
            write_page(&shared_, &exchange.client, kind, &listing, position)
        };
        match page.await {
            Ok((text, extras)) => Outcome::composed(text, extras, &shared_.info_text()),
            Err(error) => Outcome::Error(error),
        }
    }))
}

/// Returns the entry after which a page starts.
fn open_cursor(
    shared: &GatewayShared,
    principal: &str,
    profile: &str,
    kind: ListKind,
    cursor: &str,
) -> Result<PageEnd, ErrorReply> {
    let payload = shared.keys.open(SealKind::Cursor, principal, cursor).map_err(|_| invalid_cursor())?;
    CursorPayload::decode(&payload).and_then(|payload| payload.position(kind, profile)).ok_or_else(invalid_cursor)
}

/// Writes one list page.
fn write_page(
    shared: &GatewayShared,
    client: &Client,
    kind: ListKind,
    listing: &Listing,
    after: Option<PageEnd>,
) -> Result<(String, ResultExtras), ErrorReply> {
    let names = listing.entries.iter().map(|entry| &*entry.name);
    let start = match after {
        None => 0,
        // If the entry was removed, the position is lost, and the client starts again.
        Some(last) => last.next_index(names.clone()).ok_or_else(invalid_cursor)?,
    };
    let page_size = shared.settings().page_size;
    let limit = if page_size == 0 { usize::MAX } else { page_size };
    let mut text = format!(r#"{{"{}":["#, kind.names().key);
    let mut end = start;
    for entry in &listing.entries[start..] {
        let json = entry.json_for(client.era);
        if end - start >= limit || (end > start && text.len() + json.len() > MAX_PAGE_BYTES) {
            break;
        }
        if end > start {
            text.push(',');
        }
        text.push_str(json);
        end += 1;
    }
    text.push(']');
    if end > start && end < listing.entries.len() {
        let last = PageEnd::new(names, end - 1);
        let payload = CursorPayload { kind, profile: client.profile.to_string(), last }.encode();
        let cursor = shared.keys.seal(SealKind::Cursor, client.principal.id(), CURSOR_LIFETIME, &payload);
        text.push_str(&format!(r#","nextCursor":"{cursor}""#));
    }
    if !listing.missing.is_empty() {
        let missing: Vec<Value> = listing.missing.iter().map(|server| serde_json::json!(server)).collect();
        text.push_str(&format!(r#","_meta":{{"{MISSING_SERVERS}":{}}}"#, Value::from(missing)));
    }
    text.push('}');
    Ok((text, ResultExtras::cacheable(listing.ttl_ms)))
}

fn invalid_cursor() -> ErrorReply {
    ErrorReply::invalid_params("invalid cursor")
}
