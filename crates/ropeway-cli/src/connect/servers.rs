//! A command's servers: from options, from a configuration file, from other clients, or the demo server.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use ropeway_config::{Config, EraChoice, ServerEntry};
use ropeway_core::suggest;
use ropeway_core::tool::Alias;
use ropeway_mcp::oauth::TokenStore;
use ropeway_mcp::{ElicitationAnswer, Handlers};

use crate::arguments::command_rewrite::unusable_path;
use crate::arguments::names::expand_prefix;
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::{self, Origin, find_path, find_with_origin};
use crate::connect::client_servers;
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::waiting::Waiting;
use crate::failure::Failure;
use crate::output::print::say;
use crate::sandbox;
use crate::secrets::redaction;
use crate::terminal::style;
use crate::terminal::text::escape_invisible;

/// A command's servers.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) config: Config,
    pub(crate) source: ServerSource,
    /// Lazy servers are started, too.
    pub(crate) eager: bool,
    /// Lost connections are restored.
    pub(crate) reconnecting: bool,
    /// Tools are compared with ropeway.lock.
    pub(crate) is_locked: bool,
    /// Handlers for server requests.
    pub(crate) handlers: Handlers,
    /// The configuration file, if any.
    pub(crate) file: Option<ConfigFile>,
    /// A running gateway's servers may be used.
    pub(crate) may_use_gateway: bool,
    /// Which servers the command waits for, if it has several.
    pub(crate) waiting: Waiting,
    /// The command lists servers that are not started.
    lists_servers: bool,
    /// The command uses the `chat` section.
    uses_chat: bool,
}

/// Where the servers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerSource {
    /// The command line.
    Line,
    /// A file.
    File(PathBuf),
    /// Other clients' files.
    Clients,
    /// No servers are configured, so the demo server is used.
    Demo,
}

impl ServerOptions {
    /// Returns the selected servers. An untrusted project file is refused, or accepted on a terminal. Without a file, other
    /// clients' servers are used, if the user accepts them.
    pub(crate) fn servers(&self, context: &CommandContext) -> Result<Servers, Failure> {
        let file = self.config_file()?;
        if file.is_none()
            && !self.is_given()
            && let Some(servers) = client_servers::admit(context)
        {
            let servers = self.with_era(servers);
            servers.redact_secrets();
            return Ok(servers);
        }
        self.servers_of(file, context)
    }

    /// Like [`servers`](Self::servers), without other clients' servers.
    pub(crate) fn own_servers(&self, context: &CommandContext) -> Result<Servers, Failure> {
        self.servers_of(self.config_file()?, context)
    }

    /// Returns the servers from a file, or from the options without one.
    pub(crate) fn servers_of(&self, file: Option<ConfigFile>, context: &CommandContext) -> Result<Servers, Failure> {
        let mut servers = match file {
            Some(file) => {
                file.admit(context.trust)?;
                Servers { may_use_gateway: !self.is_direct(), ..Servers::of(file)? }
            }
            None => {
                let source = if self.is_given() { ServerSource::Line } else { ServerSource::Demo };
                let mut entry = ServerEntry::new(self.config()?);
                // A single server needs no prefix.
                entry.prefix = String::new();
                // The demo server belongs to this program.
                entry.trust_hints = source == ServerSource::Demo;
                Servers::new(Config::default().with_server(entry), source).eager()
            }
        };
        servers = self.with_era(servers);
        servers.redact_secrets();
        Ok(servers)
    }

    /// Applies `--era` to all servers.
    pub(crate) fn with_era(&self, mut servers: Servers) -> Servers {
        if let Some(era) = self.era {
            servers.config.servers.iter_mut().for_each(|entry| set_era(entry, era.into()));
        }
        servers
    }

    /// Returns the options that select the same servers in another command, without headers and tokens.
    pub(crate) fn for_example(&self, source: &ServerSource) -> Vec<String> {
        let option = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        match (source, &self.stdio, &self.url) {
            (ServerSource::File(path), ..) if find_path().as_ref() != Some(path) => {
                option("--config", &path.display().to_string())
            }
            (ServerSource::Line, Some(command), _) => option("--stdio", command),
            (ServerSource::Line, None, Some(url)) => option("--url", url),
            _ => Vec::new(),
        }
    }

