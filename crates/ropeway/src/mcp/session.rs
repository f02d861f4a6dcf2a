//! A session: a link on which both sides have agreed how to speak.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::Answer;
use super::fault::Fault;
use super::inbox::Clocks;
use super::transport::{Link, Request};
use crate::protocol::{Era, meta};
use crate::tool::CallContext;

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Its own name; our alias where it has none.
    pub name: String,
    /// Its version; empty where it has none.
    pub version: String,
    /// The era that it is spoken to in.
    pub era: Era,
    /// The protocol version that was agreed on.
    pub protocol_version: String,
    /// What it can do, as it came.
    pub capabilities: Map<String, Value>,
    /// How it wants to be used.
    pub instructions: Option<String>,
}

impl ServerInfo {
    /// Does the server say that it can do something, such as `["tools", "listChanged"]`?
    pub fn can(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let capability = self.capabilities.get(*first);
        let found = rest.iter().fold(capability, |found, key| found.and_then(|value| value.get(key)));
        found.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    }
}

/// One agreed connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) link: Link,
    pub(crate) info: Arc<ServerInfo>,
    /// Tells this session from the ones before and after it.
    pub(crate) number: u64,
    /// The entries of `_meta` that go with every request.
    meta: String,
}

impl Session {
    pub(crate) fn new(link: Link, info: ServerInfo, mut meta: String) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if info.era == Era::Modern && info.can(&["logging"]) {
            // Without it a modern server keeps its log to itself.
            meta.push_str(&format!(r#","{}":"info""#, meta::LOG_LEVEL));
        }
        Self { link, info: Arc::new(info), number: NEXT.fetch_add(1, Ordering::Relaxed), meta }
    }

    pub(crate) fn era(&self) -> Era {
        self.info.era
    }

    /// Does the link carry headers that must mirror arguments?
    pub(crate) fn wants_headers(&self) -> bool {
        self.era() == Era::Modern && matches!(self.link, Link::Http(_))
    }

    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Answer, Fault> {
        self.link.request(&Request { meta: &self.meta, ..*request }, cx, clocks).await
    }
}
