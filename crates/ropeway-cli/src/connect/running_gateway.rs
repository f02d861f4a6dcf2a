//! The `ropeway up` gateway: commands use its servers instead of starting their own.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_bridge::registry::ServerState;
use ropeway_config::{EraChoice, ServerConfig, ServerEntry, ServerSettings, SocketServer, Transport};
use ropeway_core::tool::Alias;
use tokio::time::Instant;

use crate::config::config_file::ConfigFile;
use crate::connect::advice::{STARTING, is_available, is_pending};
use crate::connect::command_context::CommandContext;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo};
use crate::connect::gateway_process::{self, RunningStatus};
use crate::connect::servers::Servers;
use crate::connect::waiting::Waiting;
use crate::failure::{Exit, Failure};
use crate::output::print::say;
use crate::terminal::style::warning;
use crate::terminal::text::clean_line;
use crate::trust::sha256;

/// This program's version. A gateway with another version is not used.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Time within which a gateway loads a changed file. It checks the file twice a second.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval between two checks on what the gateway has loaded.
const RELOAD_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between two checks on a server that the gateway connects.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// A running gateway whose servers a command uses.
pub(crate) struct AttachedGateway {
    pub(crate) socket: PathBuf,
    /// Servers that it is still starting, which the command does without.
    pub(crate) starting: HashSet<Alias>,
}

/// Connects to the configuration file's running gateway instead of its servers.
///
/// Waits for servers that the gateway is starting. A second process would not have the state that the gateway's server has, so
/// none is started: a command for one server also waits for the gateway to reconnect it, and fails if it is still down; a command
/// for several continues. If the gateway could never connect a server, a command for this server alone starts it with a warning,
/// and every other command believes the gateway.
pub(crate) async fn attach(
    servers: &mut Servers,
    context: &CommandContext,
) -> Result<Option<AttachedGateway>, Failure> {
    let Some(file) = servers.file.as_ref().filter(|_| servers.may_use_gateway) else { return Ok(None) };
    let Some((files, status)) = find(file).await else { return Ok(None) };
    let status = wait_for_servers(&files, status, servers, context).await;
    let is_single = servers.single().is_some();
    let mut starting = HashSet::new();
    for entry in &mut servers.config.servers {
        let alias = entry.alias.clone();
        let Some(config) = shared_config(entry) else { continue };
        let Some(state) = state_of(&status, &alias) else { continue };
        match Availability::of(&status, &alias, state) {
            // A lazy server is available there, and starts at the first call.
            Availability::Usable => {}
            Availability::Starting | Availability::Returning if is_single => return Err(down(&status, &alias, state)),
            Availability::Returning => {
                say(&warning(&format!("{} in the running gateway", described(&status, &alias, state))));
            }
            Availability::Starting => {
                entry.settings = ServerSettings::Down { cause: STARTING.to_owned() };
                starting.insert(alias);
                continue;
            }
            Availability::Failed(cause) if is_single => {
                let described = format!("server `{alias}` is down ({})", clean_line(cause));
                say(&warning(&format!("{described} in the running gateway; starting it for this command")));
                continue;
            }
            Availability::Failed(cause) => {
                let cause = format!("{cause} (in the running gateway, which tries again)");
                entry.settings = ServerSettings::Down { cause };
                continue;
            }
            Availability::Other => continue,
        }
        let socket = SocketServer::new(&files.socket).with_server(alias.as_str());
        config.transport = socket.replacing(config.transport.clone()).into();
        config.era = EraChoice::Modern;
    }
    Ok(Some(AttachedGateway { socket: files.socket, starting }))
}

/// Returns the socket at which a running gateway could serve this command.
pub(crate) async fn socket(servers: &Servers) -> Option<PathBuf> {
    let file = servers.file.as_ref().filter(|_| servers.may_use_gateway)?;
    Some(find(file).await?.0.socket)
}

/// Returns the gateway that has loaded a configuration file, and its status. Says why a running one is not used.
async fn find(file: &ConfigFile) -> Option<(GatewayFiles, RunningStatus)> {
    let files = GatewayFiles::of(&file.path).ok()?;
    let info = files.read_info()?;
    let reason = match files.check_folder() {
        Err(failure) => failure.line(),
        Ok(()) if info.version != VERSION => {
            format!("the running gateway is version {}; try `ropeway up` to restart it", info.version)
        }
        Ok(()) => match gateway_process::running(&files).await {
            Err(_) => "the running gateway does not respond".to_owned(),
            Ok(status) => match wait_until_loaded(&files, file, &info, status).await {
                Some(status) => return Some((files, status)),
                None => {
                    "the running gateway has not loaded the changed configuration file; see `ropeway status`".to_owned()
                }
            },
        },
    };
    // A gateway that was killed leaves its socket behind.
    if info.is_alive() {
        warn(&reason);
    }
    None
}

