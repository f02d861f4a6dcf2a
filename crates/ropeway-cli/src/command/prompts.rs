//! `ropeway prompts`: what the servers have to say to a model.

use anstyle::Style;
use ropeway::mcp::Prompt;
use ropeway::tool::Alias;
use serde_json::json;

use crate::connect::command_context::Setting;
use crate::connect::fan_out::{Each, each};
use crate::connect::server_options::ServerOptions;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json};
use crate::terminal::text::{clean, clean_line, width, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// List the prompts of the servers
#[derive(Debug, clap::Args)]
pub(super) struct Prompts {
    /// Only the prompts of this server
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Prompts {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers(&setting)?.lists_servers().awake().maybe_only(self.name.as_deref())?;
        Session::with_list(servers, &setting, async |session| {
            let found = each(session, "listing the prompts of", async |server| server.list_prompts().await).await?;
            match setting.json {
                true => print_json(&found.json(|prompts| json!({"prompts": prompts})))?,
                false => print(&list(&found))?,
            }
            Ok(found.exit())
        })
        .await
    }
}

fn list(found: &Each<Vec<Prompt>>) -> String {
    let mut text: String = found
        .there()
        .flat_map(|(server, prompts)| prompts.iter().map(|prompt| entry(server, prompt, width())))
        .collect();
    if text.is_empty() {
        text = found.nothing("prompts");
    }
    text + &found.absent()
}

/// One prompt as code behind its server's name, and what it is for.
fn entry(server: &Alias, prompt: &Prompt, width: usize) -> String {
    let (server, name) = (clean_line(server.as_str()), clean_line(&prompt.name));
    let argument = |argument: &ropeway::mcp::PromptArgument| {
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
