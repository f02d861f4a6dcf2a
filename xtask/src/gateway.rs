//! `ropeway serve` in the background, in front of other servers.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::background::Background;
use crate::{paths, process};

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
        Self::start_in(&config.with_extension("home"), ropeway, config, listen)
    }

    /// Starts the gateway with a folder's state, which gateways may share.
    pub fn start_in(home: &Path, ropeway: &Path, config: &Path, listen: &str) -> Result<Self> {
        let mut command = Command::new(ropeway);
        command.args(["serve", "--listen", listen, "--config"]).arg(config).envs(environment(home)?);
        let program = Background::start(&mut command)?;
        let url = program.url(START).context("the gateway did not start")?;
        Ok(Self { program, url })
    }
}

/// Returns the environment for a program whose state stays in a folder and reaches neither the next run nor the
/// user.
pub fn environment(home: &Path) -> Result<Vec<(&'static str, OsString)>> {
    let folders = [
        ("XDG_STATE_HOME", "state"),
        ("XDG_RUNTIME_DIR", "run"),
        ("XDG_CONFIG_HOME", "config"),
        ("ROPEWAY_CACHE_DIR", "cache"),
    ];
    let mut variables = Vec::new();
    for (name, folder) in folders {
        let folder = home.join(folder);
        fs::create_dir_all(&folder)?;
        // A runtime folder that others may use is refused.
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        variables.push((name, folder.into_os_string()));
    }
    // The user's keyring is not used either.
    variables.push(("ROPEWAY_KEYRING", "off".into()));
    Ok(variables)
}

/// Adds a key to a file and returns it; `args` are its name and limits.
pub fn new_key(ropeway: &Path, file: &Path, args: &[&str]) -> Result<String> {
    let made = process::output(Command::new(ropeway).args(["key", "new", "--file"]).arg(file).args(args))?;
    if !made.status.success() {
        bail!("`ropeway key new` failed with {}\n{}", made.status, process::output_text(&made));
    }
    Ok(String::from_utf8(made.stdout)?.trim().to_owned())
}

/// Writes a configuration file for the gateway below the target folder.
pub fn write_config(name: &str, config: &Value) -> Result<PathBuf> {
    let folder = paths::target().join("gateway");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(config)?)?;
    Ok(path)
}
