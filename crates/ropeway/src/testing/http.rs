//! The scripted server behind a URL: streamable HTTP, and legacy HTTP+SSE.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::fault::{Fault, HttpFault};
use super::script::{ExtraTool, OfferedTransports, ResponseFormat, Script, SupportedEras, UnknownSession};
use super::scripted::ScriptedServer;
use super::session::{Deed, Era, MODERN, Session};
use super::stage::Stage;
use super::wire::{Manner, Next, RecordedHttpRequest, Wire};
use super::{headers, tools};
use crate::sync::lock;

const LAST_WORDS: Duration = Duration::from_millis(20);

/// A scripted server behind a URL on this machine. Dropping it ends it.
pub struct HttpScriptedServer {
    server: Arc<Server>,
    port: u16,
    accepting: Mutex<Option<AbortHandle>>,
}

impl HttpScriptedServer {
    /// Starts on a free port.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::start_on(0, script).await
    }

    /// Starts on a port of choice.
    pub async fn start_on(port: u16, script: Script) -> io::Result<Self> {
        Self::start_with(port, script, None).await
    }

    /// Starts a server whose end is the end of this process.
    pub async fn start_process(port: u16, script: Script) -> io::Result<Self> {
        Self::start_with(port, script, Some(|code| std::process::exit(code))).await
    }

    async fn start_with(port: u16, script: Script, exit: Option<fn(i32)>) -> io::Result<Self> {
        let server = Arc::new(Server {
            scripted: ScriptedServer::new(script),
            exit,
            requests: Mutex::default(),
            sessions: Mutex::default(),
            parked: Mutex::default(),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
            names: AtomicU64::new(0),
        });
        let listener = listen(port)?;
        let port = listener.local_addr()?.port();
        let scripted = Self { server, port, accepting: Mutex::default() };
        scripted.accept(listener);
        Ok(scripted)
    }

    /// Where streamable HTTP is.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Where legacy HTTP+SSE is.
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// Every request so far, whatever became of it.
    pub fn requests(&self) -> Vec<RecordedHttpRequest> {
        lock(&self.server.requests).clone()
    }

    /// Forgets all sessions, as if they had expired.
    pub fn forget_sessions(&self) {
        lock(&self.server.sessions).clear();
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        lock(&self.server.sessions).len()
    }

    /// Returns how many connections were accepted so far.
    pub fn accepted_connections(&self) -> usize {
        self.server.accepted.load(Ordering::Relaxed)
    }

    /// Tears all connections and forgets all sessions, as a process does that is started again at once.
    pub fn crash(&self) {
        self.server.crash();
        self.server.scripted.connect();
    }

    /// Stops listening, tears all connections and forgets all sessions.
    pub fn stop(&self) {
        if let Some(accepting) = lock(&self.accepting).take() {
            accepting.abort();
        }
        self.server.crash();
    }

    /// Stops, and starts anew on the same port.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop();
        // The listener is gone only once its task has been told, so the port may be taken for a moment.
        for _ in 0..100 {
            if let Ok(listener) = listen(self.port) {
                self.accept(listener);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    fn accept(&self, listener: TcpListener) {
        self.server.scripted.connect();
        let server = Arc::clone(&self.server);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.accepted.fetch_add(1, Ordering::Relaxed);
                let connection = tokio::spawn(Arc::clone(&server).converse(stream));
                let mut connections = lock(&server.connections);
                connections.retain(|connection| !connection.is_finished());
                connections.push(connection.abort_handle());
            }
        });
        *lock(&self.accepting) = Some(task.abort_handle());
    }
}

/// Listens with a longer queue than the usual 128: on a busy machine hundreds of connections wait to be accepted, and the
/// kernel drops what does not fit, so that clients try again only seconds later.
fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // As `TcpListener::bind` does, so that a server can start again on its port.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)
}

impl Deref for HttpScriptedServer {
    type Target = ScriptedServer;

    fn deref(&self) -> &ScriptedServer {
        &self.server.scripted
    }
}

