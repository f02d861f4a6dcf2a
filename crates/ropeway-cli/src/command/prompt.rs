//! `ropeway prompt`: gets a prompt.

use anstyle::{AnsiColor, Style};
use ropeway_core::content::ContentPart;
use ropeway_mcp::PromptMessage;
use serde_json::Value;

use crate::arguments::argument::RawArguments;
use crate::catalog::get_prompt;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::connect::waiting::Waiting;
use crate::failure::{Exit, Failure};
use crate::output::exact_output::{ExactOutput, TextMode, exact_parts};
use crate::output::print::{json_text, print_bytes, print_paged_unredacted, print_unredacted};
use crate::output::render_result::render_parts;

const ROLE: Style = AnsiColor::Cyan.on_default().bold();

/// Get a prompt
#[derive(Debug, clap::Args)]
pub(super) struct GetPrompt {
    /// Prompt name, or SERVER.PROMPT
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// Arguments: key=value, key=@FILE, or one JSON object: '{…}', @FILE, or - for standard input
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Print only the message text, byte for byte
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl GetPrompt {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.servers(&context)?.eager();
        servers.check_owner(&self.prompt)?;
        let servers = servers.only_owners_of(&self.prompt).waiting(Waiting::UnlessFailed);
        let typed = RawArguments::read(&self.words, None)?.with_files()?;
        Session::with(servers, &context, async |session| {
            let result = get_prompt(session, &self.prompt, typed).await?;
            let mode = TextMode::new(self.raw);
            if context.json {
                print_unredacted(&json_text(&result)?)?;
            } else if mode == TextMode::Clean {
                let messages = result.messages.iter().map(message).collect::<Result<Vec<_>, Failure>>()?;
                print_paged_unredacted(&context.pager, &messages.join("\n"))?;
            } else {
                print_bytes(&exact_messages(&result.messages, self.raw, mode)?)?;
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// Writes messages as they are, under their roles unless `raw` is set.
fn exact_messages(messages: &[PromptMessage], raw: bool, mode: TextMode) -> Result<Vec<u8>, Failure> {
    if raw {
        let parts: Vec<ContentPart> = messages.iter().map(|message| message.content.clone()).collect();
        return exact_parts(&parts, mode, None).map(|output| output.bytes);
    }
    let mut all = ExactOutput::default();
    for (at, message) in messages.iter().enumerate() {
        let blank = if at == 0 { "" } else { "\n" };
        all.bytes.extend(format!("{blank}{}:\n", role(message)).into_bytes());
        all.bytes.extend(exact_parts(std::slice::from_ref(&message.content), mode, None)?.bytes);
        all.end_line();
    }
    Ok(all.bytes)
}

fn role(message: &PromptMessage) -> String {
    let role = serde_json::to_value(&message.role).ok();
    crate::terminal::text::clean_line(role.as_ref().and_then(Value::as_str).unwrap_or("?"))
}

fn message(message: &PromptMessage) -> Result<String, Failure> {
    let role = role(message);
    let content: [&ContentPart; 1] = [&message.content];
    let shown = render_parts(&mut content.into_iter(), None)?;
    Ok(format!("{ROLE}{role}:{ROLE:#}\n{}", shown.text))
}
