//! A verdict: how one server stands, and so why its tools are in a list or not.

use std::fmt;

use serde::Serialize;

use crate::tool::Alias;

/// How one server stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// The server.
    pub server: Alias,
    /// How it stands.
    #[serde(flatten)]
    pub outcome: ServerState,
    /// What else is to be known, such as that its tool list has reached a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The server is marked `required`: an agent does not run a turn without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// How a server stands, and so why its tools are in a list or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerState {
    /// It is connected.
    Ready {
        /// How many of its tools are listed.
        tools: usize,
    },
    /// It is not connected yet; its tools are remembered from before.
    Cached {
        /// How many of its tools are listed.
        tools: usize,
    },
    /// Nobody has asked for it yet, or it was stopped.
    NotStarted,
    /// It is being connected.
    Connecting,
    /// It wants to know who is asking.
    NeedsAuth,
    /// It cannot be reached.
    Down {
        /// Why.
        cause: String,
    },
    /// It was not started, because secrets are missing.
    Skipped {
        /// Their names.
        secrets: Vec<String>,
    },
    /// It was not started, because its entry has a key that restricts or authenticates and that is not supported.
    Invalid {
        /// The key, and where it is.
        reason: String,
    },
    /// It is connected, but none of its tools is wanted.
    FilteredToZero {
        /// How many it has.
        of: usize,
    },
    /// It is connected, but all of its tools are hidden until they are accepted.
    Hidden {
        /// How many it has.
        of: usize,
    },
    /// It is switched off.
    Disabled,
}

impl ServerStatus {
    /// A server and how it stands.
    pub fn new(server: impl Into<Alias>, outcome: ServerState) -> Self {
        Self { server: server.into(), outcome, note: None, required: false }
    }

    /// Adds what else is to be known.
    #[must_use]
    pub fn with_note(mut self, note: Option<String>) -> Self {
        self.note = note;
        self
    }

    /// Sets whether the server is marked `required`.
    #[must_use]
    pub fn with_required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    /// Returns whether the server is wanted and cannot be used: it is neither connected nor remembered nor switched off.
    pub fn is_missing(&self) -> bool {
        match &self.outcome {
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

impl ServerState {
    /// How many tools a server that is there, or remembered, has listed. One that is coming back may have some all the same.
    pub fn tools(&self) -> usize {
        match self {
            Self::Ready { tools } | Self::Cached { tools } => *tools,
            _ => 0,
        }
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server `{}` {}", self.server, self.outcome)?;
        match &self.note {
            Some(note) => write!(f, "; {note}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { tools } => write!(f, "is ready with {}", Tools(*tools)),
            Self::Cached { tools } => write!(f, "is not connected yet; {} remembered", Tools(*tools)),
            Self::NotStarted => f.write_str("is not started"),
            Self::Connecting => f.write_str("is being connected"),
            Self::NeedsAuth => f.write_str("needs authentication"),
            Self::Down { cause } => write!(f, "is down: {cause}"),
            Self::Skipped { secrets } => {
                let names: Vec<String> = secrets.iter().map(|name| format!("`{name}`")).collect();
                let are = if names.len() == 1 { "is" } else { "are" };
                write!(f, "is skipped: {} {are} not set", names.join(", "))
            }
            Self::Invalid { reason } => write!(f, "is not started: {reason}"),
            Self::FilteredToZero { of } => write!(f, "is ready, but none of its {} is wanted", Tools(*of)),
            Self::Hidden { of } => {
                let (are, them) = if *of == 1 { ("is", "it") } else { ("are", "them") };
                write!(f, "is ready, but {} {are} hidden until `ropeway lock` accepts {them}", Tools(*of))
            }
            Self::Disabled => f.write_str("is switched off"),
        }
    }
}

/// A number of tools in words.
struct Tools(usize);

impl fmt::Display for Tools {
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
    fn a_verdict_is_one_flat_record() {
        let records = [
            (ServerState::Ready { tools: 3 }, json!({"server": "web", "outcome": "ready", "tools": 3})),
            (ServerState::NeedsAuth, json!({"server": "web", "outcome": "needs_auth"})),
            (ServerState::Down { cause: "x".into() }, json!({"server": "web", "outcome": "down", "cause": "x"})),
            (ServerState::FilteredToZero { of: 4 }, json!({"server": "web", "outcome": "filtered_to_zero", "of": 4})),
        ];
        for (outcome, record) in records {
            assert_eq!(serde_json::to_value(ServerStatus::new("web", outcome)).expect("JSON"), record);
        }
    }

    #[test]
    fn a_verdict_reads_as_a_sentence() {
        let secrets =
            |names: &[&str]| ServerState::Skipped { secrets: names.iter().map(ToString::to_string).collect() };
        let sentences = [
            (ServerState::Ready { tools: 1 }, "server `web` is ready with 1 tool"),
            (ServerState::Ready { tools: 0 }, "server `web` is ready with no tools"),
            (ServerState::Cached { tools: 2 }, "server `web` is not connected yet; 2 tools remembered"),
            (secrets(&["A"]), "server `web` is skipped: `A` is not set"),
            (secrets(&["A", "B"]), "server `web` is skipped: `A`, `B` are not set"),
            (ServerState::FilteredToZero { of: 9 }, "server `web` is ready, but none of its 9 tools is wanted"),
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
        let noted =
            ServerStatus::new("web", ServerState::Ready { tools: 2 }).with_note(Some("the rest is left out".into()));
        assert_eq!(noted.to_string(), "server `web` is ready with 2 tools; the rest is left out");
    }
}
