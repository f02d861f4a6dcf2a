//! A background gateway's Unix socket: JSON lines after a preamble, for the same user's clients.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::catalog::profile::Selector;
use crate::client::COMMANDS;
use crate::listener::accept::accept;
use crate::listener::connections::OpenConnection;
use crate::listener::line_io::{Line, LineReader};
use crate::listener::pipe::Pipe;
use crate::observe::RefusedRequest;
use crate::observe::event_text::event_text;
use crate::request::dispatch::PipeClient;
use crate::request::errors::ErrorReply;
use crate::request::reply::Reply;
use crate::shared::{GatewayShared, GatewayStatus};
use ropeway_bridge::registry::ServerStatus;
use ropeway_core::tool::{Alias, BoxFuture};
use ropeway_mcp::protocol::{ClientMessage, read_client_message};

/// The preamble's version.
const VERSION: u64 = 1;

/// Maximum preamble length.
const MAX_PREAMBLE: usize = 4 << 10;

/// Time within which a client has to send the preamble.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of a message's beginning that may name a private method.
const PRIVATE_HEAD: usize = 256;

/// A client's first line.
#[derive(Debug, Deserialize)]
struct Preamble {
    ropeway: u64,
    /// The only server that the client uses.
    #[serde(default)]
    server: Option<String>,
    /// The client only follows server events.
    #[serde(default)]
    events: bool,
}

/// The `ropeway/status` result.
#[derive(Serialize)]
struct SocketStatus {
    #[serde(flatten)]
    counts: GatewayStatus,
    servers: Vec<ServerStatus>,
    /// Servers whose tools are known. If one is down, it is being reconnected.
    listed: Vec<Alias>,
    /// Each failed server's last error. If its tools are not known and it is connecting, it is not for the first time.
    failures: Vec<(Alias, String)>,
}

/// Serves the same user's clients until the gateway stops.
///
/// The future is boxed, so that it is compiled here and not again in every crate that awaits it.
pub(crate) fn serve(shared: Arc<GatewayShared>, listener: UnixListener) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(accept_clients(shared, listener))
}

async fn accept_clients(shared: Arc<GatewayShared>, listener: UnixListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            (stream, permit) = accept(&listener, &shared.connections) => {
                let shared = Arc::clone(&shared);
                clients.spawn(async move {
                    tokio::select! {
                        () = serve_client(shared, stream, &permit.connection) => {}
                        () = permit.connection.evicted() => {}
                    }
                });
            }
            Some(ended) = clients.join_next(), if !clients.is_empty() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a connection ended with a panic");
                }
            }
            () = shared.draining.cancelled() => break,
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
    Ok(())
}

/// Serves one client. Until its preamble has arrived, its connection makes room for others.
async fn serve_client(shared: Arc<GatewayShared>, stream: UnixStream, connection: &OpenConnection) {
    let (input, mut output) = tokio::io::split(stream);
    let holdings = shared.auth.local().holdings();
    let mut reader = LineReader::new(input, MAX_PREAMBLE).with_budget(&shared.shares, holdings);
    let preamble = match tokio::time::timeout(PREAMBLE_TIMEOUT, read_preamble(&mut reader)).await {
        Ok(Some(Ok(preamble))) => preamble,
        Ok(Some(Err(error))) => return refuse(&mut output, &error).await,
        // The client has disconnected, or is too slow.
        Ok(None) | Err(_) => return,
    };
    if !shared.connections.admit(connection) {
        shared.observer.add_refused_request(RefusedRequest::new(shared.auth.local(), "connections"));
        let limit = shared.connections.max();
        let error = ErrorReply::overloaded(format!("too many connections (limit: {limit}); try again later"));
        return refuse(&mut output, &error).await;
    }
    connection.pin();
    if preamble.events {
        return send_events(&shared, reader, output).await;
    }
    let selector = preamble.server.map_or(Selector::All, Selector::Named);
    reader.set_limit(shared.settings().limits.message);
    let pipe = Pipe { client: Arc::new(PipeClient::new(Some(COMMANDS))), selector, shared: Arc::clone(&shared) };
    pipe.serve(reader, output, &|message| private_reply(&shared, message)).await;
}

