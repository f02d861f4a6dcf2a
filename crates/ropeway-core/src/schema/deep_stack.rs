//! A deep stack, on which large schemas are compiled and dropped.
//!
//! `jsonschema` links reference targets, and drops these links by recursion. A long reference chain would overflow an
//! ordinary stack, which aborts the process.

use std::sync::{Arc, Mutex};
use std::thread;

/// Stack size for a chain with as many links as a schema may have values. The system only allocates the pages in use.
const STACK_SIZE: usize = 128 << 20;

/// Schemas with at most this many values fit an ordinary stack.
const MAX_SHALLOW_NODES: usize = 1_000;

/// Returns `true` if a schema with this many values needs a deep stack.
pub(super) fn is_needed(nodes: usize) -> bool {
    nodes > MAX_SHALLOW_NODES
}

/// Runs `work` on a deep stack. Returns `None` if no thread could be started, or if it panicked.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK_SIZE).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// A validator that is dropped on a deep stack if it is large.
pub(super) struct DeepStackValidator {
    /// `None` only while it is dropped.
    validator: Option<jsonschema::Validator>,
    is_large: bool,
}

impl DeepStackValidator {
    pub(super) fn new(validator: jsonschema::Validator, is_large: bool) -> Self {
        Self { validator: Some(validator), is_large }
    }

    pub(super) fn get(&self) -> Option<&jsonschema::Validator> {
        self.validator.as_ref()
    }
}

impl Drop for DeepStackValidator {
    fn drop(&mut self) {
        let Some(validator) = self.validator.take().filter(|_| self.is_large) else { return };
        let kept = Arc::new(Mutex::new(Some(validator)));
        let thread = thread::Builder::new().stack_size(STACK_SIZE).spawn({
            let kept = kept.clone();
            move || drop(kept.lock().map(|mut kept| kept.take()))
        });
        if thread.is_err() {
            // Leaking the validator is better than overflowing the stack.
            std::mem::forget(kept);
        }
    }
}
