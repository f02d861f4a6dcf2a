//! Scripted model replies, streamed as each of the four dialects does.

mod anthropic;
mod chat;
mod encoded;
mod gemini;
mod reply;
mod responses;
#[cfg(test)]
mod tests;

use self::encoded::EncodedReply;
pub use self::reply::ScriptedReply;
use super::model_server::ModelAnswer;
use ropeway_core::message::Dialect;
use ropeway_providers::{Exchange, ExchangeEnd, Provider, ProviderErrorKind, ProviderSettings, Recording};

/// Creates a provider that answers with these replies, one per request. Further requests fail with an error.
pub fn model(dialect: Dialect, replies: impl IntoIterator<Item = ScriptedReply>) -> Provider {
    let numbered = (1..).zip(replies).map(|(number, reply)| match reply.name {
        Some(_) => reply,
        None => reply.named(format!("answer_{number}")),
    });
    replaying(dialect, numbered.map(|reply| reply.exchange(dialect)))
}

/// Creates a provider that answers with these exchanges, one per request. Unlike [`model`], they may include failures.
pub fn replaying(dialect: Dialect, exchanges: impl IntoIterator<Item = Exchange>) -> Provider {
    let url = format!("https://{dialect}.example.com/v1");
    let settings = ProviderSettings::new(dialect).with_base_url(url).with_key("a-key-for-tests");
    Provider::replaying(settings, Recording::new(exchanges))
}

impl ScriptedReply {
    /// Returns the event stream in a dialect.
    pub fn events(&self, dialect: Dialect) -> String {
        let EncodedReply { content, end } = self.write(dialect);
        content + &end
    }

    /// Returns the reply as an exchange that answers any request.
    pub fn exchange(&self, dialect: Dialect) -> Exchange {
        Exchange::events(self.events(dialect))
    }

    /// Like [`exchange`](Self::exchange), with a connection that breaks after the content and before the end.
    pub fn broken_exchange(&self, dialect: Dialect) -> Exchange {
        let kind = ProviderErrorKind::Connection;
        let message = "the connection broke".to_owned();
        let ending = ExchangeEnd::Failed { kind, message, cause: None, should_retry: None };
        Exchange::events(self.write(dialect).content).with_ending(ending)
    }

    /// Returns the reply as a [`ModelServer`](super::ModelServer) response.
    pub fn answer(&self, dialect: Dialect) -> ModelAnswer {
        ModelAnswer::events(self.events(dialect))
    }

    fn write(&self, dialect: Dialect) -> EncodedReply {
        match dialect {
            Dialect::Anthropic => anthropic::write(self),
            Dialect::Responses => responses::write(self),
            Dialect::Gemini => gemini::write(self),
            Dialect::Chat => chat::write(self),
        }
    }
}
