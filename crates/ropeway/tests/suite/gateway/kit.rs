//! A gateway in front of a scripted server, and clients that can also misbehave.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};

use ropeway::config::{Config, GatewaySettings, ServerEntry};
use ropeway::gateway::{Gateway, GatewayBuilder};
use ropeway::testing::{Script, ScriptedServer};
use ropeway_gateway::GatewayStatus;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf,
    WriteHalf,
};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::fast_config::{SOON, fast_config, until};

/// The version of the modern era.
pub(crate) const MODERN: &str = "2026-07-28";

/// A gateway that listens on a port of its own.
pub(crate) struct GatewayKit {
    pub(crate) gateway: Gateway,
    pub(crate) scripted: ScriptedServer,
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

/// A complete HTTP response.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// By names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// Without the encoding in chunks.
    pub(crate) body: String,
}

impl HttpReply {
    /// Returns the JSON-RPC message of the body.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the messages of an event stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

impl GatewayKit {
    /// Starts a gateway with one scripted server, whose names are not changed.
    pub(crate) async fn start(script: Script) -> Self {
        Self::start_with(script, GatewaySettings::default()).await
    }

    pub(crate) async fn start_with(script: Script, settings: GatewaySettings) -> Self {
        let scripted = ScriptedServer::new(script);
        let config = Config::default().with_server(entry("scripted", &scripted));
        Self::launch(scripted, Gateway::builder(config).settings(settings)).await
    }

    /// Starts a gateway in front of several servers, of which `scripted` is one.
    pub(crate) async fn launch(scripted: ScriptedServer, builder: GatewayBuilder) -> Self {
        let kit = Self::serve(scripted, builder);
        kit.gateway.start().await.expect("a start");
        kit
    }

    /// Serves a gateway whose servers are not started yet.
    pub(crate) fn serve(scripted: ScriptedServer, builder: GatewayBuilder) -> Self {
        Self::serve_on(TcpListener::bind("127.0.0.1:0").expect("a port"), scripted, builder)
    }

    /// Serves a gateway on a listener, whose address its settings may have.
    pub(crate) fn serve_on(listener: TcpListener, scripted: ScriptedServer, builder: GatewayBuilder) -> Self {
        let gateway = builder.build().expect("a gateway");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn({
            let gateway = gateway.clone();
            async move { gateway.serve_http(listener).await.expect("a listener") }
        });
        Self { gateway, scripted, address, serving }
    }

    /// Stops the gateway. Nothing must be in progress any more.
    pub(crate) async fn stop(self) {
        self.idle().await;
        self.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, self.serving).await.expect("the listener ends").expect("the listener");
    }

    /// Waits until the gateway has nothing in progress.
    pub(crate) async fn idle(&self) {
        let is_idle = |status: &GatewayStatus| {
            [status.requests, status.parked, status.questions, status.listeners] == [0, 0, 0, 0]
        };
        until("an idle gateway", || is_idle(&self.gateway.status())).await;
    }

    /// Opens a connection and sends bytes.
    pub(crate) async fn open(&self, request: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("a request");
        BufReader::new(stream)
    }

    /// Sends one request on a connection of its own, and reads the response to its end.
    pub(crate) async fn send(&self, request: &str) -> HttpReply {
        let mut stream = self.open(request).await;
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(2 * SOON, stream.read_to_end(&mut bytes));
        read.await.expect("a response in time").expect("a response");
        parse(&bytes)
    }

    /// Sends a message with more headers, each of which ends in a line break.
    pub(crate) async fn post(&self, headers: &str, message: &Value) -> HttpReply {
        self.send(&post(headers, message)).await
    }

    /// Cancels a request of a session.
    pub(crate) async fn cancel(&self, session: &str, id: u64) {
        let cancelled = notification("notifications/cancelled", json!({"requestId": id}));
        assert_eq!(self.post(session, &cancelled).await.status, 202);
    }

    /// Returns what the server got for its request.
    pub(crate) fn answers(&self, id: &str) -> Vec<Value> {
        let is_answer = |message: &Value| message["id"] == id && message.get("method").is_none();
        self.scripted.received().into_iter().filter(is_answer).collect()
    }

    /// Sends a modern request.
    pub(crate) async fn modern(&self, method: &str, params: Value) -> HttpReply {
        self.send(&modern(method, params)).await
    }

    /// Starts a legacy session, and returns the header that names it.
    pub(crate) async fn session(&self) -> String {
        self.session_with(json!({})).await
    }

