//! Reading a configuration file: from its text to its meaning, or to all that is wrong with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use super::foreign::Translation;
use super::node::{Entry, Kind, Node, Place, Step, Written, path_text};
use super::problem::{ConfigError, ConfigProblem, MAX_PROBLEMS, in_backticks, nearest, one_of};
use super::raw::{NO_DEFAULTS, Pairs, RawChat, RawCollisions, RawLock, RawServer, Short};
use super::reference::workspace;
use super::resolve::{ALIAS, Globs, Surroundings, path, resolve, resolve_chat, unknown_server};
use super::secrets::{Secrets, read_variables};
use super::yaml::check_count;
use super::{
    CollisionPolicy, Config, LockPolicy, ServerEntry, ServerSettings, decode, foreign, json, manifest, toml, yaml,
};
use crate::tool::Alias;

/// The largest file that is read.
const LARGEST: usize = 4 << 20;

/// The largest JSON file: it cannot grow, and other clients keep much else in the same file.
const LARGEST_JSON: usize = 64 << 20;

/// Maximum servers of a file.
const MAX_SERVERS: usize = 10_000;

/// Maximum bytes of what the file says for all servers, once it is copied to each of them.
const MAX_COPIED: usize = 16 << 20;

/// How many unknown names of servers are compared with those of the file.
const MAX_SUGGESTIONS: usize = 20;

/// Maximum servers among which the meant one is looked for.
const MAX_CANDIDATES: usize = 1000;

const KEYS: [&str; 8] =
    ["defaults", "servers", "enabled_servers", "tool_allowlist", "collisions", "lock", "secrets_file", "chat"];

/// The keys of `config` in a manifest.
const MANIFEST_KEYS: [&str; 9] = [
    "enabled",
    "defaults",
    "servers",
    "enabled_servers",
    "tool_allowlist",
    "collisions",
    "lock",
    "secrets_file",
    "chat",
];

impl Config {
    /// Reads a file: a `ropeway.yaml`, or the file of another client.
    ///
    /// This follows every `${NAME}` and `${file:…}` of the file and reads the `.env` beside it, as the file says: the caller decides
    /// whether the file is to be trusted. A `Bridge` over the result runs the commands of the file and sends the
    /// values to the URLs that it names. To show a file from elsewhere to a person first, read it once with [`read_text`], show its
    /// [`review`](super::review()), and [`parse`](Self::parse) the same text.
    pub fn load(path: &Path, secrets: &Secrets) -> Result<Self, ConfigError> {
        Self::parse(&read_text(path)?, path, secrets)
    }

    /// The meaning of a text that is, or could be, in the file `origin`. Like [`load`](Self::load) it reads the files that the text
    /// names, unless the sources are [`Secrets::unread`].
    pub fn parse(text: &str, origin: &Path, secrets: &Secrets) -> Result<Self, ConfigError> {
        let mut document = Document::parse(text, origin)?;
        let folder = origin.parent().unwrap_or(Path::new(""));
        let home = secrets.home();
        let mut files = secrets.files(folder);
        files.extend(document.secrets_file.as_ref().map(|(written, _)| path(written, folder, home.as_deref())));
        let named = if secrets.is_unread() { None } else { document.open_secrets_file(folder, home.as_deref()) };
        let sources = secrets.open(folder, named)?;
        document.warnings.extend(sources.warnings.iter().cloned());
        let workspace = workspace(origin);
        let is_foreign = document.is_foreign;
        let around = Surroundings { sources: &sources, folder, workspace, home, is_foreign, globs: Globs::default() };
        let mut config = document.resolve(origin, &around)?;
        files.append(&mut config.files);
        Ok(Self { files, ..config })
    }
}

/// Reads the text of a configuration file, up to the largest size that is supported.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error| ConfigError::unreadable(path, error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let largest = largest(path);
    let mut bytes = Vec::new();
    file.take(largest as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > largest {
        let size = std::fs::metadata(path).map_or(bytes.len() as u64, |metadata| metadata.len());
        return Err(ConfigError::new(path, vec![too_large(size, largest)]));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let place = super::node::Lines::new(&text).place(text.len());
        ConfigError::new(path, vec![ConfigProblem::at(place, "", "bytes that are not UTF-8", "text")])
    })
}

fn largest(path: &Path) -> usize {
    if Format::of(path, "") == Format::Json { LARGEST_JSON } else { LARGEST }
}

