//! `ropeway doctor`: why a server does not work, and what helps.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Setting, print, print_json};
use crate::doctor::{Surroundings, examine};
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::text::terminal_width;

/// How long a server may take to be ready, unless there is a timeout; a package runner may have to download first.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is left of the command's time for the report.
const MARGIN: Duration = Duration::from_millis(200);

/// Find out why a server does not work, and what helps
#[derive(Debug, clap::Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    server: ServerOptions,
}

impl Doctor {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let config = self.server.config()?;
        let limit = setting.deadline.as_ref().map_or(PATIENCE, |deadline| {
            deadline.at().saturating_duration_since(Instant::now()).saturating_sub(MARGIN)
        });
        let label = format!("examining {}", config.alias);
        let report = setting.status.during(&label, examine(&config, &Surroundings::of_process(), limit)).await;
        match setting.json {
            true => print_json(&json!({"servers": [report.json()]}))?,
            false => print(&report.render(terminal_width(&std::io::stdout())))?,
        }
        Ok(report.exit())
    }
}
