//! `ropeway remove`: removes servers from the configuration file.

use std::path::PathBuf;

use anstyle::Style;
use ropeway_config::edit;
use ropeway_config::edit::EditError;
use ropeway_core::suggest;
use serde_json::json;

use crate::config::config_target::{self, ConfigTarget};
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json};
use crate::secrets::literal;
use crate::terminal::text::clean;

const HEADING: Style = Style::new().bold();

/// Remove servers from the configuration file
///
/// Comments and all other entries are preserved.
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// Servers to remove
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// File to change
    #[arg(short, long, value_name = "FILE", conflicts_with = "global", help_heading = "File")]
    config: Option<PathBuf>,
    /// Change the user configuration file
    #[arg(long, help_heading = "File")]
    global: bool,
    /// Show the change without writing it
    #[arg(long, help_heading = "File")]
    dry_run: bool,
}

impl Remove {
    pub(super) fn run(self, context: &CommandContext) -> Result<Exit, Failure> {
        let target = ConfigTarget::find(self.config, self.global)?;
        if target.is_new() {
            return Err(Failure::usage(format!("`{}` does not exist", target.path.display()))
                .hint("try `ropeway config path` to list the searched paths"));
        }
        let mut text = target.text().to_owned();
        let mut names = self.names;
        names.dedup();
        let mut removed = Vec::new();
        for name in &names {
            let less = edit::remove(&text, name).map_err(|error| edit_failure(&target, error))?;
            // The `servers:` key stays, but may change its form.
            let lines =
                config_target::added_lines(&less, &text).into_iter().filter(|line| !line.starts_with("servers:"));
            removed.push(lines.map(literal::redact_line).collect::<Vec<_>>());
            text = less;
        }
        if !self.dry_run {
            target.write(&text)?;
        }
        if context.json {
            print_json(&json!({"file": target.path, "removed": names, "written": !self.dry_run}))?;
            return Ok(Exit::Done);
        }
        let file = target.shown();
        let heading = if self.dry_run { format!("Would remove from {file}:") } else { format!("Removed from {file}:") };
        let lines = removed.concat().into_iter().map(|line| format!("  {}", clean(&line)).trim_end().to_owned() + "\n");
        print(&format!("{HEADING}{heading}{HEADING:#}\n{}", lines.collect::<String>()))?;
        Ok(Exit::Done)
    }
}

fn edit_failure(target: &ConfigTarget, error: EditError) -> Failure {
    let EditError::UnknownServer { alias, .. } = &error else { return target.edit_failure(error) };
    let failure = Failure::usage(format!("{}: unknown server `{alias}`", target.path.display()));
    // The text parsed before.
    let config = target.parse_unread(target.text()).unwrap_or_default();
    let names: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
    match suggest::did_you_mean(alias, names.iter().copied()) {
        Some(question) => failure.hint(question),
        None if names.is_empty() => failure.hint("no servers configured"),
        None => failure.hint(format!("configured servers: {}", names.join(", "))),
    }
}
