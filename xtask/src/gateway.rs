//! `ropeway serve` in the background, in front of other servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::background::Background;
use crate::paths;

/// Maximum time from start to readiness.
const START: Duration = Duration::from_secs(60);

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    pub program: Background,
    pub url: String,
}

impl Gateway {
    /// Starts the gateway with a configuration file.
    pub fn start(ropeway: &Path, config: &Path, listen: &str) -> Result<Self> {
        let mut command = Command::new(ropeway);
        command.args(["serve", "--listen", listen, "--config"]).arg(config);
        // State of one run does not reach the next, or the user.
        let home = config.with_extension("home");
        fs::create_dir_all(&home)?;
        for (name, folder) in [
            ("XDG_STATE_HOME", "state"),
            ("XDG_RUNTIME_DIR", "run"),
            ("XDG_CONFIG_HOME", "config"),
            ("ROPEWAY_CACHE_DIR", "cache"),
        ] {
            let folder = home.join(folder);
            fs::create_dir_all(&folder)?;
            // A runtime folder of others is refused.
            fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            command.env(name, folder);
        }
        // Nor the keyring of the user.
        command.env("ROPEWAY_KEYRING", "off");
        let program = Background::start(&mut command)?;
        let url = program.url(START).context("the gateway did not start")?;
        Ok(Self { program, url })
    }
}

/// Writes a configuration file for the gateway below the target folder.
pub fn write_config(name: &str, config: &Value) -> Result<PathBuf> {
    let folder = paths::target().join("gateway");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(config)?)?;
    Ok(path)
}
