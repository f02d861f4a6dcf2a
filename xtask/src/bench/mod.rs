//! Benchmarks: contestants measured in one run and compared as ratios, with a goal for each.

mod agent;
mod bridge;
mod cli;
mod collector;
mod engine;
mod gateway;
mod gateways;
mod goal;
mod providers;
mod redaction;
mod rounds;
mod sessions;
mod trial;
mod turns;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths;
use crate::process::{cargo, run as run_command};

/// Runs `bench engine|bridge|providers|agent|redaction|gateway|sessions [--json] [--quick]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some((what, flags)) = args.split_first() else { bail!(USAGE) };
    let (mut json, mut quick) = (false, false);
    for flag in flags {
        match flag.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            _ => bail!("unknown flag `{flag}`"),
        }
    }
    let (document, text): (Value, String) = match what.as_str() {
        "engine" => {
            let report = engine::Report::measure(&build(&["ropeway-peers"])?, quick)?;
            (report.to_json(), report.to_text())
        }
        "bridge" => {
            let report = bridge::Report::measure(&build(&["ropeway-peers", "ropeway-cli"])?, quick)?;
            (report.to_json(), report.to_text())
        }
        "providers" => {
            let report = providers::Report::measure(&build(&["ropeway-peers"])?, quick)?;
            (report.to_json(), report.to_text())
        }
        "agent" => {
            let report = agent::Report::measure(&build_only("ropeway-peers", &agent::PROGRAMS)?, quick)?;
            (report.to_json(), report.to_text())
        }
        "redaction" => {
            let report = redaction::Report::measure(&build_only("ropeway-peers", &redaction::PROGRAMS)?, quick)?;
            (report.to_json(), report.to_text())
        }
        "gateway" => {
            let report = gateway::Report::measure(&build(&["ropeway-peers", "ropeway-cli"])?, quick)?;
            (report.to_json(), report.to_text())
        }
        "sessions" => {
            let report = sessions::Report::measure(&build_only("ropeway-cli", &["ropeway"])?, quick)?;
            (report.to_json(), report.to_text())
        }
        _ => bail!(USAGE),
    };
    if json {
        println!("{document}");
    } else {
        print!("{text}");
    }
    Ok(())
}

const USAGE: &str =
    "usage: cargo xtask bench engine|bridge|providers|agent|redaction|gateway|sessions [--json] [--quick]";

/// Builds these packages' programs and returns their folder.
fn build(packages: &[&str]) -> Result<PathBuf> {
    // Built separately: together, shared dependencies would have unified features.
    for package in packages {
        cargo_build(package, &["--bins"])?;
    }
    built()
}

/// Builds some programs in a package and returns their folder.
fn build_only(package: &str, programs: &[&str]) -> Result<PathBuf> {
    let flags: Vec<&str> = programs.iter().flat_map(|program| ["--bin", program]).collect();
    cargo_build(package, &flags)?;
    built()
}

fn cargo_build(package: &str, flags: &[&str]) -> Result<()> {
    let mut cargo = cargo(&["build", "--quiet", "--release", "--package", package]);
    cargo.args(flags);
    // `cargo run` sets these variables for xtask; build scripts that watch them would run again.
    for (name, _) in
        env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        cargo.env_remove(name);
    }
    run_command(&mut cargo)
}

fn built() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| paths::root().join("target"), PathBuf::from);
    target.join("release").canonicalize().context("the built programs were not found")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the last minute's load average.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
