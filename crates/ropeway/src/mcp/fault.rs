//! Why a request on a link has no result, and why a link is no more.

use std::sync::Arc;
use std::time::Duration;

use crate::duration::format_duration;
use crate::protocol::RpcError;
use crate::secret::Redactor;
use crate::tool::{Alias, BoxError, CallError, TimeoutKind};
use crate::web::TlsError;

/// Why there is no connection: it could not be made, or it was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The program could not be started.
    #[error("could not start `{program}`")]
    Spawn {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The process ended by itself.
    #[error("the process ended with {status}{}", saying(.said))]
    Exited {
        /// How it ended.
        status: String,
        /// The last line on its stderr.
        said: Option<String>,
    },
    /// The server closed its side of the connection.
    #[error("the server closed the connection{}", saying(.said))]
    Hangup {
        /// The last line on its stderr.
        said: Option<String>,
    },
    /// The pipe or socket broke, or no connection could be made.
    #[error("{}", broken(.0.as_ref()))]
    Broken(#[source] BoxError),
    /// The other end cannot be trusted, or does not speak TLS.
    #[error("{trouble}")]
    Tls {
        /// What is in the way.
        trouble: TlsError,
        /// What the TLS library said.
        #[source]
        source: BoxError,
    },
    /// The server was not ready in time.
    #[error("the server was not ready within {}{}", format_duration(*.after), saying(.said))]
    Timeout {
        /// How long it was given.
        after: Duration,
        /// The last line on its stderr.
        said: Option<String>,
    },
    /// The server wants to know who is asking.
    #[error("the server needs authentication")]
    NeedsAuth {
        /// The `WWW-Authenticate` header, when there was one.
        challenge: Option<String>,
    },
    /// The server's URL, or a header for it, cannot be used.
    #[error("`{what}` cannot be used")]
    Address {
        /// Which part.
        what: String,
        /// What is wrong with it.
        #[source]
        source: BoxError,
    },
    /// The server answered the handshake with an error.
    #[error("the server refused the handshake")]
    Refused(#[source] RpcError),
    /// The server answered with an HTTP status that is no answer.
    #[error("{}", refusal(*.status, .said))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        said: Option<String>,
    },
    /// The server speaks none of our versions of the protocol.
    #[error("the server speaks protocol version {theirs}, which we do not")]
    Version {
        /// What it offers.
        theirs: String,
    },
    /// The server does not know our session any more.
    #[error("the session has expired")]
    SessionExpired,
    /// The server answered with a web page.
    #[error("the server answered with a web page, not MCP{}", saying(.said))]
    WebPage {
        /// The beginning of its text.
        said: Option<String>,
    },
    /// The server's answer to the handshake is not one.
    #[error("the server violated the protocol: {0}")]
    Protocol(String),
    /// The connection was closed by its owner.
    #[error("the connection was closed")]
    Closed,
}

/// Returns what a broken connection is called: a port that is closed and a name that is unknown never were connections.
fn broken(source: &(dyn std::error::Error + 'static)) -> &'static str {
    let kind = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    match kind {
        Some(std::io::ErrorKind::ConnectionRefused) => "the connection was refused",
        _ if source.to_string().contains("failed to lookup address") => "the host name could not be resolved",
        _ => "the connection broke",
    }
}

fn refusal(status: u16, said: &Option<String>) -> String {
    match said {
        Some(location) if (300..400).contains(&status) => format!("the server answered HTTP {status}, {location}"),
        said => format!("the server answered HTTP {status}{}", saying(said)),
    }
}

/// How many bytes of an error's message are kept.
const LONGEST_MESSAGE: usize = 64 << 10;

/// An error of the server as it may be seen.
pub(crate) fn hidden(error: RpcError, mask: &Redactor) -> RpcError {
    let RpcError { code, message, mut data } = error;
    if let Some(data) = &mut data {
        mask.hide_json(data);
    }
    RpcError { code, message: mask.hide_beginning(&message, LONGEST_MESSAGE), data }
}

fn saying(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(", saying `{line}`")).unwrap_or_default()
}

/// Why a request has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The server answered with an error.
    #[error(transparent)]
    Refused(RpcError),
    /// The link is no more.
    #[error("the connection was lost")]
    Lost {
        /// Whether the server may have begun to work on the request.
        started: bool,
        /// What happened.
        #[source]
        cause: Arc<ConnectErrorKind>,
    },
    /// The answer was larger than the limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The answer cannot be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// The answer is a web page.
    #[error("the answer is a web page, not MCP: `{0}`")]
    WebPage(String),
    /// A clock ran out.
    #[error("no answer within {}", format_duration(*.after))]
    Timeout {
        after: Duration,
        clock: TimeoutKind,
        /// An error of the server that named no request.
        hint: Option<RpcError>,
    },
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl Fault {
    /// The fault as the answer to a call on the server.
    pub(crate) fn into_call_error(self, server: &Alias) -> CallError {
        let server = server.clone();
        match self {
            Self::Refused(RpcError { code, message, data }) => CallError::Refused { server, code, message, data },
            Self::Lost { cause, .. } => match &*cause {
                ConnectErrorKind::NeedsAuth { challenge } => {
                    CallError::NeedsAuth { server, challenge: challenge.clone() }
                }
                ConnectErrorKind::Closed => CallError::Stopped { server },
                _ => CallError::Unavailable { server, source: Box::new(cause) },
            },
            Self::TooLarge { limit } => CallError::TooLarge { server, limit },
            Self::Unreadable(what) => CallError::Protocol { server, source: what.into() },
            page @ Self::WebPage(_) => CallError::Protocol { server, source: page.to_string().into() },
            Self::Timeout { after, clock, hint } => {
                CallError::Timeout { server, after, clock, hint: hint.map(|hint| Box::new(hint) as BoxError) }
            }
            Self::Cancelled => CallError::Cancelled,
        }
    }

    /// The fault as the end of a handshake.
    pub(crate) fn into_connect_error(self) -> Arc<ConnectErrorKind> {
        match self {
            Self::Lost { cause, .. } => cause,
            Self::Refused(error) => Arc::new(ConnectErrorKind::Refused(error)),
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
