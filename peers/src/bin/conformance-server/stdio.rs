//! The server over a pipe, one message per line; each message may belong to either era.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::call::Outgoing;
use crate::legacy::Session;
use crate::modern;
use crate::server::{Eras, Server, lock};
use crate::wire::{INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, RpcError, VERSION};

/// Serves one client until the input ends.
pub async fn serve(server: Arc<Server>) -> Result<()> {
    let (outlet, messages) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(messages));
    let mut pipe = Pipe { server, outlet, session: None, running: Arc::default() };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if !line.trim().is_empty() {
            pipe.receive(line.as_bytes());
        }
    }
    drop(pipe);
    // Calls that still run keep their outlets; the client is gone.
    writer.abort();
    Ok(())
}

async fn write(mut messages: mpsc::UnboundedReceiver<Outgoing>) -> Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(outgoing) = messages.recv().await {
        if let Outgoing::Message(message) = outgoing {
            stdout.write_all(format!("{message}\n").as_bytes()).await?;
            stdout.flush().await?;
        }
    }
    Ok(())
}

struct Pipe {
    server: Arc<Server>,
    outlet: mpsc::UnboundedSender<Outgoing>,
    session: Option<Arc<Session>>,
    /// The modern calls that can be cancelled.
    running: Arc<Mutex<HashMap<String, AbortHandle>>>,
}

impl Pipe {
    fn receive(&mut self, line: &[u8]) {
        match Incoming::read(line) {
            Err(error) => self.send(error.response(&Value::Null)),
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.start(id.clone(), method, params) {
                    self.send(error.response(&id));
                }
            }
            Ok(Incoming::Notification { method, params }) => {
                if let Some(id) = params.get("requestId")
                    && let Some(running) = lock(&self.running).remove(&id.to_string())
                {
                    running.abort();
                }
                if let Some(session) = &self.session {
                    session.on_notification(&method, &params);
                }
            }
            Ok(Incoming::Response { id, message }) => {
                if let Some(session) = &self.session {
                    session.questions.complete(&id, message);
                }
            }
        }
    }

    fn start(&mut self, id: Value, method: String, params: serde_json::Map<String, Value>) -> Result<(), RpcError> {
        let claims = params.get("_meta").is_some_and(|meta| meta.get(VERSION).is_some());
        let is_modern = match self.server.eras {
            Eras::Legacy => false,
            Eras::Modern => true,
            Eras::Both => claims || method == "server/discover" || method == "subscriptions/listen",
        };
        if is_modern {
            if method == "initialize" && !claims {
                let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
                return Err(RpcError::unsupported_version(asked));
            }
            let call = modern::accept(&self.server, (id, method, params), None, self.outlet.clone())?;
            let (running, key) = (Arc::clone(&self.running), call.id.to_string());
            let ended = key.clone();
            let all = Arc::clone(&self.running);
            let task = tokio::spawn(async move {
                modern::run(call).await;
                lock(&all).remove(&ended);
            });
            if !task.is_finished() {
                lock(&running).insert(key, task.abort_handle());
            }
            return Ok(());
        }
        if method == "initialize" {
            let session = Session::open(&self.server, &params, self.outlet.clone());
            self.send(session.initialized(&id));
            self.session = Some(session);
            return Ok(());
        }
        let Some(session) = &self.session else {
            let unknown = method == "server/discover";
            let code = if unknown { METHOD_NOT_FOUND } else { INVALID_REQUEST };
            return Err(RpcError::new(code, "`initialize` must come first"));
        };
        let mut messages = session.start(id, method, params);
        let outlet = self.outlet.clone();
        tokio::spawn(async move {
            while let Some(outgoing) = messages.recv().await {
                // Fails if the client is gone.
                let _ = outlet.send(outgoing);
            }
        });
        Ok(())
    }

    fn send(&self, message: Value) {
        // Fails if the client is gone.
        let _ = self.outlet.send(Outgoing::Message(message));
    }
}
