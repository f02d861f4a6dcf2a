//! The paths that a server may use: its profile's, the system's and its program's.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use ropeway_config::SandboxProfile;

use super::built_in::{DEVICES, SYSTEM};
use super::certificates::certificates;
use super::home::home;
use super::links::{ResolvedPath, resolve};
use super::program_files::{ProgramContext, program_paths};
use super::runner_cache::runner_caches;

/// The paths that a server may use, without links. Missing ones are left out.
#[derive(Debug)]
pub(super) struct FileAccess {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// The server may change files other than temporary ones.
    pub(super) changes_files: bool,
}

impl FileAccess {
    /// # Errors
    ///
    /// Returns the reason if the server itself could choose one of its paths, or if its program is not certain.
    pub(super) fn new(profile: &SandboxProfile, program: &OsStr) -> Result<Self, String> {
        let path = profile.variable("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let caches = targets(&resolve_all(&runner_caches(program, path.as_deref())));
        let (read, write) = (resolve_all(&profile.read), resolve_all(&profile.write));
        let changeable: Vec<PathBuf> = targets(&write).into_iter().chain(caches.clone()).collect();
        read.iter().chain(&write).try_for_each(|path| check_links(path, &changeable))?;
        let system = targets(&resolve_all(&SYSTEM.map(PathBuf::from)));
        let mut read = targets(&read);
        read.extend(system);
        let certificates: Vec<PathBuf> = certificates().into_iter().map(|(_, path)| path).collect();
        let certificates = resolve_all(&certificates).into_iter().filter(|path| check_links(path, &changeable).is_ok());
        read.extend(certificates.map(|(_, resolved)| resolved.target));
        let covered = read.iter().chain(&changeable).cloned().collect();
        let context = ProgramContext { path, home: home(), covered, changeable: changeable.clone() };
        read.extend(program_paths(program, &context)?);
        let others = profile.temp.iter().cloned().chain(DEVICES.map(PathBuf::from)).collect::<Vec<_>>();
        let changes_files = !changeable.is_empty();
        let write = changeable.into_iter().chain(targets(&resolve_all(&others))).collect();
        Ok(Self { read, write, changes_files })
    }
}

fn resolve_all(paths: &[PathBuf]) -> Vec<(PathBuf, ResolvedPath)> {
    paths.iter().filter_map(|path| Some((path.clone(), resolve(path).ok()?))).collect()
}

fn targets(paths: &[(PathBuf, ResolvedPath)]) -> Vec<PathBuf> {
    paths.iter().map(|(_, resolved)| resolved.target.clone()).collect()
}

/// Refuses a path that leads through a link in a directory that the server may change: the server could replace it.
fn check_links((path, resolved): &(PathBuf, ResolvedPath), changeable: &[PathBuf]) -> Result<(), String> {
    let Some(link) = changeable.iter().find_map(|folder| resolved.link_out_of(folder)) else { return Ok(()) };
    let (path, link, target) = (path.display(), link.display(), resolved.target.display());
    Err(format!(
        "path `{path}` contains the symbolic link `{link}`, which the server could replace; use `{target}` in `sandbox` instead"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use ropeway_config::Sandbox;

    use super::*;

    #[test]
    fn a_link_that_the_server_may_change_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        std::fs::create_dir_all(root.join("work/in")).expect("a folder");
        std::fs::create_dir_all(root.join("secret")).expect("a folder");
        symlink("/", root.join("work/data")).expect("a link");
        symlink("in", root.join("work/inner")).expect("a link");
        symlink("secret", root.join("outer")).expect("a link");
        let access = |sandbox: Sandbox| FileAccess::new(&SandboxProfile::new(&sandbox, "t"), OsStr::new("/bin/sh"));
        let work = || Sandbox::new().with_write(root.join("work"));
        for sandbox in [work().with_read(root.join("work/data")), work().with_write(root.join("work/data/etc"))] {
            let reason = access(sandbox).expect_err("a link");
            assert!(reason.contains(&format!("the symbolic link `{}`", root.join("work/data").display())), "{reason}");
        }
        let found = access(work().with_read(root.join("work/inner")).with_read(root.join("outer"))).expect("paths");
        assert!(found.read.contains(&root.join("secret")) && found.write.contains(&root.join("work")));
        // Without a directory that the server may change, links are followed.
        assert!(access(Sandbox::new().with_read(root.join("work/data"))).is_ok());
    }
}
