//! `ropeway tools`: what the servers offer.

use std::time::Duration;

use anstyle::Style;
use ropeway::bridge::ToolListing;
use ropeway::checked::CheckedTool;
use ropeway::mcp::ServerInfo;
use ropeway::registry::{SearchHit, ServerState, ServerStatus};
use ropeway::tool::{Alias, ToolDefinition};
use serde_json::{Map, Value, json};

use super::{Setting, print, print_json, print_paged, say};
use crate::arrival;
use crate::describe::describe;
use crate::failure::{Exit, Failure};
use crate::help::{faint, is_absent, is_on_its_way, is_there, line, tools as count};
use crate::likely_servers::RememberedTools;
use crate::mark::Mark;
use crate::names::server_of;
use crate::selector::Selector;
use crate::server::ServerOptions;
use crate::servers::Source;
use crate::session::Session;
use crate::signature::{arguments, brief, hints, signature_as};
use crate::status;
use crate::text::{clean, clean_line, cut, first_sentence, width, wrap};

const NAME: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();

/// How many tools a search shows.
const MOST_FOUND: usize = 10;

/// How long a search waits for servers once one of them is ready.
const SEARCH_PATIENCE: Duration = Duration::from_secs(3);

/// How much is said about a tool among many.
const LONGEST_SENTENCE: usize = 200;

/// List tools, or describe one in full
#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    /// Only list the tools of these servers, with everything that is said about them; or describe these tools in full
    #[arg(value_name = "SERVER[.TOOL]")]
    selected: Vec<String>,
    /// Only tools that these words describe, the best first
    #[arg(long, value_name = "WORDS")]
    find: Option<String>,
    /// Print one SERVER.TOOL per line, for scripts
    #[arg(long)]
    names: bool,
    /// Print long output without a pager; ROPEWAY_PAGER or PAGER names another one than less
    #[arg(long)]
    no_pager: bool,
    /// The selectors are tools, as `ropeway call` takes them.
    #[arg(skip)]
    is_call: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl Tools {
    /// Describes one tool, as `ropeway call TOOL --help` asks.
    pub(super) fn describing(tool: String, server: ServerOptions, no_pager: bool) -> Self {
        Self { selected: vec![tool], find: None, names: false, no_pager, is_call: true, server }
    }

    pub(super) async fn run(self, setting: Setting) -> Result<Exit, Failure> {
        if self.find.as_deref().is_some_and(|words| words.trim().is_empty()) {
            return Err(Failure::usage("there are no words to find").hint("give some: --find 'read a file'"));
        }
        let servers = self.server.servers(&setting)?.lists_servers();
        let (servers, selectors) = match &self.selected[..] {
            [tool] if self.is_call => {
                servers.check_owner(tool)?;
                (servers.only_for(tool), vec![Selector::Tool(tool.clone())])
            }
            typed => servers.select(typed)?,
        };
        let source = servers.source.clone();
        let remembered = RememberedTools::new(&servers);
        let output = |text: &str| if self.no_pager { print(text) } else { print_paged(&setting, text) };
        if selectors.iter().any(|selector| matches!(selector, Selector::Tool(_))) {
            if self.find.is_some() {
                return Err(
                    Failure::usage("--find searches servers, and a tool is named").hint("name its server instead")
                );
            }
            return Session::with(servers, &setting, async |session| {
                session.arrive().await?;
                let listing = session.listing();
                let found = select(session, &selectors)?;
                match (self.names, setting.json) {
                    (true, json) => print_names(&selected_names(session, &listing, &found), json)?,
                    (false, true) => print_json(&selected_json(session, &listing, &found))?,
                    (false, false) => {
                        let options = self.server.for_example(&source);
                        output(&selected_text(session, &listing, &found, &source, &options))?;
                    }
                }
                Ok(Exit::Done)
            })
            .await;
        }
        Session::with_list(servers, &setting, async |session| {
            match (&self.find, setting.json) {
                (words, json) if self.names => {
                    if words.is_none() && !json {
                        print_names_as_they_arrive(session, &remembered).await?;
                    } else {
                        session.arrive().await?;
                        print_names(&listed_names(session, &session.listing(), words.as_deref()), json)?;
                    }
                    let listing = session.listing();
                    let absent = listing.statuses.iter().filter(|verdict| is_absent(&verdict.outcome));
                    absent.for_each(|verdict| say(&session.help.trouble(verdict, width())));
                }
                (Some(words), is_json) => {
                    arrival::most(session, SEARCH_PATIENCE).await?;
                    let listing = session.listing();
                    match is_json {
                        true => print_json(&found_json(&listing, words))?,
                        false => output(&found(session, &listing, words, width()))?,
                    }
                    // A server that is still connecting does not spoil what the others have.
                    let is_any_there = listing.statuses.iter().any(|verdict| is_there(&verdict.outcome));
                    return Ok(if is_any_there { Exit::Done } else { session.exit(&listing.statuses) });
                }
                (None, true) => {
                    session.arrive().await?;
                    print_json(&list_json(session, &session.listing()))?;
                }
                (None, false) if session.single().is_none() && session.listing().statuses.len() > 1 => {
                    print_as_they_arrive(session, &remembered, output).await?;
                }
                (None, false) => {
                    session.arrive().await?;
                    // Whoever names a server wants to know all about it.
                    let whole = !selectors.is_empty() || source == Source::Line;
                    output(&list(session, &session.listing(), &source, whole, width()))?;
                }
            }
            Ok(session.exit(&session.listing().statuses))
        })
        .await
    }
}

