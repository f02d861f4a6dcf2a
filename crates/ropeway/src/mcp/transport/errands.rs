//! Errands of a link: small tasks of its own that end with it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::task::JoinSet;

use super::web::ERRAND;
use crate::mcp::fault::Fault;
use crate::mcp::host::Reply;

/// The tasks that a link has under way. Dropping them ends them.
#[derive(Debug, Default)]
pub(crate) struct Errands(Mutex<JoinSet<()>>);

impl Errands {
    pub(crate) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let mut errands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while errands.try_join_next().is_some() {}
        errands.spawn(errand);
    }

    pub(crate) fn stop(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// A link on which each of our messages is an errand.
pub(crate) trait Messenger: Send + Sync + 'static {
    /// What the link has under way.
    fn errands(&self) -> &Errands;

    /// Sends a message that wants no answer.
    fn notify(&self, message: Vec<u8>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// A way back to the server: answers to its requests are messages of their own. It does not keep the link alive.
pub(crate) fn reply<L: Messenger>(link: &Weak<L>) -> Reply {
    let link = link.clone();
    Arc::new(move |message| {
        if let Some(alive) = link.upgrade() {
            let link = link.clone();
            alive.errands().run(async move {
                if let Some(link) = link.upgrade() {
                    let _ = tokio::time::timeout(ERRAND, link.notify(message)).await;
                }
            });
        }
    })
}

/// Sends a message when there is time; without a runtime there is nobody left to send it.
pub(crate) fn mention<L: Messenger>(link: &Weak<L>, message: Vec<u8>) {
    if tokio::runtime::Handle::try_current().is_ok() {
        reply(link)(message);
    }
}
