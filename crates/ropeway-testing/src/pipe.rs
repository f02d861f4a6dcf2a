//! The scripted server on a pipe, with one JSON message per line.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::action::Action;
use super::driver::Driver;
use super::script::WriteStyle;
use super::scripted::ScriptedServer;
use super::session::ScriptedSession;
use ropeway_config::Transport;

const PIPE_BYTES: usize = 64 << 10;
const MERGE_WINDOW: Duration = Duration::from_millis(20);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeEnd {
    /// The client closed its side.
    Closed,
    /// The script ends the server.
    Exit(i32),
}

/// Operations on the process that the pipe belongs to.
pub(super) struct ProcessHooks {
    pub(super) close_output: fn(),
    pub(super) stderr: fn(usize),
    pub(super) stderr_line: fn(&str),
}

impl ScriptedServer {
    /// Returns a connector to the server in this process; every `open` is a new connection.
    pub fn in_process(&self) -> Transport {
        let scripted = self.clone();
        Transport::in_process(move || open(&scripted))
    }
}

/// Starts the server on one end of a pipe and returns the other.
fn open(scripted: &ScriptedServer) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(ours);
    let hooks = ProcessHooks { close_output: || {}, stderr: |_| {}, stderr_line: |_| {} };
    tokio::spawn(serve(scripted.clone(), read, write, hooks));
    theirs
}

/// Serves one client until either side ends the connection.
pub(super) async fn serve(
    scripted: ScriptedServer,
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    hooks: ProcessHooks,
) -> PipeEnd {
    scripted.connect();
    let mut commands = scripted.commands();
    let (out, actions) = mpsc::unbounded_channel();
    let driver = Driver::new(ScriptedSession::new(scripted.clone()), move |action| {
        // On a pipe, requests have no separate stream to end.
        if !matches!(action, Action::Done { .. }) {
            // The receiver is dropped once the server has ended.
            let _ = out.send(action);
        }
    });
    driver.open();
    let mut reader = BufReader::new(read);
    let mut line = Vec::new();
    let writing = write_all(scripted.clone(), actions, write, hooks);
    tokio::pin!(writing);
    let end = loop {
        tokio::select! {
            end = &mut writing => break end,
            Some(command) = commands.recv() => driver.command(command),
            // A partial line stays in `line`, so nothing is lost when another branch completes first.
            read = reader.read_until(b'\n', &mut line) => {
                if !matches!(read, Ok(count) if count > 0) {
                    break PipeEnd::Closed;
                }
                receive(&scripted, &driver, &line);
                line.clear();
            }
        }
    };
    driver.end();
    end
}

fn receive(scripted: &ScriptedServer, driver: &std::sync::Arc<Driver>, line: &[u8]) {
    if line.trim_ascii().is_empty() {
        return;
    }
    let message: Value = serde_json::from_slice(line).unwrap_or_else(|_| {
        // Invalid JSON is recorded as text for the test to see.
        Value::String(String::from_utf8_lossy(line).into_owned())
    });
    // Reads the faults first: a test that waits for the message may change them as soon as it is recorded.
    let faults = scripted.faults_of(&message);
    scripted.record(&message);
    driver.receive(message, faults);
}

/// Writes all output until the server ends.
async fn write_all(
    scripted: ScriptedServer,
    mut actions: mpsc::UnboundedReceiver<Action>,
    write: impl AsyncWrite + Unpin,
    hooks: ProcessHooks,
) -> PipeEnd {
    let mut write = Some(write);
    loop {
        let Some(mut action) = actions.recv().await else {
            return std::future::pending().await;
        };
        let writing = scripted.script().writing;
        let mut bytes = Vec::new();
        let mut gathered = 0;
        let after = loop {
            if let Some(action) = append_output(action, &writing, &mut bytes) {
                break Some(action);
            }
            gathered += 1;
            if gathered >= writing.merge.unwrap_or(1) {
                break None;
            }
            match tokio::time::timeout(MERGE_WINDOW, actions.recv()).await {
                Ok(Some(next)) => action = next,
                _ => break None,
            }
        };
        if let Some(write) = &mut write {
            // The reader notices a client that disconnected.
            let _ = write_styled(write, &bytes, &writing).await;
        }
        match after {
            Some(Action::Exit(code)) => return PipeEnd::Exit(code),
            Some(Action::CloseOutput) => {
                if let Some(mut write) = write.take() {
                    let _ = write.shutdown().await;
                }
                (hooks.close_output)();
            }
            Some(Action::Stderr { bytes }) => (hooks.stderr)(bytes),
            Some(Action::StderrLine(line)) => (hooks.stderr_line)(&line),
            _ => {}
        }
    }
}

/// Appends an action's output. Returns actions that do more than write.
fn append_output(action: Action, writing: &WriteStyle, bytes: &mut Vec<u8>) -> Option<Action> {
    match action {
        Action::Send { text, .. } => {
            if writing.bom {
                bytes.extend("\u{feff}".as_bytes());
            }
            bytes.extend(text.as_bytes());
            bytes.extend(if writing.crlf { "\r\n".as_bytes() } else { "\n".as_bytes() });
            None
        }
        Action::Raw { bytes: raw, .. } => {
            bytes.extend(raw);
            None
        }
        action => Some(action),
    }
}

/// Writes bytes in the script's style.
pub(super) async fn write_styled(
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
