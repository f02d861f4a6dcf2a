//! A saying: what a model says in one answer, written as each of the four dialects streams it.

mod anthropic;
mod chat;
mod gemini;
mod responses;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::ModelAnswer;
use crate::message::Dialect;
use crate::provider::{
    Cost, Exchange, ExchangeEnd, Provider, ProviderErrorKind, ProviderSettings, Recording, StopReason, Usage,
};

/// What a signature looks like, and what else is only for the speaker to read.
const SIGNATURE: &str = "c2lnbmVkIGJ5IHRoZSByb3Bld2F5";

/// What a model says in one answer: `ScriptedReply::text("I look.").and_call("a", "echo", json!({"text": "hi"}))`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedReply {
    parts: Vec<Part>,
    stop: Option<StopReason>,
    usage: Usage,
    name: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Reasoning(String),
    Call(Call),
}

#[derive(Clone, Debug, PartialEq)]
struct Call {
    id: String,
    name: String,
    /// As the model wrote them; they need not be JSON.
    arguments: String,
}

/// A saying as it goes over the wire: what is said, and what says that it is over.
struct Written {
    said: String,
    end: String,
}

/// A provider that answers with these sayings, one after the other, to whatever it is asked. Then the recording is over, which
/// is an error.
pub fn model(dialect: Dialect, sayings: impl IntoIterator<Item = ScriptedReply>) -> Provider {
    let numbered = (1..).zip(sayings).map(|(number, saying)| match saying.name {
        Some(_) => saying,
        None => saying.named(format!("answer_{number}")),
    });
    replaying(dialect, numbered.map(|saying| saying.exchange(dialect)))
}

/// A provider that answers with these exchanges, one after the other: for sayings among which there is trouble.
pub fn replaying(dialect: Dialect, exchanges: impl IntoIterator<Item = Exchange>) -> Provider {
    let url = format!("https://{dialect}.example.com/v1");
    let settings = ProviderSettings::new(dialect).with_base_url(url).with_key("a-key-for-tests");
    Provider::replaying(settings, Recording::new(exchanges))
}

impl ScriptedReply {
    /// Nothing: an answer that is empty.
    pub fn nothing() -> Self {
        Self { parts: Vec::new(), stop: None, usage: Usage { input: 10, output: 5, ..Usage::default() }, name: None }
    }

    /// Text, which is streamed word by word.
    pub fn text(text: impl Into<String>) -> Self {
        Self::nothing().and_text(text)
    }

    /// What the model thinks, which is streamed word by word.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::nothing().and_reasoning(text)
    }

    /// A call.
    pub fn call(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self::nothing().and_call(id, name, arguments)
    }

    /// A call whose arguments are written like this; they need not be JSON. (Gemini sends arguments as JSON: what is none is sent
    /// as a string.)
    pub fn written_call(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::nothing().and_written_call(id, name, arguments)
    }

    /// Goes on with text.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Goes on thinking.
    #[must_use]
    pub fn and_reasoning(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Reasoning(text.into()));
        self
    }

    /// Goes on with a call.
    #[must_use]
    pub fn and_call(self, id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        self.and_written_call(id, name, arguments.to_string())
    }

    /// Goes on with a call whose arguments are written like this.
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

    /// Says why it stops, in the dialect's nearest word. Without it, it stops for the results of its calls, or at its end.
    #[must_use]
    pub fn stopping(mut self, stop: StopReason) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Says what it has cost, in tokens; without it, 10 and 5.
    #[must_use]
    pub fn costing(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output, ..Usage::default() };
        self
    }

    /// States the amount charged, in US dollars, as OpenRouter does. Only Chat Completions has a place for it.
    #[must_use]
    pub fn charging(mut self, dollars: f64) -> Self {
        self.usage.cost = Cost::from_usd(dollars);
        self
    }

    /// Names the answer. No two answers of a provider have the same name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The stream of events, as it is in this dialect.
    pub fn events(&self, dialect: Dialect) -> String {
        let Written { said, end } = self.write(dialect);
        said + &end
    }

    /// The answer to any request, for a provider that replays.
    pub fn exchange(&self, dialect: Dialect) -> Exchange {
        Exchange::events(self.events(dialect))
    }

    /// The same, but the connection breaks when everything was said and nothing tells yet that this was all.
    pub fn broken_exchange(&self, dialect: Dialect) -> Exchange {
        let kind = ProviderErrorKind::Connection;
        let message = "the connection broke".to_owned();
        let ending = ExchangeEnd::Failed { kind, message, cause: None, should_retry: None };
        Exchange::events(self.write(dialect).said).with_ending(ending)
    }

    /// The answer of a [`ModelServer`](super::ModelServer).
    pub fn answer(&self, dialect: Dialect) -> ModelAnswer {
        ModelAnswer::events(self.events(dialect))
    }

    fn write(&self, dialect: Dialect) -> Written {
        match dialect {
            Dialect::Anthropic => anthropic::write(self),
            Dialect::Responses => responses::write(self),
            Dialect::Gemini => gemini::write(self),
            Dialect::Chat => chat::write(self),
        }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("answer")
    }

    fn stop(&self) -> StopReason {
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call(_)));
        match &self.stop {
            Some(stop) => stop.clone(),
            None if calls => StopReason::ToolUse,
            None => StopReason::EndTurn,
        }
    }
}

/// A text as models write it: word by word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// One event with data.
fn data(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// One event with data and the data's own type as its name.
fn named(json: &Value) -> String {
    let name = json["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {json}\n\n")
}
