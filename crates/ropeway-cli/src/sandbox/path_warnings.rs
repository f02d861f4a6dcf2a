//! Warnings about sandbox settings that are most likely mistakes.

use std::path::Path;

use ropeway_config::{SandboxPath, StdioServer};

use super::home::home;
use super::summary::lacks_network;

/// Memory in bytes below which no program starts.
const MIN_MEMORY: u64 = 4 << 20;

/// Returns warnings about a server's sandbox: paths that are missing or allow more than a server should get, and limits that it
/// cannot start with. `config` is the configuration file.
pub(crate) fn path_warnings(server: &StdioServer, config: Option<&Path>) -> Vec<String> {
    let Some(sandbox) = &server.sandbox else { return Vec::new() };
    let home = home();
    let places = Places { home: home.as_deref(), config };
    let read = sandbox.read.iter().filter_map(|path| places.warning("read", path));
    let mut warnings: Vec<String> =
        read.chain(sandbox.write.iter().filter_map(|path| places.warning("write", path))).collect();
    if lacks_network(server) {
        let command = &server.command;
        warnings.push(format!("`{command}` may have to download the server; set `network: true`"));
    }
    if sandbox.memory.is_some_and(|memory| memory < MIN_MEMORY) {
        warnings.push("`memory` is too small to start a program".to_owned());
    }
    warnings
}

/// The places that a server should not reach.
struct Places<'a> {
    home: Option<&'a Path>,
    config: Option<&'a Path>,
}

impl Places<'_> {
    fn warning(&self, key: &str, SandboxPath { path, text, .. }: &SandboxPath) -> Option<String> {
        let Ok(path) = path.canonicalize() else {
            return Some(format!("`{key}` path `{text}` does not exist, so the server cannot use it"));
        };
        let covers = |place: Option<&Path>| {
            place.and_then(|place| place.canonicalize().ok()).is_some_and(|place| place.starts_with(&path))
        };
        let what = if path.parent().is_none() {
            "the whole file system"
        } else if covers(self.home) {
            "your home directory, and with it files such as `~/.ssh`"
        } else if key == "write" && covers(self.config) {
            "the configuration file, so the server can change its own sandbox"
        } else if Path::new(text).is_relative() && self.is_outside_of_project(&path) && !is_open(text) {
            return Some(format!(
                "`{key}` path `{text}` is outside of the project: it resolves to `{}`",
                path.display()
            ));
        } else {
            return None;
        };
        Some(format!("`{key}` path `{text}` includes {what}"))
    }

    fn is_outside_of_project(&self, path: &Path) -> bool {
        let project = self.config.and_then(Path::parent).and_then(|project| project.canonicalize().ok());
        project.is_some_and(|project| !path.starts_with(project))
    }
}

/// Returns `true` for a path that visibly may lead outside the project.
fn is_open(text: &str) -> bool {
    text.starts_with('~') || text.contains('$') || text.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_wide_paths_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let project = folder.path().join("project");
        std::fs::create_dir_all(project.join("docs")).expect("a folder");
        let config = project.join("ropeway.yaml");
        std::fs::write(&config, "").expect("a file");
        let places = Places { home: Some(folder.path()), config: Some(&config) };
        let warning = |key: &str, path: &Path| {
            let mut path = SandboxPath::from(path);
            path.text = "P".to_owned();
            places.warning(key, &path)
        };
        assert_eq!(
            warning("read", &project.join("nothing")).as_deref(),
            Some("`read` path `P` does not exist, so the server cannot use it")
        );
        assert_eq!(
            warning("write", Path::new("/")).as_deref(),
            Some("`write` path `P` includes the whole file system")
        );
        assert_eq!(
            warning("read", folder.path()).as_deref(),
            Some("`read` path `P` includes your home directory, and with it files such as `~/.ssh`")
        );
        assert_eq!(
            warning("write", &project).as_deref(),
            Some("`write` path `P` includes the configuration file, so the server can change its own sandbox")
        );
        for (key, path) in [("read", project.clone()), ("write", project.join("docs"))] {
            assert_eq!(warning(key, &path), None);
        }
    }
}
