//! Server requests to a legacy client.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::server::lock;

/// One session's server requests that are not answered yet.
#[derive(Default)]
pub struct Questions {
    next: AtomicU64,
    pending: Mutex<HashMap<String, oneshot::Sender<Value>>>,
}

impl Questions {
    /// Creates a request and the receiver for its response.
    pub fn register(&self, method: &str, params: &Value) -> (Value, oneshot::Receiver<Value>) {
        let id = format!("question-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        lock(&self.pending).insert(json!(id).to_string(), sender);
        (message, receiver)
    }

    /// Delivers the response to a request; a response to an unknown one is ignored.
    pub fn complete(&self, id: &Value, message: Value) {
        if let Some(sender) = lock(&self.pending).remove(&id.to_string()) {
            // Fails if the call was cancelled.
            let _ = sender.send(message);
        }
    }
}
