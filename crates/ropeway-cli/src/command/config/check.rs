//! `ropeway config check`: validates the configuration file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anstyle::Style;
use ropeway_bridge::registry::{Registry, ServerState, ServerStatus, ToolShape, naming};
use ropeway_config::{Config, ServerEntry, StartMode, TokenCommandReview, ToolReference, review, tool_references};
use ropeway_core::checked::CheckedTool;
use ropeway_core::tool::{
    Alias, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput,
};
use ropeway_mcp::{Mcp, Prompt};
use serde_json::{Value, json};

use super::report::{NameReport, problems_json, problems_text, report_json, report_text, unmatched_text};
use super::unmatched::{ChatTools, KnownServer, unmatched};
use crate::arguments::names::expand_prefix;
use crate::config::config_file::ConfigFile;
use crate::config::config_paths;
use crate::connect::command_context::CommandContext;
use crate::connect::deadline::Deadline;
use crate::connect::fan_out::{Reply, query_servers};
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::failure::{Exit, Failure, chain_text as line_of};
use crate::output::print::{print, print_json};
use crate::sandbox::path_warnings;
use crate::terminal::text::{clean_names, escape_invisible, terminal_width, wrap};

const FAINT: Style = Style::new().dimmed();

/// Validate the configuration file
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// File to check [default: the configuration file in use]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Connect to the servers and check tool, argument and resource names
    #[arg(long)]
    connect: bool,
}

impl Check {
    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        let named = self.file.or(self.config).map(|path| (path, config_paths::Origin::Named));
        let (path, origin) = named.or_else(config_paths::find_with_origin).ok_or_else(|| {
            Failure::usage("no configuration file found")
                .hint("try `ropeway config path` to list the searched paths, or `ropeway add` to create one")
        })?;
        let found = ConfigFile::read(&path, origin)?;
        if self.connect {
            found.admit(context.trust)?;
        }
        // In an untrusted file, only the text is checked.
        let is_trusted = self.connect || found.is_trusted(context.trust);
        let json = context.json;
        let file = found.path.clone();
        let references = tool_references(&found.text, &found.path).unwrap_or_default();
        let config = match if is_trusted { found.parse() } else { found.parse_unread() } {
            Ok(config) => config,
            Err(error) if error.problems.is_empty() => return Err(Failure::config(&error)),
            Err(error) => {
                if json {
                    let mut report = json!({"file": file, "ok": false, "problems": problems_json(&error)});
                    if error.truncated {
                        report["truncated"] = json!(true);
                    }
                    print_json(&report)?;
                } else {
                    print(&problems_text(&error))?
                }
                return Ok(Exit::Usage);
            }
        };
        let servers = Servers::new(config, ServerSource::File(file.clone())).eager();
        servers.redact_secrets();
        let mut config = servers.config.clone();
        if is_trusted {
            config.warnings.extend(sandbox_warnings(&config, &file));
        }
        let commands = token_commands(&found);
        let names = if self.connect { Some(names(servers, &references, &context).await?) } else { None };
        let is_fine = names.as_ref().is_none_or(|names| names.is_fine(config.collisions));
        if json {
            let mut report = report_json(&file, &config, names.as_ref(), is_fine);
            report["trusted"] = json!(is_trusted);
            if !commands.is_empty() {
                let shown = |(server, command): &(String, String)| json!({"server": server, "command": command});
                report["token_commands"] = commands.iter().map(shown).collect();
            }
            print_json(&report)?;
        } else {
            let mut text = names.as_ref().map(|names| unmatched_text(&file, &found.text, names)).unwrap_or_default();
            text.push_str(&report_text(&file, &config, names.as_ref(), is_fine));
            for (server, command) in &commands {
                let words = clean_names(&format!("server `{server}` runs `{command}` for tokens"));
                let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
                text.push_str(&format!("{FAINT}{}{FAINT:#}\n", wrap(&words, width, 2).trim_end()));
            }
            if !is_trusted {
                let words = "not trusted: variables and other files were not read; review it with `ropeway trust`";
                let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
                text.push_str(&format!("{FAINT}{}{FAINT:#}\n", wrap(words, width, 2).trim_end()));
            }
            print(&text)?;
        }
        Ok(if is_fine { Exit::Done } else { Exit::Usage })
    }
}

