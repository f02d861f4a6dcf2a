//! The `ropeway` binary from outside: what it prints, how it ends, and the demo server inside it.

mod command;
mod demo_server;
mod picture;
mod readme;
mod real;
mod trial;
mod trouble;

use std::process::{Command, Output, Stdio};

/// The binary, with nothing of the environment that changes what it prints.
fn ropeway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropeway"));
    command.args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command
}

/// What one run printed, and how it ended.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(arguments: &[&str]) -> Self {
        Self::from(ropeway(arguments).output().expect("ropeway starts"))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// Fails with all that was printed unless it ended with this code.
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("ropeway prints UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}
