//! Input of a turn.

use crate::content::ContentPart;
use crate::message::Message;
use crate::tool::TraceParent;

/// The input of a turn: text, content parts, or whole messages such as those of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnInput {
    pub(super) messages: Vec<Message>,
    pub(super) traceparent: Option<TraceParent>,
}

impl TurnInput {
    /// Makes the turn part of a trace. Overrides [`AgentBuilder::traceparent`](super::AgentBuilder::traceparent).
    #[must_use]
    pub fn with_traceparent(self, parent: TraceParent) -> Self {
        Self { traceparent: Some(parent), ..self }
    }
}

impl From<&str> for TurnInput {
    fn from(text: &str) -> Self {
        Message::from(text).into()
    }
}

impl From<String> for TurnInput {
    fn from(text: String) -> Self {
        Message::from(text).into()
    }
}

impl From<Vec<ContentPart>> for TurnInput {
    fn from(content: Vec<ContentPart>) -> Self {
        Message::from(content).into()
    }
}

impl From<Message> for TurnInput {
    fn from(message: Message) -> Self {
        vec![message].into()
    }
}

impl From<Vec<Message>> for TurnInput {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages, traceparent: None }
    }
}