impl Drop for HttpScriptedServer {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Server {
    scripted: ScriptedServer,
    /// What the end of the server is, when it is more than the end of its connections.
    exit: Option<fn(i32)>,
    requests: Mutex<Vec<RecordedHttpRequest>>,
    sessions: Mutex<HashMap<String, Arc<HttpSession>>>,
    /// Event streams that were cut and can be fetched on.
    parked: Mutex<HashMap<String, Flow>>,
    connections: Mutex<Vec<AbortHandle>>,
    /// How many connections were accepted so far.
    accepted: AtomicUsize,
    names: AtomicU64,
}

/// A session: a conversation, and the streams that it goes over.
struct HttpSession {
    stage: Arc<Stage>,
    streams: Arc<Mutex<Streams>>,
}

/// Where a session's messages go.
#[derive(Default)]
struct Streams {
    requests: HashMap<String, mpsc::UnboundedSender<Deed>>,
    /// The GET stream, or the one stream of legacy HTTP+SSE.
    general: Option<mpsc::UnboundedSender<Deed>>,
    /// What came while there was no such stream.
    backlog: Vec<Deed>,
}

impl Streams {
    fn route(&mut self, deed: Deed) {
        match deed {
            Deed::Done { to } => {
                if let Some(stream) = self.requests.remove(&to.to_string()) {
                    let _ = stream.send(Deed::Done { to });
                }
            }
            Deed::CloseOutput => *self = Self::default(),
            Deed::Say { to: Some(ref to), .. } | Deed::Raw { to: Some(ref to), .. } => {
                match self.requests.get(&to.to_string()) {
                    // A stream that nobody reads any more has lost what is said on it.
                    Some(stream) => drop(stream.send(deed)),
                    None => self.say(deed),
                }
            }
            deed => self.say(deed),
        }
    }

    fn say(&mut self, deed: Deed) {
        let unsaid = match &self.general {
            Some(stream) => stream.send(deed).err().map(|unsaid| unsaid.0),
            None => Some(deed),
        };
        self.backlog.extend(unsaid);
    }

    fn listen(&mut self) -> mpsc::UnboundedReceiver<Deed> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for deed in self.backlog.drain(..) {
            let _ = sender.send(deed);
        }
        self.general = Some(sender);
        receiver
    }

    fn expect(&mut self, id: &Value) -> mpsc::UnboundedReceiver<Deed> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.requests.insert(id.to_string(), sender);
        receiver
    }
}

/// An event stream: what comes on it, and how far it is.
struct Flow {
    name: String,
    events: u64,
    deeds: mpsc::UnboundedReceiver<Deed>,
}

/// Why an event stream was left.
enum Left {
    /// All was said.
    Ended,
    /// The client has gone.
    Gone,
    /// It was cut before its end.
    Cut,
}

impl Server {
    fn crash(&self) {
        lock(&self.sessions).clear();
        lock(&self.parked).clear();
        for connection in lock(&self.connections).drain(..) {
            connection.abort();
        }
    }

