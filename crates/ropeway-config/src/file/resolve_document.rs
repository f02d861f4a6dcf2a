//! Resolves a whole configuration file.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::alias::MAX_ALIAS;
use super::connection_warnings::connection_warnings;
use super::decode;
use super::document::Document;
use super::node::{Node, PathStep, ServerNode, format_path};
use super::position::Position;
use super::problem::{ConfigError, ConfigProblem, MAX_PROBLEMS, in_backticks, nearest};
use super::raw::{RawServer, RawShorthand};
use super::resolve::{ResolveContext, resolve, resolve_chat, resolve_gateway};
use crate::settings::{CollisionPolicy, Config, ServerEntry, ServerSettings};
use ropeway_core::tool::Alias;

/// Maximum bytes that the settings for all servers take, after they are copied to each server.
const MAX_COPIED: usize = 16 << 20;

/// Maximum unknown aliases per list that get a suggestion.
const MAX_SUGGESTIONS: usize = 20;

/// Maximum aliases that an unknown one is compared with.
const MAX_CANDIDATES: usize = 1000;

/// Resolves all servers and settings. The error contains all problems in the file.
pub(super) fn resolve_document(
    mut document: Document,
    origin: &Path,
    context: &ResolveContext<'_>,
) -> Result<Config, ConfigError> {
    let mut problems = std::mem::take(&mut document.problems);
    if let Err(problem) = check_copied_bytes(&document) {
        problems.push(problem);
        return Err(ConfigError::new(origin, problems));
    }
    let mut config = Config {
        collisions: document.collisions.unwrap_or(CollisionPolicy::Error),
        lock: document.lock,
        warnings: std::mem::take(&mut document.warnings),
        ..Config::default()
    };
    if let Some((raw, node)) = &document.chat {
        match resolve_chat(raw, node, context) {
            Ok(resolved) => {
                config.warnings.extend(resolved.chat.warnings.iter().cloned());
                config.chat = Some(resolved.chat);
                config.files.extend(resolved.files);
            }
            Err(found) => problems.extend(found),
        }
    }
    let Some(aliases) = resolve_servers(&document, context, &mut config, &mut problems) else {
        return Err(ConfigError::new(origin, problems));
    };
    if let Some((raw, node)) = &document.gateway {
        match resolve_gateway(raw, node, &format!("{}gateway", document.base), &aliases, context) {
            Ok(resolved) => {
                config.gateway = resolved.gateway;
                config.warnings.extend(resolved.warnings);
                config.files.extend(resolved.files);
            }
            Err(found) => problems.extend(found),
        }
    }
    if let Some(enabled) = &document.enabled_servers {
        config.enabled_servers = Some(enabled.items().iter().filter_map(Node::as_str).map(Alias::from).collect());
        let mut suggestions = Suggestions::among(&aliases);
        for (index, item) in enabled.items().iter().enumerate() {
            if problems.len() > MAX_PROBLEMS {
                break;
            }
            let name = item.as_str().unwrap_or_default();
            if !aliases.contains_key(name) {
                let path = format!("{}enabled_servers[{index}]", document.base);
                problems.push(suggestions.unknown_server(item.position, path, name));
            }
        }
    }
    check_allowlist(&document, &aliases, context, &mut config, &mut problems);
    if let Some(Position { line, column }) = document.disabled_at {
        config.warnings.push(format!("all servers are disabled: `enabled: false` at {line}:{column}"));
    }
    if problems.is_empty() { Ok(config) } else { Err(ConfigError::new(origin, problems)) }
}

/// Resolves the servers. Returns each alias's position, or `None` if there are too many problems to continue.
fn resolve_servers(
    document: &Document,
    context: &ResolveContext<'_>,
    config: &mut Config,
    problems: &mut Vec<ConfigProblem>,
) -> Option<HashMap<String, Position>> {
    let broken: HashSet<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let mut aliases: HashMap<String, Position> = HashMap::new();
    for ServerNode { path, node, unsupported, .. } in &document.servers {
        // The remaining servers' aliases are unknown, so references to them cannot be checked.
        if problems.len() > MAX_PROBLEMS {
            return None;
        }
        let node = document.with_defaults(node);
        let (raw, found) = decode::decode_all::<RawServer>(&node, path);
        let is_broken = !found.is_empty() || broken.contains(path) || broken.contains(&format!("{path}.connection"));
        problems.extend(found);
        let Some(mut raw) = raw else {
            // References to an invalid server are not reported as well.
            if let Some(alias) = node.get("alias").and_then(Node::as_str) {
                aliases.entry(alias.to_owned()).or_insert(node.position);
            }
            continue;
        };
        let alias_key = [PathStep::Key("alias".into())];
        let position = node.position_of(&alias_key);
        if let Some(Position { line, column }) = aliases.get(&raw.alias) {
            let message = format!("duplicate alias {} (first used at {line}:{column})", in_backticks(&raw.alias));
            problems.push(ConfigProblem::new(position, format_path(path, &alias_key), message));
            continue;
        }
        aliases.insert(raw.alias.clone(), position);
        if !document.enables(&raw.alias) {
            raw.enabled = Some(false);
        }
        if let Some(key) = unsupported {
            let entry = invalid_server(&raw, key.to_string());
            config.warnings.extend(entry.warning());
            config.servers.push(entry);
            continue;
        }
        match resolve(&raw, &node, path, context) {
            Ok(mut resolved) => {
                resolved.entry.tools.allowlists.extend(document.allowlist(&raw.alias).map(<[String]>::to_vec));
                config.servers.push(resolved.entry);
                config.warnings.extend(resolved.warnings);
                config.warnings.extend(connection_warnings(&raw, &node));
                config.files.extend(resolved.files);
            }
            // A missing key may be a misspelled one, which is reported already.
            Err(found) => problems.extend(found.into_iter().filter(|problem| !is_broken || problem.path != *path)),
        }
    }
    Some(aliases)
}

