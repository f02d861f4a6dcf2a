//! `ropeway tools`: what the servers offer.

use anstyle::Style;
use ropeway::bridge::Listing;
use ropeway::mcp::{Era, ServerInfo};
use ropeway::registry::Verdict;
use ropeway::tool::{Alias, ToolDefinition};
use serde_json::{Map, Value, json};

use super::{Setting, print, print_json};
use crate::failure::{Exit, Failure};
use crate::mark::Mark;
use crate::server::ServerOptions;
use crate::session::{Session, server_of, short_name};
use crate::signature::{hints, signature_as};
use crate::text::{clean, clean_line, first_sentence, width, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// How many tools a search shows.
const MOST_FOUND: usize = 10;

/// List the tools of the servers
#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    /// Only the tools of this server, with all that is said about them
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    /// Only tools that these words describe, the best first
    #[arg(long, value_name = "WORDS")]
    find: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Tools {
    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        let servers = self.server.servers()?.maybe_only(self.name.as_deref())?;
        let single = servers.single().is_some();
        Session::with(servers, setting.deadline, setting.status, async |session| {
            let listing = session.listing();
            let info = |alias: &Alias| session.server_info(alias);
            let text = match (&self.find, setting.json) {
                (Some(words), true) => return found_json(&listing, words),
                (Some(words), false) => found(&listing, words),
                (None, true) => {
                    print_json(&list_json(&listing, info))?;
                    return Ok(exit(&listing));
                }
                (None, false) => list(&listing, single, info),
            };
            print(&text)?;
            Ok(exit(&listing))
        })
        .await
    }
}

/// Done, unless there is nothing to list and somebody is to blame.
fn exit(listing: &Listing) -> Exit {
    use ropeway::registry::Outcome;
    let any = |is: fn(&Outcome) -> bool| listing.verdicts.iter().any(|verdict| is(&verdict.outcome));
    if any(|outcome| matches!(outcome, Outcome::Connecting)) {
        return Exit::Timeout;
    }
    if any(|outcome| matches!(outcome, Outcome::Ready { .. } | Outcome::Cached { .. } | Outcome::FilteredToZero { .. }))
    {
        return Exit::Done;
    }
    match () {
        () if any(|outcome| matches!(outcome, Outcome::Down { .. })) => Exit::Unreachable,
        () if any(|outcome| matches!(outcome, Outcome::NeedsAuth)) => Exit::NeedsAuth,
        () => Exit::Done,
    }
}

/// The tools by server, for scripts.
pub(super) fn list_json(listing: &Listing, info: impl Fn(&Alias) -> Option<std::sync::Arc<ServerInfo>>) -> Value {
    let server = |verdict: &Verdict| {
        let tools: Vec<&ToolDefinition> =
            listing.registry.of_server(&verdict.server).map(|tool| tool.definition()).collect();
        let mut fields = Map::new();
        fields.insert("server".to_owned(), json!(verdict.server));
        fields.insert("verdict".to_owned(), json!(verdict.outcome));
        if let Some(info) = info(&verdict.server) {
            fields.insert("name".to_owned(), json!(info.name));
            fields.insert("version".to_owned(), json!(info.version));
            fields.insert("era".to_owned(), json!(era(&info)));
            fields.insert("protocol_version".to_owned(), json!(info.protocol_version));
            fields.insert("capabilities".to_owned(), json!(info.capabilities));
            fields.extend(info.instructions.as_ref().map(|text| ("instructions".to_owned(), json!(text))));
        }
        fields.insert("tools".to_owned(), json!(tools));
        Value::Object(fields)
    };
    json!({"servers": listing.verdicts.iter().map(server).collect::<Vec<_>>()})
}

fn era(server: &ServerInfo) -> &'static str {
    match server.era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

fn count(tools: usize) -> String {
    match tools {
        1 => "1 tool".to_owned(),
        tools => format!("{tools} tools"),
    }
}

/// The tools by server, for people.
fn list(listing: &Listing, single: bool, info: impl Fn(&Alias) -> Option<std::sync::Arc<ServerInfo>>) -> String {
    let mut text = String::new();
    for verdict in &listing.verdicts {
        if !text.is_empty() {
            text.push('\n');
        }
        let info = info(&verdict.server);
        text.push_str(&match single {
            true => title(&verdict.server, info.as_deref(), verdict.outcome.tools()),
            false => heading(verdict, info.as_deref()),
        });
        for tool in listing.registry.of_server(&verdict.server) {
            let tool = tool.definition();
            match single {
                true => text.push_str(&format!("\n{}", entry(tool, width()))),
                false => text.push_str(&brief(tool, width())),
            }
        }
    }
    if listing.verdicts.is_empty() {
        text.push_str("No server is configured.\n");
    }
    text
}

