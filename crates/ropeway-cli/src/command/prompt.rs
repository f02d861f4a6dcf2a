//! `ropeway prompt`: one prompt with its gaps filled.

use anstyle::{AnsiColor, Style};
use ropeway::content::ContentPart;
use ropeway::mcp::{Mcp, Prompt, PromptMessage, PromptResult};
use ropeway::tool::{Alias, CallContext, ToolDefinition};
use serde_json::{Map, Value, json};

use super::{Setting, json_text, print_answer, print_bytes};
use crate::answer::show_parts;
use crate::argument::Typed;
use crate::each::each;
use crate::exact_output::{ExactOutput, TextMode, exact_parts};
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;
use crate::suggest;

const ROLE: Style = AnsiColor::Cyan.on_default().bold();

/// Get a prompt
#[derive(Debug, clap::Args)]
pub(super) struct GetPrompt {
    /// The prompt, as `ropeway prompts` shows it
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// Arguments: key=value, a JSON object '{…}', @FILE with one, or - for one on standard input
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Print only the text of the messages, byte for byte
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl GetPrompt {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers(&setting)?.awake();
        servers.check_owner(&self.prompt)?;
        let servers = servers.only_for(&self.prompt);
        let typed = Typed::read(&self.words, None)?;
        Session::with(servers, &setting, async |session| {
            let result = get(session, &self.prompt, typed).await?;
            let mode = TextMode::new(self.raw);
            if setting.json {
                print_answer(&json_text(&result)?)?;
            } else if mode == TextMode::Clean {
                print_answer(&result.messages.iter().map(message).collect::<Result<Vec<_>, Failure>>()?.join("\n"))?;
            } else {
                print_bytes(&exact_messages(&result.messages, self.raw, mode)?)?;
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// A prompt by its name, with arguments as they are typed.
pub(crate) async fn fill(session: &Session, name: &str, words: &[String]) -> Result<PromptResult, Failure> {
    get(session, name, Typed::read(words, None)?).await
}

async fn get(session: &Session, name: &str, typed: Typed) -> Result<PromptResult, Failure> {
    let (alias, server, prompt) = choose(session, name).await?;
    let arguments = typed.for_tool(&as_tool(&prompt))?;
    for name in arguments.keys() {
        known(&prompt, name)?;
    }
    if let Some(missing) =
        prompt.arguments.iter().find(|argument| argument.required && !arguments.contains_key(&argument.name))
    {
        let name = &missing.name;
        return Err(Failure::usage(format!("prompt `{}` needs `{name}`", prompt.name)).hint(format!("give {name}=…")));
    }
    let cx = CallContext::default();
    Ok(session.step("waiting for", &alias, server.get_prompt(&prompt.name, arguments, &cx)).await??)
}

/// Writes messages byte for byte: under their roles, or without them as `--raw` asks for.
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
    crate::text::clean_line(role.as_ref().and_then(Value::as_str).unwrap_or("?"))
}

fn message(message: &PromptMessage) -> Result<String, Failure> {
    let role = role(message);
    let content: [&ContentPart; 1] = [&message.content];
    let shown = show_parts(&mut content.into_iter(), None)?;
    Ok(format!("{ROLE}{role}:{ROLE:#}\n{}", shown.text))
}

/// A failure when the prompt has no such argument.
fn known(prompt: &Prompt, name: &str) -> Result<(), Failure> {
    let names = || prompt.arguments.iter().map(|argument| argument.name.as_str());
    if names().any(|known| known == name) {
        return Ok(());
    }
    let failure = Failure::usage(format!("prompt `{}` has no argument `{name}`", prompt.name));
    Err(match suggest::question(name, names()) {
        Some(question) => failure.hint(question),
        None if prompt.arguments.is_empty() => failure.hint("it takes none"),
        None => failure.hint(format!("it has: {}", names().collect::<Vec<_>>().join(", "))),
    })
}

/// A prompt as a tool, whose arguments are all text.
fn as_tool(prompt: &Prompt) -> ToolDefinition {
    let properties: Map<String, Value> =
        prompt.arguments.iter().map(|argument| (argument.name.clone(), json!({"type": "string"}))).collect();
    ToolDefinition::new(prompt.name.clone()).with_input_schema(json!({"type": "object", "properties": properties}))
}

async fn choose(session: &Session, name: &str) -> Result<(Alias, Mcp, Prompt), Failure> {
    let listed = each(session, "listing the prompts of", async |server| server.list_prompts().await).await?;
    let all: Vec<(&Alias, &Prompt)> =
        listed.there().flat_map(|(alias, prompts)| prompts.iter().map(move |prompt| (alias, prompt))).collect();
    let is_meant = |(alias, prompt): &&(&Alias, &Prompt)| {
        prompt.name == name
            || name.strip_prefix(alias.as_str()).and_then(|rest| rest.strip_prefix('.')) == Some(&prompt.name)
    };
    let meant: Vec<_> = all.iter().filter(is_meant).collect();
    match meant[..] {
        [(alias, prompt)] => {
            let server = session.server(alias).ok_or_else(|| Failure::usage(format!("server `{alias}` is gone")))?;
            Ok(((*alias).clone(), server, (*prompt).clone()))
        }
        [] => {
            let failure = Failure::usage(format!("there is no prompt `{name}`"));
            let names: Vec<String> = all.iter().map(|(alias, prompt)| format!("{alias}.{}", prompt.name)).collect();
            let failure = match suggest::question(name, names.iter().map(String::as_str)) {
                Some(question) => failure.hint(question),
                None if listed.there().next().is_none() => failure,
                None if names.is_empty() => failure.hint("no server has prompts"),
                None => failure.hint(format!("there are: {}", names.join(", "))),
            };
            Err(session.help.blame(failure, &session.bridge.statuses()))
        }
        _ => {
            let names: Vec<String> = meant.iter().map(|(alias, _)| format!("`{alias}.{name}`")).collect();
            Err(Failure::usage(format!("several servers have a prompt `{name}`"))
                .hint(format!("say which one: {}", names.join(", "))))
        }
    }
}
