//! Connects to a running gateway over its Unix socket.

use std::io;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use ropeway_config::SocketServer;

/// The preamble's version.
const VERSION: u32 = 1;

/// Connects to the socket and sends the preamble: one line that selects a server. JSON lines follow in both directions.
pub(crate) async fn connect(server: &SocketServer) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(&server.path).await?;
    let preamble = format!("{}\n", json!({"ropeway": VERSION, "server": server.server}));
    stream.write_all(preamble.as_bytes()).await?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_gets_a_preamble_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gateway.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        for (server, expected) in [
            (SocketServer::new(&path), r#"{"ropeway":1,"server":null}"#),
            (SocketServer::new(&path).with_server("web"), r#"{"ropeway":1,"server":"web"}"#),
        ] {
            let (opened, accepted) = tokio::join!(connect(&server), listener.accept());
            let _stream = opened.expect("a stream");
            let line = BufReader::new(accepted.expect("a client").0).lines().next_line().await.expect("a line");
            assert_eq!(line.as_deref(), Some(expected));
        }
        let missing = connect(&SocketServer::new(folder.path().join("missing"))).await;
        assert_eq!(missing.expect_err("no socket").kind(), io::ErrorKind::NotFound);
    }
}
