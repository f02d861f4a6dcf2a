//! `ropeway config`: checks and locates the configuration file.

mod check;
mod path;
mod report;
mod unmatched;

use clap::Subcommand;

use super::examples;
use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::output::print::print_json;

/// Check and locate the configuration file
#[derive(Debug, clap::Args)]
pub(super) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_long_help = examples::CONFIG_CHECK)]
    Check(check::Check),
    #[command(after_long_help = examples::CONFIG_PATH)]
    Path(path::Path),
    /// Print the JSON Schema of the configuration file, for editors
    #[command(after_long_help = examples::CONFIG_SCHEMA)]
    Schema,
}

impl Config {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        match self.command {
            Command::Check(command) => command.run(context).await,
            Command::Path(command) => command.run(&context),
            Command::Schema => {
                print_json(&ropeway_config::json_schema())?;
                Ok(Exit::Done)
            }
        }
    }
}

pub(super) use self::report::problems_text;
