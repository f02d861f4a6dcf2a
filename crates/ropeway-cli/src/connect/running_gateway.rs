//! The gateway of `ropeway up`: commands use its servers instead of starting their own.

use std::collections::HashSet;
use std::time::Duration;

use ropeway::config::{EraChoice, ServerSettings, SocketServer, Transport};
use tokio::time::Instant;

use crate::config::config_file::ConfigFile;
use crate::connect::advice::is_available;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo};
use crate::connect::gateway_process::{self, RunningStatus};
use crate::connect::servers::Servers;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::trust::sha256;

/// The version of this program. A gateway of another version is not used.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Time within which a gateway loads a changed file. It looks at the file twice a second.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Time between two looks at what the gateway has loaded.
const RELOAD_INTERVAL: Duration = Duration::from_millis(50);

/// Connects to the running gateway of the configuration file instead of its servers. A server that is not available there is
/// started as usual, which also shows why it fails.
pub(crate) async fn attach(servers: &mut Servers) {
    let Some(file) = servers.file.as_ref().filter(|_| servers.may_use_gateway) else { return };
    let Ok(files) = GatewayFiles::of(&file.path) else { return };
    let Some(info) = files.read_info() else { return };
    if let Err(failure) = files.check_folder() {
        return warn(&failure.line());
    }
    if info.version != VERSION {
        if info.is_alive() {
            warn(&format!("the running gateway is version {}; try `ropeway up` to restart it", info.version));
        }
        return;
    }
    let Ok(status) = gateway_process::running(&files).await else {
        // A gateway that was killed leaves its socket behind.
        if info.is_alive() {
            warn("the running gateway does not respond");
        }
        return;
    };
    let Some(status) = wait_until_loaded(&files, file, &info, status).await else {
        return warn("the running gateway has not loaded the changed configuration file; see `ropeway status`");
    };
    // A lazy server is available there, and starts at the first call.
    let available = status.servers.iter().filter(|server| is_available(&server.state));
    let available: HashSet<&str> = available.map(|server| server.server.as_str()).collect();
    for entry in &mut servers.config.servers {
        let ServerSettings::Known(config) = &mut entry.settings else { continue };
        let is_remote = matches!(config.transport, Transport::Stdio(_) | Transport::Http(_) | Transport::Sse(_));
        if !is_remote || !available.contains(entry.alias.as_str()) {
            continue;
        }
        let socket = SocketServer::new(&files.socket).with_server(entry.alias.as_str());
        config.transport = socket.replacing(config.transport.clone()).into();
        config.era = EraChoice::Modern;
    }
}

/// Waits until the gateway has loaded the text of the file, and returns its status.
async fn wait_until_loaded(
    files: &GatewayFiles,
    file: &ConfigFile,
    info: &GatewayInfo,
    status: RunningStatus,
) -> Option<RunningStatus> {
    let digest = sha256(&file.text);
    if info.digest == digest {
        return Some(status);
    }
    let end = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < end {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        if files.read_info()?.digest == digest {
            return gateway_process::running(files).await.ok();
        }
    }
    None
}

fn warn(reason: &str) {
    say(&warning(&format!("{reason}; starting the servers for this command")));
}
