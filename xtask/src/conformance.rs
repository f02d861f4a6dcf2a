//! The official conformance suite, as a server for ropeway's client.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::process::{self, cargo};
use crate::{paths, servers};

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// A scenario that was added after the sets were frozen.
const ADDED: &str = "json-schema-2020-12-preservation";

/// Number of scenarios that passed and failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
}

/// Installs the suite, builds the client and runs every scenario, or the named one.
pub fn run(only: Option<&str>) -> Result<()> {
    servers::run()?;
    process::run(&mut cargo(&["build", "--package", "ropeway-peers", "--bin", "conformance-client"]))?;
    let count = client(only)?;
    if count.failed > 0 {
        bail!("{} scenarios failed", count.failed);
    }
    Ok(())
}

/// Runs every client scenario of both revisions, or the named one. The client must be built.
pub fn client(only: Option<&str>) -> Result<Count> {
    let client = paths::program("conformance-client");
    if !client.exists() {
        bail!("`{}` is not built", client.display());
    }
    let mut count = Count::default();
    for revision in REVISIONS {
        for scenario in scenarios(revision)? {
            if only.is_some_and(|name| name != scenario) {
                continue;
            }
            if passes(&scenario, revision)? {
                count.passed += 1;
            } else {
                count.failed += 1;
            }
        }
    }
    if let (Some(name), 0) = (only, count.passed + count.failed) {
        bail!("unknown client scenario `{name}`, or one of auth/");
    }
    println!("conformance: {} scenarios passed, {} failed", count.passed, count.failed);
    Ok(count)
}

/// Returns the scenarios that a revision requires of a client, without authorization.
fn scenarios(revision: &str) -> Result<Vec<String>> {
    let output = process::output(suite().args(["list", "--client", "--requirements", revision]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut names = client_scenarios(&text);
    if names.is_empty() {
        bail!("the suite lists no client scenario of {revision}\n{}", process::output_text(&output));
    }
    names.retain(|name| !name.starts_with("auth/"));
    if !names.iter().any(|name| name == ADDED) {
        names.push(ADDED.to_owned());
    }
    Ok(names)
}

/// Returns the names in the client section of the list.
fn client_scenarios(list: &str) -> Vec<String> {
    let part = list.lines().skip_while(|line| !line.starts_with("Client scenarios")).skip(1);
    let names = part.map_while(|line| line.strip_prefix("  - "));
    names.map(|name| name.trim().to_owned()).collect()
}

/// Runs one scenario by itself: only then does the suite check the exit status of the client.
fn passes(scenario: &str, revision: &str) -> Result<bool> {
    let client = paths::program("conformance-client");
    let client = client.to_str().context("the path of the client is not Unicode")?;
    if client.contains(' ') {
        bail!("the suite splits its command at spaces, and `{client}` contains one");
    }
    let started = Instant::now();
    let output = process::output(suite().args([
        "client",
        "--command",
        client,
        "--scenario",
        scenario,
        "--spec-version",
        revision,
    ]))?;
    let said = process::output_text(&output);
    let took = started.elapsed();
    let checks = checks(&said).unwrap_or("no checks");
    let passed = output.status.success();
    println!("  {} {revision} {scenario} ({checks}, {took:.1?})", if passed { '✓' } else { '✗' });
    if !passed {
        for line in said.lines() {
            println!("      {line}");
        }
    }
    Ok(passed)
}

/// Returns `3/4, 1 failed, 0 warnings` from the output of the suite.
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

    #[test]
    fn client_scenarios_end_where_the_next_section_begins() {
        let list = "Server scenarios (x):\n  - ping\n\nClient scenarios (x):\n  - initialize\n  - auth/a\n\nNever scored:\n  - b [client]\n";
        assert_eq!(client_scenarios(list), ["initialize", "auth/a"]);
    }

    #[test]
    fn the_count_of_checks_is_read_from_the_output() {
        assert_eq!(checks("Test Results:\nPassed: 3/4, 1 failed, 0 warnings\n"), Some("3/4, 1 failed, 0 warnings"));
    }
}
