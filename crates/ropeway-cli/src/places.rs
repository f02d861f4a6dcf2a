//! The places where the configuration file is looked for, in their order.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::servers::user_folder;

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

/// A place where a configuration file may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    pub(crate) reason: Reason,
    /// The file that is there, or the one that would be.
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
}

impl Place {
    fn in_folder(reason: Reason, folder: &Path) -> Self {
        let there = FILES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
        let exists = there.is_some();
        Self { reason, path: there.unwrap_or_else(|| folder.join(FILES[0])), exists }
    }
}

/// All places, in the order in which they are looked at.
pub(crate) fn all() -> Vec<Place> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = named.map(|path| Place { reason: Reason::Variable, exists: path.is_file(), path });
    let here = std::env::current_dir().ok();
    let above = here.iter().flat_map(|folder| folder.ancestors());
    let above = above.map(|folder| Place::in_folder(Reason::Folder, folder));
    let own = user_folder().map(|folder| Place::in_folder(Reason::User, &folder));
    named.into_iter().chain(above).chain(own).collect()
}

/// The place whose file is used: what a variable names is meant, whether it is there or not.
pub(crate) fn used(places: &[Place]) -> Option<&Place> {
    places.iter().find(|place| place.exists || place.reason == Reason::Variable)
}

/// The file that a folder has, or would have.
pub(crate) fn file_in(folder: &Path) -> PathBuf {
    Place::in_folder(Reason::Folder, folder).path
}
