//! A trial: one program's run in its own process.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Maximum run duration.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A successful run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) stdout: String,
    /// Time from exec to exit.
    pub(super) took: Duration,
}

/// Runs a program to its end. The inner error is a failed run, which does not end the benchmark.
pub(super) fn run(command: &mut Command) -> Result<Result<Run, String>> {
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child =
        command.spawn().with_context(|| format!("could not start `{}`", command.get_program().display()))?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    // Waits until the output ends instead of polling, which would take CPU time from the measured program.
    let stdout = stdout.recv_timeout(TIMEOUT);
    if stdout.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    let took = started.elapsed();
    let Ok(stdout) = stdout else { return Ok(Err(format!("timed out after {TIMEOUT:?}"))) };
    if !status.success() {
        // A process that outlives it may hold its standard error open.
        let stderr = stderr.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        return Ok(Err(format!("{status}: {}", complaint(&stderr))));
    }
    Ok(Ok(Run { stdout, took }))
}

/// Runs a contestant that prints its report as JSON.
pub(super) fn report(command: &mut Command) -> Result<Result<Value, String>> {
    Ok(run(command)?.and_then(|run| serde_json::from_str(&run.stdout).map_err(|error| error.to_string())))
}

/// Runs a program and measures its time. Its output must contain all these words, which prove that it did its work.
pub(super) fn timed(command: &mut Command, words: &[String]) -> Result<Result<Value, String>> {
    Ok(run(command)?.and_then(|run| match words.iter().find(|word| !run.stdout.contains(*word)) {
        Some(word) => Err(format!("`{word}` is missing in the output")),
        None => Ok(json!({"took_ms": run.took.as_secs_f64() * 1e3})),
    }))
}

fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Keeps the bytes that were read before an error.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Returns standard error's first lines.
fn complaint(stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("note: "));
    lines.take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_run_without_the_expected_output_has_no_figure() {
        let words = ["echo".to_owned(), "text".to_owned()];
        let timed = |script: &str| timed(&mut shell(script), &words).expect("a shell");
        assert!(timed("printf 'text, echo'").expect("a figure")["took_ms"].as_f64() > Some(0.0));
        assert_eq!(timed("printf echo"), Err("`text` is missing in the output".to_owned()));
    }

    #[test]
    fn a_failed_run_has_a_reason() {
        let said = report(&mut shell("printf '\\nnote: x\\nno such server\\n' >&2; exit 3")).expect("a shell");
        assert_eq!(said, Err("exit status: 3: no such server".to_owned()));
    }

    #[test]
    fn a_report_is_read_as_json() {
        assert_eq!(report(&mut shell("echo '{\"a\": 1}'")).expect("a shell"), Ok(json!({"a": 1})));
    }
}
