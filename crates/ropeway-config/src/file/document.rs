//! A configuration file, split into servers and settings that are not resolved yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::foreign::{self, Translation};
use super::format::{MAX_SERVERS, parse_tree};
use super::node::{Entry, Node, NodeKind, PathStep, ServerNode};
use super::position::Position;
use super::problem::{ConfigError, ConfigProblem, MAX_PROBLEMS, in_backticks, nearest, one_of};
use super::raw::{RawChat, RawGateway, RawMap, RawServer, RawShorthand, SERVER_ONLY_KEYS};
use super::resolve::expand_path;
use super::tree_checks::check_key_count;
use super::variables::read_variables;
use super::{decode, manifest};
use crate::settings::{CollisionPolicy, LockPolicy};

/// The keys below `config` in a manifest.
const MANIFEST_KEYS: [&str; 10] = [
    "enabled",
    "defaults",
    "servers",
    "enabled_servers",
    "tool_allowlist",
    "collisions",
    "lock",
    "secrets_file",
    "chat",
    "gateway",
];

/// A native file's top-level keys.
const KEYS: &[&str] = MANIFEST_KEYS.split_at(1).1;

/// Globs for allowed tools: for all servers, or by alias.
pub(super) type ToolAllowlist = RawShorthand<Vec<String>, RawMap<Vec<String>>>;

/// A configuration file's contents, with native keys.
#[derive(Default)]
pub(super) struct Document {
    pub(super) servers: Vec<ServerNode>,
    pub(super) is_foreign: bool,
    /// The prefix for setting paths: `config.` in a manifest.
    pub(super) base: &'static str,
    /// Where a manifest has `enabled: false`.
    pub(super) disabled_at: Option<Position>,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) defaults: Option<Node>,
    pub(super) enabled_servers: Option<Node>,
    /// The aliases in `enabled_servers`.
    enabled: Option<HashSet<String>>,
    pub(super) tool_allowlist: Option<(ToolAllowlist, Node)>,
    /// Each alias's index in `tool_allowlist`.
    allowlist_index: HashMap<String, usize>,
    pub(super) collisions: Option<CollisionPolicy>,
    pub(super) lock: Option<LockPolicy>,
    pub(super) secrets_file: Option<(String, Position)>,
    pub(super) chat: Option<(RawChat, Node)>,
    pub(super) gateway: Option<(RawGateway, Node)>,
}

impl Document {
    pub(super) fn parse(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let tree = parse_tree(text, origin)?;
        let collections = manifest::collections(&tree);
        let translation = foreign::translate(&tree);
        let has_list = matches!(tree.get("servers"), Some(Node { kind: NodeKind::List(_), .. }));
        // Only one collection would be used.
        let conflict = match (&collections[..], &translation) {
            ([(key, _), ..], _) if has_list => {
                Some(("servers", format!("`servers` conflicts with `{key}`; keep one of them")))
            }
            ([(key, _), ..], Some(Translation { key: other, .. })) => {
                Some(("", format!("`{key}` conflicts with `{other}` of another client; keep one of them")))
            }
            ([], Some(Translation { key, .. })) if has_list => {
                Some(("servers", format!("`servers` conflicts with `{key}` of another client; keep one of them")))
            }
            _ => None,
        };
        if let Some((path, message)) = conflict {
            let at = tree.position_of(&[PathStep::Key("servers".into())]);
            let problem = ConfigProblem::new(at, path, message);
            return Err(ConfigError::new(origin, vec![problem]));
        }
        if collections.is_empty()
            && translation.is_none()
            && !has_list
            && let Some(problem) = manifest::wrong_shape(&tree)
        {
            return Err(ConfigError::new(origin, vec![problem]));
        }
        Ok(match translation {
            _ if !collections.is_empty() => Self::manifest(&tree, &collections),
            Some(Translation { servers, warnings, problems, .. }) => {
                Self { servers, warnings, problems, is_foreign: true, ..Self::default() }
            }
            None => Self::native(tree),
        })
    }

