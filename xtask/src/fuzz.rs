//! Long fuzz target runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

use crate::paths;
use crate::process::{self, cargo};

/// The cargo-fuzz version to install.
const CARGO_FUZZ: &str = "0.13.1";

/// Default duration per target.
const SECONDS: u64 = 60;

/// Exit codes with which libFuzzer and the mutator report a finding: crash, leak, timeout, out of
/// memory.
const FOUND: [i32; 4] = [70, 71, 76, 77];

/// Command-line options.
#[derive(Debug, Default, PartialEq)]
struct Options {
    target: Option<String>,
    seconds: Option<u64>,
    keep: Option<PathBuf>,
    /// Do not use libFuzzer even if it is available.
    mutator: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match arg.as_str() {
                "--seconds" => {
                    let value = value()?;
                    options.seconds =
                        Some(value.parse().with_context(|| format!("`{value}` is not a number of seconds"))?);
                }
                "--keep" => options.keep = Some(value()?.into()),
                "--mutator" => options.mutator = true,
                option if option.starts_with('-') => bail!("unknown option `{option}`"),
                target if options.target.is_none() => options.target = Some(target.to_owned()),
                extra => bail!("unexpected argument `{extra}`"),
            }
        }
        Ok(options)
    }
}

/// The program that runs the targets.
enum Engine {
    /// libFuzzer, guided by coverage.
    LibFuzzer(PathBuf),
    /// Mutations from the corpus.
    Mutator(PathBuf),
}

/// One target's result.
struct Run {
    summary: String,
    found: Option<PathBuf>,
}

/// Runs `cargo xtask fuzz [TARGET] [--seconds N] [--keep FILE] [--mutator]`.
pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let mut targets = targets()?;
    if let Some(name) = &options.target {
        ensure!(targets.contains(name), "no target `{name}`; the targets are {}", targets.join(", "));
        targets.retain(|target| target == name);
    }
    if let Some(file) = &options.keep {
        let [target] = targets.as_slice() else { bail!("`--keep` needs a target") };
        return keep(target, file);
    }
    let engine = engine(options.mutator)?;
    let seconds = options.seconds.unwrap_or(SECONDS);
    let mut findings = 0;
    for target in &targets {
        let Run { summary, found } = engine.run(target, seconds)?;
        println!("{target:<16} {summary}");
        if let Some(input) = found {
            findings += 1;
            let input = input.strip_prefix(paths::root()).unwrap_or(&input).display().to_string();
            println!("{:16} keep the input with `cargo xtask fuzz {target} --keep {input}`", "");
        }
    }
    ensure!(findings == 0, "{findings} of {} targets failed", targets.len());
    Ok(())
}

fn folder() -> PathBuf {
    paths::root().join("fuzz")
}

/// Returns the targets, which have one corpus folder each; a test checks that.
fn targets() -> Result<Vec<String>> {
    let corpus = folder().join("corpus");
    let entries = fs::read_dir(&corpus).with_context(|| format!("could not read `{}`", corpus.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        targets.push(entry?.file_name().to_string_lossy().into_owned());
    }
    targets.sort();
    Ok(targets)
}

/// Copies an input to a target's corpus.
fn keep(target: &str, file: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("`{}` is not a file", file.display()))?;
    let kept = folder().join("corpus").join(target).join(name);
    ensure!(!kept.exists(), "`{}` already exists", kept.display());
    fs::copy(file, &kept).with_context(|| format!("could not copy `{}`", file.display()))?;
    println!("kept as {}; rename it to describe the finding", kept.display());
    Ok(())
}

/// Builds the engine and prints which one it is.
fn engine(mutator: bool) -> Result<Engine> {
    let missing = if mutator { Some("`--mutator` is set".to_owned()) } else { missing() };
    match missing {
        None => {
            println!("libFuzzer, guided by coverage");
            build_libfuzzer().map(Engine::LibFuzzer)
        }
        Some(why) => {
            println!("mutations of the corpus, not guided by coverage: {why}");
            build_mutator().map(Engine::Mutator)
        }
    }
}

/// Returns why libFuzzer cannot be used.
fn missing() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if !process::works(&compiler, &["--version"]) {
        return Some(format!("the C++ compiler `{compiler}` is not installed"));
    }
    if cargo_fuzz().is_some() {
        return None;
    }
    let root = tools();
    let version = format!("={CARGO_FUZZ}");
    let mut install = cargo(&["install", "cargo-fuzz", "--locked", "--quiet", "--version", &version, "--root"]);
    println!("installing cargo-fuzz {CARGO_FUZZ} into {}", root.display());
    process::run(install.arg(&root)).err().map(|error| format!("cargo-fuzz could not be installed: {error:#}"))
}

fn tools() -> PathBuf {
    paths::target().join("tools").join("cargo-fuzz")
}

/// Returns the program `cargo-fuzz`: the installed one, or the user's.
fn cargo_fuzz() -> Option<PathBuf> {
    [tools().join("bin").join("cargo-fuzz"), "cargo-fuzz".into()]
        .into_iter()
        .find(|program| process::works(&program.to_string_lossy(), &["fuzz", "--version"]))
}

