//! A small MCP client over HTTP/1.1 for load: one kept-alive connection, no result parsing.

use std::io;

use anyhow::{Context, Result, bail};
use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::event_reader::EventReader;

/// A client's era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEra {
    /// `initialize` and a session.
    Legacy,
    /// The same over legacy HTTP+SSE: responses arrive on one event stream.
    LegacySse,
    /// Stateless requests, as in 2026-07-28.
    Modern,
}

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Maximum length for a header line or a chunk's size line.
const MAX_LINE: u64 = 64 << 10;

/// Why a request has no response.
#[derive(Debug)]
pub enum PostError {
    /// The connection could not be opened; the request was not sent.
    Connect(io::Error),
    /// The connection broke after the request was sent.
    Broken(io::Error),
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "could not connect: {error}"),
            Self::Broken(error) => write!(f, "connection broken: {error}"),
        }
    }
}

impl std::error::Error for PostError {}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The `Mcp-Session-Id` value.
    pub session: Option<String>,
    /// The body: JSON, or a stream's events.
    pub body: Vec<u8>,
}

impl HttpReply {
    /// Returns the body's response message.
    pub fn message(&self) -> Result<Value> {
        let text = std::str::from_utf8(&self.body)?;
        if text.trim_start().starts_with('{') {
            return Ok(serde_json::from_str(text)?);
        }
        let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let messages = events.filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
        let response = messages.rev().find(|message| message.get("method").is_none());
        response.with_context(|| format!("HTTP {} without a response message: {text:.200}", self.status))
    }
}

/// A client with one connection.
#[derive(Debug)]
pub struct LoadClient {
    authority: String,
    path: String,
    era: LoadEra,
    session: Option<String>,
    stream: Option<BufReader<TcpStream>>,
    /// The legacy HTTP+SSE event stream.
    events: Option<EventReader>,
    next_id: u64,
    /// The `Authorization` header line.
    authorization: String,
    name: String,
    capabilities: Value,
}

