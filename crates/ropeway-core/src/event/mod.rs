//! Connection, call and bridge events.

mod display;
mod events;
mod log;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::events::Relay;
pub use self::events::{EventStream, Events};
pub use self::log::EventLog;
pub use crate::rfc3339::timestamp;
use crate::tool::{Alias, CallId, Progress};

/// A connection, call or bridge event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
#[non_exhaustive]
pub enum Event {
    /// A connection attempt starts.
    #[serde(rename = "server.connecting")]
    Connecting {
        /// The server's alias.
        server: Alias,
        /// Number of consecutive failed attempts.
        failures: u32,
    },
    /// A connection is established.
    #[serde(rename = "server.ready")]
    Ready {
        /// The server's alias.
        server: Alias,
        /// The negotiated protocol version.
        protocol_version: String,
    },
    /// A connection failed or was lost.
    #[serde(rename = "server.down")]
    Down {
        /// The server's alias.
        server: Alias,
        /// The reason.
        cause: String,
        /// Delay before the next attempt; `None` if no attempt follows.
        #[serde(rename = "retry_in_ms", with = "maybe_milliseconds")]
        retry_in: Option<Duration>,
    },
    /// A server requires authentication.
    #[serde(rename = "server.needs_auth")]
    NeedsAuth {
        /// The server's alias.
        server: Alias,
    },
    /// The user is prompted to sign in to a server.
    #[serde(rename = "server.sign_in_started")]
    SignInStarted {
        /// The server's alias.
        server: Alias,
        /// The reason: `first`, `expired` or `scope`.
        reason: String,
    },
    /// The user signed in to a server.
    #[serde(rename = "server.signed_in")]
    SignedIn {
        /// The server's alias.
        server: Alias,
    },
    /// A server is being restarted.
    #[serde(rename = "server.restarting")]
    Restarting {
        /// The server's alias.
        server: Alias,
        /// The reason.
        reason: String,
    },
    /// A connection was closed by the client.
    #[serde(rename = "server.closed")]
    Closed {
        /// The server's alias.
        server: Alias,
    },
    /// A server's tools have changed.
    #[serde(rename = "server.tools_changed")]
    ToolsChanged {
        /// The server's alias.
        server: Alias,
    },
    /// A server's prompts have changed.
    #[serde(rename = "server.prompts_changed")]
    PromptsChanged {
        /// The server's alias.
        server: Alias,
    },
    /// A server's resources have changed.
    #[serde(rename = "server.resources_changed")]
    ResourcesChanged {
        /// The server's alias.
        server: Alias,
    },
    /// A subscribed resource has changed.
    #[serde(rename = "server.resource_updated")]
    ResourceUpdated {
        /// The server's alias.
        server: Alias,
        /// The resource's URI.
        uri: String,
    },
    /// A tool call returned a result, which may report an error.
    #[serde(rename = "mcp.tool_called")]
    ToolCalled {
        /// The server's alias.
        server: Alias,
        /// The tool's name on the server.
        tool: String,
        /// The call's id.
        call: CallId,
        /// The call's duration.
        #[serde(rename = "took_ms", with = "milliseconds")]
        took: Duration,
        /// Whether the tool reported an error.
        is_error: bool,
        /// The arguments, if [`Events::with_payloads`] is set.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<Value>>,
        /// The result, if [`Events::with_payloads`] is set.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Arc<Value>>,
    },
    /// A tool call failed without a result.
    #[serde(rename = "mcp.tool_failed")]
    ToolFailed {
        /// The server's alias.
        server: Alias,
        /// The tool's name on the server.
        tool: String,
        /// The call's id.
        call: CallId,
        /// The call's duration.
        #[serde(rename = "took_ms", with = "milliseconds")]
        took: Duration,
        /// The reason.
        cause: String,
        /// The arguments, if [`Events::with_payloads`] is set.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<Value>>,
    },
    /// A call made progress.
    #[serde(rename = "progress")]
    Progress {
        /// The server's alias.
        server: Alias,
        /// The call's id.
        call: CallId,
        /// The progress so far.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A server sent a log message.
    #[serde(rename = "log")]
    Log {
        /// The server's alias.
        server: Alias,
        /// The log level, such as `info`.
        level: String,
        /// The logger's name.
        logger: Option<String>,
        /// The message, as any JSON value.
        data: Value,
    },
    /// The configuration was reloaded.
    #[serde(rename = "config.reloaded")]
    Reloaded {
        /// Added servers.
        started: Vec<Alias>,
        /// Removed servers.
        stopped: Vec<Alias>,
        /// Servers with a changed entry.
        restarted: Vec<Alias>,
    },
    /// A problem that was handled.
    #[serde(rename = "warning")]
    Warning {
        /// The server, if the warning is about one.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<Alias>,
        /// The warning.
        message: String,
    },
    /// The listener was too slow and missed events.
    #[serde(rename = "lagged")]
    Lagged {
        /// Number of missed events.
        missed: u64,
    },
}

/// A time in milliseconds.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_micros() as f64 / 1000.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)? / 1000.0).map_err(serde::de::Error::custom)
    }
}