/// Prints the tools of each server as soon as it is ready.
async fn print_as_they_arrive(
    session: &Session,
    remembered: &RememberedTools,
    print_whole: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut is_first = true;
    let is_remembered = |at: usize| remembered.get(at).is_some();
    arrival::each_as_it_arrives(session, is_remembered, |servers| {
        let listing = session.listing();
        let show = |at: &usize| {
            let verdict = listing.statuses.get(*at)?;
            Some(match remembered.get(*at).filter(|_| is_on_its_way(&verdict.outcome)) {
                Some(tools) => remembered_group(session, verdict, tools, width()),
                None => group(session, &listing, verdict, width()),
            })
        };
        let groups: Vec<String> = servers.iter().filter_map(show).collect();
        status::wipe();
        // Only what is complete fits a pager.
        match (std::mem::take(&mut is_first), groups.len() == listing.statuses.len()) {
            (true, true) => print_whole(&groups.join("\n")),
            (true, false) => print(&groups.join("\n")),
            (false, _) => print(&format!("\n{}", groups.join("\n"))),
        }
    })
    .await
}

/// Prints the names of the tools of each server as soon as it is ready.
async fn print_names_as_they_arrive(session: &Session, remembered: &RememberedTools) -> Result<(), Failure> {
    let is_remembered = |at: usize| remembered.get(at).is_some();
    arrival::each_as_it_arrives(session, is_remembered, |servers| {
        let listing = session.listing();
        let names = servers.iter().filter_map(|at| Some((listing.statuses.get(*at)?, remembered.get(*at))));
        let names: Vec<String> = names
            .flat_map(|(verdict, remembered)| match remembered.filter(|_| is_on_its_way(&verdict.outcome)) {
                Some(tools) => tools.iter().map(|tool| session.names.dotted(tool)).collect::<Vec<_>>(),
                None => {
                    let tools = listing.registry.of_server(&verdict.server);
                    tools.map(|tool| session.names.dotted(tool.definition())).collect()
                }
            })
            .collect();
        status::wipe();
        print_names(&names, false)
    })
    .await
}

/// A server or a tool that is selected, and there.
enum Selected {
    Server(Alias),
    Tool(CheckedTool),
}

fn select(session: &Session, selectors: &[Selector]) -> Result<Vec<Selected>, Failure> {
    let one = |selector: &Selector| match selector {
        Selector::Server(alias) => Ok(Selected::Server(Alias::from(alias.as_str()))),
        Selector::Tool(name) => session.tool(name).map(Selected::Tool),
    };
    selectors.iter().map(one).collect()
}

