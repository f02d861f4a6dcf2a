//! A gateway's messages on standard error: its address, its servers and their problems.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use ropeway_bridge::Bridge;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::event::{Event, EventStream};
use ropeway_core::tool::Alias;
use ropeway_gateway::Gateway;

use crate::connect::advice::{ServerAdvice, is_available, is_pending, is_unavailable, tool_count};
use crate::connect::servers::ServerSource;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::terminal::text::counted;

/// Time for servers to connect before the address is printed.
const PATIENCE: Duration = Duration::from_millis(300);

/// Prints a gateway's messages.
pub(super) struct Report {
    bridge: Bridge,
    events: RefCell<EventStream>,
    /// Verbose output shows server problems already.
    is_verbose: bool,
    /// Where the servers come from, for suggested commands.
    source: ServerSource,
}

impl Report {
    /// Listens for events from now on.
    pub(super) fn new(gateway: &Gateway, is_verbose: bool, source: ServerSource) -> Self {
        let bridge = gateway.bridge().clone();
        Self { events: RefCell::new(bridge.events()), bridge, is_verbose, source }
    }

    /// Prints the address, the servers once they are connected, and their problems.
    pub(super) async fn follow(&self, url: Option<&str>, has_page: bool, is_quiet: bool) -> Infallible {
        let (address, problems) = (self.print_address(url, has_page, is_quiet), self.print_problems());
        let (_, never) = tokio::join!(address, problems);
        never
    }

    async fn print_address(&self, url: Option<&str>, has_page: bool, is_quiet: bool) {
        let settled = self.bridge.until_statuses(|statuses| !statuses.iter().any(is_starting));
        let early = tokio::time::timeout(PATIENCE, settled).await;
        if let Some(url) = url {
            let page = url.strip_suffix("mcp").filter(|_| has_page && url.starts_with("http"));
            let page = page.map(|page| format!(", page at {page}")).unwrap_or_default();
            say(&format!("listening on {url} ({}){page}\n", summary(&self.bridge.statuses())));
        }
        if early.is_err() && !is_quiet {
            let statuses = self.bridge.until_statuses(|statuses| !statuses.iter().any(is_starting)).await;
            say(&format!("connected: {}\n", summary(&statuses)));
        }
    }

    async fn print_problems(&self) -> Infallible {
        let mut problems = Problems::new(ServerAdvice::new(self.source.clone(), None));
        let mut events = self.events.replace(self.bridge.events());
        while let Some(event) = events.next().await {
            match (&event, problems.of(&event).filter(|_| !self.is_verbose)) {
                (Event::Restarting { server, reason }, _) => say(&format!("restarting server `{server}`: {reason}\n")),
                (_, Some(words)) => say(&warning(&words)),
                (_, None) => {}
            }
        }
        std::future::pending().await
    }
}

fn is_starting(status: &ServerStatus) -> bool {
    is_pending(&status.state)
}