    /// Starts the session of a client with capabilities.
    pub(crate) async fn session_with(&self, capabilities: Value) -> String {
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        let reply = self.post("", &request(0, "initialize", params)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let header = format!("Mcp-Session-Id: {}\r\n", reply.headers["mcp-session-id"]);
        let reply = self.post(&header, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        header
    }
}

/// A client on a pipe.
pub(crate) struct Pipe {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
}

impl Pipe {
    pub(crate) fn open(kit: &GatewayKit) -> Self {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(server);
        let gateway = kit.gateway.clone();
        tokio::spawn(async move { gateway.serve_stdio(None, input, output).await });
        let (input, output) = tokio::io::split(client);
        Self { lines: BufReader::new(input).lines(), output }
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: &Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.expect("a pipe");
    }

    /// Waits for the next message.
    pub(crate) async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(2 * SOON, self.lines.next_line()).await.expect("a line in time");
        serde_json::from_str(&line.expect("a line").expect("a message")).expect("JSON")
    }
}

/// Makes the entry of a server within this process.
pub(crate) fn entry(alias: &str, scripted: &ScriptedServer) -> ServerEntry {
    let mut server = fast_config(scripted.in_process());
    server.alias = alias.into();
    ServerEntry::new(server)
}

/// Writes a JSON-RPC request.
pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Writes the call of a tool, which reports progress under its name.
pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}}))
}

/// Writes a notification.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Writes a call that takes some time.
pub(crate) fn sleep(id: u64, ms: u64) -> Value {
    call(id, "sleep", json!({"ms": ms}))
}

/// Writes an HTTP request with a message.
pub(crate) fn post(headers: &str, message: &Value) -> String {
    let body = message.to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Writes an HTTP request without a body.
pub(crate) fn bare(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nAccept: text/event-stream\r\n{headers}\r\n")
}

/// Writes a modern HTTP request.
pub(crate) fn modern(method: &str, mut params: Value) -> String {
    let name = params.get("name").or(params.get("uri")).and_then(Value::as_str).map(str::to_owned);
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
    let capabilities = &mut params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    if capabilities.is_null() {
        *capabilities = json!({});
    }
    let mut headers = format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n");
    headers.extend(name.map(|name| format!("Mcp-Name: {name}\r\n")));
    post(&headers, &request(7, method, params))
}

/// Writes the modern call of a tool.
pub(crate) fn modern_call(tool: &str, arguments: Value) -> String {
    modern("tools/call", json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}}))
}

/// Returns the capabilities of a client that answers all questions.
pub(crate) fn all_capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
}

/// Writes the modern call of a tool by a client with capabilities, with more params.
pub(crate) fn call_with(capabilities: Value, tool: &str, arguments: &Value, more: Value) -> String {
    let mut params = json!({"name": tool, "arguments": arguments, "_meta": {"io.modelcontextprotocol/clientCapabilities": capabilities}});
    for (key, value) in more.as_object().expect("an object") {
        params[key] = value.clone();
    }
    modern("tools/call", params)
}

/// Returns the result of a response that asks for input.
pub(crate) fn input_required(reply: &HttpReply) -> Value {
    let message = reply.json();
    assert_eq!((reply.status, &message["id"]), (200, &json!(7)), "{reply:?}");
    assert_eq!(message["result"]["resultType"], "input_required", "{reply:?}");
    message["result"].clone()
}

/// Reads lines until one contains a text. Returns all of them.
pub(crate) async fn read_until<R: AsyncRead + Unpin>(stream: &mut BufReader<R>, text: &str) -> String {
    let mut read = String::new();
    let reading = async {
        while !read.contains(text) {
            // A line that is interrupted would be lost.
            let mut line = String::new();
            assert!(stream.read_line(&mut line).await.expect("a line") > 0, "the end before `{text}`: {read}");
            read.push_str(&line);
        }
    };
    let in_time = tokio::time::timeout(2 * SOON, reading).await.is_ok();
    assert!(in_time, "`{text}` did not come: {read}");
    read
}

/// Reads a response to its end.
pub(crate) async fn read_rest(mut stream: BufReader<TcpStream>) -> String {
    let mut read = String::new();
    let reading = tokio::time::timeout(2 * SOON, stream.read_to_string(&mut read));
    reading.await.expect("an end in time").expect("a response");
    read
}

/// Reads the next message of an event stream.
pub(crate) async fn next_message(stream: &mut BufReader<TcpStream>) -> Value {
    let read = read_until(stream, "data: {").await;
    let data = read.lines().next_back().and_then(|line| line.strip_prefix("data: ")).expect("an event");
    serde_json::from_str(data).expect("JSON")
}

fn parse(bytes: &[u8]) -> HttpReply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: HashMap<String, String> = lines.filter_map(header).collect();
    let is_chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    HttpReply { status, headers, body: if is_chunked { joined(body) } else { body.to_owned() } }
}

/// Joins the chunks of a body.
fn joined(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        whole.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").expect("the end of a chunk");
        if size == 0 {
            break;
        }
    }
    whole
}
