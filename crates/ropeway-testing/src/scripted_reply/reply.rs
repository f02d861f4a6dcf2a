//! A scripted reply's content.

use serde_json::Value;

use ropeway_core::setters::setters;
use ropeway_providers::{Cost, StopReason, Usage};

/// An opaque value, used as a signature and as encrypted reasoning.
pub(super) const SIGNATURE: &str = "c2lnbmVkIGJ5IHRoZSByb3Bld2F5";

/// A scripted model reply.
///
/// # Examples
///
/// ```
/// use ropeway::testing::ScriptedReply;
/// use serde_json::json;
///
/// let reply = ScriptedReply::text("Let me check.").and_call("1", "echo", json!({"text": "hi"}));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedReply {
    pub(super) parts: Vec<Part>,
    pub(super) stop: Option<StopReason>,
    pub(super) usage: Usage,
    pub(super) name: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Reasoning(String),
    Call(Call),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// As the model wrote them, valid JSON or not.
    pub(super) arguments: String,
}

impl ScriptedReply {
    /// Creates an empty reply.
    pub fn nothing() -> Self {
        Self { parts: Vec::new(), stop: None, usage: Usage { input: 10, output: 5, ..Usage::default() }, name: None }
    }

    /// Creates a reply with text, which is streamed word by word.
    pub fn text(text: impl Into<String>) -> Self {
        Self::nothing().and_text(text)
    }

    /// Creates a reply with reasoning, which is streamed word by word.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::nothing().and_reasoning(text)
    }

    /// Creates a reply with a tool call.
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self::nothing().and_call(id, name, arguments)
    }

    /// Creates a reply with a tool call whose arguments are this text, valid JSON or not. Gemini sends arguments as
    /// JSON, and gets invalid ones as a string.
    pub fn written_call(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::nothing().and_written_call(id, name, arguments)
    }

    /// Adds text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Adds reasoning.
    #[must_use]
    pub fn and_reasoning(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Reasoning(text.into()));
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_call(self, id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        self.and_written_call(id, name, arguments.to_string())
    }

    /// Adds a tool call whose arguments are this text.
    #[must_use]
    pub fn and_written_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.parts.push(Part::Call(Call { id: id.into(), name: name.into(), arguments: arguments.into() }));
        self
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("answer")
    }

    pub(super) fn stop(&self) -> StopReason {
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call(_)));
        match &self.stop {
            Some(stop) => stop.clone(),
            None if calls => StopReason::ToolUse,
            None => StopReason::EndTurn,
        }
    }
}

setters!(ScriptedReply {
    /// Sets the cost in US dollars, as OpenRouter reports it. Only Chat Completions supports it.
    charging(dollars: f64) => usage.cost = Cost::from_usd(dollars);
    /// Sets the stop reason. The default is a tool call if the reply has any, and the end of the turn otherwise.
    stopping(stop: StopReason) => stop = Some(stop);
    /// Sets the usage in tokens. The default is 10 and 5.
    costing(input: u64, output: u64) => usage = Usage { input, output, ..Usage::default() };
    /// Sets the id of the reply, which must be unique within a provider.
    named(name: impl Into<String>) => name = Some(name.into());
});
