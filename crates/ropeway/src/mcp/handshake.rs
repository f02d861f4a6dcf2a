//! The handshake: from settings to a session, in whichever era the server speaks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::answer::Answer;
use super::fault::{ConnectErrorKind, Fault};
use super::host::Host;
use super::inbox::{Clocks, Inbox};
use super::session::{ServerInfo, Session};
use super::transport::http::Http;
use super::transport::lines::Lines;
use super::transport::sse::Sse;
use super::transport::{LONGEST_PAUSE, Link, Request, stdio};
use crate::config::{EraChoice, HttpServer, ServerConfig, Transport};
use crate::protocol::{
    Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, RpcError, code, encode_notification, is_modern, meta,
};
use crate::tool::CallContext;

type Failed = Arc<ConnectErrorKind>;

/// How many bytes of a server's name, version or capability are kept.
const MOST_NAME: usize = 1 << 10;

/// How many bytes of a server's instructions are kept: all of them go to the model.
const MOST_INSTRUCTIONS: usize = 64 << 10;

/// How many capabilities are kept at each level, and how many levels.
const MOST_CAPABILITIES: usize = 256;
const CAPABILITY_LEVELS: usize = 6;

/// Connects to the server and agrees on how to speak, within the time that the settings give.
pub(crate) async fn connect(
    config: &ServerConfig,
    host: &Arc<Host>,
    remembered: Option<Era>,
) -> Result<Session, Failed> {
    let timeouts = &config.timeouts;
    // A package runner may have to download first.
    let patience = match &config.transport {
        Transport::Stdio(server) if server.is_package_runner() => timeouts.download.max(timeouts.connect),
        _ => timeouts.connect,
    };
    let limit = patience;
    let now = Instant::now();
    let clocks = Clocks { idle: limit, deadline: now + limit, started: now };
    let (era, is_guess) = match config.era {
        EraChoice::Legacy => (Some(Era::Legacy), false),
        EraChoice::Modern => (Some(Era::Modern), false),
        EraChoice::Auto => (remembered, remembered.is_some()),
    };
    let handshake = Handshake { config, host, clocks, is_guess };
    // The clocks end every request; this ends what is no request, such as the opening of a stream.
    let last_words = Duration::from_millis(500);
    let hanging = async {
        if patience == timeouts.connect {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(now + timeouts.connect.saturating_sub(LONGEST_PAUSE)).await;
        host.until_idle().await;
        tokio::time::sleep_until(now + timeouts.connect).await;
    };
    tokio::select! {
        biased;
        outcome = tokio::time::timeout(limit + last_words, handshake.run(era)) => match outcome {
            Ok(outcome) => outcome,
            Err(_) => Err(Arc::new(ConnectErrorKind::Timeout { after: limit, said: None })),
        },
        () = hanging => Err(Arc::new(ConnectErrorKind::Timeout { after: now.elapsed(), said: host.stderr_reason().await })),
    }
}

/// Who we are, to every server.
fn client_info() -> Value {
    json!({"name": "ropeway", "version": env!("CARGO_PKG_VERSION")})
}

struct Handshake<'a> {
    config: &'a ServerConfig,
    host: &'a Arc<Host>,
    clocks: Clocks,
    /// The era is remembered from an earlier connection, and the server may speak another one by now.
    is_guess: bool,
}

/// What the probe found out.
enum Verdict {
    /// The server speaks the modern era.
    Modern(Box<ServerInfo>),
    /// The server does not; the link can still be used.
    Legacy,
    /// The server has answered `initialize` beside the probe.
    Initialized(Answer),
    /// The server did not survive the question.
    Gone,
}