/// A server that is alone, by the name that it gives itself.
fn title(alias: &Alias, info: Option<&ServerInfo>, tools: usize) -> String {
    let count = count(tools);
    match info {
        Some(info) => {
            let name = if info.name.is_empty() { alias.as_str() } else { &info.name };
            let title = clean_line(&format!("{name} {}", info.version));
            let protocol = clean_line(&info.protocol_version);
            format!("{NAME}{title}{NAME:#} {FAINT}· {count} · MCP {protocol}{FAINT:#}\n")
        }
        None => format!("{NAME}{}{NAME:#} {FAINT}· {count}{FAINT:#}\n", clean_line(alias.as_str())),
    }
}

/// A server among others, by our name for it.
fn heading(verdict: &Verdict, info: Option<&ServerInfo>) -> String {
    let mark = Mark::of(&verdict.outcome);
    let (style, sign) = (mark.style(), mark.sign());
    let alias = clean_line(verdict.server.as_str());
    let about = info.map(|info| clean_line(&format!("{} {}", info.name, info.version)).trim().to_owned());
    let about = about.filter(|about| !about.is_empty()).map(|about| format!(" · {about}")).unwrap_or_default();
    let words = clean_line(&Mark::words(&verdict.outcome));
    format!("{style}{sign}{style:#} {NAME}{alias}{NAME:#} {FAINT}· {words}{about}{FAINT:#}\n")
}

/// One tool among many: its signature behind its server, and the first sentence about it.
fn brief(tool: &ToolDefinition, width: usize) -> String {
    let name = match server_of(tool) {
        Some(server) => format!("{server}.{}", short_name(tool)),
        None => tool.name.clone(),
    };
    let signature = signature_as(&name, tool, width.saturating_sub(2));
    let mut text: String = signature.lines().map(|line| format!("  {line}\n")).collect();
    if let Some(description) = &tool.description {
        text.push_str(&wrap(&first_sentence(&clean(description)), width, 6));
    }
    text
}

/// One tool: its signature, what it is hinted to do, and its description beneath.
pub(super) fn entry(tool: &ToolDefinition, width: usize) -> String {
    let mut text = signature_as(short_name(tool), tool, width);
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

/// The tools that some words describe, for people.
fn found(listing: &Listing, words: &str) -> String {
    let hits = listing.registry.search(words, MOST_FOUND);
    if hits.is_empty() {
        return format!("None of {} is about `{}`.\n", count(listing.registry.len()), clean_line(words));
    }
    hits.iter().map(|hit| brief(hit.tool.definition(), width())).collect()
}

fn found_json(listing: &Listing, words: &str) -> Result<Exit, Failure> {
    let hits = listing.registry.search(words, MOST_FOUND);
    let hit = |hit: &ropeway::registry::Hit<'_>| json!({"score": hit.score, "tool": hit.tool.definition()});
    print_json(&json!({"found": hits.iter().map(hit).collect::<Vec<_>>()}))?;
    Ok(exit(listing))
}

#[cfg(test)]
mod tests {
    use ropeway::registry::Outcome;

    use super::*;

    #[test]
    fn a_tool_is_listed_with_its_description_beneath() {
        let mut tool = ToolDefinition::new("say").with_description("Says\u{1b}[2J something, at some length.");
        tool.annotations.0.insert("readOnlyHint".to_owned(), Value::Bool(true));
        let text = anstream::adapter::strip_str(&entry(&tool, 24)).to_string();
        assert_eq!(text, "say()\n    Says something, at\n    some length.\n    read-only\n");
    }

    #[test]
    fn a_server_that_is_not_there_says_why_in_its_heading() {
        let heading = |outcome| {
            let text = heading(&Verdict::new("web", outcome), None);
            anstream::adapter::strip_str(&text).to_string()
        };
        assert_eq!(heading(Outcome::Ready { tools: 1 }), "● web · 1 tool\n");
        assert_eq!(heading(Outcome::FilteredToZero { of: 4 }), "◐ web · none of its 4 tools is wanted\n");
        assert_eq!(heading(Outcome::Down { cause: "no\n\u{1b}[1mway".into() }), "✗ web · down: no way\n");
        assert_eq!(
            heading(Outcome::Skipped { secrets: vec!["A".into(), "B".into()] }),
            "○ web · skipped: `A`, `B` not set\n"
        );
    }
}