    /// Returns `true` if an option selects a server.
    pub(crate) fn is_given(&self) -> bool {
        self.stdio.is_some() || self.url.is_some()
    }

    /// Returns the configuration file, unless an option selects a server.
    pub(crate) fn config_file(&self) -> Result<Option<ConfigFile>, Failure> {
        match (&self.config, self.is_given()) {
            (Some(path), _) => ConfigFile::read(path, Origin::Named).map(Some),
            (None, true) => Ok(None),
            (None, false) => {
                let found = find_with_origin();
                if let Some((path, Origin::Named)) = &found {
                    warn_if_relative(path);
                }
                found.map(|(path, origin)| ConfigFile::read(&path, origin)).transpose()
            }
        }
    }
}

/// Warns once if the variable names a file by a relative path, which is another file in each directory.
fn warn_if_relative(path: &Path) {
    static WARNED: Once = Once::new();
    if path.is_relative() {
        let (variable, path) = (config_paths::VARIABLE, escape_invisible(&path.display().to_string()));
        let problem = format!("`{variable}` is the relative path `{path}`, which trusts the file of every directory");
        WARNED.call_once(|| say(&style::warning(&problem)));
    }
}

/// Returns handlers that use the stored sign-ins.
pub(crate) fn token_handlers() -> Handlers {
    let handlers = Handlers::new().with_token_redactor(redaction::token_redactor());
    match TokenStore::default_location() {
        Ok(store) => handlers.with_token_store(store),
        // Without a home directory, nothing is stored.
        Err(_) => handlers,
    }
}

fn set_era(entry: &mut ServerEntry, era: EraChoice) {
    if let Some(config) = entry.config_mut() {
        config.era = era;
    }
}

/// Returns the failure for a named server without a configuration file.
fn no_config_file(server: &str, places: &[config_paths::ConfigPath]) -> Failure {
    let failure = Failure::usage(format!("unknown server `{server}`: no configuration file found"));
    let folders: Vec<&config_paths::ConfigPath> =
        places.iter().filter(|place| place.reason == config_paths::PathReason::Folder).collect();
    let here = folders.first().map(|place| match folders.len() {
        1 => format!("`{}`", place.path.display()),
        _ => format!("`{}` and the directories above", place.path.display()),
    });
    let own = places.iter().find(|place| place.reason == config_paths::PathReason::User);
    let own = own.map(|place| format!("`{}`", place.path.display()));
    let variable = format!("`{}` (not set)", config_paths::VARIABLE);
    let searched: Vec<String> = [Some(variable), here, own].into_iter().flatten().collect();
    let failure = failure.hint(format!("searched: {}", searched.join(", ")));
    let strange = places.iter().filter(|place| place.is_foreign).fold(failure, |failure, place| {
        failure.hint(format!("ignored `{}`: owned by another user", place.path.display()))
    });
    let name = shlex::try_quote(server).map_or_else(|_| "NAME".into(), |name| name.into_owned());
    strange.hint(format!(
        "try `ropeway add {name} -- COMMAND`, `ropeway import` to import the servers of other clients, or `--config FILE`"
    ))
}

impl Servers {
    /// Creates the servers for a configuration.
    pub(crate) fn new(mut config: Config, source: ServerSource) -> Self {
        config.warnings.extend(sandbox::gap_warnings(&config));
        Self {
            config,
            source,
            eager: false,
            reconnecting: false,
            is_locked: true,
            // Some servers offer other tools without elicitation; all commands must see the same tools.
            handlers: token_handlers().on_elicitation(|_| async { Ok(ElicitationAnswer::Decline) }),
            file: None,
            may_use_gateway: false,
            waiting: Waiting::default(),
            lists_servers: false,
            uses_chat: false,
        }
    }

    /// Parses the servers in a file that may be used.
    pub(crate) fn of(file: ConfigFile) -> Result<Self, Failure> {
        let config = file.parse().map_err(|error| Failure::config(&error))?;
        let source = ServerSource::File(file.path.clone());
        Ok(Self { file: Some(file), ..Self::new(config, source) })
    }

