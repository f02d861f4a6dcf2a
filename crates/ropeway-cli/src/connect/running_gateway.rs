//! The gateway of `ropeway up`: commands use its servers instead of starting their own.

use std::collections::HashSet;
use std::time::Duration;

use ropeway::config::{EraChoice, ServerSettings, SocketServer, Transport};
use serde_json::Value;
use tokio::time::Instant;

use crate::config::config_file::ConfigFile;
use crate::connect::gateway_client;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo};
use crate::connect::servers::Servers;
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::trust::sha256;

/// The version of this program. A gateway of another version is not used.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Time limit for the status of the gateway.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

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
    let Ok(status) = gateway_client::status(&files.socket, PROBE_TIMEOUT).await else {
        // A gateway that was killed leaves its socket behind.
        if info.is_alive() {
            warn("the running gateway does not respond");
        }
        return;
    };
    if info.version != VERSION {
        return warn(&format!("the running gateway is version {}; try `ropeway up` to restart it", info.version));
    }
    let Some(status) = wait_until_loaded(&files, file, &info, status).await else {
        return warn("the running gateway has not loaded the changed configuration file; see `ropeway status`");
    };
    let available = available(&status);
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
    status: Value,
) -> Option<Value> {
    let digest = sha256(&file.text);
    if info.digest == digest {
        return Some(status);
    }
    let end = Instant::now() + RELOAD_TIMEOUT;
    while Instant::now() < end {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        if files.read_info()?.digest == digest {
            return gateway_client::status(&files.socket, PROBE_TIMEOUT).await.ok();
        }
    }
    None
}

/// Returns the servers that the gateway is connected to, or connects to at the first call.
fn available(status: &Value) -> HashSet<&str> {
    let servers = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_available = |server: &&Value| {
        matches!(server["outcome"].as_str(), Some("ready" | "cached" | "filtered_to_zero" | "hidden"))
    };
    servers.iter().filter(is_available).filter_map(|server| server["server"].as_str()).collect()
}

fn warn(reason: &str) {
    say(&warning(&format!("{reason}; starting the servers for this command")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_servers_that_the_gateway_has_are_used_there() {
        let status = json!({"servers": [
            {"server": "a", "outcome": "ready", "tools": 3},
            {"server": "b", "outcome": "down", "cause": "gone"},
            {"server": "c", "outcome": "cached", "tools": 1},
            {"server": "d", "outcome": "connecting"},
        ]});
        assert_eq!(available(&status), HashSet::from(["a", "c"]));
        assert_eq!(available(&json!({})), HashSet::new());
    }
}
