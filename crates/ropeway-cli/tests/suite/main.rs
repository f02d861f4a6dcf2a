//! The `ropeway` binary from outside: what it prints, how it ends, and the demo server inside it.

mod arguments;
mod attachments;
mod bounds;
mod call_elicitation;
mod chat;
mod chat_markdown;
mod chat_model;
mod chat_terminal;
mod command;
mod completion_shells;
mod completions;
mod config;
mod conversations;
mod demo_server;
mod describe;
pub(crate) mod docs;
mod docs_reference;
mod doctor;
mod edit;
mod events;
mod exact;
mod exact_output;
mod examples;
mod exit_codes;
mod hanging;
mod home;
mod import;
mod import_again;
mod interrupt;
mod layers;
mod likely_servers;
mod listing;
mod lock;
mod manifest;
mod many;
mod mark;
mod narrow;
mod pager;
mod picture;
mod place;
mod real;
mod secrets;
mod shown_names;
mod snapshot;
mod snapshot_config;
mod terminal;
mod trial;
mod trouble;
mod trust;
mod verbose;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use mark::Mark;
use place::Place;

/// A run of the binary that is about to begin. Whatever it starts has to end with it.
struct Ropeway {
    command: Command,
    mark: Mark,
    /// Where it runs, when nobody else keeps that.
    place: Option<Place>,
}

impl Ropeway {
    /// In a place of its own, with nothing of the environment that changes what it prints.
    fn new(arguments: &[&str]) -> Self {
        Self::of(Path::new(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// The same of a copy of the binary.
    fn of(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        let place = Place::new();
        let ropeway = place.of(program, arguments);
        Self { place: Some(place), ..ropeway }
    }

    /// Changes how it is started.
    fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Runs it to the end.
    fn run(self) -> Run {
        self.start().end()
    }

    fn start(mut self) -> Running {
        let command = self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { child: command.spawn().expect("ropeway starts"), mark: self.mark, place: self.place }
    }
}

/// A run of the binary.
struct Running {
    child: Child,
    mark: Mark,
    place: Option<Place>,
}

impl Running {
    /// Waits for its end, after which nothing that it started may be alive.
    fn end(self) -> Run {
        let run = Run::from(self.child.wait_with_output().expect("an end"));
        drop(self.mark);
        drop(self.place);
        run
    }

    /// The processes that it has started.
    fn others(&self) -> Vec<u32> {
        self.mark.processes().into_iter().filter(|id| *id != self.child.id()).collect()
    }
}

/// What one run printed, and how it ended.
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
