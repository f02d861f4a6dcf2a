//! A temporary home folder for commands, isolated from this machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ropeway_testing::Script;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fault_run::binary;
use crate::process_marker::ProcessMarker;
use crate::{Ropeway, Run};

/// Variables that change the searched locations or the output.
const VARIABLES: [&str; 24] = [
    "BROWSER",
    "CLICOLOR",
    "FORCE_COLOR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "DISPLAY",
    "NO_COLOR",
    "CLICOLOR_FORCE",
    "ROPEWAY_CACHE_DIR",
    "ROPEWAY_CONFIG",
    "ROPEWAY_CONVERSATIONS_DIR",
    "ROPEWAY_DIRECT",
    "ROPEWAY_GATEWAY_KEYS",
    "ROPEWAY_PASSPHRASE",
    "ROPEWAY_TOKENS_DIR",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "WAYLAND_DISPLAY",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// The variable that trusts project files. Tests use temporary folders; tests of trust remove the variable.
pub(crate) const TRUST: &str = "ROPEWAY_TRUST";

/// Returns the configuration entry of a scripted server.
pub(crate) fn entry(alias: &str, script: &Script) -> Value {
    let script = serde_json::to_string(script).expect("a script is JSON");
    json!({ "alias": alias, "command": binary(), "args": [script] })
}

/// Adds or replaces keys of an entry.
pub(crate) fn having(mut entry: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("keys") {
        entry[key] = value.clone();
    }
    entry
}

/// A temporary folder that is both the home and the working folder of its commands.
pub(crate) struct TempHome(TempDir);

impl TempHome {
    pub(crate) fn new() -> Self {
        // The path has the same length on every machine, because output wraps at the window width.
        Self(tempfile::Builder::new().prefix("ropeway-").tempdir_in("/tmp").expect("a folder"))
    }

    /// Creates a place with these servers in its configuration.
    pub(crate) fn with(servers: &[Value]) -> Self {
        let temp_home = Self::new();
        temp_home.configure(servers);
        temp_home
    }

    /// Writes a configuration with these servers.
    pub(crate) fn configure(&self, servers: &[Value]) {
        // JSON is valid YAML.
        self.write("ropeway.yaml", &json!({ "servers": servers }).to_string());
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Returns a command that runs here.
    pub(crate) fn ropeway(&self, arguments: &[&str]) -> Ropeway {
        self.of(Path::new(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// Like [`ropeway`](Self::ropeway), with a copy of the binary.
    pub(crate) fn of(&self, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Ropeway {
        let process_marker = ProcessMarker::new();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).current_dir(self.path()).env("HOME", self.path());
        for name in VARIABLES {
            command.env_remove(name);
        }
        // Tests run without a pager, except for the tests of the pager, which set one.
        command.env(TRUST, "1").env("ROPEWAY_PAGER", "").env("ROPEWAY_KEYRING", "off");
        process_marker.put_on(&mut command);
        Ropeway { command, process_marker, temp_home: None }
    }

    /// Runs a command line to its end.
    pub(crate) fn run(&self, typed: &str) -> Run {
        let words = shlex::split(typed).expect("words of a shell");
        self.ropeway(&words.iter().map(String::as_str).collect::<Vec<_>>()).run()
    }
}
