//! Server status.

use std::fmt;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use ropeway_core::setters::setters;
use ropeway_core::tool::Alias;

/// A server's status, which explains why its tools are listed or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Server alias.
    pub server: Alias,
    /// Server state.
    #[serde(flatten)]
    pub state: ServerState,
    /// Note about the tools, such as a limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether the server is marked `required`: an agent does not run a turn without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// A server's state.
///
/// In JSON, the key `state` holds the variant name; `outcome` is its former name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerState {
    /// Connected.
    Ready {
        /// Listed tool count.
        tools: usize,
    },
    /// Not connected yet. The tools come from the cache.
    Cached {
        /// Listed tool count.
        tools: usize,
    },
    /// Not started, or stopped.
    NotStarted,
    /// A connection attempt is in progress.
    Connecting,
    /// The server requires authentication.
    NeedsAuth,
    /// The connection failed or was lost.
    Down {
        /// The error and its causes.
        cause: String,
    },
    /// Not started, because secrets are not set.
    Skipped {
        /// Missing secret names.
        secrets: Vec<String>,
    },
    /// Not started, because the entry has an unsupported key that restricts access or authenticates.
    Invalid {
        /// The key and its position in the file.
        reason: String,
    },
    /// Connected, but all tools are filtered out.
    FilteredToZero {
        /// How many tools the server has.
        of: usize,
    },
    /// Connected, but all tools are hidden until the user accepts them.
    Hidden {
        /// Hidden tool count.
        of: usize,
    },
    /// Disabled in the configuration.
    Disabled,
}

impl ServerState {
    /// Returns the variant's name in JSON.
    fn name(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "ready",
            Self::Cached { .. } => "cached",
            Self::NotStarted => "not_started",
            Self::Connecting => "connecting",
            Self::NeedsAuth => "needs_auth",
            Self::Down { .. } => "down",
            Self::Skipped { .. } => "skipped",
            Self::Invalid { .. } => "invalid",
            Self::FilteredToZero { .. } => "filtered_to_zero",
            Self::Hidden { .. } => "hidden",
            Self::Disabled => "disabled",
        }
    }
}

impl Serialize for ServerState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", self.name())?;
        map.serialize_entry("outcome", self.name())?;
        match self {
            Self::Ready { tools } | Self::Cached { tools } => map.serialize_entry("tools", tools)?,
            Self::Down { cause } => map.serialize_entry("cause", cause)?,
            Self::Skipped { secrets } => map.serialize_entry("secrets", secrets)?,
            Self::Invalid { reason } => map.serialize_entry("reason", reason)?,
            Self::FilteredToZero { of } | Self::Hidden { of } => map.serialize_entry("of", of)?,
            Self::NotStarted | Self::Connecting | Self::NeedsAuth | Self::Disabled => {}
        }
        map.end()
    }
}

impl ServerStatus {
    /// Creates a status without a note.
    pub fn new(server: impl Into<Alias>, state: ServerState) -> Self {
        Self { server: server.into(), state, note: None, required: false }
    }

    /// Returns `true` if the server is enabled, but neither connected nor cached.
    pub fn is_missing(&self) -> bool {
        match &self.state {
            ServerState::Ready { .. }
            | ServerState::Cached { .. }
            | ServerState::FilteredToZero { .. }
            | ServerState::Hidden { .. }
            | ServerState::Disabled => false,
            ServerState::NotStarted
            | ServerState::Connecting
            | ServerState::NeedsAuth
            | ServerState::Down { .. }
            | ServerState::Skipped { .. }
            | ServerState::Invalid { .. } => true,
        }
    }
}

setters!(ServerStatus {
    /// Sets the note.
    with_note(note: Option<String>) => note = note;
    /// Sets whether the server is marked `required`.
    with_required(required: bool) => required = required;
});

