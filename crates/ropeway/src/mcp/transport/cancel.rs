//! The cancelling of a request whose caller has given up.

use serde_json::json;

use crate::mcp::answer::Answer;
use crate::mcp::fault::Fault;
use crate::protocol;

/// Tells the server that the caller has given up, unless the request was answered.
pub(crate) struct CancelOnDrop<F: Fn(Vec<u8>)> {
    id: u64,
    armed: bool,
    send: F,
}

impl<F: Fn(Vec<u8>)> CancelOnDrop<F> {
    /// Watches a request; `send` sends a message to the server.
    pub(crate) fn new(id: u64, armed: bool, send: F) -> Self {
        Self { id, armed, send }
    }

    /// The request has come to this; the server is told only of those that it may still work on.
    pub(crate) fn settle(mut self, outcome: &Result<Answer, Fault>) {
        self.armed &= matches!(outcome, Err(Fault::Timeout { .. } | Fault::Cancelled));
    }

    /// The request never went out.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl<F: Fn(Vec<u8>)> Drop for CancelOnDrop<F> {
    fn drop(&mut self) {
        if self.armed {
            let params = json!({"requestId": self.id, "reason": "the caller gave up"});
            (self.send)(protocol::encode_notification("notifications/cancelled", &params));
        }
    }
}
