//! Raw lists: a server's resources, templates and prompts as JSON text.

use std::time::Duration;

use serde_json::value::RawValue;

use super::client::Mcp;
use super::pages::{self, ListWarnings, PagedList};
use super::session::Session;
use ropeway_core::tool::{CallContext, CallError};

/// A server's list: all pages, redacted.
#[derive(Debug, Default)]
pub struct RawList {
    /// The entries, as the server wrote them.
    pub entries: Vec<Box<RawValue>>,
    /// How long the server allows the list to be cached.
    pub ttl: Option<Duration>,
}

impl Mcp {
    /// Fetches all pages. Returns an empty list if the server does not declare the capability.
    pub async fn list_raw(&self, list: PagedList, capability: &str) -> Result<RawList, CallError> {
        let connection = &self.inner.connection;
        let cx = CallContext::default();
        let session = connection.session(&cx, connection.timeouts(&cx)).await?;
        // A server that declares no capabilities at all may still have the list.
        if !session.info.capabilities.is_empty() && !session.info.has_capability(&[capability]) {
            return Ok(RawList::default());
        }
        let mut entries = Vec::new();
        let mut take = |entry: &RawValue, _: &Session, _: &mut ListWarnings<'_>| entries.push(entry.to_owned());
        let summary = pages::fetch(connection, list, &cx, &mut take).await?;
        Ok(RawList { entries, ttl: summary.ttl })
    }
}
