//! `cargo xtask test`: all checks, with a test count.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::conformance::client::Part;
use crate::needs::Missing;
use crate::process::{self, cargo};
use crate::{attack, clients, conformance, deploy, licences, page, servers, soak};

/// The name that modules with tests against real servers have.
const REAL: &str = "real::";

/// The Landlock interface version that sandboxes need.
const LANDLOCK: i64 = 6;

/// The linted configurations: the workspace, and the library with fewer features.
const LINTED: [&[&str]; 5] = [
    &["--workspace", "--all-targets"],
    &["--package", "ropeway", "--no-default-features"],
    &["--package", "ropeway", "--no-default-features", "--features", "mcp"],
    &["--package", "ropeway", "--no-default-features", "--features", "providers"],
    &["--package", "ropeway", "--no-default-features", "--features", "bridge"],
];

/// Test counts by result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    passed: u32,
    failed: u32,
    skipped: u32,
    filtered: u32,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.filtered += other.filtered;
    }
}

/// A step's outcome.
enum Outcome {
    Ran(Count),
    /// It failed, with the tests up to then.
    Failed(Count, anyhow::Error),
    /// A requirement is missing.
    Skipped(String),
}

struct Step {
    name: &'static str,
    took: Duration,
    outcome: Outcome,
}

/// Runs all steps, and fails at the end if one failed.
pub fn run() -> Result<()> {
    let mut steps = Vec::new();
    let missing = missing();
    if !missing.is_empty() {
        println!("=== missing on this machine\n{}", missing.join("\n"));
    }
    let mut step = |name: &'static str, work: &mut dyn FnMut() -> Outcome| {
        println!("\n=== {name}");
        let started = Instant::now();
        let outcome = work();
        let took = started.elapsed();
        println!("=== {name}: {} ({took:.1?})", word(&outcome));
        steps.push(Step { name, took, outcome });
    };

    step("formatting", &mut || {
        if !process::works("cargo", &["fmt", "--version"]) {
            return Outcome::Skipped("missing: rustfmt".to_owned());
        }
        plain(["Cargo.toml", "fuzz/Cargo.toml"].iter().try_for_each(|manifest| {
            process::run(&mut cargo(&["fmt", "--all", "--check", "--manifest-path", manifest]))
        }))
    });
    step("lints", &mut || {
        if !process::works("cargo", &["clippy", "--version"]) {
            return Outcome::Skipped("missing: clippy".to_owned());
        }
        plain(LINTED.iter().try_for_each(|what| {
            let mut clippy = cargo(&["clippy"]);
            process::run(clippy.args(what.iter().copied()).args(["--", "--deny", "warnings"]))
        }))
    });
    step("licences", &mut || match licences::check() {
        Ok(packages) => {
            println!("{packages} packages");
            Outcome::Ran(Count::default())
        }
        Err(error) => Outcome::Failed(Count::default(), error),
    });
    step("documentation", &mut || {
        let mut docs =
            cargo(&["doc", "--no-deps", "--workspace", "--exclude", "ropeway-cli", "--exclude", "ropeway-peers"]);
        docs.args(["--exclude", "xtask", "--features", "ropeway/gateway,ropeway/testing"]);
        plain(process::run(docs.env("RUSTDOCFLAGS", "--deny warnings")))
    });
    let mut have_servers = true;
    step("real servers", &mut || match servers::run() {
        Ok(()) => Outcome::Ran(Count::default()),
        Err(error) => {
            have_servers = false;
            needing(Err(error))
        }
    });
    // All targets at once: programs that tests start are built with the same features as the tests.
    step("build", &mut || plain(process::run(&mut cargo(&["build", "--workspace", "--all-targets"]))));
    step("tests", &mut || {
        let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
        tests.env("RUST_TEST_THREADS", threads().to_string());
        if !have_servers {
            tests.args(["--", "--skip", REAL]);
        }
        match counted(&mut tests) {
            // Filtered tests are those against real servers.
            Outcome::Ran(count) => Outcome::Ran(Count { skipped: count.skipped + count.filtered, ..count }),
            other => other,
        }
    });
    step("sandboxes of the kernel", &mut sandboxes);
    // The binary enables arbitrary precision for the whole workspace; the library alone has it off.
    step("tests without arbitrary precision", &mut || {
        let library = ["test", "--package", "ropeway", "--test", "suite", "--", "exact", "provider"];
        let units = ["test", "--package", "ropeway-core", "--package", "ropeway-providers", "--lib"];
        let mut total = Count::default();
        for arguments in [&units[..], &library] {
            match counted(&mut cargo(arguments)) {
                // The filter leaves out the rest on purpose.
                Outcome::Ran(count) => total += Count { filtered: 0, ..count },
                other => return other,
            }
        }
        Outcome::Ran(total)
    });
    step("conformance", &mut || {
        if !have_servers {
            return Outcome::Skipped("the suite is not installed".to_owned());
        }
        conformed(conformance::client::test(&[Part::Protocol, Part::Auth], None))
    });
    step("conformance of the reference server", &mut || {
        if !have_servers {
            return Outcome::Skipped("the suite is not installed".to_owned());
        }
        conformed(conformance::server::direct())
    });
    step("conformance of the gateway", &mut || {
        if !have_servers {
            return Outcome::Skipped("the suite is not installed".to_owned());
        }
        conformed(conformance::server::through_gateway())
    });
    step("clients", &mut || {
        if !have_servers {
            return Outcome::Skipped("the servers are not installed".to_owned());
        }
        needing(clients::short())
    });
    step("web page", &mut || {
        if !have_servers {
            return Outcome::Skipped("the servers are not installed".to_owned());
        }
        needing(page::test().map(|()| 0))
    });
    step("attack", &mut || needing(attack::short().map(|()| 0)));
    step("deployment", &mut || needing(deploy::test()));
    step("soak", &mut || {
        if !have_servers {
            return Outcome::Skipped("the servers are not installed".to_owned());
        }
        plain(soak::one_minute())
    });
    report(&steps, &missing, std::env::var("CI").is_ok_and(|value| value == "true"))
}

