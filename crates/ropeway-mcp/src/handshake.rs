//! The handshake: opens a link and negotiates the protocol version, in either era.
//!
//! Legacy servers are initialized as in
//! [lifecycle](https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle). Modern servers (2026-07-28) answer
//! `server/discover`. If the era is not configured, `server/discover` is the probe.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::error::{ConnectErrorKind, RequestError};
use super::fallback::{is_final, is_permanent, may_be_modern, may_be_sse, strings, supported_versions};
use super::host::Host;
use super::pending::PendingRequests;
use super::raw_response::{RawResponse, RequestResult};
use super::request::Request;
use super::server_info::ServerInfo;
use super::session::Session;
use super::timeouts::RequestTimeouts;
use super::transport::http::Http;
use super::transport::lines::Lines;
use super::transport::sse::Sse;
use super::transport::{IDLE_LIMIT, Link, socket, stdio};
use crate::protocol::{
    Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, RpcError, code, encode_notification, is_modern, meta,
};
use ropeway_config::{EraChoice, HttpServer, ServerConfig, Transport};
use ropeway_core::sync::lock;
use ropeway_core::tool::CallContext;

type ConnectFailure = Arc<ConnectErrorKind>;

/// Protocol versions in errors are truncated to this many bytes.
const MAX_VERSION_BYTES: usize = 1 << 10;

/// Minimum timeout for the second `server/discover` to an HTTP server that did not answer the first one in time.
const MIN_SECOND_PROBE: Duration = Duration::from_secs(2);

/// A handshake's outcome.
pub(crate) struct HandshakeOutcome {
    pub(crate) session: Result<Session, ConnectFailure>,
    /// The era that the next handshake tries first. `None` if the server has to be probed.
    pub(crate) next_era: Option<Era>,
}

/// Connects to the server and negotiates the protocol version, within the configured timeout.
pub(crate) async fn connect(config: &ServerConfig, host: &Arc<Host>, remembered: Option<Era>) -> HandshakeOutcome {
    // Outlives the handshake, which is dropped at the timeout.
    let learned = Mutex::new(None);
    let session = connect_in_time(config, host, remembered, &learned).await;
    let learned = *lock(&learned);
    let next_era = match &session {
        Ok(session) => learned.or(Some(session.era())),
        Err(_) => learned,
    };
    HandshakeOutcome { session, next_era }
}

async fn connect_in_time(
    config: &ServerConfig,
    host: &Arc<Host>,
    remembered: Option<Era>,
    learned: &Mutex<Option<Era>>,
) -> Result<Session, ConnectFailure> {
    let configured = &config.timeouts;
    // A package runner may have to download the server first.
    let limit = match &config.transport {
        Transport::Stdio(server) if server.is_package_runner() => configured.download.max(configured.connect),
        _ => configured.connect,
    };
    let now = Instant::now();
    // The deadline leaves room for a sign-in, which counts neither as idle time nor towards the handshake timeout.
    let timeouts = RequestTimeouts { idle: limit, deadline: now + limit + host.max_sign_in_time(), started: now };
    let (era, is_guess) = match config.era {
        EraChoice::Legacy => (Some(Era::Legacy), false),
        EraChoice::Modern => (Some(Era::Modern), false),
        EraChoice::Auto => (remembered, remembered.is_some()),
    };
    let handshake = Handshake { config, host, timeouts, is_guess, learned };
    // The request timeouts do not cover other operations, such as opening a stream.
    let margin = Duration::from_millis(500);
    let hanging = async {
        if limit == configured.connect {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(now + configured.connect.saturating_sub(IDLE_LIMIT)).await;
        host.until_idle().await;
        tokio::time::sleep_until(now + configured.connect).await;
    };
    tokio::select! {
        biased;
        outcome = handshake.run(era) => outcome,
        () = host.expired(now + limit + margin) => Err(Arc::new(ConnectErrorKind::Timeout { after: limit, said: None })),
        () = hanging => Err(Arc::new(ConnectErrorKind::Timeout { after: now.elapsed(), said: host.stderr_reason().await })),
    }
}

fn client_info() -> Value {
    json!({"name": "ropeway", "version": env!("CARGO_PKG_VERSION")})
}

struct Handshake<'a> {
    config: &'a ServerConfig,
    host: &'a Arc<Host>,
    timeouts: RequestTimeouts,
    /// The era is remembered from an earlier connection, and may have changed.
    is_guess: bool,
    /// What this handshake has found out about the server's era, if it differs from the session's era or the handshake fails.
    learned: &'a Mutex<Option<Era>>,
}

