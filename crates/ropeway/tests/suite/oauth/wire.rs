//! HTTP/1.1 for scripted servers: one request per connection.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request that a scripted server received.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    /// Names are in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) async fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut data = Vec::new();
        let head_end = loop {
            if let Some(end) = data.windows(4).position(|end| end == b"\r\n\r\n") {
                break end;
            }
            if stream.read_buf(&mut data).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&data[..head_end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers: HashMap<String, String> = lines.filter_map(header).collect();
        let length: usize = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = data.split_off(head_end + 4);
        while body.len() < length {
            if stream.read_buf(&mut body).await.ok()? == 0 {
                return None;
            }
        }
        let url = Url::parse(&format!("http://server{target}")).ok()?;
        Some(Self {
            method,
            path: url.path().to_owned(),
            query: url.query_pairs().into_owned().collect(),
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    /// Returns the body as a form.
    pub(crate) fn form(&self) -> HashMap<String, String> {
        let url = Url::parse(&format!("form:?{}", self.body)).expect("a form");
        url.query_pairs().into_owned().collect()
    }

    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// What a scripted server answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// The response never comes.
    Silent,
    /// The response is several MiB long.
    Huge,
    /// The connection is closed.
    Close,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", &body.to_string())
    }

    pub(crate) fn html(status: u16) -> Self {
        Self::text(status, "text/html", "<!DOCTYPE html><html><body><h1>Please log in</h1></body></html>")
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::text(302, "text/plain", "").with("location", to)
    }

    pub(crate) fn text(status: u16, kind: &str, body: &str) -> Self {
        Self::Response { status, headers: vec![("content-type".to_owned(), kind.to_owned())], body: body.to_owned() }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if let Self::Response { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) async fn write(self, mut stream: TcpStream) {
        let (status, headers, body) = match self {
            Self::Response { status, headers, body } => (status, headers, body),
            Self::Huge => (200, Vec::new(), format!("{{\"a\": \"{}\"}}", "x".repeat(4 << 20))),
            Self::Close => return,
            Self::Silent => {
                tokio::time::sleep(Duration::from_secs(600)).await;
                return;
            }
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// Opens a URL like a browser does, and returns where it is redirected to.
pub(crate) async fn browse(url: &str) -> String {
    let url = Url::parse(url).expect("a URL");
    let address = url.socket_addrs(|| None).expect("an address")[0];
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let target = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let request = format!("GET {target} HTTP/1.1\r\nhost: browser\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    let location = response.lines().find_map(|line| line.strip_prefix("location: "));
    location.unwrap_or_else(|| panic!("no redirect: {response}")).to_owned()
}
