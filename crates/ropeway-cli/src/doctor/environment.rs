//! A server's environment: variables, and program directories.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ropeway_config::StdioServer;

/// Environment variables. A parameter, so that tests can set their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: HashMap<String, String>,
}

/// The outcome of searching for a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Search {
    /// An executable file.
    Found(PathBuf),
    /// A file without execute permission.
    NotExecutable(PathBuf),
    /// A directory.
    Folder(PathBuf),
    Missing,
}

/// Directories in the home directory with programs, which are often not on PATH.
const HOME_DIRECTORIES: [&str; 13] = [
    ".local/bin",
    ".cargo/bin",
    ".bun/bin",
    ".deno/bin",
    ".volta/bin",
    ".npm-global/bin",
    ".asdf/shims",
    ".pyenv/shims",
    ".local/share/mise/shims",
    ".local/share/pnpm",
    ".yarn/bin",
    "go/bin",
    "bin",
];

/// System-wide directories with programs.
const SYSTEM_DIRECTORIES: [&str; 6] =
    ["/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin", "/usr/bin", "/bin"];

/// Version managers' directories: the path before and after the version.
const VERSION_DIRECTORIES: [(&str, &str); 3] =
    [(".nvm/versions/node", "bin"), (".local/share/fnm/node-versions", "installation/bin"), (".pyenv/versions", "bin")];

impl Environment {
    /// Returns this process's environment.
    pub(crate) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// Sets a variable.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Returns the environment in which a server searches for programs: it may set its own PATH.
    pub(super) fn of_server(&self, server: &StdioServer) -> Self {
        let own = server.env.iter().filter(|(name, _)| matches!(name.as_str(), "PATH" | "HOME"));
        own.fold(self.clone(), |environment, (name, value)| environment.with(name, value.expose()))
    }

    /// Returns a variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Searches for a command on PATH, or at its own path relative to `folder`.
    pub(super) fn find(&self, command: &str, folder: Option<&Path>) -> Search {
        if command.contains('/') {
            let path = folder.unwrap_or(Path::new("")).join(command);
            return inspect(&path);
        }
        let folders = std::env::split_paths(self.variable("PATH").unwrap_or_default());
        let mut best = Search::Missing;
        for path in folders.map(|folder| folder.join(command)) {
            match inspect(&path) {
                found @ Search::Found(_) => return found,
                found @ Search::NotExecutable(_) if best == Search::Missing => best = found,
                _ => {}
            }
        }
        best
    }

    /// Searches for a command in common directories outside PATH.
    pub(super) fn find_outside_path(&self, command: &str) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from);
        let personal = HOME_DIRECTORIES.iter().filter_map(|folder| Some(home.as_ref()?.join(folder)));
        let versioned = VERSION_DIRECTORIES.iter().flat_map(|(before, behind)| {
            let versions = home.as_ref().and_then(|home| std::fs::read_dir(home.join(before)).ok());
            let mut folders: Vec<PathBuf> =
                versions.into_iter().flatten().flatten().map(|entry| entry.path().join(behind)).collect();
            // Newest version first, by name.
            folders.sort();
            folders.into_iter().rev()
        });
        let mut folders = personal.chain(versioned).chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from));
        folders.find_map(|folder| match inspect(&folder.join(command)) {
            Search::Found(path) => Some(path),
            _ => None,
        })
    }
}

fn inspect(path: &Path) -> Search {
    match std::fs::metadata(path) {
        Err(_) => Search::Missing,
        Ok(metadata) if metadata.is_dir() => Search::Folder(path.to_owned()),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => Search::NotExecutable(path.to_owned()),
        Ok(_) => Search::Found(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, mode: u32) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, "").expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    }

    #[test]
    fn a_program_is_found_as_by_a_shell() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first/tool", "second/tool"].map(|path| folder.path().join(path));
        file(&first, 0o644);
        file(&second, 0o755);
        let path = format!("{}:{}", folder.path().join("first").display(), folder.path().join("second").display());
        let environment = Environment::default().with("PATH", &path);
        assert_eq!(environment.find("tool", None), Search::Found(second.clone()));
        assert_eq!(environment.find("other", None), Search::Missing);
        assert_eq!(environment.find("first/tool", Some(folder.path())), Search::NotExecutable(first.clone()));
        assert_eq!(environment.find("./first", Some(folder.path())), Search::Folder(folder.path().join("./first")));
        let alone = Environment::default().with("PATH", &folder.path().join("first").display().to_string());
        assert_eq!(alone.find("tool", None), Search::NotExecutable(first));
        assert_eq!(Environment::default().find("tool", None), Search::Missing);
    }

    #[test]
    fn a_program_outside_path_is_found_newest_version_first() {
        let home = tempfile::tempdir().expect("a folder");
        for path in [".nvm/versions/node/v18.1.0/bin/npx-x", ".nvm/versions/node/v22.3.0/bin/npx-x", ".cargo/bin/uv-x"]
        {
            file(&home.path().join(path), 0o755);
        }
        let environment = Environment::default().with("HOME", &home.path().display().to_string());
        assert_eq!(
            environment.find_outside_path("npx-x"),
            Some(home.path().join(".nvm/versions/node/v22.3.0/bin/npx-x"))
        );
        assert_eq!(environment.find_outside_path("uv-x"), Some(home.path().join(".cargo/bin/uv-x")));
        assert_eq!(environment.find_outside_path("no-such-x"), None);
    }

    #[test]
    fn a_server_with_its_own_path_is_searched_there() {
        let server = StdioServer::new("a", [""; 0]).with_env("PATH", "/own").with_env("TOKEN", "x");
        let environment = Environment::default().with("PATH", "/ours").of_server(&server);
        assert_eq!((environment.variable("PATH"), environment.variable("TOKEN")), (Some("/own"), None));
    }
}
