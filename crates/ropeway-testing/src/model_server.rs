//! A scripted model server: an HTTP server that sends prepared responses and records requests.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::http_connection::{HttpConnection, RecordedHttpRequest};
use ropeway_core::sync::lock;

/// A local model server that sends prepared responses. Dropping it stops it.
pub struct ModelServer {
    shared: Arc<Shared>,
    port: u16,
    accepting: AbortHandle,
}

/// A [`ModelServer`] response.
#[derive(Clone, Debug)]
pub struct ModelAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<Step>,
    is_silent: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Piece(Vec<u8>),
    Wait,
    CutOff,
    Stall,
}

#[derive(Clone, Copy, Debug, Default)]
struct ConnectionCounts {
    made: usize,
    open: usize,
}

struct Shared {
    answers: Mutex<VecDeque<ModelAnswer>>,
    requests: watch::Sender<Vec<RecordedHttpRequest>>,
    connections: watch::Sender<ConnectionCounts>,
    /// One permit per call to `go_on`.
    go_on: Semaphore,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl ModelAnswer {
    /// Creates a response with a status, a content type and a body.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Self { status, headers, steps: Vec::new(), is_silent: false }.then(body)
    }

    /// Creates an event stream, given as it is sent.
    pub fn events(events: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", events)
    }

    /// Creates a JSON response.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Creates no response: the request is read, and the connection stays silent.
    pub fn silence() -> Self {
        Self { is_silent: true, ..Self::events("").stall() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends another piece of the body.
    #[must_use]
    pub fn then(mut self, piece: impl Into<Vec<u8>>) -> Self {
        let piece = piece.into();
        // An empty chunk would end the body.
        if !piece.is_empty() {
            self.steps.push(Step::Piece(piece));
        }
        self
    }

    /// Waits for [`ModelServer::go_on`].
    #[must_use]
    pub fn wait(mut self) -> Self {
        self.steps.push(Step::Wait);
        self
    }

    /// Closes the connection before the body ends.
    #[must_use]
    pub fn cut_off(mut self) -> Self {
        self.steps.push(Step::CutOff);
        self
    }

    /// Keeps the connection open and sends nothing more.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.steps.push(Step::Stall);
        self
    }
}

impl ModelServer {
    /// Starts on a free port. Each request gets the next response; further ones get status 500.
    pub async fn start(answers: impl IntoIterator<Item = ModelAnswer>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            answers: Mutex::new(answers.into_iter().collect()),
            requests: watch::Sender::default(),
            connections: watch::Sender::default(),
            go_on: Semaphore::new(0),
            tasks: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, port, accepting })
    }

    /// Returns the scheme, host and port.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<RecordedHttpRequest> {
        self.shared.requests.borrow().clone()
    }

    /// Returns the JSON bodies of all requests so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap_or_default()).collect()
    }

    /// Resumes a response that waits, or the next one that will.
    pub fn go_on(&self) {
        self.shared.go_on.add_permits(1);
    }

    /// Waits until this many requests were received.
    pub async fn asked(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        // The sender lives as long as the server.
        let _ = requests.wait_for(|requests| requests.len() >= count).await;
    }

    /// Returns how many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.borrow().made
    }

    /// Waits until no connection is open.
    pub async fn left(&self) {
        let mut connections = self.shared.connections.subscribe();
        let _ = connections.wait_for(|connections| connections.open == 0).await;
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.accepting.abort();
        lock(&self.shared.tasks).drain(..).for_each(|task| task.abort());
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.send_modify(|connections| {
            connections.made += 1;
            connections.open += 1;
        });
        let task = tokio::spawn(serve_connection(stream, Arc::clone(&shared)));
        let mut tasks = lock(&shared.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut connection = HttpConnection::new(stream);
    // An error means that the client disconnected.
    while let Ok(Some(request)) = connection.request().await {
        shared.requests.send_modify(|requests| requests.push(request));
        let answer = lock(&shared.answers).pop_front();
        let answer = answer.unwrap_or_else(|| ModelAnswer::new(500, "text/plain", "the script is over"));
        if !matches!(send_answer(&mut connection, answer, &shared).await, Ok(true)) {
            break;
        }
    }
    drop(connection);
    shared.connections.send_modify(|connections| connections.open -= 1);
}

/// Sends a response. Returns whether the connection can be used again.
async fn send_answer(connection: &mut HttpConnection, answer: ModelAnswer, shared: &Shared) -> io::Result<bool> {
    let ModelAnswer { status, mut headers, steps, is_silent } = answer;
    headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
    if !is_silent {
        connection.head(status, &headers).await?;
    }
    for step in steps {
        match step {
            Step::Piece(piece) => connection.chunk(&piece).await?,
            Step::Wait => tokio::select! {
                permit = shared.go_on.acquire() => permit.map_err(io::Error::other)?.forget(),
                () = connection.closed() => return Ok(false),
            },
            Step::CutOff => return Ok(false),
            Step::Stall => {
                connection.closed().await;
                return Ok(false);
            }
        }
    }
    connection.end_chunks().await?;
    Ok(true)
}
