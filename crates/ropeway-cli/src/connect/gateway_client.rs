//! Requests to a gateway in the background: its status, and its end.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Maximum response size in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Why a gateway did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayProblem {
    /// No process listens on the socket.
    NotRunning,
    /// The process does not respond in time, or not as expected.
    NoResponse,
}

/// Requests status from the gateway behind a socket.
pub(crate) async fn status(socket: &Path, timeout: Duration) -> Result<Value, GatewayProblem> {
    request(socket, "ropeway/status", timeout).await
}

/// Requests the latest server health from the gateway behind a socket. Returns `null` while the gateway asks them.
pub(crate) async fn health(socket: &Path, timeout: Duration) -> Result<Value, GatewayProblem> {
    request(socket, "ropeway/health", timeout).await
}

/// Requests statistics from the gateway behind a socket.
pub(crate) async fn stats(socket: &Path, timeout: Duration) -> Result<Value, GatewayProblem> {
    request(socket, "ropeway/stats", timeout).await
}

/// Asks the gateway behind a socket to stop.
pub(crate) async fn stop(socket: &Path, timeout: Duration) -> Result<(), GatewayProblem> {
    request(socket, "ropeway/stop", timeout).await.map(drop)
}

async fn request(socket: &Path, method: &str, timeout: Duration) -> Result<Value, GatewayProblem> {
    let response = tokio::time::timeout(timeout, exchange(socket, method)).await;
    match response {
        Ok(Ok(Some(result))) => Ok(result),
        Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Err(GatewayProblem::NotRunning)
        }
        _ => Err(GatewayProblem::NoResponse),
    }
}

/// Sends one request and returns its result, if the response has one.
async fn exchange(socket: &Path, method: &str) -> io::Result<Option<Value>> {
    let stream = UnixStream::connect(socket).await?;
    let (input, mut output) = stream.into_split();
    let preamble = json!({"ropeway": 1, "server": null});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method});
    output.write_all(format!("{preamble}\n{request}\n").as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(input).take(MAX_BYTES).read_line(&mut line).await?;
    let mut response: Value = serde_json::from_str(&line)?;
    Ok(response.get_mut("result").map(Value::take))
}
