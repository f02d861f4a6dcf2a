//! Package runners' caches. Runners download servers before they run them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::home::home;
use super::program_files::{find, is_shared};

/// Returns the directories that a package runner has to change. They are created, because only existing paths can be allowed.
///
/// This process's environment names them; a server's entry cannot. Only the runner on the user's own `PATH` gets them: another
/// program with its name could change other servers' code. `path` is the server's `PATH`.
pub(super) fn runner_caches(program: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    let Some(name) = Path::new(program).file_name() else { return Vec::new() };
    let file = |program: &OsStr, path: Option<&OsStr>| find(program, path)?.canonicalize().ok();
    let own = file(name, std::env::var_os("PATH").as_deref());
    if own.is_none() || own != file(program, path) {
        return Vec::new();
    }
    let mut caches = caches_of(name, |name| std::env::var_os(name).map(PathBuf::from));
    // A runner without its cache reports the problem itself.
    caches.iter().for_each(|cache| drop(std::fs::create_dir_all(cache)));
    caches.retain(|cache| cache.canonicalize().is_ok_and(|cache| !is_shared(&cache, home().as_deref())));
    caches
}

/// Returns the variable with the directory in which `uvx` installs tools: a private one, because the user's are on the `PATH`.
pub(super) fn tool_directory(program: &OsStr, temp: Option<&Path>) -> Option<(&'static str, PathBuf)> {
    let name = Path::new(program).file_name()?;
    (name == "uvx" || name == "uv").then_some(("UV_TOOL_DIR", temp?.join("uv-tools")))
}

fn caches_of(name: &OsStr, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|path| path.is_absolute());
    let home = || set("HOME");
    match name.to_str().unwrap_or_default() {
        "npx" | "npm" => set("npm_config_cache").or_else(|| Some(home()?.join(".npm"))).into_iter().collect(),
        "uvx" | "uv" => {
            let shared = || set("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")));
            let cache = set("UV_CACHE_DIR").or_else(|| Some(shared()?.join("uv")));
            // Not the tools beside it, which are on the `PATH`.
            let data = set("XDG_DATA_HOME").or_else(|| Some(home()?.join(".local/share")));
            cache.into_iter().chain(data.map(|data| data.join("uv/python"))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_runners_get_their_own_caches_only() {
        let caches = |program: &str, variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            caches_of(program.as_ref(), found)
        };
        let home = [("HOME", "/h")];
        assert_eq!(caches("npx", &home), [Path::new("/h/.npm")]);
        assert_eq!(caches("npm", &[("HOME", "/h"), ("npm_config_cache", "/n")]), [Path::new("/n")]);
        assert_eq!(caches("uvx", &home), [Path::new("/h/.cache/uv"), Path::new("/h/.local/share/uv/python")]);
        assert_eq!(caches("uv", &[("HOME", "/h"), ("UV_CACHE_DIR", "/u")])[0], Path::new("/u"));
        for (program, variables) in [("node", &home[..]), ("npx", &[]), ("npx", &[("HOME", "")])] {
            assert!(caches(program, variables).is_empty(), "{program}");
        }
    }

    #[test]
    fn a_program_with_the_name_of_a_runner_gets_no_cache() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let fake = folder.path().join("npx");
        std::fs::write(&fake, "x").expect("a file");
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        assert!(runner_caches(fake.as_os_str(), std::env::var_os("PATH").as_deref()).is_empty());
        assert!(runner_caches("npx".as_ref(), Some(folder.path().as_os_str())).is_empty());
    }

    #[test]
    fn uv_installs_tools_in_a_private_directory() {
        let temp = Path::new("/t");
        assert_eq!(tool_directory("/x/uvx".as_ref(), Some(temp)), Some(("UV_TOOL_DIR", "/t/uv-tools".into())));
        assert_eq!(tool_directory("npx".as_ref(), Some(temp)), None);
    }
}