fn too_large(size: u64, largest: usize) -> ConfigProblem {
    let found = format!("a file of {:.1} MiB", size as f64 / f64::from(1 << 20));
    ConfigProblem::of_file(found, format!("at most {} MiB", largest >> 20))
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Yaml,
    Json,
    Toml,
}

impl Format {
    fn of(path: &Path, text: &str) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json" | "jsonc" | "json5") => Self::Json,
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ if text.trim_start().starts_with(['{', '/']) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The tree of a text.
pub(super) fn parse_tree(text: &str, origin: &Path) -> Result<Node, ConfigError> {
    let fail = |problem| ConfigError::new(origin, vec![problem]);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let largest = largest(origin);
    if text.len() > largest {
        return Err(fail(too_large(text.len() as u64, largest)));
    }
    if text.trim().is_empty() {
        return Err(fail(yaml::empty()));
    }
    let tree = match Format::of(origin, text) {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
        Format::Toml => toml::parse(text),
    };
    let tree = tree.map_err(fail)?;
    check_server_count(&tree).map_err(fail)?;
    Ok(tree)
}

/// Refuses a file with too many servers, before work is done for each of them.
fn check_server_count(tree: &Node) -> Result<(), ConfigProblem> {
    const PATHS: [&[&str]; 7] = [
        &["servers"],
        &["config", "servers"],
        &["services", "mcp"],
        &["mcpServers"],
        &["mcp_servers"],
        &["context_servers"],
        &["mcp", "servers"],
    ];
    let everywhere = PATHS.iter().filter_map(|path| path.iter().try_fold(tree, |node, key| node.get(key)));
    let projects = tree.get("projects").map(Node::entries).unwrap_or_default();
    let of_projects = projects.iter().filter_map(|project| project.value.get("mcpServers"));
    let mut count = 0;
    for servers in everywhere.chain(of_projects) {
        count += servers.items().len() + servers.entries().len();
        if count > MAX_SERVERS {
            let (found, expected) = (format!("{count} servers"), format!("at most {MAX_SERVERS}"));
            return Err(ConfigProblem::at(servers.place, "", found, expected));
        }
    }
    Ok(())
}

/// The tools that servers may offer: of all servers, or by alias.
pub(super) type ToolAllowlist = Short<Vec<String>, Pairs<Vec<String>>>;

/// A file, taken apart but not yet understood.
#[derive(Default)]
pub(super) struct Document {
    pub(super) servers: Vec<Written>,
    pub(super) is_foreign: bool,
    /// What the paths of settings begin with: `config.` in a manifest.
    pub(super) base: &'static str,
    /// Where a manifest says that it is switched off.
    switched_off: Option<Place>,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) defaults: Option<Node>,
    enabled_servers: Option<Node>,
    /// The aliases in `enabled_servers`.
    enabled: Option<HashSet<String>>,
    pub(super) tool_allowlist: Option<(ToolAllowlist, Node)>,
    /// Where in `tool_allowlist` each alias is.
    listed: HashMap<String, usize>,
    pub(super) collisions: Option<CollisionPolicy>,
    pub(super) lock: Option<LockPolicy>,
    pub(super) secrets_file: Option<(String, Place)>,
    pub(super) chat: Option<(RawChat, Node)>,
}

impl Document {
    pub(super) fn parse(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let tree = parse_tree(text, origin)?;
        let collections = manifest::collections(&tree);
        let translation = foreign::translate(&tree);
        let has_list = matches!(tree.get("servers"), Some(Node { kind: Kind::List(_), .. }));
        // Whichever of them were meant, the others would be there in vain.
        let twice = match (&collections[..], &translation) {
            ([(key, _), ..], _) if has_list => Some(("servers", format!("both `servers` and `{key}`"))),
            ([(key, _), ..], Some(Translation { key: other, .. })) => {
                Some(("", format!("both `{key}` and `{other}`, which is another client's")))
            }
            ([], Some(Translation { key, .. })) if has_list => {
                Some(("servers", format!("both `servers` and `{key}`, which is another client's")))
            }
            _ => None,
        };
        if let Some((path, found)) = twice {
            let at = tree.place_of(&[Step::Key("servers".into())]);
            let problem = ConfigProblem::at(at, path, found, "the servers in one of them");
            return Err(ConfigError::new(origin, vec![problem]));
        }
        Ok(match translation {
            _ if !collections.is_empty() => Self::manifest(&tree, &collections),
            Some(Translation { servers, warnings, problems, .. }) => {
                Self { servers, warnings, problems, is_foreign: true, ..Self::default() }
            }
            None => Self::own(tree),
        })
    }

