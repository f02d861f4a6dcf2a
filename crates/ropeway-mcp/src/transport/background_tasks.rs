//! A link's background tasks, which end with it.

use std::future::Future;
use std::sync::Mutex;

use tokio::task::JoinSet;

use ropeway_core::sync::lock;

/// A link's background tasks. Dropping it aborts them.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks(Mutex<JoinSet<()>>);

impl BackgroundTasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.0);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    pub(crate) fn abort_all(&self) {
        lock(&self.0).abort_all();
    }
}