/// Returns the commands that print tokens: servers and command lines, without secrets.
fn token_commands(found: &ConfigFile) -> Vec<(String, String)> {
    let servers = review(&found.text, &found.path).map(|review| review.servers).unwrap_or_default();
    let commands = servers.into_iter().flat_map(|server| {
        let line = |command: &TokenCommandReview| escape_invisible(&command.command.join(" "));
        let lines: Vec<String> = server.token_commands.iter().map(line).collect();
        lines.into_iter().map(move |line| (server.alias.clone(), line))
    });
    commands.collect()
}

/// Returns warnings about all sandboxes' paths.
fn sandbox_warnings(config: &Config, file: &Path) -> Vec<String> {
    let servers = config.servers.iter().filter_map(|entry| Some((&entry.alias, entry.stdio()?)));
    let warnings = servers.flat_map(|(alias, server)| {
        let warnings = path_warnings(server, Some(file)).into_iter();
        warnings.map(move |warning| format!("sandbox of server `{alias}`: {warning}"))
    });
    warnings.collect()
}

/// A server's contents.
struct Contents {
    tools: Vec<Arc<dyn Tool>>,
    /// `None` if not requested or not listed.
    prompts: Option<Vec<Prompt>>,
    resources: Option<Vec<String>>,
    has_resources: bool,
}

/// Starts the servers and checks names in the file.
async fn names(
    mut servers: Servers,
    references: &[ToolReference],
    context: &CommandContext,
) -> Result<NameReport, Failure> {
    // The report shows the warnings.
    servers.config.warnings.clear();
    for entry in &mut servers.config.servers {
        // Cached tools may be outdated.
        entry.start = StartMode::Eager;
    }
    let Config { servers: entries, collisions, .. } = servers.config.clone();
    let wants_prompts = entries.iter().any(|entry| entry.prompt_tools);
    let wants_resources = entries.iter().any(|entry| !entry.resources.context.is_empty());
    Session::with_any(servers, context, async |session| {
        let until = session.deadline.as_ref().map(Deadline::at);
        let question = async |server: Mcp| {
            let tools = server.list_tools().await?;
            let can = |what: &str| server.server_info().is_some_and(|info| info.has_capability(&[what]));
            let (has_prompts, has_resources) = (can("prompts"), can("resources"));
            let prompts = if wants_prompts && has_prompts {
                server.list_prompts().await.ok()
            } else {
                (!has_prompts).then(Vec::new)
            };
            let listed = if wants_resources && has_resources {
                server.list_resources().await.ok()
            } else {
                (!has_resources).then(Vec::new)
            };
            let resources = listed.map(|listed| listed.into_iter().map(|resource| resource.uri).collect());
            Ok(Contents { tools, prompts, resources, has_resources })
        };
        let answers = query_servers(session, "listing the tools of", until, question).await;
        let mut unknown = Vec::new();
        let mut known: Vec<KnownServer> = Vec::new();
        let mut groups: Vec<Vec<CheckedTool>> = Vec::new();
        for (status, answer) in answers {
            let entry = entries.iter().find(|entry| entry.alias == status.server);
            match (entry, answer) {
                (Some(entry), Reply::Answered(contents)) => {
                    let shape = ToolShape::new(entry).map_err(|error| Failure::usage(error.to_string()))?;
                    known.extend(known_names(entry, &contents));
                    let tools = contents.tools.into_iter().map(|tool| AliasedTool::by(tool, &entry.alias));
                    groups.push(shape.apply_all(tools));
                }
                // The report shows skipped servers as warnings.
                _ if matches!(
                    status.state,
                    ServerState::Disabled | ServerState::Skipped { .. } | ServerState::Invalid { .. }
                ) => {}
                (_, Reply::Failed(error)) => {
                    let state = ServerState::Down { cause: line_of(&error) };
                    unknown.push(ServerStatus::new(status.server, state));
                }
                _ => unknown.push(status),
            }
        }
        let all: Vec<CheckedTool> = groups.iter().flatten().cloned().collect();
        let (registry, collisions) = Registry::assemble(groups, collisions);
        let changed = all.iter().filter_map(|tool| changed(tool, &entries)).collect();
        let schema_warnings = all.iter().filter_map(|tool| {
            let (server, own) = origin(tool)?;
            Some([server.to_string(), own.to_owned(), tool.warning()?])
        });
        let schema_warnings = schema_warnings.collect();
        let listing = session.listing();
        let is_known = |alias: &Alias| known.iter().any(|known| known.alias == *alias);
        let unseen = entries.iter().filter(|entry| entry.enabled && !is_known(&entry.alias));
        let chat = ChatTools {
            // The listing includes tools for resources and prompts.
            tools: all.iter().map(|tool| tool.definition()).chain(listing.registry.definitions()).collect(),
            unseen: unseen.map(|entry| (entry.alias.as_str(), expand_prefix(&entry.prefix, &entry.alias))).collect(),
        };
        let unmatched = unmatched(references, &known, &chat);
        let is_named = |alias: &Alias| references.iter().any(|reference| reference.servers.contains(alias));
        let off = entries.iter().filter(|entry| entry.enabled && !is_known(&entry.alias) && is_named(&entry.alias));
        let unchecked = off.map(|entry| entry.alias.clone()).collect();
        let (tools, advice) = (registry.len(), session.advice.clone());
        Ok(NameReport { tools, collisions, unknown, advice, changed, schema_warnings, unmatched, unchecked })
    })
    .await
}

