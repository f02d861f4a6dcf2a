//! Files and folders: atomic writes and the user's own folders.

pub(crate) mod file;
pub(crate) mod user_folders;
