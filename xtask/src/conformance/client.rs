//! Client scenarios: the suite is the server, ropeway the client.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::baseline::Baseline;
use super::{Count, Kind, REVISIONS, checks, scenarios, suite};
use crate::process;
use crate::{paths, servers};

/// A scenario that was added after the sets were frozen.
const ADDED: &str = "json-schema-2020-12-preservation";

/// Which scenarios run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those without authorization.
    Protocol,
    /// Those in `auth/`, extensions included.
    Auth,
}

/// Runs `conformance client [--auth] [--scenario NAME]`.
pub fn run(args: &[String]) -> Result<()> {
    let (mut parts, mut only) = (vec![Part::Protocol], None);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--auth" => parts = vec![Part::Auth],
            "--scenario" => only = Some(args.next().context("`--scenario` needs a value")?.as_str()),
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    if only.is_some_and(|name| name.starts_with("auth/")) {
        parts = vec![Part::Auth];
    }
    servers::run()?;
    process::build(&["conformance-client"])?;
    let count = test(&parts, only)?;
    if count.failed > 0 {
        bail!("{} scenarios had an unexpected result", count.failed);
    }
    Ok(())
}

/// Runs every client scenario in both revisions, or the named one. The client must be built.
pub fn test(parts: &[Part], only: Option<&str>) -> Result<Count> {
    let client = paths::program("conformance-client");
    if !client.exists() {
        bail!("`{}` is not built", client.display());
    }
    let baseline = Baseline::load("client")?;
    let (mut count, mut expected) = (Count::default(), 0);
    for revision in REVISIONS {
        for scenario in required(revision, parts)? {
            if only.is_some_and(|name| name != scenario) {
                continue;
            }
            let reason = baseline.reason(revision, &scenario);
            match (passes(&scenario, revision)?, reason) {
                (true, None) => count.passed += 1,
                (false, Some(reason)) => {
                    println!("      expected: {reason}");
                    expected += 1;
                }
                (false, None) => count.failed += 1,
                (true, Some(_)) => {
                    println!("      passes, but is in the baseline");
                    count.failed += 1;
                }
            }
        }
    }
    if let (Some(name), 0) = (only, count.passed + count.failed + expected) {
        bail!("unknown client scenario `{name}`");
    }
    println!("conformance: {} scenarios passed, {} failed, {expected} failed as expected", count.passed, count.failed);
    Ok(count)
}

/// Returns a revision's client scenarios.
fn required(revision: &str, parts: &[Part]) -> Result<Vec<String>> {
    let mut names = scenarios(revision, Kind::Client)?;
    if !names.iter().any(|name| name == ADDED) {
        names.push(ADDED.to_owned());
    }
    let part = |name: &str| if name.starts_with("auth/") { Part::Auth } else { Part::Protocol };
    names.retain(|name| parts.contains(&part(name)));
    Ok(names)
}

/// Runs one scenario by itself: only then does the suite check the client's exit status.
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
        // Extensions are on no revision's timeline. Without it, the suite skips them and reports success.
        "--force",
    ]))?;
    let said = process::output_text(&output);
    let took = started.elapsed();
    let checks = checks(&said);
    // A scenario that was skipped has no checks, and proves nothing.
    let passed = output.status.success() && checks.is_some();
    let checks = checks.unwrap_or("no checks");
    println!("  {} {revision} {scenario} ({checks}, {took:.1?})", if passed { '✓' } else { '✗' });
    if !passed {
        for line in said.lines() {
            println!("      {line}");
        }
    }
    Ok(passed)
}
