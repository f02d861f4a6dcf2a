//! Waiting and locking, for all files of the agent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Locks a mutex, also after a panic of another holder.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until the deadline; forever without one.
pub(super) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
