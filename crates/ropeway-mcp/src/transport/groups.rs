//! The process groups of all running servers of this process.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use ropeway_core::sync::lock;

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Returns the ids of the groups, which equal the process ids of the servers.
pub(super) fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    lock(&GROUPS)
}
