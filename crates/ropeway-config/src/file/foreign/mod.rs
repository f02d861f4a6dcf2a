//! Translates other MCP clients' files to native keys.

mod goose;
mod oauth;
mod restrictions;
mod translator;
mod values;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use self::translator::{ClientFormat, ServerTranslator};
pub(super) use self::translator::{IGNORED_KEYS, translate_key};
use super::alias::sanitize_alias;
use super::decode;
use super::node::{Entry, Node, PathStep, ServerNode, format_path};
use super::position::Position;
use super::problem::{ConfigProblem, in_backticks};
use super::raw::RawServer;

/// The servers in another client's file, with native keys.
#[derive(Default)]
pub(super) struct Translation {
    /// The key that contains the servers.
    pub(super) key: String,
    pub(super) servers: Vec<ServerNode>,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    /// The inputs that VS Code prompts for: names and descriptions.
    pub(super) inputs: Vec<(String, String)>,
    /// The aliases so far, each with its server.
    taken: HashMap<String, Option<RawServer>>,
    /// The next numeric suffix to try for each name that several servers have.
    numbers: HashMap<String, usize>,
    /// Only servers with these names may be started.
    allowed: Option<HashSet<String>>,
    /// Servers with these names, in lower case, may not be started.
    excluded: HashSet<String>,
}

/// Native keys that restrict, and have no effect in another client's file.
const NATIVE_KEYS: [&str; 9] =
    ["chat", "collisions", "defaults", "disabled", "enabled", "enabled_servers", "gateway", "lock", "tool_allowlist"];

/// Keys that list the servers that Gemini CLI may or may not start, in its current and former settings
/// (<https://github.com/google-gemini/gemini-cli/blob/main/docs/get-started/configuration.md>).
const ALLOWED: [&[&str]; 2] = [&["mcp", "allowed"], &["allowMCPServers"]];
const EXCLUDED: [&[&str]; 2] = [&["mcp", "excluded"], &["excludeMCPServers"]];

/// Translates a file's servers, if it belongs to another client.
pub(super) fn translate(tree: &Node) -> Option<Translation> {
    let mut translation = Translation::default();
    translation.take_restrictions(tree);
    let mut found = false;
    let mut take = |path: &[&str], format: ClientFormat| {
        let servers = path.iter().try_fold(tree, |node, key| node.get(key));
        if let Some(servers) = servers.filter(|servers| servers.is_map()) {
            found = true;
            translation.key = path.join(".");
            let steps: Vec<PathStep> = path.iter().map(|key| PathStep::Key((*key).to_owned())).collect();
            translation.take(servers, &steps, format, None);
        }
    };
    take(&["mcpServers"], ClientFormat::Standard);
    take(&["mcp_servers"], ClientFormat::Literal);
    take(&["context_servers"], ClientFormat::Zed);
    take(&["mcp", "servers"], ClientFormat::Standard);
    // Without native keys, a map `servers` belongs to VS Code.
    let is_native = ["defaults", "enabled_servers", "tool_allowlist", "collisions", "lock", "secrets_file"]
        .iter()
        .any(|key| tree.get(key).is_some());
    if tree.get("servers").is_some_and(Node::is_map) && !is_native {
        take(&["servers"], ClientFormat::Standard);
    }
    if let Some(extensions) = tree.get("extensions").filter(|extensions| goose::is_extensions(extensions)) {
        found = true;
        translation.key = "extensions".to_owned();
        let steps = [PathStep::Key("extensions".to_owned())];
        translation.take(&goose::servers(extensions), &steps, ClientFormat::Standard, None);
    }
    // Claude Code stores project servers next to the user's servers.
    for project in tree.get("projects").map(Node::entries).unwrap_or_default() {
        if let Some(servers) = project.value.get("mcpServers").filter(|servers| servers.is_map()) {
            found = true;
            translation.key = "projects".to_owned();
            let steps = ["projects", &project.key, "mcpServers"].map(|key| PathStep::Key(key.to_owned()));
            translation.take(servers, &steps, ClientFormat::Standard, Some(&project.key));
        }
    }
    let inputs = tree.get("inputs").or_else(|| tree.get("mcp")?.get("inputs"));
    for input in inputs.map(Node::items).unwrap_or_default() {
        let text = |key: &str| input.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
        translation.inputs.push((text("id"), text("description")));
    }
    if !found && let Some(list) = tree.get("mcpServers").filter(|servers| !servers.is_null()) {
        let expected = "a map of servers by name";
        translation.problems.push(ConfigProblem::mismatch(list.position, "mcpServers", list.describe_kind(), expected));
        translation.key = "mcpServers".to_owned();
        found = true;
    }
    found.then_some(translation)
}

