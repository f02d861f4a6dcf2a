//! `ropeway up`: keeps the servers running in the background.

use std::cell::RefCell;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use ropeway_core::tool::Alias;
use serde_json::json;
use tokio::time::Instant;

use super::gateway_status::{render_servers, summary_json};
use crate::config::config_paths::Origin;
use crate::connect::advice::exit_code;
use crate::connect::command_context::CommandContext;
use crate::connect::deadline::Deadline;
use crate::connect::gateway_client::GatewayProblem;
use crate::connect::gateway_files::GatewayFiles;
use crate::connect::gateway_process::{self, RunningStatus};
use crate::connect::running_gateway::VERSION;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::waiting::BRIEF_PATIENCE;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, say};
use crate::terminal::text::clean_line;
use crate::trust::TrustMode;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway up
  ropeway up --wait --timeout 60s
  ropeway up --config ~/work/ropeway.yaml

Servers that need longer than two seconds are connected in the background; commands that use them wait for them. With --wait, \
`up` waits, too, and exits with code 3 if no server is available.

The servers use the environment and the secrets of the `ropeway up` command. Other commands with the same configuration \
file use these servers until `ropeway down`; --direct or ROPEWAY_DIRECT=1 makes a command start its own servers.";

/// Keep the servers running in the background
///
/// Starts a gateway that other commands use, such as `tools`, `call` and `chat`. They start faster, and servers keep their
/// state between calls. Only this user can connect to it.
#[derive(Debug, clap::Args)]
pub(super) struct Up {
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Wait until each server is connected or has failed
    #[arg(long)]
    wait: bool,
}

/// What `up` had to do.
enum Outcome {
    Running,
    Started,
    Restarted,
}

impl Up {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let options = ServerOptions { config: self.config.clone(), ..ServerOptions::default() };
        let servers = options.own_servers(&context)?;
        let files = files_of(&servers)?;
        files.create_folder()?;
        let lock = files.lock()?;
        let (outcome, status) = start(&files, &servers, &context).await?;
        // `down` does not have to wait for the servers.
        drop(lock);
        let status = self.settled(&files, status, &context).await;
        let info = files.read_info();
        if context.json {
            let mut summary = summary_json(info.as_ref(), &status);
            summary["started"] = json!(!matches!(outcome, Outcome::Running));
            print_json(&summary)?;
            return Ok(self.exit(&status));
        }
        let what = match outcome {
            Outcome::Running => "already running",
            Outcome::Started => "started",
            Outcome::Restarted => "restarted",
        };
        let process = info.as_ref().map(|info| format!(" (process {})", info.pid)).unwrap_or_default();
        print(&format!("{what}{process}\n{}", render_servers(&status.servers, &servers.source)))?;
        Ok(self.exit(&status))
    }

    /// Waits for the servers: briefly, or with `--wait` until each is connected or has failed.
    async fn settled(&self, files: &GatewayFiles, status: RunningStatus, context: &CommandContext) -> RunningStatus {
        let brief = Instant::now() + BRIEF_PATIENCE;
        let deadline = context.deadline.as_ref().map(Deadline::at);
        let end = if self.wait { deadline } else { Some(deadline.map_or(brief, |deadline| deadline.min(brief))) };
        let label = RefCell::new(String::new());
        let is_seen = std::io::stderr().is_terminal();
        let show = |starting: &[&Alias]| {
            let names: Vec<&str> = starting.iter().map(|alias| alias.as_str()).collect();
            let waiting = format!("waiting for {}", clean_line(&names.join(", ")));
            if label.replace(waiting.clone()).is_empty() && self.wait && !is_seen && !names.is_empty() {
                say(&format!("{waiting}\n"));
            }
        };
        let settled = gateway_process::settled(files, status, end, show);
        context.status.during_labelled(|| label.borrow().clone(), settled).await
    }

    /// Returns the exit code: with `--wait`, the same as `ropeway tools`.
    fn exit(&self, status: &RunningStatus) -> Exit {
        if self.wait { exit_code(&status.servers) } else { Exit::Done }
    }
}

/// Starts the gateway, unless it runs already.
async fn start(
    files: &GatewayFiles,
    servers: &Servers,
    context: &CommandContext,
) -> Result<(Outcome, RunningStatus), Failure> {
    let info = files.read_info();
    let outcome = match gateway_process::running(files).await {
        Ok(status) if info.as_ref().is_some_and(|info| info.version == VERSION) => {
            return Ok((Outcome::Running, status));
        }
        // Another version, or a process that hangs.
        Ok(_) | Err(GatewayProblem::NoResponse) => {
            gateway_process::stop(files).await?;
            Outcome::Restarted
        }
        // A killed process has left its files behind.
        Err(GatewayProblem::NotRunning) => {
            files.remove();
            Outcome::Started
        }
    };
    let (ServerSource::File(path), Some(file)) = (&servers.source, &servers.file) else {
        return Err(no_file());
    };
    let mut arguments = Vec::new();
    if file.origin == Origin::Project {
        arguments.push("--require-trust");
    }
    if context.trust == TrustMode::TrustAll {
        arguments.push("--trust");
    }
    let status = gateway_process::start(files, &arguments, path).await?;
    Ok((outcome, status))
}

/// Returns the gateway files for a configuration file.
fn files_of(servers: &Servers) -> Result<GatewayFiles, Failure> {
    match &servers.source {
        ServerSource::File(path) => GatewayFiles::of(path),
        ServerSource::Line | ServerSource::Clients | ServerSource::Demo => Err(no_file()),
    }
}

fn no_file() -> Failure {
    Failure::usage("no configuration file found").hint("try `ropeway add`, or `--config FILE`")
}
