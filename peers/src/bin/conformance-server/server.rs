//! The state that all clients share.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::tasks::Task;

/// The eras that the server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eras {
    Legacy,
    Modern,
    Both,
}

/// A change that is announced to subscribed clients.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Tools,
    Prompts,
    Resource(String),
}

/// The state that all clients share.
pub struct Server {
    pub eras: Eras,
    pub changes: broadcast::Sender<Change>,
    pub tasks: Mutex<HashMap<String, Arc<Task>>>,
    /// Whether the tool and the prompt that come and go are listed.
    pub extra_tool: AtomicBool,
    pub extra_prompt: AtomicBool,
    key: RandomState,
    next: AtomicU64,
}

impl Server {
    pub fn new(eras: Eras) -> Arc<Self> {
        Arc::new(Self {
            eras,
            changes: broadcast::channel(64).0,
            tasks: Mutex::default(),
            extra_tool: AtomicBool::new(false),
            extra_prompt: AtomicBool::new(false),
            key: RandomState::new(),
            next: AtomicU64::new(1),
        })
    }

    /// Returns an id that this process has not used yet and that another process does not know.
    pub fn fresh_id(&self, kind: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{kind}-{number}-{:016x}", self.key.hash_one((kind, number)))
    }

    /// Returns a tag over the text that only this process can create.
    pub fn tag(&self, text: &str) -> String {
        format!("{:016x}", self.key.hash_one(text))
    }

    /// Sends a change to all subscribed clients.
    pub fn announce(&self, change: Change) {
        // Fails if no client is subscribed.
        let _ = self.changes.send(change);
    }
}

/// Returns the server's name and version.
pub fn server_info() -> Value {
    json!({ "name": "conformance-server", "version": env!("CARGO_PKG_VERSION") })
}

/// Locks a mutex, also after another thread's panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
