//! `ropeway remove`: servers taken out of the configuration file.

use std::path::PathBuf;

use anstyle::Style;
use ropeway::config::edit::{self, EditError};
use serde_json::json;

use crate::arguments::suggest;
use crate::config::config_target::{self, Target};
use crate::connect::command_context::Setting;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json};
use crate::secrets::literal;
use crate::terminal::text::clean;

const HEADING: Style = Style::new().bold();

/// Remove servers from the configuration file
///
/// Everything else in the file stays as it is.
#[derive(Debug, clap::Args)]
pub(super) struct Remove {
    /// The servers
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Change this file
    #[arg(long, value_name = "FILE", conflicts_with = "global", help_heading = "File")]
    config: Option<PathBuf>,
    /// Change the user's own file
    #[arg(long, help_heading = "File")]
    global: bool,
    /// Only show what would be removed
    #[arg(long, help_heading = "File")]
    dry_run: bool,
}

impl Remove {
    pub(super) fn run(self, setting: &Setting) -> Result<Exit, Failure> {
        let target = Target::find(self.config, self.global)?;
        if target.is_new() {
            return Err(Failure::usage(format!("there is no file `{}`", target.path.display()))
                .hint("`ropeway config path` shows where it is looked for"));
        }
        let mut text = target.text().to_owned();
        let mut names = self.names;
        names.dedup();
        let mut removed = Vec::new();
        for name in &names {
            let less = edit::remove(&text, name).map_err(|error| refused(&target, error))?;
            // Without its last server a list looks different, and is still there.
            let lines =
                config_target::difference(&less, &text).into_iter().filter(|line| !line.starts_with("servers:"));
            removed.push(lines.map(literal::without).collect::<Vec<_>>());
            text = less;
        }
        if !self.dry_run {
            target.write(&text)?;
        }
        if setting.json {
            print_json(&json!({"file": target.path, "removed": names, "written": !self.dry_run}))?;
            return Ok(Exit::Done);
        }
        let file = target.path.display();
        let heading = if self.dry_run { format!("{file} would lose:") } else { format!("Removed from {file}:") };
        let lines = removed.concat().into_iter().map(|line| format!("  {}", clean(&line)).trim_end().to_owned() + "\n");
        print(&format!("{HEADING}{heading}{HEADING:#}\n{}", lines.collect::<String>()))?;
        Ok(Exit::Done)
    }
}

fn refused(target: &Target, error: EditError) -> Failure {
    let EditError::Unknown { alias, .. } = &error else { return target.refused(error) };
    let failure = Failure::usage(format!("{}: there is no server `{alias}`", target.path.display()));
    // It was read a moment ago.
    let config = target.meaning_unread(target.text()).unwrap_or_default();
    let names: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
    match suggest::question(alias, names.iter().copied()) {
        Some(question) => failure.hint(question),
        None if names.is_empty() => failure.hint("it has no servers"),
        None => failure.hint(format!("there are: {}", names.join(", "))),
    }
}
