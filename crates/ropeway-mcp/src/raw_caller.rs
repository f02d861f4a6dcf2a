//! The sender of a raw request, as the link sees it.

use std::fmt;
use std::ops::Range;

/// Identifies what a raw request is sent for, such as one request of a client with all requests to servers that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTag(pub u64);

/// The raw requests that a message of a server can belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// The tags of the requests, sorted.
    pub keys: Vec<RequestTag>,
    /// Whether the stream of one request carried the message. Otherwise, the message can also belong to a request that has ended.
    pub is_certain: bool,
}

/// The sender of one raw request.
pub trait RawCaller: Send + Sync {
    /// Returns the tag of the request.
    fn key(&self) -> RequestTag;

    /// Receives the params of a progress notification, and the range of its token in them.
    ///
    /// Runs on the task that reads messages and must not block.
    fn on_progress(&self, params: &str, token: Range<usize>);
}

impl fmt::Debug for dyn RawCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawCaller").field(&self.key()).finish()
    }
}
