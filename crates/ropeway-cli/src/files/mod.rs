//! Files and directories: atomic writes and the user's own directories.

pub(crate) mod file;
pub(crate) mod folder_lock;
pub(crate) mod user_folders;