    /// Reads a manifest: servers under `config.servers` or `services.mcp`, and settings under `config`. Ignores other keys.
    fn manifest(tree: &Node, collections: &[(String, &Node)]) -> Self {
        let mut document = Self { base: "config.", ..Self::default() };
        for (path, collection) in collections {
            let (servers, problems) = manifest::servers(path, collection);
            document.servers.extend(servers);
            document.problems.extend(problems);
        }
        let config = tree.get("config");
        // With `services.mcp`, `config` may contain other programs' settings.
        let is_native = config.is_some_and(|config| config.get("servers").is_some());
        let settings = config.map(Node::entries).unwrap_or_default();
        if let Err(problem) = check_key_count(settings) {
            document.problems.push(problem);
            return document;
        }
        for Entry { key, position, value } in settings {
            if document.is_full() {
                break;
            }
            match key.as_str() {
                "servers" => {}
                "enabled" => document.read_enabled(value, "config.enabled"),
                // A missing value would remove the restriction.
                "enabled_servers" | "tool_allowlist" if value.is_null() => {
                    let path = format!("config.{key}");
                    document.problems.push(ConfigProblem::mismatch(value.position, path, "no value", "a list"));
                }
                _ if KEYS.contains(&key.as_str()) => document.read_setting(key, value.clone()),
                "$schema" => {}
                // Another program may use its own key here, but a restriction must have an effect.
                _ if is_native || key == "disabled" || nearest(key, MANIFEST_KEYS).is_some() => {
                    document.problems.push(ConfigProblem::unknown_key(*position, "config", key, MANIFEST_KEYS));
                }
                _ => {}
            }
        }
        document.problems.extend(manifest::misplaced(tree));
        for Entry { key, position, value } in tree.entries() {
            match key.as_str() {
                "enabled" => document.read_enabled(value, "enabled"),
                "defaults" | "collisions" | "secrets_file" | "chat" | "gateway" => document
                    .warnings
                    .push(format!("ignored `{key}` ({}:{}): use `config.{key}`", position.line, position.column)),
                _ => {}
            }
        }
        document
    }