/// Counts the tools and servers: "12 tools of 3 servers, 1 connecting".
fn summary(statuses: &[ServerStatus]) -> String {
    let outcomes = || statuses.iter().map(|status| &status.state);
    let tools: usize = outcomes()
        .map(|outcome| match outcome {
            ServerState::Ready { tools } | ServerState::Cached { tools } => *tools,
            _ => 0,
        })
        .sum();
    let available = outcomes().filter(|outcome| is_available(outcome)).count();
    let connecting = outcomes().filter(|outcome| is_pending(outcome)).count();
    let unavailable = outcomes().filter(|outcome| is_unavailable(outcome) && !is_pending(outcome)).count();
    let servers = if available == 1 { "1 server".to_owned() } else { format!("{available} servers") };
    if available == 0 && connecting > 0 && unavailable == 0 {
        return format!("connecting to {}", counted(connecting, "server"));
    }
    let mut text = format!("{} of {servers}", tool_count(tools));
    for (count, what) in [(connecting, "connecting"), (unavailable, "unavailable")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

/// Each server's problems, to print each once.
struct Problems {
    /// Why servers are down.
    causes: HashMap<Alias, String>,
    /// Each server's last other problem.
    last: HashMap<Option<Alias>, String>,
    advice: ServerAdvice,
}

impl Problems {
    fn new(advice: ServerAdvice) -> Self {
        Self { causes: HashMap::new(), last: HashMap::new(), advice }
    }

    /// Returns the message for an event that is a new problem.
    fn of(&mut self, event: &Event) -> Option<String> {
        let words = match event {
            Event::Warning { server: Some(server), message } if self.repeats_cause(server, message) => return None,
            Event::Warning { server: Some(server), message } => format!("server `{server}`: {message}"),
            Event::Warning { message, .. } => message.clone(),
            Event::Down { server, cause, .. } => {
                let last = self.causes.insert(server.clone(), cause.clone());
                let is_new = last.as_ref() != Some(cause);
                return is_new.then(|| format!("server `{server}` is unavailable: {cause}"));
            }
            Event::NeedsAuth { server, .. } => {
                self.causes.remove(server);
                format!("server `{server}` needs authentication; run {}", self.advice.login_command(server))
            }
            Event::Ready { server, .. } | Event::Restarting { server, .. } => {
                self.causes.remove(server);
                self.last.remove(&Some(server.clone()));
                return None;
            }
            _ => return None,
        };
        let last = self.last.insert(event.server().cloned(), words.clone());
        (last.as_ref() != Some(&words)).then_some(words)
    }

    /// Returns `true` for the bridge's warning about a server that does not start.
    fn repeats_cause(&self, server: &Alias, message: &str) -> bool {
        self.causes.get(server).is_some_and(|cause| !cause.is_empty() && message.ends_with(cause.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_and_servers_are_counted() {
        let status = |outcome| ServerStatus::new("a", outcome);
        assert_eq!(summary(&[]), "no tools of 0 servers");
        assert_eq!(summary(&[status(ServerState::Ready { tools: 1 })]), "1 tool of 1 server");
        assert_eq!(summary(&[status(ServerState::Connecting)]), "connecting to 1 server");
        let statuses = [
            status(ServerState::Ready { tools: 8 }),
            status(ServerState::Cached { tools: 4 }),
            status(ServerState::Connecting),
            status(ServerState::Down { cause: "gone".to_owned() }),
            status(ServerState::Disabled),
        ];
        assert_eq!(summary(&statuses), "12 tools of 2 servers, 1 connecting, 1 unavailable");
    }

    #[test]
    fn a_problem_that_repeats_is_printed_once() {
        let mut problems = Problems::new(ServerAdvice::new(ServerSource::File("/etc/ropeway.yaml".into()), None));
        let down = |cause: &str| Event::Down { server: "a".into(), cause: cause.to_owned(), retry_in: None };
        assert_eq!(problems.of(&down("gone")).as_deref(), Some("server `a` is unavailable: gone"));
        assert_eq!(problems.of(&down("gone")), None);
        assert!(problems.of(&down("refused")).is_some());
        let auth = Event::NeedsAuth { server: "a".into() };
        let words = "server `a` needs authentication; run `ropeway login a --config /etc/ropeway.yaml`";
        assert_eq!(problems.of(&auth).as_deref(), Some(words));
        let warning = Event::Warning { server: Some("a".into()), message: "the list is truncated".to_owned() };
        assert_eq!(problems.of(&warning).as_deref(), Some("server `a`: the list is truncated"));
    }

    #[test]
    fn a_server_that_does_not_start_is_reported_once() {
        let mut problems = Problems::new(ServerAdvice::new(ServerSource::Line, None));
        let down = Event::Down { server: "a".into(), cause: "gone".to_owned(), retry_in: None };
        let warning = |message: &str| Event::Warning { server: Some("a".into()), message: message.to_owned() };
        assert_eq!(problems.of(&down).as_deref(), Some("server `a` is unavailable: gone"));
        assert_eq!(problems.of(&warning("not available, retrying: gone")), None);
        assert_eq!(problems.of(&down), None);
        assert!(problems.of(&warning("the list is truncated")).is_some());
        assert_eq!(problems.of(&down), None);
        let restarting = Event::Restarting { server: "a".into(), reason: "`a.py` changed".to_owned() };
        assert_eq!(problems.of(&restarting), None);
        assert!(problems.of(&down).is_some());
    }
}
