//! A client's running requests, which it can cancel by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;

use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;

/// The running requests in one session or pipe.
#[derive(Default)]
pub(crate) struct RunningRequests(
    /// Cancel tokens by the ids' JSON text.
    Mutex<HashMap<Box<str>, CancelToken>>,
);

impl RunningRequests {
    /// Registers a request. Returns `None` if its id is in use.
    pub(crate) fn begin(self: &Arc<Self>, id: &RawValue) -> Option<RunningRequest> {
        let token = CancelToken::new();
        let mut running = lock(&self.0);
        if running.contains_key(id.get()) {
            return None;
        }
        running.insert(id.get().into(), token.clone());
        drop(running);
        Some(RunningRequest { requests: Arc::clone(self), id: id.get().into(), token })
    }

    /// Cancels a request. Unknown ids are ignored.
    pub(crate) fn cancel(&self, id: &RawValue) {
        if let Some(token) = lock(&self.0).get(id.get()) {
            token.cancel();
        }
    }

    /// Cancels all requests.
    pub(crate) fn cancel_all(&self) {
        lock(&self.0).values().for_each(CancelToken::cancel);
    }

    /// Returns the number of requests.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// A request in progress. Dropping it frees the id.
pub(crate) struct RunningRequest {
    requests: Arc<RunningRequests>,
    id: Box<str>,
    token: CancelToken,
}

impl RunningRequest {
    /// Returns the token that `notifications/cancelled` cancels.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        lock(&self.requests.0).remove(&self.id);
    }
}
