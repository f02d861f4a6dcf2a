//! `ropeway tools`: what a server offers.

use anstyle::Style;
use ropeway::mcp::{Era, ServerInfo};
use ropeway::tool::ToolDefinition;
use serde_json::{Map, Value, json};

use super::{Setting, print, print_json};
use crate::failure::{Exit, Failure};
use crate::server::ServerOptions;
use crate::session::Session;
use crate::signature::{hints, signature};
use crate::text::{clean, clean_line, width, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// List the tools of a server
#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    #[command(flatten)]
    server: ServerOptions,
}

impl Tools {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        Session::with(self.server.config()?, setting.deadline, setting.status, async |session| {
            let tools = session.definitions().await?;
            let server = session.server_info();
            match setting.json {
                true => print_json(&list_json(server.as_deref(), &tools))?,
                false => print(&list(session.alias().as_str(), server.as_deref(), &tools))?,
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// The tools and their server, for scripts.
pub(super) fn list_json(server: Option<&ServerInfo>, tools: &[ToolDefinition]) -> Value {
    let server = server.map(|server| {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), json!(server.name));
        fields.insert("version".to_owned(), json!(server.version));
        fields.insert("era".to_owned(), json!(era(server)));
        fields.insert("protocol_version".to_owned(), json!(server.protocol_version));
        fields.insert("capabilities".to_owned(), json!(server.capabilities));
        fields.extend(server.instructions.as_ref().map(|text| ("instructions".to_owned(), json!(text))));
        fields
    });
    json!({"server": server, "tools": tools})
}

fn era(server: &ServerInfo) -> &'static str {
    match server.era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

/// The tools and their server, for people.
fn list(alias: &str, server: Option<&ServerInfo>, tools: &[ToolDefinition]) -> String {
    let count = match tools.len() {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    let mut text = match server {
        Some(server) => {
            let name = if server.name.is_empty() { alias } else { &server.name };
            let title = clean_line(&format!("{name} {}", server.version));
            let protocol = clean_line(&server.protocol_version);
            format!("{NAME}{title}{NAME:#} {FAINT}· {count} · MCP {protocol}{FAINT:#}\n")
        }
        None => format!("{NAME}{}{NAME:#} {FAINT}· {count}{FAINT:#}\n", clean_line(alias)),
    };
    for tool in tools {
        text.push('\n');
        text.push_str(&entry(tool, width()));
    }
    text
}

/// One tool: its signature, what it is hinted to do, and its description beneath.
pub(super) fn entry(tool: &ToolDefinition, width: usize) -> String {
    let mut text = signature(tool, width);
    text.push('\n');
    if let Some(description) = &tool.description {
        text.push_str(&wrap(&clean(description), width, 4));
    }
    let hints = hints(tool);
    if !hints.is_empty() {
        text.push_str(&format!("    {FAINT}{}{FAINT:#}\n", hints.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_listed_with_its_description_beneath() {
        let mut tool = ToolDefinition::new("say").with_description("Says\u{1b}[2J something, at some length.");
        tool.annotations.0.insert("readOnlyHint".to_owned(), Value::Bool(true));
        let text = anstream::adapter::strip_str(&entry(&tool, 24)).to_string();
        assert_eq!(text, "say()\n    Says something, at\n    some length.\n    read-only\n");
    }

    #[test]
    fn a_list_without_tools_says_so() {
        let text = anstream::adapter::strip_str(&list("x", None, &[])).to_string();
        assert_eq!(text, "x · 0 tools\n");
        assert_eq!(list_json(None, &[]), json!({"server": null, "tools": []}));
    }
}
