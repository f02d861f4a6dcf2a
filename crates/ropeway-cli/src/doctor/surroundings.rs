//! The surroundings of a server: the variables that are set, and where programs are looked for.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ropeway::config::StdioServer;

/// What is set around us; a parameter, so that a test can have its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    variables: HashMap<String, String>,
}

/// What a search for a program came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Search {
    /// It can be started.
    Found(PathBuf),
    /// There is a file, but nobody may start it.
    NotExecutable(PathBuf),
    /// There is a folder of that name.
    Folder(PathBuf),
    /// There is nothing.
    Missing,
}

/// Folders under the home folder where programs are put, which not everybody has on their PATH.
const PERSONAL: [&str; 13] = [
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

/// The same for everybody on this machine.
const COMMON: [&str; 6] =
    ["/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin", "/usr/bin", "/bin"];

/// Where version managers keep one folder for each version: what stands before and behind it.
const VERSIONED: [(&str, &str); 3] =
    [(".nvm/versions/node", "bin"), (".local/share/fnm/node-versions", "installation/bin"), (".pyenv/versions", "bin")];

impl Surroundings {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// With a variable set.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// As the server sees them, as far as programs are looked for: it may have a PATH of its own.
    pub(super) fn of_server(&self, server: &StdioServer) -> Self {
        let own = server.env.iter().filter(|(name, _)| matches!(name.as_str(), "PATH" | "HOME"));
        own.fold(self.clone(), |around, (name, value)| around.with(name, value.expose()))
    }

    /// A variable that is set to something.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Where a command without a folder is found, or where the folder of one with it leads.
    pub(super) fn find(&self, command: &str, folder: Option<&Path>) -> Search {
        if command.contains('/') {
            let path = folder.unwrap_or(Path::new("")).join(command);
            return look(&path);
        }
        let folders = std::env::split_paths(self.variable("PATH").unwrap_or_default());
        let mut best = Search::Missing;
        for path in folders.map(|folder| folder.join(command)) {
            match look(&path) {
                found @ Search::Found(_) => return found,
                found @ Search::NotExecutable(_) if best == Search::Missing => best = found,
                _ => {}
            }
        }
        best
    }

    /// Where else the command lies, beside the folders of PATH.
    pub(super) fn elsewhere(&self, command: &str) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from);
        let personal = PERSONAL.iter().filter_map(|folder| Some(home.as_ref()?.join(folder)));
        let versioned = VERSIONED.iter().flat_map(|(before, behind)| {
            let versions = home.as_ref().and_then(|home| std::fs::read_dir(home.join(before)).ok());
            let mut folders: Vec<PathBuf> =
                versions.into_iter().flatten().flatten().map(|entry| entry.path().join(behind)).collect();
            // The newest first, as far as names tell.
            folders.sort();
            folders.into_iter().rev()
        });
        let mut folders = personal.chain(versioned).chain(COMMON.iter().map(PathBuf::from));
        folders.find_map(|folder| match look(&folder.join(command)) {
            Search::Found(path) => Some(path),
            _ => None,
        })
    }
}

fn look(path: &Path) -> Search {
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
    fn a_program_is_found_as_a_shell_would() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first/tool", "second/tool"].map(|path| folder.path().join(path));
        file(&first, 0o644);
        file(&second, 0o755);
        let path = format!("{}:{}", folder.path().join("first").display(), folder.path().join("second").display());
        let around = Surroundings::default().with("PATH", &path);
        assert_eq!(around.find("tool", None), Search::Found(second.clone()));
        assert_eq!(around.find("other", None), Search::Missing);
        assert_eq!(around.find("first/tool", Some(folder.path())), Search::NotExecutable(first.clone()));
        assert_eq!(around.find("./first", Some(folder.path())), Search::Folder(folder.path().join("./first")));
        let alone = Surroundings::default().with("PATH", &folder.path().join("first").display().to_string());
        assert_eq!(alone.find("tool", None), Search::NotExecutable(first));
        assert_eq!(Surroundings::default().find("tool", None), Search::Missing);
    }

    #[test]
    fn a_program_beside_the_path_is_found_newest_version_first() {
        let home = tempfile::tempdir().expect("a folder");
        for path in [".nvm/versions/node/v18.1.0/bin/npx-x", ".nvm/versions/node/v22.3.0/bin/npx-x", ".cargo/bin/uv-x"]
        {
            file(&home.path().join(path), 0o755);
        }
        let around = Surroundings::default().with("HOME", &home.path().display().to_string());
        assert_eq!(around.elsewhere("npx-x"), Some(home.path().join(".nvm/versions/node/v22.3.0/bin/npx-x")));
        assert_eq!(around.elsewhere("uv-x"), Some(home.path().join(".cargo/bin/uv-x")));
        assert_eq!(around.elsewhere("no-such-x"), None);
    }

    #[test]
    fn a_server_with_a_path_of_its_own_is_looked_for_there() {
        let server = StdioServer::new("a", [""; 0]).with_env("PATH", "/own").with_env("TOKEN", "x");
        let around = Surroundings::default().with("PATH", "/ours").of_server(&server);
        assert_eq!((around.variable("PATH"), around.variable("TOKEN")), (Some("/own"), None));
    }
}
