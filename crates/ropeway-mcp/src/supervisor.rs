//! A connection's background task: connects, reconnects, refreshes the tool list and closes the link.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::connection::Connection;
use super::error::ConnectErrorKind;
use super::handshake;
use super::request::Request;
use super::session::Session;
use super::state::ConnectionState;
use super::subscriber;
use super::tools;
use crate::protocol::Era;
use ropeway_core::error_chain::chain;
use ropeway_core::sync::OnDrop;
use ropeway_core::tool::CallContext;

/// A session that lasted this long resets the retry delay.
const STABLE_SESSION: Duration = Duration::from_secs(10);

/// Maximum consecutive expired sessions that are renewed without a delay.
const MAX_EXPIRED_SESSIONS: u32 = 3;

/// Delay between a tool list change and the refresh, and its maximum while changes keep coming. Callers that list the tools
/// get the current list at any time.
const REFRESH_DELAY: Duration = Duration::from_millis(50);
const MAX_REFRESH_DELAY: Duration = Duration::from_secs(30);

/// Maximum failures that count while a call waits for the server, to limit the retry delay.
const MAX_FAILURES_WHEN_WANTED: u32 = 3;

/// A command from the handle to its supervisor. Dropping the sender closes the connection.
#[derive(Debug)]
pub(crate) enum SupervisorCommand {
    /// Connect again without waiting for the retry delay.
    Retry,
    /// End the session, or the attempt to connect, and connect again.
    Restart,
}

/// How a session or an attempt to connect ends.
enum SessionEnd {
    Lost(Arc<ConnectErrorKind>),
    Restart,
    Close,
}

/// Starts the supervisor. Not `async`, so that its task is compiled here and not again in every crate that connects.
pub(crate) fn spawn(
    connection: Arc<Connection>,
    commands: mpsc::UnboundedReceiver<SupervisorCommand>,
) -> JoinHandle<()> {
    tokio::spawn(run(connection, commands))
}

/// Runs until the handle drops the command channel.
///
/// The handle owns the task together with its command sender. Closing the handle drops the sender and waits for the task.
/// Dropping the last handle only drops the sender: the task closes the session in the background and ends.
///
/// Only this task sets a session; a call may discard one that it found lost. It also makes all state changes but the
/// handle's first `Connecting`. Each round enters `Connecting`, then `Ready` while the session lasts, then `Down` or
/// `NeedsAuth` until the next attempt. A restart skips the wait, and so do the first few sessions that expire in a row.
/// Tool refreshes, subscriptions and the log level run in the same task as long as the session, and are dropped with it.
/// The task holds no lock across an `.await`. A guard enters `Closed` however it ends: by command, by panic or with the
/// runtime.
async fn run(connection: Arc<Connection>, mut commands: mpsc::UnboundedReceiver<SupervisorCommand>) {
    // Also after a panic.
    let _close = OnDrop(|| {
        connection.set_session(None);
        connection.host.abort_requests();
        connection.enter(ConnectionState::Closed);
    });
    let mut failures = 0;
    let mut short_sessions = 0;
    loop {
        connection.enter(ConnectionState::Connecting { failures });
        let connecting = handshake::connect(&connection.config, &connection.host, connection.era());
        let outcome = tokio::select! {
            outcome = connecting => outcome,
            end = wait_for_end(&mut commands) => match end {
                SessionEnd::Close => break,
                SessionEnd::Restart | SessionEnd::Lost(_) => continue,
            },
        };
        // After a failure, the remembered era may be the reason.
        connection.remember_era(outcome.next_era);
        let (cause, failures_in_row) = match outcome.session {
            Ok(session) => {
                let connected_at = Instant::now();
                if let Some(auth) = connection.host.authorizer() {
                    // A later attempt in the background must not prompt the user.
                    auth.take_offer();
                }
                let session = Arc::new(session);
                failures = 0;
                // Checked before a caller can fetch the new session's tools, which need no refresh.
                let has_old_tools = connection.tools().is_some();
                connection.set_session(Some(session.clone()));
                connection.enter(ConnectionState::Ready { server: session.info.clone() });
                let end = tokio::select! {
                    cause = session.link.disconnected() => SessionEnd::Lost(cause),
                    end = wait_for_end(&mut commands) => end,
                    () = maintain_session(&connection, &session, has_old_tools) => SessionEnd::Close,
                };
                connection.set_session(None);
                connection.host.abort_requests();
                let cause = match end {
                    SessionEnd::Lost(cause) => cause,
                    SessionEnd::Restart => {
                        // Calls that start now wait for the next session.
                        connection.state.send_replace(ConnectionState::Connecting { failures });
                        session.link.close_for_restart(connection.config.timeouts.close).await;
                        short_sessions = 0;
                        continue;
                    }
                    SessionEnd::Close => {
                        session.link.close(connection.config.timeouts.close).await;
                        break;
                    }
                };
                // A server that disconnects as soon as it is ready must not be restarted in a busy loop.
                let before = if connected_at.elapsed() >= STABLE_SESSION { 0 } else { short_sessions };
                short_sessions = before + 1;
                // An expired session only needs a new handshake, unless every session expires.
                if matches!(*cause, ConnectErrorKind::SessionExpired) && before < MAX_EXPIRED_SESSIONS {
                    continue;
                }
                (cause, before)
            }
            Err(cause) => {
                failures += 1;
                (cause, failures.max(short_sessions))
            }
        };
        if !wait_for_retry(&connection, &mut commands, cause, failures_in_row).await {
            break;
        }
    }
}

