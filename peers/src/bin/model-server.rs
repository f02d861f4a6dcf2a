//! The benchmark's scripted model: Chat Completions over HTTP on 127.0.0.1. Prints its port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use ropeway_peers::script::{Answer, answer};

fn main() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        // One thread per connection, so that connections do not wait for each other.
        std::thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

/// Answers requests until the connection ends.
fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection { bytes: vec![0; 256 << 10], filled: 0 };
    let mut out = Vec::with_capacity(16 << 10);
    while let Some(request) = connection.request(&mut stream)? {
        out.clear();
        match request.target.ends_with("/chat/completions").then(|| answer(request.body)) {
            Some(Ok(Answer::Events(events))) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
                write!(out, "{head}{:x}\r\n{events}\r\n0\r\n\r\n", events.len())?;
            }
            Some(Ok(Answer::Json(json))) => whole(&mut out, "200 OK", &json)?,
            Some(Err(error)) => whole(&mut out, "400 Bad Request", &complaint(&format!("{error:#}")))?,
            None => whole(&mut out, "404 Not Found", &complaint("there is nothing here"))?,
        }
        let size = request.size;
        stream.write_all(&out)?;
        connection.take(size);
    }
    Ok(())
}

fn whole(out: &mut Vec<u8>, status: &str, json: &str) -> Result<()> {
    let size = json.len();
    write!(out, "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n{json}")?;
    Ok(())
}

fn complaint(message: &str) -> String {
    serde_json::json!({"error": {"message": message}}).to_string()
}

/// A connection's received bytes.
struct Connection {
    bytes: Vec<u8>,
    filled: usize,
}

struct Request<'a> {
    target: &'a str,
    body: &'a [u8],
    /// Request length, including the head.
    size: usize,
}

impl Connection {
    /// Returns the next request; `None` if the client closed the connection.
    fn request(&mut self, stream: &mut impl Read) -> Result<Option<Request<'_>>> {
        let head = loop {
            if let Some(end) = memmem::find(&self.bytes[..self.filled], b"\r\n\r\n") {
                break end;
            }
            if !self.more(stream)? {
                return Ok(None);
            }
        };
        let text = std::str::from_utf8(&self.bytes[..head])?;
        let lengths = text.lines().filter_map(|line| line.split_once(':'));
        let length =
            lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value).next();
        let length: usize = length.map_or(Ok(0), |length| length.trim().parse())?;
        let size = head + 4 + length;
        while self.filled < size {
            if !self.more(stream)? {
                bail!("the connection was closed during a request");
            }
        }
        let line = std::str::from_utf8(&self.bytes[..head])?;
        let target = line.split(' ').nth(1).context("the request has no target")?;
        Ok(Some(Request { target, body: &self.bytes[head + 4..size], size }))
    }

    fn more(&mut self, stream: &mut impl Read) -> Result<bool> {
        if self.filled == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        let read = stream.read(&mut self.bytes[self.filled..])?;
        self.filled += read;
        Ok(read > 0)
    }

    /// Removes an answered request from the buffer.
    fn take(&mut self, size: usize) {
        self.bytes.copy_within(size..self.filled, 0);
        self.filled -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_on_one_connection_are_separated() {
        let sent = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-LENGTH: 3\r\n\r\nabcGET /x HTTP/1.1\r\n\r\n";
        let mut connection = Connection { bytes: vec![0; 4], filled: 0 };
        let mut stream = sent.as_slice();
        let mut seen = Vec::new();
        while let Some(request) = connection.request(&mut stream).expect("a request") {
            seen.push((request.target.to_owned(), request.body.to_vec()));
            let size = request.size;
            connection.take(size);
        }
        assert_eq!(seen, [("/v1/chat/completions".to_owned(), b"abc".to_vec()), ("/x".to_owned(), Vec::new())]);
    }

    #[test]
    fn an_incomplete_request_is_an_error() {
        let mut stream = b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc".as_slice();
        assert!(Connection { bytes: vec![0; 4], filled: 0 }.request(&mut stream).is_err());
    }
}
