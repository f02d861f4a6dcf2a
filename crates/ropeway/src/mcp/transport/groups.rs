//! The process groups of all servers that this process has started and has not seen the end of.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The numbers of the groups, which are those of the servers' own processes.
pub(super) fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    lock(&GROUPS)
}
