//! Lists a server's tools.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::connection::Connection;
use super::pages::{self, ListSummary, ListWarnings, PagedList};
use super::session::Session;
use super::tool_list::ToolList;
use ropeway_core::error_chain::chain;
use ropeway_core::sync::sleep_until;
use ropeway_core::tool::{CallContext, CallError};

/// How long a call's result waits for the tool list that it is cast with.
const CAST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the cached tool list, or fetches it if it is missing or stale.
pub(crate) async fn list(connection: &Arc<Connection>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    // A cached list is valid only while the server is connected.
    connection.session(cx, connection.timeouts(cx)).await?;
    match connection.tools() {
        Some(tools) if tools.is_fresh(connection.host.tools_changed()) => Ok(tools),
        _ => fetch(connection, cx).await,
    }
}

/// Returns the cached tool list even if it has changed, or fetches it if it is missing or expired.
///
/// The supervisor refreshes a changed list with a backoff and emits an event when it is done.
pub(crate) async fn cached(connection: &Arc<Connection>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    connection.session(cx, connection.timeouts(cx)).await?;
    match connection.tools() {
        Some(tools) if tools.is_within_ttl() => Ok(tools),
        _ => fetch(connection, cx).await,
    }
}

/// Fetches the tool list, page by page.
pub(crate) async fn fetch(connection: &Arc<Connection>, cx: &CallContext) -> Result<Arc<ToolList>, CallError> {
    let changes = connection.host.tools_changed();
    let mut list = ToolList::new(changes);
    let paged = PagedList { method: "tools/list", key: "tools", noun: "tool" };
    let mut take = |entry: &RawValue, session: &Session, warnings: &mut ListWarnings<'_>| {
        list.push(&connection.host, entry, session.wants_headers(), |warning| warnings.warn(warning));
    };
    let ListSummary { ttl, digest, truncation } = pages::fetch(connection, paged, cx, &mut take).await?;
    (list.ttl, list.digest, list.truncation) = (ttl, digest, truncation);
    let list = Arc::new(list);
    connection.replace_tools(list.clone());
    Ok(list)
}

/// Returns the tool list to cast a result with: the cached one, or one that is fetched for it.
///
/// The result exists already, so a server that does not list its tools delays it only by [`CAST_TIMEOUT`], and only once per
/// session. The call's deadline or its cancellation ends the wait.
pub(crate) async fn list_for_cast(connection: &Arc<Connection>, cx: &CallContext) -> Option<Arc<ToolList>> {
    if let Some(list) = connection.tools() {
        return Some(list);
    }
    tokio::select! {
        list = fetch_for_cast(connection) => list,
        () = cx.cancelled() => None,
        () = sleep_until(cx.deadline()) => None,
    }
}

async fn fetch_for_cast(connection: &Arc<Connection>) -> Option<Arc<ToolList>> {
    let session = connection.current_session()?.number;
    let mut uncast_session = connection.uncast_session.lock().await;
    if let Some(list) = connection.tools() {
        return Some(list);
    }
    if *uncast_session == Some(session) {
        return None;
    }
    let cx = CallContext::default().in_background().with_timeout(CAST_TIMEOUT);
    match fetch(connection, &cx).await {
        Ok(list) => Some(list),
        Err(error) => {
            *uncast_session = Some(session);
            connection.host.warn(&format!("results are not cast to their output schemas: {}", chain(&error)));
            None
        }
    }
}
