//! State that a connection's handle shares with its supervisor: the session, the tool list, the last failure.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::error::{ConnectErrorKind, RequestError};
use super::host::Host;
use super::raw_response::RawResponse;
use super::request::Request;
use super::session::Session;
use super::state::ConnectionState;
use super::timeouts::RequestTimeouts;
use super::tool_list::ToolList;
use crate::protocol::Era;
use ropeway_config::{MAX_TIMEOUT, ServerConfig};
use ropeway_core::error_chain::chain;
use ropeway_core::event::Event;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, CallContext, CallError, CancelToken};

/// Minimum delay before a second attempt in a row.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);

/// One server's connection state, shared by the handle, the supervisor and the server's tools.
///
/// It outlives sessions and supervisors. The supervisor sets the session and the state; the handle only announces the first
/// `Connecting`, and a call may discard a session that it found lost. The tool list comes from the last fetch, by the
/// supervisor or by a call. The state starts as `Closed`, goes through `Connecting` to `Ready`, `Down` or `NeedsAuth`,
/// returns to `Connecting` for each further attempt, and is `Closed` again when the supervisor ends.
///
/// Each std mutex guards one value. It is taken alone, for a copy or a replacement and never across an `.await`, so they
/// need no order. Only `uncast_session` is an async mutex: a call takes it before all others and holds it while it fetches
/// the tool list. Dropping a connection does nothing. The supervisor, which shares it, closes the session when the handle
/// is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) config: ServerConfig,
    pub(crate) host: Arc<Host>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Notified when a call waits for the connection, to shorten a long retry delay.
    pub(crate) wanted: Notify,
    /// Notified when another attempt may succeed although the server needs authentication.
    pub(crate) auth_retry: Notify,
    /// The log level to set on legacy servers, if any.
    pub(crate) log_level: watch::Sender<Option<&'static str>>,
    session: Mutex<Option<Arc<Session>>>,
    tools: Mutex<Option<Arc<ToolList>>>,
    /// The session whose tool list could not be fetched for a cast. Locked while a call fetches the list, so that other calls
    /// wait for the same request.
    pub(super) uncast_session: tokio::sync::Mutex<Option<u64>>,
    /// Incremented when the tool list changes.
    pub(crate) tools_version: watch::Sender<u64>,
    era: Mutex<Option<Era>>,
    /// The last failure and its time.
    last_failure: Mutex<Option<(SystemTime, Arc<ConnectErrorKind>)>>,
    /// The last failure, until the server is ready again.
    outage: Mutex<Option<Arc<ConnectErrorKind>>>,
}

impl Connection {
    pub(crate) fn new(mut config: ServerConfig, host: Arc<Host>) -> Self {
        config.timeouts = config.timeouts.bounded();
        // Without a delay, a server that exits as soon as it is ready would be restarted in a busy loop.
        config.reconnect.initial_delay = config.reconnect.initial_delay.max(MIN_RETRY_DELAY);
        config.reconnect.max_delay = config.reconnect.max_delay.clamp(MIN_RETRY_DELAY, MAX_TIMEOUT);
        Self {
            config,
            host,
            state: watch::Sender::new(ConnectionState::Closed),
            wanted: Notify::new(),
            auth_retry: Notify::new(),
            log_level: watch::Sender::new(None),
            session: Mutex::default(),
            tools: Mutex::default(),
            uncast_session: tokio::sync::Mutex::default(),
            tools_version: watch::Sender::new(0),
            era: Mutex::default(),
            last_failure: Mutex::default(),
            outage: Mutex::default(),
        }
    }

    pub(crate) fn alias(&self) -> &Alias {
        &self.config.alias
    }

    /// Changes the state and emits the matching event.
    pub(crate) fn enter(&self, state: ConnectionState) {
        let server = self.alias().clone();
        let event = match &state {
            ConnectionState::Connecting { failures } => Event::Connecting { server, failures: *failures },
            ConnectionState::Ready { server: info } => {
                Event::Ready { server, protocol_version: self.host.redact(&info.protocol_version) }
            }
            ConnectionState::NeedsAuth { .. } => Event::NeedsAuth { server },
            ConnectionState::Down { cause, retry_at } => {
                let now = std::time::Instant::now();
                let retry_in = retry_at.map(|at| at.saturating_duration_since(now));
                Event::Down { server, cause: chain(cause), retry_in }
            }
            ConnectionState::Closed => Event::Closed { server },
        };
        // The watch only holds the latest state, so a slow reader would miss the reason.
        match &state {
            ConnectionState::Down { cause, .. } => {
                *lock(&self.last_failure) = Some((SystemTime::now(), cause.clone()));
                *lock(&self.outage) = Some(cause.clone());
            }
            ConnectionState::Ready { .. } | ConnectionState::Closed => *lock(&self.outage) = None,
            ConnectionState::Connecting { .. } | ConnectionState::NeedsAuth { .. } => {}
        }
        tracing::debug!(server = %self.alias(), "{event}");
        self.state.send_replace(state);
        self.host.events().emit(event);
    }

