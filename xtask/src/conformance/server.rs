//! Server scenarios: the suite is our reference server's client, directly or through `ropeway serve`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::baseline::Baseline;
use super::{Count, Kind, REVISIONS, scenarios, suite};
use crate::background::Background;
use crate::gateway::{self, Gateway};
use crate::process;
use crate::{paths, servers};

/// What the suite connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The reference server.
    Direct,
    /// The gateway, in front of a reference server with these eras.
    Gateway(&'static str),
}

impl Mode {
    /// Returns the baseline's section.
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Gateway("legacy") => "behind-legacy",
            Self::Gateway("modern") => "behind-modern",
            Self::Gateway(_) => "gateway",
        }
    }
}

/// Runs `conformance server [--through-gateway [--behind legacy|modern]] [--scenario NAME]`.
pub fn run(args: &[String]) -> Result<()> {
    let (mut mode, mut behind, mut only) = (Mode::Direct, None, None);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || args.next().with_context(|| format!("`{flag}` needs a value"));
        match flag.as_str() {
            "--through-gateway" => mode = Mode::Gateway("both"),
            "--behind" => {
                behind = Some(match value()?.as_str() {
                    "legacy" => "legacy",
                    "modern" => "modern",
                    other => bail!("unknown era `{other}`; try legacy or modern"),
                });
            }
            "--scenario" => only = Some(value()?.as_str()),
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    if let Some(era) = behind {
        if mode == Mode::Direct {
            bail!("`--behind` needs `--through-gateway`");
        }
        mode = Mode::Gateway(era);
    }
    servers::run()?;
    process::build(&["conformance-server"])?;
    if mode != Mode::Direct {
        process::build(&["ropeway"])?;
    }
    let count = test(mode, only)?;
    if count.failed > 0 {
        bail!("{} scenarios had an unexpected result", count.failed);
    }
    Ok(())
}

/// Runs every server scenario in both revisions directly. The server must be built.
pub fn direct() -> Result<Count> {
    test(Mode::Direct, None)
}

/// Runs every server scenario in both revisions through the gateway, in front of servers with both eras and with one. The
/// programs must be built.
pub fn through_gateway() -> Result<Count> {
    let mut total = Count::default();
    for behind in ["both", "legacy", "modern"] {
        let count = test(Mode::Gateway(behind), None)?;
        total.passed += count.passed;
        total.failed += count.failed;
    }
    Ok(total)
}

fn test(mode: Mode, only: Option<&str>) -> Result<Count> {
    let baseline = Baseline::load(mode.name())?;
    let endpoint = Endpoint::start(mode)?;
    let (mut count, mut expected) = (Count::default(), 0);
    for revision in REVISIONS {
        let started = Instant::now();
        let mut names = scenarios(revision, Kind::Server)?;
        names.retain(|name| only.is_none_or(|only| only == name));
        if names.is_empty() {
            continue;
        }
        let results = Results::collect(&endpoint.url, revision, only)?;
        println!("{revision} ({}, {:.1?})", mode.name(), started.elapsed());
        for scenario in names {
            let outcome = results.outcome(&scenario)?;
            let reason = baseline.reason(revision, &scenario);
            outcome.print(&scenario, reason);
            match (outcome.failures.is_empty(), reason) {
                (true, None) => count.passed += 1,
                (false, Some(_)) => expected += 1,
                (false, None) | (true, Some(_)) => count.failed += 1,
            }
        }
    }
    if let (Some(name), 0) = (only, count.passed + count.failed + expected) {
        bail!("unknown server scenario `{name}`");
    }
    println!(
        "conformance of the server ({}): {} scenarios passed, {expected} failed as expected, {} unexpected",
        mode.name(),
        count.passed,
        count.failed
    );
    endpoint.stop()?;
    Ok(count)
}

/// The programs that the suite connects to.
struct Endpoint {
    url: String,
    gateway: Option<Gateway>,
    server: Background,
}

impl Endpoint {
    fn start(mode: Mode) -> Result<Self> {
        let program = paths::program("conformance-server");
        if !program.exists() {
            bail!("`{}` is not built", program.display());
        }
        let eras = match mode {
            Mode::Direct => "both",
            Mode::Gateway(eras) => eras,
        };
        let server = Background::start(Command::new(program).args(["--era", eras, "--listen", "127.0.0.1:0"]))?;
        let url = server.url(Duration::from_secs(30))?;
        if mode == Mode::Direct {
            return Ok(Self { url, gateway: None, server });
        }
        let config = json!({ "servers": [{ "alias": "conformance", "url": url }] });
        let config = gateway::write_config(mode.name(), &config)?;
        let gateway = Gateway::start(&paths::program("ropeway"), &config, "127.0.0.1:0")?;
        Ok(Self { url: gateway.url.clone(), gateway: Some(gateway), server })
    }

    /// Ends the gateway first. Fails if a program ignores SIGTERM.
    fn stop(self) -> Result<()> {
        if let Some(gateway) = self.gateway {
            gateway.program.stop()?;
        }
        self.server.stop()
    }
}

/// The results from one suite run.
struct Results {
    folder: PathBuf,
    said: String,
}

impl Results {
    /// Runs all server scenarios in a revision, or one.
    fn collect(url: &str, revision: &str, only: Option<&str>) -> Result<Self> {
        let folder = paths::target().join("conformance").join(revision);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let mut command = suite();
        command.args(["server", "--url", url, "--output-dir"]).arg(&folder);
        match only {
            Some(scenario) => command.args(["--scenario", scenario, "--spec-version", revision]),
            None => command.args(["--requirements", revision]),
        };
        let output = process::output(&mut command)?;
        Ok(Self { folder, said: process::output_text(&output) })
    }

    /// Returns a scenario's result. Its folder is named `server-SCENARIO-TIME`.
    fn outcome(&self, scenario: &str) -> Result<Outcome> {
        let entries = fs::read_dir(&self.folder)
            .with_context(|| format!("the suite wrote no results\n{}", self.said))?
            .collect::<Result<Vec<_>, _>>()?;
        let found = entries.iter().find(|entry| scenario_of(&entry.file_name().to_string_lossy()) == Some(scenario));
        let Some(entry) = found else {
            return Ok(Outcome { failures: vec!["the suite did not run it".to_owned()], ..Outcome::default() });
        };
        let text = fs::read_to_string(entry.path().join("checks.json"))?;
        Ok(Outcome::read(&serde_json::from_str(&text)?))
    }
}

/// Returns a result folder's scenario.
fn scenario_of(folder: &str) -> Option<&str> {
    let name = folder.strip_prefix("server-")?;
    // -2026-11-16T19-30-59-041Z
    name.get(..name.len().checked_sub(25)?)
}

/// One scenario's checks.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    passed: usize,
    skipped: usize,
    warnings: Vec<String>,
    failures: Vec<String>,
}

