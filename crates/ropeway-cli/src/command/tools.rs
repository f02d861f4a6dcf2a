//! `ropeway tools`: lists and describes tools.

use ropeway_bridge::ToolListing;
use ropeway_bridge::registry::ServerStatus;
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{Alias, ToolDefinition};
use serde_json::{Value, json};

use crate::arguments::names::server_of;
use crate::catalog::{found, found_json, group, list, list_json, one_server, remembered_group, search};
use crate::connect::advice::{is_available, is_pending, is_unavailable};
use crate::connect::arrival;
use crate::connect::command_context::CommandContext;
use crate::connect::likely_servers::{RememberedTools, servers_with_cached_tool};
use crate::connect::selector::Selector;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::connect::waiting::{BRIEF_PATIENCE, BRIEFLY, Waiting};
use crate::describe::describe;
use crate::failure::{Exit, Failure};
use crate::output::print::{print, print_json, print_paged, say};
use crate::terminal::status;
use crate::terminal::text::{clean_line, width};

/// List tools, or describe one in full
#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    /// Only list tools of these servers, or describe these tools in full; TOOL alone describes it for every server
    #[arg(value_name = "SERVER[.TOOL]")]
    selected: Vec<String>,
    /// Search names, descriptions and arguments; best matches first
    #[arg(long, value_name = "QUERY")]
    find: Option<String>,
    /// Print one tool name per line
    #[arg(long)]
    names: bool,
    /// The selector is a tool, as in `ropeway call`.
    #[arg(skip)]
    is_call: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl Tools {
    /// Describes one tool, for `ropeway call TOOL --help`.
    pub(super) fn describing(tool: String, server: ServerOptions) -> Self {
        Self { selected: vec![tool], find: None, names: false, is_call: true, server }
    }

    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        if self.find.as_deref().is_some_and(|words| words.trim().is_empty()) {
            return Err(Failure::usage("--find needs a query").hint("try --find 'read a file'"));
        }
        let servers = self.server.servers(&context)?.lists_servers();
        let (servers, selectors) = match &self.selected[..] {
            [tool] if self.is_call => {
                servers.check_owner(tool)?;
                (servers.only_owners_of(tool), vec![Selector::Tool(tool.clone())])
            }
            typed => servers.select(typed)?,
        };
        let is_brief = self.names || self.find.is_some();
        // Servers that are named are needed.
        let servers = match &selectors[..] {
            [] if is_brief => servers.waiting(BRIEFLY),
            [] | [Selector::Tool(_)] => servers.waiting(Waiting::UnlessFailed),
            _ => servers,
        };
        let source = servers.source.clone();
        let remembered = RememberedTools::new(&servers);
        let output = |text: &str| print_paged(&context.pager, text);
        if selectors.iter().any(|selector| !matches!(selector, Selector::Server(_))) {
            if self.find.is_some() {
                return Err(
                    Failure::usage("--find cannot be combined with a tool name").hint("try the name of its server")
                );
            }
            let known = match &selectors[..] {
                [Selector::Name(name)] => servers_with_cached_tool(&servers, name),
                _ => None,
            };
            if let Some(known) = known {
                // The cache may be outdated, and another server may have the tool by now.
                match self.describe_selected(known, &selectors, &context).await {
                    Err(failure) if failure.is_unknown_tool() => {}
                    done => return done,
                }
            }
            return self.describe_selected(servers, &selectors, &context).await;
        }
        Session::with_list(servers, &context, async |session| {
            match (&self.find, context.json) {
                (words, json) if self.names => {
                    if words.is_none() && !json {
                        print_names_as_they_arrive(session, &remembered).await?;
                    } else {
                        arrival::wait_for_most(session, BRIEF_PATIENCE).await?;
                        print_names(&listed_names(session, &session.listing(), words.as_deref()), json)?;
                    }
                    let listing = session.listing();
                    let absent = listing.statuses.iter().filter(|status| is_unavailable(&status.state));
                    absent.for_each(|status| say(&session.advice.problem_text(status, width())));
                }
                (Some(words), is_json) => {
                    arrival::wait_for_most(session, BRIEF_PATIENCE).await?;
                    let listing = session.listing();
                    if is_json {
                        print_json(&found_json(&listing, words))?
                    } else {
                        output(&found(session, &listing, words, width()))?
                    }
                    // Servers that are still connecting do not affect the exit code.
                    let is_any_there = listing.statuses.iter().any(|status| is_available(&status.state));
                    return Ok(if is_any_there { Exit::Done } else { session.exit(&listing.statuses) });
                }
                (None, true) => {
                    session.wait_for_servers().await?;
                    print_json(&list_json(session, &session.listing()))?;
                }
                (None, false) if session.single().is_none() && session.listing().statuses.len() > 1 => {
                    print_as_they_arrive(session, &remembered, output).await?;
                }
                (None, false) => {
                    session.wait_for_servers().await?;
                    // A named server is shown in full.
                    let whole = !selectors.is_empty() || source == ServerSource::Line;
                    output(&list(session, &session.listing(), &source, whole, width()))?;
                }
            }
            Ok(session.exit(&session.listing().statuses))
        })
        .await
    }

    /// Describes the selected tools and lists the selected servers.
    async fn describe_selected(
        &self,
        servers: Servers,
        selectors: &[Selector],
        context: &CommandContext,
    ) -> Result<Exit, Failure> {
        let all = servers.clone();
        Session::with(servers, context, async |session| {
            if selectors.iter().all(|selector| matches!(selector, Selector::Name(_))) {
                arrival::wait_for_most(session, BRIEF_PATIENCE).await?;
            } else {
                session.wait_for_servers().await?;
            }
            let listing = session.listing();
            let found = select(session, &all, selectors).await?;
            match (self.names, context.json) {
                (true, json) => print_names(&selected_names(session, &listing, &found), json)?,
                (false, true) => print_json(&selected_json(session, &listing, &found))?,
                (false, false) => {
                    let options = self.server.for_example(&all.source);
                    let text = selected_text(session, &listing, &found, &all.source, &options);
                    print_paged(&context.pager, &text)?;
                }
            }
            Ok(Exit::Done)
        })
        .await
    }
}

