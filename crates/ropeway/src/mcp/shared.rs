//! What a connection's handle and its task share: the state, the session, the tool list.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::answer::Answer;
use super::fault::{ConnectErrorKind, Fault};
use super::host::Host;
use super::inbox::Clocks;
use super::session::{ServerInfo, Session};
use super::tools::ToolList;
use super::transport::Request;
use crate::config::{MAX_TIMEOUT, ServerConfig};
use crate::event::Event;
use crate::protocol::Era;
use crate::tool::{Alias, CallContext, CallError, CancelToken, TimeoutKind};

/// The state of a connection.
#[derive(Clone, Debug)]
pub enum ConnectionState {
    /// A connection is being made.
    Connecting {
        /// How many tries have failed in a row.
        failures: u32,
    },
    /// Calls can be made.
    Ready {
        /// What the server says about itself.
        server: Arc<ServerInfo>,
    },
    /// The server wants to know who is asking.
    NeedsAuth {
        /// The `WWW-Authenticate` header, when there was one.
        challenge: Option<String>,
    },
    /// There is no connection.
    Down {
        /// Why.
        cause: Arc<ConnectErrorKind>,
        /// When it will be tried again; `None` when it will not.
        retry_at: Option<std::time::Instant>,
    },
    /// `connect` was not called, or `close` was.
    Closed,
}

