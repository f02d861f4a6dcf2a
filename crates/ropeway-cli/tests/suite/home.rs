//! A home folder with the files of other clients in it, and a folder to work in.

use std::path::{Path, PathBuf};

use crate::place::Place;
use crate::{Ropeway, Run};

/// What would change where the files of clients are looked for, and what the doctor says.
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

/// A home folder, and a folder in it where commands are typed.
pub(crate) struct Home(Place);

impl Home {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let place = Place::new();
        std::fs::create_dir(place.path().join("work")).expect("a folder");
        Self(place)
    }

    /// One with a `ropeway.yaml` where commands are typed.
    pub(crate) fn with_config(text: &str) -> Self {
        let home = Self::new();
        home.write("work/ropeway.yaml", text);
        home
    }

    /// One where all clients keep their files.
    pub(crate) fn with_clients() -> Self {
        let home = Self::new();
        copy_clients(home.0.path());
        home
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file there, and the folders that it needs.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }

    /// What a file says.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    /// The files where commands are typed.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path("work")).expect("a folder").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A command that is about to be typed here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Ropeway {
        self.0.ropeway(arguments).with(|command| {
            command.current_dir(self.path("work")).env("PATH", "/usr/bin:/bin");
            VARIABLES.iter().for_each(|name| {
                command.env_remove(name);
            });
        })
    }

    /// Runs a command here.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).run()
    }
}

/// Puts the files of all clients into a home folder.
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

/// The demo server in a file.
pub(crate) fn demo(alias: &str) -> String {
    format!("  - alias: {alias}\n    command: {}\n    args: [demo-server]\n", env!("CARGO_BIN_EXE_ropeway"))
}
