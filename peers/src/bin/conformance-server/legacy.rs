//! Legacy sessions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::call::{Asker, Call, Outgoing};
use crate::dispatch;
use crate::questions::Questions;
use crate::server::{Change, Server, lock};
use crate::wire::{Era, LEGACY, notification, response};

/// One session, from `initialize` on.
pub struct Session {
    server: Arc<Server>,
    pub version: String,
    capabilities: Value,
    log_level: Arc<Mutex<usize>>,
    subscribed: Mutex<HashSet<String>>,
    pub questions: Arc<Questions>,
    running: Mutex<HashMap<String, AbortHandle>>,
}

impl Session {
    /// Creates a session. `unrelated` receives messages that belong to no request.
    pub fn open(
        server: &Arc<Server>,
        params: &Map<String, Value>,
        unrelated: mpsc::UnboundedSender<Outgoing>,
    ) -> Arc<Self> {
        let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let version = LEGACY.into_iter().find(|version| *version == asked).unwrap_or(LEGACY[0]);
        let session = Arc::new(Self {
            server: Arc::clone(server),
            version: version.to_owned(),
            capabilities: params.get("capabilities").cloned().unwrap_or_default(),
            log_level: Arc::default(),
            subscribed: Mutex::default(),
            questions: Arc::default(),
            running: Mutex::default(),
        });
        tokio::spawn(forward_changes(server.changes.subscribe(), Arc::downgrade(&session), unrelated));
        session
    }

    /// Returns the response to `initialize`.
    pub fn initialized(&self, id: &Value) -> Value {
        response(id, dispatch::initialize(&self.version))
    }

    /// Starts a request; its messages, the response last, go to the receiver.
    pub fn start(
        self: &Arc<Self>,
        id: Value,
        method: String,
        params: Map<String, Value>,
    ) -> mpsc::UnboundedReceiver<Outgoing> {
        let (outlet, messages) = mpsc::unbounded_channel();
        let call = Call {
            server: Arc::clone(&self.server),
            era: Era::Legacy,
            id,
            method,
            params,
            capabilities: self.capabilities.clone(),
            asker: Asker::Requests(Arc::clone(&self.questions)),
            log_level: Arc::clone(&self.log_level),
            outlet,
        };
        let (session, key) = (Arc::clone(self), call.id.to_string());
        let running = tokio::spawn(async move {
            let message = match session.subscription(&call) {
                Some(result) => response(&call.id, result),
                None => dispatch::respond(&call).await,
            };
            call.send(message);
            lock(&session.running).remove(&call.id.to_string());
        });
        if !running.is_finished() {
            lock(&self.running).insert(key, running.abort_handle());
        }
        messages
    }

    /// Handles `resources/subscribe` and `resources/unsubscribe`.
    fn subscription(&self, call: &Call) -> Option<Value> {
        let uri = call.text("uri").to_owned();
        match call.method.as_str() {
            "resources/subscribe" => drop(lock(&self.subscribed).insert(uri)),
            "resources/unsubscribe" => drop(lock(&self.subscribed).remove(&uri)),
            _ => return None,
        }
        Some(json!({}))
    }

    /// Handles a notification from the client.
    pub fn on_notification(&self, method: &str, params: &Map<String, Value>) {
        if let ("notifications/cancelled", Some(id)) = (method, params.get("requestId"))
            && let Some(running) = lock(&self.running).remove(&id.to_string())
        {
            running.abort();
        }
    }
}

async fn forward_changes(
    mut changes: tokio::sync::broadcast::Receiver<Change>,
    session: Weak<Session>,
    unrelated: mpsc::UnboundedSender<Outgoing>,
) {
    while let Ok(change) = changes.recv().await {
        let Some(session) = session.upgrade() else { return };
        let message = match change {
            Change::Tools => json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }),
            Change::Prompts => json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" }),
            Change::Resource(uri) if lock(&session.subscribed).contains(&uri) => {
                notification("notifications/resources/updated", json!({ "uri": uri }))
            }
            Change::Resource(_) => continue,
        };
        if unrelated.send(Outgoing::Message(message)).is_err() {
            return;
        }
    }
}
