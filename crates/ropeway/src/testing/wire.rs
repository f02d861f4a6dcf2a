//! HTTP/1.1 by hand, so that it can be done wrong.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use super::fault::HttpFault;
use super::pipe::put;
use super::script::WriteStyle;

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedHttpRequest {
    /// `POST`, `GET` or `DELETE`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers in order, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedHttpRequest {
    /// The value of a header, by its lowercase name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What goes wrong with one answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Manner {
    pub(super) slow_head_ms: u64,
    pub(super) content_type: Option<String>,
    pub(super) truncate: bool,
    pub(super) reset_after_head: bool,
    pub(super) cut: Option<Cut>,
}

/// Where an event stream is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) after: usize,
    pub(super) retry_ms: u64,
    pub(super) resumable: bool,
}

impl Manner {
    pub(super) fn of(faults: &[HttpFault]) -> Self {
        let mut manner = Self::default();
        for fault in faults {
            match fault {
                HttpFault::SlowHead { ms } => manner.slow_head_ms = *ms,
                HttpFault::ContentType(content_type) => manner.content_type = Some(content_type.clone()),
                HttpFault::Truncate => manner.truncate = true,
                HttpFault::ResetAfterHead => manner.reset_after_head = true,
                HttpFault::CutStream { after, retry_ms, resumable } => {
                    manner.cut = Some(Cut { after: *after, retry_ms: *retry_ms, resumable: *resumable });
                }
                _ => {}
            }
        }
        manner
    }
}

/// One connection of a client.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
    pub(super) writing: WriteStyle,
    pub(super) manner: Manner,
}

/// May the connection be used for another request?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    KeepAlive,
    Close,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream), writing: WriteStyle::default(), manner: Manner::default() }
    }

    /// The next request; none when the client has gone.
    pub(super) async fn request(&mut self) -> io::Result<Option<RecordedHttpRequest>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = RecordedHttpRequest { method, path, headers, body: Vec::new() };
        if request.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            request.body = self.chunks().await?;
        } else if let Some(length) = request.header("content-length").and_then(|length| length.parse().ok()) {
            request.body = vec![0; length];
            self.stream.read_exact(&mut request.body).await?;
        }
        Ok(Some(request))
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let size = line.trim().split(';').next().and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.ok_or(io::ErrorKind::InvalidData)?;
            let begin = body.len();
            body.resize(begin + size, 0);
            self.stream.read_exact(&mut body[begin..]).await?;
            line.clear();
            self.stream.read_line(&mut line).await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Comes back when the client has gone; never while it is there.
    pub(super) async fn gone(&mut self) {
        match self.stream.fill_buf().await {
            // Another request is already waiting: it will be read in its turn.
            Ok(bytes) if !bytes.is_empty() => std::future::pending().await,
            _ => {}
        }
    }

    /// A whole answer.
    pub(super) async fn answer(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
        chunked: bool,
    ) -> io::Result<Next> {
        let mut headers = headers.to_vec();
        if chunked {
            headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        } else if status != 204 {
            headers.push(("Content-Length".to_owned(), body.len().to_string()));
        }
        if self.head(status, &headers).await? == Next::Close {
            return Ok(Next::Close);
        }
        if self.manner.truncate {
            self.put(&body[..body.len() / 2]).await?;
            return Ok(Next::Close);
        }
        if !chunked {
            self.put(body).await?;
            return Ok(Next::KeepAlive);
        }
        for piece in body.chunks(1024) {
            self.chunk(piece).await?;
        }
        self.end_chunks().await?;
        Ok(Next::KeepAlive)
    }

    /// The head of an answer; the connection may be of no use after it.
    pub(super) async fn head(&mut self, status: u16, headers: &[(String, String)]) -> io::Result<Next> {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers {
            let value = match &self.manner.content_type {
                Some(lie) if name.eq_ignore_ascii_case("content-type") => lie,
                _ => value,
            };
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        if self.manner.slow_head_ms > 0 {
            let slowly = WriteStyle { split: Some(1), pause_ms: self.manner.slow_head_ms, ..WriteStyle::default() };
            put(&mut self.stream, head.as_bytes(), &slowly).await?;
        } else {
            self.put(head.as_bytes()).await?;
        }
        if self.manner.reset_after_head {
            return Ok(self.reset());
        }
        Ok(Next::KeepAlive)
    }

    pub(super) async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend(bytes);
        chunk.extend(b"\r\n");
        self.put(&chunk).await
    }

    /// Says that more is coming than does.
    pub(super) async fn half_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend(&bytes[..bytes.len() / 2]);
        self.put(&chunk).await
    }

    pub(super) async fn end_chunks(&mut self) -> io::Result<()> {
        self.put(b"0\r\n\r\n").await
    }

    /// The connection is torn instead of closed, once it is dropped.
    pub(super) fn reset(&self) -> Next {
        // Where this cannot be set, the client sees a closed connection, which is nearly as rude.
        let _ = self.stream.get_ref().set_zero_linger();
        Next::Close
    }

    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        put(&mut self.stream, bytes, &self.writing).await
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