impl Outcome {
    fn read(checks: &Value) -> Self {
        let mut outcome = Self::default();
        for check in checks.as_array().into_iter().flatten() {
            let line = || {
                let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
                format!("{}: {}", text("id"), text("errorMessage"))
            };
            match check["status"].as_str() {
                Some("SUCCESS") => outcome.passed += 1,
                Some("FAILURE") => outcome.failures.push(line()),
                Some("WARNING") => outcome.warnings.push(line()),
                Some("SKIPPED") => outcome.skipped += 1,
                _ => {}
            }
        }
        outcome
    }

    fn print(&self, scenario: &str, reason: Option<&str>) {
        let (icon, note) = match (self.failures.is_empty(), reason) {
            (true, None) => ('✓', String::new()),
            (false, Some(reason)) => ('~', format!("  expected: {reason}")),
            (false, None) => ('✗', String::new()),
            (true, Some(_)) => ('✗', "  passes, but the baseline expects a failure".to_owned()),
        };
        let Self { passed, skipped, warnings, failures } = self;
        let (failed, warned) = (failures.len(), warnings.len());
        println!(
            "  {icon} {scenario:<46} {passed:>3} passed {failed:>2} failed {warned:>2} warnings {skipped:>2} skipped{note}"
        );
        for line in failures.iter().chain(warnings) {
            println!("      {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_own_baseline() {
        let names =
            [Mode::Direct, Mode::Gateway("both"), Mode::Gateway("legacy"), Mode::Gateway("modern")].map(Mode::name);
        assert_eq!(names, ["direct", "gateway", "behind-legacy", "behind-modern"]);
    }

    #[test]
    fn a_scenario_is_named_by_its_folder() {
        assert_eq!(scenario_of("server-server-stateless-2026-11-16T19-30-59-041Z"), Some("server-stateless"));
        assert_eq!(scenario_of("server-x"), None);
    }

    #[test]
    fn checks_are_counted_by_status() {
        let check = |status: &str| json!({ "id": "a", "status": status, "errorMessage": "why" });
        let outcome = Outcome::read(&json!([check("SUCCESS"), check("FAILURE"), check("WARNING"), check("INFO")]));
        let line = || vec!["a: why".to_owned()];
        assert_eq!(outcome, Outcome { passed: 1, skipped: 0, warnings: line(), failures: line() });
    }

    #[test]
    fn the_baseline_file_can_be_read() {
        for mode in ["direct", "gateway", "behind-legacy", "behind-modern"] {
            Baseline::load(mode).expect("a valid baseline");
        }
    }
}
