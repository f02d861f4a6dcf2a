//! Event streams, and the legacy HTTP+SSE transport.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::state::HttpState;
use super::streams::{SseStream, StreamEnd};
use crate::action::Action;
use crate::fault::Fault;
use crate::http_connection::{ConnectionReuse, HttpConnection, RecordedHttpRequest};
use crate::session::ScriptedSession;
use ropeway_core::sync::lock;

impl HttpState {
    /// Writes an event stream's head, and its first event if events have ids.
    pub(super) async fn write_head(
        &self,
        extra: &[(String, String)],
        sse: &mut SseStream,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let mut headers = vec![
            ("Content-Type".to_owned(), "text/event-stream".to_owned()),
            ("Cache-Control".to_owned(), "no-cache".to_owned()),
            ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
        ];
        headers.extend_from_slice(extra);
        if connection.head(200, &headers).await? == ConnectionReuse::Close {
            return Ok(ConnectionReuse::Close);
        }
        if self.scripted.script().http.event_ids || connection.response_faults.cut.is_some() {
            let retry = connection.response_faults.cut.map_or(1000, |cut| cut.retry_ms);
            connection.chunk(format!("id: {}-{}\nretry: {retry}\ndata: \n\n", sse.name, sse.events).as_bytes()).await?;
        }
        Ok(ConnectionReuse::KeepAlive)
    }

    /// Writes events until the stream ends or the client disconnects.
    pub(super) async fn write_events(
        &self,
        sse: &mut SseStream,
        mut first: Option<Action>,
        connection: &mut HttpConnection,
    ) -> io::Result<StreamEnd> {
        let http = self.scripted.script().http;
        let mut messages = 0;
        loop {
            if let Some(cut) = connection.response_faults.cut
                && messages >= cut.after
            {
                connection.end_chunks().await?;
                return Ok(StreamEnd::Cut);
            }
            let comment = async {
                match http.comment_every_ms {
                    Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            let action = match first.take() {
                Some(action) => Some(action),
                None => tokio::select! {
                    biased;
                    action = sse.actions.recv() => action,
                    () = connection.closed() => return Ok(StreamEnd::Disconnected),
                    () = comment => {
                        connection.chunk(b": still here\n\n").await?;
                        continue;
                    }
                },
            };
            match action {
                Some(Action::Send { text, .. }) => {
                    sse.events += 1;
                    messages += 1;
                    let mut event = String::new();
                    if http.event_ids || connection.response_faults.cut.is_some() {
                        event = format!("id: {}-{}\n", sse.name, sse.events);
                    }
                    event.push_str("event: message\ndata: ");
                    event.push_str(&text);
                    event.push_str("\n\n");
                    if connection.response_faults.truncate {
                        connection.half_chunk(event.as_bytes()).await?;
                        return Ok(StreamEnd::Cut);
                    }
                    connection.chunk(event.as_bytes()).await?;
                }
                Some(Action::Raw { bytes, .. }) if !bytes.is_empty() => connection.chunk(&bytes).await?,
                Some(Action::Done { .. }) | None => {
                    connection.end_chunks().await?;
                    return Ok(StreamEnd::Ended);
                }
                Some(_) => {}
            }
        }
    }

    /// Serves a legacy HTTP+SSE client's only stream, which ends the session.
    pub(super) async fn serve_sse_stream(
        self: &Arc<Self>,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let session = self.session(ScriptedSession::new(self.scripted.clone()));
        self.forward_commands(&session.driver);
        let name = self.next_id("sse");
        let actions = lock(&session.streams).open_general();
        let mut sse = SseStream { name: name.clone(), events: 0, actions };
        if self.write_head(&[], &mut sse, connection).await? == ConnectionReuse::Close {
            return Ok(ConnectionReuse::Close);
        }
        lock(&self.sessions).insert(name.clone(), Arc::clone(&session));
        let endpoint = self.scripted.script().http.endpoint;
        let endpoint = endpoint.as_deref().unwrap_or("/message?sessionId={id}").replace("{id}", &name);
        connection.chunk(format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes()).await?;
        let _ = self.write_events(&mut sse, None, connection).await;
        lock(&self.sessions).remove(&name);
        Ok(ConnectionReuse::Close)
    }

    pub(super) async fn post_sse(
        &self,
        request: &RecordedHttpRequest,
        message: Option<Value>,
        faults: Vec<Fault>,
        connection: &mut HttpConnection,
    ) -> io::Result<ConnectionReuse> {
        let Some(message) = message else {
            return connection.answer(400, &[], b"Invalid message", false).await;
        };
        let id = request.path.split_once("sessionId=").map(|(_, id)| id);
        let session = id.and_then(|id| lock(&self.sessions).get(id).cloned());
        let Some(session) = session else {
            return connection.answer(404, &[], b"Session not found", false).await;
        };
        self.scripted.record(&message);
        let next = connection.answer(202, &[], b"Accepted", false).await;
        session.driver.receive(message, faults);
        next
    }
}
