//! Reading a configuration file: from its text to its meaning, or to all that is wrong with it.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

use super::foreign::Translation;
use super::node::{Entry, Kind, Node, Place, Step, path_text};
use super::problem::{ConfigError, ConfigProblem, in_backticks, nearest, one_of};
use super::raw::{NO_DEFAULTS, RawChat, RawCollisions, RawLock, RawServer};
use super::reference::workspace;
use super::resolve::{Surroundings, path, resolve, resolve_chat, unknown_server};
use super::secrets::{Secrets, read_variables};
use super::{Collisions, Config, LockPolicy, decode, foreign, json, toml, yaml};
use crate::tool::Alias;

/// The largest file that is read.
const LARGEST: usize = 4 << 20;

/// The largest JSON file: it cannot grow, and other clients keep much else in the same file.
const LARGEST_JSON: usize = 64 << 20;

const KEYS: [&str; 7] = ["defaults", "servers", "enabled_servers", "collisions", "lock", "secrets_file", "chat"];

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
        let around = Surroundings { sources: &sources, folder, workspace, home, is_foreign: document.is_foreign };
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
    tree.map_err(fail)
}

/// A server as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    /// Its path in the file.
    pub(super) path: String,
    /// What is written, in our own words.
    pub(super) node: Node,
}

/// A file, taken apart but not yet understood.
#[derive(Default)]
pub(super) struct Document {
    pub(super) servers: Vec<Written>,
    pub(super) is_foreign: bool,
    pub(super) warnings: Vec<String>,
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) defaults: Option<Node>,
    pub(super) enabled_servers: Option<Node>,
    pub(super) collisions: Option<Collisions>,
    pub(super) lock: Option<LockPolicy>,
    pub(super) secrets_file: Option<(String, Place)>,
    pub(super) chat: Option<(RawChat, Node)>,
}

impl Document {
    pub(super) fn parse(text: &str, origin: &Path) -> Result<Self, ConfigError> {
        let tree = parse_tree(text, origin)?;
        Ok(match foreign::translate(&tree) {
            // Whichever of them were meant, the others would be there in vain.
            Some(Translation { key, .. }) if matches!(tree.get("servers"), Some(Node { kind: Kind::List(_), .. })) => {
                let found = format!("both `servers` and `{key}`, which is another client's");
                let at = tree.place_of(&[Step::Key("servers".into())]);
                let problem = ConfigProblem::at(at, "servers", found, "the servers in one of them");
                return Err(ConfigError::new(origin, vec![problem]));
            }
            Some(Translation { servers, warnings, .. }) => {
                Self { servers, warnings, is_foreign: true, ..Self::default() }
            }
            None => Self::own(tree),
        })
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
            match key.as_str() {
                _ if value.is_nothing() && KEYS.contains(&key.as_str()) => {}
                "servers" => document.take_servers(value),
                "defaults" => document.take_defaults(value),
                "enabled_servers" => match decode::decode::<Vec<String>>(&value, &key) {
                    Ok(_) => document.enabled_servers = Some(value),
                    Err(problem) => document.problems.push(problem),
                },
                "collisions" => match decode::decode(&value, &key) {
                    Ok(collisions) => document.collisions = Some(meaning(collisions)),
                    Err(problem) => document.problems.push(problem),
                },
                "lock" => match decode::decode(&value, &key) {
                    Ok(RawLock::Off) => document.lock = Some(LockPolicy::Off),
                    Ok(RawLock::Warn) => document.lock = Some(LockPolicy::Warn),
                    Ok(RawLock::Strict) => document.lock = Some(LockPolicy::Strict),
                    Err(problem) => document.problems.push(problem),
                },
                "secrets_file" => match decode::decode(&value, &key) {
                    Ok(path) => document.secrets_file = Some((path, value.place)),
                    Err(problem) => document.problems.push(problem),
                },
                "chat" => {
                    let (chat, problems) = decode::decode_all(&value, &key);
                    document.chat = chat.map(|chat| (chat, value));
                    document.problems.extend(problems);
                }
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

    fn take_servers(&mut self, value: Node) {
        let Kind::List(servers) = value.kind else {
            let problem =
                ConfigProblem::at(value.place, "servers", value.describe(), "a list, each item with an `alias`");
            self.problems.push(problem);
            return;
        };
        let written = servers.into_iter().enumerate();
        self.servers = written.map(|(index, node)| Written { path: format!("servers[{index}]"), node }).collect();
    }

    fn take_defaults(&mut self, value: Node) {
        for entry in value.entries().iter().filter(|entry| NO_DEFAULTS.contains(&entry.key.as_str())) {
            let found = format!("`{}`", entry.key);
            self.problems.push(ConfigProblem::at(entry.place, "defaults", found, "it at each server that needs it"));
        }
        // Defaults are a server without a name.
        let alias = Entry { key: "alias".into(), place: value.place, value: Node::text(value.place, "defaults") };
        let named = Node::map(value.place, vec![alias]).over(&value);
        let checked = if value.is_map() { named } else { value.clone() };
        let (_, problems) = decode::decode_all::<RawServer>(&checked, "defaults");
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
                self.problems.push(ConfigProblem::at(*place, "secrets_file", found, expected));
                None
            }
        }
    }

    fn resolve(self, origin: &Path, around: &Surroundings<'_>) -> Result<Config, ConfigError> {
        let mut problems = self.problems;
        let mut config = Config { collisions: Collisions::Error, warnings: self.warnings, ..Config::default() };
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
        let mut aliases: HashMap<String, Place> = HashMap::new();
        for Written { path, node } in self.servers {
            let node = match &self.defaults {
                Some(defaults) if node.is_map() => node.over(defaults),
                _ => node,
            };
            let (raw, found) = decode::decode_all::<RawServer>(&node, &path);
            let is_broken = !found.is_empty();
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
                problems.push(ConfigProblem::at(at, path_text(&path, &[Step::Key("alias".into())]), found, expected));
                continue;
            }
            aliases.insert(raw.alias.clone(), at);
            if let Some(enabled) = &self.enabled_servers {
                let is_named = enabled.items().iter().any(|item| item.as_text() == Some(raw.alias.as_str()));
                raw.enabled = Some(is_named && raw.enabled.unwrap_or(true));
            }
            match resolve(&raw, &node, &path, around) {
                Ok(resolved) => {
                    config.servers.push(resolved.entry);
                    config.warnings.extend(resolved.warnings);
                    config.files.extend(resolved.files);
                }
                // What is missing may be what was misspelled.
                Err(found) => problems.extend(found.into_iter().filter(|problem| !is_broken || problem.path != path)),
            }
        }
        if let Some(enabled) = &self.enabled_servers {
            config.enabled_servers = Some(enabled.items().iter().filter_map(Node::as_text).map(Alias::from).collect());
            let mut known: Vec<&str> = aliases.keys().map(String::as_str).collect();
            known.sort_unstable();
            for (index, item) in enabled.items().iter().enumerate() {
                let name = item.as_text().unwrap_or_default();
                if !aliases.contains_key(name) {
                    problems.push(unknown_server(item.place, format!("enabled_servers[{index}]"), name, &known));
                }
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::new(origin, problems)) }
    }
}

fn meaning(collisions: RawCollisions) -> Collisions {
    match collisions {
        RawCollisions::Error => Collisions::Error,
        RawCollisions::LastWins => Collisions::LastWins,
        RawCollisions::Suffix => Collisions::Suffix,
    }
}
