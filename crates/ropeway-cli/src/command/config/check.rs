//! `ropeway config check`: validates the configuration file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use ropeway::checked::CheckedTool;
use ropeway::config::{
    CollisionPolicy, Config, ConfigError, ConfigProblem, ServerEntry, StartMode, ToolReference, tool_references,
};
use ropeway::mcp::{Mcp, Prompt};
use ropeway::registry::{Collision, Registry, ServerState, ServerStatus, ToolShape, naming};
use ropeway::tool::{Alias, Arguments, BoxFuture, CallContext, CallError, Origin, Tool, ToolDefinition, ToolOutput};
use serde_json::{Value, json};

use super::unmatched::{ChatTools, KnownServer, Unmatched, unmatched};
use crate::arguments::names::expand_prefix;
use crate::config::config_file::ConfigFile;
use crate::config::config_paths;
use crate::connect::advice::ServerAdvice;
use crate::connect::command_context::CommandContext;
use crate::connect::deadline::Deadline;
use crate::connect::fan_out::{Reply, query_servers};
use crate::connect::servers::{ServerSource, Servers};
use crate::connect::session::Session;
use crate::failure::{Exit, Failure, chain_text as line_of};
use crate::output::excerpt::excerpt;
use crate::output::print::{print, print_json};
use crate::terminal::status_icon::StatusIcon;
use crate::terminal::text::{clean, clean_line, terminal_width, wrap};

const PLACE: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// Validate the configuration file
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// File to check [default: the configuration file in use]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Same as FILE
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
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
        // Of an untrusted file, only the text is checked.
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
        let config = servers.config.clone();
        let names = if self.connect { Some(names(servers, &references, &context).await?) } else { None };
        let is_fine = names.as_ref().is_none_or(|names| names.is_fine(config.collisions));
        if json {
            let mut report = report_json(&file, &config, names.as_ref(), is_fine);
            report["trusted"] = json!(is_trusted);
            print_json(&report)?;
        } else {
            let mut text = names.as_ref().map(|names| unmatched_text(&file, &found.text, names)).unwrap_or_default();
            text.push_str(&report_text(&file, &config, names.as_ref(), is_fine));
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

/// The results of checking names with the servers connected.
struct NameReport {
    tools: usize,
    collisions: Vec<Collision>,
    /// Servers whose tools could not be listed.
    unknown: Vec<ServerStatus>,
    advice: ServerAdvice,
    /// Renamed tools: server, original name and new name.
    changed: Vec<[String; 3]>,
    /// Schema warnings: server, tool and warning.
    odd: Vec<[String; 3]>,
    /// Names in the file without a match.
    unmatched: Vec<Unmatched>,
    /// Servers that are not connected, whose names were not checked.
    unchecked: Vec<Alias>,
}

/// The contents of a server.
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
    let wants_prompts = entries.iter().any(|entry| entry.prompts.tools);
    let wants_resources = entries.iter().any(|entry| !entry.resources.context.is_empty());
    Session::with_any(servers, context, async |session| {
        let until = session.deadline.as_ref().map(Deadline::at);
        let question = async |server: Mcp| {
            let tools = server.list_tools(None).await?;
            let can = |what: &str| server.server_info().is_some_and(|info| info.can(&[what]));
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
        for (verdict, answer) in answers {
            let entry = entries.iter().find(|entry| entry.alias == verdict.server);
            match (entry, answer) {
                (Some(entry), Reply::Answered(contents)) => {
                    let shape = ToolShape::new(entry).map_err(|error| Failure::usage(error.to_string()))?;
                    known.extend(known_names(entry, &contents));
                    let tools = contents.tools.into_iter().map(|tool| AliasedTool::by(tool, &entry.alias));
                    groups.push(shape.apply_all(tools));
                }
                // The report shows skipped servers as warnings.
                _ if matches!(
                    verdict.outcome,
                    ServerState::Disabled | ServerState::Skipped { .. } | ServerState::Invalid { .. }
                ) => {}
                (_, Reply::Failed(error)) => {
                    let outcome = ServerState::Down { cause: line_of(&error) };
                    unknown.push(ServerStatus::new(verdict.server, outcome));
                }
                _ => unknown.push(verdict),
            }
        }
        let all: Vec<CheckedTool> = groups.iter().flatten().cloned().collect();
        let (registry, collisions) = Registry::assemble(groups, collisions);
        let changed = all.iter().filter_map(|tool| changed(tool, &entries)).collect();
        let odd = all.iter().filter_map(|tool| {
            let (server, own) = origin(tool)?;
            Some([server.to_string(), own.to_owned(), tool.warning()?])
        });
        let odd = odd.collect();
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
        Ok(NameReport { tools, collisions, unknown, advice, changed, odd, unmatched, unchecked })
    })
    .await
}

/// Returns the valid names for a server, if all of them could be listed.
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
    if entry.prompts.tools {
        for prompt in contents.prompts.as_ref()? {
            let arguments = prompt.arguments.iter().map(|argument| argument.name.as_str()).collect();
            tools.push(made(&format!("get_prompt_{}", prompt.name), arguments));
        }
    }
    Some(KnownServer { alias: entry.alias.clone(), tools, resources: contents.resources.clone() })
}