impl LoadClient {
    /// Creates a client for a `http://HOST:PORT/PATH` URL, which is not connected yet.
    pub fn new(url: &str, era: LoadEra) -> Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("`{url}` is not an http URL"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Self {
            authority: authority.to_owned(),
            path: format!("/{path}"),
            era,
            session: None,
            stream: None,
            events: None,
            next_id: 1,
            authorization: String::new(),
            name: "load".to_owned(),
            capabilities: json!({}),
        })
    }

    /// Sends a bearer token with every request.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.authorization = format!("Authorization: Bearer {token}\r\n");
        self
    }

    /// Declares a name and capabilities.
    #[must_use]
    pub fn with_identity(mut self, name: &str, capabilities: Value) -> Self {
        (self.name, self.capabilities) = (name.to_owned(), capabilities);
        self
    }

    /// Returns the address to connect to.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Encodes a request for a separate connection.
    pub fn request_bytes(&mut self, method: &str, name: &str, params: &Value) -> Vec<u8> {
        let body = self.body(method, params);
        self.next_id += 1;
        self.head("POST", method, name, &body)
    }

    /// Encodes a message that is not a request: a response or a notification.
    pub fn message_bytes(&self, message: &Value) -> Vec<u8> {
        self.head("POST", "", "", message.to_string().as_bytes())
    }

    /// Encodes the request that opens the notification stream.
    pub fn stream_bytes(&self) -> Vec<u8> {
        self.head("GET", "", "", b"")
    }

    /// Opens a session in the legacy era; a modern client needs none.
    pub async fn open(&mut self) -> Result<()> {
        if self.era == LoadEra::Modern {
            return Ok(());
        }
        self.session = None;
        if self.era == LoadEra::LegacySse {
            let (events, path) = EventReader::open(&self.authority, &self.path).await?;
            (self.events, self.path) = (Some(events), path);
        }
        let client = json!({ "name": self.name, "version": "1.0.0" });
        let params = json!({ "protocolVersion": LEGACY, "capabilities": self.capabilities, "clientInfo": client });
        let reply = self.post("POST", "initialize", "", &self.body("initialize", &params)).await?;
        if reply.status != 200 || reply.message()?.get("result").is_none() {
            bail!("`initialize` failed: HTTP {} {}", reply.status, String::from_utf8_lossy(&reply.body));
        }
        self.session = reply.session;
        let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.post("POST", "notifications/initialized", "", ready).await?;
        Ok(())
    }

    /// Ends the session.
    pub async fn close(&mut self) -> Result<(), PostError> {
        self.events = None;
        if self.session.is_some() {
            self.post("DELETE", "", "", b"").await?;
            self.session = None;
        }
        Ok(())
    }

    /// Calls a tool.
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> Result<HttpReply, PostError> {
        let body = self.body("tools/call", &json!({ "name": tool, "arguments": arguments }));
        self.next_id += 1;
        self.post("POST", "tools/call", tool, &body).await
    }

    /// Sends a request without a name, such as `tools/list`.
    pub async fn request(&mut self, method: &str) -> Result<HttpReply, PostError> {
        let body = self.body(method, &json!({}));
        self.next_id += 1;
        self.post("POST", method, "", &body).await
    }

    /// Returns a request's text.
    fn body(&self, method: &str, params: &Value) -> Vec<u8> {
        let mut params = params.clone();
        if self.era == LoadEra::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": { "name": self.name, "version": "1.0.0" },
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            });
        }
        json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params }).to_string().into_bytes()
    }

    /// Sends one HTTP request and reads its response.
    async fn post(&mut self, verb: &str, method: &str, name: &str, body: &[u8]) -> Result<HttpReply, PostError> {
        let request = self.head(verb, method, name, body);
        let mut stream = match self.stream.take().filter(is_open) {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.authority).await.map_err(PostError::Connect)?;
                stream.set_nodelay(true).map_err(PostError::Connect)?;
                BufReader::with_capacity(64 << 10, stream)
            }
        };
        match exchange(&mut stream, &request).await {
            Ok(Some(reply)) => {
                self.stream = Some(stream);
                let is_request = !method.starts_with("notifications/");
                match &mut self.events {
                    // The response to the only request in flight; notifications may come before it.
                    Some(events) if is_request && reply.status < 300 => loop {
                        let body = events.next().await.map_err(PostError::Broken)?;
                        if memmem::find(&body, b"\"method\"").is_none() {
                            return Ok(HttpReply { status: 200, session: None, body });
                        }
                    },
                    _ => Ok(reply),
                }
            }
            Ok(None) => Err(PostError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(PostError::Broken(error)),
        }
    }

    fn head(&self, verb: &str, method: &str, name: &str, body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "{verb} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{}",
            self.path,
            self.authority,
            body.len(),
            self.authorization,
        );
        match self.era {
            LoadEra::Modern => {
                head += &format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n");
                if !name.is_empty() {
                    head += &format!("Mcp-Name: {name}\r\n");
                }
            }
            LoadEra::Legacy | LoadEra::LegacySse => {
                if let Some(session) = &self.session {
                    head += &format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {LEGACY}\r\n");
                }
            }
        }
        head += "\r\n";
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        request
    }
}

/// Returns `false` if the server has closed an idle connection.
fn is_open(stream: &BufReader<TcpStream>) -> bool {
    matches!(stream.get_ref().try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Writes a request and reads its response; `None` if the connection was closed before the first byte.
async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> io::Result<Option<HttpReply>> {
    stream.write_all(request).await?;
    let mut line = Vec::new();
    if read_line(stream, &mut line).await? == 0 {
        return Ok(None);
    }
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let status = line.split(|byte| *byte == b' ').nth(1).and_then(|code| std::str::from_utf8(code).ok());
    let status: u16 = status.and_then(|code| code.trim().parse().ok()).ok_or_else(|| invalid("no status line"))?;
    let (mut length, mut chunked, mut session) = (None, false, None);
    loop {
        line.clear();
        read_line(stream, &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| invalid("no header"))?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse::<usize>().ok(),
            "transfer-encoding" => chunked = value.trim().eq_ignore_ascii_case("chunked"),
            "mcp-session-id" => session = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            line.clear();
            read_line(stream, &mut line).await?;
            let size = String::from_utf8_lossy(&line);
            let size = size.trim().split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("no chunk size"))?;
            let start = body.len();
            body.resize(start + size + 2, 0);
            stream.read_exact(&mut body[start..]).await?;
            body.truncate(start + size);
            if size == 0 {
                break;
            }
        }
    } else if status != 204 && status != 304 {
        body.resize(length.unwrap_or_default(), 0);
        stream.read_exact(&mut body).await?;
    }
    Ok(Some(HttpReply { status, session, body }))
}

async fn read_line(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>) -> io::Result<usize> {
    (&mut *stream).take(MAX_LINE).read_until(b'\n', line).await
}
