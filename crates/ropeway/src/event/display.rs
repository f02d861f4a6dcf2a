//! Events in words, one line each.

use std::fmt;

use super::Event;
use crate::duration::format_duration;
use crate::tool::Alias;

/// Describes the event in one line for people, without the name of its server.
///
/// Text of a server appears as it came, except for secrets: a terminal needs it without control characters.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting { failures: 0, .. } => f.write_str("connecting"),
            Self::Connecting { failures: 1, .. } => f.write_str("connecting, after 1 failure"),
            Self::Connecting { failures, .. } => write!(f, "connecting, after {failures} failures"),
            Self::Ready { protocol_version, .. } => write!(f, "ready, MCP {protocol_version}"),
            Self::Down { cause, retry_in: None, .. } => write!(f, "down: {cause}"),
            Self::Down { cause, retry_in: Some(time), .. } if time.as_millis() == 0 => {
                write!(f, "down, trying again at once: {cause}")
            }
            Self::Down { cause, retry_in: Some(time), .. } => {
                write!(f, "down, trying again in {}: {cause}", format_duration(*time))
            }
            Self::NeedsAuth { .. } => f.write_str("needs authentication"),
            Self::Closed { .. } => f.write_str("closed"),
            Self::ToolsChanged { .. } => f.write_str("its tools have changed"),
            Self::PromptsChanged { .. } => f.write_str("its prompts have changed"),
            Self::ResourcesChanged { .. } => f.write_str("its resources have changed"),
            Self::ResourceUpdated { uri, .. } => write!(f, "`{uri}` has changed"),
            Self::ToolCalled { tool, took, is_error: true, .. } => {
                write!(f, "{tool} reported a failure after {}", format_duration(*took))
            }
            Self::ToolCalled { tool, took, .. } => write!(f, "{tool} answered after {}", format_duration(*took)),
            Self::ToolFailed { tool, took, cause, .. } => {
                write!(f, "{tool} gave no answer after {}: {cause}", format_duration(*took))
            }
            Self::Progress { progress, .. } => {
                write!(f, "progress {}", progress.progress)?;
                if let Some(total) = progress.total {
                    write!(f, " of {total}")?;
                }
                match &progress.message {
                    Some(message) => write!(f, ": {message}"),
                    None => Ok(()),
                }
            }
            Self::Log { level, logger, data, .. } => {
                f.write_str(level)?;
                if let Some(logger) = logger {
                    write!(f, " {logger}")?;
                }
                match data.as_str() {
                    Some(text) => write!(f, ": {text}"),
                    None => write!(f, ": {data}"),
                }
            }
            Self::Reloaded { started, stopped, restarted } => {
                let parts = [("started", started), ("stopped", stopped), ("restarted", restarted)];
                let parts = parts.into_iter().filter(|(_, servers)| !servers.is_empty()).map(|(what, servers)| {
                    let names: Vec<&str> = servers.iter().map(Alias::as_str).collect();
                    format!("{what} {}", names.join(", "))
                });
                let parts: Vec<String> = parts.collect();
                let words = if parts.is_empty() { "no server has changed".to_owned() } else { parts.join("; ") };
                write!(f, "the configuration was read again: {words}")
            }
            Self::Warning { message, .. } => f.write_str(message),
            Self::Lagged { missed } => write!(f, "{missed} events came too fast to be shown"),
        }
    }
}
