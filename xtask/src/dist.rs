//! Builds a release: the static binary, its man pages and completions, and checksums.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::paths::{root, target as target_folder};
use crate::process::{self, cargo};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// The size that the binary should have at most, in bytes.
const GOAL_BYTES: u64 = 12 << 20;

/// Builds everything into `target/dist-files/`. `--host` builds for this machine instead of the static target.
pub fn run(args: &[String]) -> Result<()> {
    let target = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Some(TARGET),
        ["--host"] => None,
        _ => bail!("usage: cargo xtask dist [--host]"),
    };
    if let Some(target) = target.filter(|target| !has_target(target)) {
        bail!(
            "the standard library for {target} is not installed: try `rustup target add {target}`, or build with --host"
        );
    }
    let folder = target_folder().join("dist-files");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;

    let mut build = cargo(&["build", "--profile", "dist", "--locked", "--package", "ropeway-cli"]);
    build.args(target.iter().flat_map(|target| ["--target", target]));
    process::run(&mut build)?;
    let built = target_folder().join(target.unwrap_or_default()).join("dist/ropeway");
    let binary = folder.join("ropeway");
    std::fs::copy(&built, &binary).with_context(|| format!("{}", built.display()))?;

    process::run_quietly(Command::new(&binary).arg("man").arg(&man))?;
    for (shell, file) in [("bash", "ropeway.bash"), ("zsh", "_ropeway"), ("fish", "ropeway.fish")] {
        let output = process::output(Command::new(&binary).args(["completions", shell]))?;
        if !output.status.success() {
            bail!("`ropeway completions {shell}` failed\n{}", process::output_text(&output));
        }
        std::fs::write(completions.join(file), output.stdout)?;
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
        std::fs::copy(root().join(name), folder.join(name))?;
    }
    checksums(&folder)?;

    let bytes = std::fs::metadata(&binary)?.len();
    println!("{} ({:.1} MiB)", binary.display(), bytes as f64 / f64::from(1 << 20));
    if bytes > GOAL_BYTES {
        eprintln!("warning: the binary is larger than the goal of {} MiB", GOAL_BYTES >> 20);
    }
    Ok(())
}

fn has_target(target: &str) -> bool {
    let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]));
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir()
}

/// Writes `SHA256SUMS` for all files below a folder, in the format that `sha256sum --check` reads.
fn checksums(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for entry in std::fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let output = process::output(Command::new("sha256sum").args(&files).current_dir(folder))?;
    if !output.status.success() {
        bail!("`sha256sum` failed\n{}", process::output_text(&output));
    }
    Ok(std::fs::write(folder.join("SHA256SUMS"), output.stdout)?)
}