/// Limits how large settings for all servers are, since they are copied to each server.
fn check_copied_bytes(document: &Document) -> Result<(), ConfigProblem> {
    let shared = match &document.tool_allowlist {
        Some((RawShorthand::Short(_), list)) => Some(("tool_allowlist", list)),
        _ => None,
    };
    let servers = document.servers.len();
    let mut copied: usize = 0;
    for (key, node) in document.defaults.iter().map(|defaults| ("defaults", defaults)).chain(shared) {
        copied = node.estimated_bytes().saturating_mul(servers).saturating_add(copied);
        if copied > MAX_COPIED {
            let message = format!("settings exceed {} MiB when copied to {servers} servers", MAX_COPIED >> 20);
            return Err(ConfigProblem::new(node.position, format!("{}{key}", document.base), message));
        }
    }
    Ok(())
}

/// Checks the file's `tool_allowlist`.
fn check_allowlist(
    document: &Document,
    aliases: &HashMap<String, Position>,
    context: &ResolveContext<'_>,
    config: &mut Config,
    problems: &mut Vec<ConfigProblem>,
) {
    let Some((lists, node)) = &document.tool_allowlist else { return };
    let path = format!("{}tool_allowlist", document.base);
    let check = |globs: &[String], node: &Node, path: &str, problems: &mut Vec<ConfigProblem>| {
        for (index, (glob, item)) in globs.iter().zip(node.items()).enumerate() {
            if problems.len() > MAX_PROBLEMS {
                return;
            }
            if let Err(expected) = context.globs.check(glob) {
                let path = format!("{path}[{index}]");
                problems.push(ConfigProblem::mismatch(item.position, path, in_backticks(glob), expected));
            }
        }
    };
    match lists {
        RawShorthand::Short(globs) => {
            check(globs, node, &path, problems);
            if globs.is_empty() {
                config.warnings.push(format!("`{path}` is empty: all tools of all servers are hidden"));
            }
        }
        RawShorthand::Full(servers) => {
            let mut suggestions = Suggestions::among(aliases);
            for ((alias, globs), entry) in servers.0.iter().zip(node.entries()) {
                if problems.len() > MAX_PROBLEMS {
                    return;
                }
                let path = format_path(&path, &[PathStep::Key(alias.clone())]);
                check(globs, &entry.value, &path, problems);
                if !aliases.contains_key(alias) {
                    problems.push(suggestions.unknown_server(entry.position, path, alias));
                } else if globs.is_empty() {
                    config.warnings.push(format!("`{path}` is empty: all tools of server `{alias}` are hidden"));
                }
            }
        }
    }
}

/// The aliases that unknown ones are compared with, for the first unknown aliases in a list.
struct Suggestions<'a> {
    candidates: Vec<&'a str>,
    remaining: usize,
}

impl<'a> Suggestions<'a> {
    fn among(aliases: &'a HashMap<String, Position>) -> Self {
        let names = aliases.keys().map(String::as_str).filter(|alias| alias.len() <= MAX_ALIAS);
        let mut candidates: Vec<&str> = if aliases.len() > MAX_CANDIDATES { Vec::new() } else { names.collect() };
        candidates.sort_unstable();
        Self { candidates, remaining: MAX_SUGGESTIONS }
    }

    /// Creates the problem for an unknown alias.
    fn unknown_server(&mut self, position: Position, path: String, name: &str) -> ConfigProblem {
        let problem = ConfigProblem::new(position, path, format!("unknown server {}", in_backticks(name)));
        if self.remaining == 0 {
            return problem;
        }
        self.remaining -= 1;
        problem.suggest(nearest(name, self.candidates.iter().copied()))
    }
}

/// Creates the entry for a server that an unsupported key keeps from starting.
fn invalid_server(raw: &RawServer, reason: String) -> ServerEntry {
    let mut entry = ServerEntry::with_settings(raw.alias.as_str(), ServerSettings::Invalid { reason });
    entry.enabled = raw.enabled.unwrap_or(true);
    entry.required = raw.required.unwrap_or(false);
    entry
}
