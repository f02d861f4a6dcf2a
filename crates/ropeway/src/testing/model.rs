//! A scripted provider: an HTTP server that answers as it was told, piece by piece, and remembers what it was asked.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::wire::{RecordedHttpRequest, Wire};
use crate::sync::lock;

/// A provider of models on this machine that answers as it was told. Dropping it ends it.
pub struct ModelServer {
    shared: Arc<Shared>,
    port: u16,
    accepting: AbortHandle,
}

/// One answer of a [`ModelServer`].
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

/// How many there were, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    made: usize,
    open: usize,
}

struct Shared {
    answers: Mutex<VecDeque<ModelAnswer>>,
    requests: watch::Sender<Vec<RecordedHttpRequest>>,
    connections: watch::Sender<Connections>,
    /// One permit for each time that somebody said to go on.
    go_on: Semaphore,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl ModelAnswer {
    /// An answer with a status and a body of some type.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Self { status, headers, steps: Vec::new(), is_silent: false }.then(body)
    }

    /// A stream of events, as they are written on the wire.
    pub fn events(events: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", events)
    }

    /// JSON with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// No answer: the request is read, and nothing comes back.
    pub fn silence() -> Self {
        Self { is_silent: true, ..Self::events("").stall() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Goes on with another piece.
    #[must_use]
    pub fn then(mut self, piece: impl Into<Vec<u8>>) -> Self {
        let piece = piece.into();
        // An empty chunk would be the end.
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

    /// Closes the connection here, before the body has ended.
    #[must_use]
    pub fn cut_off(mut self) -> Self {
        self.steps.push(Step::CutOff);
        self
    }

    /// Says nothing more from here on, and keeps the connection.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.steps.push(Step::Stall);
        self
    }
}

impl ModelServer {
    /// Starts on a free port. Each request gets the next answer; when they are used up, status 500.
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

    /// Where it is: scheme, host and port.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<RecordedHttpRequest> {
        self.shared.requests.borrow().clone()
    }

    /// The bodies of all requests so far, as JSON.
    pub fn bodies(&self) -> Vec<Value> {
        self.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap_or_default()).collect()
    }

    /// Lets an answer go on that waits; one that is not there yet will not wait.
    pub fn go_on(&self) {
        self.shared.go_on.add_permits(1);
    }

    /// Comes back when there were so many requests.
    pub async fn asked(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        // It ends with us.
        let _ = requests.wait_for(|requests| requests.len() >= count).await;
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.borrow().made
    }

    /// Comes back when no connection is open.
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
        let task = tokio::spawn(converse(stream, Arc::clone(&shared)));
        let mut tasks = lock(&shared.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task.abort_handle());
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let mut wire = Wire::new(stream);
    // An error only says that the client has gone.
    while let Ok(Some(request)) = wire.request().await {
        shared.requests.send_modify(|requests| requests.push(request));
        let answer = lock(&shared.answers).pop_front();
        let answer = answer.unwrap_or_else(|| ModelAnswer::new(500, "text/plain", "the script is over"));
        if !matches!(give(&mut wire, answer, &shared).await, Ok(true)) {
            break;
        }
    }
    drop(wire);
    shared.connections.send_modify(|connections| connections.open -= 1);
}

/// Gives an answer; may the connection be used again?
async fn give(wire: &mut Wire, answer: ModelAnswer, shared: &Shared) -> io::Result<bool> {
    let ModelAnswer { status, mut headers, steps, is_silent } = answer;
    headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
    if !is_silent {
        wire.head(status, &headers).await?;
    }
    for step in steps {
        match step {
            Step::Piece(piece) => wire.chunk(&piece).await?,
            Step::Wait => tokio::select! {
                permit = shared.go_on.acquire() => permit.map_err(io::Error::other)?.forget(),
                () = wire.gone() => return Ok(false),
            },
            Step::CutOff => return Ok(false),
            Step::Stall => {
                wire.gone().await;
                return Ok(false);
            }
        }
    }
    wire.end_chunks().await?;
    Ok(true)
}
