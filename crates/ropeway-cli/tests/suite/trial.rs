//! A trial: one command against a server that misbehaves. It ends in time and leaves no process behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ropeway::testing::Script;

use crate::{Run, ropeway};

/// How much later than its timeout a command may end.
const LATE: Duration = Duration::from_secs(1);

/// How long a process that was killed may take to be gone.
const DYING: Duration = Duration::from_secs(1);

/// A command against a server that is a process, which a variable in its environment tells from all others.
pub(crate) struct Trial {
    arguments: Vec<String>,
    server: String,
    mark: String,
    timeout: Duration,
}

impl Trial {
    /// A command line without its server, such as `call echo message=hi`.
    pub(crate) fn new(command: &str, server: impl Into<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let arguments = command.split(' ').map(str::to_owned).collect();
        Self { arguments, server: server.into(), mark, timeout: Duration::from_secs(1) }
    }

    /// The same against a scripted server.
    pub(crate) fn scripted(command: &str, script: &Script) -> Self {
        Self::new(command, scripted(script))
    }

    /// Gives the command more time than a second, when that is not what is tried.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn command(&self) -> Command {
        let mut command = ropeway(&[]);
        command.args(&self.arguments).args(["--stdio", &self.server, "--env", &format!("ROPEWAY_TRIAL={}", self.mark)]);
        command
    }

    /// Runs to the end.
    pub(crate) fn run(self) -> Run {
        let started = Instant::now();
        let timeout = format!("{}ms", self.timeout.as_millis());
        let output = self.command().args(["--timeout", &timeout]).output().expect("ropeway starts");
        let took = started.elapsed();
        let run = Run::from(output);
        let said = &run.stderr;
        assert!(took < self.timeout + LATE, "it took {took:?}\n{said}");
        assert!(self.is_left_alone(DYING), "processes are left: {:?}\n{said}", self.processes());
        run
    }

    /// Starts without a timeout; gives the command once its server is alive.
    pub(crate) fn start(&self) -> Child {
        let child = self.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ropeway starts");
        let started = Instant::now();
        while self.processes().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(10), "the server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    /// Are all processes of the trial gone, at once or soon?
    pub(crate) fn is_left_alone(&self, soon: Duration) -> bool {
        let started = Instant::now();
        while !self.processes().is_empty() {
            if started.elapsed() > soon {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// The server and all that it has started. A process that has ended, but that nobody has asked about, has no
    /// environment any more.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let variable = format!("ROPEWAY_TRIAL={}", self.mark);
        let marked = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
        };
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(marked).collect()
    }
}

impl Drop for Trial {
    /// What a failed trial leaves behind would trouble the next.
    fn drop(&mut self) {
        for id in self.processes() {
            signal("KILL", id);
        }
    }
}

/// Sends a signal; there need not be a `kill` besides the shell's own.
pub(crate) fn signal(signal: &str, id: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).stderr(Stdio::null()).status();
    sent.expect("a shell runs");
}

/// The command line of a scripted server.
fn scripted(script: &Script) -> String {
    let script = serde_json::to_string(script).expect("a script is JSON");
    let words = [binary().to_str().expect("a path of UTF-8"), script.as_str()].map(str::to_owned);
    shlex::try_join(words.iter().map(String::as_str)).expect("words of a shell")
}

/// Where cargo puts the scripted server, which it builds as an example of this package.
fn binary() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_ropeway")).with_file_name("examples").join("scripted-server");
    assert!(binary.exists(), "run `cargo build -p ropeway-cli --example scripted-server` first");
    binary
}

/// A scripted server behind a URL; dropping it ends it.
pub(crate) struct Site {
    child: Child,
    pub(crate) url: String,
}

impl Site {
    pub(crate) fn start(script: &Script) -> Self {
        let script = serde_json::to_string(script).expect("a script is JSON");
        let mut command = Command::new(binary());
        command.args(["--http", "0", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the scripted server starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut url).expect("its URL");
        Self { child, url: url.trim().to_owned() }
    }

    /// Runs a command against it, for a second at most.
    pub(crate) fn run(&self, command: &str) -> Run {
        run_url(command, &self.url, Duration::from_secs(1))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // An error says that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command against whatever is behind a URL.
pub(crate) fn run_url(command: &str, url: &str, timeout: Duration) -> Run {
    let timeout_text = format!("{}ms", timeout.as_millis());
    let arguments: Vec<&str> = command.split(' ').chain(["--url", url, "--timeout", &timeout_text]).collect();
    let started = Instant::now();
    let run = Run::of(&arguments);
    assert!(started.elapsed() < timeout + LATE, "it took {:?}\n{}", started.elapsed(), run.stderr);
    run
}
