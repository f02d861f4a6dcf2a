//! The files of other clients, in our own words.

mod words;

use std::path::Path;

use self::words::{Style, Words};
pub(super) use self::words::{THEIR_OWN, translated};
use super::decode;
use super::node::{Entry, Node, Place, Step, Written, path_text};
use super::problem::in_backticks;
use super::raw::RawServer;
use super::resolve::legal_alias;

/// The servers of a file that is not ours.
#[derive(Default)]
pub(super) struct Translation {
    /// The key under which they are.
    pub(super) key: String,
    pub(super) servers: Vec<Written>,
    pub(super) warnings: Vec<String>,
    /// What VS Code asks for: names and what they are.
    pub(super) inputs: Vec<(String, String)>,
    /// The aliases so far, each with what it stands for, places aside.
    taken: Vec<(String, Option<RawServer>)>,
}

/// The servers of the file, if it is one of another client.
pub(super) fn translate(tree: &Node) -> Option<Translation> {
    let mut translation = Translation::default();
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
    found.then_some(translation)
}

impl Translation {
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