    /// Returns the last failure and its time.
    pub(crate) fn last_failure(&self) -> Option<(SystemTime, Arc<ConnectErrorKind>)> {
        lock(&self.last_failure).clone()
    }

    /// Returns the current session, if connected.
    pub(crate) fn current_session(&self) -> Option<Arc<Session>> {
        lock(&self.session).clone()
    }

    pub(crate) fn set_session(&self, session: Option<Arc<Session>>) {
        self.host.subscriptions.end_session();
        *lock(&self.session) = session;
    }

    /// Removes a session that has become unusable.
    fn discard(&self, session: &Session) {
        let mut current = lock(&self.session);
        if current.as_ref().is_some_and(|current| current.number == session.number) {
            *current = None;
        }
    }

    pub(crate) fn era(&self) -> Option<Era> {
        *lock(&self.era)
    }

    pub(crate) fn remember_era(&self, era: Option<Era>) {
        *lock(&self.era) = era;
    }

    pub(crate) fn tools(&self) -> Option<Arc<ToolList>> {
        lock(&self.tools).clone()
    }

    /// Stores a new tool list and emits an event if it differs from the previous one.
    pub(crate) fn replace_tools(&self, tools: Arc<ToolList>) {
        let before = lock(&self.tools).replace(tools.clone());
        if before.is_some_and(|before| !before.ptr_eq(&tools)) {
            self.emit_tools_changed();
        }
    }

    /// Emits an event for a changed tool list.
    pub(crate) fn emit_tools_changed(&self) {
        self.tools_version.send_modify(|version| *version += 1);
        self.host.events().emit(Event::ToolsChanged { server: self.alias().clone() });
    }

    /// Returns the timeouts for a call that starts now.
    pub(crate) fn timeouts(&self, cx: &CallContext) -> RequestTimeouts {
        let started = Instant::now();
        let total = started + cx.total().unwrap_or(self.config.timeouts.total);
        let deadline = cx.deadline().map_or(total, |deadline| deadline.min(total));
        let idle = cx.idle_timeout().unwrap_or(self.config.timeouts.idle).min(MAX_TIMEOUT);
        RequestTimeouts { idle, deadline, started }
    }

    /// Allows the handshake to prompt the user to sign in, because a caller waits for the connection.
    pub(crate) fn allow_sign_in(&self) {
        if let Some(auth) = self.host.authorizer().filter(|_| self.current_session().is_none()) {
            auth.allow_offer();
        }
    }

    /// Starts another attempt if the server needs authentication and tokens can be obtained now. Returns `false` otherwise.
    async fn retry_auth(&self) -> bool {
        let Some(auth) = self.host.authorizer() else { return false };
        if !auth.can_retry().await {
            return false;
        }
        auth.allow_offer();
        self.auth_retry.notify_one();
        true
    }

    /// Returns the total time that all sign-ins took.
    pub(crate) fn sign_in_time(&self) -> Duration {
        self.host.authorizer().map(|auth| auth.clock.total()).unwrap_or_default()
    }

    /// Returns the session for a call. If the server is down, waits for it up to the configured grace period.
    pub(crate) async fn session(&self, cx: &CallContext, timeouts: RequestTimeouts) -> Result<Arc<Session>, CallError> {
        match self.current_session() {
            Some(session) => Ok(session),
            None => Box::pin(self.next_session(cx, timeouts, None)).await,
        }
    }

