//! Turn input.

use ropeway_core::content::ContentPart;
use ropeway_core::conversions::conversions;
use ropeway_core::message::Message;
use ropeway_core::tool::TraceParent;

/// A turn's input: text, content parts, or whole messages such as a prompt's.
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

conversions!(TurnInput {
    text: &str => Message::from(text).into();
    text: String => Message::from(text).into();
    content: Vec<ContentPart> => Message::from(content).into();
    message: Message => vec![message].into();
    messages: Vec<Message> => Self { messages, traceparent: None };
});
