//! A JSON Lines link over two byte streams: a child process's pipes, or a pipe within this process.
//!
//! See [stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio).

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::cancel::CancelOnDrop;
use super::child::ChildGroup;
use super::disconnect;
use super::io_loop::IoLoop;
use super::link_task::{CloseReason, LinkTask};
use super::outbox::{Outbox, SendError};
use super::stderr::Stderr;
use crate::error::{ConnectErrorKind, RequestError};
use crate::message_log;
use crate::pending::PendingRequests;
use crate::raw_response::RequestResult;
use crate::request::Request;
use ropeway_core::sync::lock;

/// A JSON Lines link.
///
/// Sessions own it. Callers write through the outbox themselves, without waiting. Two tasks do the rest: the I/O loop reads
/// messages and writes what callers could not, and the link task owns the I/O loop and the child, and waits until the link
/// ends. It then closes the outbox, fails the pending requests, publishes the reason in `disconnected` and terminates the
/// child. [`close`](Self::close) waits for all that.
///
/// The outbox has a std mutex, because it is held for one non-blocking write and never across an `.await`. It and the
/// pending requests' lock are never held together. Dropping the link aborts the link task, which kills the child's process
/// group at once.
pub(crate) struct Lines {
    pending: Arc<PendingRequests>,
    outbox: Arc<Mutex<Outbox>>,
    disconnected: watch::Receiver<Option<Arc<ConnectErrorKind>>>,
    closing: mpsc::UnboundedSender<CloseReason>,
    link_task: JoinHandle<()>,
    stderr: Option<Arc<Stderr>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

impl Lines {
    /// Starts to read and write. `limit` is the maximum message size.
    pub(crate) fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        pending: Arc<PendingRequests>,
        limit: usize,
    ) -> Arc<Self> {
        Self::start_with(reader, Outbox::new(writer), pending, limit, None)
    }

    /// Starts to read and write, with an outbox that may have contents, and with the server's process.
    pub(super) fn start_with(
        reader: impl AsyncRead + Send + Unpin + 'static,
        outbox: Outbox,
        pending: Arc<PendingRequests>,
        limit: usize,
        child: Option<(ChildGroup, Arc<Stderr>)>,
    ) -> Arc<Self> {
        let outbox = Arc::new(Mutex::new(outbox));
        let (sender, disconnected) = watch::channel(None);
        let (closing, closed) = mpsc::unbounded_channel();
        let (child, stderr) = child.unzip();
        let io_loop = IoLoop::new(reader, outbox.clone(), pending.clone(), limit);
        let link_task = LinkTask {
            pending: pending.clone(),
            outbox: outbox.clone(),
            child,
            stderr: stderr.clone(),
            disconnected: sender,
        };
        let link_task = tokio::spawn(link_task.run(io_loop, closed));
        Arc::new(Self { pending, outbox, disconnected, closing, link_task, stderr })
    }

    pub(crate) fn stderr(&self) -> Option<&Arc<Stderr>> {
        self.stderr.as_ref()
    }

    pub(crate) async fn request(&self, request: &Request<'_>) -> RequestResult {
        let mut receiver = self.pending.register(request)?;
        let cancel = CancelOnDrop::new(receiver.id(), request.cancellable, |message| drop(self.send(message, true)));
        if let Err(error) = self.send(request.encode(receiver.id()), receiver.alone()) {
            cancel.disarm();
            return Err(error);
        }
        let outcome = receiver.recv(request).await;
        cancel.finish(&outcome);
        outcome
    }

    /// Sends one message. `now` writes it at once; otherwise the I/O loop writes the queued messages together.
    pub(crate) fn send(&self, message: Vec<u8>, now: bool) -> Result<(), RequestError> {
        message_log::sent(self.pending.host(), &message);
        let sent = lock(&self.outbox).send(message, now);
        sent.map_err(|SendError { started, cause }| {
            // A link whose server does not read is useless. An earlier reason takes precedence.
            let _ = self.closing.send(CloseReason::NotReading);
            let cause = self.disconnected.borrow().clone().unwrap_or_else(|| Arc::new(cause));
            RequestError::Disconnected { started, cause }
        })
    }

    pub(crate) async fn disconnected(&self) -> Arc<ConnectErrorKind> {
        disconnect::wait(self.disconnected.clone()).await
    }

    pub(crate) async fn close(&self, grace: Duration) {
        self.end(CloseReason::Closed(grace)).await;
    }

    /// Closes the link so that calls in flight fail with the error for a server that is being restarted.
    pub(crate) async fn close_for_restart(&self, grace: Duration) {
        self.end(CloseReason::Restarted(grace)).await;
    }

    async fn end(&self, reason: CloseReason) {
        let _ = self.closing.send(reason);
        // The link task drops the sender when it has finished.
        let mut disconnected = self.disconnected.clone();
        while disconnected.changed().await.is_ok() {}
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.link_task.abort();
    }
}
