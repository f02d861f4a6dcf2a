//! A trial: one run of one program, in a process of its own so that its time and memory are its own.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// No run takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a contestant that prints its report. A run that fails is reported, not fatal: the others still count.
pub(super) fn report(command: &mut Command) -> Result<Result<Value, String>> {
    let mut child = command
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start `{}`", command.get_program().display()))?;
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(Err(format!("not done after {PATIENCE:?}")));
        }
        // Coarse on purpose: the waiter must not take CPU from what it measures.
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("note: ")).take(3).collect();
        return Ok(Err(said.join(" ")));
    }
    Ok(serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()))
}
