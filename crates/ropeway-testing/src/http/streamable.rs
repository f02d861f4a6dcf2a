//! Streamable HTTP: POST, GET and DELETE on `/mcp`.

use std::io;
use std::sync::Arc;

use serde_json::Value;

use super::response::{answer_json, modern_status, send_error};
use super::state::HttpState;
use super::streams::{HttpSession, SseStream, StreamEnd};
use crate::action::Action;
use crate::call::MODERN;
use crate::fault::Fault;
use crate::headers;
use crate::http_connection::{ConnectionReuse, HttpConnection, RecordedHttpRequest};
use crate::script::{ExtraTool, ResponseFormat, Script, SupportedEras};
use crate::session::ScriptedSession;
use crate::tools;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::Era;

impl HttpState {
    pub(super) async fn post(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        message: Option<Value>,
        faults: Vec<Fault>,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let Some(message) = message else {
            return send_error(connection, 400, -32700, "the body is not JSON").await;
        };
        self.scripted.record(&message);
        let accept = request.header("accept").unwrap_or_default();
        if !(accept.contains("application/json") && accept.contains("text/event-stream")) {
            return send_error(connection, 406, -32000, "Not Acceptable: both application/json and text/event-stream")
                .await;
        }
        if !request.header("content-type").is_some_and(|it| it.starts_with("application/json")) {
            return send_error(connection, 415, -32000, "Unsupported Media Type: it must be application/json").await;
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
                if let Err(error) = headers::check(request, &message, &tools) {
                    let id = message.get("id").cloned().unwrap_or_default();
                    return answer_json(connection, 400, &[], error.message(&id).to_string().as_bytes(), false).await;
                }
            }
            return self.post_modern(message, faults, connection).await;
        }
        self.post_legacy(request, message, faults, &script, connection).await
    }

    /// Handles a modern request. Each request is a separate exchange that ends with its response.
    pub(super) async fn post_modern(
        self: &Arc<Self>,
        message: Value,
        faults: Vec<Fault>,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let session = self.session(ScriptedSession::stateless(self.scripted.clone()));
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()).cloned() else {
            session.driver.receive(message, faults);
            return connection.answer(202, &[], b"", false).await;
        };
        let listens = message["method"] == "subscriptions/listen";
        let bad_meta = message.pointer("/params/_meta/io.modelcontextprotocol~1clientCapabilities").is_none();
        if listens {
            self.forward_commands(&session.driver);
        }
        let mut actions = lock(&session.streams).register(&id);
        session.driver.receive(message, faults);
        let first = actions.try_recv().ok();
        if let Some(Action::Send { text, answer: true, .. }) = &first
            && let Some(status) = modern_status(text, bad_meta)
        {
            return answer_json(connection, status, &[], text.as_bytes(), false).await;
        }
        let json = !listens && self.scripted.script().http.answers == ResponseFormat::Json;
        let (name, events) = (self.next_id("stream"), 0);
        self.reply(&session, &id, first, SseStream { name, events, actions }, json, Era::Modern, &[], connection).await
    }

    pub(super) async fn post_legacy(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        message: Value,
        faults: Vec<Fault>,
        script: &Script,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let mut extra = Vec::new();
        let session = if !script.http.sessions {
            self.session(ScriptedSession::stateless(self.scripted.clone()))
        } else if message["method"] == "initialize" {
            let session = self.session(ScriptedSession::new(self.scripted.clone()));
            self.forward_commands(&session.driver);
            let name = self.next_id("session");
            lock(&self.sessions).insert(name.clone(), Arc::clone(&session));
            extra.push(("Mcp-Session-Id".to_owned(), name));
            session
        } else {
            match self.find_session(request) {
                Some(session) => session,
                None => return self.reject_session(request, connection).await,
            }
        };
        if let Some(version) = request.header("mcp-protocol-version")
            && !script.legacy_versions.iter().any(|known| known == version)
        {
            return send_error(connection, 400, -32000, "Bad Request: Unsupported protocol version").await;
        }
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()).cloned() else {
            session.driver.receive(message, faults);
            return connection.answer(202, &extra, b"", false).await;
        };
        let actions = lock(&session.streams).register(&id);
        session.driver.receive(message, faults);
        let json = script.http.answers == ResponseFormat::Json;
        let (name, events) = (self.next_id("stream"), 0);
        self.reply(&session, &id, None, SseStream { name, events, actions }, json, Era::Legacy, &extra, connection)
            .await
    }

    /// Answers a request, with one body or with a stream.
    #[expect(clippy::too_many_arguments, reason = "all of it is one request and the way back to its client")]
    pub(super) async fn reply(
        &self,
        session: &HttpSession,
        id: &Value,
        mut first: Option<Action>,
        mut sse: SseStream,
        json: bool,
        era: Era,
        extra: &[(String, String)],
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        if json {
            loop {
                let action = match first.take() {
                    Some(action) => Some(action),
                    None => tokio::select! {
                        action = sse.actions.recv() => action,
                        () = connection.closed() => {
                            if era == Era::Modern {
                                session.driver.cancel(id);
                            }
                            return Ok(ConnectionReuse::Close);
                        }
                    },
                };
                match action {
                    Some(Action::Send { text, answer: true, .. }) => {
                        let chunked = self.scripted.script().http.chunked;
                        return answer_json(connection, 200, extra, text.as_bytes(), chunked).await;
                    }
                    Some(Action::Done { .. }) | None => return Ok(ConnectionReuse::Close),
                    // A JSON body holds one message; the others go to the general stream.
                    Some(action) => lock(&session.streams).send_general(action),
                }
            }
        }
        if self.write_head(extra, &mut sse, connection).await? == ConnectionReuse::Close {
            return Ok(ConnectionReuse::Close);
        }
        let cut = connection.response_faults.cut;
        let end = self.write_events(&mut sse, first, connection).await.unwrap_or(StreamEnd::Disconnected);
        match (end, era) {
            (StreamEnd::Ended, _) => return Ok(ConnectionReuse::KeepAlive),
            (StreamEnd::Cut, _) if cut.is_some_and(|cut| cut.resumable) => self.park(sse),
            (StreamEnd::Disconnected, Era::Modern) => session.driver.cancel(id),
            (StreamEnd::Disconnected, Era::Legacy) if self.scripted.script().http.event_ids => self.park(sse),
            _ => {}
        }
        Ok(ConnectionReuse::Close)
    }

    pub(super) async fn get(
        self: &Arc<Self>,
        request: &RecordedHttpRequest,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let script = self.scripted.script();
        if script.eras == SupportedEras::Modern || !script.http.get_stream {
            return connection.answer(405, &[], b"Method Not Allowed", false).await;
        }
        let parked = request.header("last-event-id").and_then(|id| id.rsplit_once('-')).map(|(name, _)| name);
        let parked = parked.and_then(|name| lock(&self.parked).remove(name));
        let mut sse = match parked {
            Some(sse) => sse,
            None => {
                let Some(session) = self.find_session(request) else {
                    return self.reject_session(request, connection).await;
                };
                let actions = lock(&session.streams).open_general();
                SseStream { name: self.next_id("stream"), events: 0, actions }
            }
        };
        if self.write_head(&[], &mut sse, connection).await? == ConnectionReuse::Close {
            return Ok(ConnectionReuse::Close);
        }
        match self.write_events(&mut sse, None, connection).await.unwrap_or(StreamEnd::Disconnected) {
            StreamEnd::Ended => Ok(ConnectionReuse::KeepAlive),
            StreamEnd::Disconnected | StreamEnd::Cut => {
                if script.http.event_ids {
                    self.park(sse);
                }
                Ok(ConnectionReuse::Close)
            }
        }
    }

    pub(super) async fn delete(
        &self,
        request: &RecordedHttpRequest,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        if self.scripted.script().eras == SupportedEras::Modern {
            return connection.answer(405, &[], b"Method Not Allowed", false).await;
        }
        let session = request.header("mcp-session-id").and_then(|id| lock(&self.sessions).remove(id));
        match session {
            Some(_) => connection.answer(200, &[], b"", false).await,
            None => self.reject_session(request, connection).await,
        }
    }
}
