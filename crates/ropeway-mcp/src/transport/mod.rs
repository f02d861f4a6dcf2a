//! Transports: one link to a server, over JSON lines, Streamable HTTP or HTTP+SSE.
//!
//! See [transports](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports).

mod activity;
mod authorized;
mod background_tasks;
mod cancel;
pub(crate) mod child;
mod disconnect;
mod groups;
pub(crate) mod http;
mod http_client;
mod http_stream;
mod io_loop;
pub(crate) mod lines;
mod link_task;
pub(crate) mod orphans;
mod outbox;
mod outgoing;
mod private_temp;
mod reason;
mod resume;
mod sandbox;
mod session_expiry;
pub(crate) mod socket;
pub(crate) mod sse;
pub(crate) mod stderr;
pub(crate) mod stdio;
mod tree_removal;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::activity::IDLE_LIMIT;
use self::outgoing::Notifier as _;
use super::error::{ConnectErrorKind, RequestError};
use super::raw_response::RequestResult;
use super::request::Request;

/// A link to a server.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// JSON lines over a child process's pipes, or over a pipe within this process.
    Lines(Arc<lines::Lines>),
    /// Streamable HTTP.
    Http(Arc<http::Http>),
    /// HTTP+SSE (2024-11-05).
    Sse(Arc<sse::Sse>),
}

impl Link {
    /// Sends a request and waits for its result.
    pub(crate) async fn request(&self, request: &Request<'_>) -> RequestResult {
        match self {
            Self::Lines(link) => link.request(request).await,
            // Boxed, because the future for a request over a pipe is much smaller.
            Self::Http(link) => Box::pin(link.request(request)).await,
            Self::Sse(link) => Box::pin(link.request(request)).await,
        }
    }

    /// Sends a message that expects no response.
    pub(crate) async fn notify(&self, message: Vec<u8>) -> Result<(), RequestError> {
        match self {
            Self::Lines(link) => link.send(message, true),
            Self::Http(link) => link.notify(message).await,
            Self::Sse(link) => link.notify(message).await,
        }
    }

    /// Waits until the link is closed and returns the reason.
    pub(crate) async fn disconnected(&self) -> Arc<ConnectErrorKind> {
        match self {
            Self::Lines(link) => link.disconnected().await,
            Self::Http(link) => link.disconnected().await,
            Self::Sse(link) => link.disconnected().await,
        }
    }

    /// Closes the link. Its process or session has the grace period to end by itself.
    pub(crate) async fn close(&self, grace: Duration) {
        match self {
            Self::Lines(link) => link.close(grace).await,
            Self::Http(link) => link.close(grace).await,
            Self::Sse(link) => link.close(),
        }
    }

    /// Closes the link before its server is restarted. Calls in flight to a stdio server fail with a transient error.
    pub(crate) async fn close_for_restart(&self, grace: Duration) {
        match self {
            Self::Lines(link) => link.close_for_restart(grace).await,
            Self::Http(_) | Self::Sse(_) => self.close(grace).await,
        }
    }
}
