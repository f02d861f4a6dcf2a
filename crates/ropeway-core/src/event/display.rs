//! Events as text, one line each.

use std::fmt;

use super::Event;
use crate::duration::format_duration;
use crate::tool::Alias;

/// Describes the event in one line, without its server's name.
///
/// Server text is redacted but otherwise unchanged. Escape control characters before printing it to a terminal.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting { failures: 0, .. } => f.write_str("connecting"),
            Self::Connecting { failures: 1, .. } => f.write_str("connecting, after 1 failure"),
            Self::Connecting { failures, .. } => write!(f, "connecting, after {failures} failures"),
            Self::Ready { protocol_version, .. } => write!(f, "ready, MCP {protocol_version}"),
            Self::Down { cause, retry_in: None, .. } => write!(f, "down: {cause}"),
            Self::Down { cause, retry_in: Some(time), .. } if time.as_millis() == 0 => {
                write!(f, "down, retrying now: {cause}")
            }
            Self::Down { cause, retry_in: Some(time), .. } => {
                write!(f, "down, retrying in {}: {cause}", format_duration(*time))
            }
            Self::NeedsAuth { .. } => f.write_str("needs authentication"),
            Self::SignInStarted { .. } => f.write_str("waiting for a sign-in"),
            Self::SignedIn { .. } => f.write_str("signed in"),
            Self::Restarting { reason, .. } => write!(f, "restarting: {reason}"),
            Self::Closed { .. } => f.write_str("closed"),
            Self::ToolsChanged { .. } => f.write_str("tools changed"),
            Self::PromptsChanged { .. } => f.write_str("prompts changed"),
            Self::ResourcesChanged { .. } => f.write_str("resources changed"),
            Self::ResourceUpdated { uri, .. } => write!(f, "`{uri}` changed"),
            Self::ToolCalled { tool, took, is_error: true, .. } => {
                write!(f, "{tool} reported an error after {}", format_duration(*took))
            }
            Self::ToolCalled { tool, took, .. } => write!(f, "{tool} answered after {}", format_duration(*took)),
            Self::ToolFailed { tool, took, cause, .. } => {
                write!(f, "{tool} failed after {}: {cause}", format_duration(*took))
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
                let changes = if parts.is_empty() { "no server changed".to_owned() } else { parts.join("; ") };
                write!(f, "configuration reloaded: {changes}")
            }
            Self::Warning { message, .. } => f.write_str(message),
            Self::Lagged { missed } => write!(f, "{missed} events were dropped"),
        }
    }
}