    /// A manifest: servers under `config.servers` or `services.mcp`, what is said of all of them in `config`, and much else.
    fn manifest(tree: &Node, collections: &[(String, &Node)]) -> Self {
        let mut document = Self { base: "config.", ..Self::default() };
        for (path, collection) in collections {
            let (servers, problems) = manifest::servers(path, collection);
            document.servers.extend(servers);
            document.problems.extend(problems);
        }
        let config = tree.get("config");
        // Beside `services.mcp`, much else may be in there.
        let is_ours = config.is_some_and(|config| config.get("servers").is_some());
        let settings = config.map(Node::entries).unwrap_or_default();
        if let Err(problem) = check_count(settings) {
            document.problems.push(problem);
            return document;
        }
        for Entry { key, place, value } in settings {
            if document.is_full() {
                break;
            }
            let meant = nearest(key, MANIFEST_KEYS);
            match key.as_str() {
                "servers" => {}
                "enabled" => document.take_switch(value, "config.enabled"),
                // Nothing would be no restriction.
                "enabled_servers" | "tool_allowlist" if value.is_nothing() => {
                    let path = format!("config.{key}");
                    document.problems.push(ConfigProblem::at(value.place, path, "nothing", "a list"));
                }
                _ if KEYS.contains(&key.as_str()) => document.take_setting(key, value.clone()),
                "$schema" => {}
                _ if is_ours || meant.is_some() => {
                    let found = format!("the unknown key {}", in_backticks(key));
                    let others = if meant.is_some() { String::new() } else { one_of(MANIFEST_KEYS) };
                    document.problems.push(ConfigProblem::at(*place, "config", found, others).suggest(meant));
                }
                _ => {}
            }
        }
        document.problems.extend(manifest::misplaced(tree));
        for Entry { key, place, value } in tree.entries() {
            match key.as_str() {
                "enabled" => document.take_switch(value, "enabled"),
                "defaults" | "collisions" | "secrets_file" | "chat" => document
                    .warnings
                    .push(format!("`{key}` ({}:{}) has no effect here; `config.{key}` has", place.line, place.column)),
                _ => {}
            }
        }
        document
    }

