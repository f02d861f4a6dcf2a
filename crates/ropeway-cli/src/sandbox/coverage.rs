//! Whether a sandbox lets its server read a file.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ropeway_config::StdioServer;

use super::built_in::SYSTEM;
use super::home::home;
use super::program_files::{ProgramContext, program_paths};

/// Returns `true` if the server's sandbox allows reading the file, or if the server has no sandbox.
pub(crate) fn covers(server: &StdioServer, file: &Path) -> bool {
    let Some(sandbox) = &server.sandbox else { return true };
    let Ok(file) = file.canonicalize() else { return false };
    let own = sandbox.read.iter().chain(&sandbox.write).map(|path| path.path.clone());
    let path =
        server.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| OsString::from(value.expose()));
    let path = path.or_else(|| std::env::var_os("PATH"));
    let context = ProgramContext { path, home: home(), ..ProgramContext::default() };
    let program = program_paths(OsStr::new(&server.command), &context).unwrap_or_default();
    let allowed = own.chain(SYSTEM.iter().map(PathBuf::from)).chain(program);
    allowed.filter_map(|path| path.canonicalize().ok()).any(|path| file.starts_with(path))
}
