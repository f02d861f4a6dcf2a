//! `ropeway prompts`: lists prompts.

use anstyle::Style;
use ropeway_core::tool::Alias;
use ropeway_mcp::Prompt;
use serde_json::json;

use crate::connect::command_context::CommandContext;
use crate::connect::fan_out::{Replies, fan_out};
use crate::connect::listing_cache::{ListedEntry, ListingCache, ListingKind};
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::connect::waiting::Waiting;
use crate::failure::{Exit, Failure};
use crate::terminal::text::{clean, clean_line, width, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// List prompts
#[derive(Debug, clap::Args)]
pub(super) struct Prompts {
    /// Only list prompts of these servers
    #[arg(value_name = "SERVER")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Prompts {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let servers = self.server.servers(&context)?.lists_servers().eager().only_these(&self.names)?;
        // Servers that are named are needed.
        let waiting = if self.names.is_empty() { Waiting::UnlessFailed } else { Waiting::ForAll };
        let servers = servers.waiting(waiting);
        let cache = ListingCache::new(ListingKind::Prompts, &servers);
        Session::with_list(servers, &context, async |session| {
            let found = fan_out(session, "listing the prompts of", async |server| server.list_prompts().await).await?;
            for (server, prompts) in found.answered() {
                let name = |prompt: &Prompt| ListedEntry::new(&prompt.name, prompt.description.as_deref());
                cache.store(server, prompts.iter().map(name));
            }
            context.print_long(&found.json(|prompts| json!({"prompts": prompts})), || list(&found))?;
            Ok(found.exit())
        })
        .await
    }
}

fn list(found: &Replies<Vec<Prompt>>) -> String {
    let mut text: String = found
        .answered()
        .flat_map(|(server, prompts)| prompts.iter().map(|prompt| entry(server, prompt, width())))
        .collect();
    if text.is_empty() {
        text = found.none_text("prompts");
    }
    text + &found.problems_text()
}

/// Formats a prompt: signature and description.
fn entry(server: &Alias, prompt: &Prompt, width: usize) -> String {
    let (server, name) = (clean_line(server.as_str()), clean_line(&prompt.name));
    let argument = |argument: &ropeway_mcp::PromptArgument| {
        let name = clean_line(&argument.name);
        if argument.required { name } else { format!("{FAINT}{name}?{FAINT:#}") }
    };
    let arguments: Vec<String> = prompt.arguments.iter().map(argument).collect();
    let mut text = format!("{FAINT}{server}.{FAINT:#}{NAME}{name}{NAME:#}({})\n", arguments.join(", "));
    if let Some(description) = &prompt.description {
        text.push_str(&wrap(&clean(description), width, 4));
    }
    text
}
