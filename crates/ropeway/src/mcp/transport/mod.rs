//! Links: one live connection to a server, over any transport.

pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod sse;
pub(crate) mod stdio;
mod web;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fault::{ConnectError, Fault};
use super::inbox::Clocks;
use crate::protocol::meta;
use crate::tool::CallContext;

/// A request, before it has a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The parameters as the text of a JSON object, without `_meta`.
    pub(crate) params: &'a [u8],
    /// Entries of `_meta` that the era asks for, as JSON text without the braces.
    pub(crate) meta: &'a str,
    /// What the request is about, for the `Mcp-Name` header.
    pub(crate) name: Option<&'a str>,
    /// Further headers.
    pub(crate) headers: &'a [(String, String)],
    /// The server is told when the caller gives up.
    pub(crate) cancellable: bool,
    /// Sending it twice does no more than sending it once.
    pub(crate) idempotent: bool,
    /// It stays open by design.
    pub(crate) standing: bool,
}

impl<'a> Request<'a> {
    /// A request that can be cancelled and must not be sent twice.
    pub(crate) fn new(method: &'a str, params: &'a [u8]) -> Self {
        Self {
            method,
            params,
            meta: "",
            name: None,
            headers: &[],
            cancellable: true,
            idempotent: false,
            standing: false,
        }
    }
}

impl Request<'_> {
    /// The request as one line of JSON.
    pub(crate) fn encode(&self, id: u64, cx: &CallContext) -> Vec<u8> {
        use std::io::Write as _;
        let mut line = Vec::with_capacity(128 + self.params.len() + self.meta.len());
        // Writing to a vector cannot fail.
        let _ = write!(line, r#"{{"jsonrpc":"2.0","id":{id},"method":"{}","params":"#, self.method);
        let params = self.params.trim_ascii().strip_suffix(b"}").unwrap_or(b"{");
        line.extend_from_slice(params);
        if params.len() > 1 {
            line.push(b',');
        }
        let _ = write!(line, r#""_meta":{{"progressToken":{id}"#);
        for (key, value) in cx.meta() {
            let key = serde_json::Value::from(key.as_str()).to_string();
            // What the protocol itself says here is not the caller's to say, and no key may stand twice.
            if !self.is_own(&key) {
                let _ = write!(line, ",{key}:{value}");
            }
        }
        if !self.meta.is_empty() {
            line.push(b',');
            line.extend_from_slice(self.meta.as_bytes());
        }
        line.extend_from_slice(b"}}}");
        line
    }

    fn is_own(&self, key: &str) -> bool {
        let bare = key.trim_matches('"');
        bare == "progressToken" || bare == meta::PROTOCOL_VERSION || self.meta.contains(&format!("{key}:"))
    }
}

/// One live connection.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// JSON lines: a child process or a pipe inside this process.
    Lines(Arc<lines::Lines>),
    /// Streamable HTTP.
    Http(Arc<http::Http>),
    /// Legacy HTTP+SSE.
    Sse(Arc<sse::Sse>),
}

impl Link {
    /// Sends a request and waits for its result.
    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Bytes, Fault> {
        match self {
            Self::Lines(link) => link.request(request, cx, clocks).await,
            Self::Http(link) => link.request(request, cx, clocks).await,
            Self::Sse(link) => link.request(request, cx, clocks).await,
        }
    }

    /// Sends a message that wants no answer; waits until it is on its way.
    pub(crate) async fn notify(&self, message: Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Lines(link) => link.send(message, true),
            Self::Http(link) => link.notify(message).await,
            Self::Sse(link) => link.notify(message).await,
        }
    }

    /// Waits until the link is no more.
    pub(crate) async fn lost(&self) -> Arc<ConnectError> {
        match self {
            Self::Lines(link) => link.lost().await,
            Self::Http(link) => link.lost().await,
            Self::Sse(link) => link.lost().await,
        }
    }

    /// Ends the link; its process or session has `patience` to end by itself.
    pub(crate) async fn close(&self, patience: Duration) {
        match self {
            Self::Lines(link) => link.close(patience).await,
            Self::Http(link) => link.close(patience).await,
            Self::Sse(link) => link.close(),
        }
    }
}
