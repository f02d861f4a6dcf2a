//! A home folder with the files of other clients, and a working folder.

use std::path::{Path, PathBuf};

use crate::temp_home::TempHome;
use crate::{Ropeway, Run};

/// Variables that change the searched locations of client files or the findings of `doctor`.
const VARIABLES: [&str; 11] = [
    "APPDATA",
    "USERPROFILE",
    "CODEX_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// A home folder with a working folder.
pub(crate) struct Home(TempHome);

impl Home {
    /// Creates an empty home folder.
    pub(crate) fn new() -> Self {
        let temp_home = TempHome::new();
        std::fs::create_dir(temp_home.path().join("work")).expect("a folder");
        Self(temp_home)
    }

    /// Creates a home folder with a `ropeway.yaml` in the working folder.
    pub(crate) fn with_config(text: &str) -> Self {
        let home = Self::new();
        home.write("work/ropeway.yaml", text);
        home
    }

    /// Creates a home folder with the files of all clients.
    pub(crate) fn with_clients() -> Self {
        let home = Self::new();
        copy_clients(home.0.path());
        home
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and creates its parent folders.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }

    /// Returns the content of a file.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    /// Returns the names of the files in the working folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path("work")).expect("a folder").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns a command that runs in the working folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Ropeway {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// Prepares a command of another program, such as a renamed one.
    pub(crate) fn command_of(&self, program: &Path, arguments: &[&str]) -> Ropeway {
        self.0.of(program, arguments).with(|command| {
            command.current_dir(self.path("work")).env("PATH", "/usr/bin:/bin");
            VARIABLES.iter().for_each(|name| {
                command.env_remove(name);
            });
        })
    }

    /// Runs a command in the working folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).run()
    }
}

/// Copies the files of all clients into a home folder.
pub(crate) fn copy_clients(home: &Path) {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/homes/everything"), home);
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).expect("a folder");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Returns the configuration entry of the demo server.
pub(crate) fn demo(alias: &str) -> String {
    format!("  - alias: {alias}\n    command: {}\n    args: [demo-server]\n", env!("CARGO_BIN_EXE_ropeway"))
}
