//! `ropeway man`: writes the man pages.

use std::path::PathBuf;

use clap::CommandFactory as _;

use super::CommandLine;
use crate::failure::{Exit, Failure};

/// Shown at the end of `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway man ~/.local/share/man/man1";

/// Write the man pages to a directory
#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Existing directory for the pages
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(super) fn run(&self) -> Result<Exit, Failure> {
        clap_mangen::generate_to(CommandLine::command(), &self.directory).map_err(|error| {
            Failure::usage(format!("could not write man pages to `{}`: {error}", self.directory.display()))
        })?;
        Ok(Exit::Done)
    }
}
