//! The servers of a manifest in native words: other names for a setting, keys under `connection`, and conflicts between them.

use std::collections::HashSet;

use super::foreign::{THEIR_OWN, translated};
use super::node::{Entry, Kind, Node, Place, Plain, Step, Written, name_only, path_text, plain};
use super::problem::{ConfigProblem, in_backticks, nearest, one_of};
use super::raw::CONNECTION;

/// Where a manifest has its servers.
const PATHS: [[&str; 2]; 2] = [["config", "servers"], ["services", "mcp"]];

/// Names of a server, besides `alias`. The first two mean nothing else; the others may also be what people call it.
const NAMES: [&str; 4] = ["serverName", "server_name", "name", "id"];

/// Other names for native keys, as other clients have them.
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

/// The lists or maps of servers in a manifest, by the path of each. Empty for any other file.
pub(super) fn collections(tree: &Node) -> Vec<(String, &Node)> {
    let is_collection = |node: &&Node| !matches!(node.kind, Kind::Scalar { .. }) || node.is_nothing();
    let found = PATHS.into_iter().filter_map(|[outer, inner]| {
        let servers = tree.get(outer)?.get(inner).filter(is_collection)?;
        Some((format!("{outer}.{inner}"), servers))
    });
    found.collect()
}

/// Restrictions that have an effect only under `config`.
const RESTRICTIONS: [&str; 3] = ["enabled_servers", "tool_allowlist", "lock"];

/// Keys of a server that restrict it, and that restrict nothing elsewhere.
const OF_A_SERVER: [&str; 6] =
    ["disabledTools", "disabled_tools", "enabledTools", "enabled_tools", "excludeTools", "includeTools"];

/// Returns a problem for each restriction that would have no effect where it is, in the file itself or below `services`.
pub(super) fn misplaced(tree: &Node) -> Vec<ConfigProblem> {
    let services = tree.get("services").map(Node::entries).unwrap_or_default();
    let top = tree.entries().iter().filter_map(|entry| misplaced_at("", entry));
    top.chain(services.iter().filter_map(|entry| misplaced_at("services", entry))).collect()
}

fn misplaced_at(path: &str, Entry { key, place, value }: &Entry) -> Option<ConfigProblem> {
    let is =
        |truth: bool| matches!(&value.kind, Kind::Scalar { text, plain: true } if plain(text) == Plain::Truth(truth));
    let plain_key = |key: &str| key.to_lowercase().replace(['_', '-'], "");
    let outside = |expected: String| {
        Some(ConfigProblem::at(*place, path, format!("{} outside of `config`", in_backticks(key)), expected))
    };
    match plain_key(key).as_str() {
        // The file as a whole has this switch.
        "enabled" if path.is_empty() && key == "enabled" => None,
        "enabled" if !is(true) => outside("`config.enabled`".to_owned()),
        "disabled" if !is(false) && !value.is_nothing() => outside("`config.enabled: false`".to_owned()),
        // Below `services`, it may be the name of a service.
        "lock" if !path.is_empty() && value.is_map() => None,
        _ if OF_A_SERVER.contains(&key.as_str()) => outside("it at each server".to_owned()),
        plain => {
            let meant = RESTRICTIONS.into_iter().find(|known| plain_key(known) == plain)?;
            outside(format!("`config.{meant}`"))
        }
    }
}

/// The servers of one list or map in native words, and what is wrong with them.
pub(super) fn servers(path: &str, collection: &Node) -> (Vec<Written>, Vec<ConfigProblem>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    let mut take = |name: Option<(&str, Place)>, node: &Node, path: String| {
        let (node, found) = if node.is_map() { named(name, node, &path) } else { (node.clone(), Vec::new()) };
        problems.extend(found);
        servers.push(Written { path, node, refusal: None });
    };
    match &collection.kind {
        Kind::List(items) => {
            (0..).zip(items).for_each(|(index, item)| take(None, item, path_text(path, &[Step::Index(index)])));
        }
        Kind::Map(entries) => {
            for entry in entries {
                take(Some((&entry.key, entry.place)), &entry.value, path_text(path, &[Step::Key(entry.key.clone())]));
            }
        }
        Kind::Scalar { .. } => {}
    }
    (servers, problems)
}

/// A native entry with the keys under `connection` beside the others, and what is wrong with them.
pub(super) fn flattened(server: Node, path: &str) -> (Node, Vec<ConfigProblem>) {
    if server.get("connection").is_none() {
        return (server, Vec::new());
    }
    let mut settings =
        ServerSettings { path, is_manifest: false, entries: Vec::new(), sources: Vec::new(), problems: Vec::new() };
    settings.take_all(&server);
    (Node::map(server.place, settings.entries), settings.problems)
}

/// One server of a manifest; `name` is its key in a map.
fn named(name: Option<(&str, Place)>, server: &Node, path: &str) -> (Node, Vec<ConfigProblem>) {
    let mut settings =
        ServerSettings { path, is_manifest: true, entries: Vec::new(), sources: Vec::new(), problems: Vec::new() };
    settings.take_alias(name, server);
    settings.take_all(server);
    (Node::map(server.place, settings.entries), settings.problems)
}

