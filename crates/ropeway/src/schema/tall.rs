//! A tall stack: where large schemas are compiled and let go.
//!
//! `jsonschema` links what references lead to, and takes the links apart by recursion. A long chain of references
//! makes a tower of links that no ordinary stack has room for, and an overflow would end the whole process.

use std::sync::{Arc, Mutex};
use std::thread;

/// Room for a tower of as many links as a schema may have values. Only what is used of it is ever real memory.
const STACK: usize = 128 << 20;

/// With fewer values than this no tower is too high for an ordinary stack.
const LARGE: usize = 1_000;

/// Does a schema of so many values need a tall stack?
pub(super) fn is_needed(nodes: usize) -> bool {
    nodes > LARGE
}

/// Does work on a tall stack; `None` when there is no thread for it.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// A validator that is let go on a tall stack where it may need one.
pub(super) struct Tall {
    /// Always there until it is let go.
    validator: Option<jsonschema::Validator>,
    is_large: bool,
}

impl Tall {
    pub(super) fn new(validator: jsonschema::Validator, is_large: bool) -> Self {
        Self { validator: Some(validator), is_large }
    }

    pub(super) fn get(&self) -> Option<&jsonschema::Validator> {
        self.validator.as_ref()
    }
}

impl Drop for Tall {
    fn drop(&mut self) {
        let Some(validator) = self.validator.take().filter(|_| self.is_large) else { return };
        let kept = Arc::new(Mutex::new(Some(validator)));
        let thread = thread::Builder::new().stack_size(STACK).spawn({
            let kept = kept.clone();
            move || drop(kept.lock().map(|mut kept| kept.take()))
        });
        if thread.is_err() {
            // Without a thread that takes it out it is better to keep it for ever than to fall.
            std::mem::forget(kept);
        }
    }
}
