//! `ropeway call`: calls a tool.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use ropeway_core::envelope::Envelope;

use super::tools::Tools;
use crate::arguments::argument::RawArguments;
use crate::arguments::call_syntax;
use crate::command::elicitation::CallQuestions;
use crate::connect::command_context::CommandContext;
use crate::connect::likely_servers::{LikelyServers, RememberedTools};
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::Servers;
use crate::connect::session::Session;
use crate::connect::waiting::BRIEFLY;
use crate::failure::{Exit, Failure};
use crate::output::exact_output::{TextMode, exact};
use crate::output::json_output::{SavedParts, document};
use crate::output::print::{json_text, print_bytes, print_paged_unredacted, print_unredacted, say};
use crate::output::render_result::{SaveFolder, nothing_saved, render};
use crate::terminal::pager::Pager;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway call chart --help
  ropeway call calculate expression='2^10 / 3'
  ropeway call calculate --expression '2^10 / 3'
  ropeway call 'calculate(expression: \"2^10 / 3\")'
  ropeway call chart values=3,1,4,1,5 title=Digits --save digits.png
  ropeway call chart '{\"values\": [3, 1, 4]}' --json
  ropeway call chart @arguments.json title=Again
  ropeway call github.create_issue title=Crash body=@report.md
  echo '{\"values\": [3, 1, 4]}' | ropeway call chart -
  ropeway call \"uvx mcp-server-time\" get_current_time timezone=UTC
  ropeway call https://example.com/mcp search query=rust
  ropeway call files.read_text_file path=notes.txt --raw | sha256sum

Values are converted to the type in the tool's schema: number, boolean, list or string. Commas separate the items of a \
list of strings, numbers or booleans. `key=@FILE` is the text of a file, `key=@-` that of standard input, and `key=@@x` \
the text `@x`. `a.b=1` sets field `b` of object `a`, and `list.0=1` the first item of a list. A JSON object sets all \
arguments at once; `key=value` overrides its keys. The options above take precedence over arguments of the same name: \
write `timeout=5` to set an argument `timeout`.

Text in a pipe or file ends with a newline; --raw writes it byte for byte. Several parts start on separate lines. On a \
terminal, escape sequences are removed unless --raw is given. With --json, one JSON document is printed, for \
failures too: `error` has `kind`, `message`, `retryable` and `exit_code`.

When a server asks for input, you are prompted for it. Without a terminal or with --json, such requests are declined.";

/// Call a tool
#[derive(Debug, clap::Args)]
pub(super) struct Call {
    /// Tool name, SERVER.TOOL or 'TOOL(name: value)'. A URL or command before the tool selects the server; --help
    /// after it describes the tool
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Arguments: key=value, key=@FILE, --key value, or key:=JSON to bypass conversion by the schema; or one JSON object:
    /// '{…}', @FILE, or - for standard input
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Arguments as one JSON object
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Save images, audio and other files of the result to this directory; a path with an extension is the file
    #[arg(long, value_name = "PATH")]
    save: Option<PathBuf>,
    /// Print text byte for byte, even on a terminal; the only binary part is written to a pipe or file as is
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl Call {
    /// Describes the tool instead of calling it.
    pub(super) fn describing(self) -> Tools {
        Tools::describing(self.tool, self.server)
    }

    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.servers(&context)?;
        servers.check_owner(&self.tool)?;
        let is_server = servers.names().into_iter().any(|name| name.as_str() == self.tool);
        let typed = RawArguments::read(&self.words, self.args).and_then(RawArguments::with_files);
        let typed = typed.map_err(|failure| match self.words.first() {
            Some(word) if is_server && is_name(word) => failure.hint(format!("did you mean `{}.{word}`?", self.tool)),
            _ => failure,
        })?;
        let (name, typed) = match call_syntax::parse(&self.tool).transpose()? {
            Some(call) => (call.tool.clone(), typed.with_call(call)),
            None => (self.tool, typed),
        };
        let servers = servers.only_owners_of(&name).waiting(BRIEFLY);
        let output = Output { json: context.json, raw: self.raw, save: self.save };
        if let Some(likely) = LikelyServers::new(&servers, &name) {
            let is_found = Cell::new(false);
            let done = call(likely.servers, &context, &name, typed.clone(), &output, &is_found).await;
            match done {
                // Another server may have the tool by now. A call that was sent is not repeated.
                Err(failure) if !is_found.get() && failure.exit() != Exit::Timeout => {
                    if likely.is_known && !failure.is_unknown_tool() {
                        return Err(failure);
                    }
                }
                done => return done,
            }
        }
        call(servers, &context, &name, typed, &output, &Cell::new(false)).await
    }
}