    /// Waits for the next session. `cause` is the reason that the previous one ended, if known.
    async fn next_session(
        &self,
        cx: &CallContext,
        timeouts: RequestTimeouts,
        mut cause: Option<Arc<ConnectErrorKind>>,
    ) -> Result<Arc<Session>, CallError> {
        let mut state = self.state.subscribe();
        if !cx.is_background() {
            self.allow_sign_in();
        }
        let (sign_ins, grace_end) = (self.sign_in_time(), Instant::now() + self.config.timeouts.grace);
        let mut may_retry = !cx.is_background();
        loop {
            if let Some(session) = self.current_session() {
                return Ok(session);
            }
            let server = self.alias().clone();
            let mut refused = None;
            match &*state.borrow_and_update() {
                ConnectionState::Closed => return Err(CallError::NotConnected { server }),
                ConnectionState::NeedsAuth { challenge } => {
                    refused = Some(CallError::NeedsAuth { server: server.clone(), challenge: challenge.clone() });
                }
                ConnectionState::Down { cause: problem, retry_at: None } => {
                    let error = CallError::Unavailable { server: server.clone(), source: Box::new(problem.clone()) };
                    if !matches!(**problem, ConnectErrorKind::Auth(_)) {
                        return Err(error);
                    }
                    refused = Some(error);
                }
                ConnectionState::Down { cause: problem, .. } => cause = Some(problem.clone()),
                ConnectionState::Connecting { .. } | ConnectionState::Ready { .. } => {}
            }
            if let Some(refused) = refused
                && !(std::mem::take(&mut may_retry) && self.retry_auth().await)
            {
                return Err(refused);
            }
            self.wanted.notify_one();
            // Sign-in time does not count.
            let give_up_at = timeouts.deadline.min(grace_end + (self.sign_in_time() - sign_ins));
            let changed = tokio::select! {
                changed = tokio::time::timeout_at(give_up_at, state.changed()) => changed,
                () = cx.cancelled() => return Err(CallError::Cancelled),
            };
            if changed.is_err() && self.is_signing_in() && Instant::now() < timeouts.deadline {
                continue;
            }
            if !matches!(changed, Ok(Ok(()))) && give_up_at == timeouts.deadline && cause.is_none() {
                let after = timeouts.deadline - timeouts.started;
                return Err(CallError::Timeout { server, after, idle: false, hint: None });
            }
            if !matches!(changed, Ok(Ok(()))) {
                // The current attempt has no cause yet, but the previous one may have had one.
                let cause =
                    cause.or_else(|| lock(&self.outage).clone()).unwrap_or_else(|| Arc::new(self.not_in_time()));
                return Err(CallError::Unavailable { server, source: Box::new(cause) });
            }
        }
    }

    fn is_signing_in(&self) -> bool {
        self.host.authorizer().is_some_and(|auth| auth.clock.is_running())
    }

    fn not_in_time(&self) -> ConnectErrorKind {
        ConnectErrorKind::Timeout { after: self.config.timeouts.grace, said: None }
    }

    /// Sends a request on `session`, or on the current one. A request that was never started is sent once more on the next
    /// session.
    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        session: Option<Arc<Session>>,
    ) -> Result<(RawResponse, Arc<Session>), CallError> {
        let Request { cx, timeouts, .. } = *request;
        if cx.cancel().is_some_and(CancelToken::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        let mut session = match session {
            Some(session) => session,
            None => self.session(cx, timeouts).await?,
        };
        let mut error = match session.link.request(&session.prepare(request)).await {
            Ok(response) => return Ok((response, session)),
            Err(error) => error,
        };
        if let RequestError::Disconnected { started: false, cause } = &error
            && !is_final(cause)
        {
            self.discard(&session);
            session = Box::pin(self.next_session(cx, timeouts, Some(cause.clone()))).await?;
            error = match Box::pin(session.link.request(&session.prepare(request))).await {
                Ok(response) => return Ok((response, session)),
                Err(error) => error,
            };
        }
        Err(error.into_call_error(self.alias()))
    }

    /// Returns the error for a call whose result could not be decoded.
    pub(crate) fn decode_error(&self, error: serde_json::Error) -> CallError {
        // The error may quote server text.
        CallError::Protocol { server: self.alias().clone(), source: self.host.redact(&error.to_string()).into() }
    }

    /// Waits until the current connection attempt has finished.
    pub(crate) async fn settled(&self, state: &mut watch::Receiver<ConnectionState>) -> ConnectionState {
        match state.wait_for(|state| !matches!(state, ConnectionState::Connecting { .. })).await {
            Ok(state) => state.clone(),
            Err(_) => ConnectionState::Closed,
        }
    }

    /// Returns the delay before the next attempt, with jitter.
    pub(crate) fn retry_delay(&self, failures: u32) -> Duration {
        let reconnect = &self.config.reconnect;
        match failures {
            0 => Duration::ZERO,
            _ => {
                let full = reconnect.initial_delay.saturating_mul(1 << (failures - 1).min(16)).min(reconnect.max_delay);
                full.mul_f64(0.5 + fastrand::f64() / 2.0)
            }
        }
    }
}

/// Returns `true` if a new connection would fail for the same reason.
fn is_final(cause: &ConnectErrorKind) -> bool {
    matches!(cause, ConnectErrorKind::NeedsAuth { .. } | ConnectErrorKind::Auth(_) | ConnectErrorKind::Closed)
}