/// Returns the valid names for a server, if all could be listed.
fn known_names(entry: &ServerEntry, contents: &Contents) -> Option<KnownServer> {
    let mut tools: Vec<ToolDefinition> = contents.tools.iter().map(|tool| tool.definition().clone()).collect();
    let made = |name: &str, arguments: Vec<&str>| {
        let properties: serde_json::Map<String, Value> =
            arguments.into_iter().map(|name| (name.to_owned(), json!({}))).collect();
        let closed = json!({"type": "object", "properties": properties, "additionalProperties": false});
        ToolDefinition::new(name).with_input_schema(closed)
    };
    // The same names as in the bridge.
    if entry.resources.tools && contents.has_resources {
        tools.extend([made("list_resources", Vec::new()), made("read_resource", vec!["uri"])]);
    }
    if entry.prompt_tools {
        for prompt in contents.prompts.as_ref()? {
            let arguments = prompt.arguments.iter().map(|argument| argument.name.as_str()).collect();
            tools.push(made(&format!("get_prompt_{}", prompt.name), arguments));
        }
    }
    Some(KnownServer { alias: entry.alias.clone(), tools, resources: contents.resources.clone() })
}

/// A tool under its entry's alias. Equal entries share a connection, which has only one alias.
struct AliasedTool {
    definition: ToolDefinition,
    tool: Arc<dyn Tool>,
}

impl AliasedTool {
    fn by(tool: Arc<dyn Tool>, server: &Alias) -> Arc<dyn Tool> {
        let mut definition = tool.definition().clone();
        if let Origin::Server { server: owner, .. } = &mut definition.origin {
            owner.clone_from(server);
        }
        Arc::new(Self { definition, tool })
    }
}

impl Tool for AliasedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        self.tool.call(arguments, cx)
    }
}

fn origin(tool: &CheckedTool) -> Option<(&Alias, &str)> {
    match &tool.definition().origin {
        Origin::Server { server, tool } => Some((server, tool)),
        Origin::Local => None,
    }
}

/// Returns a tool whose name was changed because models reject it.
fn changed(tool: &CheckedTool, entries: &[ServerEntry]) -> Option<[String; 3]> {
    let (server, own) = origin(tool)?;
    let entry = entries.iter().find(|entry| entry.alias == *server)?;
    let name = &tool.definition().name;
    let wanted = entry.prefix.replace("{alias}", server.as_str()) + own;
    let is_made_legal = naming::tool_name(&entry.prefix, server, own) == *name && wanted != *name;
    is_made_legal.then(|| [server.to_string(), own.to_owned(), name.clone()])
}