/// Prints each server's tools as soon as it is ready.
async fn print_as_they_arrive(
    session: &Session,
    remembered: &RememberedTools,
    print_whole: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut is_first = true;
    let is_remembered = |at: usize| remembered.get(at).is_some();
    arrival::for_each_ready(session, false, is_remembered, |servers| {
        let listing = session.listing();
        let show = |at: &usize| {
            let status = listing.statuses.get(*at)?;
            Some(match remembered.get(*at).filter(|_| session.is_late(status)) {
                Some(tools) => remembered_group(session, status, tools, width()),
                None => group(session, &listing, status, width()),
            })
        };
        let groups: Vec<String> = servers.iter().filter_map(show).collect();
        status::clear_line();
        // Only a complete list is paged.
        match (std::mem::take(&mut is_first), groups.len() == listing.statuses.len()) {
            (true, true) => print_whole(&groups.join("\n")),
            (true, false) => print(&groups.join("\n")),
            (false, _) => print(&format!("\n{}", groups.join("\n"))),
        }
    })
    .await
}

/// Prints each server's tool names as soon as it is ready.
async fn print_names_as_they_arrive(session: &Session, remembered: &RememberedTools) -> Result<(), Failure> {
    let is_remembered = |at: usize| remembered.get(at).is_some();
    arrival::for_each_ready(session, true, is_remembered, |servers| {
        let listing = session.listing();
        let names = servers.iter().filter_map(|at| Some((listing.statuses.get(*at)?, remembered.get(*at))));
        let names: Vec<String> = names
            .flat_map(|(status, remembered)| match remembered.filter(|_| session.is_late(status)) {
                Some(tools) => tools.iter().map(|tool| session.names.dotted(tool)).collect::<Vec<_>>(),
                None => {
                    let tools = listing.registry.of_server(&status.server);
                    tools.map(|tool| session.names.dotted(tool.definition())).collect()
                }
            })
            .collect();
        status::clear_line();
        print_names(&names, false)
    })
    .await
}

/// A selected server or tool.
enum Selected {
    Server(Alias),
    Tool(CheckedTool),
}

async fn select(session: &Session, servers: &Servers, selectors: &[Selector]) -> Result<Vec<Selected>, Failure> {
    let mut selected = Vec::with_capacity(selectors.len());
    for selector in selectors {
        match selector {
            Selector::Server(alias) => selected.push(Selected::Server(Alias::from(alias.as_str()))),
            Selector::Tool(name) => selected.push(Selected::Tool(session.known_tool(name).await?)),
            Selector::Name(name) => {
                selected.extend(tools_named(session, servers, name).await?.into_iter().map(Selected::Tool));
            }
        }
    }
    Ok(selected)
}

/// Returns the tools with this name, from all servers.
async fn tools_named(session: &Session, servers: &Servers, name: &str) -> Result<Vec<CheckedTool>, Failure> {
    let listing = session.listing();
    let is_named = |tool: &&CheckedTool| session.names.is_called(tool.definition(), name);
    let found: Vec<CheckedTool> = listing.registry.tools().filter(is_named).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let tools: Vec<&ToolDefinition> = listing.registry.definitions().collect();
    let failure = servers.unknown_server_or_tool(name, &session.names.similar(&tools, name)).kind("unknown_tool");
    let failure = session.explain_filtered(name, failure).await;
    let remembered = RememberedTools::new(servers);
    let may_have_it = |status: &&ServerStatus| {
        !is_pending(&status.state) || remembered.has(&status.server, name, &session.names) != Some(false)
    };
    let statuses: Vec<ServerStatus> = listing.statuses.iter().filter(may_have_it).cloned().collect();
    Err(session.advice.add_unavailable(failure, &statuses))
}

/// Describes the selected tools and lists the selected servers.
fn selected_text(
    session: &Session,
    listing: &ToolListing,
    selected: &[Selected],
    source: &ServerSource,
    options: &[String],
) -> String {
    let one = |selected: &Selected| match selected {
        Selected::Tool(tool) => {
            let tool = tool.definition();
            // A server from `--stdio` or `--url` has no configured name.
            let name = match source {
                ServerSource::Line => session.names.short(tool).to_owned(),
                ServerSource::File(_) | ServerSource::Clients | ServerSource::Demo => session.names.dotted(tool),
            };
            describe(&name, tool, options, width())
        }
        Selected::Server(alias) => match listing.statuses.iter().find(|status| status.server == *alias) {
            Some(status) => one_server(session, listing, status, source, true, width()),
            None => String::new(),
        },
    };
    selected.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Returns one definition, several definitions, or servers with their selected tools.
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
        Some(words) => search(listing, words).iter().map(|(tool, _)| name(tool.definition())).collect(),
        None => {
            let servers = listing.statuses.iter().map(|status| &status.server);
            servers.flat_map(|server| listing.registry.of_server(server)).map(|tool| name(tool.definition())).collect()
        }
    }
}

/// Prints names, one per line.
fn print_names(names: &[String], json: bool) -> Result<(), Failure> {
    if json {
        print_json(&names)
    } else {
        print(&names.iter().map(|name| format!("{}\n", clean_line(name))).collect::<String>())
    }
}
