//! `ropeway man`: prints the man page, or writes a page for every command.

use std::path::PathBuf;

use clap::CommandFactory as _;

use super::CommandLine;
use crate::failure::{Exit, Failure};
use crate::output::print::print_bytes;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway man | man -l -
  ropeway man ~/.local/share/man/man1";

/// Print the man page, or write the pages of all commands
#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Directory for the pages of all commands, created if it does not exist
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Result<Exit, Failure> {
        let Some(directory) = &self.directory else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(CommandLine::command()).render(&mut page);
            rendered.map_err(|error| Failure::usage("could not render the man page").caused_by(&error))?;
            print_bytes(&page)?;
            return Ok(Exit::Done);
        };
        std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(CommandLine::command(), directory))
            .map_err(|error| {
            let message = format!("could not write man pages to `{}`", directory.display());
            Failure::usage(message).caused_by(&error)
        })?;
        Ok(Exit::Done)
    }
}
