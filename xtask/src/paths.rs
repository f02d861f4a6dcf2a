//! Paths: the workspace, its target folder, and installed programs.

use std::path::{Path, PathBuf};

/// Returns the workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Returns the target folder that this program was built into.
pub fn target() -> PathBuf {
    let built = std::env::current_exe().ok();
    let found = built.as_deref().and_then(|program| program.ancestors().nth(2)).map(Path::to_owned);
    found.unwrap_or_else(|| root().join("target"))
}

/// Returns the installed servers' folder.
pub fn servers() -> PathBuf {
    target().join("servers")
}

/// Returns the folder with the servers' pinned versions.
pub fn fixtures() -> PathBuf {
    root().join("fixtures").join("servers")
}

/// Returns the folder with pinned model vendor SDKs.
pub fn sdk_fixtures() -> PathBuf {
    root().join("fixtures").join("sdks")
}

/// Returns the folder with the pinned packages that read telemetry.
pub fn telemetry_fixtures() -> PathBuf {
    root().join("fixtures").join("telemetry")
}

/// Returns the folder with a pinned authorization server.
pub fn auth_fixtures() -> PathBuf {
    root().join("fixtures").join("auth")
}

/// Returns the folder with other MCP command lines, pinned.
pub fn command_line_fixtures() -> PathBuf {
    root().join("fixtures").join("clis")
}

/// Returns the folder with other agents, pinned, and the programs that run them.
pub fn agent_fixtures() -> PathBuf {
    root().join("fixtures").join("agents")
}

/// Returns the folder with the gateway's real clients, their pinned versions and their checks.
pub fn client_fixtures() -> PathBuf {
    root().join("fixtures").join("clients")
}

/// Returns the folder with recorded tool lists, which is optional.
pub fn corpus() -> PathBuf {
    root().join("../shared/corpus/servers")
}

/// Returns a debug build program's path.
pub fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}
