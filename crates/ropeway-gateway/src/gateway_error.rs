//! Why a gateway could not be built, or could not serve clients.

use std::io;
use std::path::PathBuf;

use crate::client::auth::KeyFileError;
use crate::client::seal::KeyError;
use crate::listener::tls::TlsError;
use ropeway_bridge::BridgeError;

/// Why a [`Gateway`](super::Gateway) could not be built, or could not serve clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The configuration is invalid.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// The session keys could not be loaded.
    #[error("could not load the session keys of the gateway")]
    Keys(#[from] KeyError),
    /// The client keys could not be loaded.
    #[error("could not load the client keys")]
    ClientKeys(#[from] KeyFileError),
    /// The session journal could not be opened.
    #[error("could not open the session journal `{}`", path.display())]
    Journal {
        /// The journal's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The audit log or the access log could not be opened.
    #[error("could not open the log `{}`", path.display())]
    Log {
        /// The log's path.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The address is reachable from other machines, and clients are not authenticated.
    #[error("listening on `{address}` needs authentication; set `gateway.auth`, or listen on `127.0.0.1`")]
    NotLocal {
        /// The listener's address.
        address: std::net::SocketAddr,
    },
    /// The gateway's certificate or its key cannot be used.
    #[error("could not load the certificate of the gateway")]
    Tls(#[from] TlsError),
    /// The listener failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