/// The shortest wait before a second try in a row.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) host: Arc<Host>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// A call waits for the connection: a long pause between two tries may be cut short.
    pub(crate) wanted: Notify,
    /// The resources that we want to hear of.
    pub(crate) subscriptions: Mutex<BTreeSet<String>>,
    pub(crate) subscriptions_changed: Notify,
    session: Mutex<Option<Arc<Session>>>,
    tools: Mutex<Option<Arc<ToolList>>>,
    /// Counts the changes of the tool list.
    pub(crate) tools_version: watch::Sender<u64>,
    era: Mutex<Option<Era>>,
    /// Why the server was down last, and when that became known.
    last_failure: Mutex<Option<(SystemTime, Arc<ConnectErrorKind>)>>,
    /// The same while the server is not ready.
    outage: Mutex<Option<Arc<ConnectErrorKind>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(mut config: ServerConfig, host: Arc<Host>) -> Self {
        config.timeouts = config.timeouts.bounded();
        // Without a wait, a server that ends as soon as it is ready would be started without end.
        config.reconnect.first = config.reconnect.first.max(SHORTEST_PAUSE);
        config.reconnect.longest = config.reconnect.longest.clamp(SHORTEST_PAUSE, MAX_TIMEOUT);
        Self {
            config,
            host,
            state: watch::Sender::new(ConnectionState::Closed),
            wanted: Notify::new(),
            subscriptions: Mutex::default(),
            subscriptions_changed: Notify::new(),
            session: Mutex::default(),
            tools: Mutex::default(),
            tools_version: watch::Sender::new(0),
            era: Mutex::default(),
            last_failure: Mutex::default(),
            outage: Mutex::default(),
        }
    }

    pub(crate) fn alias(&self) -> &Alias {
        &self.config.alias
    }

    /// Moves to a state and tells it.
    pub(crate) fn enter(&self, state: ConnectionState) {
        let server = self.alias().clone();
        let event = match &state {
            ConnectionState::Connecting { failures } => Event::Connecting { server, failures: *failures },
            ConnectionState::Ready { server: info } => {
                Event::Ready { server, protocol_version: self.host.hide(&info.protocol_version) }
            }
            ConnectionState::NeedsAuth { .. } => Event::NeedsAuth { server },
            ConnectionState::Down { cause, retry_at } => {
                let now = std::time::Instant::now();
                let retry_in = retry_at.map(|at| at.saturating_duration_since(now));
                Event::Down { server, cause: chain(cause), retry_in }
            }
            ConnectionState::Closed => Event::Closed { server },
        };
        // A watch only holds the latest state: whoever looks too late would miss the reason.
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
        self.host.events().tell(event);
    }

    /// Returns why the server was down last, and when that became known.
    #[cfg(feature = "bridge")]
    pub(crate) fn last_failure(&self) -> Option<(SystemTime, Arc<ConnectErrorKind>)> {
        lock(&self.last_failure).clone()
    }

    /// The session that calls are made on, if there is one now.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        lock(&self.session).clone()
    }

    pub(crate) fn set_session(&self, session: Option<Arc<Session>>) {
        *lock(&self.session) = session;
    }

    /// A session that cannot be used any more is not handed out again.
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

    /// Keeps a new list, and tells whether it is another one than before.
    pub(crate) fn replace_tools(&self, tools: Arc<ToolList>) {
        let before = lock(&self.tools).replace(tools.clone());
        if before.is_some_and(|before| !before.same_as(&tools)) {
            self.tell_tools_changed();
        }
    }

    /// Tells that the tools are not what they were.
    pub(crate) fn tell_tools_changed(&self) {
        self.tools_version.send_modify(|version| *version += 1);
        self.host.events().tell(Event::ToolsChanged { server: self.alias().clone() });
    }

    /// The clocks of a call that begins now.
    pub(crate) fn clocks(&self, cx: &CallContext) -> Clocks {
        let started = Instant::now();
        let total = started + cx.total().unwrap_or(self.config.timeouts.total);
        let deadline = cx.deadline().map_or(total, |deadline| deadline.min(total));
        let idle = cx.idle_timeout().unwrap_or(self.config.timeouts.idle).min(MAX_TIMEOUT);
        Clocks { idle, deadline, started }
    }

    /// The session to make a call on. While the server is down, waits for it, but not for long.
    pub(crate) async fn session(&self, cx: &CallContext, clocks: Clocks) -> Result<Arc<Session>, CallError> {
        match self.current() {
            Some(session) => Ok(session),
            None => Box::pin(self.next_session(cx, clocks, None)).await,
        }
    }

    /// The next session, once it is there; `cause` is why there was to be a next one, as far as is known.
    async fn next_session(
        &self,
        cx: &CallContext,
        clocks: Clocks,
        mut cause: Option<Arc<ConnectErrorKind>>,
    ) -> Result<Arc<Session>, CallError> {
        let mut state = self.state.subscribe();
        let patience = clocks.deadline.min(Instant::now() + self.config.timeouts.grace);
        loop {
            if let Some(session) = self.current() {
                return Ok(session);
            }
            let server = self.alias().clone();
            match &*state.borrow_and_update() {
                ConnectionState::Closed => return Err(CallError::NotConnected { server }),
                ConnectionState::NeedsAuth { challenge } => {
                    return Err(CallError::NeedsAuth { server, challenge: challenge.clone() });
                }
                ConnectionState::Down { cause: why, retry_at: None } => {
                    return Err(CallError::Unavailable { server, source: Box::new(why.clone()) });
                }
                ConnectionState::Down { cause: why, .. } => cause = Some(why.clone()),
                ConnectionState::Connecting { .. } | ConnectionState::Ready { .. } => {}
            }
            self.wanted.notify_one();
            let changed = tokio::select! {
                changed = tokio::time::timeout_at(patience, state.changed()) => changed,
                () = cx.cancelled() => return Err(CallError::Cancelled),
            };
            if !matches!(changed, Ok(Ok(()))) && patience == clocks.deadline && cause.is_none() {
                let after = clocks.deadline - clocks.started;
                return Err(CallError::Timeout { server, after, clock: TimeoutKind::Total, hint: None });
            }
            if !matches!(changed, Ok(Ok(()))) {
                // A try that is under way has no cause yet, but the one before may have had one.
                let cause =
                    cause.or_else(|| lock(&self.outage).clone()).unwrap_or_else(|| Arc::new(self.not_in_time()));
                return Err(CallError::Unavailable { server, source: Box::new(cause) });
            }
        }
    }

    fn not_in_time(&self) -> ConnectErrorKind {
        ConnectErrorKind::Timeout { after: self.config.timeouts.grace, said: None }
    }

    /// Sends a request on the session, or on the current one; one that was never begun is sent once more on the next.
    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
        session: Option<Arc<Session>>,
    ) -> Result<(Answer, Arc<Session>), CallError> {
        if cx.cancel().is_some_and(CancelToken::is_cancelled) {
            return Err(CallError::Cancelled);
        }
        let mut session = match session {
            Some(session) => session,
            None => self.session(cx, clocks).await?,
        };
        let mut fault = match session.request(request, cx, clocks).await {
            Ok(answer) => return Ok((answer, session)),
            Err(fault) => fault,
        };
        if let Fault::Lost { started: false, cause } = &fault
            && !is_final(cause)
        {
            self.discard(&session);
            session = Box::pin(self.next_session(cx, clocks, Some(cause.clone()))).await?;
            fault = match Box::pin(session.request(request, cx, clocks)).await {
                Ok(answer) => return Ok((answer, session)),
                Err(fault) => fault,
            };
        }
        Err(fault.into_call_error(self.alias()))
    }

    /// Waits until the state is no longer that of a try under way.
    pub(crate) async fn settled(&self, state: &mut watch::Receiver<ConnectionState>) -> ConnectionState {
        match state.wait_for(|state| !matches!(state, ConnectionState::Connecting { .. })).await {
            Ok(state) => state.clone(),
            Err(_) => ConnectionState::Closed,
        }
    }

    /// How long to wait before the next try after so many failures.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let reconnect = &self.config.reconnect;
        match failures {
            0 => Duration::ZERO,
            _ => {
                let full = reconnect.first.saturating_mul(1 << (failures - 1).min(16)).min(reconnect.longest);
                full.mul_f64(0.5 + fastrand::f64() / 2.0)
            }
        }
    }
}

/// A new connection would meet the same refusal.
fn is_final(cause: &ConnectErrorKind) -> bool {
    matches!(cause, ConnectErrorKind::NeedsAuth { .. } | ConnectErrorKind::Closed)
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}
