//! A raw request's sender, as the link sees it.

use std::fmt;
use std::ops::Range;

/// Identifies what a raw request is sent for, such as one client request with all requests to servers that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTag(pub u64);

/// The raw requests that a server message can belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// The requests' tags, sorted.
    pub keys: Vec<RequestTag>,
    /// Whether one request's stream carried the message. Otherwise, the message can also belong to a request that has ended.
    pub is_certain: bool,
}

/// A raw request's sender.
pub trait RawCaller: Send + Sync {
    /// Returns the request's tag.
    fn key(&self) -> RequestTag;

    /// Receives a progress notification's params, and the token's range in them.
    ///
    /// Runs on the task that reads messages and must not block.
    fn on_progress(&self, params: &str, token: Range<usize>);
}

impl fmt::Debug for dyn RawCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawCaller").field(&self.key()).finish()
    }
}