/// A probe's outcome.
enum ProbeResult {
    /// The server is modern.
    Modern(Box<ServerInfo>),
    /// The server is legacy, and the link can still be used.
    Legacy,
    /// The server accepted the `initialize` that was sent after the probe, so the link is legacy.
    Initialized {
        answer: RawResponse,
        /// The server has also answered `server/discover`.
        is_dual: bool,
    },
    /// The link is useless: the server must be restarted, and used in this era.
    Restart(Era),
}

impl Handshake<'_> {
    async fn run(&self, era: Option<Era>) -> Result<Session, ConnectFailure> {
        self.host.load_tokens().await?;
        match &self.config.transport {
            Transport::Stdio(_) | Transport::InProcess(_) | Transport::Socket(_) => self.connect_lines(era).await,
            Transport::Http(server) => self.connect_http(server, era).await,
            Transport::Sse(server) => self.connect_sse(server).await,
        }
    }

    fn pending(&self) -> Arc<PendingRequests> {
        Arc::new(PendingRequests::new(self.host.clone()))
    }

    async fn open_lines(&self) -> Result<Arc<Lines>, ConnectFailure> {
        let limits = &self.config.limits;
        match &self.config.transport {
            Transport::Stdio(server) => Ok(stdio::start(server, self.pending(), limits)?),
            Transport::InProcess(server) => {
                let (reader, writer) = tokio::io::split(server.open());
                Ok(Lines::start(reader, writer, self.pending(), limits.message_bytes))
            }
            Transport::Socket(server) => {
                let stream = socket::connect(server).await.map_err(|error| ConnectErrorKind::Broken(error.into()))?;
                let (reader, writer) = stream.into_split();
                Ok(Lines::start(reader, writer, self.pending(), limits.message_bytes))
            }
            Transport::Http(_) | Transport::Sse(_) => {
                Err(Arc::new(ConnectErrorKind::Protocol("not a pipe".to_owned())))
            }
        }
    }

    /// Adds the server's stderr to a timeout.
    async fn with_stderr(&self, failed: ConnectFailure, lines: &Lines) -> ConnectFailure {
        match (&*failed, lines.stderr()) {
            (ConnectErrorKind::Timeout { after, said: None }, Some(stderr)) => {
                Arc::new(ConnectErrorKind::Timeout { after: *after, said: stderr.reason().await })
            }
            _ => failed,
        }
    }

    async fn connect_lines(&self, era: Option<Era>) -> Result<Session, ConnectFailure> {
        let lines = self.open_lines().await?;
        let link = Link::Lines(lines.clone());
        let outcome = match era {
            Some(Era::Modern) => match self.discover(&link).await {
                Ok(info) => return Ok(self.modern_session(link, info)),
                Err(error) => Err(error.into_connect_error()),
            },
            Some(Era::Legacy) => match self.legacy_session(link).await {
                Err(failed) if self.is_guess && may_be_modern(&failed) => {
                    lines.close(self.config.timeouts.close).await;
                    return Box::pin(Handshake { is_guess: false, ..*self }.connect_lines(None)).await;
                }
                outcome => outcome,
            },
            None => match self.probe(&link).await {
                Ok(ProbeResult::Modern(info)) => return Ok(self.modern_session(link, *info)),
                Ok(ProbeResult::Initialized { answer, is_dual: false }) => self.finish_initialize(link, &answer).await,
                Ok(ProbeResult::Initialized { answer, is_dual: true }) => {
                    match self.finish_initialize(link, &answer).await {
                        Err(failed)
                            if !is_permanent(&failed) || matches!(*failed, ConnectErrorKind::Version { .. }) =>
                        {
                            return self.restart(&lines, Era::Modern).await;
                        }
                        outcome => {
                            // The server is legacy because it started slowly. The next handshake need not try `initialize`.
                            self.learn(Some(Era::Modern));
                            outcome
                        }
                    }
                }
                // Some servers reject `initialize` after they have rejected another request. They are restarted.
                Ok(ProbeResult::Legacy) => match self.legacy_session(link).await {
                    Err(failed) if !matches!(*failed, ConnectErrorKind::Timeout { .. }) => {
                        return self.restart(&lines, Era::Legacy).await;
                    }
                    outcome => outcome,
                },
                Ok(ProbeResult::Restart(era)) => return self.restart(&lines, era).await,
                Err(failed) => Err(failed),
            },
        };
        match outcome {
            Ok(session) => Ok(session),
            Err(failed) => Err(self.with_stderr(failed, &lines).await),
        }
    }

    /// Restarts the server to use it in one era. Waits until the first process has exited, because two at a time may conflict.
    async fn restart(&self, first: &Lines, era: Era) -> Result<Session, ConnectFailure> {
        // A server that takes most of the timeout to start has no time for a second start. The next handshake begins with
        // this era.
        self.learn(Some(era));
        first.close(self.config.timeouts.close).await;
        let lines = self.open_lines().await?;
        let link = Link::Lines(lines.clone());
        let outcome = match era {
            Era::Legacy => self.legacy_session(link).await,
            Era::Modern => match self.discover(&link).await {
                Ok(info) => Ok(self.modern_session(link, info)),
                Err(error) => Err(error.into_connect_error()),
            },
        };
        match outcome {
            Ok(session) => Ok(session),
            Err(failed) => {
                if !matches!(*failed, ConnectErrorKind::Timeout { .. }) {
                    self.learn(None);
                }
                Err(self.with_stderr(failed, &lines).await)
            }
        }
    }

    fn learn(&self, era: Option<Era>) {
        *lock(self.learned) = era;
    }

    /// Determines the era that a server on a pipe uses. If it does not answer in time, sends `initialize` as well.
    ///
    /// From then on, the answer to `initialize` decides. Servers on the TypeScript and Rust SDKs answer both requests, and
    /// an accepted `initialize` makes the connection legacy. Servers on the Python SDK 2.x use the first request's era and
    /// reject the other.
    async fn probe(&self, link: &Link) -> Result<ProbeResult, ConnectFailure> {
        let mut discover = std::pin::pin!(self.discover(link));
        tokio::select! {
            outcome = &mut discover => return probe_result(outcome),
            () = tokio::time::sleep(self.probe_time()) => {}
        }
        let mut initialize = std::pin::pin!(self.initialize(link, LATEST_LEGACY));
        let mut discovered = None;
        let mut is_refused = false;
        // A modern server may ignore `initialize`.
        let mut silence = std::pin::pin!(tokio::time::sleep_until(self.timeouts.deadline));
        loop {
            let is_modern = matches!(discovered, Some(ProbeResult::Modern(_)));
            tokio::select! {
                biased;
                // Both answers may arrive at once.
                outcome = &mut discover, if discovered.is_none() => match probe_result(outcome)? {
                    ProbeResult::Restart(_) if is_refused => return Ok(ProbeResult::Restart(Era::Modern)),
                    result @ (ProbeResult::Modern(_) | ProbeResult::Legacy) if !is_refused => {
                        silence.as_mut().reset(Instant::now() + self.probe_time());
                        discovered = Some(result);
                    }
                    result => return Ok(result),
                },
                outcome = &mut initialize, if !is_refused => match outcome {
                    Ok(answer) => return Ok(ProbeResult::Initialized { answer, is_dual: is_modern }),
                    Err(RequestError::Disconnected { cause, .. }) if is_permanent(&cause) => return Err(cause),
                    Err(RequestError::Refused(_)) if is_modern => return self.confirm_modern(link).await,
                    Err(_) if is_modern => return Ok(ProbeResult::Restart(Era::Modern)),
                    Err(RequestError::Refused(_)) if discovered.is_none() => is_refused = true,
                    Err(RequestError::Refused(_) | RequestError::Disconnected { .. }) => {
                        return Ok(ProbeResult::Restart(Era::Legacy));
                    }
                    Err(error) => return Err(error.into_connect_error()),
                },
                // The server could still accept `initialize`, and the link would belong to both eras.
                () = &mut silence, if is_modern => return Ok(ProbeResult::Restart(Era::Modern)),
            }
        }
    }

    /// Sends `server/discover` again after a modern server has rejected `initialize`. Servers on the Rust SDK exit in that case.
    async fn confirm_modern(&self, link: &Link) -> Result<ProbeResult, ConnectFailure> {
        match probe_result(self.discover(link).await)? {
            ProbeResult::Modern(info) => Ok(ProbeResult::Modern(info)),
            _ => Ok(ProbeResult::Restart(Era::Modern)),
        }
    }

    async fn connect_http(&self, server: &HttpServer, era: Option<Era>) -> Result<Session, ConnectFailure> {
        match self.connect_http_in(server, era).await {
            Err(failed) if self.is_guess && era == Some(Era::Legacy) && may_be_modern(&failed) => {
                // If the probe fails as well, the first error is more useful.
                Handshake { is_guess: false, ..*self }.connect_http_in(server, None).await.map_err(|_| failed)
            }
            outcome => outcome,
        }
    }

    async fn connect_http_in(&self, server: &HttpServer, era: Option<Era>) -> Result<Session, ConnectFailure> {
        let http = Http::new(server, self.pending(), self.config.limits.message_bytes)?;
        let link = Link::Http(http.clone());
        let mut is_late = false;
        if era != Some(Era::Legacy) {
            http.set_era(Era::Modern, Some(MODERN));
            let probe = Handshake { timeouts: self.probe_timeouts(era), ..*self };
            match probe.discover(&link).await {
                Ok(info) => return Ok(self.modern_session(link, info)),
                Err(error) if era == Some(Era::Modern) || is_final(&error) => return Err(error.into_connect_error()),
                Err(error) => is_late = matches!(error, RequestError::Timeout { .. }),
            }
        }
        http.set_era(Era::Legacy, None);
        let initialized_at = Instant::now();
        match self.legacy_session(link).await {
            Ok(session) if is_late => {
                self.probe_again(server, initialized_at.elapsed()).await;
                Ok(session)
            }
            Ok(session) => Ok(session),
            Err(failed) if server.sse_fallback && may_be_sse(&failed) => match self.connect_sse(server).await {
                Ok(session) => Ok(session),
                // The fallback was a guess. The first error is more useful.
                Err(_) => Err(failed),
            },
            Err(failed) => Err(failed),
        }
    }

    /// Sends `server/discover` again to a legacy HTTP server that did not answer the first one in time. If it answers now,
    /// it only started slowly, and must not be remembered as legacy.
    async fn probe_again(&self, server: &HttpServer, initialize_time: Duration) {
        let Ok(http) = Http::new(server, self.pending(), self.config.limits.message_bytes) else { return };
        let idle = MIN_SECOND_PROBE.max(2 * initialize_time).min(self.probe_time());
        let probe = Handshake { timeouts: RequestTimeouts { idle, ..self.timeouts }, ..*self };
        if probe.discover(&Link::Http(http)).await.is_ok() {
            self.learn(Some(Era::Modern));
        }
    }

    /// Returns the probe timeout: at most half of the remaining time.
    fn probe_time(&self) -> Duration {
        let left = (self.timeouts.started + self.timeouts.idle).saturating_duration_since(Instant::now());
        self.config.timeouts.probe.min(left / 2).max(Duration::from_millis(1))
    }

    /// Returns the timeouts for a probe over HTTP. A server in an unknown era gets a shorter idle timeout.
    fn probe_timeouts(&self, era: Option<Era>) -> RequestTimeouts {
        match era {
            Some(_) => self.timeouts,
            None => RequestTimeouts { idle: self.probe_time(), ..self.timeouts },
        }
    }

    async fn connect_sse(&self, server: &HttpServer) -> Result<Session, ConnectFailure> {
        let sse = Sse::open(server, self.pending(), self.config.limits.message_bytes).await?;
        self.legacy_session(Link::Sse(sse)).await
    }

    /// Sends `server/discover`. Repeats it if the server rejects it but offers the same version.
    async fn discover(&self, link: &Link) -> Result<ServerInfo, RequestError> {
        let send = async || {
            let (meta, cx) = (self.modern_meta(), CallContext::default().in_background());
            let request = Request::new("server/discover", b"{}", &cx, self.timeouts);
            link.request(&Request { meta: &meta, cancellable: false, idempotent: true, ..request }).await
        };
        let answer = match send().await {
            // Some servers reject the first request and then offer the same version.
            Err(RequestError::Refused(error)) if supported_versions(&error).iter().any(|version| version == MODERN) => {
                send().await?
            }
            Err(RequestError::Refused(error))
                if error.code == code::UNSUPPORTED_VERSION && !supported_versions(&error).is_empty() =>
            {
                let offered = supported_versions(&error);
                if offered.iter().all(|version| is_modern(version)) {
                    let cause = Arc::new(ConnectErrorKind::Version {
                        theirs: self.host.redact_truncated(&offered.join(", "), MAX_VERSION_BYTES),
                    });
                    return Err(RequestError::Disconnected { started: false, cause });
                }
                return Err(RequestError::Refused(error));
            }
            outcome => outcome?,
        };
        let result = self.decode_object(&answer).map_err(RequestError::Unreadable)?;
        let versions = strings(result.get("supportedVersions"));
        if !versions.iter().any(|version| version == MODERN) {
            // A server that offers no supported version is handled like one that rejects the request.
            let message = format!("the server supports {}", versions.join(", "));
            let message = self.host.redact_truncated(&message, MAX_VERSION_BYTES);
            return Err(RequestError::Refused(RpcError { code: code::UNSUPPORTED_VERSION, message, data: None }));
        }
        if self.host.is_own_gateway(&result) {
            return Err(RequestError::disconnected(false, ConnectErrorKind::OwnGateway));
        }
        let info = ServerInfo::read(self.host, &result, Era::Modern, MODERN.to_owned());
        let is_gateway = matches!(self.config.transport, Transport::Socket(_));
        Ok(if is_gateway { info.behind_gateway(&result) } else { info })
    }

    fn modern_meta(&self) -> String {
        format!(
            r#""{}":"{MODERN}","{}":{},"{}":{}"#,
            meta::PROTOCOL_VERSION,
            meta::CLIENT_INFO,
            client_info(),
            meta::CLIENT_CAPABILITIES,
            self.host.capabilities(Era::Modern)
        )
    }

    fn modern_session(&self, link: Link, info: ServerInfo) -> Session {
        Session::new(link, info, self.modern_meta())
    }

    async fn initialize(&self, link: &Link, version: &str) -> RequestResult {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.host.capabilities(Era::Legacy),
            "clientInfo": client_info(),
        });
        let (params, cx) = (params.to_string(), CallContext::default().in_background());
        let request = Request::new("initialize", params.as_bytes(), &cx, self.timeouts);
        link.request(&Request { cancellable: false, idempotent: true, ..request }).await
    }

    async fn legacy_session(&self, link: Link) -> Result<Session, ConnectFailure> {
        let answer = match self.initialize(&link, LATEST_LEGACY).await {
            // The server should offer another version in its result
            // (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#version-negotiation). Some do so in
            // an error.
            Err(RequestError::Refused(error)) => {
                let common =
                    supported_versions(&error).into_iter().find(|offered| LEGACY_VERSIONS.contains(&offered.as_str()));
                match common {
                    Some(version) => self.initialize(&link, &version).await,
                    None => Err(RequestError::Refused(error)),
                }
            }
            outcome => outcome,
        };
        self.finish_initialize(link, &answer.map_err(RequestError::into_connect_error)?).await
    }

    /// Completes a legacy handshake after the response to `initialize`.
    async fn finish_initialize(&self, link: Link, answer: &RawResponse) -> Result<Session, ConnectFailure> {
        let result = self.decode_object(answer).map_err(|what| Arc::new(ConnectErrorKind::Protocol(what)))?;
        if self.host.is_own_gateway(&result) {
            return Err(Arc::new(ConnectErrorKind::OwnGateway));
        }
        let version = match result.get("protocolVersion") {
            Some(Value::String(version)) => version.clone(),
            // A missing version means the first protocol version.
            _ => "2024-11-05".to_owned(),
        };
        if !LEGACY_VERSIONS.contains(&version.as_str()) {
            if is_modern(&version) || version.len() != MODERN.len() {
                return Err(Arc::new(ConnectErrorKind::Version {
                    theirs: self.host.redact_truncated(&version, MAX_VERSION_BYTES),
                }));
            }
            self.host.warn(&format!("the server uses the unknown protocol version {version}"));
        }
        if let Link::Http(http) = &link {
            http.set_era(Era::Legacy, Some(&version));
        }
        let ready = encode_notification("notifications/initialized", &json!({}));
        let notified = tokio::time::timeout_at(self.timeouts.deadline, link.notify(ready)).await;
        match notified {
            Ok(Ok(())) => {}
            // A server that rejects the notification is still ready.
            Ok(Err(RequestError::Disconnected { started: false, cause })) => return Err(cause),
            Ok(Err(error)) => self.host.warn(&format!("the server rejected `notifications/initialized`: {error}")),
            Err(_) => {
                return Err(Arc::new(ConnectErrorKind::Timeout { after: self.config.timeouts.connect, said: None }));
            }
        }
        if let Link::Http(http) = &link {
            http.open_stream().await;
        }
        let info = ServerInfo::read(self.host, &result, Era::Legacy, version);
        Ok(Session::new(link, info, String::new()))
    }

    fn decode_object(&self, answer: &RawResponse) -> Result<Map<String, Value>, String> {
        answer.read(self.host).map_err(|error| self.host.redact(&format!("the result is not an object: {error}")))
    }
}

fn probe_result(outcome: Result<ServerInfo, RequestError>) -> Result<ProbeResult, ConnectFailure> {
    match outcome {
        Ok(info) => Ok(ProbeResult::Modern(Box::new(info))),
        Err(RequestError::Disconnected { cause, .. }) if is_permanent(&cause) => Err(cause),
        Err(RequestError::Disconnected { .. }) => Ok(ProbeResult::Restart(Era::Legacy)),
        // Any other error means that the server does not support `server/discover`.
        Err(_) => Ok(ProbeResult::Legacy),
    }
}
