//! A manifest's servers, with native keys: synonyms, keys under `connection`, and conflicts between them.

use std::collections::HashSet;

use super::foreign::{IGNORED_KEYS, translate_key};
use super::node::{Entry, Node, NodeKind, PathStep, ServerNode, format_path, redact_key};
use super::position::Position;
use super::problem::{ALIAS_SYNONYMS, ConfigProblem, in_backticks};
use super::raw::CONNECTION_KEYS;

/// Paths to the servers in a manifest.
const PATHS: [[&str; 2]; 2] = [["config", "servers"], ["services", "mcp"]];

/// Synonyms for native keys, from other clients.
const SYNONYMS: [&str; 25] = [
    "bearer_token",
    "bearer_token_env_var",
    "cmd",
    "disabled",
    "disabledTools",
    "disabled_tools",
    "enabledTools",
    "enabled_tools",
    "envFile",
    "env_http_headers",
    "env_vars",
    "environment",
    "envs",
    "excludeTools",
    "httpUrl",
    "http_headers",
    "includeTools",
    "serverUrl",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "tool_timeout_sec",
    "transportType",
    "type",
    "uri",
    "workingDirectory",
];

/// Returns the server lists or maps in a manifest, with their paths. Empty for other files.
pub(super) fn collections(tree: &Node) -> Vec<(String, &Node)> {
    let is_collection = |node: &&Node| !matches!(node.kind, NodeKind::Scalar { .. }) || node.is_null();
    let found = PATHS.into_iter().filter_map(|[outer, inner]| {
        let servers = tree.get(outer)?.get(inner).filter(is_collection)?;
        Some((format!("{outer}.{inner}"), servers))
    });
    found.collect()
}

/// Returns the problem with a file that looks like a manifest, but has no servers where a manifest has them.
pub(super) fn wrong_shape(tree: &Node) -> Option<ConfigProblem> {
    for [outer, inner] in PATHS {
        if let Some(servers) = tree.get(outer).and_then(|outer| outer.get(inner)) {
            let (path, found) = (format!("{outer}.{inner}"), servers.describe_kind());
            return Some(ConfigProblem::mismatch(servers.position, path, found, "a list or a map of servers"));
        }
    }
    let config = tree.get("config").filter(|config| config.is_map() && tree.get("servers").is_none())?;
    Some(ConfigProblem::new(config.position, "config", "missing key `servers`"))
}

/// Restrictions that are only supported under `config`.
const CONFIG_RESTRICTIONS: [&str; 3] = ["enabled_servers", "tool_allowlist", "lock"];

/// Restrictions that are only supported in a server's entry.
const SERVER_RESTRICTIONS: [&str; 6] =
    ["disabledTools", "disabled_tools", "enabledTools", "enabled_tools", "excludeTools", "includeTools"];

/// Returns a problem for each restriction at the top level or under `services`, where it would have no effect.
pub(super) fn misplaced(tree: &Node) -> Vec<ConfigProblem> {
    let services = tree.get("services").map(Node::entries).unwrap_or_default();
    let top = tree.entries().iter().filter_map(|entry| misplaced_at("", entry));
    top.chain(services.iter().filter_map(|entry| misplaced_at("services", entry))).collect()
}

fn misplaced_at(path: &str, Entry { key, position, value }: &Entry) -> Option<ConfigProblem> {
    let plain_key = |key: &str| key.to_lowercase().replace(['_', '-'], "");
    let outside = |help: String| {
        let message = format!("{} has no effect outside of `config`; use {help}", in_backticks(key));
        Some(ConfigProblem::new(*position, path, message))
    };
    match plain_key(key).as_str() {
        // The manifest itself has this key.
        "enabled" if path.is_empty() && key == "enabled" => None,
        "enabled" if !value.is_bool(true) => outside("`config.enabled`".to_owned()),
        "disabled" if !value.is_bool(false) && !value.is_null() => outside("`config.enabled: false`".to_owned()),
        // Under `services`, it may be a service name.
        "lock" if !path.is_empty() && value.is_map() => None,
        _ if SERVER_RESTRICTIONS.contains(&key.as_str()) => outside("it in the entry of each server".to_owned()),
        plain => {
            let native = CONFIG_RESTRICTIONS.into_iter().find(|known| plain_key(known) == plain)?;
            outside(format!("`config.{native}`"))
        }
    }
}

/// Returns the servers in a list or map with native keys, and their problems.
pub(super) fn servers(path: &str, collection: &Node) -> (Vec<ServerNode>, Vec<ConfigProblem>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    let mut take = |name: Option<(&str, Position)>, node: &Node, path: String| {
        let (node, found) = if node.is_map() { manifest_server(name, node, &path) } else { (node.clone(), Vec::new()) };
        problems.extend(found);
        servers.push(ServerNode { path, node, project: None, unsupported: None });
    };
    match &collection.kind {
        NodeKind::List(items) => {
            (0..).zip(items).for_each(|(index, item)| take(None, item, format_path(path, &[PathStep::Index(index)])));
        }
        NodeKind::Map(entries) => {
            for entry in entries {
                take(
                    Some((&entry.key, entry.position)),
                    &entry.value,
                    format_path(path, &[PathStep::Key(entry.key.clone())]),
                );
            }
        }
        NodeKind::Scalar { .. } => {}
    }
    (servers, problems)
}

