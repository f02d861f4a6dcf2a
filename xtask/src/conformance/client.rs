//! Client scenarios: the suite is the server, ropeway the client.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::{Count, Kind, REVISIONS, checks, scenarios, suite};
use crate::process::{self, cargo};
use crate::{paths, servers};

/// A scenario that was added after the sets were frozen.
const ADDED: &str = "json-schema-2020-12-preservation";

/// Installs the suite, builds the client and runs every scenario, or the named one.
pub fn run(only: Option<&str>) -> Result<()> {
    servers::run()?;
    process::run(&mut cargo(&["build", "--package", "ropeway-peers", "--bin", "conformance-client"]))?;
    let count = test(only)?;
    if count.failed > 0 {
        bail!("{} scenarios failed", count.failed);
    }
    Ok(())
}

/// Runs every client scenario of both revisions, or the named one. The client must be built.
pub fn test(only: Option<&str>) -> Result<Count> {
    let client = paths::program("conformance-client");
    if !client.exists() {
        bail!("`{}` is not built", client.display());
    }
    let mut count = Count::default();
    for revision in REVISIONS {
        for scenario in required(revision)? {
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
fn required(revision: &str) -> Result<Vec<String>> {
    let mut names = scenarios(revision, Kind::Client)?;
    names.retain(|name| !name.starts_with("auth/"));
    if !names.iter().any(|name| name == ADDED) {
        names.push(ADDED.to_owned());
    }
    Ok(names)
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
