//! `ropeway down`: stops the background servers.

use std::path::PathBuf;

use serde_json::json;

use super::gateway_status::files_in_use;
use crate::connect::command_context::CommandContext;
use crate::connect::gateway_process;
use crate::failure::{Exit, Failure};

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway down
  ropeway down --config ~/work/ropeway.yaml";

/// Stop the background servers
///
/// Calls in progress are finished, within 10 s. Succeeds if no gateway is running.
#[derive(Debug, clap::Args)]
pub(super) struct Down {
    /// Configuration file, if not the one in use
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Down {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let files = files_in_use(self.config)?;
        let was_running = match files {
            Some(files) if files.folder.is_dir() => {
                files.check_folder()?;
                let _lock = files.lock()?;
                let is_running = gateway_process::running(&files).await.is_ok()
                    || files.read_info().is_some_and(|info| info.is_alive());
                context.status.during("stopping the servers", gateway_process::stop(&files)).await?;
                is_running
            }
            _ => false,
        };
        let text = if was_running { "stopped\n" } else { "not running\n" };
        context.print(&json!({ "stopped": was_running }), || text.to_owned())?;
        Ok(Exit::Done)
    }
}
