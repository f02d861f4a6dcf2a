//! A sandbox together with the command that it restricts.

use std::path::Path;

use ropeway_config::{SandboxSummary, StdioServer};

/// Describes a sandbox, with the caches that a package runner may change.
pub(crate) fn describe(sandbox: &SandboxSummary, command: &str) -> String {
    match runner(command) {
        Some(runner) => format!("{sandbox}; changes the package cache of `{runner}`"),
        None => sandbox.to_string(),
    }
}

/// Returns `true` if the server is downloaded by a package runner that may not use the network.
pub(crate) fn lacks_network(server: &StdioServer) -> bool {
    server.sandbox.as_ref().is_some_and(|sandbox| !sandbox.network) && runner(&server.command).is_some()
}

/// Returns the package runner whose cache a sandbox allows.
fn runner(command: &str) -> Option<&str> {
    let name = Path::new(command).file_name()?.to_str()?;
    ["npm", "npx", "uv", "uvx"].contains(&name).then_some(name)
}
