//! The scripted server as a process, on standard input and output.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::pipe::{self, PipeEnd, ProcessHooks};
use super::script::{Grandchild, Script};
use super::scripted::ScriptedServer;

/// Serves on standard input and output. Returns the process's exit status.
pub async fn serve_stdio(script: Script) -> i32 {
    let process = script.process.clone();
    let _deaf = if process.ignore_sigterm { ignore_signals() } else { Vec::new() };
    let scripted = ScriptedServer::new(script);
    if let Some(grandchild) = process.grandchild
        && let Some(pid) = start_grandchild(grandchild)
    {
        scripted.set_grandchild(pid);
    }
    write_stderr(process.stderr_bytes);
    let conversation = async {
        tokio::time::sleep(Duration::from_millis(process.start_delay_ms)).await;
        let hooks = ProcessHooks { close_output, stderr: write_stderr, stderr_line: |line| eprintln!("{line}") };
        match pipe::serve(scripted, tokio::io::stdin(), tokio::io::stdout(), hooks).await {
            PipeEnd::Exit(code) => code,
            PipeEnd::Closed if process.ignore_eof => std::future::pending().await,
            PipeEnd::Closed => 0,
        }
    };
    tokio::select! {
        code = conversation => code,
        () = tokio::time::sleep(Duration::from_millis(process.lifetime_ms)) => 124,
    }
}

/// Catches termination signals and ignores them.
fn ignore_signals() -> Vec<Signal> {
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
}

/// Starts a child that runs for two minutes, unless SIGKILL ends it.
fn start_grandchild(holds: Grandchild) -> Option<u32> {
    const STUBBORN: &str = r#"trap "" TERM HUP INT; i=0; while [ $i -lt 120 ]; do sleep 1; i=$((i+1)); done"#;
    let pipe = || match holds {
        Grandchild::HoldingPipes => Stdio::inherit(),
        Grandchild::Detached | Grandchild::OwnSession => Stdio::null(),
    };
    let mut command = Command::new(if holds == Grandchild::OwnSession { "setsid" } else { "sh" });
    if holds == Grandchild::OwnSession {
        command.arg("sh");
    }
    let child = command.args(["-c", STUBBORN]).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn();
    child.ok().map(|child| child.id())
}

/// Closes standard output.
fn close_output() {
    if let Ok(nothing) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // Fails only without a standard output, which then need not be closed.
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
}

fn write_stderr(bytes: usize) {
    const LINE: &[u8; 64] = b"a line on stderr that nobody has asked for, sixty-four in all..\n";
    let mut stderr = std::io::stderr().lock();
    for _ in 0..bytes.div_ceil(LINE.len()) {
        if stderr.write_all(LINE).is_err() {
            return;
        }
    }
}
