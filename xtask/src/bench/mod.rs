//! Benchmarks: contestants side by side in one run, as ratios, with a verdict on each promise of speed.

mod engine;
mod rounds;
mod trial;
mod verdict;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs `bench engine [--json] [--quick]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (mut json, mut quick) = (false, false);
    match args.split_first() {
        Some((what, flags)) if what == "engine" => {
            for flag in flags {
                match flag.as_str() {
                    "--json" => json = true,
                    "--quick" => quick = true,
                    _ => bail!("unknown flag `{flag}`"),
                }
            }
        }
        _ => bail!("usage: cargo xtask bench engine [--json] [--quick]"),
    }
    let board = engine::Board::fill(&build_peers()?, quick)?;
    if json {
        println!("{}", board.to_json());
    } else {
        print!("{}", board.to_text());
    }
    Ok(())
}

/// Builds the contestants and servers, and says where they are.
fn build_peers() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` told us about the package xtask; build scripts that watch these variables would run again.
    for (name, _) in
        env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        cargo.env_remove(name);
    }
    let built = cargo
        .args(["build", "--quiet", "--release", "--package", "ropeway-peers", "--bins"])
        .current_dir(&root)
        .status()
        .context("could not start cargo")?;
    if !built.success() {
        bail!("the peers could not be built");
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release").canonicalize().context("the built peers are not where they should be")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
