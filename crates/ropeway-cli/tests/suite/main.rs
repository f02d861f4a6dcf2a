//! The `ropeway` binary from the outside: output, exit codes, and the embedded demo server.

mod arguments;
mod attachments;
mod bounds;
mod call_elicitation;
mod chat;
mod chat_markdown;
mod chat_model;
mod chat_terminal;
mod client_files;
mod command;
mod completion_shells;
mod completions;
mod config;
mod conversations;
mod demo_server;
mod describe;
mod directory;
pub(crate) mod docs;
mod docs_reference;
mod doctor;
mod edit;
mod events;
mod exact;
mod exact_output;
mod examples;
mod exit_codes;
mod fault_run;
mod generate;
mod hanging;
mod import;
mod import_again;
mod install;
mod interrupt;
mod key;
mod layers;
mod likely_servers;
mod listing;
mod lock;
mod login;
mod manifest;
mod many;
mod narrow;
mod options;
mod other_clients;
mod pager;
mod picture;
mod process_marker;
mod real;
mod sandbox;
mod secrets;
mod serve;
mod serve_operation;
mod serve_transports;
mod shown_names;
mod snapshot;
mod snapshot_config;
#[path = "../../../ropeway/tests/suite/sources.rs"]
mod sources;
mod temp_home;
mod terminal;
mod top;
mod trouble;
mod trust;
mod up;
mod verbose;
mod watch;

// Shared test code names the re-export of `reqwest`.
extern crate url as reqwest;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use process_marker::ProcessMarker;
use temp_home::TempHome;

/// A command that is not started yet. All processes that it starts must end with it.
struct Ropeway {
    command: Command,
    process_marker: ProcessMarker,
    /// The folder in which it runs, unless the test owns it.
    temp_home: Option<TempHome>,
}

impl Ropeway {
    /// Creates a command in a temporary folder, without environment variables that affect the output.
    fn new(arguments: &[&str]) -> Self {
        Self::of(Path::new(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// Like [`new`](Self::new), with a copy of the binary.
    fn of(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        let temp_home = TempHome::new();
        let ropeway = temp_home.of(program, arguments);
        Self { temp_home: Some(temp_home), ..ropeway }
    }

    /// Changes the command.
    fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Runs the command to its end.
    fn run(self) -> Run {
        self.start().end()
    }

    fn start(mut self) -> Running {
        let command = self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running {
            child: command.spawn().expect("ropeway starts"),
            process_marker: self.process_marker,
            temp_home: self.temp_home,
        }
    }
}

/// A running command.
struct Running {
    child: Child,
    process_marker: ProcessMarker,
    temp_home: Option<TempHome>,
}

impl Running {
    /// Waits for the exit, and asserts that no process is left.
    fn end(self) -> Run {
        let run = Run::from(self.child.wait_with_output().expect("an end"));
        drop(self.process_marker);
        drop(self.temp_home);
        run
    }

    /// Returns the processes that it has started.
    fn others(&self) -> Vec<u32> {
        self.process_marker.processes().into_iter().filter(|id| *id != self.child.id()).collect()
    }
}

/// The output and the exit code of a command.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    fn of(arguments: &[&str]) -> Self {
        Ropeway::new(arguments).run()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// Asserts the exit code, and prints all output if it differs.
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
