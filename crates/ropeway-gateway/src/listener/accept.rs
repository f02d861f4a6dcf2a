//! Accepts connections, even when the process runs out of file descriptors.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

use crate::listener::connections::{ConnectionPermit, Connections};

/// Pause after a failure that affects more than one connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) trait Accept: Send + Sync + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Accepts the next connection, and prepares it.
    fn accept_next(&self) -> impl Future<Output = io::Result<Self::Io>> + Send;

    /// Returns the client's address, if it has one.
    fn peer(_io: &Self::Io) -> Option<SocketAddr> {
        None
    }
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept_next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Responses are written at once; waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn peer(io: &TcpStream) -> Option<SocketAddr> {
        io.peer_addr().ok()
    }
}

#[cfg(unix)]
impl Accept for UnixListener {
    type Io = UnixStream;

    /// Accepts a connection from the same user; others are refused, whatever the socket's permissions are.
    async fn accept_next(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.accept().await?;
        let peer = stream.peer_cred()?.uid();
        if peer != rustix::process::geteuid().as_raw() {
            tracing::warn!(peer, "connection of another user refused");
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(stream)
    }
}

/// Waits for the next connection. Cancel-safe.
///
/// Connections never wait for a slot: a client that connects while all are taken makes an idle one close, or gets an answer.
pub(crate) async fn accept<A: Accept>(listener: &A, connections: &Connections) -> (A::Io, ConnectionPermit) {
    loop {
        match listener.accept_next().await {
            Ok(io) => match connections.open() {
                Some(permit) => return (io, permit),
                None => tracing::warn!("connection closed: too many connections"),
            },
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns `true` if the next connection may be accepted at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::DuplexStream;
    use tokio::time::Instant;

    use super::*;

    /// Fails some times before it accepts.
    struct Failing(io::ErrorKind, AtomicUsize);

    impl Accept for Failing {
        type Io = DuplexStream;

        async fn accept_next(&self) -> io::Result<DuplexStream> {
            match self.1.fetch_sub(1, Ordering::Relaxed) {
                0 => Ok(tokio::io::duplex(1).0),
                _ => Err(self.0.into()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_continues_after_failures() {
        let connections = Connections::new(1);
        let start = Instant::now();
        accept(&Failing(io::ErrorKind::ConnectionAborted, AtomicUsize::new(3)), &connections).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        // EMFILE has no `ErrorKind`.
        accept(&Failing(io::ErrorKind::Other, AtomicUsize::new(3)), &connections).await;
        assert_eq!(start.elapsed(), PAUSE * 3);
    }
}
