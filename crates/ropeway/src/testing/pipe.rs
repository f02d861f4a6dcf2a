//! The scripted server on a pipe: one JSON message per line.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::script::WriteStyle;
use super::scripted::ScriptedServer;
use super::session::{Deed, Session};
use super::stage::Stage;

const PIPE_BYTES: usize = 64 << 10;
const GATHER: Duration = Duration::from_millis(20);

/// How a conversation on a pipe came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed its side.
    Closed,
    /// The script says that the server ends.
    Exit(i32),
}

/// What only the owner of the process can do.
pub(super) struct Owner {
    pub(super) close_output: fn(),
    pub(super) stderr: fn(usize),
    pub(super) stderr_line: fn(&str),
}

/// Starts the server on one end of a pipe and gives the other.
pub(super) fn open(scripted: &ScriptedServer) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(ours);
    let owner = Owner { close_output: || {}, stderr: |_| {}, stderr_line: |_| {} };
    tokio::spawn(serve(scripted.clone(), read, write, owner));
    theirs
}

/// Speaks with one client until either side ends it.
pub(super) async fn serve(
    scripted: ScriptedServer,
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    owner: Owner,
) -> End {
    scripted.connect();
    let mut mailbox = scripted.mailbox();
    let (out, deeds) = mpsc::unbounded_channel();
    let stage = Stage::new(Session::new(scripted.clone()), move |deed| {
        // On a pipe a request has no stream of its own that could end.
        if !matches!(deed, Deed::Done { .. }) {
            // Nobody takes deeds any more once the server has ended.
            let _ = out.send(deed);
        }
    });
    stage.open();
    let mut reader = BufReader::new(read);
    let mut line = Vec::new();
    let writing = write_all(scripted.clone(), deeds, write, owner);
    tokio::pin!(writing);
    let end = loop {
        tokio::select! {
            end = &mut writing => break end,
            Some(prod) = mailbox.recv() => stage.prod(prod),
            // A half-read line stays in `line`, so nothing is lost when another branch is taken.
            read = reader.read_until(b'\n', &mut line) => {
                if !matches!(read, Ok(count) if count > 0) {
                    break End::Closed;
                }
                hear(&scripted, &stage, &line);
                line.clear();
            }
        }
    };
    stage.end();
    end
}

fn hear(scripted: &ScriptedServer, stage: &std::sync::Arc<Stage>, line: &[u8]) {
    if line.trim_ascii().is_empty() {
        return;
    }
    let message: Value = serde_json::from_slice(line).unwrap_or_else(|_| {
        // What is no JSON is kept as text, so that a test sees it.
        Value::String(String::from_utf8_lossy(line).into_owned())
    });
    // A test that waits for the message may change the faults as soon as it is recorded.
    let faults = scripted.faults_of(&message);
    scripted.record(&message);
    stage.hear(message, faults);
}

/// Writes what is to be said; comes to an end when the server does.
async fn write_all(
    scripted: ScriptedServer,
    mut deeds: mpsc::UnboundedReceiver<Deed>,
    write: impl AsyncWrite + Unpin,
    owner: Owner,
) -> End {
    let mut write = Some(write);
    loop {
        let Some(mut deed) = deeds.recv().await else {
            return std::future::pending().await;
        };
        let writing = scripted.script().writing;
        let mut bytes = Vec::new();
        let mut gathered = 0;
        let after = loop {
            if let Some(deed) = line(deed, &writing, &mut bytes) {
                break Some(deed);
            }
            gathered += 1;
            if gathered >= writing.merge.unwrap_or(1) {
                break None;
            }
            match tokio::time::timeout(GATHER, deeds.recv()).await {
                Ok(Some(next)) => deed = next,
                _ => break None,
            }
        };
        if let Some(write) = &mut write {
            // A client that has gone away is noticed by the reader.
            let _ = put(write, &bytes, &writing).await;
        }
        match after {
            Some(Deed::Exit(code)) => return End::Exit(code),
            Some(Deed::CloseOutput) => {
                if let Some(mut write) = write.take() {
                    let _ = write.shutdown().await;
                }
                (owner.close_output)();
            }
            Some(Deed::Stderr { bytes }) => (owner.stderr)(bytes),
            Some(Deed::StderrLine(line)) => (owner.stderr_line)(&line),
            _ => {}
        }
    }
}

/// Adds what a deed writes; a deed that is more than writing comes back.
fn line(deed: Deed, writing: &WriteStyle, bytes: &mut Vec<u8>) -> Option<Deed> {
    match deed {
        Deed::Say { text, .. } => {
            if writing.bom {
                bytes.extend("\u{feff}".as_bytes());
            }
            bytes.extend(text.as_bytes());
            bytes.extend(if writing.crlf { "\r\n".as_bytes() } else { "\n".as_bytes() });
            None
        }
        Deed::Raw { bytes: raw, .. } => {
            bytes.extend(raw);
            None
        }
        deed => Some(deed),
    }
}

/// Writes bytes in the way that the script says.
pub(super) async fn put(
    write: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    writing: &WriteStyle,
) -> std::io::Result<()> {
    let Some(size) = writing.split else {
        write.write_all(bytes).await?;
        return write.flush().await;
    };
    for piece in bytes.chunks(size.max(1)) {
        write.write_all(piece).await?;
        write.flush().await?;
        if writing.pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(writing.pause_ms)).await;
        }
    }
    Ok(())
}
