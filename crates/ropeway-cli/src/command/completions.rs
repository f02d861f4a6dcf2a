//! `ropeway completions`: prints a shell completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::CommandLine;
use crate::completion;
use crate::failure::{Exit, Failure};
use crate::output::print::print;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway completions bash > ~/.local/share/bash-completion/completions/ropeway
  ropeway completions zsh > ~/.zfunc/_ropeway
  ropeway completions fish > ~/.config/fish/completions/ropeway.fish";

/// Print a shell completion script
///
/// In bash, zsh and fish the script completes commands, options, servers, tools and tool arguments from the configuration and cached
/// tool definitions, without starting servers. In other shells it completes commands and options.
#[derive(Debug, clap::Args)]
pub(super) struct Completions {
    /// Shell to complete for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Result<Exit, Failure> {
        match completion::script(self.shell) {
            Some(script) => print(script)?,
            None => {
                let mut script = Vec::new();
                clap_complete::generate(self.shell, &mut CommandLine::command(), "ropeway", &mut script);
                print(&String::from_utf8_lossy(&script))?;
            }
        }
        Ok(Exit::Done)
    }
}