/// Waits for the next attempt. Returns `false` if the handle was dropped.
async fn wait_for_retry(
    connection: &Connection,
    commands: &mut mpsc::UnboundedReceiver<SupervisorCommand>,
    cause: Arc<ConnectErrorKind>,
    failures: u32,
) -> bool {
    let is_refused = match &*cause {
        ConnectErrorKind::NeedsAuth { challenge } => {
            connection.enter(ConnectionState::NeedsAuth { challenge: challenge.clone() });
            true
        }
        // Another attempt without a caller would fail in the same way.
        ConnectErrorKind::Auth(error) if !error.is_transient() => {
            connection.enter(ConnectionState::Down { cause: cause.clone(), retry_at: None });
            true
        }
        _ => false,
    };
    if is_refused {
        return tokio::select! {
            command = commands.recv() => command.is_some(),
            () = connection.auth_retry.notified() => true,
            () = signed_in_elsewhere(connection) => true,
        };
    }
    if !connection.config.reconnect.enabled {
        connection.enter(ConnectionState::Down { cause, retry_at: None });
        return commands.recv().await.is_some();
    }
    let delay = connection.retry_delay(failures);
    connection.enter(ConnectionState::Down { cause, retry_at: Some(std::time::Instant::now() + delay) });
    let min_delay = connection.retry_delay(failures.min(MAX_FAILURES_WHEN_WANTED));
    let wanted = async {
        connection.wanted.notified().await;
        tokio::time::sleep(min_delay).await;
    };
    tokio::select! {
        () = tokio::time::sleep(delay) => true,
        () = wanted => true,
        command = commands.recv() => command.is_some(),
    }
}

/// Waits until another process stores tokens for the server, such as `ropeway login`.
async fn signed_in_elsewhere(connection: &Connection) {
    match connection.host.authorizer() {
        Some(auth) => auth.signed_in_elsewhere().await,
        None => std::future::pending().await,
    }
}

/// Waits until the handle is dropped, or restarts the server.
async fn wait_for_end(commands: &mut mpsc::UnboundedReceiver<SupervisorCommand>) -> SessionEnd {
    loop {
        match commands.recv().await {
            Some(SupervisorCommand::Retry) => {}
            Some(SupervisorCommand::Restart) => return SessionEnd::Restart,
            None => return SessionEnd::Close,
        }
    }
}

/// Keeps the tool list fresh, and the subscriptions and the log level set. Never returns.
async fn maintain_session(connection: &Arc<Connection>, session: &Arc<Session>, has_old_tools: bool) {
    tokio::join!(
        refresh_tools_on_change(connection, has_old_tools),
        subscriber::maintain_subscriptions(connection, session),
        maintain_log_level(connection, session)
    );
    std::future::pending().await
}

/// Refreshes the tool list whenever it has changed.
async fn refresh_tools_on_change(connection: &Arc<Connection>, has_old_tools: bool) {
    if has_old_tools {
        // The server may have been replaced.
        refresh(connection).await;
    }
    let mut backoff = Backoff::new(REFRESH_DELAY, MAX_REFRESH_DELAY);
    loop {
        connection.host.tools_stale.notified().await;
        tokio::time::sleep(backoff.next_wait()).await;
        match connection.tools() {
            // A caller may have refreshed it already.
            Some(list) if list.is_fresh(connection.host.tools_changed()) => {}
            Some(_) => refresh(connection).await,
            None => connection.emit_tools_changed(),
        }
    }
}

async fn refresh(connection: &Arc<Connection>) {
    if let Err(error) = tools::fetch(connection, &CallContext::default().in_background()).await {
        connection.host.warn(&format!("could not refresh the tool list: {}", chain(&error)));
    }
}

/// Sets a legacy server's log level, whenever it changes.
///
/// See [`logging/setLevel`](https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/logging).
async fn maintain_log_level(connection: &Arc<Connection>, session: &Arc<Session>) {
    if session.era() != Era::Legacy || !session.info.has_capability(&["logging"]) {
        return;
    }
    let mut level = connection.log_level.subscribe();
    loop {
        let wanted = *level.borrow_and_update();
        if let Some(wanted) = wanted {
            let params = json!({"level": wanted}).to_string();
            let cx = CallContext::default().in_background();
            let timeouts = connection.timeouts(&cx);
            let request = Request::new("logging/setLevel", params.as_bytes(), &cx, timeouts);
            if let Err(error) = session.request(&Request { idempotent: true, ..request }).await {
                connection.host.warn(&format!("`logging/setLevel` failed: {error}"));
            }
        }
        if level.changed().await.is_err() {
            return;
        }
    }
}