    /// Omits warnings about servers that the command lists anyway.
    pub(crate) fn lists_servers(mut self) -> Self {
        self.lists_servers = true;
        self
    }

    /// Sets which servers the command waits for.
    pub(crate) fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Includes warnings about the `chat` section.
    pub(crate) fn uses_chat(mut self) -> Self {
        self.uses_chat = true;
        self
    }

    /// Prints the configuration's warnings to standard error, each once. Warnings that the command shows itself and, outside
    /// `chat`, warnings about the `chat` section are omitted.
    pub(crate) fn show_warnings(&self) {
        let is_alone = self.config.servers.len() == 1;
        let shown_later = |warning: &String| {
            (self.lists_servers || is_alone)
                && self.config.servers.iter().any(|entry| entry.warning().as_ref() == Some(warning))
        };
        let is_of_chat =
            |warning: &String| self.config.chat.as_ref().is_some_and(|chat| chat.warnings.contains(warning));
        // A command may start some servers first, and then all.
        static SHOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in &self.config.warnings {
            if !shown_later(warning) && (self.uses_chat || !is_of_chat(warning)) && shown.insert(warning.clone()) {
                say(&style::warning(warning));
            }
        }
    }

    /// Prints all warnings about servers to standard error, each once, for a command that starts none. Its failure already
    /// states problems in the `chat` section.
    pub(crate) fn show_all_warnings(&self) {
        let mut shown = HashSet::new();
        let is_of_chat =
            |warning: &String| self.config.chat.as_ref().is_some_and(|chat| chat.warnings.contains(warning));
        let warnings = self.config.warnings.iter().filter(|warning| !is_of_chat(warning));
        for warning in warnings.filter(|warning| shown.insert(*warning)) {
            say(&style::warning(warning));
        }
    }

    /// Restores lost connections, for long-running commands.
    pub(crate) fn reconnecting(mut self) -> Self {
        self.reconnecting = true;
        self
    }

    /// Ignores ropeway.lock.
    pub(crate) fn without_lock(mut self) -> Self {
        self.is_locked = false;
        self
    }

    /// Sets the handlers for server requests.
    pub(crate) fn with_handlers(mut self, handlers: Handlers) -> Self {
        self.handlers = handlers;
        self
    }

    /// Starts lazy servers, too.
    pub(crate) fn eager(mut self) -> Self {
        self.eager = true;
        self
    }

    /// Keeps only the server with this name.
    pub(crate) fn only(mut self, name: &str) -> Result<Self, Failure> {
        let Some(at) = self.config.servers.iter().position(|entry| entry.alias.as_str() == name) else {
            return Err(self.unknown(name));
        };
        self.config.servers = vec![self.config.servers.swap_remove(at)];
        // A named server is started even if it is lazy.
        Ok(self.eager())
    }

