//! Cancels a request whose caller has given up
//! ([cancellation](https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation)).

use serde_json::json;

use crate::error::RequestError;
use crate::protocol;
use crate::raw_response::RequestResult;

/// Sends `notifications/cancelled` when dropped, unless the request was answered.
pub(crate) struct CancelOnDrop<F: Fn(Vec<u8>)> {
    id: u64,
    armed: bool,
    send: F,
}

impl<F: Fn(Vec<u8>)> CancelOnDrop<F> {
    /// Creates a guard for a request. `send` sends a message to the server.
    pub(crate) fn new(id: u64, armed: bool, send: F) -> Self {
        Self { id, armed, send }
    }

    /// Disarms the guard, unless the server may still process the request.
    pub(crate) fn finish(mut self, outcome: &RequestResult) {
        self.armed &= matches!(outcome, Err(RequestError::Timeout { .. } | RequestError::Cancelled));
    }

    /// Disarms the guard for a request that was never sent.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl<F: Fn(Vec<u8>)> Drop for CancelOnDrop<F> {
    fn drop(&mut self) {
        if self.armed {
            let params = json!({"requestId": self.id, "reason": "cancelled by the caller"});
            (self.send)(protocol::encode_notification("notifications/cancelled", &params));
        }
    }
}