/// The settings of one server so far.
struct ServerSettings<'a> {
    path: &'a str,
    is_manifest: bool,
    entries: Vec<Entry>,
    /// The name in the file of each entry.
    sources: Vec<String>,
    problems: Vec<ConfigProblem>,
}

impl ServerSettings<'_> {
    fn problem(&mut self, place: Place, found: impl Into<String>, expected: impl Into<String>) {
        self.problems.push(ConfigProblem::at(place, self.path, found, expected));
    }

    fn take_alias(&mut self, name: Option<(&str, Place)>, server: &Node) {
        let given = |key: &&str| server.get(key).filter(|node| !node.is_nothing());
        if let Some((name, place)) = name {
            self.put("alias", place, Node::text(place, name), "the key of the server".to_owned());
            // A name may be one for people.
            for key in ["alias", "serverName", "server_name"] {
                if let Some(other) = given(&key).filter(|other| other.as_text() != Some(name)) {
                    let found = format!("both the key {} and `{key}: {}`", in_backticks(name), shown(other));
                    self.problem(other.place, found, "one alias");
                }
            }
            return;
        }
        let mut given = ["alias"].iter().chain(&NAMES).filter_map(|key| Some((*key, given(key)?)));
        let Some((key, alias)) = given.next() else { return };
        if let Some((other, value)) = given.next().filter(|(_, value)| value.as_text() != alias.as_text())
            && NAMES[..2].contains(&other)
        {
            self.problem(value.place, format!("both `{key}` and `{other}`"), "one of them");
        }
        self.put("alias", alias.place, alias.clone(), key.to_owned());
    }

    fn take_all(&mut self, server: &Node) {
        for Entry { key, place, value } in server.entries() {
            match key.as_str() {
                "connection" if value.is_nothing() => {}
                "connection" if value.is_map() => self.take_connection(value),
                "connection" => {
                    self.problem(value.place, format!("{} in `connection`", value.describe_kind()), "a map");
                }
                "alias" if self.is_manifest => {}
                key if self.is_manifest && (NAMES.contains(&key) || THEIR_OWN.contains(&key)) => {}
                key => self.take(key, *place, value, key.to_owned()),
            }
        }
    }

    fn take_connection(&mut self, connection: &Node) {
        for Entry { key, place, value } in connection.entries() {
            if CONNECTION.contains(&key.as_str()) || (self.is_manifest && SYNONYMS.contains(&key.as_str())) {
                self.take(key, *place, value, format!("connection.{key}"));
            } else {
                let meant = nearest(key, CONNECTION);
                let others = if meant.is_some() { String::new() } else { one_of(CONNECTION) };
                let found = format!("the unknown key {} in `connection`", in_backticks(key));
                self.problems.push(ConfigProblem::at(*place, self.path, found, others).suggest(meant));
            }
        }
    }

    /// Takes one key, by its native name. A key that nobody knows stays, so that it is told as in a native file.
    fn take(&mut self, key: &str, place: Place, value: &Node, source: String) {
        let has_synonyms = match key {
            "command" => !matches!(value.kind, Kind::Scalar { .. }),
            "transport" => true,
            key => SYNONYMS.contains(&key),
        };
        if !self.is_manifest || !has_synonyms {
            return self.put(key, place, value.clone(), source);
        }
        match translated(key, place, value) {
            Ok(entries) => {
                for entry in entries {
                    self.put(&entry.key, entry.place, entry.value, source.clone());
                }
            }
            Err(problem) => {
                let path = format!("{}.{source}{}", self.path, problem.path);
                self.problems.push(ConfigProblem { path, ..problem });
            }
        }
    }

    /// Adds a setting. Two names for one setting are an error, unless they are maps that set different things.
    fn put(&mut self, key: &str, place: Place, value: Node, source: String) {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else {
            self.entries.push(Entry { key: key.to_owned(), place, value });
            self.sources.push(source);
            return;
        };
        let both = format!("both `{}` and `{source}`", self.sources[at]);
        let known = &mut self.entries[at].value;
        if !(known.is_map() && value.is_map()) || key == "auth" {
            return self.problem(place, both, "one of them");
        }
        let twice = {
            let names: HashSet<&str> = known.entries().iter().map(|entry| entry.key.as_str()).collect();
            value.entries().iter().find(|entry| names.contains(entry.key.as_str())).map(|entry| entry.key.clone())
        };
        match twice {
            Some(name) => {
                let found = format!("{both}, which set `{key}.{}`", name_only(&name));
                self.problem(place, found, "one of them");
            }
            None => *known = std::mem::replace(known, Node::text(place, "")).over(&value),
        }
    }
}

fn shown(node: &Node) -> String {
    node.as_text().map_or_else(|| node.describe_kind(), |text| in_backticks(text).trim_matches('`').to_owned())
}
