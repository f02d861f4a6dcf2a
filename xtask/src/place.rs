//! Where things are: the workspace, its target folder, what is installed there.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The target folder that this very program was built into.
pub fn target() -> PathBuf {
    let built = std::env::current_exe().ok();
    let found = built.as_deref().and_then(|program| program.ancestors().nth(2)).map(Path::to_owned);
    found.unwrap_or_else(|| root().join("target"))
}

/// The folder of the installed servers.
pub fn servers() -> PathBuf {
    target().join("servers")
}

/// What the servers are installed from.
pub fn fixtures() -> PathBuf {
    root().join("fixtures").join("servers")
}

/// What the model vendors' SDKs are installed from.
pub fn sdk_fixtures() -> PathBuf {
    root().join("fixtures").join("sdks")
}

/// What the command lines of others are installed from.
pub fn command_line_fixtures() -> PathBuf {
    root().join("fixtures").join("clis")
}

/// What the agents of others are installed from, and the programs that run them.
pub fn agent_fixtures() -> PathBuf {
    root().join("fixtures").join("agents")
}

/// Recorded lists of many servers' tools, where somebody has put them: an extra, never needed.
pub fn corpus() -> PathBuf {
    root().join("../shared/corpus/servers")
}

/// A program of ours, as a debug build leaves it.
pub fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}
