//! Runs one command against a misbehaving server. It must end in time and leave no process behind.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ropeway_testing::Script;

use crate::process_marker::ProcessMarker;
use crate::{Ropeway, Run, Running};

/// Tolerance for the end of a command after its timeout: short enough to detect a hang, long enough for a busy machine.
pub(crate) const LATE: Duration = Duration::from_secs(10);

/// Timeout of a command that is expected to finish.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// Timeout of a command that is expected to time out. The preceding steps must fit into it, even on a busy machine.
pub(crate) const BRIEF: Duration = Duration::from_secs(3);

/// A command with a stdio server.
pub(crate) struct FaultRun {
    arguments: Vec<String>,
    server: String,
    timeout: Duration,
}

impl FaultRun {
    /// Creates a trial of a command line without its server, such as `call echo message=hi`.
    pub(crate) fn new(command: &str, server: impl Into<String>) -> Self {
        let arguments = command.split(' ').map(str::to_owned).collect();
        Self { arguments, server: server.into(), timeout: PATIENT }
    }

    /// Creates a trial against a scripted server.
    pub(crate) fn scripted(command: &str, script: &Script) -> Self {
        Self::new(command, scripted(script))
    }

    /// Sets the timeout of the command.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn command(&self) -> Ropeway {
        Ropeway::new(&[]).with(|command| {
            command.args(&self.arguments).args(["--stdio", &self.server]);
        })
    }

    /// Runs the command to its end.
    pub(crate) fn run(self) -> Run {
        let timeout = format!("{}ms", self.timeout.as_millis());
        let command = self.command().with(|command| {
            command.args(["--timeout", &timeout]);
        });
        let started = Instant::now();
        let Running { child, process_marker, temp_home } = command.start();
        let run = Run::from(child.wait_with_output().expect("an end"));
        let took = started.elapsed();
        assert!(took < self.timeout + LATE, "it took {took:?}\n{}", run.stderr);
        drop((process_marker, temp_home));
        run
    }

    /// Starts the command without a timeout, and returns it once its server runs.
    pub(crate) fn start(&self) -> Running {
        let running = self.command().start();
        let started = Instant::now();
        while running.others().is_empty() {
            assert!(started.elapsed() < PATIENT, "the server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }
}

/// Returns the command line of a scripted server.
pub(crate) fn scripted(script: &Script) -> String {
    let script = serde_json::to_string(script).expect("a script is JSON");
    let words = [binary().to_str().expect("a path of UTF-8"), script.as_str()].map(str::to_owned);
    shlex::try_join(words.iter().map(String::as_str)).expect("words of a shell")
}

/// Returns the path of the scripted server, which cargo builds as an example of this package.
pub(crate) fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_ropeway")).with_file_name("examples").join("scripted-server");
    assert!(binary.exists(), "run `cargo build -p ropeway-cli --example scripted-server` first");
    binary
}

/// A scripted HTTP server. Dropping it terminates the server.
pub(crate) struct Site {
    child: Child,
    pub(crate) url: String,
    // Dropped last, when the server has exited.
    _mark: ProcessMarker,
}

impl Site {
    pub(crate) fn start(script: &Script) -> Self {
        let script = serde_json::to_string(script).expect("a script is JSON");
        let mut command = Command::new(binary());
        command.args(["--http", "0", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let process_marker = ProcessMarker::new();
        process_marker.put_on(&mut command);
        let mut child = command.spawn().expect("the scripted server starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut url).expect("its URL");
        Self { child, url: url.trim().to_owned(), _mark: process_marker }
    }

    /// Runs a command against the server that is expected to finish.
    pub(crate) fn run(&self, command: &str) -> Run {
        run_url(command, &self.url, PATIENT)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command against a URL.
pub(crate) fn run_url(command: &str, url: &str, timeout: Duration) -> Run {
    let timeout_text = format!("{}ms", timeout.as_millis());
    let arguments: Vec<&str> = command.split(' ').chain(["--url", url, "--timeout", &timeout_text]).collect();
    let started = Instant::now();
    let run = Run::of(&arguments);
    assert!(started.elapsed() < timeout + LATE, "it took {:?}\n{}", started.elapsed(), run.stderr);
    run
}
