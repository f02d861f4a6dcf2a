//! The loss of a link: why it is no more, once it is.

use std::sync::Arc;

use tokio::sync::watch;

use crate::mcp::fault::ConnectErrorKind;

/// Why a link is no more; nothing while it lives.
#[derive(Debug)]
pub(crate) struct Loss(watch::Sender<Option<Arc<ConnectErrorKind>>>);

impl Default for Loss {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Loss {
    /// The link is no more. Only the first cause counts.
    pub(crate) fn set(&self, cause: Arc<ConnectErrorKind>) {
        self.0.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(cause);
            first
        });
    }

    /// Why the link is no more, if that is so.
    pub(crate) fn known(&self) -> Option<Arc<ConnectErrorKind>> {
        self.0.borrow().clone()
    }

    /// Waits until the link is no more.
    pub(crate) async fn wait(&self) -> Arc<ConnectErrorKind> {
        wait(self.0.subscribe()).await
    }
}

/// Waits for the cause; a teller that goes without a word has closed the link.
pub(crate) async fn wait(mut lost: watch::Receiver<Option<Arc<ConnectErrorKind>>>) -> Arc<ConnectErrorKind> {
    let lost = lost.wait_for(Option::is_some).await;
    lost.ok().and_then(|cause| cause.clone()).unwrap_or_else(|| Arc::new(ConnectErrorKind::Closed))
}