/// Returns how many tests run at the same time: most wait for a process.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| 2 * cores.get())
}

/// Returns one line for each program that this machine lacks, with the command that installs it.
fn missing() -> Vec<String> {
    let components = [("rustfmt", "fmt"), ("clippy", "clippy")];
    let absent = components.iter().filter(|(_, command)| !process::works("cargo", &[command, "--version"]));
    let mut lines: Vec<String> = absent.map(|(name, _)| format!("{name}: try `rustup component add {name}`")).collect();
    lines.extend(servers::missing().iter().flat_map(Missing::lines));
    lines
}

/// Reports whether sandbox tests could run: without Landlock, they only test that a sandbox is refused.
fn sandboxes() -> Outcome {
    // The call 444 with this flag returns Landlock's interface version.
    let program = "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))";
    let version = process::output(Command::new("/usr/bin/python3").args(["-c", program]));
    let version = version.ok().and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse::<i64>().ok());
    match version {
        Some(LANDLOCK..) => Outcome::Ran(Count::default()),
        version => {
            let version = version.unwrap_or_default().max(0);
            Outcome::Skipped(format!("the kernel has Landlock ABI {version}, and sandboxes need {LANDLOCK}"))
        }
    }
}

/// Converts the result from a step without tests.
fn plain(done: Result<()>) -> Outcome {
    match done {
        Ok(()) => Outcome::Ran(Count::default()),
        Err(error) => Outcome::Failed(Count::default(), error),
    }
}

