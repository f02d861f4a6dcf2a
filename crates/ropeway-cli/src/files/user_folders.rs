//! The user's own folders, as the XDG base directory specification names them.
//! <https://specifications.freedesktop.org/basedir-spec/latest/>

use std::path::PathBuf;

/// Where the user's own configuration is.
pub(crate) fn user_folder() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// Where is kept what was typed.
pub(crate) fn state_folder() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| home().map(|home| home.join(below_home))).map(|folder| folder.join("ropeway"))
}
