//! The demo server: a small MCP server of both eras, on standard input and output.

mod calculate;
mod canvas;
mod chart;
mod clock;
mod countdown;
mod font;
mod message;
mod statistics;
mod toolbox;

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use message::{ErrorCode, Incoming, Request};
use toolbox::Answer;

/// The longest message that is read; what is longer is skipped and refused.
const LONGEST_MESSAGE: u64 = 16 << 20;
/// How many countdowns may run at once.
const MOST_RUNNING: usize = 256;

/// Serves until the input ends.
pub(crate) fn serve(input: impl BufRead, output: impl Write + Send + 'static) -> ExitCode {
    match Server::new(output).run(input) {
        // A client that left is the usual end of a server.
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo server stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where messages to the client go, one line each.
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

/// The calls that are running, by the id of their request. A call whose sender is dropped stops.
type Running = Arc<Mutex<HashMap<String, Sender<()>>>>;

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
            let length = (&mut input).take(LONGEST_MESSAGE).read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(());
            }
            if length as u64 == LONGEST_MESSAGE && line.last() != Some(&b'\n') {
                input.skip_until(b'\n')?;
                let reason = format!("a message of more than {LONGEST_MESSAGE} bytes is not read");
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

    /// The result of a request; none when it comes later.
    fn result(&mut self, request: &Request) -> Result<Option<Value>, message::Refusal> {
        if request.method == "initialize" {
            self.initialized = true;
            return Ok(Some(message::initialize_result(&request.params)));
        }
        request.check_era(self.initialized)?;
        match request.method.as_str() {
            "ping" if !request.is_modern() => Ok(Some(json!({}))),
            "server/discover" if request.is_modern() => Ok(Some(message::discover_result())),
            "tools/list" => match request.params.get("cursor") {
                None | Some(Value::Null) => Ok(Some(message::cached(json!({"tools": toolbox::definitions()})))),
                Some(cursor) => Err(message::Refusal::params(format!("there is no page `{cursor}`"))),
            },
            "tools/call" => self.call(request),
            method => Err(message::Refusal::new(ErrorCode::MethodNotFound, format!("there is no method `{method}`"))),
        }
    }

    fn call(&mut self, request: &Request) -> Result<Option<Value>, message::Refusal> {
        let name = request.params.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| message::Refusal::params("`name` must say which tool to call".to_owned()))?;
        let no_arguments = serde_json::Map::new();
        let arguments = match request.params.get("arguments") {
            None | Some(Value::Null) => &no_arguments,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(message::Refusal::params("`arguments` must be an object".to_owned())),
        };
        match toolbox::call(name, arguments) {
            None => Err(message::Refusal::params(format!("unknown tool `{name}`"))),
            Some(Ok(Answer::Now(result))) => Ok(Some(result)),
            Some(Ok(Answer::Slow(countdown))) => self.start(request, countdown),
            Some(Err(reason)) => Ok(Some(toolbox::failed(&reason))),
        }
    }

    /// Runs a slow call beside the others.
    fn start(&mut self, request: &Request, countdown: countdown::Countdown) -> Result<Option<Value>, message::Refusal> {
        let (keep, stopped) = mpsc::channel();
        let key = request.id.to_string();
        {
            let mut running = self.running();
            if running.contains_key(&key) {
                let reason = format!("a request with the id {key} is still running");
                return Err(message::Refusal::new(ErrorCode::InvalidRequest, reason));
            }
            if running.len() >= MOST_RUNNING {
                let reason = format!("{MOST_RUNNING} countdowns are running; wait for one of them to end");
                return Ok(Some(toolbox::failed(&reason)));
            }
            running.insert(key.clone(), keep);
        }
        let (client, running, request) = (self.client.clone(), self.running.clone(), request.clone());
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let report = |progress: f64, total: f64, text: &str| {
                if let Some(token) = request.progress_token() {
                    // A client that left cannot be told.
                    let _ = client.send(&message::progress(token, progress, total, text));
                }
            };
            // A call that was stopped has no entry any more, and nobody waits for its answer.
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
                Ok(Some(toolbox::failed(&format!("the countdown could not be started: {error}"))))
            }
        }
    }
}
