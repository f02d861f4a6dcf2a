//! Configuration files: discovery, reading and editing.

pub(crate) mod config_file;
pub(crate) mod config_paths;
pub(crate) mod config_target;
