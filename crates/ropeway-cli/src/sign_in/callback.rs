//! The loopback listener for a sign-in's callback ([RFC 8252](https://www.rfc-editor.org/rfc/rfc8252#section-7.3)).
//!
//! Any program and any web page on this machine can send requests to it, so each is bounded and judged by itself.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;

use super::callback_request::{CALLBACK_PATH, Classified, ExpectedCallback, MAX_HEAD};
use super::page::Page;
use crate::failure::Failure;

/// Time limit per connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum open connections. Another one closes the oldest, so that idle connections cannot keep the callback out.
const MAX_CONNECTIONS: usize = 32;

/// Wait after an accept error, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on 127.0.0.1 for a sign-in's callback.
///
/// The sign-in flow owns it and drives it: connections are accepted only while [`callback`](Self::callback) or
/// [`ReceivedCallback::during`] is polled, so no lock is needed. Each connection has its own task in `connections`,
/// limited by [`CONNECTION_TIMEOUT`]. `open` holds the tasks' abort handles, oldest first, for the limit
/// [`MAX_CONNECTIONS`]. Dropping the listener closes the port and aborts all connections.
pub(crate) struct CallbackListener {
    listener: TcpListener,
    port: u16,
    connections: JoinSet<Option<Url>>,
    open: VecDeque<AbortHandle>,
}

impl CallbackListener {
    /// Binds this port on 127.0.0.1, or a free one.
    pub(crate) async fn bind(port: Option<u16>) -> Result<Self, Failure> {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
        let (port, listener) = bound.map_err(|error| bind_failure(port, &error))?;
        Ok(Self { listener, port, connections: JoinSet::new(), open: VecDeque::new() })
    }

    /// Returns the URI that the authorization server redirects the browser to.
    pub(crate) fn redirect_uri(&self) -> String {
        redirect_uri(self.port)
    }

    /// Waits for the callback with this state. All other requests are answered and change nothing.
    pub(crate) async fn callback(&mut self, state: &str) -> (Url, ReceivedCallback<'_>) {
        let expected = Arc::new(ExpectedCallback::new(self.port, state));
        loop {
            if let Some(callback) = self.step(&expected).await {
                return (callback, ReceivedCallback { listener: self, expected });
            }
        }
    }

    /// Accepts a connection or finishes one. Returns the callback if it was that.
    async fn step(&mut self, expected: &Arc<ExpectedCallback>) -> Option<Url> {
        tokio::select! {
            biased;
            Some(done) = self.connections.join_next() => done.ok().flatten(),
            accepted = self.listener.accept() => {
                match accepted {
                    Ok((stream, _)) => self.start(stream, expected.clone()),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
                None
            }
        }
    }

    fn start(&mut self, stream: TcpStream, expected: Arc<ExpectedCallback>) {
        self.open.retain(|connection| !connection.is_finished());
        if self.open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        self.open.push_back(self.connections.spawn(async move {
            let handled = tokio::time::timeout(CONNECTION_TIMEOUT, handle(stream, &expected)).await;
            handled.ok().flatten()
        }));
    }
}

/// A port on 127.0.0.1 on which nothing listens, and which other programs cannot bind meanwhile. Dropping it frees
/// the port.
pub(crate) struct ReservedPort {
    _socket: TcpSocket,
    port: u16,
}

impl ReservedPort {
    /// Reserves this port, or a free one.
    pub(crate) fn bind(port: Option<u16>) -> Result<Self, Failure> {
        let bind = |reuse: bool| -> io::Result<Self> {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(reuse)?;
            socket.bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0)).into())?;
            Ok(Self { port: socket.local_addr()?.port(), _socket: socket })
        };
        // Connections from an earlier sign-in may still hold a fixed port.
        let bound = bind(false).or_else(|error| if port.is_some() { bind(true) } else { Err(error) });
        bound.map_err(|error| bind_failure(port, &error))
    }

    /// Returns the URI that the authorization server redirects the browser to.
    pub(crate) fn redirect_uri(&self) -> String {
        redirect_uri(self.port)
    }
}

fn redirect_uri(port: u16) -> String {
    format!("http://127.0.0.1:{port}{CALLBACK_PATH}")
}

/// A listener after the callback.
pub(crate) struct ReceivedCallback<'a> {
    listener: &'a mut CallbackListener,
    expected: Arc<ExpectedCallback>,
}