impl Translation {
    /// Reads the settings that restrict all servers.
    fn take_restrictions(&mut self, tree: &Node) {
        for Entry { key, position, value } in tree.entries() {
            let name = key.to_lowercase().replace('-', "_");
            let is_harmless = match name.as_str() {
                "enabled" => value.is_bool(true),
                "disabled" => value.is_bool(false) || value.is_null(),
                _ => false,
            };
            let is_native = NATIVE_KEYS.iter().any(|native| *native == name || native.replace('_', "") == name);
            if is_native && !is_harmless {
                // A server map is another client's format, whatever the file name.
                let form = if tree.get("servers").is_some() { ", where `servers` is a list" } else { "" };
                let message = format!("{} is only supported in a `ropeway.yaml`{form}", in_backticks(key));
                self.problems.push(ConfigProblem::new(*position, "", message));
            }
        }
        for path in ALLOWED {
            if let Some(names) = self.names(tree, path) {
                // A server must be in both lists.
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
        let list = path.iter().try_fold(tree, |node, key| node.get(key)).filter(|list| !list.is_null())?;
        match decode::decode(list, &path.join(".")) {
            Ok(names) => Some(names),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    /// Returns `false` for a server that the file's lists disable.
    fn enables(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name))
            && !self.excluded.contains(&name.trim().to_lowercase())
    }

    fn take(&mut self, servers: &Node, steps: &[PathStep], format: ClientFormat, project: Option<&str>) {
        for entry in servers.entries() {
            let path = format_path(&format_path("", steps), &[PathStep::Key(entry.key.clone())]);
            self.take_one(&entry.key, entry.position, &entry.value, path, format, project);
        }
    }

    fn take_one(
        &mut self,
        name: &str,
        at: Position,
        server: &Node,
        path: String,
        format: ClientFormat,
        project: Option<&str>,
    ) {
        if !server.is_map() {
            self.servers.push(ServerNode { path, node: server.clone(), project: None, unsupported: None });
            return;
        }
        let mut translator = ServerTranslator::new(name, server, format);
        if format == ClientFormat::Zed && !translator.has("command") && !translator.has("url") {
            self.warnings.push(format!("server {} is skipped: it is provided by an extension", in_backticks(name)));
            return;
        }
        if let Some(project) = project.filter(|_| translator.has("command") && !translator.has("cwd")) {
            translator.put("cwd", at, Node::string(at, project));
        }
        if !self.enables(name) {
            translator.put_enabled(at, at, false);
        }
        let ServerTranslator { mut entries, warnings, unsupported, .. } = translator;
        // A server that is not started is never a duplicate.
        let decoded: Option<RawServer> = if unsupported.is_some() {
            None
        } else {
            let mut named = entries.clone();
            named.push(Entry { key: "alias".into(), position: at, value: Node::string(at, "") });
            decode::decode(&Node::map(server.position, named), &path).ok()
        };
        let Some(alias) = self.unique_alias(name, decoded, project) else { return };
        self.warnings.extend(warnings);
        entries.insert(0, Entry { key: "alias".into(), position: at, value: Node::string(at, alias) });
        let node = Node::map(server.position, entries);
        self.servers.push(ServerNode { path, node, project: project.map(str::to_owned), unsupported });
    }

    /// Returns a valid and unique alias. `None` if the same server exists already.
    fn unique_alias(&mut self, name: &str, server: Option<RawServer>, project: Option<&str>) -> Option<String> {
        let legal = match sanitize_alias(name.trim()) {
            legal if legal.is_empty() => "server".to_owned(),
            legal => legal,
        };
        let mut alias = legal.clone();
        if let Some(other) = self.taken.get(&alias) {
            if *other == server && server.is_some() {
                return None;
            }
            if let Some(folder) = project.and_then(|project| Path::new(project).file_name()) {
                alias = sanitize_alias(&format!("{legal}-{}", folder.to_string_lossy()));
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
            self.warnings.push(format!("server {} is renamed to `{alias}`", in_backticks(name)));
        }
        self.taken.insert(alias.clone(), server);
        Some(alias)
    }
}
