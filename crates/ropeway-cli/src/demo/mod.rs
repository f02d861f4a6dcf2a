//! The demo server: a small stdio MCP server for both protocol eras.

mod calculate;
mod canvas;
mod chart;
mod clock;
mod countdown;
mod font;
mod message;
mod png;
mod statistics;
mod tools;

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use message::{ErrorCode, Incoming, Request};
use tools::ToolReply;

/// Maximum message size in bytes; longer ones are skipped and refused.
const MAX_MESSAGE: u64 = 16 << 20;
/// Maximum concurrent countdowns.
const MAX_RUNNING: usize = 256;

/// Serves until the input ends.
pub(crate) fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> ExitCode {
    match Server::new(output).run(input) {
        // Clients usually end a server by closing the pipe.
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the demo server failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes messages to the client, one per line.
#[derive(Clone)]
struct Client(Arc<Mutex<dyn Write + Send>>);

impl Client {
    fn send(&self, message: &Value) -> io::Result<()> {
        let line = format!("{message}\n");
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(line.as_bytes())?;
        output.flush()
    }
}

/// Running calls by request id. Dropping the sender stops the call.
type Running = Arc<Mutex<HashMap<String, Sender<()>>>>;

/// The demo server, which one thread runs.
///
/// That thread reads requests and answers all but countdowns, which run on their own threads. They share the output and the
/// table of running calls; each has its own mutex, and no thread holds both. The entry in the table decides who answers: a
/// cancellation removes it, which drops the sender and stops the countdown, and a countdown without an entry sends no
/// result. The threads are detached: they end with the process when the input ends.
struct Server {
    client: Client,
    running: Running,
    initialized: bool,
}

impl Server {
    fn new(output: impl Write + Send + 'static) -> Self {
        Self { client: Client(Arc::new(Mutex::new(output))), running: Running::default(), initialized: false }
    }

    fn run(&mut self, mut input: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = (&mut input).take(MAX_MESSAGE).read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(());
            }
            if length as u64 == MAX_MESSAGE && line.last() != Some(&b'\n') {
                input.skip_until(b'\n')?;
                let reason = format!("message is longer than {MAX_MESSAGE} bytes");
                self.client.send(&message::error(&Value::Null, ErrorCode::InvalidRequest, &reason))?;
                continue;
            }
            match Incoming::read(&line) {
                Incoming::Nothing => {}
                Incoming::Broken { id, code, reason } => self.client.send(&message::error(&id, code, &reason))?,
                Incoming::Cancelled { id } => {
                    self.running().remove(&id.to_string());
                }
                Incoming::Request(request) => self.answer(request)?,
            }
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sender<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&mut self, request: Request) -> io::Result<()> {
        let reply = match self.result(&request) {
            Ok(Some(result)) => message::result(&request, result),
            Ok(None) => return Ok(()),
            Err(error) => error.reply(&request.id),
        };
        self.client.send(&reply)
    }

    /// Returns a request's result, or `None` if it is sent later.
    fn result(&mut self, request: &Request) -> Result<Option<Value>, message::RpcError> {
        if request.method == "initialize" {
            self.initialized = true;
            return Ok(Some(message::initialize_result(&request.params)));
        }
        request.check_era(self.initialized)?;
        match request.method.as_str() {
            "ping" if !request.is_modern() => Ok(Some(json!({}))),
            "server/discover" if request.is_modern() => Ok(Some(message::discover_result())),
            "tools/list" => match request.params.get("cursor") {
                None | Some(Value::Null) => Ok(Some(message::cached(json!({"tools": tools::definitions()})))),
                Some(cursor) => Err(message::RpcError::params(format!("unknown cursor `{cursor}`"))),
            },
            "tools/call" => self.call(request),
            method => Err(message::RpcError::new(ErrorCode::MethodNotFound, format!("unknown method `{method}`"))),
        }
    }

    fn call(&mut self, request: &Request) -> Result<Option<Value>, message::RpcError> {
        let name = request.params.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| message::RpcError::params("`name` must be the name of a tool".to_owned()))?;
        let no_arguments = serde_json::Map::new();
        let arguments = match request.params.get("arguments") {
            None | Some(Value::Null) => &no_arguments,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(message::RpcError::params("`arguments` must be an object".to_owned())),
        };
        match tools::call(name, arguments) {
            None => Err(message::RpcError::params(format!("unknown tool `{name}`"))),
            Some(Ok(ToolReply::Now(result))) => Ok(Some(result)),
            Some(Ok(ToolReply::Slow(countdown))) => self.start(request, countdown),
            Some(Err(reason)) => Ok(Some(message::error_result(&reason))),
        }
    }

    /// Runs a slow call on its own thread.
    fn start(
        &mut self,
        request: &Request,
        countdown: countdown::Countdown,
    ) -> Result<Option<Value>, message::RpcError> {
        let (stop, stopped) = mpsc::channel();
        let key = request.id.to_string();
        {
            let mut running = self.running();
            if running.contains_key(&key) {
                let reason = format!("request id {key} is already in use");
                return Err(message::RpcError::new(ErrorCode::InvalidRequest, reason));
            }
            if running.len() >= MAX_RUNNING {
                let reason = format!("too many running countdowns (maximum {MAX_RUNNING})");
                return Ok(Some(message::error_result(&reason)));
            }
            running.insert(key.clone(), stop);
        }
        let (client, running, request) = (self.client.clone(), self.running.clone(), request.clone());
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let report = |progress: f64, total: f64, text: &str| {
                if let Some(token) = request.progress_token() {
                    // The client may have disconnected.
                    let _ = client.send(&message::progress(token, progress, total, text));
                }
            };
            // A cancelled call has no entry and gets no answer.
            let Some(result) = countdown.run(&stopped, report) else { return };
            let entry = running.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.id.to_string());
            if entry.is_some() {
                let _ = client.send(&message::result(&request, result));
            }
        });
        match thread {
            Ok(_) => Ok(None),
            Err(error) => {
                self.running().remove(&key);
                Ok(Some(message::error_result(&format!("could not start the countdown: {error}"))))
            }
        }
    }
}