/// What a command can expect from a server in the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Availability<'a> {
    Usable,
    /// The gateway is connecting it for the first time.
    Starting,
    /// The gateway had it and is reconnecting it.
    Returning,
    /// The gateway could never connect it, for this reason.
    Failed(&'a str),
    /// It needs a sign-in, a secret or another configuration.
    Other,
}

impl<'a> Availability<'a> {
    fn of(status: &'a RunningStatus, alias: &Alias, state: &'a ServerState) -> Self {
        let is_listed = status.listed.contains(alias);
        match (state, status.failure(alias)) {
            (state, _) if is_available(state) => Self::Usable,
            (state, None) if is_pending(state) && !is_listed => Self::Starting,
            (state, Some(cause)) if is_pending(state) && !is_listed => Self::Failed(cause),
            (state, _) if is_pending(state) => Self::Returning,
            (ServerState::Down { .. }, _) if is_listed => Self::Returning,
            (ServerState::Down { cause }, _) => Self::Failed(cause),
            _ => Self::Other,
        }
    }
}

/// Waits until no server is being started, at most for each one's connection timeout. A command for one server also waits for the
/// gateway to reconnect it, for its grace period.
async fn wait_for_servers(
    files: &GatewayFiles,
    mut status: RunningStatus,
    servers: &Servers,
    context: &CommandContext,
) -> RunningStatus {
    let is_single = servers.single().is_some();
    let most = match servers.waiting {
        // A gateway that runs for longer has waited already.
        Waiting::Briefly(patience) if !is_single => patience.saturating_sub(uptime(files)),
        _ => Duration::MAX,
    };
    let began = Instant::now();
    let mut announced = HashSet::new();
    loop {
        let mut is_waiting = false;
        for entry in &servers.config.servers {
            let Some(config) = entry.config().filter(|config| is_shared(config)) else { continue };
            let Some(state) = state_of(&status, &entry.alias) else { continue };
            let (patience, doing) = match Availability::of(&status, &entry.alias, state) {
                Availability::Starting => (config.timeouts.connect.min(most), "starting"),
                Availability::Returning if is_single => (config.timeouts.grace, "reconnecting"),
                _ => continue,
            };
            if began.elapsed() >= patience {
                continue;
            }
            is_waiting = true;
            if announced.insert(entry.alias.clone()) {
                say(&format!("waiting for server `{}`: the running gateway is {doing} it\n", entry.alias));
            }
        }
        let is_late = context.deadline.as_ref().is_some_and(|deadline| Instant::now() >= deadline.at());
        if !is_waiting || is_late {
            return status;
        }
        tokio::time::sleep(CONNECT_INTERVAL).await;
        match gateway_process::running(files).await {
            Ok(now) => status = now,
            // The gateway itself has ended or hangs.
            Err(_) => return status,
        }
    }
}

/// Returns how long the gateway is running.
fn uptime(files: &GatewayFiles) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    files.read_info().map_or(Duration::ZERO, |info| Duration::from_secs(now.as_secs().saturating_sub(info.started)))
}

fn state_of<'a>(status: &'a RunningStatus, alias: &Alias) -> Option<&'a ServerState> {
    status.servers.iter().find(|server| server.server == *alias).map(|server| &server.state)
}

/// Returns the settings for a server that a gateway runs for other commands.
fn shared_config(entry: &mut ServerEntry) -> Option<&mut ServerConfig> {
    match &mut entry.settings {
        ServerSettings::Known(config) if is_shared(config) => Some(config),
        _ => None,
    }
}

fn is_shared(config: &ServerConfig) -> bool {
    matches!(config.transport, Transport::Stdio(_) | Transport::Http(_) | Transport::Sse(_))
}

/// Returns the failure for a command whose only server is down.
fn down(status: &RunningStatus, alias: &Alias, state: &ServerState) -> Failure {
    let described = described(status, alias, state);
    let failure = Failure::new(Exit::Unreachable, format!("{described} in the running gateway"));
    failure.hint("see `ropeway status`; --direct starts a separate server for one command")
}

fn described(status: &RunningStatus, alias: &Alias, state: &ServerState) -> String {
    let cause = match state {
        ServerState::Down { cause } => Some(cause.as_str()),
        // The gateway may just be making another attempt.
        _ => status.failure(alias),
    };
    match cause {
        Some(cause) => format!("server `{alias}` is down ({})", clean_line(cause)),
        None => format!("server `{alias}` is not ready"),
    }
}

/// Waits until the gateway has loaded the file's text, and returns its status.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_that_is_being_reconnected_is_down_for_its_last_reason() {
        let counts =
            json!({"servers": [], "failures": [["a", "it exited"]], "connections": 1, "sessions": 0, "requests": 0});
        let status: RunningStatus = serde_json::from_value(counts).expect("a status");
        let described = |alias: &str| described(&status, &alias.into(), &ServerState::Connecting);
        assert_eq!(described("a"), "server `a` is down (it exited)");
        assert_eq!(described("b"), "server `b` is not ready");
    }
}
