//! A trial: one run of one program, in a process of its own so that its time and memory are its own.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// No run takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a run that ended well.
#[derive(Debug)]
pub(super) struct Run {
    /// What it said on standard output.
    pub(super) said: String,
    /// From exec to exit.
    pub(super) took: Duration,
}

/// Runs a program to its end. A run that fails is reported, not fatal: the others still count.
pub(super) fn run(command: &mut Command) -> Result<Result<Run, String>> {
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child =
        command.spawn().with_context(|| format!("could not start `{}`", command.get_program().display()))?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    // Waiting for the end of its output takes no CPU from what is measured, as looking at it again and again would.
    let said = stdout.recv_timeout(PATIENCE);
    if said.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    let took = started.elapsed();
    let Ok(said) = said else { return Ok(Err(format!("not done after {PATIENCE:?}"))) };
    if !status.success() {
        // Something that outlives it may hold its standard error.
        let stderr = stderr.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        return Ok(Err(format!("{status}: {}", complaint(&stderr))));
    }
    Ok(Ok(Run { said, took }))
}

/// Runs a contestant that prints its report as JSON.
pub(super) fn report(command: &mut Command) -> Result<Result<Value, String>> {
    Ok(run(command)?.and_then(|run| serde_json::from_str(&run.said).map_err(|error| error.to_string())))
}

/// Runs a program whose time is measured here. It must say all these words, or it has not done its work.
pub(super) fn timed(command: &mut Command, words: &[String]) -> Result<Result<Value, String>> {
    Ok(run(command)?.and_then(|run| match words.iter().find(|word| !run.said.contains(*word)) {
        Some(word) => Err(format!("it did not say `{word}`")),
        None => Ok(json!({"took_ms": run.took.as_secs_f64() * 1e3})),
    }))
}

fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The first lines of what a program complains about.
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
    fn a_run_that_ends_well_but_did_not_do_its_work_is_no_figure() {
        let words = ["echo".to_owned(), "text".to_owned()];
        let timed = |script: &str| timed(&mut shell(script), &words).expect("a shell");
        assert!(timed("printf 'text, echo'").expect("a figure")["took_ms"].as_f64() > Some(0.0));
        assert_eq!(timed("printf echo"), Err("it did not say `text`".to_owned()));
    }

    #[test]
    fn a_run_that_fails_says_why() {
        let said = report(&mut shell("printf '\\nnote: x\\nno such server\\n' >&2; exit 3")).expect("a shell");
        assert_eq!(said, Err("exit status: 3: no such server".to_owned()));
    }

    #[test]
    fn a_report_is_read_as_json() {
        assert_eq!(report(&mut shell("echo '{\"a\": 1}'")).expect("a shell"), Ok(json!({"a": 1})));
    }
}