    fn name(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.scripted.connections(), self.names.fetch_add(1, Ordering::Relaxed))
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) {
        // Without it small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let mut wire = Wire::new(stream);
        while let Ok(Some(request)) = wire.request().await {
            lock(&self.requests).push(request.clone());
            wire.writing = self.scripted.script().writing;
            match self.answer(&request, &mut wire).await {
                Ok(Next::KeepAlive) => {}
                Ok(Next::Close) | Err(_) => return,
            }
        }
    }

    async fn answer(self: &Arc<Self>, request: &RecordedHttpRequest, wire: &mut Wire) -> io::Result<Next> {
        let message = serde_json::from_slice::<Value>(&request.body).ok();
        let faults = match &message {
            Some(message) if request.method == "POST" => self.scripted.faults_of(message),
            _ => self.scripted.faults(&request.method, None),
        };
        let (http, faults): (Vec<Fault>, Vec<Fault>) =
            faults.into_iter().partition(|fault| matches!(fault, Fault::Http(_)));
        let http: Vec<HttpFault> = http
            .into_iter()
            .filter_map(|fault| match fault {
                Fault::Http(fault) => Some(fault),
                _ => None,
            })
            .collect();
        wire.manner = Manner::of(&http);
        for fault in &http {
            match fault {
                HttpFault::Reset => return Ok(wire.reset()),
                HttpFault::Status { status, headers, body } => {
                    return wire.answer(*status, headers, body.as_bytes(), false).await;
                }
                HttpFault::Accepted => return wire.answer(202, &[], b"", false).await,
                HttpFault::ForgetSession => {
                    if let Some(id) = request.header("mcp-session-id") {
                        lock(&self.sessions).remove(id);
                    }
                }
                _ => {}
            }
        }
        let offers = self.scripted.script().http.offers;
        let path = request.path.split('?').next().unwrap_or_default();
        let path = path.strip_prefix("/moved").unwrap_or(path);
        match (path, request.method.as_str(), offers) {
            ("/mcp", "POST", OfferedTransports::Both | OfferedTransports::Streamable) => {
                self.post(request, message, faults, wire).await
            }
            ("/mcp", "GET", OfferedTransports::Both | OfferedTransports::Streamable) => self.get(request, wire).await,
            ("/mcp", "DELETE", OfferedTransports::Both | OfferedTransports::Streamable) => {
                self.delete(request, wire).await
            }
            ("/sse", "GET", OfferedTransports::Both | OfferedTransports::LegacySse)
            | ("/mcp", "GET", OfferedTransports::LegacySse) => self.legacy_stream(wire).await,
            ("/message", "POST", OfferedTransports::Both | OfferedTransports::LegacySse) => {
                self.legacy_post(request, message, faults, wire).await
            }
            ("/mcp", ..) | ("/sse", _, OfferedTransports::Both | OfferedTransports::LegacySse) => {
                wire.answer(405, &[], b"Method Not Allowed", false).await
            }
            _ => wire.answer(404, &[], b"Not Found", false).await,
        }
    }

    async fn post(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        message: Option<Value>,
        faults: Vec<Fault>,
        wire: &mut Wire,
    ) -> io::Result<Next> {
        let Some(message) = message else {
            return refuse(wire, 400, -32700, "the body is not JSON").await;
        };
        self.scripted.record(&message);
        let accept = request.header("accept").unwrap_or_default();
        if !(accept.contains("application/json") && accept.contains("text/event-stream")) {
            return refuse(wire, 406, -32000, "Not Acceptable: both application/json and text/event-stream").await;
        }
        if !request.header("content-type").is_some_and(|it| it.starts_with("application/json")) {
            return refuse(wire, 415, -32000, "Unsupported Media Type: it must be application/json").await;
        }
        let script = self.scripted.script();
        let version = request.header("mcp-protocol-version");
        let says_modern = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion").is_some();
        let modern = match script.eras {
            SupportedEras::Legacy => false,
            SupportedEras::Modern => true,
            SupportedEras::Both => says_modern || version == Some(MODERN),
        };
        if modern {
            if says_modern || version == Some(MODERN) {
                let extra = script.extra_tools.iter().map(|ExtraTool { definition, .. }| definition.clone());
                let tools: Vec<Value> = tools::definitions(Era::Modern, MODERN).into_iter().chain(extra).collect();
                if let Err(refusal) = headers::check(request, &message, &tools) {
                    let id = message.get("id").cloned().unwrap_or_default();
                    return answer_json(wire, 400, &[], refusal.message(&id).to_string().as_bytes(), false).await;
                }
            }
            return self.post_modern(message, faults, wire).await;
        }
        self.post_legacy(request, message, faults, &script, wire).await
    }

    /// A modern request: a conversation of its own, which ends with its answer.
    async fn post_modern(self: &Arc<Self>, message: Value, faults: Vec<Fault>, wire: &mut Wire) -> io::Result<Next> {
        let session = self.session(Session::stateless(self.scripted.clone()));
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()).cloned() else {
            session.stage.hear(message, faults);
            return wire.answer(202, &[], b"", false).await;
        };
        let listens = message["method"] == "subscriptions/listen";
        let bad_meta = message.pointer("/params/_meta/io.modelcontextprotocol~1clientCapabilities").is_none();
        if listens {
            self.forward_prods(&session.stage);
        }
        let mut deeds = lock(&session.streams).expect(&id);
        session.stage.hear(message, faults);
        let first = deeds.try_recv().ok();
        if let Some(Deed::Say { text, answer: true, .. }) = &first
            && let Some(status) = modern_status(text, bad_meta)
        {
            return answer_json(wire, status, &[], text.as_bytes(), false).await;
        }
        let json = !listens && self.scripted.script().http.answers == ResponseFormat::Json;
        let (name, events) = (self.name("stream"), 0);
        self.reply(&session, &id, first, Flow { name, events, deeds }, json, Era::Modern, &[], wire).await
    }

    async fn post_legacy(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        message: Value,
        faults: Vec<Fault>,
        script: &Script,
        wire: &mut Wire,
    ) -> io::Result<Next> {
        let mut extra = Vec::new();
        let session = if !script.http.sessions {
            self.session(Session::stateless(self.scripted.clone()))
        } else if message["method"] == "initialize" {
            let session = self.session(Session::new(self.scripted.clone()));
            self.forward_prods(&session.stage);
            let name = self.name("session");
            lock(&self.sessions).insert(name.clone(), Arc::clone(&session));
            extra.push(("Mcp-Session-Id".to_owned(), name));
            session
        } else {
            match self.find(request) {
                Some(session) => session,
                None => return self.refuse_session(request, wire).await,
            }
        };
        if let Some(version) = request.header("mcp-protocol-version")
            && !script.legacy_versions.iter().any(|known| known == version)
        {
            return refuse(wire, 400, -32000, "Bad Request: Unsupported protocol version").await;
        }
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()).cloned() else {
            session.stage.hear(message, faults);
            return wire.answer(202, &extra, b"", false).await;
        };
        let deeds = lock(&session.streams).expect(&id);
        session.stage.hear(message, faults);
        let json = script.http.answers == ResponseFormat::Json;
        let (name, events) = (self.name("stream"), 0);
        self.reply(&session, &id, None, Flow { name, events, deeds }, json, Era::Legacy, &extra, wire).await
    }

    /// Answers a request, with one body or with a stream.
    #[expect(clippy::too_many_arguments, reason = "all of it is one request and the way back to its client")]
    async fn reply(
        &self,
        session: &HttpSession,
        id: &Value,
        mut first: Option<Deed>,
        mut flow: Flow,
        json: bool,
        era: Era,
        extra: &[(String, String)],
        wire: &mut Wire,
    ) -> io::Result<Next> {
        if json {
            loop {
                let deed = match first.take() {
                    Some(deed) => Some(deed),
                    None => tokio::select! {
                        deed = flow.deeds.recv() => deed,
                        () = wire.gone() => {
                            if era == Era::Modern {
                                session.stage.cancel(id);
                            }
                            return Ok(Next::Close);
                        }
                    },
                };
                match deed {
                    Some(Deed::Say { text, answer: true, .. }) => {
                        let chunked = self.scripted.script().http.chunked;
                        return answer_json(wire, 200, extra, text.as_bytes(), chunked).await;
                    }
                    Some(Deed::Done { .. }) | None => return Ok(Next::Close),
                    // One body holds one message: what is said on the way goes elsewhere.
                    Some(deed) => lock(&session.streams).say(deed),
                }
            }
        }
        if self.begin(extra, &mut flow, wire).await? == Next::Close {
            return Ok(Next::Close);
        }
        let cut = wire.manner.cut;
        let left = self.flow(&mut flow, first, wire).await.unwrap_or(Left::Gone);
        match (left, era) {
            (Left::Ended, _) => return Ok(Next::KeepAlive),
            (Left::Cut, _) if cut.is_some_and(|cut| cut.resumable) => self.park(flow),
            (Left::Gone, Era::Modern) => session.stage.cancel(id),
            (Left::Gone, Era::Legacy) if self.scripted.script().http.event_ids => self.park(flow),
            _ => {}
        }
        Ok(Next::Close)
    }

    async fn get(self: &Arc<Self>, request: &RecordedHttpRequest, wire: &mut Wire) -> io::Result<Next> {
        let script = self.scripted.script();
        if script.eras == SupportedEras::Modern || !script.http.get_stream {
            return wire.answer(405, &[], b"Method Not Allowed", false).await;
        }
        let parked = request.header("last-event-id").and_then(|id| id.rsplit_once('-')).map(|(name, _)| name);
        let parked = parked.and_then(|name| lock(&self.parked).remove(name));
        let mut flow = match parked {
            Some(flow) => flow,
            None => {
                let Some(session) = self.find(request) else {
                    return self.refuse_session(request, wire).await;
                };
                let deeds = lock(&session.streams).listen();
                Flow { name: self.name("stream"), events: 0, deeds }
            }
        };
        if self.begin(&[], &mut flow, wire).await? == Next::Close {
            return Ok(Next::Close);
        }
        match self.flow(&mut flow, None, wire).await.unwrap_or(Left::Gone) {
            Left::Ended => Ok(Next::KeepAlive),
            Left::Gone | Left::Cut => {
                if script.http.event_ids {
                    self.park(flow);
                }
                Ok(Next::Close)
            }
        }
    }

    async fn delete(&self, request: &RecordedHttpRequest, wire: &mut Wire) -> io::Result<Next> {
        if self.scripted.script().eras == SupportedEras::Modern {
            return wire.answer(405, &[], b"Method Not Allowed", false).await;
        }
        let session = request.header("mcp-session-id").and_then(|id| lock(&self.sessions).remove(id));
        match session {
            Some(_) => wire.answer(200, &[], b"", false).await,
            None => self.refuse_session(request, wire).await,
        }
    }

    /// The one stream of a legacy HTTP+SSE client; the session is over when it is.
    async fn legacy_stream(self: &Arc<Self>, wire: &mut Wire) -> io::Result<Next> {
        let session = self.session(Session::new(self.scripted.clone()));
        self.forward_prods(&session.stage);
        let name = self.name("sse");
        let deeds = lock(&session.streams).listen();
        let mut flow = Flow { name: name.clone(), events: 0, deeds };
        if self.begin(&[], &mut flow, wire).await? == Next::Close {
            return Ok(Next::Close);
        }
        lock(&self.sessions).insert(name.clone(), Arc::clone(&session));
        let endpoint = self.scripted.script().http.endpoint;
        let endpoint = endpoint.as_deref().unwrap_or("/message?sessionId={id}").replace("{id}", &name);
        wire.chunk(format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes()).await?;
        let _ = self.flow(&mut flow, None, wire).await;
        lock(&self.sessions).remove(&name);
        Ok(Next::Close)
    }

    async fn legacy_post(
        &self,
        request: &RecordedHttpRequest,
        message: Option<Value>,
        faults: Vec<Fault>,
        wire: &mut Wire,
    ) -> io::Result<Next> {
        let Some(message) = message else {
            return wire.answer(400, &[], b"Invalid message", false).await;
        };
        let id = request.path.split_once("sessionId=").map(|(_, id)| id);
        let session = id.and_then(|id| lock(&self.sessions).get(id).cloned());
        let Some(session) = session else {
            return wire.answer(404, &[], b"Session not found", false).await;
        };
        self.scripted.record(&message);
        let next = wire.answer(202, &[], b"Accepted", false).await;
        session.stage.hear(message, faults);
        next
    }

    /// The head of an event stream, and its first event when events have ids.
    async fn begin(&self, extra: &[(String, String)], flow: &mut Flow, wire: &mut Wire) -> io::Result<Next> {
        let mut headers = vec![
            ("Content-Type".to_owned(), "text/event-stream".to_owned()),
            ("Cache-Control".to_owned(), "no-cache".to_owned()),
            ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
        ];
        headers.extend_from_slice(extra);
        if wire.head(200, &headers).await? == Next::Close {
            return Ok(Next::Close);
        }
        if self.scripted.script().http.event_ids || wire.manner.cut.is_some() {
            let retry = wire.manner.cut.map_or(1000, |cut| cut.retry_ms);
            wire.chunk(format!("id: {}-{}\nretry: {retry}\ndata: \n\n", flow.name, flow.events).as_bytes()).await?;
        }
        Ok(Next::KeepAlive)
    }

    /// Writes events until there are no more, or nobody to read them.
    async fn flow(&self, flow: &mut Flow, mut first: Option<Deed>, wire: &mut Wire) -> io::Result<Left> {
        let http = self.scripted.script().http;
        let mut messages = 0;
        loop {
            if let Some(cut) = wire.manner.cut
                && messages >= cut.after
            {
                wire.end_chunks().await?;
                return Ok(Left::Cut);
            }
            let comment = async {
                match http.comment_every_ms {
                    Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            let deed = match first.take() {
                Some(deed) => Some(deed),
                None => tokio::select! {
                    biased;
                    deed = flow.deeds.recv() => deed,
                    () = wire.gone() => return Ok(Left::Gone),
                    () = comment => {
                        wire.chunk(b": still here\n\n").await?;
                        continue;
                    }
                },
            };
            match deed {
                Some(Deed::Say { text, .. }) => {
                    flow.events += 1;
                    messages += 1;
                    let mut event = String::new();
                    if http.event_ids || wire.manner.cut.is_some() {
                        event = format!("id: {}-{}\n", flow.name, flow.events);
                    }
                    event.push_str("event: message\ndata: ");
                    event.push_str(&text);
                    event.push_str("\n\n");
                    if wire.manner.truncate {
                        wire.half_chunk(event.as_bytes()).await?;
                        return Ok(Left::Cut);
                    }
                    wire.chunk(event.as_bytes()).await?;
                }
                Some(Deed::Raw { bytes, .. }) if !bytes.is_empty() => wire.chunk(&bytes).await?,
                Some(Deed::Done { .. }) | None => {
                    wire.end_chunks().await?;
                    return Ok(Left::Ended);
                }
                Some(_) => {}
            }
        }
    }

    fn park(&self, flow: Flow) {
        lock(&self.parked).insert(flow.name.clone(), flow);
    }

    fn session(self: &Arc<Self>, session: Session) -> Arc<HttpSession> {
        let streams = Arc::new(Mutex::new(Streams::default()));
        let (routes, server) = (Arc::clone(&streams), Arc::downgrade(self));
        let stage = Stage::new(session, move |deed| match deed {
            Deed::Exit(code) => end(&server, code),
            deed => lock(&routes).route(deed),
        });
        Arc::new(HttpSession { stage, streams })
    }

    /// Lets the test prod this conversation for as long as there is one.
    fn forward_prods(&self, stage: &Arc<Stage>) {
        let mut mailbox = self.scripted.mailbox();
        let stage = Arc::downgrade(stage);
        tokio::spawn(async move {
            while let Some(prod) = mailbox.recv().await {
                let Some(stage) = stage.upgrade() else { return };
                stage.prod(prod);
            }
        });
    }

    fn find(&self, request: &RecordedHttpRequest) -> Option<Arc<HttpSession>> {
        lock(&self.sessions).get(request.header("mcp-session-id")?).cloned()
    }

    async fn refuse_session(&self, request: &RecordedHttpRequest, wire: &mut Wire) -> io::Result<Next> {
        let unknown = self.scripted.script().http.unknown_session;
        if unknown == UnknownSession::NotFound && request.header("mcp-session-id").is_some() {
            return refuse(wire, 404, -32001, "Session not found").await;
        }
        // The TypeScript SDK's servers send this body, which says of no request that it belongs to it.
        let message = match unknown {
            UnknownSession::NotInitialized => "Bad Request: Server not initialized",
            _ => "Bad Request: No valid session ID provided",
        };
        let error = json!({ "code": -32000, "message": message });
        let body = json!({ "jsonrpc": "2.0", "error": error }).to_string();
        answer_json(wire, 400, &[], body.as_bytes(), false).await
    }
}

/// The server ends; where its process is ours, it is as if it were started again at once.
fn end(server: &Weak<Server>, code: i32) {
    let server = Weak::clone(server);
    tokio::spawn(async move {
        // What was said before the end is still to be written.
        tokio::time::sleep(LAST_WORDS).await;
        let Some(server) = server.upgrade() else { return };
        if let Some(exit) = server.exit {
            exit(code);
        }
        server.crash();
        server.scripted.connect();
    });
}

async fn answer_json(
    wire: &mut Wire,
    status: u16,
    extra: &[(String, String)],
    body: &[u8],
    chunked: bool,
) -> io::Result<Next> {
    let mut headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    headers.extend_from_slice(extra);
    wire.answer(status, &headers, body, chunked).await
}

async fn refuse(wire: &mut Wire, status: u16, code: i64, message: &str) -> io::Result<Next> {
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    answer_json(wire, status, &[], body.to_string().as_bytes(), false).await
}

/// The status that a modern error is sent with, when it is not 200.
fn modern_status(text: &str, bad_meta: bool) -> Option<u16> {
    let message: Value = serde_json::from_str(text).ok()?;
    match message["error"]["code"].as_i64()? {
        -32022..=-32020 => Some(400),
        -32602 if bad_meta => Some(400),
        -32601 => Some(404),
        _ => None,
    }
}
