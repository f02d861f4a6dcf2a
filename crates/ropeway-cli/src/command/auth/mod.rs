//! `ropeway auth`: lists stored sign-ins, and moves them between machines.

mod status;
mod transfer;

use clap::Subcommand;
use ropeway_mcp::oauth::TokenStore;

use crate::connect::command_context::CommandContext;
use crate::failure::{Exit, Failure};
use crate::sign_in::failure::store_failure;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway auth status
  ropeway auth export tokens.txt
  ropeway auth import tokens.txt

`ropeway login SERVER` signs in, `ropeway logout SERVER` signs out.";

const STATUS_EXAMPLES: &str = "\
Examples:
  ropeway auth status
  ropeway auth status --json";

const EXPORT_EXAMPLES: &str = "\
Examples:
  ropeway auth export tokens.txt
  ropeway auth export - --passphrase-file passphrase.txt | ssh host 'cat > tokens.txt'

The passphrase has at least 8 characters. It is read from the first line of --passphrase-file, from the variable \
ROPEWAY_PASSPHRASE, or from the terminal.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  ropeway auth import tokens.txt
  ropeway auth import - --passphrase-file passphrase.txt

A sign-in on this machine that is newer than the one in the file is kept.";

/// List, export and import sign-ins
#[derive(Debug, clap::Args)]
pub(super) struct Auth {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// List sign-ins: server, issuer, account, scopes, expiry and storage
    #[command(after_long_help = STATUS_EXAMPLES)]
    Status(status::Status),
    /// Write all sign-ins to a file, encrypted with a passphrase
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(transfer::Transfer),
    /// Import the sign-ins of an exported file
    #[command(after_long_help = IMPORT_EXAMPLES)]
    Import(transfer::Transfer),
}

impl Auth {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let store = TokenStore::default_location().map_err(|error| store_failure(&error))?;
        match self.command {
            AuthCommand::Status(command) => command.run(&store, &context).await,
            AuthCommand::Export(command) => command.export(&store, &context).await,
            AuthCommand::Import(command) => command.import(&store, &context).await,
        }
    }
}
