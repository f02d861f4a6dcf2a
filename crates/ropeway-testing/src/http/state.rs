//! An HTTP server's state, and request routing.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::response::{answer_json, send_error};
use super::streams::{HttpSession, SessionStreams, SseStream};
use crate::action::Action;
use crate::driver::Driver;
use crate::fault::{Fault, HttpFault};
use crate::http_connection::{ConnectionReuse, HttpConnection, RecordedHttpRequest, ResponseFaults};
use crate::script::{OfferedTransports, UnknownSession};
use crate::scripted::ScriptedServer;
use crate::session::ScriptedSession;
use ropeway_core::sync::lock;

/// Time to write pending responses before the server exits.
const EXIT_DELAY: Duration = Duration::from_millis(20);

pub(super) struct HttpState {
    pub(super) scripted: ScriptedServer,
    /// Exits the process; `None` if the server's end only closes its connections.
    pub(super) exit: Option<fn(i32)>,
    pub(super) requests: Mutex<Vec<RecordedHttpRequest>>,
    pub(super) sessions: Mutex<HashMap<String, Arc<HttpSession>>>,
    /// Event streams that were cut and can be resumed.
    pub(super) parked: Mutex<HashMap<String, SseStream>>,
    pub(super) connections: Mutex<Vec<AbortHandle>>,
    /// Number of connections accepted so far.
    pub(super) accepted: AtomicUsize,
    pub(super) next_number: AtomicU64,
}

impl HttpState {
    pub(super) fn crash(&self) {
        lock(&self.sessions).clear();
        lock(&self.parked).clear();
        for connection in lock(&self.connections).drain(..) {
            connection.abort();
        }
    }

    pub(super) fn next_id(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.scripted.connections(), self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        // Otherwise small responses wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let mut connection = HttpConnection::new(stream);
        while let Ok(Some(request)) = connection.request().await {
            lock(&self.requests).push(request.clone());
            connection.writing = self.scripted.script().writing;
            match self.handle_request(&request, &mut connection).await {
                Ok(ConnectionReuse::KeepAlive) => {}
                Ok(ConnectionReuse::Close) | Err(_) => return,
            }
        }
    }

    pub(super) async fn handle_request(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        use OfferedTransports::{Both, LegacySse, Streamable};

        let message = serde_json::from_slice::<Value>(&request.body).ok();
        let faults = match &message {
            Some(message) if request.method == "POST" => self.scripted.faults_of(message),
            _ => self.scripted.faults(&request.method, None),
        };
        let mut http = Vec::new();
        let mut others = Vec::new();
        for fault in faults {
            match fault {
                Fault::Http(fault) => http.push(fault),
                fault => others.push(fault),
            }
        }
        connection.response_faults = ResponseFaults::of(&http);
        for fault in &http {
            match fault {
                HttpFault::Reset => return Ok(connection.reset()),
                HttpFault::Status { status, headers, body } => {
                    return connection.answer(*status, headers, body.as_bytes(), false).await;
                }
                HttpFault::Accepted => return connection.answer(202, &[], b"", false).await,
                HttpFault::ForgetSession => {
                    if let Some(id) = request.header("mcp-session-id") {
                        lock(&self.sessions).remove(id);
                    }
                }
                _ => {}
            }
        }
        let offers = self.scripted.script().http.offers;
        let path = request.path.split('?').next().unwrap_or_default();
        let path = path.strip_prefix("/moved").unwrap_or(path);
        match (path, request.method.as_str(), offers) {
            ("/mcp", "POST", Both | Streamable) => self.post(request, message, others, connection).await,
            ("/mcp", "GET", Both | Streamable) => self.get(request, connection).await,
            ("/mcp", "DELETE", Both | Streamable) => self.delete(request, connection).await,
            ("/sse", "GET", Both | LegacySse) | ("/mcp", "GET", LegacySse) => self.serve_sse_stream(connection).await,
            ("/message", "POST", Both | LegacySse) => self.post_sse(request, message, others, connection).await,
            ("/mcp", ..) | ("/sse", _, Both | LegacySse) => {
                connection.answer(405, &[], b"Method Not Allowed", false).await
            }
            _ => connection.answer(404, &[], b"Not Found", false).await,
        }
    }

    pub(super) fn park(&self, sse: SseStream) {
        lock(&self.parked).insert(sse.name.clone(), sse);
    }

    pub(super) fn session(self: &Arc<Self>, session: ScriptedSession) -> Arc<HttpSession> {
        let streams = Arc::new(Mutex::new(SessionStreams::default()));
        let (routes, server) = (Arc::clone(&streams), Arc::downgrade(self));
        let driver = Driver::new(session, move |action| match action {
            Action::Exit(code) => exit_server(&server, code),
            action => lock(&routes).route(action),
        });
        Arc::new(HttpSession { driver, streams })
    }

    /// Forwards the test's commands to this session for as long as it exists.
    pub(super) fn forward_commands(&self, driver: &Arc<Driver>) {
        let mut commands = self.scripted.commands();
        let driver = Arc::downgrade(driver);
        tokio::spawn(async move {
            while let Some(command) = commands.recv().await {
                let Some(driver) = driver.upgrade() else { return };
                driver.command(command);
            }
        });
    }

    pub(super) fn find_session(&self, request: &RecordedHttpRequest) -> Option<Arc<HttpSession>> {
        lock(&self.sessions).get(request.header("mcp-session-id")?).cloned()
    }

    pub(super) async fn reject_session(
        &self,
        request: &RecordedHttpRequest,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let unknown = self.scripted.script().http.unknown_session;
        if unknown == UnknownSession::NotFound && request.header("mcp-session-id").is_some() {
            return send_error(connection, 404, -32001, "Session not found").await;
        }
        // Servers on the TypeScript SDK send this body, without an id.
        let message = match unknown {
            UnknownSession::NotInitialized => "Bad Request: Server not initialized",
            _ => "Bad Request: No valid session ID provided",
        };
        let error = json!({ "code": -32000, "message": message });
        let body = json!({ "jsonrpc": "2.0", "error": error }).to_string();
        answer_json(connection, 400, &[], body.as_bytes(), false).await
    }
}

/// Ends the server: exits the process, or restarts at once.
fn exit_server(server: &Weak<HttpState>, code: i32) {
    let server = Weak::clone(server);
    tokio::spawn(async move {
        // Pending responses are still to be written.
        tokio::time::sleep(EXIT_DELAY).await;
        let Some(server) = server.upgrade() else { return };
        if let Some(exit) = server.exit {
            exit(code);
        }
        server.crash();
        server.scripted.connect();
    });
}
