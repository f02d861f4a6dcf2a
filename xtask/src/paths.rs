//! Paths: the workspace, its target folder, and installed programs.

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
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

/// Returns the folder of the installed servers.
pub fn servers() -> PathBuf {
    target().join("servers")
}

/// Returns the folder with the pinned versions of the servers.
pub fn fixtures() -> PathBuf {
    root().join("fixtures").join("servers")
}

/// Returns the folder with the pinned versions of the model vendors' SDKs.
pub fn sdk_fixtures() -> PathBuf {
    root().join("fixtures").join("sdks")
}

/// Returns the folder with the pinned versions of the packages that read telemetry.
pub fn telemetry_fixtures() -> PathBuf {
    root().join("fixtures").join("telemetry")
}

/// Returns the folder with the pinned version of an authorization server.
pub fn auth_fixtures() -> PathBuf {
    root().join("fixtures").join("auth")
}

/// Returns the folder with the pinned versions of other MCP command lines.
pub fn command_line_fixtures() -> PathBuf {
    root().join("fixtures").join("clis")
}

/// Returns the folder with the pinned versions of other agents, and the programs that run them.
pub fn agent_fixtures() -> PathBuf {
    root().join("fixtures").join("agents")
}

/// Returns the folder with the real clients of the gateway, their pinned versions and their checks.
pub fn client_fixtures() -> PathBuf {
    root().join("fixtures").join("clients")
}

/// Returns the folder of recorded tool lists, which is optional.
pub fn corpus() -> PathBuf {
    root().join("../shared/corpus/servers")
}

/// Returns the path of a program of the debug build.
pub fn program(name: &str) -> PathBuf {
    target().join("debug").join(name)
}
