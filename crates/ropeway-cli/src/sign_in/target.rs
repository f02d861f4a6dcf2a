//! The server that a sign-in is for: a configuration entry, or a URL.

use std::path::Path;

use ropeway_config::{HttpServer, OAuthSettings, ServerAuth, ServerConfig, ServerEntry, ServerSettings, Transport};
use ropeway_mcp::oauth::store::{CredentialsSummary, canonical_server};

use crate::config::config_file::ConfigFile;
use crate::config::config_paths::find_with_origin;
use crate::connect::advice::{file_name, secret_advice, suggested_command};
use crate::connect::command_context::CommandContext;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::{ServerSource, Servers};
use crate::failure::Failure;

/// A server that can be signed in to.
#[derive(Clone, Debug)]
pub(crate) struct SignInTarget {
    /// The entry's alias, or the URL's host.
    pub(crate) name: String,
    pub(crate) url: String,
    auth: Option<ServerAuth>,
    /// A token is configured, so that a sign-in would not be used.
    has_token: bool,
    /// The `ropeway login` argument.
    argument: String,
    source: ServerSource,
}

impl SignInTarget {
    /// Returns the server with this alias or URL. An untrusted project file is refused, or accepted on a terminal.
    pub(crate) fn find(server: &str, config: Option<&Path>, context: &CommandContext) -> Result<Self, Failure> {
        let (servers, entry) = servers_and_entry(server, config, context)?;
        let settings = entry.config().ok_or_else(|| {
            let reason = entry.warning().unwrap_or_else(|| format!("server `{}` is not usable", entry.alias));
            let failure = Failure::usage(reason);
            match (&entry.settings, &servers.source) {
                (ServerSettings::Missing { secrets }, ServerSource::File(path)) => {
                    failure.hint(secret_advice(secrets, &file_name(path)))
                }
                _ => failure,
            }
        })?;
        Self::of(settings, &servers.source).ok_or_else(|| {
            Failure::usage(format!("server `{server}` is a stdio server and needs no sign-in"))
                .hint("`ropeway login` is for servers with a `url`")
        })
    }

    /// Creates the target for an HTTP server.
    fn of(config: &ServerConfig, source: &ServerSource) -> Option<Self> {
        let (Transport::Http(server) | Transport::Sse(server)) = &config.transport else { return None };
        let name = config.alias.to_string();
        let argument = if *source == ServerSource::Line { server.url.clone() } else { name.clone() };
        Some(Self {
            name,
            url: server.url.clone(),
            auth: server.auth.clone(),
            has_token: has_token(server),
            argument,
            source: source.clone(),
        })
    }

    /// Returns `true` if a stored sign-in is for this server.
    pub(crate) fn is_of(&self, server: &str) -> bool {
        canonical_server(&self.url) == server
    }

    /// Returns `true` if a stored sign-in is the one that this entry uses.
    pub(crate) fn uses(&self, entry: &CredentialsSummary) -> bool {
        self.uses_account(&entry.server, entry.account.as_deref())
    }

    fn uses_account(&self, server: &str, account: Option<&str>) -> bool {
        self.is_of(server) && self.account() == account
    }

    /// Returns the target that uses a stored sign-in, or else one for the same server.
    pub(crate) fn of_sign_in<'a>(targets: &'a [Self], server: &str, account: Option<&str>) -> Option<&'a Self> {
        let same_server = || targets.iter().find(|target| target.is_of(server));
        targets.iter().find(|target| target.uses_account(server, account)).or_else(same_server)
    }

    /// Returns the configured account.
    fn account(&self) -> Option<&str> {
        match &self.auth {
            Some(ServerAuth::OAuth(settings)) => settings.account.as_deref(),
            _ => None,
        }
    }

    /// Returns `true` if the entry asks for a sign-in.
    pub(crate) fn needs_sign_in(&self) -> bool {
        matches!(&self.auth, Some(ServerAuth::OAuth(settings)) if settings.grant.is_interactive())
    }

    /// Returns the sign-in settings. A server without `auth` has the default ones.
    pub(crate) fn settings(&self) -> OAuthSettings {
        match &self.auth {
            Some(ServerAuth::OAuth(settings)) => (**settings).clone(),
            _ => OAuthSettings::default(),
        }
    }

    /// Returns why a person does not sign in, for entries that get their tokens themselves.
    pub(crate) fn own_tokens(&self) -> Option<&'static str> {
        match &self.auth {
            Some(ServerAuth::OAuth(settings)) if settings.grant.is_interactive() => None,
            Some(ServerAuth::OAuth(_)) => Some("its entry obtains tokens without a sign-in"),
            Some(ServerAuth::Command(_)) => Some("its tokens come from a command"),
            _ => None,
        }
    }

    /// Returns a failure if a sign-in would not be used.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !self.has_token {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "server `{}` has a token in its configuration; a sign-in would not be used",
            self.name
        ))
        .hint("remove `bearer` or the `Authorization` header, then sign in"))
    }

    /// Returns a command for this server, with `--config` if it is needed.
    pub(crate) fn command(&self, command: &str) -> String {
        let words = format!("{command} {}", self.argument);
        match &self.source {
            ServerSource::File(path) => suggested_command(&words, path),
            ServerSource::Line | ServerSource::Clients | ServerSource::Demo => format!("`ropeway {words}`"),
        }
    }
}

/// Returns `true` if a token or an `Authorization` header is configured.
fn has_token(server: &HttpServer) -> bool {
    server.bearer.is_some() || server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
}

/// Returns a command's servers, and the one with this alias or URL.
pub(crate) fn servers_and_entry(
    server: &str,
    config: Option<&Path>,
    context: &CommandContext,
) -> Result<(Servers, ServerEntry), Failure> {
    let is_url = server.starts_with("http://") || server.starts_with("https://");
    let options = ServerOptions {
        url: is_url.then(|| server.to_owned()),
        config: config.filter(|_| !is_url).map(Path::to_owned),
        ..ServerOptions::default()
    };
    let servers = options.servers(context)?;
    let servers = if is_url { servers } else { servers.only(server)? };
    match servers.single().cloned() {
        Some(entry) => Ok((servers, entry)),
        None => Err(servers.unknown(server)),
    }
}

/// Returns the configuration's HTTP servers, for commands that only name them. An untrusted project file is not read.
pub(crate) fn configured_targets(
    config: Option<&Path>,
    context: &CommandContext,
) -> Result<Vec<SignInTarget>, Failure> {
    let servers = match config {
        Some(_) => {
            let options = ServerOptions { config: config.map(Path::to_owned), ..ServerOptions::default() };
            options.servers(context)?
        }
        None => {
            let file = find_with_origin().and_then(|(path, origin)| ConfigFile::read(&path, origin).ok());
            let trusted = file.filter(|file| file.is_trusted(context.trust)).map(Servers::of);
            match trusted {
                Some(Ok(servers)) => servers,
                Some(Err(_)) | None => return Ok(Vec::new()),
            }
        }
    };
    servers.redact_secrets();
    let configs = servers.config.servers.iter().filter(|entry| entry.enabled).filter_map(ServerEntry::config);
    Ok(configs.filter_map(|config| SignInTarget::of(config, &servers.source)).collect())
}