/// Converts the passed test count from a step that is skipped if a program is missing.
fn needing(done: Result<u32>) -> Outcome {
    match done.map_err(anyhow::Error::downcast::<Missing>) {
        Ok(passed) => Outcome::Ran(Count { passed, ..Count::default() }),
        Err(Ok(missing)) => Outcome::Skipped(format!("missing: {}", missing.names())),
        Err(Err(error)) => Outcome::Failed(Count::default(), error),
    }
}

/// Converts a conformance run's result.
fn conformed(done: Result<conformance::Count>) -> Outcome {
    match done {
        Ok(count) => Outcome::Ran(Count { passed: count.passed, failed: count.failed, ..Count::default() }),
        Err(error) => Outcome::Failed(Count::default(), error),
    }
}

/// Runs `cargo test` with its output visible, and counts tests.
fn counted(command: &mut Command) -> Outcome {
    let mut count = Count::default();
    let mut run = || -> Result<()> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("could not start `cargo test`")?;
        let stdout = child.stdout.take().context("`cargo test` has no standard output")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            std::io::stdout().flush()?;
            count += test_result(&line).unwrap_or_default();
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`cargo test` failed with {status}");
        }
        Ok(())
    };
    match run() {
        Ok(()) => Outcome::Ran(count),
        Err(error) => Outcome::Failed(count, error),
    }
}

/// Parses `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …`.
fn test_result(line: &str) -> Option<Count> {
    let result = line.trim().strip_prefix("test result: ")?;
    let (_, numbers) = result.split_once(". ")?;
    let mut count = Count::default();
    for part in numbers.split(';') {
        let Some((number, what)) = part.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u32>() else { continue };
        match what {
            "passed" => count.passed += number,
            "failed" => count.failed += number,
            "ignored" => count.skipped += number,
            "filtered out" => count.filtered += number,
            _ => {}
        }
    }
    Some(count)
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Ran(count) if count.failed > 0 => "FAILED".to_owned(),
        Outcome::Ran(_) => "ok".to_owned(),
        Outcome::Failed(_, error) => format!("FAILED: {error:#}"),
        Outcome::Skipped(why) => format!("SKIPPED: {why}"),
    }
}

/// Returns the sum over all steps. A failed step counts as at least one failed test, a skipped step as one skipped
/// test.
fn total(steps: &[Step]) -> Count {
    let mut total = Count::default();
    for step in steps {
        total += match &step.outcome {
            Outcome::Ran(count) => *count,
            Outcome::Failed(count, _) => Count { failed: count.failed.max(1), ..*count },
            Outcome::Skipped(_) => Count { skipped: 1, ..Count::default() },
        };
    }
    total
}

fn report(steps: &[Step], missing: &[String], in_ci: bool) -> Result<()> {
    println!("\n=== all steps");
    for step in steps {
        println!("{:>8.1?}  {:<12}  {}", step.took, step.name, word(&step.outcome));
    }
    if !missing.is_empty() {
        println!("\n=== missing on this machine\n{}", missing.join("\n"));
    }
    let total = total(steps);
    println!("\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed > 0 {
        bail!("checks failed");
    }
    if in_ci && total.skipped > 0 {
        bail!("checks were skipped, which CI=true does not allow");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_test_run_are_parsed() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 5 measured; 6 filtered out; finished in 0.01s";
        assert_eq!(test_result(line), Some(Count { passed: 12, failed: 3, skipped: 4, filtered: 6 }));
        assert_eq!(test_result("test tests::a ... ok"), None);
    }

    #[test]
    fn a_failed_step_always_counts_as_a_failure() {
        let step = |outcome| Step { name: "x", took: Duration::ZERO, outcome };
        let passed = Count { passed: 2, ..Count::default() };
        let steps = [
            step(Outcome::Ran(passed)),
            step(Outcome::Failed(passed, anyhow::anyhow!("x"))),
            step(Outcome::Skipped("x".to_owned())),
        ];
        assert_eq!(total(&steps), Count { passed: 4, failed: 1, skipped: 1, filtered: 0 });
    }
}
