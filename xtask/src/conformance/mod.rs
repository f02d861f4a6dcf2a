//! The official conformance suite.

mod baseline;
pub mod client;
pub mod server;

use std::process::Command;

use anyhow::{Result, bail};

use crate::{process, servers};

/// The revisions whose requirements are tested.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// How many scenarios passed and failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
}

/// Returns the scenarios that a revision requires, and for servers and `auth/` those that are run but not required: extensions.
fn scenarios(revision: &str, kind: Kind) -> Result<Vec<String>> {
    let (flag, title) = match kind {
        Kind::Client => ("--client", "Client scenarios"),
        Kind::Server => ("--server", "Server scenarios"),
    };
    let output = process::output(suite().args(["list", flag, "--requirements", revision]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = section(&text, title);
    if names.is_empty() {
        bail!("the suite lists no scenario of {revision} for `{flag}`\n{}", process::output_text(&output));
    }
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    names.extend(unscored(&text, kind));
    Ok(names)
}

/// The side that a scenario tests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Client,
    Server,
}

/// Returns the names in one list section.
fn section<'a>(list: &'a str, title: &str) -> Vec<&'a str> {
    let part = list.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    part.map_while(|line| line.strip_prefix("  - ")).map(str::trim).collect()
}

/// Returns the scenarios that are run but not required: extensions, pending and later ones. For clients, only those in `auth/`.
fn unscored(list: &str, kind: Kind) -> Vec<String> {
    let side = match kind {
        Kind::Client => " [client]",
        Kind::Server => " [server]",
    };
    let names = list.lines().filter_map(|line| line.trim().strip_prefix("- ")?.strip_suffix(side));
    names.filter(|name| kind == Kind::Server || name.starts_with("auth/")).map(str::to_owned).collect()
}

/// Returns `3/4, 1 failed, 0 warnings` from the suite's output.
fn checks(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.trim().strip_prefix("Passed: "))
}

fn suite() -> Command {
    let mut command = Command::new(servers::node());
    command.arg(servers::conformance()).env("NO_COLOR", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Server scenarios (x):\n  - ping\n\nClient scenarios (x):\n  - initialize\n  - auth/a\n\nNever scored:\n    - b [client]\n    - auth/c [client]\n    - tasks [server]\n";

    #[test]
    fn scenarios_end_where_the_next_section_begins() {
        assert_eq!(section(LIST, "Client scenarios"), ["initialize", "auth/a"]);
        assert_eq!(section(LIST, "Server scenarios"), ["ping"]);
    }

    #[test]
    fn unscored_scenarios_are_found() {
        assert_eq!(unscored(LIST, Kind::Server), ["tasks"]);
        assert_eq!(unscored(LIST, Kind::Client), ["auth/c"]);
    }

    #[test]
    fn the_count_of_checks_is_read_from_the_output() {
        assert_eq!(checks("Test Results:\nPassed: 3/4, 1 failed, 0 warnings\n"), Some("3/4, 1 failed, 0 warnings"));
    }
}
