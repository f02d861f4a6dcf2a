//! Marks all processes of a command, to detect processes that are left behind.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The environment variable that holds the mark. All servers receive it, including the demo server, and their child processes
/// inherit it.
const VARIABLE: &str = "LOGNAME";

/// Maximum time for a killed process to disappear.
const DYING: Duration = Duration::from_secs(5);

/// The mark of one command. Dropping it asserts that no process with the mark is left.
pub(crate) struct ProcessMarker(String);

impl ProcessMarker {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(format!("ropeway-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Marks a command before it is started.
    pub(crate) fn put_on(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Returns all processes with the mark. Zombies are not included, because they have no environment.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let variable = format!("{VARIABLE}={}", self.0);
        let marked = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
        };
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(marked).collect()
    }

    /// Returns the processes that are still alive after the grace period.
    fn processes_left(&self) -> Vec<u32> {
        let started = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() || started.elapsed() > DYING {
                return left;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ProcessMarker {
    fn drop(&mut self) {
        // If the test already fails, its own message is enough, and leftover processes must not affect later tests.
        let failing = std::thread::panicking();
        let left = if failing { self.processes() } else { self.processes_left() };
        let names: Vec<String> = left.iter().map(|id| format!("{id} `{}`", command_line(*id))).collect();
        for id in left {
            signal("KILL", id);
        }
        assert!(failing || names.is_empty(), "processes are left: {}", names.join(", "));
    }
}

pub(crate) fn command_line(id: u32) -> String {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()
}

/// Sends a signal with the shell's builtin `kill`, since the program may not be installed.
pub(crate) fn signal(signal: &str, id: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).stderr(Stdio::null()).status();
    sent.expect("a shell runs");
}

#[test]
fn a_process_that_is_left_behind_is_found_named_and_ended() {
    let process_marker = ProcessMarker::new();
    let mut command = Command::new("sh");
    process_marker.put_on(&mut command);
    command.args(["-c", "sleep 30.5 & exit"]).status().expect("a shell runs");
    let left = process_marker.processes();
    let panic =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(process_marker))).expect_err("a complaint");
    let complaint = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(complaint.contains(&format!("{} `sleep 30.5`", left[0])), "{complaint}");
}

#[test]
fn the_command_and_the_demo_server_carry_the_mark() {
    let running = crate::Ropeway::new(&["call", "countdown", "seconds=1"]).start();
    let started = Instant::now();
    let ours = env!("CARGO_BIN_EXE_ropeway");
    let expected = [format!("{ours} call countdown seconds=1"), format!("{ours} demo-server")];
    loop {
        let lines: Vec<String> = running.process_marker.processes().into_iter().map(command_line).collect();
        if expected.iter().all(|line| lines.contains(line)) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{lines:?}");
    }
    running.end().expect(0);
}