/// Output options.
struct Output {
    json: bool,
    raw: bool,
    save: Option<PathBuf>,
}

/// Starts the servers, calls a tool and prints the result. Sets `is_found` before the call.
async fn call(
    servers: Servers,
    context: &CommandContext,
    name: &str,
    typed: RawArguments,
    output: &Output,
    is_found: &Cell<bool>,
) -> Result<Exit, Failure> {
    let is_single = servers.single().is_some();
    let (mut questions, handlers) = CallQuestions::new(context.json, is_single);
    let offers_sign_in = questions.offer_sign_in();
    let remembered = RememberedTools::new(&servers);
    // A server may ask for a sign-in while it connects, so requests are answered from the start.
    Session::with_early(servers.with_handlers(handlers), context, async |session| {
        let call = async {
            if is_single {
                session.wait_for_servers().await?;
            }
            let tool = session.find_tool(name, &remembered).await?;
            is_found.set(true);
            offers_sign_in.store(true, Ordering::Relaxed);
            let shown_tool = session.names.shown(tool.definition());
            let arguments = typed.for_tool(&shown_tool)?;
            Ok((session.call(&tool, arguments).await?, shown_tool))
        };
        let Some((envelope, shown_tool)) = questions.during(&session.status, call).await? else {
            return Ok(Exit::Interrupted);
        };

        let parts = &envelope.meta.content;
        let folder = output.save.as_deref().map(|path| SaveFolder::for_parts(path, &envelope.tool, parts));
        if output.json {
            print_document(&envelope, folder.as_ref())?;
        } else {
            print_result(&envelope, TextMode::new(output.raw), folder.as_ref(), &context.pager)?;
            if envelope.meta.is_error {
                // The result text may not make clear that the tool failed.
                say(&Failure::new(Exit::ToolError, format!("tool `{}` failed", shown_tool.name)).render());
            }
        }
        Ok(if envelope.meta.is_error { Exit::ToolError } else { Exit::Done })
    })
    .await
}

/// Prints a result: clean text on a terminal, otherwise as it is.
fn print_result(
    envelope: &Envelope,
    mode: TextMode,
    folder: Option<&SaveFolder>,
    pager: &Pager,
) -> Result<(), Failure> {
    let notes = if mode == TextMode::Clean {
        let shown = render(envelope, folder)?;
        print_paged_unredacted(pager, &shown.text)?;
        shown.notes
    } else {
        let output = exact(envelope, mode, folder)?;
        print_bytes(&output.bytes)?;
        output.notes
    };
    let unused = folder.and_then(|_| nothing_saved(&envelope.meta.content));
    notes.iter().chain(&unused).for_each(|note| say(&format!("{note}\n")));
    Ok(())
}

/// Prints a result as one JSON document, even if its files cannot be saved.
fn print_document(envelope: &Envelope, folder: Option<&SaveFolder>) -> Result<(), Failure> {
    let not_json = |error| Failure::usage("the result is not JSON").caused_by(&error);
    let saved = folder.map(|folder| SavedParts::save(&envelope.meta.content, folder)).transpose();
    let (saved, failure) = match saved {
        Ok(saved) => (saved.unwrap_or_default(), None),
        Err(failure) => (SavedParts::default(), Some(failure)),
    };
    let mut document = document(envelope, &saved).map_err(not_json)?;
    if let Some(failure) = &failure {
        document["error"] = failure.record();
    }
    print_unredacted(&json_text(&document)?)?;
    saved.paths().for_each(|path| say(&format!("saved {path}\n")));
    failure.map_or(Ok(()), Err)
}

/// Returns `true` if a word can only be a tool name.
fn is_name(word: &str) -> bool {
    word != "-" && !word.contains(['=', '{', '@', '\0'])
}