/// A tool under the alias of its entry. Equal entries share a connection, which has only one alias.
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

impl NameReport {
    /// Returns the collisions that the policy forbids.
    fn problems(&self, policy: CollisionPolicy) -> &[Collision] {
        if policy == CollisionPolicy::Error { &self.collisions } else { &[] }
    }

    /// Returns `true` if no problems were found.
    fn is_fine(&self, policy: CollisionPolicy) -> bool {
        self.problems(policy).is_empty() && !self.unmatched.iter().any(|unmatched| unmatched.is_problem)
    }
}

/// Formats names without a match, each with its line.
fn unmatched_text(file: &Path, written: &str, names: &NameReport) -> String {
    let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
    let file = clean_line(&file.display().to_string());
    let one = |unmatched: &Unmatched| {
        let place = format!("{file}:{}:{}:", unmatched.line, unmatched.column);
        let warning = if unmatched.is_problem { "" } else { "warning: " };
        let words = clean(&format!("{place} {warning}{}", unmatched.sentence()));
        let lines = wrap(&words, width, 0).replacen(&place, &format!("{PLACE}{place}{PLACE:#}"), 1);
        let beneath = excerpt(written, unmatched.line, unmatched.column, width);
        format!("{lines}{beneath}\n")
    };
    names.unmatched.iter().map(one).collect()
}

/// Formats all problems of a file, each with its line.
pub(in crate::command) fn problems_text(error: &ConfigError) -> String {
    let width = terminal_width(&std::io::stdout());
    let file = clean_line(&error.file.display().to_string());
    // Without the file, problems are shown without excerpts.
    let written = std::fs::read_to_string(&error.file).unwrap_or_default();
    let mut text = String::new();
    for problem in &error.problems {
        let place = match problem.line {
            0 => format!("{file}:"),
            line => format!("{file}:{line}:{}:", problem.column),
        };
        let words = clean(&problem.to_string());
        let lines = wrap(&format!("{place} {words}"), width.unwrap_or(usize::MAX), 0);
        text.push_str(&lines.replacen(&place, &format!("{PLACE}{place}{PLACE:#}"), 1));
        let beneath = excerpt(&written, problem.line, problem.column, width.unwrap_or(usize::MAX));
        text.push_str(&format!("{beneath}\n"));
    }
    let count = match error.problems.len() {
        1 => "1 problem".to_owned(),
        count if error.truncated => format!("more than {count} problems"),
        count => format!("{count} problems"),
    };
    let sign = StatusIcon::Bad.symbol();
    text + &format!("{BAD}{sign}{BAD:#} {file} has {count}\n")
}

fn problems_json(error: &ConfigError) -> Vec<Value> {
    let problem = |problem: &ConfigProblem| {
        let ConfigProblem { line, column, path, found, expected, suggestion, .. } = problem;
        json!({"line": line, "column": column, "path": path, "found": found, "expected": expected, "suggestion": suggestion})
    };
    error.problems.iter().map(problem).collect()
}