/// Moves the keys under `connection` in a native entry to the entry itself, and returns their problems.
pub(super) fn flatten_connection(server: Node, path: &str) -> (Node, Vec<ConfigProblem>) {
    if server.get("connection").is_none() {
        return (server, Vec::new());
    }
    let mut settings =
        ManifestServer { path, is_manifest: false, entries: Vec::new(), sources: Vec::new(), problems: Vec::new() };
    settings.read_all(&server);
    (Node::map(server.position, settings.entries), settings.problems)
}

/// Translates a server in a manifest. `name` is its key in a map.
fn manifest_server(name: Option<(&str, Position)>, server: &Node, path: &str) -> (Node, Vec<ConfigProblem>) {
    let mut settings =
        ManifestServer { path, is_manifest: true, entries: Vec::new(), sources: Vec::new(), problems: Vec::new() };
    settings.read_alias(name, server);
    settings.read_all(server);
    (Node::map(server.position, settings.entries), settings.problems)
}

/// Collects a server's native keys.
struct ManifestServer<'a> {
    path: &'a str,
    is_manifest: bool,
    entries: Vec<Entry>,
    /// Each entry's key in the file.
    sources: Vec<String>,
    problems: Vec<ConfigProblem>,
}

impl ManifestServer<'_> {
    fn problem(&mut self, position: Position, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(position, self.path, message));
    }

    fn read_alias(&mut self, name: Option<(&str, Position)>, server: &Node) {
        let given = |key: &&str| server.get(key).filter(|node| !node.is_null());
        if let Some((name, position)) = name {
            self.put("alias", position, Node::string(position, name), "the key of the server".to_owned());
            // `name` and `id` may be display names.
            for key in ["alias", "serverName", "server_name"] {
                if let Some(other) = given(&key).filter(|other| other.as_str() != Some(name)) {
                    let (name, other_name) = (in_backticks(name), shown(other));
                    self.problem(other.position, format!("`{key}: {other_name}` conflicts with the key {name}"));
                }
            }
            return;
        }
        let mut given = ["alias"].iter().chain(&ALIAS_SYNONYMS).filter_map(|key| Some((*key, given(key)?)));
        let Some((key, alias)) = given.next() else { return };
        if let Some((other, value)) = given.next().filter(|(_, value)| value.as_str() != alias.as_str())
            && ALIAS_SYNONYMS[..2].contains(&other)
        {
            self.problem(value.position, format!("`{other}` conflicts with `{key}`; keep one of them"));
        }
        self.put("alias", alias.position, alias.clone(), key.to_owned());
    }

    fn read_all(&mut self, server: &Node) {
        for Entry { key, position, value } in server.entries() {
            match key.as_str() {
                "connection" if value.is_null() => {}
                "connection" if value.is_map() => self.read_connection(value),
                "connection" => {
                    let path = format!("{}.connection", self.path);
                    let problem = ConfigProblem::mismatch(value.position, path, value.describe_kind(), "a map");
                    self.problems.push(problem);
                }
                "alias" if self.is_manifest => {}
                key if self.is_manifest && (ALIAS_SYNONYMS.contains(&key) || IGNORED_KEYS.contains(&key)) => {}
                key => self.take(key, *position, value, key.to_owned()),
            }
        }
    }

    fn read_connection(&mut self, connection: &Node) {
        for Entry { key, position, value } in connection.entries() {
            if CONNECTION_KEYS.contains(&key.as_str()) || (self.is_manifest && SYNONYMS.contains(&key.as_str())) {
                self.take(key, *position, value, format!("connection.{key}"));
            } else {
                let path = format!("{}.connection", self.path);
                self.problems.push(ConfigProblem::unknown_key(*position, path, key, CONNECTION_KEYS));
            }
        }
    }

    /// Adds a key under its native name. Unknown keys are kept, and reported by the decoder.
    fn take(&mut self, key: &str, position: Position, value: &Node, source: String) {
        let has_synonyms = match key {
            "command" => !matches!(value.kind, NodeKind::Scalar { .. }),
            "transport" => true,
            key => SYNONYMS.contains(&key),
        };
        if !self.is_manifest || !has_synonyms {
            return self.put(key, position, value.clone(), source);
        }
        match translate_key(key, position, value) {
            Ok(entries) => {
                for entry in entries {
                    self.put(&entry.key, entry.position, entry.value, source.clone());
                }
            }
            Err(mut problem) => {
                problem.path = format!("{}.{source}{}", self.path, problem.path);
                self.problems.push(problem);
            }
        }
    }

    /// Adds a setting. Two keys for the same setting conflict, unless they are maps without common keys.
    fn put(&mut self, key: &str, position: Position, value: Node, source: String) {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else {
            self.entries.push(Entry { key: key.to_owned(), position, value });
            self.sources.push(source);
            return;
        };
        let conflict = format!("`{source}` conflicts with `{}`", self.sources[at]);
        let known = &mut self.entries[at].value;
        if !(known.is_map() && value.is_map()) || key == "auth" {
            return self.problem(position, format!("{conflict}; keep one of them"));
        }
        let duplicate = {
            let names: HashSet<&str> = known.entries().iter().map(|entry| entry.key.as_str()).collect();
            value.entries().iter().find(|entry| names.contains(entry.key.as_str())).map(|entry| entry.key.clone())
        };
        match duplicate {
            Some(name) => {
                self.problem(position, format!("{conflict}: both set `{key}.{}`", redact_key(&name)));
            }
            None => *known = std::mem::replace(known, Node::string(position, "")).merge_over(&value),
        }
    }
}

fn shown(node: &Node) -> String {
    node.as_str().map_or_else(|| node.describe_kind(), |text| in_backticks(text).trim_matches('`').to_owned())
}
