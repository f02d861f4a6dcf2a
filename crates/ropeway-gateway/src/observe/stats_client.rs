//! Fetches a gateway's counts and follows its events over HTTP, for `ropeway top` and `ropeway events`.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use crate::observe::GatewayStats;
use ropeway_core::secret::Secret;
use ropeway_web::client;

/// Maximum bytes per response.
const MAX_BYTES: usize = 16 << 20;

/// Why a gateway's counts or events could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    /// The text is not a gateway URL.
    #[error("not an http:// or https:// URL")]
    InvalidUrl,
    /// The gateway is not reachable.
    #[error("the gateway is not reachable")]
    Unreachable(
        /// The HTTP client's error.
        #[source]
        Box<dyn std::error::Error + Send + Sync>,
    ),
    /// The gateway requires a key.
    #[error("the gateway requires a key")]
    NeedsKey,
    /// The gateway does not accept the key.
    #[error("the gateway rejects the key")]
    RejectedKey,
    /// The key does not belong to an operator.
    #[error("the key is not that of an operator")]
    NotOperator,
    /// The server behind the URL is not a gateway.
    #[error("the server behind the URL is not a ropeway gateway ({0})")]
    NotGateway(String),
}

/// Fetches a gateway's counts. `url` is any of its URLs, such as its MCP endpoint.
///
/// # Errors
///
/// Fails if the gateway is not reachable within `timeout`, or does not answer with counts.
pub async fn fetch_stats(url: &str, key: Option<&Secret>, timeout: Duration) -> Result<GatewayStats, StatsError> {
    let mut response = request(url, "/api/stats", key, |client| client.timeout(timeout)).await?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_BYTES {
            return Err(StatsError::NotGateway("the response is too large".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|_| StatsError::NotGateway("unexpected response format".to_owned()))
}

fn unreachable(error: reqwest::Error) -> StatsError {
    StatsError::Unreachable(Box::new(error.without_url()))
}

/// Requests a path from a gateway.
async fn request(
    url: &str,
    path: &str,
    key: Option<&Secret>,
    limit: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Response, StatsError> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url = url.ok_or(StatsError::InvalidUrl)?;
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    let client = limit(client(&url)).build().map_err(unreachable)?;
    let mut request = client.get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key.expose());
    }
    let response = request.send().await.map_err(unreachable)?;
    match response.status().as_u16() {
        200 => Ok(response),
        401 if key.is_some() => Err(StatsError::RejectedKey),
        401 => Err(StatsError::NeedsKey),
        403 if key.is_some() => Err(StatsError::NotOperator),
        403 => Err(StatsError::NeedsKey),
        status => Err(StatsError::NotGateway(format!("HTTP status {status}"))),
    }
}

/// Follows the events from a gateway's servers over HTTP, for `ropeway events`. `url` is any of its URLs.
///
/// # Errors
///
/// Fails if the gateway is not reachable within `timeout`, or does not answer with events.
pub async fn follow_events(url: &str, key: Option<&Secret>, timeout: Duration) -> Result<GatewayEvents, StatsError> {
    let request = request(url, "/api/events", key, |client| client.connect_timeout(timeout));
    let response = match tokio::time::timeout(timeout, request).await {
        Ok(response) => response?,
        Err(late) => return Err(StatsError::Unreachable(Box::new(late))),
    };
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(StatsError::NotGateway("unexpected response format".to_owned()));
    }
    Ok(GatewayEvents { response, unread: UnreadLines::default() })
}

/// The events from a gateway's servers, as JSON objects.
#[derive(Debug)]
pub struct GatewayEvents {
    response: reqwest::Response,
    unread: UnreadLines,
}

impl GatewayEvents {
    /// Waits for the next event. Returns `None` when the gateway ends the stream.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost.
    pub async fn next(&mut self) -> Result<Option<Value>, StatsError> {
        loop {
            while let Some(line) = self.unread.next_line() {
                // Each event is one line: JSON has no line breaks.
                if let Some(event) = line.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice(data).ok()) {
                    return Ok(Some(event));
                }
            }
            if self.unread.rest() > MAX_BYTES {
                return Err(StatsError::NotGateway("an event is too large".to_owned()));
            }
            match self.response.chunk().await.map_err(unreachable)? {
                Some(chunk) => self.unread.push(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Received bytes, as lines. Each byte is searched once, and moved at most once.
#[derive(Debug, Default)]
struct UnreadLines {
    bytes: Vec<u8>,
    /// Length of the lines that were returned.
    returned: usize,
    /// Length of the part without further line ends.
    searched: usize,
}

impl UnreadLines {
    /// Adds bytes. All earlier lines must have been returned.
    fn push(&mut self, chunk: &[u8]) {
        self.bytes.drain(..self.returned);
        self.searched -= self.returned;
        self.returned = 0;
        self.bytes.extend_from_slice(chunk);
    }

    /// Returns the next whole line, without its end.
    fn next_line(&mut self) -> Option<&[u8]> {
        let Some(length) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let (start, end) = (self.returned, self.searched + length);
        self.returned = end + 1;
        self.searched = self.returned;
        Some(&self.bytes[start..end])
    }

    /// Returns the incomplete line's length.
    fn rest(&self) -> usize {
        self.bytes.len() - self.returned
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Returns the lines that are whole after each piece.
    fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, usize) {
        let mut unread = UnreadLines::default();
        let mut lines = Vec::new();
        for piece in pieces {
            unread.push(piece);
            while let Some(line) = unread.next_line() {
                lines.push(line.to_vec());
            }
        }
        (lines, unread.rest())
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let stream: &[u8] = b"data: 1\n\n: comment\ndata: 22\nrest";
        let expected: Vec<Vec<u8>> =
            ["data: 1", "", ": comment", "data: 22"].map(|line| line.as_bytes().to_vec()).into();
        for length in 1..=stream.len() {
            let pieces: Vec<&[u8]> = stream.chunks(length).collect();
            assert_eq!(lines(&pieces), (expected.clone(), 4), "pieces of {length} bytes");
        }
    }

    #[test]
    fn many_lines_in_one_piece_and_many_pieces_of_one_line_take_linear_time() {
        let began = Instant::now();
        let many = b"data: 1\n".repeat(400_000);
        assert_eq!(lines(&[&many]).0.len(), 400_000);
        let long = b"x".repeat(4 << 20);
        let pieces: Vec<&[u8]> = long.chunks(8).collect();
        assert_eq!(lines(&pieces), (Vec::new(), 4 << 20));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
