//! A place: a home of its own for commands, in which nothing of this machine shows.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ropeway::testing::Script;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mark::Mark;
use crate::trial::binary;
use crate::{Ropeway, Run};

/// What would change where files are looked for, and what is printed.
const VARIABLES: [&str; 8] = [
    "NO_COLOR",
    "CLICOLOR_FORCE",
    "ROPEWAY_CACHE_DIR",
    "ROPEWAY_CONFIG",
    "ROPEWAY_CONVERSATIONS_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
];

/// The variable that trusts project files. Tests run in folders of their own; those of trust itself remove it.
pub(crate) const TRUST: &str = "ROPEWAY_TRUST";

/// A scripted server, as a configuration has it.
pub(crate) fn entry(alias: &str, script: &Script) -> Value {
    let script = serde_json::to_string(script).expect("a script is JSON");
    json!({ "alias": alias, "command": binary(), "args": [script] })
}

/// An entry with more keys, or with others.
pub(crate) fn having(mut entry: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("keys") {
        entry[key] = value.clone();
    }
    entry
}

/// A folder that is the home and the working folder of all commands that run in it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        // Paths of one length, whatever the machine: they are shown, and lines are wrapped.
        Self(tempfile::Builder::new().prefix("ropeway-").tempdir_in("/tmp").expect("a folder"))
    }

    /// A place whose configuration names these servers.
    pub(crate) fn with(servers: &[Value]) -> Self {
        let place = Self::new();
        place.configure(servers);
        place
    }

    /// Names these servers in the configuration.
    pub(crate) fn configure(&self, servers: &[Value]) {
        // Every JSON is YAML.
        self.write("ropeway.yaml", &json!({ "servers": servers }).to_string());
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts a file there.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// A command that is about to run here.
    pub(crate) fn ropeway(&self, arguments: &[&str]) -> Ropeway {
        self.of(Path::new(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// The same of a copy of the binary.
    pub(crate) fn of(&self, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Ropeway {
        let mark = Mark::new();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).current_dir(self.path()).env("HOME", self.path());
        for name in VARIABLES {
            command.env_remove(name);
        }
        // Nobody sits at the terminals of tests; those of the pager name one.
        command.env(TRUST, "1").env("ROPEWAY_PAGER", "");
        mark.put_on(&mut command);
        Ropeway { command, mark, place: None }
    }

    /// Runs a command here to its end; it is typed as in a shell.
    pub(crate) fn run(&self, typed: &str) -> Run {
        let words = shlex::split(typed).expect("words of a shell");
        self.ropeway(&words.iter().map(String::as_str).collect::<Vec<_>>()).run()
    }
}
