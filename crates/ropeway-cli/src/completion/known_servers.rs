//! A command line's servers and their cached tools, prompts and resources, without starting a server.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ropeway_bridge::{cached_tools, default_cache_dir};
use ropeway_config::{Config, ServerEntry, Transport};
use ropeway_core::tool::{Alias, ToolDefinition};

use super::candidate::Candidate;
use crate::arguments::command_words::CommandWords;
use crate::arguments::names::{ToolNames, server_of};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::{Origin, find_with_origin};
use crate::connect::client_servers::accepted_config;
use crate::connect::listing_cache::{ListedEntry, ListingKind, cached_listing};
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::trust::{TrustMode, VARIABLE};

/// A command line's servers.
#[derive(Default)]
pub(super) struct KnownServers {
    entries: Vec<ServerEntry>,
    names: Option<ToolNames>,
    /// The cache directory; `None` for an untrusted file, whose server names alone are used.
    memory: Option<PathBuf>,
}

impl KnownServers {
    /// Reads the command line's configuration. A broken one has no servers.
    pub(super) fn load(walk: &CommandWords<'_>, words: &[String]) -> Self {
        let option = |name: &str| walk.value(name, words).map(str::to_owned);
        let options = ServerOptions {
            config: option("config").map(PathBuf::from),
            stdio: option("stdio"),
            url: option("url"),
            ..ServerOptions::default()
        };
        Self::of(&options).unwrap_or_default()
    }

    fn of(options: &ServerOptions) -> Option<Self> {
        let file = match &options.config {
            Some(path) => Some(ConfigFile::read(path, Origin::Named).ok()?),
            None if options.is_given() => None,
            None => match find_with_origin() {
                Some((path, origin)) => Some(ConfigFile::read(&path, origin).ok()?),
                None => None,
            },
        };
        let mode = TrustMode::new(false, std::env::var_os(VARIABLE)).unwrap_or(TrustMode::Ask);
        let is_trusted = file.as_ref().is_none_or(|file| file.is_trusted(mode));
        let clients = if file.is_some() || options.is_given() { None } else { accepted_config(mode) };
        let config = match &file {
            Some(file) if is_trusted => file.parse().ok()?,
            Some(file) => file.parse_unread().ok()?,
            None => match clients {
                Some(config) => config,
                None => {
                    let mut entry = ServerEntry::new(options.config().ok()?);
                    entry.prefix = String::new();
                    Config::default().with_server(entry)
                }
            },
        };
        let servers = Servers::new(config, ServerSource::Line);
        servers.redact_secrets();
        let entries: Vec<ServerEntry> = servers.config.servers.iter().filter(|entry| entry.enabled).cloned().collect();
        let names = Some(ToolNames::new(&servers.config));
        Some(Self { entries, names, memory: default_cache_dir().filter(|_| is_trusted) })
    }

    /// Returns the server names.
    pub(super) fn names(&self) -> Vec<Candidate> {
        self.entries.iter().map(|entry| Candidate::new(entry.alias.as_str(), "")).collect()
    }

    /// Returns the servers that can ask for a sign-in, by name.
    pub(super) fn remote_names(&self) -> Vec<Candidate> {
        let is_remote =
            |entry: &&ServerEntry| entry.config().is_none_or(|config| !matches!(config.transport, Transport::Stdio(_)));
        self.entries.iter().filter(is_remote).map(|entry| Candidate::new(entry.alias.as_str(), "")).collect()
    }

    /// Returns tool names: `SERVER.TOOL`, or the tool alone.
    pub(super) fn tools(&self, current: &str) -> Vec<Candidate> {
        let Some(names) = &self.names else { return Vec::new() };
        let is_behind =
            |entry: &&ServerEntry| current.strip_prefix(entry.alias.as_str()).is_some_and(|rest| rest.starts_with('.'));
        let described = |tool: &ToolDefinition| tool.description.clone().unwrap_or_default();
        if let Some(entry) = self.entries.iter().filter(is_behind).max_by_key(|entry| entry.alias.as_str().len()) {
            let tools = self.tools_of(entry);
            return tools.iter().map(|tool| Candidate::new(names.dotted(tool), &described(tool))).collect();
        }
        let is_alone = self.entries.len() == 1;
        let mut candidates: Vec<Candidate> = Vec::new();
        if !is_alone {
            candidates = self.entries.iter().map(|entry| Candidate::new(format!("{}.", entry.alias), "")).collect();
        }
        if is_alone || !current.is_empty() {
            candidates.extend(self.short_names(current));
        }
        candidates
    }

