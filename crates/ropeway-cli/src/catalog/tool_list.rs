//! Tool lists: by server or by search, for people and as JSON.

use anstyle::Style;
use ropeway_bridge::ToolListing;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{Alias, ToolDefinition};
use ropeway_mcp::ServerInfo;
use serde_json::{Map, Value, json};

use crate::arguments::names::server_of;
use crate::connect::advice::{is_unavailable, status_line, tool_count as count};
use crate::connect::servers::ServerSource;
use crate::connect::session::Session;
use crate::describe::signature::{arguments, brief, hints, signature_as};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::style::faint;
use crate::terminal::text::{clean, clean_line, cut, first_sentence, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// Maximum search results.
const MOST_FOUND: usize = 10;

/// Minimum score relative to the best result. Below it are tools that share only a common word with the query.
const RELEVANT: f64 = 0.35;

/// Maximum description width in a list, in columns.
const LONGEST_SENTENCE: usize = 200;

/// Lists the tools by server, or those that match a query.
pub(crate) fn text(session: &Session, source: &ServerSource, words: &str, width: usize) -> String {
    let listing = session.listing();
    match words {
        "" => list(session, &listing, source, false, width),
        words => found(session, &listing, words, width),
    }
}

/// Returns the tools by server as JSON.
pub(crate) fn list_json(session: &Session, listing: &ToolListing) -> Value {
    let server = |status: &ServerStatus| {
        let tools: Vec<&ToolDefinition> =
            listing.registry.of_server(&status.server).map(|tool| tool.definition()).collect();
        let mut fields = Map::new();
        fields.insert("server".to_owned(), json!(status.server));
        fields.insert("status".to_owned(), json!(status.state));
        // The earlier name for `status`.
        fields.insert("verdict".to_owned(), json!(status.state));
        if let Some(note) = &status.note {
            fields.insert("note".to_owned(), json!(note));
        }
        if let Some(info) = session.server_info(&status.server) {
            fields.insert("name".to_owned(), json!(info.name));
            fields.insert("version".to_owned(), json!(info.version));
            fields.insert("era".to_owned(), json!(info.server_era.as_str()));
            fields.insert("protocol_version".to_owned(), json!(info.protocol_version));
            fields.insert("capabilities".to_owned(), json!(info.capabilities));
            fields.extend(info.instructions.as_ref().map(|text| ("instructions".to_owned(), json!(text))));
        }
        if let Some(hidden) = hidden(listing, status) {
            fields.insert("hidden".to_owned(), json!(hidden));
        }
        fields.insert("tools".to_owned(), json!(tools));
        Value::Object(fields)
    };
    json!({"servers": listing.statuses.iter().map(server).collect::<Vec<_>>()})
}

/// Lists the tools by server. A single server is shown with full descriptions.
pub(crate) fn list(
    session: &Session,
    listing: &ToolListing,
    source: &ServerSource,
    whole: bool,
    width: usize,
) -> String {
    match &listing.statuses[..] {
        [] => session.advice.no_servers(),
        [status] => one_server(session, listing, status, source, whole, width),
        statuses => {
            let server = |status: &ServerStatus| group(session, listing, status, width);
            statuses.iter().map(server).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Lists a single server's tools.
pub(crate) fn one_server(
    session: &Session,
    listing: &ToolListing,
    status: &ServerStatus,
    source: &ServerSource,
    whole: bool,
    width: usize,
) -> String {
    let mut text = title(session, status, source);
    let info = session.server_info(&status.server);
    let instructions = info.as_deref().and_then(|info| info.instructions.as_deref());
    if let Some(instructions) = instructions.filter(|_| whole) {
        text.push_str(&wrap(&clean(instructions), width, 2));
    }
    for tool in listing.registry.of_server(&status.server).map(|tool| tool.definition()) {
        text.push_str(&format!("\n{}", entry(session.names.short(tool), tool, width)));
        if whole {
            text.push_str(&arguments(tool, width, 4));
        }
    }
    if let Some(advice) = session.advice.for_status(status) {
        text.push_str(&wrap(&advice, width, 4));
    }
    text + &note(status, width)
}

/// Lists one server's tools, among several servers.
pub(crate) fn group(session: &Session, listing: &ToolListing, status: &ServerStatus, width: usize) -> String {
    let there = matches!(status.state, ServerState::Ready { .. } | ServerState::Cached { .. });
    if !there {
        return session.advice.problem_text(status, width);
    }
    let info = session.server_info(&status.server);
    let about = info.as_deref().map(about).unwrap_or_default();
    let tools = listing.registry.of_server(&status.server).map(|tool| among_many(session, tool.definition(), width));
    let mut text = session.advice.heading(status, &about) + &tools.collect::<String>();
    if let Some(hidden) = hidden(listing, status) {
        text.push_str(&faint(&wrap(&why_hidden(session, hidden, listing, &status.server), width, 4)));
    }
    text + &note(status, width)
}

/// Lists the cached tools for a server that is still connecting, or is not started because it failed the last time.
pub(crate) fn remembered_group(
    session: &Session,
    status: &ServerStatus,
    tools: &[ToolDefinition],
    width: usize,
) -> String {
    let state = match &status.state {
        ServerState::Down { cause } => format!("down: {cause}"),
        _ => "still connecting".to_owned(),
    };
    let words = format!("{state}; {} (cached)", count(tools.len()));
    let tools = tools.iter().map(|tool| among_many(session, tool, width));
    status_line(StatusIcon::Half, &status.server, &words, "") + &tools.collect::<String>()
}

/// Returns the note about an incomplete list, if any.
fn note(status: &ServerStatus, width: usize) -> String {
    status.note.as_deref().map(|note| faint(&wrap(&clean_line(note), width, 4))).unwrap_or_default()
}

/// Returns how many tools name collisions hide.
fn hidden(listing: &ToolListing, status: &ServerStatus) -> Option<usize> {
    let listed = listing.registry.of_server(&status.server).count();
    status.state.tools().checked_sub(listed).filter(|hidden| *hidden > 0)
}

fn why_hidden(session: &Session, hidden: usize, listing: &ToolListing, server: &Alias) -> String {
    let has_tools = |other: &&Alias| *other != server && listing.registry.of_server(other).next().is_some();
    let others: Vec<&Alias> = listing.statuses.iter().map(|status| &status.server).filter(has_tools).collect();
    let (tools, names) = if hidden == 1 { ("tool", "the same tool name") } else { ("tools", "the same tool names") };
    let who = match others[..] {
        [other] => format!("`{}` has", clean_line(other.as_str())),
        _ => "other servers have".to_owned(),
    };
    format!("{hidden} {tools} hidden: {who} {names}; see {}", session.advice.collision_command())
}

/// Formats the name and version that a server reports.
fn about(info: &ServerInfo) -> String {
    clean_line(&format!("{} {}", info.name, info.version))
}

/// Formats a single server's heading: its configured name, or the name that it reports.
fn title(session: &Session, status: &ServerStatus, source: &ServerSource) -> String {
    let info = session.server_info(&status.server);
    let protocol = info.as_deref().map(|info| format!("MCP {}", clean_line(&info.protocol_version)));
    match (info, source) {
        (Some(info), ServerSource::File(_) | ServerSource::Clients) => {
            let more = [about(&info), protocol.unwrap_or_default()];
            let more: Vec<String> = more.into_iter().filter(|part| !part.is_empty()).collect();
            session.advice.heading(status, &more.join(" · "))
        }
        (None, _) => session.advice.heading(status, ""),
        (Some(info), _) => {
            let name = if info.name.is_empty() { status.server.as_str() } else { &info.name };
            let title = clean_line(&format!("{name} {}", info.version));
            let (count, protocol) = (count(status.state.tools()), protocol.unwrap_or_default());
            format!("{NAME}{title}{NAME:#} {FAINT}· {count} · {protocol}{FAINT:#}\n")
        }
    }
}

/// Formats a tool in a list: signature and the description's first sentence.
fn among_many(session: &Session, tool: &ToolDefinition, width: usize) -> String {
    let server = server_of(tool).map_or("", Alias::as_str);
    let mut text = format!("  {}\n", brief(server, session.names.short(tool), tool, width.saturating_sub(2)));
    if let Some(description) = &tool.description {
        text.push_str(&wrap(&cut(&first_sentence(description), LONGEST_SENTENCE), width, 6));
    }
    text
}

/// Formats a single server's tool: signature, description and hints.
fn entry(name: &str, tool: &ToolDefinition, width: usize) -> String {
    let mut text = signature_as(name, tool, width);
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

/// Returns the tools that match a query, best first, with their scores.
pub(crate) fn search<'a>(listing: &'a ToolListing, words: &str) -> Vec<(&'a CheckedTool, f64)> {
    let mut hits = listing.registry.search(words, MOST_FOUND);
    let best = hits.first().map_or(0.0, |(_, score)| *score);
    hits.retain(|(_, score)| *score >= best * RELEVANT);
    hits
}

/// Lists the tools that match a query.
pub(crate) fn found(session: &Session, listing: &ToolListing, words: &str, width: usize) -> String {
    let hits = search(listing, words);
    let mut text: String = hits.iter().map(|(tool, _)| among_many(session, tool.definition(), width)).collect();
    if hits.is_empty() {
        text = format!("No matches for `{}` in {}.\n", clean_line(words), count(listing.registry.len()));
    }
    // Unavailable servers were not searched.
    let mut absent = listing.statuses.iter().filter(|status| is_unavailable(&status.state)).peekable();
    if absent.peek().is_some() {
        text.push_str(&format!(
            "\n{}",
            faint(&wrap(&format!("Not searched: {}", session.advice.unavailable_names(absent)), width, 0))
        ));
    }
    text
}

pub(crate) fn found_json(listing: &ToolListing, words: &str) -> Value {
    let hits = search(listing, words);
    let hits: Vec<Value> =
        hits.iter().map(|(tool, score)| json!({"score": score, "tool": tool.definition()})).collect();
    // `found` was the earlier name for `matches`.
    json!({"matches": hits, "found": hits, "servers": listing.statuses})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_listed_with_its_description_beneath() {
        let mut tool = ToolDefinition::new("say").with_description("Says\u{1b}[2J something, at some length.");
        tool.annotations.0.insert("readOnlyHint".to_owned(), Value::Bool(true));
        let text = anstream::adapter::strip_str(&entry("say", &tool, 24)).to_string();
        assert_eq!(text, "say()\n    Says something, at\n    some length.\n    read-only\n");
    }
}