    /// Returns true once there are more problems than are shown.
    fn is_full(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    /// The switch of a manifest as a whole.
    fn take_switch(&mut self, value: &Node, path: &str) {
        match decode::decode::<bool>(value, path) {
            Ok(true) => {}
            Ok(false) => self.switched_off = Some(value.place),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// A `ropeway.yaml`.
    fn own(tree: Node) -> Self {
        let mut document = Self::default();
        let Kind::Map(entries) = tree.kind else {
            let problem =
                ConfigProblem::at(tree.place, "", tree.describe_kind(), format!("a map with {}", one_of(KEYS)));
            document.problems.push(problem);
            return document;
        };
        let has_servers = entries.iter().any(|entry| entry.key == "servers");
        for Entry { key, place, value } in entries {
            if document.is_full() {
                break;
            }
            match key.as_str() {
                "servers" if !value.is_nothing() => document.take_servers(value),
                _ if KEYS.contains(&key.as_str()) => document.take_setting(&key, value),
                // Editors find the schema so.
                "$schema" => {}
                _ => {
                    let found = format!("the unknown key {}", in_backticks(&key));
                    let meant = nearest(&key, KEYS);
                    let others = if meant.is_some() { String::new() } else { one_of(KEYS) };
                    document.problems.push(ConfigProblem::at(place, "", found, others).suggest(meant));
                }
            }
        }
        if !has_servers && document.chat.is_none() && document.problems.is_empty() {
            document.problems.push(ConfigProblem::at(tree.place, "", "no `servers`", "a list of them"));
        }
        document
    }

    /// What is said of the file as a whole; a key with nothing behind it says nothing.
    fn take_setting(&mut self, key: &str, value: Node) {
        let path = format!("{}{key}", self.base);
        match key {
            // A list of tools that may be used is never no list.
            "tool_allowlist" if value.is_nothing() => {
                self.problems.push(ConfigProblem::at(value.place, path, "nothing", "a list of globs or a map"));
            }
            _ if value.is_nothing() => {}
            "defaults" => self.take_defaults(value, &path),
            "enabled_servers" if value.items().len() > MAX_SERVERS => {
                let (found, expected) = (format!("{} names", value.items().len()), format!("at most {MAX_SERVERS}"));
                self.problems.push(ConfigProblem::at(value.place, path, found, expected));
            }
            "enabled_servers" => match decode::decode::<Vec<String>>(&value, &path) {
                Ok(names) => {
                    self.enabled = Some(names.into_iter().collect());
                    self.enabled_servers = Some(value);
                }
                Err(problem) => self.problems.push(problem),
            },
            "tool_allowlist" => match decode::decode(&value, &path) {
                Ok(lists) => {
                    if let Short::Full(Pairs(servers)) = &lists {
                        self.listed = (0..).zip(servers).map(|(at, (alias, _))| (alias.clone(), at)).collect();
                    }
                    self.tool_allowlist = Some((lists, value));
                }
                Err(problem) => self.problems.push(problem),
            },
            "collisions" => match decode::decode(&value, &path) {
                Ok(collisions) => self.collisions = Some(meaning(collisions)),
                Err(problem) => self.problems.push(problem),
            },
            "lock" => match decode::decode(&value, &path) {
                Ok(RawLock::Off) => self.lock = Some(LockPolicy::Off),
                Ok(RawLock::Warn) => self.lock = Some(LockPolicy::Warn),
                Ok(RawLock::Strict) => self.lock = Some(LockPolicy::Strict),
                Err(problem) => self.problems.push(problem),
            },
            "secrets_file" => match decode::decode(&value, &path) {
                Ok(file) => self.secrets_file = Some((file, value.place)),
                Err(problem) => self.problems.push(problem),
            },
            "chat" => {
                let (chat, problems) = decode::decode_all(&value, &path);
                self.chat = chat.map(|chat| (chat, value));
                self.problems.extend(problems);
            }
            _ => {}
        }
    }

    fn take_servers(&mut self, value: Node) {
        let Kind::List(servers) = value.kind else {
            let problem =
                ConfigProblem::at(value.place, "servers", value.describe(), "a list, each item with an `alias`");
            self.problems.push(problem);
            return;
        };
        for (index, server) in servers.into_iter().enumerate() {
            if self.is_full() {
                break;
            }
            let path = format!("servers[{index}]");
            let (node, problems) = manifest::flattened(server, &path);
            self.problems.extend(problems);
            self.servers.push(Written { path, node, refusal: None });
        }
    }

    fn take_defaults(&mut self, value: Node, path: &str) {
        for entry in value.entries().iter().filter(|entry| NO_DEFAULTS.contains(&entry.key.as_str())) {
            let found = format!("`{}`", entry.key);
            self.problems.push(ConfigProblem::at(entry.place, path, found, "it at each server that needs it"));
        }
        // Defaults are a server without a name.
        let alias = Entry { key: "alias".into(), place: value.place, value: Node::text(value.place, "defaults") };
        let mut named = Node::map(value.place, vec![alias]).over(&value);
        named.remove(&[Step::Key("connection".into())]);
        let checked = if value.is_map() { named } else { value.clone() };
        let (_, problems) = decode::decode_all::<RawServer>(&checked, path);
        if problems.is_empty() {
            self.defaults = Some(value);
        }
        self.problems.extend(problems);
    }

    /// The secrets in the file that the configuration names.
    fn open_secrets_file(&mut self, folder: &Path, home: Option<&Path>) -> Option<BTreeMap<String, String>> {
        let (written, place) = self.secrets_file.as_ref()?;
        match read_variables(&path(written, folder, home)) {
            Ok(variables) => Some(variables),
            Err(error) => {
                let found = format!("{}, which could not be read: {}", in_backticks(written), error.describe());
                let expected = "a file with lines of `NAME=value`";
                self.problems.push(ConfigProblem::at(*place, format!("{}secrets_file", self.base), found, expected));
                None
            }
        }
    }

    /// A server with the defaults of the file, and what is wrong with it.
    pub(super) fn decode(&self, written: &Written) -> (Option<RawServer>, Vec<ConfigProblem>) {
        decode::decode_all(&self.with_defaults(&written.node), &written.path)
    }

    pub(super) fn with_defaults(&self, node: &Node) -> Node {
        match &self.defaults {
            Some(defaults) if node.is_map() => node.clone().over(defaults),
            _ => node.clone(),
        }
    }

    /// Returns false for a server that the file as a whole switches off.
    pub(super) fn enables(&self, alias: &str) -> bool {
        self.switched_off.is_none() && self.enabled.as_ref().is_none_or(|enabled| enabled.contains(alias))
    }

    /// The list of tools that the file as a whole has for a server.
    pub(super) fn allowlist(&self, alias: &str) -> Option<&[String]> {
        match &self.tool_allowlist.as_ref()?.0 {
            Short::Short(globs) => Some(globs),
            Short::Full(servers) => servers.0.get(*self.listed.get(alias)?).map(|(_, globs)| globs.as_slice()),
        }
    }

    /// Checks that the settings for all servers stay small once every server has a copy of them.
    fn check_copies(&self) -> Result<(), ConfigProblem> {
        let shared = match &self.tool_allowlist {
            Some((Short::Short(_), list)) => Some(("tool_allowlist", list)),
            _ => None,
        };
        let mut copied = 0;
        for (key, node) in self.defaults.iter().map(|defaults| ("defaults", defaults)).chain(shared) {
            copied = node.weight().saturating_mul(self.servers.len()).saturating_add(copied);
            if copied > MAX_COPIED {
                let found =
                    format!("settings that grow past {} MiB with {} servers", MAX_COPIED >> 20, self.servers.len());
                return Err(ConfigProblem::at(node.place, format!("{}{key}", self.base), found, "fewer of them"));
            }
        }
        Ok(())
    }

    /// Checks the list of tools of the file as a whole.
    fn check_allowlist(
        &self,
        aliases: &HashMap<String, Place>,
        around: &Surroundings<'_>,
        config: &mut Config,
        problems: &mut Vec<ConfigProblem>,
    ) {
        let Some((lists, node)) = &self.tool_allowlist else { return };
        let path = format!("{}tool_allowlist", self.base);
        let check = |globs: &[String], node: &Node, path: &str, problems: &mut Vec<ConfigProblem>| {
            for (index, (glob, item)) in globs.iter().zip(node.items()).enumerate() {
                if problems.len() > MAX_PROBLEMS {
                    return;
                }
                if let Err(expected) = around.globs.check(glob) {
                    let found = in_backticks(glob);
                    problems.push(ConfigProblem::at(item.place, format!("{path}[{index}]"), found, expected));
                }
            }
        };
        match lists {
            Short::Short(globs) => {
                check(globs, node, &path, problems);
                if globs.is_empty() {
                    config.warnings.push(format!("`{path}` is empty: all tools of all servers are hidden"));
                }
            }
            Short::Full(servers) => {
                let mut suggestions = Suggestions::among(aliases);
                for ((alias, globs), entry) in servers.0.iter().zip(node.entries()) {
                    if problems.len() > MAX_PROBLEMS {
                        return;
                    }
                    let path = path_text(&path, &[Step::Key(alias.clone())]);
                    check(globs, &entry.value, &path, problems);
                    if !aliases.contains_key(alias) {
                        problems.push(unknown_server(entry.place, path, alias, suggestions.next()));
                    } else if globs.is_empty() {
                        config.warnings.push(format!("`{path}` is empty: all tools of server `{alias}` are hidden"));
                    }
                }
            }
        }
    }

    fn resolve(mut self, origin: &Path, around: &Surroundings<'_>) -> Result<Config, ConfigError> {
        let mut problems = std::mem::take(&mut self.problems);
        if let Err(problem) = self.check_copies() {
            problems.push(problem);
            return Err(ConfigError::new(origin, problems));
        }
        let warnings = std::mem::take(&mut self.warnings);
        let mut config = Config { collisions: CollisionPolicy::Error, warnings, ..Config::default() };
        config.lock = self.lock;
        if let Some(collisions) = self.collisions {
            config.collisions = collisions;
        }
        if let Some((raw, node)) = &self.chat {
            match resolve_chat(raw, node, around) {
                Ok(resolved) => {
                    config.warnings.extend(resolved.chat.warnings.iter().cloned());
                    config.chat = Some(resolved.chat);
                    config.files.extend(resolved.files);
                }
                Err(found) => problems.extend(found),
            }
        }
        let broken: HashSet<String> = problems.iter().map(|problem| problem.path.clone()).collect();
        let mut aliases: HashMap<String, Place> = HashMap::new();
        for written in &self.servers {
            // The aliases of the other servers are not known, so nothing after this can be checked.
            if problems.len() > MAX_PROBLEMS {
                return Err(ConfigError::new(origin, problems));
            }
            let Written { path, refusal, .. } = written;
            let node = self.with_defaults(&written.node);
            let (raw, found) = decode::decode_all::<RawServer>(&node, path);
            let is_broken = !found.is_empty() || broken.contains(path);
            problems.extend(found);
            let Some(mut raw) = raw else {
                // Even of a broken server the name is known, so that nobody looks for it in vain.
                if let Some(alias) = node.get("alias").and_then(Node::as_text) {
                    aliases.entry(alias.to_owned()).or_insert(node.place);
                }
                continue;
            };
            let at = node.place_of(&[Step::Key("alias".into())]);
            if let Some(first) = aliases.get(&raw.alias) {
                let found = format!("the alias {} a second time", in_backticks(&raw.alias));
                let expected = format!("one of its own; {}:{} has it already", first.line, first.column);
                problems.push(ConfigProblem::at(at, path_text(path, &[Step::Key("alias".into())]), found, expected));
                continue;
            }
            aliases.insert(raw.alias.clone(), at);
            if !self.enables(&raw.alias) {
                raw.enabled = Some(false);
            }
            if let Some(refusal) = refusal {
                let entry = refused(&raw, refusal.to_string());
                config.warnings.extend(entry.warning());
                config.servers.push(entry);
                continue;
            }
            match resolve(&raw, &node, path, around) {
                Ok(mut resolved) => {
                    resolved.entry.tools.allowlists.extend(self.allowlist(&raw.alias).map(<[String]>::to_vec));
                    config.servers.push(resolved.entry);
                    config.warnings.extend(resolved.warnings);
                    config.files.extend(resolved.files);
                }
                // What is missing may be what was misspelled.
                Err(found) => problems.extend(found.into_iter().filter(|problem| !is_broken || problem.path != *path)),
            }
        }
        if let Some(enabled) = &self.enabled_servers {
            config.enabled_servers = Some(enabled.items().iter().filter_map(Node::as_text).map(Alias::from).collect());
            let mut suggestions = Suggestions::among(&aliases);
            for (index, item) in enabled.items().iter().enumerate() {
                if problems.len() > MAX_PROBLEMS {
                    break;
                }
                let name = item.as_text().unwrap_or_default();
                if !aliases.contains_key(name) {
                    let path = format!("{}enabled_servers[{index}]", self.base);
                    problems.push(unknown_server(item.place, path, name, suggestions.next()));
                }
            }
        }
        self.check_allowlist(&aliases, around, &mut config, &mut problems);
        if let Some(Place { line, column }) = self.switched_off {
            config.warnings.push(format!("all servers are switched off: `enabled: false` at {line}:{column}"));
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::new(origin, problems)) }
    }
}

/// The aliases that an unknown name is compared with, for the first unknown names of a list.
struct Suggestions<'a> {
    candidates: Vec<&'a str>,
    left: usize,
}

impl<'a> Suggestions<'a> {
    fn among(aliases: &'a HashMap<String, Place>) -> Self {
        let names = aliases.keys().map(String::as_str).filter(|alias| alias.len() <= ALIAS);
        let mut candidates: Vec<&str> = if aliases.len() > MAX_CANDIDATES { Vec::new() } else { names.collect() };
        candidates.sort_unstable();
        Self { candidates, left: MAX_SUGGESTIONS }
    }

    /// Returns the candidates for the next unknown name.
    fn next(&mut self) -> &[&'a str] {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                &self.candidates
            }
            None => &[],
        }
    }
}

/// A server that is not started because of a key that is not supported.
fn refused(raw: &RawServer, reason: String) -> ServerEntry {
    let mut entry = ServerEntry::with_settings(raw.alias.as_str(), ServerSettings::Invalid { reason });
    entry.enabled = raw.enabled.unwrap_or(true);
    entry.required = raw.required.unwrap_or(false);
    entry
}

fn meaning(collisions: RawCollisions) -> CollisionPolicy {
    match collisions {
        RawCollisions::Error => CollisionPolicy::Error,
        RawCollisions::LastWins => CollisionPolicy::LastWins,
        RawCollisions::Suffix => CollisionPolicy::Suffix,
    }
}
