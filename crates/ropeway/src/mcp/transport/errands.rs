//! Errands of a link: small tasks of its own that end with it.

use std::future::Future;
use std::sync::Mutex;

use tokio::task::JoinSet;

use crate::sync::lock;

/// The tasks that a link has under way. Dropping them ends them.
#[derive(Debug, Default)]
pub(crate) struct Errands(Mutex<JoinSet<()>>);

impl Errands {
    pub(crate) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let mut errands = lock(&self.0);
        while errands.try_join_next().is_some() {}
        errands.spawn(errand);
    }

    pub(crate) fn stop(&self) {
        lock(&self.0).abort_all();
    }
}
