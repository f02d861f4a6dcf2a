//! The scripted server over Streamable HTTP and legacy HTTP+SSE.

mod events;
mod response;
mod state;
mod streamable;
mod streams;

use std::io;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::AbortHandle;

use self::state::HttpState;
use super::http_connection::RecordedHttpRequest;
use super::script::Script;
use super::scripted::ScriptedServer;
use ropeway_core::sync::lock;

/// A local HTTP server that follows a script. Dropping it stops it.
pub struct HttpScriptedServer {
    server: Arc<HttpState>,
    port: u16,
    accepting: Mutex<Option<AbortHandle>>,
}

impl HttpScriptedServer {
    /// Starts on a free port.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::start_on(0, script).await
    }

    /// Starts on this port.
    pub async fn start_on(port: u16, script: Script) -> io::Result<Self> {
        Self::start_with(port, script, None).await
    }

    /// Starts a server whose exit ends this process.
    pub async fn start_process(port: u16, script: Script) -> io::Result<Self> {
        Self::start_with(port, script, Some(|code| std::process::exit(code))).await
    }

    async fn start_with(port: u16, script: Script, exit: Option<fn(i32)>) -> io::Result<Self> {
        let server = Arc::new(HttpState {
            scripted: ScriptedServer::new(script),
            exit,
            requests: Mutex::default(),
            sessions: Mutex::default(),
            parked: Mutex::default(),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
        });
        let listener = listen(port)?;
        let port = listener.local_addr()?.port();
        let scripted = Self { server, port, accepting: Mutex::default() };
        scripted.accept(listener);
        Ok(scripted)
    }

    /// Returns the URL for Streamable HTTP.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns the URL for legacy HTTP+SSE.
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// Returns all requests so far, including failed ones.
    pub fn requests(&self) -> Vec<RecordedHttpRequest> {
        lock(&self.server.requests).clone()
    }

    /// Forgets all sessions, as if they had expired.
    pub fn forget_sessions(&self) {
        lock(&self.server.sessions).clear();
    }

    /// Returns the open session count.
    pub fn sessions(&self) -> usize {
        lock(&self.server.sessions).len()
    }

    /// Returns how many connections were accepted so far.
    pub fn accepted_connections(&self) -> usize {
        self.server.accepted.load(Ordering::Relaxed)
    }

    /// Closes all connections and forgets all sessions, like a process that is restarted at once.
    pub fn crash(&self) {
        self.server.crash();
        self.server.scripted.connect();
    }

    /// Stops listening, closes all connections and forgets all sessions.
    pub fn stop(&self) {
        if let Some(accepting) = lock(&self.accepting).take() {
            accepting.abort();
        }
        self.server.crash();
    }

    /// Stops, and starts again on the same port.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop();
        // The port is free only after the listener's task has been dropped.
        for _ in 0..100 {
            if let Ok(listener) = listen(self.port) {
                self.accept(listener);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn accept(&self, listener: TcpListener) {
        self.server.scripted.connect();
        let server = Arc::clone(&self.server);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.accepted.fetch_add(1, Ordering::Relaxed);
                let connection = tokio::spawn(Arc::clone(&server).serve_connection(stream));
                let mut connections = lock(&server.connections);
                connections.retain(|connection| !connection.is_finished());
                connections.push(connection.abort_handle());
            }
        });
        *lock(&self.accepting) = Some(task.abort_handle());
    }
}

/// Listens with a longer queue than the usual 128. On a busy machine hundreds of connections wait to be accepted, and
/// the kernel drops those that do not fit, which clients only retry seconds later.
fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // As `TcpListener::bind` does, so that a server can restart on its port.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)
}

impl Deref for HttpScriptedServer {
    type Target = ScriptedServer;

    fn deref(&self) -> &ScriptedServer {
        &self.server.scripted
    }
}

impl Drop for HttpScriptedServer {
    fn drop(&mut self) {
        self.stop();
    }
}
