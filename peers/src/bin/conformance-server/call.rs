//! A client's request, and the means to reach that client while it runs.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::questions::Questions;
use crate::rounds::{self, Question};
use crate::server::{Server, lock};
use crate::tasks::Task;
use crate::wire::{Era, INTERNAL, LEVELS, LOG_LEVEL, RpcError, TASKS, notification};

/// A message on its way to the client.
pub enum Outgoing {
    Message(Value),
    /// Ends the request's event stream; the rest arrives after a reconnection.
    EndStream,
}

/// Why a request has no result.
pub enum Interrupt {
    Error(RpcError),
    /// The client must answer questions and repeat the request.
    InputRequired(Value),
}

impl From<RpcError> for Interrupt {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// A request's outcome.
pub type Outcome = Result<Value, Interrupt>;

/// How questions reach the client.
#[derive(Clone)]
pub enum Asker {
    /// As server requests, in the legacy era.
    Requests(Arc<Questions>),
    /// As an `input_required` result, in the modern era; holds this round's answers.
    Rounds(Arc<Mutex<Map<String, Value>>>),
    /// As a task's `inputRequests`.
    Task(Arc<Task>),
}

/// A client's request.
#[derive(Clone)]
pub struct Call {
    pub server: Arc<Server>,
    pub era: Era,
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
    pub capabilities: Value,
    pub asker: Asker,
    /// The log level that a legacy client has set, as an index into [`LEVELS`].
    pub log_level: Arc<Mutex<usize>>,
    pub outlet: mpsc::UnboundedSender<Outgoing>,
}

impl Call {
    /// Returns a string parameter, or "".
    pub fn text(&self, name: &str) -> &str {
        self.params.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns an argument for the tool or prompt.
    pub fn argument(&self, name: &str) -> &Value {
        self.params.get("arguments").map_or(&Value::Null, |arguments| &arguments[name])
    }

    fn meta(&self, name: &str) -> Option<&Value> {
        self.params.get("_meta").and_then(|meta| meta.get(name))
    }

    /// Returns `true` if the client can run tasks.
    pub fn has_tasks(&self) -> bool {
        self.era == Era::Modern && self.capabilities["extensions"].get(TASKS).is_some()
    }

    pub fn send(&self, message: Value) {
        // Fails if the client is gone.
        let _ = self.outlet.send(Outgoing::Message(message));
    }

    /// Sends a log message if the client wants it.
    pub fn log(&self, level: &str, text: &str) {
        let severity = |level: &str| LEVELS.iter().position(|known| *known == level);
        let least = match self.era {
            Era::Legacy => Some(*lock(&self.log_level)),
            Era::Modern => self.meta(LOG_LEVEL).and_then(Value::as_str).and_then(severity),
        };
        if least.is_some_and(|least| severity(level) >= Some(least)) {
            let params = json!({ "level": level, "logger": "conformance-server", "data": text });
            self.send(notification("notifications/message", params));
        }
    }

    /// Sends progress if the client asked for it.
    pub fn progress(&self, progress: u32, total: u32) {
        if let Some(token) = self.meta("progressToken") {
            let params = json!({ "progressToken": token, "progress": progress, "total": total });
            self.send(notification("notifications/progress", params));
        }
    }

    /// Asks the client one question.
    pub async fn ask(&self, question: Question) -> Result<Value, Interrupt> {
        let key = question.key;
        let mut answers = self.ask_all(vec![question]).await?;
        Ok(answers.remove(key).unwrap_or_default())
    }

    /// Asks the client several questions at once.
    pub async fn ask_all(&self, questions: Vec<Question>) -> Result<Map<String, Value>, Interrupt> {
        if let Some(question) = questions.iter().find(|question| !self.can_answer(question)) {
            return Err(RpcError::missing_capability(json!({ question.capability(): {} })).into());
        }
        match &self.asker {
            Asker::Rounds(round) => rounds::answers(self, &mut lock(round), &questions),
            Asker::Task(task) => task.ask_all(&questions).await.map_err(Interrupt::Error),
            Asker::Requests(pending) => {
                let sent: Vec<_> = questions
                    .iter()
                    .map(|question| {
                        let (message, response) = pending.register(question.method, &question.params);
                        self.send(message);
                        (question.key, response)
                    })
                    .collect();
                let mut answers = Map::new();
                for (key, response) in sent {
                    let gone = |_| RpcError::new(INTERNAL, "the session ended");
                    let message = response.await.map_err(gone)?;
                    if let Some(error) = message.get("error") {
                        return Err(RpcError::new(INTERNAL, format!("the client refused: {error}")).into());
                    }
                    answers.insert(key.to_owned(), message["result"].clone());
                }
                Ok(answers)
            }
        }
    }

    /// Returns `true` if the client declared the capability that the question needs.
    pub fn can_answer(&self, question: &Question) -> bool {
        self.capabilities.get(question.capability()).is_some()
    }
}
