//! `cargo xtask attack`: hostile HTTP clients against the gateway, with bounds on memory and on a good client's calls.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};

use crate::needs::{Missing, PYTHON};
use crate::paths;
use crate::process::{self, cargo};

/// Runs `attack [--short] [--case NAME] [--way WAY] [--program PATH]`.
pub fn run(args: &[String]) -> Result<()> {
    let given = args.iter().position(|arg| arg == "--program");
    let (program, rest) = match given {
        Some(at) => {
            let program = args.get(at + 1).context("`--program` needs a value")?;
            (PathBuf::from(program), [&args[..at], &args[at + 2..]].concat())
        }
        None => {
            // Memory and time limits hold for the optimized program.
            process::run(&mut cargo(&["build", "--release", "--package", "ropeway-cli", "--bin", "ropeway"]))?;
            (paths::target().join("release").join("ropeway"), args.to_vec())
        }
    };
    attack(&program, &rest)
}

/// Runs the short form with the debug build, which must exist.
pub fn short() -> Result<()> {
    attack(&paths::program("ropeway"), &["--short".to_owned()])
}

fn attack(program: &std::path::Path, args: &[String]) -> Result<()> {
    if !PYTHON.ensure() {
        return Err(anyhow!(Missing(vec![PYTHON])));
    }
    let script = paths::root().join("fixtures").join("attack").join("attack.py");
    let folder = paths::target().join("attack");
    let mut python = Command::new("python3");
    python.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg("--program").arg(program).arg("--folder").arg(folder);
    process::run(python.args(args))
}