/// The selected tools in full, and the selected servers with their tools, for people.
fn selected_text(
    session: &Session,
    listing: &ToolListing,
    selected: &[Selected],
    source: &Source,
    options: &[String],
) -> String {
    let one = |selected: &Selected| match selected {
        Selected::Tool(tool) => {
            let tool = tool.definition();
            // The name of a server that is given on the spot is not typed.
            let name = match source {
                Source::Line => session.names.short(tool).to_owned(),
                Source::File(_) | Source::Demo => session.names.dotted(tool),
            };
            describe(&name, tool, options, width())
        }
        Selected::Server(alias) => match listing.statuses.iter().find(|verdict| verdict.server == *alias) {
            Some(verdict) => one_server(session, listing, verdict, source, true, width()),
            None => String::new(),
        },
    };
    selected.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// The definition of the one selected tool, the definitions of several, or the selected servers with their selected tools.
fn selected_json(session: &Session, listing: &ToolListing, selected: &[Selected]) -> Value {
    let tools: Vec<&ToolDefinition> = selected
        .iter()
        .filter_map(|selected| match selected {
            Selected::Tool(tool) => Some(tool.definition()),
            Selected::Server(_) => None,
        })
        .collect();
    if tools.len() == selected.len() {
        return if let [tool] = tools[..] { json!(tool) } else { json!(tools) };
    }
    let whole = |server: &str| {
        selected.iter().any(|selected| matches!(selected, Selected::Server(alias) if alias.as_str() == server))
    };
    let mut list = list_json(session, listing);
    for server in list["servers"].as_array_mut().into_iter().flatten() {
        let alias = server["server"].as_str().unwrap_or_default().to_owned();
        if !whole(&alias) {
            let own = tools.iter().filter(|tool| server_of(tool).is_some_and(|owner| owner.as_str() == alias));
            server["tools"] = json!(own.collect::<Vec<_>>());
        }
    }
    list
}

fn selected_names(session: &Session, listing: &ToolListing, selected: &[Selected]) -> Vec<String> {
    let one = |selected: &Selected| match selected {
        Selected::Tool(tool) => vec![session.names.dotted(tool.definition())],
        Selected::Server(alias) => {
            listing.registry.of_server(alias).map(|tool| session.names.dotted(tool.definition())).collect()
        }
    };
    selected.iter().flat_map(one).collect()
}

fn listed_names(session: &Session, listing: &ToolListing, words: Option<&str>) -> Vec<String> {
    let name = |tool: &ToolDefinition| session.names.dotted(tool);
    match words {
        Some(words) => {
            listing.registry.search(words, MOST_FOUND).iter().map(|hit| name(hit.tool.definition())).collect()
        }
        None => {
            let servers = listing.statuses.iter().map(|verdict| &verdict.server);
            servers.flat_map(|server| listing.registry.of_server(server)).map(|tool| name(tool.definition())).collect()
        }
    }
}

/// Prints names, one per line, and nothing else.
fn print_names(names: &[String], json: bool) -> Result<(), Failure> {
    match json {
        true => print_json(&names),
        false => print(&names.iter().map(|name| format!("{}\n", clean_line(name))).collect::<String>()),
    }
}

/// The tools by server, or those that some words describe, for people.
pub(crate) fn text(session: &Session, source: &Source, words: &str, width: usize) -> String {
    let listing = session.listing();
    match words {
        "" => list(session, &listing, source, false, width),
        words => found(session, &listing, words, width),
    }
}

/// The tools by server, for scripts.
pub(super) fn list_json(session: &Session, listing: &ToolListing) -> Value {
    let server = |verdict: &ServerStatus| {
        let tools: Vec<&ToolDefinition> =
            listing.registry.of_server(&verdict.server).map(|tool| tool.definition()).collect();
        let mut fields = Map::new();
        fields.insert("server".to_owned(), json!(verdict.server));
        fields.insert("verdict".to_owned(), json!(verdict.outcome));
        if let Some(note) = &verdict.note {
            fields.insert("note".to_owned(), json!(note));
        }
        if let Some(info) = session.server_info(&verdict.server) {
            fields.insert("name".to_owned(), json!(info.name));
            fields.insert("version".to_owned(), json!(info.version));
            fields.insert("era".to_owned(), json!(info.era.as_str()));
            fields.insert("protocol_version".to_owned(), json!(info.protocol_version));
            fields.insert("capabilities".to_owned(), json!(info.capabilities));
            fields.extend(info.instructions.as_ref().map(|text| ("instructions".to_owned(), json!(text))));
        }
        if let Some(hidden) = hidden(listing, verdict) {
            fields.insert("hidden".to_owned(), json!(hidden));
        }
        fields.insert("tools".to_owned(), json!(tools));
        Value::Object(fields)
    };
    json!({"servers": listing.statuses.iter().map(server).collect::<Vec<_>>()})
}

/// The tools by server, for people: of one server all that is said about them, of many what they are.
fn list(session: &Session, listing: &ToolListing, source: &Source, whole: bool, width: usize) -> String {
    match &listing.statuses[..] {
        [] => session.help.nobody(),
        [verdict] => one_server(session, listing, verdict, source, whole, width),
        verdicts => {
            let server = |verdict: &ServerStatus| group(session, listing, verdict, width);
            verdicts.iter().map(server).collect::<Vec<_>>().join("\n")
        }
    }
}

/// A server that is alone, and its tools.
fn one_server(
    session: &Session,
    listing: &ToolListing,
    verdict: &ServerStatus,
    source: &Source,
    whole: bool,
    width: usize,
) -> String {
    let mut text = title(session, verdict, source);
    let info = session.server_info(&verdict.server);
    let instructions = info.as_deref().and_then(|info| info.instructions.as_deref());
    if let Some(instructions) = instructions.filter(|_| whole) {
        text.push_str(&wrap(&clean(instructions), width, 2));
    }
    for tool in listing.registry.of_server(&verdict.server).map(|tool| tool.definition()) {
        text.push_str(&format!("\n{}", entry(session.names.short(tool), tool, width)));
        if whole {
            text.push_str(&arguments(tool, width, 4));
        }
    }
    if let Some(advice) = session.help.advice(verdict) {
        text.push_str(&wrap(&advice, width, 4));
    }
    text + &note(verdict, width)
}

/// A server among others, and its tools.
fn group(session: &Session, listing: &ToolListing, verdict: &ServerStatus, width: usize) -> String {
    let there = matches!(verdict.outcome, ServerState::Ready { .. } | ServerState::Cached { .. });
    if !there {
        return session.help.trouble(verdict, width);
    }
    let info = session.server_info(&verdict.server);
    let about = info.as_deref().map(about).unwrap_or_default();
    let tools = listing.registry.of_server(&verdict.server).map(|tool| among_many(session, tool.definition(), width));
    let mut text = session.help.heading(verdict, &about) + &tools.collect::<String>();
    if let Some(hidden) = hidden(listing, verdict) {
        text.push_str(&faint(&wrap(&why_hidden(session, hidden, listing, &verdict.server), width, 4)));
    }
    text + &note(verdict, width)
}

/// A server that is still connecting, and the tools that it had the last time.
fn remembered_group(session: &Session, verdict: &ServerStatus, tools: &[ToolDefinition], width: usize) -> String {
    let words = format!("still connecting; {}, remembered", count(tools.len()));
    let tools = tools.iter().map(|tool| among_many(session, tool, width));
    line(Mark::Half, &verdict.server, &words, "") + &tools.collect::<String>()
}

/// Why the list of a server is not complete, if it is not.
fn note(verdict: &ServerStatus, width: usize) -> String {
    verdict.note.as_deref().map(|note| faint(&wrap(&clean_line(note), width, 4))).unwrap_or_default()
}

/// How many tools a server has that are not on the list, since others there have their names.
fn hidden(listing: &ToolListing, verdict: &ServerStatus) -> Option<usize> {
    let listed = listing.registry.of_server(&verdict.server).count();
    verdict.outcome.tools().checked_sub(listed).filter(|hidden| *hidden > 0)
}

fn why_hidden(session: &Session, hidden: usize, listing: &ToolListing, server: &Alias) -> String {
    let has_tools = |other: &&Alias| *other != server && listing.registry.of_server(other).next().is_some();
    let others: Vec<&Alias> = listing.statuses.iter().map(|verdict| &verdict.server).filter(has_tools).collect();
    let (are, names) = if hidden == 1 { ("is", "a tool of the same name") } else { ("are", "tools of the same names") };
    let who = match others[..] {
        [other] => format!("`{}` has", clean_line(other.as_str())),
        _ => "others have".to_owned(),
    };
    format!("{hidden} of its tools {are} hidden: {who} {names} ({})", session.help.collisions())
}

/// What a server calls itself, and its version.
fn about(info: &ServerInfo) -> String {
    clean_line(&format!("{} {}", info.name, info.version))
}

/// A server that is alone: by our name for it if we gave it one, else by the name that it gives itself.
fn title(session: &Session, verdict: &ServerStatus, source: &Source) -> String {
    let info = session.server_info(&verdict.server);
    let protocol = info.as_deref().map(|info| format!("MCP {}", clean_line(&info.protocol_version)));
    match (info, source) {
        (Some(info), Source::File(_)) => {
            let more = [about(&info), protocol.unwrap_or_default()];
            let more: Vec<String> = more.into_iter().filter(|part| !part.is_empty()).collect();
            session.help.heading(verdict, &more.join(" · "))
        }
        (None, _) => session.help.heading(verdict, ""),
        (Some(info), _) => {
            let name = if info.name.is_empty() { verdict.server.as_str() } else { &info.name };
            let title = clean_line(&format!("{name} {}", info.version));
            let (count, protocol) = (count(verdict.outcome.tools()), protocol.unwrap_or_default());
            format!("{NAME}{title}{NAME:#} {FAINT}· {count} · {protocol}{FAINT:#}\n")
        }
    }
}

/// One tool among many: its signature behind its server, and the first sentence about it.
fn among_many(session: &Session, tool: &ToolDefinition, width: usize) -> String {
    let server = server_of(tool).map_or("", Alias::as_str);
    let mut text = format!("  {}\n", brief(server, session.names.short(tool), tool, width.saturating_sub(2)));
    if let Some(description) = &tool.description {
        text.push_str(&wrap(&cut(&first_sentence(description), LONGEST_SENTENCE), width, 6));
    }
    text
}

/// One tool: its signature, what it is hinted to do, and its description beneath.
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

/// The tools that some words describe, for people.
fn found(session: &Session, listing: &ToolListing, words: &str, width: usize) -> String {
    let hits = listing.registry.search(words, MOST_FOUND);
    let mut text: String = hits.iter().map(|hit| among_many(session, hit.tool.definition(), width)).collect();
    if hits.is_empty() {
        let all = match listing.registry.len() {
            0 => "There are no tools".to_owned(),
            1 => "The only tool is not".to_owned(),
            many => format!("None of the {many} tools is"),
        };
        text = format!("{all} about `{}`.\n", clean_line(words));
    }
    // What is not there cannot be found.
    let mut absent = listing.statuses.iter().filter(|verdict| is_absent(&verdict.outcome)).peekable();
    if absent.peek().is_some() {
        text.push_str(&format!(
            "\n{}",
            faint(&wrap(&format!("Not searched: {}", session.help.names(absent)), width, 0))
        ));
    }
    text
}

fn found_json(listing: &ToolListing, words: &str) -> Value {
    let hits = listing.registry.search(words, MOST_FOUND);
    let hit = |hit: &SearchHit<'_>| json!({"score": hit.score, "tool": hit.tool.definition()});
    json!({"found": hits.iter().map(hit).collect::<Vec<_>>(), "servers": listing.statuses})
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