impl ServerState {
    /// Returns how many tools a connected or cached server lists; zero in other states.
    pub fn tools(&self) -> usize {
        match self {
            Self::Ready { tools } | Self::Cached { tools } => *tools,
            _ => 0,
        }
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server `{}` {}", self.server, self.state)?;
        match &self.note {
            Some(note) => write!(f, "; {note}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { tools } => write!(f, "is ready with {}", ToolCount(*tools)),
            Self::Cached { tools } => write!(f, "is not connected yet; {} cached", ToolCount(*tools)),
            Self::NotStarted => f.write_str("is not started"),
            Self::Connecting => f.write_str("is connecting"),
            Self::NeedsAuth => f.write_str("needs authentication"),
            Self::Down { cause } => write!(f, "is down: {cause}"),
            Self::Skipped { secrets } => {
                let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
                let are = if names.len() == 1 { "is" } else { "are" };
                write!(f, "is skipped: {} {are} not set", names.join(", "))
            }
            Self::Invalid { reason } => write!(f, "is not started: {reason}"),
            Self::FilteredToZero { of } => write!(f, "is ready, but all {} are filtered out", ToolCount(*of)),
            Self::Hidden { of } => {
                let (are, them) = if *of == 1 { ("is", "it") } else { ("are", "them") };
                write!(f, "is ready, but {} {are} hidden until `ropeway lock` accepts {them}", ToolCount(*of))
            }
            Self::Disabled => f.write_str("is disabled"),
        }
    }
}

/// Displays a tool count.
struct ToolCount(usize);

impl fmt::Display for ToolCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no tools"),
            1 => f.write_str("1 tool"),
            many => write!(f, "{many} tools"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_serializes_as_a_flat_object() {
        let records = [
            (
                ServerState::Ready { tools: 3 },
                json!({"server": "web", "state": "ready", "outcome": "ready", "tools": 3}),
            ),
            (ServerState::NeedsAuth, json!({"server": "web", "state": "needs_auth", "outcome": "needs_auth"})),
            (
                ServerState::Down { cause: "x".into() },
                json!({"server": "web", "state": "down", "outcome": "down", "cause": "x"}),
            ),
            (
                ServerState::FilteredToZero { of: 4 },
                json!({"server": "web", "state": "filtered_to_zero", "outcome": "filtered_to_zero", "of": 4}),
            ),
        ];
        for (outcome, record) in records {
            assert_eq!(serde_json::to_value(ServerStatus::new("web", outcome)).expect("JSON"), record);
        }
    }

    #[test]
    fn a_status_displays_as_a_sentence() {
        let secrets =
            |names: &[&str]| ServerState::Skipped { secrets: names.iter().map(ToString::to_string).collect() };
        let sentences = [
            (ServerState::Ready { tools: 1 }, "server `web` is ready with 1 tool"),
            (ServerState::Ready { tools: 0 }, "server `web` is ready with no tools"),
            (ServerState::Cached { tools: 2 }, "server `web` is not connected yet; 2 tools cached"),
            (secrets(&["A"]), "server `web` is skipped: `A` is not set"),
            (secrets(&["A", "B"]), "server `web` is skipped: `A`, `B` are not set"),
            (ServerState::FilteredToZero { of: 9 }, "server `web` is ready, but all 9 tools are filtered out"),
            (
                ServerState::Hidden { of: 1 },
                "server `web` is ready, but 1 tool is hidden until `ropeway lock` accepts it",
            ),
            (
                ServerState::Hidden { of: 2 },
                "server `web` is ready, but 2 tools are hidden until `ropeway lock` accepts them",
            ),
        ];
        for (outcome, sentence) in sentences {
            assert_eq!(ServerStatus::new("web", outcome).to_string(), sentence);
        }
        let noted = ServerStatus::new("web", ServerState::Ready { tools: 2 }).with_note(Some("list truncated".into()));
        assert_eq!(noted.to_string(), "server `web` is ready with 2 tools; list truncated");
    }
}
