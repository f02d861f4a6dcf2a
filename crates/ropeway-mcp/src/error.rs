//! Request errors and connection errors.

use std::sync::Arc;
use std::time::Duration;

use crate::oauth::OAuthError;
use crate::protocol::RpcError;
use ropeway_core::duration::format_duration;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::{Alias, BoxError, CallError};
use ropeway_web::TlsError;

/// Why a connection could not be established, or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The program could not be started.
    #[error("could not start `{program}`")]
    Spawn {
        /// The program.
        program: String,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The program's sandbox could not be applied.
    #[error("could not apply the sandbox: {reason}")]
    Sandbox {
        /// The reason.
        reason: String,
    },
    /// The process exited.
    #[error("the process exited ({status}){}", detail(.said))]
    Exited {
        /// The exit status.
        status: String,
        /// The stderr line that explains the failure.
        said: Option<String>,
    },
    /// The server closed its side of the connection.
    #[error("the server closed the connection{}", detail(.said))]
    Hangup {
        /// The stderr line that explains the failure.
        said: Option<String>,
    },
    /// The pipe or socket failed, or could not be opened.
    #[error("{}", broken(.0.as_ref()))]
    Broken(#[source] BoxError),
    /// The TLS handshake failed.
    #[error("{trouble}")]
    Tls {
        /// The failure kind.
        trouble: TlsError,
        /// The TLS library's error.
        #[source]
        source: BoxError,
    },
    /// The handshake timed out.
    #[error("the server was not ready within {}{}", format_duration(*.after), detail(.said))]
    Timeout {
        /// The timeout.
        after: Duration,
        /// The stderr line that explains the failure.
        said: Option<String>,
    },
    /// The server requires authentication.
    #[error("the server needs authentication")]
    NeedsAuth {
        /// The `WWW-Authenticate` header, if the server sent one.
        challenge: Option<String>,
    },
    /// No token could be obtained, or the server rejects it.
    #[error("the request could not be authorized")]
    Auth(#[source] OAuthError),
    /// The URL or a header in the configuration is invalid.
    #[error("`{what}` cannot be used")]
    Address {
        /// The invalid part.
        what: String,
        /// The reason.
        #[source]
        source: BoxError,
    },
    /// The server answered the handshake with a JSON-RPC error.
    #[error("the server refused the handshake")]
    Refused {
        /// The JSON-RPC error code.
        code: i64,
        /// The server's error.
        #[source]
        source: BoxError,
    },
    /// The server answered with an HTTP error status.
    #[error("{}", refusal(*.status, .said))]
    Status {
        /// The HTTP status code.
        status: u16,
        /// The beginning of the body.
        said: Option<String>,
    },
    /// The client and the server have no protocol version in common.
    #[error("the server only supports protocol version {theirs}")]
    Version {
        /// The versions that the server offers.
        theirs: String,
    },
    /// The server is the gateway that connects to it.
    #[error("the server is this gateway itself; remove its entry")]
    OwnGateway,
    /// The session has expired on the server.
    #[error("the session has expired")]
    SessionExpired,
    /// The server answered with an HTML page.
    #[error("the server answered with a web page, not MCP{}", detail(.said))]
    WebPage {
        /// The beginning of the page's text.
        said: Option<String>,
    },
    /// The server's handshake violates the protocol.
    #[error("the server violated the protocol: {0}")]
    Protocol(String),
    /// The client has restarted the server.
    #[error("the server was restarted")]
    Restarted,
    /// The connection was closed by the client.
    #[error("the connection was closed")]
    Closed,
}

/// Describes a failed connection. For a closed port, the source adds that the connection was refused.
fn broken(source: &(dyn std::error::Error + 'static)) -> &'static str {
    let kind = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    match kind {
        Some(std::io::ErrorKind::ConnectionRefused) => "could not connect",
        _ if source.to_string().contains("failed to lookup address") => "the host name could not be resolved",
        _ => "the connection was lost",
    }
}

fn refusal(status: u16, said: &Option<String>) -> String {
    match said {
        _ if status == PROXY_AUTH => "the proxy requires authentication (HTTP 407)".to_owned(),
        Some(location) if (300..400).contains(&status) => format!("the server answered HTTP {status}, {location}"),
        said => format!("the server answered HTTP {status}{}", detail(said)),
    }
}

/// The HTTP status that a proxy sends if it requires authentication.
pub(crate) const PROXY_AUTH: u16 = 407;

/// Error messages are truncated to this many bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Redacts and truncates a server error.
pub(crate) fn redact_error(error: RpcError, redactor: &Redactor) -> RpcError {
    let RpcError { code, message, mut data } = error;
    if let Some(data) = &mut data {
        redactor.redact_json(data);
    }
    RpcError { code, message: redactor.redact_beginning(&message, MAX_MESSAGE_BYTES), data }
}

fn detail(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(": `{line}`")).unwrap_or_default()
}

/// Why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server answered with a JSON-RPC error.
    #[error(transparent)]
    Refused(RpcError),
    /// The link is closed.
    #[error("the connection was lost")]
    Disconnected {
        /// Whether the server may have started to process the request.
        started: bool,
        #[source]
        cause: Arc<ConnectErrorKind>,
    },
    /// The response exceeds the size limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The response is not valid.
    #[error("invalid response: {0}")]
    Unreadable(String),
    /// The response is an HTML page.
    #[error("the response is a web page, not MCP: `{0}`")]
    WebPage(String),
    /// The request timed out.
    #[error("no answer within {}", format_duration(*.after))]
    Timeout {
        after: Duration,
        idle: bool,
        /// The server's last error without a request id.
        hint: Option<RpcError>,
    },
    /// The caller cancelled the request.
    #[error("cancelled")]
    Cancelled,
}

impl RequestError {
    pub(crate) fn disconnected(started: bool, cause: ConnectErrorKind) -> Self {
        Self::Disconnected { started, cause: Arc::new(cause) }
    }

    /// Converts the error to a call error.
    pub(crate) fn into_call_error(self, server: &Alias) -> CallError {
        let server = server.clone();
        match self {
            Self::Refused(RpcError { code, message, data }) => CallError::Refused { server, code, message, data },
            Self::Disconnected { cause, .. } => match &*cause {
                ConnectErrorKind::NeedsAuth { challenge } => {
                    CallError::NeedsAuth { server, challenge: challenge.clone() }
                }
                ConnectErrorKind::Closed => CallError::Stopped { server },
                _ => CallError::Unavailable { server, source: Box::new(cause) },
            },
            Self::TooLarge { limit } => CallError::TooLarge { server, limit },
            Self::Unreadable(what) => CallError::Protocol { server, source: what.into() },
            page @ Self::WebPage(_) => CallError::Protocol { server, source: page.to_string().into() },
            Self::Timeout { after, idle, hint } => {
                CallError::Timeout { server, after, idle, hint: hint.map(|hint| Box::new(hint) as BoxError) }
            }
            Self::Cancelled => CallError::Cancelled,
        }
    }

    /// Converts the error to a handshake error.
    pub(crate) fn into_connect_error(self) -> Arc<ConnectErrorKind> {
        match self {
            Self::Disconnected { cause, .. } => cause,
            Self::Refused(error) => Arc::new(ConnectErrorKind::Refused { code: error.code, source: Box::new(error) }),
            Self::Timeout { after, .. } => Arc::new(ConnectErrorKind::Timeout { after, said: None }),
            Self::Cancelled => Arc::new(ConnectErrorKind::Closed),
            Self::WebPage(said) => {
                Arc::new(ConnectErrorKind::WebPage { said: Some(said).filter(|said| !said.is_empty()) })
            }
            other @ (Self::TooLarge { .. } | Self::Unreadable(_)) => {
                Arc::new(ConnectErrorKind::Protocol(other.to_string()))
            }
        }
    }
}
