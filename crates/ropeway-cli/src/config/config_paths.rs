//! The places where the configuration file is looked for, in their order.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::files::user_folders::user_folder;
use crate::trust::store::location;

/// The names of a configuration file, in the order in which they are looked for.
const FILES: [&str; 2] = ["ropeway.yaml", "ropeway.yml"];

/// The variable that names a configuration file.
pub(crate) const VARIABLE: &str = "ROPEWAY_CONFIG";

/// Why a place is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// A variable names it.
    Variable,
    /// It is this folder, or one above it.
    Folder,
    /// It is the user's own.
    User,
}

/// Who chose a configuration file, and so whether the person has to accept it before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line or a variable names the file.
    Named,
    /// The file is the user's own.
    Own,
    /// The file was found in the current folder or above: its author may be a stranger.
    Project,
}

/// A place where a configuration file may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    pub(crate) reason: Reason,
    /// The file that is there, or the one that would be.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    /// It is above this folder and belongs to somebody else, who would choose what is run here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_strange: bool,
}

impl Place {
    fn in_folder(reason: Reason, folder: &Path) -> Self {
        let there = FILES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
        let exists = there.is_some();
        Self { reason, path: there.unwrap_or_else(|| folder.join(FILES[0])), exists, is_strange: false }
    }
}

impl Place {
    /// Who chose the file.
    pub(crate) fn origin(&self) -> Origin {
        match self.reason {
            Reason::Variable => Origin::Named,
            Reason::User => Origin::Own,
            Reason::Folder => {
                // In the user's own folder the user's own file is found as that of the current folder. A link to it from
                // elsewhere is not the same: relative paths in it start at the folder of the link.
                let own = user_folder().and_then(|folder| location(&file_in(&folder)).ok());
                let is_own = own.is_some() && own == location(&self.path).ok();
                if is_own { Origin::Own } else { Origin::Project }
            }
        }
    }
}

/// All places, in the order in which they are looked at.
pub(crate) fn all() -> Vec<Place> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = named.map(|path| Place { reason: Reason::Variable, exists: path.is_file(), path, is_strange: false });
    let here = std::env::current_dir().ok();
    let above = here.iter().flat_map(|here| folders(here, is_trusted));
    let own = user_folder().map(|folder| Place::in_folder(Reason::User, &folder));
    named.into_iter().chain(above).chain(own).collect()
}

/// This folder, and those above it: there only a file of somebody who is trusted counts.
fn folders(here: &Path, is_trusted: impl Fn(&Path) -> bool) -> Vec<Place> {
    let place = |folder: &Path| {
        let place = Place::in_folder(Reason::Folder, folder);
        let is_strange = place.exists && folder != here && !is_trusted(&place.path);
        Place { is_strange, ..place }
    };
    here.ancestors().map(place).collect()
}

/// Does the file belong to the user or to root, and if it is a link, both ends of it?
fn is_trusted(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let both = [path.symlink_metadata(), path.metadata()];
    both.into_iter().all(|end| end.is_ok_and(|end| end.uid() == 0 || end.uid() == user))
}

/// The place whose file is used: what a variable names is meant, whether it is there or not.
pub(crate) fn used(places: &[Place]) -> Option<&Place> {
    places.iter().find(|place| (place.exists && !place.is_strange) || place.reason == Reason::Variable)
}

/// The configuration file of this place: named by a variable, in this folder or above it, or the user's own.
pub(crate) fn find() -> Option<PathBuf> {
    used(&all()).map(|place| place.path.clone())
}

/// The same file, and who chose it.
pub(crate) fn found() -> Option<(PathBuf, Origin)> {
    used(&all()).map(|place| (place.path.clone(), place.origin()))
}

/// The file that a folder has, or would have.
pub(crate) fn file_in(folder: &Path) -> PathBuf {
    Place::in_folder(Reason::Folder, folder).path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_counts_in_this_folder_and_not_above_it() {
        let top = tempfile::tempdir().expect("a folder");
        let (middle, here) = (top.path().join("a"), top.path().join("a/b"));
        std::fs::create_dir_all(&here).expect("folders");
        for folder in [top.path(), &middle] {
            std::fs::write(folder.join("ropeway.yaml"), "").expect("a file");
        }
        let theirs = middle.join("ropeway.yaml");
        let is_mine = |path: &Path| path != theirs;
        let used = |places: &[Place]| used(places).map(|place| place.path.clone());
        let places = folders(&here, is_mine);
        let strange: Vec<bool> = places.iter().take(3).map(|place| place.is_strange).collect();
        assert_eq!(strange, [false, true, false]);
        assert_eq!(used(&places), Some(top.path().join("ropeway.yaml")));
        assert_eq!(used(&folders(&middle, is_mine)), Some(theirs.clone()));
        assert!(is_trusted(&theirs));
    }
}