fn report_text(file: &Path, config: &Config, names: Option<&NameReport>, is_fine: bool) -> String {
    let width = terminal_width(&std::io::stdout()).unwrap_or(usize::MAX);
    let line = |mark: StatusIcon, words: &str| {
        let style = mark.style();
        let wrapped = wrap(&clean(words), width, 2);
        format!("{style}{}{style:#} {}", mark.symbol(), wrapped.strip_prefix("  ").unwrap_or(&wrapped))
    };
    let mut text = String::new();
    if let Some(names) = names {
        for collision in &names.collisions {
            let mark = if names.problems(config.collisions).is_empty() { StatusIcon::Half } else { StatusIcon::Bad };
            text.push_str(&line(mark, &collision.to_string()));
        }
        if !names.problems(config.collisions).is_empty() {
            let fix =
                "change the `prefix` of one of the servers, or set `collisions: suffix` or `collisions: last-wins`";
            text.push_str(&wrap(&format!("→ {fix}"), width, 2));
        }
        for verdict in &names.unknown {
            text.push_str(&names.advice.problem_text(verdict, width));
        }
        if !names.unchecked.is_empty() {
            let servers: Vec<String> = names.unchecked.iter().map(|server| format!("`{server}`")).collect();
            let words = "not connected; tool and argument names were not checked";
            text.push_str(&line(StatusIcon::Half, &format!("{}: {words}", servers.join(", "))));
        }
        for [server, own, name] in &names.changed {
            let entry = config.servers.iter().find(|entry| entry.alias.as_str() == server);
            let prefix = entry.map(|entry| expand_prefix(&entry.prefix, &entry.alias)).unwrap_or_default();
            let name = name.strip_prefix(&prefix).unwrap_or(name);
            text.push_str(&line(
                StatusIcon::Half,
                &format!("tool `{own}` of server `{server}` is renamed to `{name}`: some models reject its own name"),
            ));
        }
        for [server, tool, warning] in &names.odd {
            text.push_str(&line(StatusIcon::Half, &format!("tool `{tool}` of server `{server}`: {warning}")));
        }
    }
    config.warnings.iter().for_each(|warning| text.push_str(&line(StatusIcon::Half, warning)));
    let file = file.display();
    let servers = counted(config.servers.len(), "server");
    let off = match config.servers.iter().filter(|entry| !entry.enabled).count() {
        0 => String::new(),
        off => format!(", {off} disabled"),
    };
    let tools = match names {
        None => String::new(),
        Some(NameReport { tools, unknown, .. }) if unknown.is_empty() => format!(", {}", counted(*tools, "tool")),
        Some(NameReport { tools, unknown, .. }) => {
            let (tools, unknown) = (counted(*tools, "tool"), counted(unknown.len(), "server"));
            format!(", {tools}; tools of {unknown} unknown")
        }
    };
    text.push_str(&if is_fine {
        line(StatusIcon::Good, &format!("{file} is valid: {servers}{off}{tools}"))
    } else {
        let collides = names.is_some_and(|names| !names.problems(config.collisions).is_empty());
        let unmatched = names.map_or(0, |names| names.unmatched.iter().filter(|it| it.is_problem).count());
        let collides = collides.then(|| "tool name collisions".to_owned());
        let unmatched = match unmatched {
            0 => None,
            1 => Some("1 name without a match".to_owned()),
            many => Some(format!("{many} names without a match")),
        };
        let what: Vec<String> = collides.into_iter().chain(unmatched).collect();
        line(StatusIcon::Bad, &format!("{file} has {}: {servers}{off}{tools}", what.join(" and ")))
    });
    if names.is_none() && config.servers.iter().filter(|entry| entry.enabled).count() > 0 {
        let words = "tool names were not checked; `ropeway config check --connect` checks them";
        text.push_str(&format!("{FAINT}{}{FAINT:#}\n", wrap(words, width, 2).trim_end()));
    }
    text
}

fn counted(count: usize, word: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {word}{end}")
}

fn report_json(file: &Path, config: &Config, names: Option<&NameReport>, is_fine: bool) -> Value {
    let servers: Vec<&str> = config.servers.iter().map(|entry| entry.alias.as_str()).collect();
    let mut report = json!({
        "file": file, "ok": is_fine, "problems": [], "warnings": config.warnings, "servers": servers,
    });
    if let Some(NameReport { tools, collisions, unknown, changed, odd, unmatched, unchecked, .. }) = names {
        let unknown: Vec<Value> = unknown
            .iter()
            .map(|ServerStatus { server, outcome, .. }| json!({"server": server, "verdict": outcome}))
            .collect();
        let changed: Vec<Value> =
            changed.iter().map(|[server, tool, name]| json!({"server": server, "tool": tool, "name": name})).collect();
        let odd: Vec<Value> =
            odd.iter().map(|[server, tool, why]| json!({"server": server, "tool": tool, "warning": why})).collect();
        let problems = unmatched.iter().filter(|unmatched| unmatched.is_problem);
        report["problems"] = problems.map(Unmatched::problem_json).collect();
        let unmatched: Vec<Value> = unmatched.iter().map(Unmatched::json).collect();
        report["names"] = json!({
            "tools": tools, "collisions": collisions, "unknown": unknown, "changed": changed, "odd": odd,
            "unmatched": unmatched, "unchecked": unchecked,
        });
    }
    report
}