/// A time in milliseconds, or `null`.
mod maybe_milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_f64(time.as_micros() as f64 / 1000.0),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let time = Option::<f64>::deserialize(deserializer)?.map(|time| Duration::try_from_secs_f64(time / 1000.0));
        time.transpose().map_err(serde::de::Error::custom)
    }
}

/// Returns an event's server, by shared or mutable reference.
macro_rules! server_of {
    ($event:expr) => {
        match $event {
            Event::Connecting { server, .. }
            | Event::Ready { server, .. }
            | Event::Down { server, .. }
            | Event::NeedsAuth { server }
            | Event::SignInStarted { server, .. }
            | Event::SignedIn { server }
            | Event::Restarting { server, .. }
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
    /// Returns the server that the event is about, if any.
    pub fn server(&self) -> Option<&Alias> {
        server_of!(self)
    }

    fn server_mut(&mut self) -> Option<&mut Alias> {
        server_of!(self)
    }

    /// Returns `true` if the event contains arguments or a result.
    fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::ToolCalled { arguments: Some(_), .. }
                | Self::ToolCalled { result: Some(_), .. }
                | Self::ToolFailed { arguments: Some(_), .. }
        )
    }

    /// Removes the arguments and the result.
    fn without_payload(mut self) -> Self {
        match &mut self {
            Self::ToolCalled { arguments, result, .. } => (*arguments, *result) = (None, None),
            Self::ToolFailed { arguments, .. } => *arguments = None,
            _ => {}
        }
        self
    }

    /// Replaces the server's alias.
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
    fn an_event_is_a_flat_json_object_with_milliseconds() {
        let event = Event::ToolFailed {
            server: "a".into(),
            tool: "t".into(),
            call: CallId("c".into()),
            took: Duration::from_micros(1500),
            cause: "why".into(),
            arguments: None,
        };
        let expected = serde_json::json!({"event": "mcp.tool_failed", "server": "a", "tool": "t", "call": "c", "took_ms": 1.5, "cause": "why"});
        assert_eq!(serde_json::to_value(&event).expect("JSON"), expected);
        assert_eq!(serde_json::from_value::<Event>(expected).expect("an event"), event);
        let down = Event::Down { server: "a".into(), cause: "why".into(), retry_in: None };
        let json = serde_json::to_value(&down).expect("JSON");
        assert_eq!(
            (&json["retry_in_ms"], serde_json::from_value::<Event>(json.clone()).ok()),
            (&Value::Null, Some(down))
        );
    }

    #[test]
    fn an_event_names_its_server() {
        assert_eq!(Event::Closed { server: "a".into() }.server(), Some(&"a".into()));
        assert_eq!(Event::Lagged { missed: 1 }.server(), None);
        assert_eq!(Event::Warning { server: None, message: String::new() }.server(), None);
        let warning = |server: &str| Event::Warning { server: Some(server.into()), message: String::new() };
        assert_eq!(warning("a").server(), Some(&"a".into()));
        assert_eq!(warning("a").renamed(&"b".into()), warning("b"));
        assert_eq!(Event::Lagged { missed: 1 }.renamed(&"b".into()), Event::Lagged { missed: 1 });
    }
}
