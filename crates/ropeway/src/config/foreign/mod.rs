//! The files of other clients, in our own words.

mod words;

use std::path::{Path, PathBuf};

use self::words::{Style, Words};
use super::decode;
use super::node::{Entry, Kind, Node, Place, Step, path_text};
use super::problem::{ConfigError, ConfigProblem, in_backticks};
use super::raw::{RawAuth, RawServer, Text};
use super::read::{Written, parse_tree};
use super::reference::{rewrite, workspace};
use super::resolve::legal_alias;

/// The servers in a file of another client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Foreign {
    /// The servers, in the order of the file.
    pub servers: Vec<ForeignServer>,
    /// What could not be taken over.
    pub warnings: Vec<String>,
}

/// A server in a file of another client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignServer {
    /// The server as we would write it; secrets stay references.
    pub server: RawServer,
    /// What a person should know about it, one line each.
    pub notes: Vec<String>,
}

/// Reads the servers of another client, so that they can be written down as ours. Paths become absolute, and what is
/// broken is left out with a warning.
pub fn read_foreign(text: &str, origin: &Path) -> Result<Foreign, ConfigError> {
    let tree = parse_tree(text, origin)?;
    let Some(translation) = translate(&tree) else {
        let problem = ConfigProblem::at(tree.place, "", "no servers of another client", "`mcpServers` or the like");
        return Err(ConfigError::new(origin, vec![problem]));
    };
    let mut foreign = Foreign { warnings: translation.warnings, ..Foreign::default() };
    for written in translation.servers {
        match decode::decode::<RawServer>(&written.node, &written.path) {
            Ok(server) => foreign.servers.push(portable(server, origin, &translation.inputs)),
            Err(problem) => {
                let (line, column) = (problem.line, problem.column);
                foreign.warnings.push(format!("a server is left out: {line}:{column}: {problem}"));
            }
        }
    }
    Ok(foreign)
}

/// A server that means the same in any file.
fn portable(mut server: RawServer, origin: &Path, inputs: &[(String, String)]) -> ForeignServer {
    let folder = absolute(origin.parent().unwrap_or(Path::new("")));
    let workspace = absolute(workspace(origin));
    let mut notes = Vec::new();
    let mut move_text = |text: &mut String| {
        *text = rewrite(text, &workspace, |input| {
            let name = input.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            let what = inputs.iter().find(|(id, _)| id == input).map_or("", |(_, what)| what.as_str());
            let note = if what.is_empty() { format!("${{{name}}}") } else { format!("${{{name}}}: {what}") };
            if !notes.contains(&note) {
                notes.push(note);
            }
            name
        });
    };
    server.command.iter_mut().for_each(&mut move_text);
    let values = server.env.0.iter_mut().chain(&mut server.headers.0).map(|(_, value)| value);
    for Text(text) in server.args.iter_mut().chain(&mut server.url).chain(values) {
        move_text(text);
    }
    if let Some(RawAuth::Bearer(Text(token))) = &mut server.auth {
        move_text(token);
    }
    for path in server.cwd.iter_mut().chain(&mut server.env_file) {
        move_text(path);
        if !path.starts_with('~') && !path.starts_with("${") {
            *path = folder.join(&path).to_string_lossy().into_owned();
        }
    }
    ForeignServer { server, notes }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path })
        .unwrap_or_else(|_| path.to_owned())
}

/// The servers of a file that is not ours.
#[derive(Default)]
pub(super) struct Translation {
    /// The key under which they are.
    pub(super) key: String,
    pub(super) servers: Vec<Written>,
    pub(super) warnings: Vec<String>,
    /// What VS Code asks for: names and what they are.
    inputs: Vec<(String, String)>,
    /// The aliases so far, each with what it stands for, places aside.
    taken: Vec<(String, Option<RawServer>)>,
}

