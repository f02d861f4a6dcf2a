//! The reason that a link was closed.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::ConnectErrorKind;

/// The reason that a link was closed; empty while it is open.
#[derive(Debug)]
pub(crate) struct DisconnectReason(watch::Sender<Option<Arc<ConnectErrorKind>>>);

impl Default for DisconnectReason {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl DisconnectReason {
    /// Marks the link as closed. Only the first reason is kept.
    pub(crate) fn set(&self, cause: Arc<ConnectErrorKind>) {
        self.0.send_if_modified(|reason| {
            let is_first = reason.is_none();
            reason.get_or_insert(cause);
            is_first
        });
    }

    /// Returns the reason, or `None` while the link is open.
    pub(crate) fn get(&self) -> Option<Arc<ConnectErrorKind>> {
        self.0.borrow().clone()
    }

    /// Waits until the link is closed.
    pub(crate) async fn wait(&self) -> Arc<ConnectErrorKind> {
        wait(self.0.subscribe()).await
    }
}

/// Waits for the reason. A sender that is dropped without one has closed the link.
pub(crate) async fn wait(mut reason: watch::Receiver<Option<Arc<ConnectErrorKind>>>) -> Arc<ConnectErrorKind> {
    let reason = reason.wait_for(Option::is_some).await;
    reason.ok().and_then(|cause| cause.clone()).unwrap_or_else(|| Arc::new(ConnectErrorKind::Closed))
}
