//! Lists the tools of a server.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::connection::Connection;
use super::pages::{self, ListSummary, ListWarnings, PagedList};
use super::session::Session;
use super::tool_list::ToolList;
use crate::tool::{CallContext, CallError};

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
#[cfg(feature = "bridge")]
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
