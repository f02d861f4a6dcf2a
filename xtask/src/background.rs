//! Programs that run in a task's background and end with it.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(15);

/// A program in the background.
///
/// Two detached threads read its standard output and standard error into one channel, so the program never blocks on a full
/// pipe, even if the lines are not taken; they end with the pipes. [`stop`](Self::stop) ends the program with SIGTERM and
/// reports one that ignores it. Dropping the value kills the program and waits for it, but not for its children.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Background {
    /// Starts a program and keeps its output and standard error lines.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{name}`"))?;
        let (sender, lines) = mpsc::channel();
        read(child.stdout.take(), sender.clone());
        read(child.stderr.take(), sender);
        Ok(Self { name, child, lines })
    }

    /// Waits for an output line in which `find` finds something, and returns that.
    pub fn wait_for<T>(&self, timeout: Duration, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let end = Instant::now() + timeout;
        let mut said = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            match find(&line) {
                Some(found) => return Ok(found),
                None => said.push(line),
            }
        }
        bail!("`{}` did not become ready in {timeout:?}\n{}", self.name, said.join("\n"))
    }

    /// Waits for a URL in the output and returns it.
    pub fn url(&self, timeout: Duration) -> Result<String> {
        self.wait_for(timeout, |line| {
            let url = &line[line.find("http://")?..];
            Some(url.split([' ', ')', ',']).next().unwrap_or(url).to_owned())
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns `true` unless the program has ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the output lines since the last call.
    pub fn output(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Ends the program with SIGTERM. Fails if it has to be killed.
    pub fn stop(mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id().try_into().unwrap_or_default()) {
            // Fails if the program has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + GRACE;
        while self.is_running() {
            if Instant::now() > end {
                bail!("`{}` did not end in {GRACE:?} after SIGTERM", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Fails if the program has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(pipe: Option<impl Read + Send + 'static>, lines: Sender<String>) {
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            // The receiver may be gone, but the pipe must be read.
            let _ = lines.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_found_in_the_output() {
        let program =
            Background::start(Command::new("sh").args([
                "-c",
                "echo starting; echo 'listening on http://127.0.0.1:1/mcp (3 tools)' >&2; exec sleep 60",
            ]))
            .expect("a shell");
        assert_eq!(program.url(Duration::from_secs(10)).expect("a URL"), "http://127.0.0.1:1/mcp");
        program.stop().expect("it ends");
    }
}
