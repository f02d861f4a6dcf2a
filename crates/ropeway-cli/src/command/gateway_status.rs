//! `ropeway status`: shows the gateway in the background.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_bridge::registry::ServerStatus;
use ropeway_core::duration::format_duration;
use serde_json::{Value, json};

use crate::config::config_paths::find_path;
use crate::connect::advice::{ServerAdvice, is_unavailable};
use crate::connect::command_context::CommandContext;
use crate::connect::gateway_client::GatewayProblem;
use crate::connect::gateway_files::{GatewayFiles, GatewayInfo};
use crate::connect::gateway_process::{self, RunningStatus};
use crate::connect::servers::ServerSource;
use crate::failure::{Exit, Failure};
use crate::terminal::text::{clean_line, width};

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway status
  ropeway status --json";

/// Show the gateway that `ropeway up` started
///
/// Shows its process, its servers, and the clients that use it. `ropeway health` checks the servers themselves. Exits with
/// code 3 if no gateway is running.
#[derive(Debug, clap::Args)]
pub(super) struct GatewayStatus {
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl GatewayStatus {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let files = files_in_use(self.config)?.filter(|files| files.folder.is_dir());
        if let Some(files) = &files {
            files.check_folder()?;
        }
        let status = match &files {
            Some(files) => gateway_process::running(files).await,
            None => Err(GatewayProblem::NotRunning),
        };
        let info = files.as_ref().and_then(GatewayFiles::read_info);
        let status = match status {
            Ok(status) => status,
            Err(GatewayProblem::NoResponse) => {
                return Err(Failure::new(Exit::Unreachable, "the gateway does not respond")
                    .hint("try `ropeway up` to restart it, or `ropeway down`"));
            }
            Err(GatewayProblem::NotRunning) => {
                context.print(&json!({ "running": false }), || "not running; try `ropeway up`\n".to_owned())?;
                return Ok(Exit::Unreachable);
            }
        };
        let source = info.as_ref().map_or(ServerSource::Demo, |info| ServerSource::File(info.config.clone()));
        context.print(&summary_json(info.as_ref(), &status), || {
            render(info.as_ref(), &status) + &render_servers(&status.servers, &source)
        })?;
        Ok(Exit::Done)
    }
}

/// Returns the gateway files for the configuration file in use, if it exists.
pub(super) fn files_in_use(config: Option<PathBuf>) -> Result<Option<GatewayFiles>, Failure> {
    config.or_else(find_path).map(|path| GatewayFiles::of(&path)).transpose()
}

fn render(info: Option<&GatewayInfo>, status: &RunningStatus) -> String {
    let mut text = String::from("running");
    if let Some(info) = info {
        text.push_str(&format!(
            " for {} (process {}, version {})\n",
            format_duration(uptime(info).max(Duration::from_secs(1))),
            info.pid,
            clean_line(&info.version)
        ));
        text.push_str(&format!("configuration: {}\n", clean_line(&info.config.to_string_lossy())));
    } else {
        text.push('\n');
    }
    let RunningStatus { connections, sessions, requests, .. } = status;
    text + &format!("connections: {connections}, sessions: {sessions}, requests in progress: {requests}\n")
}

fn uptime(info: &GatewayInfo) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(now.as_secs().saturating_sub(info.started))
}

/// Formats one line for each server, and the reason if it is unavailable.
pub(super) fn render_servers(servers: &[ServerStatus], source: &ServerSource) -> String {
    let advice = ServerAdvice::new(source.clone(), None);
    let line = |server: &ServerStatus| {
        if is_unavailable(&server.state) { advice.problem_text(server, width()) } else { advice.heading(server, "") }
    };
    servers.iter().map(line).collect()
}

/// Returns a running gateway's status as JSON.
pub(super) fn summary_json(info: Option<&GatewayInfo>, status: &RunningStatus) -> Value {
    let mut summary = json!({ "running": true });
    if let Some(info) = info {
        summary["pid"] = json!(info.pid);
        summary["version"] = json!(info.version);
        summary["config"] = json!(info.config);
        summary["uptime_s"] = json!(uptime(info).as_secs());
    }
    summary["connections"] = json!(status.connections);
    summary["sessions"] = json!(status.sessions);
    summary["requests"] = json!(status.requests);
    summary["servers"] = json!(status.servers);
    summary
}

#[cfg(test)]
mod tests {
    use ropeway_bridge::registry::ServerState;

    use super::*;

    #[test]
    fn a_server_that_is_down_is_shown_with_the_reason() {
        let down = ServerStatus::new("broken", ServerState::Down { cause: "could not start `x`".to_owned() });
        let text = anstream::adapter::strip_str(&render_servers(&[down], &ServerSource::Demo)).to_string();
        assert!(text.starts_with("✗ broken · ") && text.contains("\n    could not start `x`\n"), "{text}");
    }
}
