//! A home folder with the files of other clients in it, and a folder to work in.

use std::path::{Path, PathBuf};

use crate::{Ropeway, Run};

/// A home folder, and a folder in it where commands are typed.
pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ropeway-").tempdir_in("/tmp").expect("a folder");
        std::fs::create_dir(folder.path().join("work")).expect("a folder");
        Self { folder }
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
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/homes/everything");
        copy(&home, home.folder.path());
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    /// All files, but for those of clients.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path("work")).expect("a folder").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A command that is about to be typed here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Ropeway {
        Ropeway::new(arguments).with(|command| self.put_on(command))
    }

    /// Lets a command see nothing but this home.
    pub(crate) fn put_on(&self, command: &mut std::process::Command) {
        command.current_dir(self.path("work")).env("HOME", self.folder.path()).env("PATH", "/usr/bin:/bin");
        for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "APPDATA", "USERPROFILE", "CODEX_HOME", "ROPEWAY_CONFIG"] {
            command.env_remove(name);
        }
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
    }

    /// Runs a command here.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).run()
    }
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
