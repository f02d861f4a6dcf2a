//! A store in memory, for tests and for programs that keep tokens elsewhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::StoreError;
use super::key::SignInKey;
use super::lock::StoreLock;
use crate::oauth::credentials::Credentials;
use ropeway_core::sync::lock;

/// Sign-ins in memory.
#[derive(Default)]
pub(super) struct MemoryStore {
    entries: Mutex<HashMap<SignInKey, Entry>>,
}

#[derive(Default)]
struct Entry {
    credentials: Option<Credentials>,
    /// Counts the changes; the entry outlives its credentials, so that a number is never used twice.
    generation: u64,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl MemoryStore {
    pub(super) fn load(&self, key: &SignInKey) -> Option<Credentials> {
        lock(&self.entries).get(key)?.credentials.clone()
    }

    pub(super) fn save(&self, key: SignInKey, credentials: Credentials) {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key).or_default();
        entry.credentials = Some(credentials);
        entry.generation += 1;
    }

    pub(super) fn remove(&self, key: &SignInKey) -> bool {
        lock(&self.entries).get_mut(key).is_some_and(Entry::clear)
    }

    pub(super) fn remove_all(&self) -> usize {
        lock(&self.entries).values_mut().map(Entry::clear).filter(|is_removed| *is_removed).count()
    }

    pub(super) fn all(&self) -> Vec<Credentials> {
        lock(&self.entries).values().filter_map(|entry| entry.credentials.clone()).collect()
    }

    pub(super) fn generation(&self, key: &SignInKey) -> u64 {
        lock(&self.entries).get(key).map_or(0, |entry| entry.generation)
    }

    pub(super) async fn lock(&self, key: SignInKey, limit: Duration) -> Result<StoreLock, StoreError> {
        let server = key.server.clone();
        let mutex = Arc::clone(&lock(&self.entries).entry(key).or_default().lock);
        match tokio::time::timeout(limit, mutex.lock_owned()).await {
            Ok(guard) => Ok(StoreLock::memory(guard)),
            Err(_) => Err(StoreError::Busy { server, waited: limit }),
        }
    }
}

impl Entry {
    /// Removes the credentials. Returns whether there were any.
    fn clear(&mut self) -> bool {
        let is_removed = self.credentials.take().is_some();
        self.generation += u64::from(is_removed);
        is_removed
    }
}