/// The servers of the file, if it is one of another client.
pub(super) fn translate(tree: &Node) -> Option<Translation> {
    let mut translation = Translation::default();
    let mut found = false;
    let mut take = |path: &[&str], style: Style| {
        let servers = path.iter().try_fold(tree, |node, key| node.get(key));
        if let Some(servers) = servers.filter(|servers| is_collection(servers, path)) {
            found = true;
            translation.key = path.join(".");
            let steps: Vec<Step> = path.iter().map(|key| Step::Key((*key).to_owned())).collect();
            translation.take(servers, &steps, style, None);
        }
    };
    take(&["mcpServers"], Style::Usual);
    take(&["mcp_servers"], Style::Literal);
    take(&["context_servers"], Style::Zed);
    take(&["mcp", "servers"], Style::Usual);
    take(&["config", "servers"], Style::Usual);
    take(&["services", "mcp"], Style::Usual);
    // A list of servers is ours.
    let is_ours =
        ["defaults", "enabled_servers", "collisions", "lock", "secrets_file"].iter().any(|key| tree.get(key).is_some());
    if tree.get("servers").is_some_and(Node::is_map) && !is_ours {
        take(&["servers"], Style::Usual);
    }
    // Claude Code keeps the servers of each project beside everybody's.
    for project in tree.get("projects").map(Node::entries).unwrap_or_default() {
        if let Some(servers) = project.value.get("mcpServers").filter(|servers| servers.is_map()) {
            found = true;
            translation.key = "projects".to_owned();
            let steps = ["projects", &project.key, "mcpServers"].map(|key| Step::Key(key.to_owned()));
            translation.take(servers, &steps, Style::Usual, Some(&project.key));
        }
    }
    let inputs = tree.get("inputs").or_else(|| tree.get("mcp")?.get("inputs"));
    for input in inputs.map(Node::items).unwrap_or_default() {
        let text = |key: &str| input.get(key).and_then(Node::as_text).unwrap_or_default().to_owned();
        translation.inputs.push((text("id"), text("description")));
    }
    found.then_some(translation)
}

/// A map of servers; where lists are usual, also a list.
fn is_collection(node: &Node, path: &[&str]) -> bool {
    node.is_map() || (matches!(path, ["config", "servers"] | ["services", "mcp"]) && matches!(node.kind, Kind::List(_)))
}

impl Translation {
    fn take(&mut self, servers: &Node, steps: &[Step], style: Style, project: Option<&str>) {
        match &servers.kind {
            Kind::Map(entries) => {
                for entry in entries {
                    let path = path_text(&path_text("", steps), &[Step::Key(entry.key.clone())]);
                    self.take_one(&entry.key, entry.place, &entry.value, path, style, project);
                }
            }
            Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path_text(&path_text("", steps), &[Step::Index(index)]);
                    let name = ["alias", "name", "id"].iter().find_map(|key| item.get(key));
                    match name.and_then(Node::as_text) {
                        Some(text) => {
                            let place = name.map_or(item.place, |name| name.place);
                            self.take_one(text, place, item, path, style, project);
                        }
                        // What lacks a name is told so by our own reading.
                        None => self.servers.push(Written { path, node: Node::map(item.place, Vec::new()) }),
                    }
                }
            }
            Kind::Scalar { .. } => {}
        }
    }

    fn take_one(&mut self, name: &str, at: Place, server: &Node, path: String, style: Style, project: Option<&str>) {
        if !server.is_map() {
            self.servers.push(Written { path, node: server.clone() });
            return;
        }
        let mut words = Words::of(name, server, style);
        if style == Style::Zed && !words.has("command") && !words.has("url") {
            self.warnings.push(format!("server {} is left out: it belongs to an extension", in_backticks(name)));
            return;
        }
        if let Some(project) = project.filter(|_| words.has("command") && !words.has("cwd")) {
            words.put("cwd", at, Node::text(at, project));
        }
        let Words { mut entries, warnings, .. } = words;
        let meaning: Option<RawServer> = {
            let mut named = entries.clone();
            named.push(Entry { key: "alias".into(), place: at, value: Node::text(at, "") });
            decode::decode(&Node::map(server.place, named), &path).ok()
        };
        let Some(alias) = self.alias(name, meaning, project) else { return };
        self.warnings.extend(warnings);
        entries.insert(0, Entry { key: "alias".into(), place: at, value: Node::text(at, alias) });
        self.servers.push(Written { path, node: Node::map(server.place, entries) });
    }

    /// An alias that is legal and not taken yet; none when the very same server is there already.
    fn alias(&mut self, name: &str, meaning: Option<RawServer>, project: Option<&str>) -> Option<String> {
        let known = |alias: &str| self.taken.iter().find(|(taken, _)| taken == alias);
        let legal = match legal_alias(name.trim()) {
            legal if legal.is_empty() => "server".to_owned(),
            legal => legal,
        };
        let mut alias = legal.clone();
        if let Some((_, other)) = known(&alias) {
            if *other == meaning && meaning.is_some() {
                return None;
            }
            if let Some(folder) = project.and_then(|project| Path::new(project).file_name()) {
                alias = legal_alias(&format!("{legal}-{}", folder.to_string_lossy()));
            }
        }
        let mut number = 2;
        while known(&alias).is_some() {
            alias = format!("{}-{number}", legal.chars().take(50).collect::<String>());
            number += 1;
        }
        if alias != name {
            self.warnings.push(format!("server {} is called `{alias}` here", in_backticks(name)));
        }
        self.taken.push((alias.clone(), meaning));
        Some(alias)
    }
}
