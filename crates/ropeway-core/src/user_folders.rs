//! The user's directories, as in the XDG base directory specification.
//! <https://specifications.freedesktop.org/basedir-spec/latest/>

use std::path::PathBuf;

/// Returns the user configuration file's directory.
pub fn user_folder() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// Returns the directory for saved conversations, history, trust records and tokens.
pub fn state_folder() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| home().map(|home| home.join(below_home))).map(|folder| folder.join("ropeway"))
}