    /// Returns `true` if there are more problems than are reported.
    fn is_full(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    /// Reads a manifest's `enabled` key.
    fn read_enabled(&mut self, value: &Node, path: &str) {
        if self.decode_setting(value, path) == Some(false) {
            self.disabled_at = Some(value.position);
        }
    }

    /// Reads a `ropeway.yaml`.
    fn native(tree: Node) -> Self {
        let mut document = Self::default();
        let NodeKind::Map(entries) = tree.kind else {
            let expected = format!("a map with {}", one_of(KEYS.iter().copied()));
            document.problems.push(ConfigProblem::mismatch(tree.position, "", tree.describe_kind(), expected));
            return document;
        };
        let has_servers = entries.iter().any(|entry| entry.key == "servers");
        for Entry { key, position, value } in entries {
            if document.is_full() {
                break;
            }
            match key.as_str() {
                "servers" if !value.is_null() => document.read_servers(value),
                _ if KEYS.contains(&key.as_str()) => document.read_setting(&key, value),
                "$schema" => {}
                _ => document.problems.push(ConfigProblem::unknown_key(position, "", &key, KEYS.iter().copied())),
            }
        }
        if !has_servers && document.chat.is_none() && document.problems.is_empty() {
            document.problems.push(ConfigProblem::new(tree.position, "", "missing key `servers`"));
        }
        document
    }

    /// Reads a file-level setting. A key without a value has no effect.
    fn read_setting(&mut self, key: &str, value: Node) {
        let path = format!("{}{key}", self.base);
        match key {
            // A missing value would remove the restriction.
            "tool_allowlist" if value.is_null() => {
                let problem = ConfigProblem::mismatch(value.position, path, "no value", "a list of globs or a map");
                self.problems.push(problem);
            }
            _ if value.is_null() => {}
            "defaults" => self.read_defaults(value, &path),
            "enabled_servers" if value.items().len() > MAX_SERVERS => {
                let message = format!("too many names: {} (maximum: {MAX_SERVERS})", value.items().len());
                self.problems.push(ConfigProblem::new(value.position, path, message));
            }
            "enabled_servers" => {
                if let Some(names) = self.decode_setting::<Vec<String>>(&value, &path) {
                    self.enabled = Some(names.into_iter().collect());
                    self.enabled_servers = Some(value);
                }
            }
            "tool_allowlist" => {
                if let Some(lists) = self.decode_setting(&value, &path) {
                    if let RawShorthand::Full(RawMap(servers)) = &lists {
                        self.allowlist_index = (0..).zip(servers).map(|(at, (alias, _))| (alias.clone(), at)).collect();
                    }
                    self.tool_allowlist = Some((lists, value));
                }
            }
            "collisions" => self.collisions = self.decode_setting(&value, &path),
            "lock" => self.lock = self.decode_setting(&value, &path),
            "secrets_file" => {
                self.secrets_file = self.decode_setting(&value, &path).map(|file| (file, value.position));
            }
            "chat" => {
                let (chat, problems) = decode::decode_all(&value, &path);
                self.chat = chat.map(|chat| (chat, value));
                self.problems.extend(problems);
            }
            "gateway" => {
                let (gateway, problems) = decode::decode_all(&value, &path);
                self.gateway = gateway.map(|gateway| (gateway, value));
                self.problems.extend(problems);
            }
            _ => {}
        }
    }

    /// Decodes a setting, or adds its problem.
    fn decode_setting<T: DeserializeOwned>(&mut self, value: &Node, path: &str) -> Option<T> {
        decode::decode(value, path).map_err(|problem| self.problems.push(problem)).ok()
    }

    fn read_servers(&mut self, value: Node) {
        let NodeKind::List(servers) = value.kind else {
            self.problems.push(ConfigProblem::mismatch(value.position, "servers", value.describe(), "a list of maps"));
            return;
        };
        for (index, server) in servers.into_iter().enumerate() {
            if self.is_full() {
                break;
            }
            let path = format!("servers[{index}]");
            let (node, problems) = manifest::flatten_connection(server, &path);
            self.problems.extend(problems);
            self.servers.push(ServerNode { path, node, project: None, unsupported: None });
        }
    }

    fn read_defaults(&mut self, value: Node, path: &str) {
        for entry in value.entries().iter().filter(|entry| SERVER_ONLY_KEYS.contains(&entry.key.as_str())) {
            let message = format!("`{}` is not allowed here; set it for each server", entry.key);
            self.problems.push(ConfigProblem::new(entry.position, path, message));
        }
        // Defaults are decoded as a server without an alias.
        let alias =
            Entry { key: "alias".into(), position: value.position, value: Node::string(value.position, "defaults") };
        let mut named = Node::map(value.position, vec![alias]).merge_over(&value);
        named.remove(&[PathStep::Key("connection".into())]);
        let checked = if value.is_map() { named } else { value.clone() };
        let (_, problems) = decode::decode_all::<RawServer>(&checked, path);
        if problems.is_empty() {
            self.defaults = Some(value);
        }
        self.problems.extend(problems);
    }

    /// Reads the `secrets_file`.
    pub(super) fn open_secrets_file(&mut self, folder: &Path, home: Option<&Path>) -> Option<BTreeMap<String, String>> {
        let (written, position) = self.secrets_file.as_ref()?;
        match read_variables(&expand_path(written, folder, home)) {
            Ok(variables) => Some(variables),
            Err(error) => {
                let message = format!("could not read {}: {}", in_backticks(written), error.describe());
                self.problems.push(ConfigProblem::new(*position, format!("{}secrets_file", self.base), message));
                None
            }
        }
    }

    /// Decodes a server with the file's defaults.
    pub(super) fn decode(&self, server: &ServerNode) -> (Option<RawServer>, Vec<ConfigProblem>) {
        decode::decode_all(&self.with_defaults(&server.node), &server.path)
    }

    /// Adds the file's defaults to a server's entry.
    pub(super) fn with_defaults(&self, node: &Node) -> Node {
        match &self.defaults {
            Some(defaults) if node.is_map() => node.clone().merge_over(defaults),
            _ => node.clone(),
        }
    }

    /// Returns `false` for a server that the file's `enabled` or `enabled_servers` disables.
    pub(super) fn enables(&self, alias: &str) -> bool {
        self.disabled_at.is_none() && self.enabled.as_ref().is_none_or(|enabled| enabled.contains(alias))
    }

    /// Returns the globs for a server in the file's `tool_allowlist`.
    pub(super) fn allowlist(&self, alias: &str) -> Option<&[String]> {
        match &self.tool_allowlist.as_ref()?.0 {
            RawShorthand::Short(globs) => Some(globs),
            RawShorthand::Full(servers) => {
                servers.0.get(*self.allowlist_index.get(alias)?).map(|(_, globs)| globs.as_slice())
            }
        }
    }
}
