//! The process groups in which this process runs its servers.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use ropeway_core::sync::lock;

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Returns the group ids, which equal the servers' process ids.
pub(super) fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    lock(&GROUPS)
}
