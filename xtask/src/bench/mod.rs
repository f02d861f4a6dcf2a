//! Benchmarks: contestants side by side in one run, as ratios, with a verdict on each promise of speed.

mod agent;
mod bridge;
mod cli;
mod engine;
mod providers;
mod redaction;
mod rounds;
mod trial;
mod turns;
mod verdict;

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::place;
use crate::process::{cargo, run as run_command};

/// Runs `bench engine|bridge|providers|agent|redaction [--json] [--quick]`.
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
            let board = engine::Board::fill(&build(&["ropeway-peers"])?, quick)?;
            (board.to_json(), board.to_text())
        }
        "bridge" => {
            let board = bridge::Board::fill(&build(&["ropeway-peers", "ropeway-cli"])?, quick)?;
            (board.to_json(), board.to_text())
        }
        "providers" => {
            let board = providers::Board::fill(&build(&["ropeway-peers"])?, quick)?;
            (board.to_json(), board.to_text())
        }
        "agent" => {
            let board = agent::Board::fill(&build_only("ropeway-peers", &agent::PROGRAMS)?, quick)?;
            (board.to_json(), board.to_text())
        }
        "redaction" => {
            let board = redaction::Board::fill(&build_only("ropeway-peers", &redaction::PROGRAMS)?, quick)?;
            (board.to_json(), board.to_text())
        }
        _ => bail!(USAGE),
    };
    match json {
        true => println!("{document}"),
        false => print!("{text}"),
    }
    Ok(())
}

const USAGE: &str = "usage: cargo xtask bench engine|bridge|providers|agent|redaction [--json] [--quick]";

/// Builds the programs of these packages, and says where they are.
fn build(packages: &[&str]) -> Result<PathBuf> {
    // One after the other: built together, one would get the features that the other asks of what both depend on.
    for package in packages {
        cargo_build(package, &["--bins"])?;
    }
    built()
}

/// Builds some programs of a package, where the others would take much longer, and says where they are.
fn build_only(package: &str, programs: &[&str]) -> Result<PathBuf> {
    let flags: Vec<&str> = programs.iter().flat_map(|program| ["--bin", program]).collect();
    cargo_build(package, &flags)?;
    built()
}

fn cargo_build(package: &str, flags: &[&str]) -> Result<()> {
    let mut cargo = cargo(&["build", "--quiet", "--release", "--package", package]);
    cargo.args(flags);
    // `cargo run` told us about the package xtask; build scripts that watch these variables would run again.
    for (name, _) in
        env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        cargo.env_remove(name);
    }
    run_command(&mut cargo)
}

fn built() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| place::root().join("target"), PathBuf::from);
    target.join("release").canonicalize().context("the built programs are not where they should be")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many programs wanted a core in the last minute, on average.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