impl ReceivedCallback<'_> {
    /// Runs `work` and answers further requests meanwhile.
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let Self { listener, expected } = self;
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                // The callback counts once, so this is never another one.
                _ = listener.step(&expected) => {}
            }
        }
    }
}

/// Answers a connection's request. Returns the callback if it was that.
async fn handle(mut stream: TcpStream, expected: &ExpectedCallback) -> Option<Url> {
    let Classified { page, callback } = match read_head(&mut stream).await.ok()? {
        Some(head) => expected.classify(&head),
        None => Page::TooLarge.into(),
    };
    let response = page.response();
    // The callback counts even if the browser is gone.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    callback
}

/// Reads a request's head. Returns `None` if it is too large.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The end may be split between two pieces.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&piece[..length]);
        if let Some(at) = head[from..].windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(from + at);
            return Ok(Some(head));
        }
        if head.len() > MAX_HEAD {
            return Ok(None);
        }
    }
}

fn bind_failure(port: Option<u16>, error: &io::Error) -> Failure {
    match port {
        Some(port) => Failure::usage(format!("could not listen on 127.0.0.1:{port}"))
            .caused_by(error)
            .hint("end the program that uses the port, or set another `redirect_port`"),
        None => Failure::usage("could not listen on 127.0.0.1")
            .caused_by(error)
            .hint("try `--paste` or `--device`, which need no listener"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(port: u16, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        stream.write_all(text.as_bytes()).await.expect("a reader");
        let mut answer = String::new();
        // A closed connection has no answer.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    async fn get(port: u16, target: &str) -> String {
        send(port, &format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")).await
    }

    #[tokio::test]
    async fn only_the_expected_callback_ends_the_wait() {
        let mut listener = CallbackListener::bind(None).await.expect("a port");
        let port = listener.port;
        let browser = async {
            assert!(get(port, "/favicon.ico").await.starts_with("HTTP/1.1 404"));
            assert!(get(port, "/callback?code=bad&state=other").await.starts_with("HTTP/1.1 400"));
            assert!(send(port, "\r\n\r\n").await.starts_with("HTTP/1.1 400"));
            let long = "x".repeat(MAX_HEAD + 5000);
            let answer = get(port, &format!("/callback?code={long}&state=right")).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
            assert!(get(port, "/callback?code=good&state=right").await.contains("Sign-in received"));
        };
        let wait = async {
            let (url, received) = listener.callback("right").await;
            (url, received.during(get(port, "/callback?code=again&state=right")).await)
        };
        let ((url, again), ()) = tokio::join!(wait, browser);
        assert_eq!(url.query(), Some("code=good&state=right"));
        assert!(again.contains("already received"), "{again}");
    }

    #[tokio::test]
    async fn idle_connections_do_not_keep_the_callback_out() {
        let mut listener = CallbackListener::bind(None).await.expect("a port");
        let port = listener.port;
        let browser = async {
            let mut idle = Vec::new();
            for _ in 0..MAX_CONNECTIONS * 2 {
                idle.push(TcpStream::connect(("127.0.0.1", port)).await.expect("a connection"));
            }
            get(port, "/callback?code=c&state=s").await
        };
        let wait = async {
            listener.callback("s").await.1.during(tokio::task::yield_now()).await;
        };
        let ((), answer) = tokio::join!(wait, browser);
        assert!(answer.contains("Sign-in received"), "{answer}");
    }

    #[tokio::test]
    async fn a_reserved_port_cannot_be_used_and_refuses_connections() {
        let reserved = ReservedPort::bind(None).expect("a port");
        assert_eq!(reserved.redirect_uri(), format!("http://127.0.0.1:{}/callback", reserved.port));
        assert!(CallbackListener::bind(Some(reserved.port)).await.is_err());
        assert!(TcpStream::connect(("127.0.0.1", reserved.port)).await.is_err());
        let listener = CallbackListener::bind(None).await.expect("a port");
        assert!(ReservedPort::bind(Some(listener.port)).is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let listener = CallbackListener::bind(None).await.expect("a port");
        let failure = CallbackListener::bind(Some(listener.port)).await.err().expect("a failure");
        assert!(failure.message().contains(&format!("127.0.0.1:{}", listener.port)), "{failure:?}");
    }
}
