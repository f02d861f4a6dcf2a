//! A response that is read message by message: an event stream, or one JSON body.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Maximum length for a header line or a chunk's size line.
const MAX_LINE: u64 = 64 << 10;
/// Maximum body or chunk length.
const MAX_BODY: usize = 64 << 20;

/// How a body's end is found.
#[derive(Debug)]
enum Framing {
    Chunked,
    Length(usize),
}

/// One request's response, on its own connection.
#[derive(Debug)]
pub struct MessageStream {
    reader: BufReader<TcpStream>,
    framing: Framing,
    is_events: bool,
    received: Vec<u8>,
    /// The status code.
    pub status: u16,
}

impl MessageStream {
    /// Sends a request and reads its response's head.
    pub async fn open(authority: &str, request: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        stream.write_all(request).await?;
        let mut opened = Self {
            reader: BufReader::new(stream),
            framing: Framing::Length(0),
            is_events: false,
            received: Vec::new(),
            status: 0,
        };
        let first = opened.line().await?;
        let status = first.split(' ').nth(1).and_then(|code| code.trim().parse().ok());
        opened.status = status.ok_or_else(|| io::Error::other(format!("no status line: {first}")))?;
        loop {
            let line = opened.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(opened);
            }
            match line.split_once(':') {
                Some(("transfer-encoding", value)) if value.contains("chunked") => opened.framing = Framing::Chunked,
                Some(("content-length", value)) => {
                    opened.framing = Framing::Length(value.trim().parse().unwrap_or_default());
                }
                Some(("content-type", value)) => opened.is_events = value.contains("text/event-stream"),
                _ => {}
            }
        }
    }

    /// Returns the next message, or `None` at the end of the response. Not cancel-safe.
    pub async fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(message) = self.take() {
                return Ok(Some(message));
            }
            if !self.receive().await? {
                let rest = std::mem::take(&mut self.received);
                return Ok(serde_json::from_slice(&rest).ok());
            }
        }
    }

    /// Takes the first complete event that is a message, and returns its data.
    fn take(&mut self) -> Option<Value> {
        while self.is_events {
            let end = memchr::memmem::find(&self.received, b"\n\n")?;
            let event: Vec<u8> = self.received.drain(..end + 2).collect();
            let lines = event.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
            if let Ok(message) = serde_json::from_slice(&lines.collect::<Vec<_>>().concat()) {
                return Some(message);
            }
        }
        None
    }

    /// Reads more of the body; `false` at its end.
    async fn receive(&mut self) -> io::Result<bool> {
        let size = match &mut self.framing {
            Framing::Length(0) => return Ok(false),
            Framing::Length(left) => {
                let available = self.reader.fill_buf().await?;
                let size = available.len().min(*left);
                self.received.extend_from_slice(&available[..size]);
                *left -= size;
                self.reader.consume(size);
                return Ok(size > 0);
            }
            Framing::Chunked => self.line().await?,
        };
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16).map_err(io::Error::other)?;
        if size > MAX_BODY {
            return Err(io::Error::other("chunk is too large"));
        }
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).await?;
        self.received.extend_from_slice(&chunk[..size]);
        Ok(size > 0)
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}
