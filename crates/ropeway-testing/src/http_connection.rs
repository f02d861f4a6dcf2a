//! HTTP/1.1 written by hand, so that faults can break it.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;

use super::fault::HttpFault;
use super::pipe::write_styled;
use super::script::WriteStyle;

/// An HTTP request as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedHttpRequest {
    /// `POST`, `GET` or `DELETE`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers in order, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedHttpRequest {
    /// Returns a header's value, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// One response's faults.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseFaults {
    pub(super) slow_head_ms: u64,
    pub(super) content_type: Option<String>,
    pub(super) truncate: bool,
    pub(super) reset_after_head: bool,
    pub(super) cut: Option<StreamCut>,
}

/// Where an event stream is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamCut {
    pub(super) after: usize,
    pub(super) retry_ms: u64,
    pub(super) resumable: bool,
}

impl ResponseFaults {
    pub(super) fn of(faults: &[HttpFault]) -> Self {
        let mut response_faults = Self::default();
        for fault in faults {
            match fault {
                HttpFault::SlowHead { ms } => response_faults.slow_head_ms = *ms,
                HttpFault::ContentType(content_type) => response_faults.content_type = Some(content_type.clone()),
                HttpFault::Truncate => response_faults.truncate = true,
                HttpFault::ResetAfterHead => response_faults.reset_after_head = true,
                HttpFault::CutStream { after, retry_ms, resumable } => {
                    response_faults.cut = Some(StreamCut { after: *after, retry_ms: *retry_ms, resumable: *resumable });
                }
                _ => {}
            }
        }
        response_faults
    }
}

/// A client connection.
pub(super) struct HttpConnection {
    stream: BufReader<TcpStream>,
    pub(super) writing: WriteStyle,
    pub(super) response_faults: ResponseFaults,
}

/// Whether the connection can be used for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionReuse {
    KeepAlive,
    Close,
}

impl HttpConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            writing: WriteStyle::default(),
            response_faults: ResponseFaults::default(),
        }
    }

    /// Reads the next request; `None` if the client disconnected.
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

    /// Completes when the client disconnects.
    pub(super) async fn closed(&mut self) {
        match self.stream.fill_buf().await {
            // Another request is already waiting and is read later.
            Ok(bytes) if !bytes.is_empty() => std::future::pending().await,
            _ => {}
        }
    }

    /// Writes a complete response.
    pub(super) async fn answer(
        &mut self,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
        chunked: bool,
    ) -> io::Result<ConnectionReuse> {
        let mut headers = headers.to_vec();
        if chunked {
            headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        } else if status != 204 {
            headers.push(("Content-Length".to_owned(), body.len().to_string()));
        }
        if self.head(status, &headers).await? == ConnectionReuse::Close {
            return Ok(ConnectionReuse::Close);
        }
        if self.response_faults.truncate {
            self.write_styled(&body[..body.len() / 2]).await?;
            return Ok(ConnectionReuse::Close);
        }
        if !chunked {
            self.write_styled(body).await?;
            return Ok(ConnectionReuse::KeepAlive);
        }
        for piece in body.chunks(1024) {
            self.chunk(piece).await?;
        }
        self.end_chunks().await?;
        Ok(ConnectionReuse::KeepAlive)
    }

    /// Writes a response head.
    pub(super) async fn head(&mut self, status: u16, headers: &[(String, String)]) -> io::Result<ConnectionReuse> {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers {
            let value = match &self.response_faults.content_type {
                Some(lie) if name.eq_ignore_ascii_case("content-type") => lie,
                _ => value,
            };
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        if self.response_faults.slow_head_ms > 0 {
            let slowly =
                WriteStyle { split: Some(1), pause_ms: self.response_faults.slow_head_ms, ..WriteStyle::default() };
            write_styled(&mut self.stream, head.as_bytes(), &slowly).await?;
        } else {
            self.write_styled(head.as_bytes()).await?;
        }
        if self.response_faults.reset_after_head {
            return Ok(self.reset());
        }
        Ok(ConnectionReuse::KeepAlive)
    }

    pub(super) async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend(bytes);
        chunk.extend(b"\r\n");
        self.write_styled(&chunk).await
    }

    /// Writes a chunk that is shorter than announced.
    pub(super) async fn half_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend(&bytes[..bytes.len() / 2]);
        self.write_styled(&chunk).await
    }

    pub(super) async fn end_chunks(&mut self) -> io::Result<()> {
        self.write_styled(b"0\r\n\r\n").await
    }

    /// Makes dropping the connection reset it.
    pub(super) fn reset(&self) -> ConnectionReuse {
        // If this fails, the client sees a closed connection instead.
        let _ = self.stream.get_ref().set_zero_linger();
        ConnectionReuse::Close
    }

    async fn write_styled(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_styled(&mut self.stream, bytes, &self.writing).await
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
