//! A session: a link after the handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::raw_response::RequestResult;
use super::request::Request;
use super::server_info::ServerInfo;
use super::transport::Link;
use crate::protocol::{Era, meta};

/// The protocol version's `_meta` entry, for requests with a client's entries.
const VERSION_META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;

/// A link after the handshake.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) link: Link,
    pub(crate) info: Arc<ServerInfo>,
    /// Identifies the session within this process.
    pub(crate) number: u64,
    /// The `_meta` entries that every request gets.
    meta: String,
}

impl Session {
    pub(crate) fn new(link: Link, info: ServerInfo, mut meta: String) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if info.era == Era::Modern && info.has_capability(&["logging"]) {
            // A modern server sends log messages only if the request sets a level.
            meta.push_str(&format!(r#","{}":"info""#, meta::LOG_LEVEL));
        }
        Self { link, info: Arc::new(info), number: NEXT.fetch_add(1, Ordering::Relaxed), meta }
    }

    pub(crate) fn era(&self) -> Era {
        self.info.era
    }

    /// Returns `true` if tool arguments must be mirrored in HTTP headers (`x-mcp-header`).
    pub(crate) fn wants_headers(&self) -> bool {
        self.era() == Era::Modern && matches!(self.link, Link::Http(_))
    }

    /// Adds the session's `_meta` entries to a request. A raw request to a modern server has its client's entries instead.
    pub(crate) fn prepare<'a>(&'a self, request: &Request<'a>) -> Request<'a> {
        match self.era() {
            Era::Modern if request.modern_meta.is_some() => Request { meta: VERSION_META, ..*request },
            Era::Modern | Era::Legacy => Request { meta: &self.meta, modern_meta: None, ..*request },
        }
    }

    /// Sends a request without retrying it.
    pub(crate) async fn request(&self, request: &Request<'_>) -> RequestResult {
        self.link.request(&self.prepare(request)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MODERN;

    #[test]
    fn the_version_entry_has_the_key_and_the_version_of_the_protocol() {
        assert_eq!(VERSION_META, format!(r#""{}":"{MODERN}""#, meta::PROTOCOL_VERSION));
    }
}
