//! The legacy HTTP+SSE event stream, for load: all requests' responses arrive on one GET.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// An open event stream.
#[derive(Debug)]
pub struct EventReader {
    stream: BufReader<TcpStream>,
    is_chunked: bool,
    received: Vec<u8>,
}

impl EventReader {
    /// Opens the stream and returns it with the path from its `endpoint` event.
    pub async fn open(authority: &str, path: &str) -> io::Result<(Self, String)> {
        let mut stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reader = Self { stream: BufReader::new(stream), is_chunked: false, received: Vec::new() };
        let status = reader.line().await?;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(format!("no event stream: {}", status.trim_end())));
        }
        loop {
            let line = reader.line().await?.to_ascii_lowercase();
            if line.trim_end().is_empty() {
                break;
            }
            reader.is_chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let endpoint = reader.next().await?;
        let endpoint = String::from_utf8_lossy(&endpoint).into_owned();
        // Some servers send the whole URL.
        let path = endpoint.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned()));
        Ok((reader, path.unwrap_or(endpoint)))
    }

    /// Returns the next event's data, skipping events without data.
    pub async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            while let Some(end) = memmem::find(&self.received, b"\n\n") {
                let event: Vec<u8> = self.received.drain(..end + 2).collect();
                let lines = event.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
                let data = lines.collect::<Vec<_>>().concat();
                if !data.is_empty() {
                    return Ok(data.trim_ascii().to_vec());
                }
            }
            self.receive().await?;
        }
    }

    /// Reads one chunk, or what has arrived.
    async fn receive(&mut self) -> io::Result<()> {
        if self.is_chunked {
            let size = self.line().await?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            if size == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let start = self.received.len();
            self.received.resize(start + size + 2, 0);
            self.stream.read_exact(&mut self.received[start..]).await?;
            self.received.truncate(start + size);
        } else if self.stream.read_buf(&mut self.received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Servers may end lines with CRLF.
        self.received.retain(|byte| *byte != b'\r');
        Ok(())
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if (&mut self.stream).take(64 << 10).read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}
