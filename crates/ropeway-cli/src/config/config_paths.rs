//! The configuration file's search path.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::user_folders::user_folder;
use crate::trust::store::location;

/// Configuration file names, in search order.
const FILES: [&str; 2] = ["ropeway.yaml", "ropeway.yml"];

/// The environment variable that names a configuration file.
pub(crate) const VARIABLE: &str = "ROPEWAY_CONFIG";

/// Why a path is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathReason {
    /// [`VARIABLE`] names it.
    Variable,
    /// It is in the current directory or above.
    Folder,
    /// It is the user configuration file.
    User,
}

/// How a configuration file was found, which decides whether it must be trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line or a variable names the file.
    Named,
    /// The user configuration file.
    Own,
    /// The file was found in the current directory or above and may have another author.
    Project,
}

/// One candidate in the search path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigPath {
    pub(crate) reason: PathReason,
    /// The existing file, or the default name in the directory.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// The file is above the current directory and owned by another user, so it is ignored.
    #[serde(rename = "is_strange", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_foreign: bool,
}

impl ConfigPath {
    fn in_folder(reason: PathReason, folder: &Path) -> Self {
        let there = FILES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
        let exists = there.is_some();
        Self { reason, path: there.unwrap_or_else(|| folder.join(FILES[0])), exists, is_foreign: false }
    }
}

impl ConfigPath {
    /// Returns how the file was found.
    pub(crate) fn origin(&self) -> Origin {
        match self.reason {
            PathReason::Variable => Origin::Named,
            PathReason::User => Origin::Own,
            PathReason::Folder => {
                // The user configuration file may also be found in the current directory. A symbolic link to it does not
                // count: relative paths are resolved against the link's directory.
                if is_user_file(&self.path) { Origin::Own } else { Origin::Project }
            }
        }
    }
}

/// Returns `true` for the user configuration file, which is found in all directories.
pub(crate) fn is_user_file(path: &Path) -> bool {
    let own = user_folder().and_then(|folder| location(&path_in(&folder)).ok());
    own.is_some() && own == location(path).ok()
}

/// Returns the search path in order.
pub(crate) fn candidates() -> Vec<ConfigPath> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named =
        named.map(|path| ConfigPath { reason: PathReason::Variable, exists: path.is_file(), path, is_foreign: false });
    let here = std::env::current_dir().ok();
    let above = here.iter().flat_map(|here| folders(here, is_trusted));
    let own = user_folder().map(|folder| ConfigPath::in_folder(PathReason::User, &folder));
    named.into_iter().chain(above).chain(own).collect()
}

/// Returns the current directory and those above it, where other users' files are ignored.
fn folders(here: &Path, is_trusted: impl Fn(&Path) -> bool) -> Vec<ConfigPath> {
    let place = |folder: &Path| {
        let place = ConfigPath::in_folder(PathReason::Folder, folder);
        let is_foreign = place.exists && folder != here && !is_trusted(&place.path);
        ConfigPath { is_foreign, ..place }
    };
    here.ancestors().map(place).collect()
}

/// Returns `true` if the user or root owns the file and, for a symbolic link, its target.
fn is_trusted(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let both = [path.symlink_metadata(), path.metadata()];
    both.into_iter().all(|end| end.is_ok_and(|end| end.uid() == 0 || end.uid() == user))
}

/// Returns the candidate in use. A file named by the variable is used even if it does not exist.
pub(crate) fn select(places: &[ConfigPath]) -> Option<&ConfigPath> {
    places.iter().find(|place| (place.exists && !place.is_foreign) || place.reason == PathReason::Variable)
}

/// Returns the path to the configuration file in use.
pub(crate) fn find_path() -> Option<PathBuf> {
    select(&candidates()).map(|place| place.path.clone())
}

/// Returns the configuration file in use and how it was found.
pub(crate) fn find_with_origin() -> Option<(PathBuf, Origin)> {
    select(&candidates()).map(|place| (place.path.clone(), place.origin()))
}

/// Returns a directory's configuration file, or its default name.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    ConfigPath::in_folder(PathReason::Folder, folder).path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_users_are_used_only_in_the_current_folder() {
        let top = tempfile::tempdir().expect("a folder");
        let (middle, here) = (top.path().join("a"), top.path().join("a/b"));
        std::fs::create_dir_all(&here).expect("folders");
        for folder in [top.path(), &middle] {
            std::fs::write(folder.join("ropeway.yaml"), "").expect("a file");
        }
        let theirs = middle.join("ropeway.yaml");
        let is_mine = |path: &Path| path != theirs;
        let selected = |places: &[ConfigPath]| select(places).map(|place| place.path.clone());
        let places = folders(&here, is_mine);
        let strange: Vec<bool> = places.iter().take(3).map(|place| place.is_foreign).collect();
        assert_eq!(strange, [false, true, false]);
        assert_eq!(selected(&places), Some(top.path().join("ropeway.yaml")));
        assert_eq!(selected(&folders(&middle, is_mine)), Some(theirs.clone()));
        assert!(is_trusted(&theirs));
    }
}
