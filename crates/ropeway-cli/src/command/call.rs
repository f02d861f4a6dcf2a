//! `ropeway call`: one call of one tool.

use std::path::PathBuf;

use super::tools::Tools;
use super::{Setting, json_text, print_answer, say};
use crate::answer::{Folder, save_parts, show};
use crate::argument::Typed;
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;

/// Shown at the end of `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway call chart --help
  ropeway call calculate expression='2^10 / 3'
  ropeway call chart values='[3, 1, 4, 1, 5]' title=Digits --save out
  ropeway call chart '{\"values\": [3, 1, 4]}' --json
  ropeway call chart @arguments.json title=Again
  echo '{\"values\": [3, 1, 4]}' | ropeway call chart -
  ropeway call get_current_time timezone=UTC --stdio \"uvx mcp-server-time\"

A plain value becomes what the tool's schema says: a number, a boolean, a list; else text.
A JSON object holds all arguments at once; `key=value` overrules its keys. --json is about the output.";

/// Call a tool
#[derive(Debug, clap::Args)]
pub(super) struct Call {
    /// The tool, as `ropeway tools` shows it; SERVER.TOOL works too. With --help, it is described in full
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Arguments: key=value, or key:=json for a value that is JSON whatever the schema says; or all of them as one
    /// JSON object: '{…}', @FILE, or - for standard input
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// All arguments as one JSON object, like the same without --args
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Keep images, sounds and other files of the answer in this folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Call {
    /// Describes the tool instead of calling it.
    pub(super) fn describing(self, no_pager: bool) -> Tools {
        Tools::describing(self.tool, self.server, no_pager)
    }

    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers(&setting)?;
        servers.check_owner(&self.tool)?;
        let is_server = servers.names().into_iter().any(|name| name.as_str() == self.tool);
        let typed = Typed::read(&self.words, self.args).map_err(|failure| match self.words.first() {
            Some(word) if is_server && is_name(word) => failure.hint(format!("did you mean `{}.{word}`?", self.tool)),
            _ => failure,
        })?;
        let servers = servers.only_for(&self.tool);
        Session::with(servers, &setting, async |session| {
            session.arrive().await?;
            let tool = session.tool(&self.tool)?;
            let shown_tool = session.names.shown(tool.definition());
            let arguments = typed.for_tool(&shown_tool)?;
            let envelope = session.call(&tool, arguments).await?;

            let folder = self.save.as_deref().map(|path| Folder::new(path, &envelope.tool));
            if setting.json {
                print_answer(&json_text(&envelope)?)?;
                let saved = folder.map(|folder| save_parts(envelope.meta.content.iter(), &folder)).transpose()?;
                saved.into_iter().flatten().for_each(|line| say(&(line + "\n")));
            } else {
                let shown = show(&envelope, folder.as_ref())?;
                print_answer(&shown.text)?;
                shown.notes.iter().for_each(|note| say(&format!("{note}\n")));
                if envelope.meta.is_error {
                    // Its words are the answer; that they are about a failure may not be plain to see.
                    say(&Failure::new(Exit::ToolError, format!("tool `{}` reports a failure", shown_tool.name))
                        .render());
                }
            }
            Ok(if envelope.meta.is_error { Exit::ToolError } else { Exit::Done })
        })
        .await
    }
}

/// Could a word be the name of a tool, and nothing else?
fn is_name(word: &str) -> bool {
    word != "-" && !word.contains(['=', '{', '@'])
}
