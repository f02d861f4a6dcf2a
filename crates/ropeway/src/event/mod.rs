//! Events: what happens, for whoever wants to know.

mod display;
mod events;
mod log;

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;

#[cfg(feature = "bridge")]
pub(crate) use self::events::Relay;
pub use self::events::{EventStream, Events};
pub use self::log::{EventLog, timestamp};
use crate::tool::{Alias, CallId, Progress};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event")]
#[non_exhaustive]
pub enum Event {
    /// A connection is being made.
    #[serde(rename = "server.connecting")]
    Connecting {
        /// The server.
        server: Alias,
        /// How many tries have failed in a row.
        failures: u32,
    },
    /// A connection is made.
    #[serde(rename = "server.ready")]
    Ready {
        /// The server.
        server: Alias,
        /// The protocol version that was agreed on.
        protocol_version: String,
    },
    /// A connection is lost, or could not be made.
    #[serde(rename = "server.down")]
    Down {
        /// The server.
        server: Alias,
        /// Why.
        cause: String,
        /// When it will be tried again; absent when it will not.
        #[serde(rename = "retry_in_ms", serialize_with = "maybe_milliseconds")]
        retry_in: Option<Duration>,
    },
    /// A server wants to know who is asking.
    #[serde(rename = "server.needs_auth")]
    NeedsAuth {
        /// The server.
        server: Alias,
    },
    /// A connection was closed by its owner.
    #[serde(rename = "server.closed")]
    Closed {
        /// The server.
        server: Alias,
    },
    /// A server's tools are not what they were.
    #[serde(rename = "server.tools_changed")]
    ToolsChanged {
        /// The server.
        server: Alias,
    },
    /// A server's prompts are not what they were.
    #[serde(rename = "server.prompts_changed")]
    PromptsChanged {
        /// The server.
        server: Alias,
    },
    /// A server's resources are not what they were.
    #[serde(rename = "server.resources_changed")]
    ResourcesChanged {
        /// The server.
        server: Alias,
    },
    /// A resource that we subscribed to has changed.
    #[serde(rename = "server.resource_updated")]
    ResourceUpdated {
        /// The server.
        server: Alias,
        /// Where the resource lives.
        uri: String,
    },
    /// A tool answered; also when its answer is that it failed.
    #[serde(rename = "mcp.tool_called")]
    ToolCalled {
        /// The server.
        server: Alias,
        /// The server's name for the tool.
        tool: String,
        /// The call.
        call: CallId,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "milliseconds")]
        took: Duration,
        /// The tool reports a failure.
        is_error: bool,
        /// What it was called with, where [`Events::with_payloads`] asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<Value>>,
        /// What it answered, where [`Events::with_payloads`] asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Value>>,
    },
    /// A call has no answer.
    #[serde(rename = "mcp.tool_failed")]
    ToolFailed {
        /// The server.
        server: Alias,
        /// The server's name for the tool.
        tool: String,
        /// The call.
        call: CallId,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "milliseconds")]
        took: Duration,
        /// Why there is no answer.
        cause: String,
        /// What it was called with, where [`Events::with_payloads`] asks for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<Value>>,
    },
    /// A call has come a little further.
    #[serde(rename = "progress")]
    Progress {
        /// The server.
        server: Alias,
        /// The call.
        call: CallId,
        /// How far.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A server has something to say.
    #[serde(rename = "log")]
    Log {
        /// The server.
        server: Alias,
        /// How important it says that it is.
        level: String,
        /// Which part of the server speaks.
        logger: Option<String>,
        /// What it says.
        data: Value,
    },
    /// A new configuration is in use.
    #[serde(rename = "config.reloaded")]
    Reloaded {
        /// Servers that are new.
        started: Vec<Alias>,
        /// Servers that are gone.
        stopped: Vec<Alias>,
        /// Servers whose entry has changed.
        restarted: Vec<Alias>,
    },
    /// Something is odd but was dealt with.
    #[serde(rename = "warning")]
    Warning {
        /// The server, when it is about one.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<Alias>,
        /// What is odd.
        message: String,
    },
    /// The listener was too slow: this many events are lost to it.
    #[serde(rename = "lagged")]
    Lagged {
        /// How many.
        missed: u64,
    },
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_micros() as f64 / 1000.0)
}

fn maybe_milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => milliseconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

/// The server that an event is about, shared or to be changed, as the event is.
macro_rules! server_of {
    ($event:expr) => {
        match $event {
            Event::Connecting { server, .. }
            | Event::Ready { server, .. }
            | Event::Down { server, .. }
            | Event::NeedsAuth { server }
            | Event::Closed { server }
            | Event::ToolsChanged { server }
            | Event::PromptsChanged { server }
            | Event::ResourcesChanged { server }
            | Event::ResourceUpdated { server, .. }
            | Event::ToolCalled { server, .. }
            | Event::ToolFailed { server, .. }
            | Event::Progress { server, .. }
            | Event::Log { server, .. }
            | Event::Warning { server: Some(server), .. } => Some(server),
            Event::Warning { server: None, .. } | Event::Reloaded { .. } | Event::Lagged { .. } => None,
        }
    };
}

impl Event {
    /// The server that it is about, when it is about one.
    pub fn server(&self) -> Option<&Alias> {
        server_of!(self)
    }

    fn server_mut(&mut self) -> Option<&mut Alias> {
        server_of!(self)
    }

    /// Does it tell what a tool was called with, or what it answered?
    fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::ToolCalled { arguments: Some(_), .. }
                | Self::ToolCalled { result: Some(_), .. }
                | Self::ToolFailed { arguments: Some(_), .. }
        )
    }

    /// The same event without what a tool was called with and what it answered.
    fn without_payload(mut self) -> Self {
        match &mut self {
            Self::ToolCalled { arguments, result, .. } => (*arguments, *result) = (None, None),
            Self::ToolFailed { arguments, .. } => *arguments = None,
            _ => {}
        }
        self
    }

    /// The same event of a server that goes by another name here.
    fn renamed(mut self, alias: &Alias) -> Self {
        if let Some(server) = self.server_mut() {
            *server = alias.clone();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_json_object_with_times_in_milliseconds() {
        let event = Event::ToolFailed {
            server: "a".into(),
            tool: "t".into(),
            call: CallId("c".into()),
            took: Duration::from_micros(1500),
            cause: "why".into(),
            arguments: None,
        };
        let expected = serde_json::json!({"event": "mcp.tool_failed", "server": "a", "tool": "t", "call": "c", "took_ms": 1.5, "cause": "why"});
        assert_eq!(serde_json::to_value(event).expect("JSON"), expected);
    }

    #[test]
    fn an_event_names_the_server_that_it_is_about() {
        assert_eq!(Event::Closed { server: "a".into() }.server(), Some(&"a".into()));
        assert_eq!(Event::Lagged { missed: 1 }.server(), None);
        assert_eq!(Event::Warning { server: None, message: String::new() }.server(), None);
        let warning = |server: &str| Event::Warning { server: Some(server.into()), message: String::new() };
        assert_eq!(warning("a").server(), Some(&"a".into()));
        assert_eq!(warning("a").renamed(&"b".into()), warning("b"));
        assert_eq!(Event::Lagged { missed: 1 }.renamed(&"b".into()), Event::Lagged { missed: 1 });
    }
}