impl Handshake<'_> {
    async fn run(&self, era: Option<Era>) -> Result<Session, Failed> {
        match &self.config.transport {
            Transport::Stdio(_) | Transport::InProcess(_) => self.lines(era).await,
            Transport::Http(server) => self.http(server, era).await,
            Transport::Sse(server) => self.sse(server).await,
        }
    }

    fn inbox(&self) -> Arc<Inbox> {
        Arc::new(Inbox::new(self.host.clone()))
    }

    fn open_lines(&self) -> Result<Arc<Lines>, Failed> {
        let limits = &self.config.limits;
        match &self.config.transport {
            Transport::Stdio(server) => Ok(stdio::start(server, self.inbox(), limits)?),
            Transport::InProcess(server) => {
                let (reader, writer) = tokio::io::split(server.open());
                Ok(Lines::start(reader, writer, self.inbox(), limits.message_bytes, None))
            }
            Transport::Http(_) | Transport::Sse(_) => {
                Err(Arc::new(ConnectErrorKind::Protocol("not a pipe".to_owned())))
            }
        }
    }

    /// A timeout tells more with what the server said before it.
    async fn explain(&self, failed: Failed, lines: &Lines) -> Failed {
        match (&*failed, lines.stderr()) {
            (ConnectErrorKind::Timeout { after, said: None }, Some(stderr)) => {
                Arc::new(ConnectErrorKind::Timeout { after: *after, said: stderr.reason().await })
            }
            _ => failed,
        }
    }

    async fn lines(&self, era: Option<Era>) -> Result<Session, Failed> {
        let lines = self.open_lines()?;
        let link = Link::Lines(lines.clone());
        let outcome = match era {
            Some(Era::Modern) => match self.discover(&link).await {
                Ok(info) => return Ok(self.modern(link, info)),
                Err(fault) => Err(fault.into_connect_error()),
            },
            Some(Era::Legacy) => match self.legacy(link).await {
                Err(failed) if self.is_guess && may_be_modern(&failed) => {
                    lines.close(self.config.timeouts.close).await;
                    return Box::pin(Handshake { is_guess: false, ..*self }.lines(None)).await;
                }
                outcome => outcome,
            },
            None => match self.probe(&link).await {
                Ok(Verdict::Modern(info)) => return Ok(self.modern(link, *info)),
                Ok(Verdict::Initialized(answer)) => self.initialized(link, &answer).await,
                // Some servers refuse `initialize` once they have refused something else: they get a new start.
                Ok(Verdict::Legacy) => match self.legacy(link).await {
                    Err(failed) if !matches!(*failed, ConnectErrorKind::Timeout { .. }) => {
                        return self.start_over(&lines).await;
                    }
                    outcome => outcome,
                },
                Ok(Verdict::Gone) => return self.start_over(&lines).await,
                Err(failed) => Err(failed),
            },
        };
        match outcome {
            Ok(session) => Ok(session),
            Err(failed) => Err(self.explain(failed, &lines).await),
        }
    }

    /// Starts the server again as a legacy one, once the first is gone: two at a time may not get along.
    async fn start_over(&self, first: &Lines) -> Result<Session, Failed> {
        first.close(self.config.timeouts.close).await;
        let lines = self.open_lines()?;
        match self.legacy(Link::Lines(lines.clone())).await {
            Ok(session) => Ok(session),
            Err(failed) => Err(self.explain(failed, &lines).await),
        }
    }

    /// Asks a server on a pipe for its era. One that stays silent is sent `initialize` beside the question.
    async fn probe(&self, link: &Link) -> Result<Verdict, Failed> {
        let mut discover = std::pin::pin!(self.discover(link));
        tokio::select! {
            outcome = &mut discover => return verdict(outcome),
            () = tokio::time::sleep(self.probe_time()) => {}
        }
        let mut initialize = std::pin::pin!(self.initialize(link, LATEST_LEGACY));
        let (mut refused, mut asked) = (None, true);
        loop {
            tokio::select! {
                outcome = &mut discover, if asked => match verdict(outcome)? {
                    Verdict::Legacy if refused.is_none() => asked = false,
                    verdict => return Ok(verdict),
                },
                outcome = &mut initialize, if refused.is_none() => match outcome {
                    Ok(answer) => return Ok(Verdict::Initialized(answer)),
                    Err(Fault::Refused(_)) if asked => refused = Some(()),
                    Err(Fault::Refused(_) | Fault::Lost { .. }) => return Ok(Verdict::Gone),
                    Err(fault) => return Err(fault.into_connect_error()),
                },
            }
        }
    }

    async fn http(&self, server: &HttpServer, era: Option<Era>) -> Result<Session, Failed> {
        match self.http_in(server, era).await {
            Err(failed) if self.is_guess && era == Some(Era::Legacy) && may_be_modern(&failed) => {
                // What the server said first counts where the probe says no more.
                Handshake { is_guess: false, ..*self }.http_in(server, None).await.map_err(|_| failed)
            }
            outcome => outcome,
        }
    }

    async fn http_in(&self, server: &HttpServer, era: Option<Era>) -> Result<Session, Failed> {
        let http = Http::new(server, self.inbox(), self.config.limits.message_bytes)?;
        let link = Link::Http(http.clone());
        if era != Some(Era::Legacy) {
            http.speak(Era::Modern, Some(MODERN));
            let probe = Handshake { clocks: self.probe_clocks(era), ..*self };
            match probe.discover(&link).await {
                Ok(info) => return Ok(self.modern(link, info)),
                Err(fault) if era == Some(Era::Modern) || is_final(&fault) => return Err(fault.into_connect_error()),
                Err(_) => {}
            }
        }
        http.speak(Era::Legacy, None);
        match self.legacy(link).await {
            Ok(session) => Ok(session),
            Err(failed) if server.sse_fallback && may_be_sse(&failed) => match self.sse(server).await {
                Ok(session) => Ok(session),
                // That was a guess; what the server said first is what counts.
                Err(_) => Err(failed),
            },
            Err(failed) => Err(failed),
        }
    }

    /// Returns how long the probe may take: never more than half of the time that is left.
    fn probe_time(&self) -> Duration {
        let left = self.clocks.deadline.saturating_duration_since(Instant::now());
        self.config.timeouts.probe.min(left / 2).max(Duration::from_millis(1))
    }

    /// A server that may be legacy gets less time for the question than for the whole handshake.
    fn probe_clocks(&self, era: Option<Era>) -> Clocks {
        match era {
            Some(_) => self.clocks,
            None => Clocks { idle: self.probe_time(), ..self.clocks },
        }
    }

    async fn sse(&self, server: &HttpServer) -> Result<Session, Failed> {
        let sse = Sse::open(server, self.inbox(), self.config.limits.message_bytes).await?;
        self.legacy(Link::Sse(sse)).await
    }

    /// Asks with `server/discover`; a server that wants another modern version is asked once more.
    async fn discover(&self, link: &Link) -> Result<ServerInfo, Fault> {
        let ask = async || {
            let meta = self.modern_meta();
            let request =
                Request { meta: &meta, cancellable: false, idempotent: true, ..Request::new("server/discover", b"{}") };
            link.request(&request, &CallContext::default(), self.clocks).await
        };
        let answer = match ask().await {
            // Some refuse the first request with the very version that they offer then.
            Err(Fault::Refused(error)) if supported(&error).iter().any(|version| version == MODERN) => ask().await?,
            Err(Fault::Refused(error)) if error.code == code::UNSUPPORTED_VERSION && !supported(&error).is_empty() => {
                let theirs = supported(&error);
                if theirs.iter().all(|version| is_modern(version)) {
                    let cause = Arc::new(ConnectErrorKind::Version {
                        theirs: self.host.hide_part(&theirs.join(", "), MOST_NAME),
                    });
                    return Err(Fault::Lost { started: false, cause });
                }
                return Err(Fault::Refused(error));
            }
            outcome => outcome?,
        };
        let result = self.object(&answer).map_err(Fault::Unreadable)?;
        let versions = strings(result.get("supportedVersions"));
        if !versions.iter().any(|version| version == MODERN) {
            // An answer that offers no version of ours is as good as a refusal.
            let message = self.host.hide_part(&format!("it supports {}", versions.join(", ")), MOST_NAME);
            return Err(Fault::Refused(RpcError { code: code::UNSUPPORTED_VERSION, message, data: None }));
        }
        Ok(self.info(&result, Era::Modern, MODERN.to_owned()))
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

    fn modern(&self, link: Link, info: ServerInfo) -> Session {
        Session::new(link, info, self.modern_meta())
    }

    async fn initialize(&self, link: &Link, version: &str) -> Result<Answer, Fault> {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.host.capabilities(Era::Legacy),
            "clientInfo": client_info(),
        });
        let params = params.to_string();
        let request = Request { cancellable: false, idempotent: true, ..Request::new("initialize", params.as_bytes()) };
        link.request(&request, &CallContext::default(), self.clocks).await
    }

    async fn legacy(&self, link: Link) -> Result<Session, Failed> {
        let answer = match self.initialize(&link, LATEST_LEGACY).await {
            // The spec lets the server name another version in its result; some name it in an error.
            Err(Fault::Refused(error)) => {
                let common = supported(&error).into_iter().find(|theirs| LEGACY_VERSIONS.contains(&theirs.as_str()));
                match common {
                    Some(version) => self.initialize(&link, &version).await,
                    None => Err(Fault::Refused(error)),
                }
            }
            outcome => outcome,
        };
        self.initialized(link, &answer.map_err(Fault::into_connect_error)?).await
    }

    /// The server has answered `initialize`: its version counts from here on.
    async fn initialized(&self, link: Link, answer: &Answer) -> Result<Session, Failed> {
        let result = self.object(answer).map_err(|what| Arc::new(ConnectErrorKind::Protocol(what)))?;
        let version = match result.get("protocolVersion") {
            Some(Value::String(version)) => version.clone(),
            // A server that names none behaves like the first ones did.
            _ => "2024-11-05".to_owned(),
        };
        if !LEGACY_VERSIONS.contains(&version.as_str()) {
            if is_modern(&version) || version.len() != MODERN.len() {
                return Err(Arc::new(ConnectErrorKind::Version { theirs: self.host.hide_part(&version, MOST_NAME) }));
            }
            self.host.warn(&format!("the server speaks protocol version {version}, which nobody has published"));
        }
        if let Link::Http(http) = &link {
            http.speak(Era::Legacy, Some(&version));
        }
        let ready = encode_notification("notifications/initialized", &json!({}));
        let told = tokio::time::timeout_at(self.clocks.deadline, link.notify(ready)).await;
        match told {
            Ok(Ok(())) => {}
            // A server that minds being told is still ready; one that is gone is not.
            Ok(Err(Fault::Lost { started: false, cause })) => return Err(cause),
            Ok(Err(fault)) => self.host.warn(&format!("the server did not like to hear that we are ready: {fault}")),
            Err(_) => {
                return Err(Arc::new(ConnectErrorKind::Timeout { after: self.config.timeouts.connect, said: None }));
            }
        }
        if let Link::Http(http) = &link {
            http.open_stream().await;
        }
        let info = self.info(&result, Era::Legacy, version);
        Ok(Session::new(link, info, String::new()))
    }

    fn object(&self, answer: &Answer) -> Result<Map<String, Value>, String> {
        answer.read(self.host).map_err(|error| self.host.hide(&format!("the result is not an object: {error}")))
    }

    fn info(&self, result: &Map<String, Value>, era: Era, protocol_version: String) -> ServerInfo {
        let stamped = result.get("_meta").and_then(|meta| meta.get(meta::SERVER_INFO));
        let server = result.get("serverInfo").or(stamped).unwrap_or(&Value::Null);
        // A model's vendor sees it, and so do people.
        let text = |value: &Value, most: usize| value.as_str().map(|text| self.host.hide(&shortened(text, most)));
        let instructions = result.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(length) = instructions.map(str::len).filter(|length| *length > MOST_INSTRUCTIONS) {
            let message = format!("its instructions have {length} bytes: those after {MOST_INSTRUCTIONS} are left out");
            self.host.warn(&message);
        }
        let empty = Map::new();
        let capabilities = result.get("capabilities").and_then(Value::as_object).unwrap_or(&empty);
        ServerInfo {
            name: text(&server["name"], MOST_NAME).unwrap_or_else(|| self.config.alias.to_string()),
            version: text(&server["version"], MOST_NAME).unwrap_or_default(),
            era,
            protocol_version,
            capabilities: pruned(capabilities, CAPABILITY_LEVELS),
            instructions: instructions.map(|text| self.host.hide(&shortened(text, MOST_INSTRUCTIONS))),
        }
    }
}

