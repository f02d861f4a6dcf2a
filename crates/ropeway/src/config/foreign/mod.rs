//! The files of other clients, in our own words.

mod words;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use self::words::{Style, Words};
pub(super) use self::words::{THEIR_OWN, translated};
use super::decode;
use super::node::{Entry, Kind, Node, Place, Plain, Step, Written, path_text, plain};
use super::problem::{ConfigProblem, in_backticks};
use super::raw::RawServer;
use super::resolve::legal_alias;

/// The servers of a file that is not ours.
#[derive(Default)]
pub(super) struct Translation {
    /// The key under which they are.
    pub(super) key: String,
    pub(super) servers: Vec<Written>,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    /// What VS Code asks for: names and what they are.
    pub(super) inputs: Vec<(String, String)>,
    /// The aliases so far, each with what it stands for, places aside.
    taken: HashMap<String, Option<RawServer>>,
    /// The next number to try behind each name that several servers have.
    numbers: HashMap<String, usize>,
    /// The names of the only servers that may be started.
    allowed: Option<HashSet<String>>,
    /// The names of servers that may not, in lower case.
    excluded: HashSet<String>,
}

/// Keys of a `ropeway.yaml` that restrict, and that another client's file does not have.
const OURS: [&str; 8] =
    ["chat", "collisions", "defaults", "disabled", "enabled", "enabled_servers", "lock", "tool_allowlist"];

/// Lists of servers that Gemini CLI may start, or may not: since its settings have categories, and before
/// (<https://github.com/google-gemini/gemini-cli/blob/main/docs/get-started/configuration.md>).
const ALLOWED: [&[&str]; 2] = [&["mcp", "allowed"], &["allowMCPServers"]];
const EXCLUDED: [&[&str]; 2] = [&["mcp", "excluded"], &["excludeMCPServers"]];

/// The servers of the file, if it is one of another client.
pub(super) fn translate(tree: &Node) -> Option<Translation> {
    let mut translation = Translation::default();
    translation.take_restrictions(tree);
    let mut found = false;
    let mut take = |path: &[&str], style: Style| {
        let servers = path.iter().try_fold(tree, |node, key| node.get(key));
        if let Some(servers) = servers.filter(|servers| servers.is_map()) {
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
    // A list of servers is ours.
    let is_ours = ["defaults", "enabled_servers", "tool_allowlist", "collisions", "lock", "secrets_file"]
        .iter()
        .any(|key| tree.get(key).is_some());
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
    if !found && let Some(list) = tree.get("mcpServers").filter(|servers| !servers.is_nothing()) {
        let expected = "a map of servers by name";
        translation.problems.push(ConfigProblem::at(list.place, "mcpServers", list.describe_kind(), expected));
        translation.key = "mcpServers".to_owned();
        found = true;
    }
    found.then_some(translation)
}

impl Translation {
    /// What the file says of all servers.
    fn take_restrictions(&mut self, tree: &Node) {
        for Entry { key, place, value } in tree.entries() {
            let name = key.to_lowercase().replace('-', "_");
            let is =
                |truth| matches!(&value.kind, Kind::Scalar { text, plain: true } if plain(text) == Plain::Truth(truth));
            let is_harmless = match name.as_str() {
                "enabled" => is(true),
                "disabled" => is(false) || value.is_nothing(),
                _ => false,
            };
            let is_ours = OURS.iter().any(|ours| *ours == name || ours.replace('_', "") == name);
            if is_ours && !is_harmless {
                let found = format!("{}, which has no effect in a file of another client", in_backticks(key));
                self.problems.push(ConfigProblem::at(*place, "", found, "it in a `ropeway.yaml`"));
            }
        }
        for path in ALLOWED {
            if let Some(names) = self.names(tree, path) {
                // A server has to be in each list.
                self.allowed = Some(match self.allowed.take() {
                    Some(known) => names.into_iter().filter(|name| known.contains(name)).collect(),
                    None => names.into_iter().collect(),
                });
            }
        }
        for path in EXCLUDED {
            let names = self.names(tree, path).unwrap_or_default();
            self.excluded.extend(names.iter().map(|name| name.trim().to_lowercase()));
        }
    }

    fn names(&mut self, tree: &Node, path: &[&str]) -> Option<Vec<String>> {
        let list = path.iter().try_fold(tree, |node, key| node.get(key)).filter(|list| !list.is_nothing())?;
        match decode::decode(list, &path.join(".")) {
            Ok(names) => Some(names),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    /// Returns false for a server that the file as a whole switches off.
    fn enables(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name))
            && !self.excluded.contains(&name.trim().to_lowercase())
    }

    fn take(&mut self, servers: &Node, steps: &[Step], style: Style, project: Option<&str>) {
        for entry in servers.entries() {
            let path = path_text(&path_text("", steps), &[Step::Key(entry.key.clone())]);
            self.take_one(&entry.key, entry.place, &entry.value, path, style, project);
        }
    }

    fn take_one(&mut self, name: &str, at: Place, server: &Node, path: String, style: Style, project: Option<&str>) {
        if !server.is_map() {
            self.servers.push(Written { path, node: server.clone(), refusal: None });
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
        if !self.enables(name) {
            words.put_enabled(at, at, false);
        }
        let Words { mut entries, warnings, refusal, .. } = words;
        // A server that is not started is the same as no other.
        let meaning: Option<RawServer> = if refusal.is_some() {
            None
        } else {
            let mut named = entries.clone();
            named.push(Entry { key: "alias".into(), place: at, value: Node::text(at, "") });
            decode::decode(&Node::map(server.place, named), &path).ok()
        };
        let Some(alias) = self.alias(name, meaning, project) else { return };
        self.warnings.extend(warnings);
        entries.insert(0, Entry { key: "alias".into(), place: at, value: Node::text(at, alias) });
        self.servers.push(Written { path, node: Node::map(server.place, entries), refusal });
    }

    /// An alias that is legal and not taken yet; none when the very same server is there already.
    fn alias(&mut self, name: &str, meaning: Option<RawServer>, project: Option<&str>) -> Option<String> {
        let legal = match legal_alias(name.trim()) {
            legal if legal.is_empty() => "server".to_owned(),
            legal => legal,
        };
        let mut alias = legal.clone();
        if let Some(other) = self.taken.get(&alias) {
            if *other == meaning && meaning.is_some() {
                return None;
            }
            if let Some(folder) = project.and_then(|project| Path::new(project).file_name()) {
                alias = legal_alias(&format!("{legal}-{}", folder.to_string_lossy()));
            }
        }
        if self.taken.contains_key(&alias) {
            let start: String = legal.chars().take(50).collect();
            let number = self.numbers.entry(start.clone()).or_insert(2);
            while self.taken.contains_key(&alias) {
                alias = format!("{start}-{number}");
                *number += 1;
            }
        }
        if alias != name {
            self.warnings.push(format!("server {} is called `{alias}` here", in_backticks(name)));
        }
        self.taken.insert(alias.clone(), meaning);
        Some(alias)
    }
}
