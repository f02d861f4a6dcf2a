//! The process groups of all running servers of this process.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Returns the ids of the groups, which equal the process ids of the servers.
pub(super) fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}