/// The beginning of a text.
fn shortened(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// Truncates capabilities, which are kept as long as the connection.
fn pruned(capabilities: &Map<String, Value>, levels: usize) -> Map<String, Value> {
    let keep = |value: &Value| match value {
        Value::Object(inner) if levels > 1 => Value::Object(pruned(inner, levels - 1)),
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(items) => {
            let plain = |item: &&Value| !item.is_object() && !item.is_array();
            let items = items.iter().filter(plain).take(MOST_CAPABILITIES);
            items
                .map(|item| item.as_str().map_or_else(|| item.clone(), |text| shortened(text, MOST_NAME).into()))
                .collect()
        }
        Value::String(text) => shortened(text, MOST_NAME).into(),
        plain => plain.clone(),
    };
    let entries = capabilities.iter().take(MOST_CAPABILITIES);
    entries.map(|(name, value)| (shortened(name, MOST_NAME), keep(value))).collect()
}

fn verdict(outcome: Result<ServerInfo, Fault>) -> Result<Verdict, Failed> {
    match outcome {
        Ok(info) => Ok(Verdict::Modern(Box::new(info))),
        // A new start would not teach it our version.
        Err(Fault::Lost { cause, .. }) if matches!(*cause, ConnectErrorKind::Version { .. }) => Err(cause),
        Err(Fault::Lost { .. }) => Ok(Verdict::Gone),
        // Whatever else it says: it does not know the question.
        Err(_) => Ok(Verdict::Legacy),
    }
}

/// Over HTTP: would `initialize` meet the same fate?
fn is_final(fault: &Fault) -> bool {
    match fault {
        Fault::Lost { cause, .. } => {
            !matches!(**cause, ConnectErrorKind::Status { .. } | ConnectErrorKind::Hangup { .. })
        }
        Fault::Refused(error) => matches!(error.code, code::HEADER_MISMATCH | code::MISSING_CAPABILITY),
        Fault::Cancelled => true,
        Fault::Timeout { .. } | Fault::TooLarge { .. } | Fault::Unreadable(_) | Fault::WebPage(_) => false,
    }
}

/// A refused `initialize` may mean a server that wants its messages elsewhere.
fn may_be_sse(failed: &ConnectErrorKind) -> bool {
    match failed {
        ConnectErrorKind::Status { status, .. } => (400..500).contains(status) && *status != 429,
        ConnectErrorKind::Refused(_) | ConnectErrorKind::Protocol(_) | ConnectErrorKind::WebPage { .. } => true,
        _ => false,
    }
}

/// Returns whether a server that was taken for a legacy one may be a modern one by now: it refuses `initialize`, or ends over it.
fn may_be_modern(failed: &ConnectErrorKind) -> bool {
    match failed {
        ConnectErrorKind::Refused(_)
        | ConnectErrorKind::Protocol(_)
        | ConnectErrorKind::Version { .. }
        | ConnectErrorKind::Exited { .. }
        | ConnectErrorKind::Hangup { .. } => true,
        ConnectErrorKind::Status { status, .. } => (400..500).contains(status) && *status != 429,
        _ => false,
    }
}

fn supported(error: &RpcError) -> Vec<String> {
    strings(error.data.as_ref().and_then(|data| data.get("supported")))
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let texts = list.and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|version| version.as_str().map(str::to_owned)).collect()
}
