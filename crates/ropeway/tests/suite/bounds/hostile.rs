//! Hand-written hostile servers, and measurements in a separate process.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ropeway::config::ServerConfig;
use ropeway::mcp::Mcp;
use ropeway::testing::{HttpScriptedServer, Script};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::fast_config::{at, connect, fast_config, listening, still_works};

/// Set in a process that runs a single measured test.
const ALONE: &str = "ROPEWAY_TEST_ALONE";

/// Maximum duration of a measured test.
const PATIENCE: Duration = Duration::from_secs(150);

/// Runs a test in a separate process, to measure its descriptors and memory.
pub(crate) fn alone<F, R>(name: &str, body: F)
where
    F: FnOnce() -> R,
    R: Future<Output = ()>,
{
    if std::env::var_os(ALONE).is_some() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, body()).await.expect("an end in time");
        });
        runtime.shutdown_background();
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ALONE, "1");
    let output = command.output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    for line in said.lines().filter_map(|line| line.find("measured ").map(|at| &line[at..])) {
        println!("{line}");
    }
    assert!(said.contains("1 passed"), "{said}");
}

/// Returns the number of open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(usize::MAX, |entries| entries.count())
}

/// Returns a value of `/proc/self/status` in bytes: `VmRSS` is the current memory, `VmHWM` the peak.
pub(crate) fn memory(line: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':')).expect("a number");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// A well-behaved server and a connection to it.
pub(crate) struct Good {
    _http: HttpScriptedServer,
    pub(crate) mcp: Mcp,
}

impl Good {
    pub(crate) async fn start() -> Self {
        let http = listening(Script::default()).await;
        let mcp = connect(fast_config(at(http.url()))).await;
        Self { _http: http, mcp }
    }

    /// Calls the server repeatedly. Returns the longest call and the maximum number of descriptors.
    pub(crate) async fn keep_calling(&self, span: Duration) -> (Duration, usize) {
        let (mut longest, mut most) = (Duration::ZERO, 0);
        let end = Instant::now() + span;
        while Instant::now() < end {
            let began = Instant::now();
            still_works(&self.mcp).await;
            longest = longest.max(began.elapsed());
            most = most.max(descriptors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (longest, most)
    }
}

/// A request to a hostile server, and its connection.
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// The JSON body, or null.
    pub(crate) body: Value,
    pub(crate) stream: TcpStream,
}

impl Exchange {
    /// Returns the method of the JSON-RPC message; empty for a response.
    pub(crate) fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) async fn answer(&mut self, status: &str, headers: &str, body: &str) {
        let text =
            format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let _ = self.stream.write_all(text.as_bytes()).await;
        let _ = self.stream.shutdown().await;
    }

    pub(crate) async fn result(&mut self, result: Value) {
        let body = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string();
        self.answer("200 OK", "Content-Type: application/json\r\n", &body).await;
    }

    pub(crate) async fn accept(&mut self) {
        self.answer("202 Accepted", "", "").await;
    }

    /// Starts an event stream.
    pub(crate) async fn events(&mut self) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        let _ = self.stream.write_all(head.as_bytes()).await;
    }

    /// Sends a part of an event stream. Returns `false` if the client has disconnected.
    pub(crate) async fn say(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }

    /// Answers the messages of a legacy handshake, with a session. Returns `false` for other messages.
    pub(crate) async fn handshake(&mut self, capabilities: &Value) -> bool {
        match self.rpc() {
            "initialize" => {
                let result = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
                    "serverInfo": {"name": "hostile", "version": "1"}});
                let body = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string();
                let headers = "Content-Type: application/json\r\nMcp-Session-Id: s1\r\n";
                self.answer("200 OK", headers, &body).await;
            }
            method if method.starts_with("notifications/") => self.accept().await,
            _ if self.method == "DELETE" => self.accept().await,
            _ => return false,
        }
        true
    }
}

type Handler = Arc<dyn Fn(Exchange) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// An HTTP server that runs a closure for each request. Dropping it stops it.
pub(crate) struct Hostile {
    pub(crate) origin: String,
    seen: Arc<Mutex<Vec<(Instant, String)>>>,
    task: JoinHandle<()>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hostile {
    pub(crate) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(Exchange) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler: Handler = Arc::new(move |exchange| Box::pin(handler(exchange)));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                // Out of descriptors.
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                while connections.try_join_next().is_some() {}
                let (handler, log) = (handler.clone(), log.clone());
                connections.spawn(async move {
                    if let Some(exchange) = read(stream).await {
                        let what = match exchange.rpc() {
                            "" => exchange.method.clone(),
                            method => method.to_owned(),
                        };
                        log.lock().expect("a log").push((Instant::now(), what));
                        handler(exchange).await;
                    }
                });
            }
        });
        Self { origin, seen, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    /// Returns the number of requests with a JSON-RPC method, or an HTTP method if the body is not a request.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen.lock().expect("a log").iter().filter(|(_, it)| it == what).count()
    }

    /// Returns the number of such requests within a time span.
    pub(crate) fn count_within(&self, what: &str, from: Instant, span: Duration) -> usize {
        let seen = self.seen.lock().expect("a log");
        seen.iter().filter(|(at, it)| it == what && (from..from + span).contains(at)).count()
    }
}

/// Reads one HTTP request.
pub(crate) async fn read(mut stream: TcpStream) -> Option<Exchange> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let method = words.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while bytes.len() < head + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head + 4..]).unwrap_or_default();
    Some(Exchange { method, headers, body, stream })
}

/// Returns default settings in the legacy era for a server with the alias `bad`.
pub(crate) fn legacy(transport: impl Into<ropeway::config::Transport>) -> ServerConfig {
    let mut config = ServerConfig::new("bad", transport);
    config.era = ropeway::config::EraChoice::Legacy;
    config.timeouts.close = Duration::from_millis(300);
    config
}