/// Sends all servers' events as JSON lines, from now on, until the client disconnects or the gateway stops.
async fn send_events(
    shared: &GatewayShared,
    mut reader: LineReader<ReadHalf<UnixStream>>,
    mut output: WriteHalf<UnixStream>,
) {
    let mut events = shared.bridge.events();
    let send = async {
        // From now on, the client misses nothing.
        if output.write_all(b"{}\n").await.is_err() {
            return;
        }
        while let Some(event) = events.next().await {
            let line = event_text(&event) + "\n";
            if output.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = send => {}
        // The client sends nothing more: its input ends with it.
        _ = reader.next() => {}
        () = shared.draining.cancelled() => {}
    }
}

async fn read_preamble(reader: &mut LineReader<ReadHalf<UnixStream>>) -> Option<Result<Preamble, ErrorReply>> {
    let line = reader.next().await.ok()??;
    Some(preamble_of(&line))
}

/// Reads a preamble.
fn preamble_of(line: &Line) -> Result<Preamble, ErrorReply> {
    let text = match line {
        Line::Message(text) => text.as_ref(),
        Line::TooLong | Line::NoRoom(_) => b"",
    };
    let preamble: Preamble =
        serde_json::from_slice(text).map_err(|_| ErrorReply::invalid_request("the first line is not a preamble"))?;
    if preamble.ropeway != VERSION {
        let message = format!("version {} of the preamble is not supported (supported: {VERSION})", preamble.ropeway);
        return Err(ErrorReply::invalid_request(message));
    }
    Ok(preamble)
}

async fn refuse(output: &mut WriteHalf<UnixStream>, error: &ErrorReply) {
    let mut line = Reply::error(None, error).into_bytes().to_vec();
    line.push(b'\n');
    let _ = tokio::time::timeout(PREAMBLE_TIMEOUT, output.write_all(&line)).await;
}

/// Answers `ropeway/status`, `ropeway/health`, `ropeway/stats` and `ropeway/stop`, which only the same user's commands can send.
fn private_reply(shared: &GatewayShared, message: &[u8]) -> Option<Reply> {
    let head = &message[..message.len().min(PRIVATE_HEAD)];
    memchr::memmem::find(head, b"\"ropeway/")?;
    let Ok(ClientMessage::Request { id, method, .. }) = read_client_message(message) else { return None };
    let result = match &*method {
        "ropeway/status" => {
            let (servers, listed) = (shared.bridge.statuses(), shared.bridge.listed_servers());
            let failures = shared.bridge.last_failures();
            let status = SocketStatus { counts: shared.status(), servers, listed, failures };
            serde_json::to_vec(&status).ok()?
        }
        // `null` while the servers are being asked.
        "ropeway/health" => serde_json::to_vec(&shared.health.recent(&shared.bridge).as_deref()).ok()?,
        "ropeway/stats" => serde_json::to_vec(&shared.stats()).ok()?,
        "ropeway/stop" => {
            shared.stop_requested.cancel();
            b"{}".to_vec()
        }
        _ => return None,
    };
    Some(Reply::result(id, result.into()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn selected(line: &str) -> Result<Option<String>, String> {
        let line = Line::Message(Bytes::copy_from_slice(line.as_bytes()));
        preamble_of(&line).map(|preamble| preamble.server).map_err(|error| error.message)
    }

    #[test]
    fn a_preamble_selects_one_server_or_all() {
        assert_eq!(selected(r#"{"ropeway":1,"server":"git"}"#), Ok(Some("git".to_owned())));
        assert_eq!(selected(r#"{"ropeway":1,"server":null}"#), Ok(None));
        assert_eq!(selected(r#"{"ropeway":1,"later":true}"#), Ok(None));
    }

    #[test]
    fn another_preamble_is_refused() {
        assert!(selected(r#"{"ropeway":2}"#).unwrap_err().contains("version 2"));
        assert!(selected(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).is_err());
        assert!(selected("GET / HTTP/1.1").is_err());
        assert!(preamble_of(&Line::TooLong).is_err());
    }
}
