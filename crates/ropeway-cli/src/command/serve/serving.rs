//! The tasks that serve a gateway's clients.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use ropeway_gateway::{Gateway, GatewayError};
use tokio::task::JoinSet;

use super::endpoint::{Endpoint, Listener};
use super::setup::gateway_failure;
use crate::failure::{Exit, Failure};

/// Time for the last responses to be written after that.
const FLUSH: Duration = Duration::from_millis(500);

/// The tasks that serve clients: one for standard input and output, one per listener.
///
/// The running `serve` command owns them. [`ended`](Self::ended) waits for the first one that ends;
/// the others keep running. [`drain`](Self::drain) lets calls in progress finish, stops the servers
/// and waits briefly until the tasks have written their last responses. Dropping it aborts the
/// tasks that are left.
#[derive(Default)]
pub(super) struct Serving(JoinSet<Result<(), GatewayError>>);

impl Serving {
    /// Serves one client on standard input and output.
    pub(super) fn stdio(&mut self, gateway: &Gateway, profile: Option<String>) {
        let gateway = gateway.clone();
        self.0.spawn(async move {
            gateway.serve_stdio(profile.as_deref(), tokio::io::stdin(), tokio::io::stdout()).await;
            Ok(())
        });
    }

    /// Serves HTTP clients. Fails at once if the certificate cannot be used.
    pub(super) fn http(&mut self, gateway: &Gateway, endpoint: Endpoint) -> Result<(), Failure> {
        if matches!(endpoint.listener, Listener::Tcp(_)) {
            gateway.check_certificate().map_err(gateway_failure)?;
        }
        let gateway = gateway.clone();
        self.0.spawn(async move {
            match endpoint.listener {
                Listener::Tcp(listener) => gateway.serve_http(listener).await,
                // The guard removes the socket at the end.
                Listener::Unix(listener, _guard) => gateway.serve_http_unix(listener).await,
            }
        });
        Ok(())
    }

    /// Serves other commands.
    pub(super) fn lines(&mut self, gateway: &Gateway, listener: UnixListener) {
        let gateway = gateway.clone();
        self.0.spawn(async move { gateway.serve_lines(listener).await });
    }

    /// Waits until a listener fails, or the client on standard input is gone.
    pub(super) async fn ended(&mut self) -> Result<(), Failure> {
        match self.0.join_next().await {
            Some(Ok(ended)) => ended.map_err(gateway_failure),
            Some(Err(error)) => Err(Failure::new(Exit::Unreachable, "a listener failed").caused_by(&error)),
            None => Ok(()),
        }
    }

    /// Waits for the calls in progress up to `limit`, and stops the servers.
    pub(super) async fn drain(mut self, gateway: &Gateway, limit: Duration) {
        gateway.drain(limit).await;
        let flushed = async { while self.0.join_next().await.is_some() {} };
        // A client that does not read its responses is not waited for.
        let _ = tokio::time::timeout(FLUSH, flushed).await;
    }
}