    /// Keeps only the servers with these names, if any.
    pub(crate) fn only_these(mut self, names: &[String]) -> Result<Self, Failure> {
        if names.is_empty() {
            return Ok(self);
        }
        let is_known = |name: &&String| self.config.servers.iter().any(|entry| entry.alias.as_str() == name.as_str());
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(self.unknown(unknown));
        }
        self.config.servers.retain(|entry| names.iter().any(|name| name == entry.alias.as_str()));
        Ok(self.eager())
    }

    /// Keeps only the server with this name, if any.
    pub(crate) fn maybe_only(self, name: Option<&str>) -> Result<Self, Failure> {
        match name {
            Some(name) => self.only(name),
            None => Ok(self),
        }
    }

    /// Keeps only servers that may own a tool, by `SERVER.TOOL` or its name for models.
    pub(crate) fn only_owners_of(mut self, tool: &str) -> Self {
        let is_dotted =
            |entry: &ServerEntry| tool.strip_prefix(entry.alias.as_str()).is_some_and(|rest| rest.starts_with('.'));
        // Aliases may contain dots; the longest match wins.
        let named =
            self.config.servers.iter().filter(|entry| is_dotted(entry)).max_by_key(|entry| entry.alias.as_str().len());
        if let Some(named) = named {
            self.config.servers = vec![named.clone()];
            return self;
        }
        let prefix = |entry: &ServerEntry| expand_prefix(&entry.prefix, &entry.alias);
        let is_prefixed = |entry: &ServerEntry| !entry.prefix.is_empty() && tool.starts_with(&prefix(entry));
        if self.config.servers.iter().any(is_prefixed) {
            // Without a prefix, tools may have any name.
            self.config.servers.retain(|entry| entry.prefix.is_empty() || is_prefixed(entry));
        }
        self
    }

    /// Returns the server in a `SERVER.TOOL` name.
    pub(crate) fn owner(&self, name: &str) -> Option<&str> {
        let is_owner =
            |alias: &&str| name.strip_prefix(alias).is_some_and(|rest| rest.starts_with('.') && rest.len() > 1);
        // Aliases may contain dots; the longest match wins.
        self.names().into_iter().map(Alias::as_str).filter(is_owner).max_by_key(|alias| alias.len())
    }

    /// Refuses an unknown `SERVER.TOOL` without a configuration file: the demo server must not answer for another one.
    pub(crate) fn check_owner(&self, name: &str) -> Result<(), Failure> {
        self.check_path(name)?;
        match name.split_once('.') {
            Some((server, _))
                if self.source == ServerSource::Demo && !server.is_empty() && self.owner(name).is_none() =>
            {
                Err(self.unknown(server))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a path to a program that cannot be started, unless an option selects the server.
    pub(crate) fn check_path(&self, name: &str) -> Result<(), Failure> {
        match unusable_path(name).filter(|_| self.source != ServerSource::Line) {
            Some(reason) => Err(Failure::usage(reason).hint("expected the name of a server, or the path of a program")),
            None => Ok(()),
        }
    }

    /// Returns all server names.
    pub(crate) fn names(&self) -> Vec<&Alias> {
        self.config.servers.iter().map(|entry| &entry.alias).collect()
    }

    /// Returns the only server, if exactly one is configured.
    pub(crate) fn single(&self) -> Option<&ServerEntry> {
        match &self.config.servers[..] {
            [entry] => Some(entry),
            _ => None,
        }
    }

    /// Returns the failure for an unknown server name.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        self.unknown_noun("server", name, &[])
    }

    /// Returns the failure for a name that neither a server nor a tool has; `similar` are tools with similar names.
    pub(crate) fn unknown_server_or_tool(&self, name: &str, similar: &[String]) -> Failure {
        self.unknown_noun("server or tool", name, similar)
    }

    fn unknown_noun(&self, noun: &str, name: &str, similar: &[String]) -> Failure {
        if let Err(failure) = self.check_path(name) {
            return failure;
        }
        let names: Vec<&str> = self.names().into_iter().map(Alias::as_str).collect();
        let servers = suggest::closest(name, names.iter().copied()).into_iter().map(str::to_owned);
        let similar: Vec<String> = servers.chain(similar.iter().cloned()).take(suggest::MAX_SUGGESTIONS).collect();
        let failure = Failure::usage(format!("unknown {noun} `{name}`"));
        let is_demo = self.source == ServerSource::Demo;
        match suggest::did_you_mean_one_of(&similar) {
            Some(question) if is_demo => {
                failure.hint(question).hint("no configuration file found; using the built-in demo server")
            }
            Some(question) => failure.hint(question),
            None if is_demo => no_config_file(name, &config_paths::candidates()),
            None if names.is_empty() => failure.hint("no servers configured; try `ropeway add`"),
            None => failure.hint(format!("configured servers: {}", names.join(", "))),
        }
    }

    /// Redacts all servers' secrets from further output.
    pub(crate) fn redact_secrets(&self) {
        for config in self.config.servers.iter().filter_map(ServerEntry::config) {
            redaction::add_secrets(&config.secrets());
        }
        if let Some(chat) = &self.config.chat {
            redaction::add_secrets(&chat.secrets());
        }
    }
}