    /// Returns tool names without their server. The description for an ambiguous one names its servers.
    pub(super) fn short_names(&self, current: &str) -> Vec<Candidate> {
        let Some(names) = &self.names else { return Vec::new() };
        let all: Vec<ToolDefinition> = self.entries.iter().flat_map(|entry| self.tools_of(entry)).collect();
        let mut found: Vec<(&str, Vec<&ToolDefinition>)> = Vec::new();
        // A name that starts with `-` would be parsed as an option.
        let is_fitting = |name: &str| name.starts_with(current) && !name.starts_with('-');
        for tool in all.iter().filter(|tool| is_fitting(names.short(tool))) {
            match found.iter_mut().find(|(name, _)| *name == names.short(tool)) {
                Some((_, tools)) => tools.push(tool),
                None => found.push((names.short(tool), vec![tool])),
            }
        }
        let candidate = |(name, tools): (&str, Vec<&ToolDefinition>)| match &tools[..] {
            [tool] => Candidate::new(name, tool.description.as_deref().unwrap_or_default()),
            many => {
                let servers: Vec<&str> = many.iter().filter_map(|tool| server_of(tool)).map(Alias::as_str).collect();
                Candidate::new(name, &format!("ambiguous: {}", servers.join(", ")))
            }
        };
        found.into_iter().map(candidate).collect()
    }

    /// Returns the prompts as `SERVER.PROMPT`, or the servers if no prompts are known.
    pub(super) fn prompts(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut unknown = Vec::new();
        for entry in &self.entries {
            let Some(prompts) = self.listing(ListingKind::Prompts, entry) else {
                unknown.push(Candidate::new(format!("{}.", entry.alias), ""));
                continue;
            };
            let candidate =
                |prompt: &ListedEntry| Candidate::new(format!("{}.{}", entry.alias, prompt.name), &prompt.description);
            candidates.extend(prompts.iter().map(candidate));
        }
        if candidates.is_empty() { unknown } else { candidates }
    }

    /// Returns a server's resources; without one, those that all servers list, behind the servers that may have
    /// some.
    pub(super) fn resources(&self, server: Option<&str>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let mut uris = Vec::new();
        let mut seen = HashSet::new();
        for entry in self.entries.iter().filter(|entry| server.is_none_or(|server| entry.alias.as_str() == server)) {
            let resources = self.listing(ListingKind::Resources, entry);
            if server.is_none() && resources.as_ref().is_none_or(|resources| !resources.is_empty()) {
                candidates.push(Candidate::new(entry.alias.as_str(), ""));
            }
            for ListedEntry { name, description } in resources.into_iter().flatten() {
                if seen.insert(name.clone()) {
                    uris.push(Candidate::new(name, &description));
                }
            }
        }
        candidates.extend(uris);
        candidates
    }

    fn listing(&self, kind: ListingKind, entry: &ServerEntry) -> Option<Vec<ListedEntry>> {
        cached_listing(self.memory.as_deref()?, kind, entry)
    }

    /// Returns the tool with this name.
    pub(super) fn tool(&self, name: &str) -> Option<ToolDefinition> {
        let names = self.names.as_ref()?;
        let name = name.split('(').next().unwrap_or(name);
        let all: Vec<ToolDefinition> = self.entries.iter().flat_map(|entry| self.tools_of(entry)).collect();
        let chosen = names.choose(&all.iter().collect::<Vec<_>>(), name).ok()?;
        all.into_iter().nth(chosen)
    }

    fn tools_of(&self, entry: &ServerEntry) -> Vec<ToolDefinition> {
        let folder: Option<&Path> = self.memory.as_deref();
        folder.and_then(|folder| cached_tools(folder, entry)).unwrap_or_default()
    }
}