/// Builds the program with instrumentation.
///
/// Without a sanitizer, which requires a nightly toolchain: the library has no `unsafe` code to check.
fn build_libfuzzer() -> Result<PathBuf> {
    let program = cargo_fuzz().context("cargo-fuzz is not installed")?;
    let target = paths::target().join("fuzz");
    let mut build = Command::new(program);
    build.args(["fuzz", "build", "--sanitizer", "none", "--features", "libfuzzer", "--target-dir"]).arg(&target);
    process::run(build.arg("libfuzzer").current_dir(folder()))?;
    let rustc = process::output(Command::new("rustc").arg("-vV"))?;
    let said = String::from_utf8_lossy(&rustc.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` printed no host")?;
    Ok(target.join(host).join("release").join("libfuzzer"))
}

fn build_mutator() -> Result<PathBuf> {
    let target = paths::target().join("fuzz");
    let mut build = cargo(&["build", "--release", "--bin", "mutate", "--target-dir"]);
    process::run(build.arg(&target).current_dir(folder()))?;
    Ok(target.join("release").join("mutate"))
}

impl Engine {
    /// Runs one target for this long, or until it finds something.
    fn run(&self, target: &str, seconds: u64) -> Result<Run> {
        let kept = folder().join("corpus").join(target);
        let artifacts = folder().join("artifacts").join(target);
        // Inputs that libFuzzer found are kept between runs, outside the repository.
        let grown = paths::target().join("fuzz").join("corpus").join(target);
        let log = paths::target().join("fuzz").join("logs").join(format!("{target}.log"));
        for folder in [&artifacts, &grown, &log.with_file_name("")] {
            fs::create_dir_all(folder).with_context(|| format!("could not create `{}`", folder.display()))?;
        }
        let mut command = match self {
            Self::LibFuzzer(program) => {
                let mut command = Command::new(program);
                // A large program's backtrace takes longer than an input's timeout.
                command.env("FUZZ_TARGET", target).env("RUST_BACKTRACE", "0");
                command.args(["-timeout=5", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1"]);
                command.arg(format!("-max_total_time={seconds}"));
                command.arg(format!("-artifact_prefix={}/", artifacts.display())).args([&grown, &kept]);
                command
            }
            Self::Mutator(program) => {
                let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let mut command = Command::new(program);
                command.args([target, &seconds.to_string(), &seed.to_string()]).args([&kept, &artifacts]);
                command
            }
        };
        let output = File::create(&log).with_context(|| format!("could not create `{}`", log.display()))?;
        let status = command.stdout(output.try_clone()?).stderr(output).status();
        let status = status.with_context(|| format!("could not start the target `{target}`"))?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        if status.success() {
            return Ok(Run { summary: format!("{}, nothing found", count(&said)), found: None });
        }
        let found = artifact(&said);
        // A stack overflow ends the process by a signal, without an exit code.
        if found.is_none() && status.code().is_some_and(|code| !FOUND.contains(&code)) {
            bail!("the target `{target}` failed with {status}; see {}", log.display());
        }
        let why = reason(&said).unwrap_or_else(|| status.to_string());
        Ok(Run { summary: format!("FAILED: {why}; see {}", log.display()), found })
    }
}

/// Returns the input count and the covered edge count.
fn count(said: &str) -> String {
    let units = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let Some(units) = units.map(str::trim) else {
        return said.lines().last().unwrap_or("no inputs").replace(", nothing found", "");
    };
    let reached = said.lines().rev().find_map(|line| line.split_once(" cov: ")?.1.split(' ').next());
    match reached {
        Some(edges) => format!("{units} inputs, {edges} edges"),
        None => format!("{units} inputs"),
    }
}

/// Returns the file with a finding's input.
fn artifact(said: &str) -> Option<PathBuf> {
    said.lines().find_map(|line| Some(line.split_once("Test unit written to ")?.1.into()))
}

/// Returns the line with a finding's reason.
fn reason(said: &str) -> Option<String> {
    let mut lines = said.lines();
    let panic = lines.by_ref().find(|line| line.contains("panicked at"));
    let message = panic.and_then(|_| lines.next());
    let error = || said.lines().find(|line| line.contains("ERROR: libFuzzer") || line.contains("overflowed its stack"));
    message.or_else(error).map(|line| line.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Options> {
        Options::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_parsed_in_any_order() {
        let sse = Options { target: Some("sse".into()), seconds: Some(5), ..Options::default() };
        assert_eq!(options("--seconds 5 sse").expect("options"), sse);
        assert_eq!(options("sse --seconds 5").expect("options"), sse);
        assert_eq!(options("").expect("options"), Options::default());
    }

    #[test]
    fn a_wrong_option_is_refused() {
        for (words, message) in [
            ("--secs 5", "unknown option `--secs`"),
            ("sse frame", "unexpected argument `frame`"),
            ("--seconds", "`--seconds` needs a value"),
            ("--seconds soon", "`soon` is not a number of seconds"),
        ] {
            assert_eq!(options(words).expect_err("an error").to_string(), message);
        }
    }

    #[test]
    fn a_summary_has_inputs_and_edges() {
        let said = "#2\tINITED cov: 310 ft: 311 corp: 1/1b\n#99\tDONE   cov: 512 ft: 900 corp: 9/1Kb\nstat::number_of_executed_units: 99\n";
        assert_eq!(count(said), "99 inputs, 512 edges");
        assert_eq!(count("7 inputs, nothing found\n"), "7 inputs");
    }

    #[test]
    fn a_finding_has_its_input_and_its_reason() {
        let said = "thread 'x' panicked at src/a.rs:3:5:\nassertion failed\nTest unit written to /a/crash-1\n";
        assert_eq!(artifact(said), Some("/a/crash-1".into()));
        assert_eq!(reason(said).as_deref(), Some("assertion failed"));
        assert_eq!(
            reason("==1== ERROR: libFuzzer: timeout after 5 seconds\n").as_deref(),
            Some("==1== ERROR: libFuzzer: timeout after 5 seconds")
        );
    }
}
