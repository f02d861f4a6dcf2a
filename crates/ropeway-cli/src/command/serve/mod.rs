//! `ropeway serve`: one MCP server in front of all configured servers.

mod background;
mod endpoint;
mod port_owner;
mod prepare;
mod report;
mod service_manager;
mod serving;
mod setup;
mod source_watch;
mod stop_signals;

use std::path::PathBuf;
use std::time::Duration;

use ropeway_config::{GatewaySettings, ListenAddress};
use ropeway_gateway::Gateway;
use serde_json::json;

use self::background::Background;
use self::endpoint::Endpoint;
use self::prepare::ConfigChange;
use self::report::Report;
use self::service_manager::ServiceManager;
use self::serving::Serving;
use self::source_watch::SourceWatch;
use self::stop_signals::{StopSignal, StopSignals};
use crate::config::config_file::ConfigFile;
use crate::config::config_paths::Origin;
use crate::connect::command_context::CommandContext;
use crate::connect::lockfile;
use crate::connect::server_options::ServerOptions;
use crate::connect::servers::Servers;
use crate::failure::{Exit, Failure};
use crate::output::print::print_json_line;
use ropeway_core::suggest;

/// Appended to `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ropeway serve
  ropeway serve --listen 127.0.0.1:0 --json
  ropeway serve --stdio --profile coding
  ropeway serve --command 'uvx mcp-server-time'
  ropeway serve --command 'python3 server.py' --watch

Clients: `ropeway install` adds the gateway to Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex, Gemini CLI, Goose or Zed.

Names: with several servers, tools and prompts are named SERVER_NAME; see `gateway.prefix`. With one server, they keep their \
own names.

Sessions: a restarted gateway resumes the sessions of its clients. The keys for that are `gateway.keys`, the variable \
ROPEWAY_GATEWAY_KEYS, or ~/.local/state/ropeway/gateway/keys (see XDG_STATE_HOME).";

/// Serve all configured servers as one MCP server
///
/// Clients connect to http://127.0.0.1:8931/mcp and use the tools, resources and prompts of all servers. /mcp/NAME serves one
/// profile of the configuration file, or one server. With --stdio, one client is served on standard input and output.
///
/// Clients of both protocol eras are served at once. Changes to the configuration file are applied; a changed project file is
/// applied once it is trusted again. Ctrl-C and SIGTERM end the gateway after the calls in progress, within 10 s (see
/// `gateway.drain`); a second signal ends it at once.
#[derive(Debug, clap::Args)]
#[command(mut_arg("stdio", |arg| arg.long("command")), mut_arg("direct", |arg| arg.hide(true)))]
pub(super) struct Serve {
    /// Address to listen on, such as 127.0.0.1:0 or unix:PATH; overrides `gateway.listen`
    #[arg(long, value_name = "ADDRESS", conflicts_with = "over_stdio")]
    listen: Option<ListenAddress>,
    /// Serve one client on standard input and output
    #[arg(long = "stdio")]
    over_stdio: bool,
    /// Profile or server to serve, instead of all servers
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Refuse a file named by --config unless it is trusted
    #[arg(long, requires = "config")]
    require_trust: bool,
    /// Restart stdio servers when their files change: those at these paths, or the code next to each server's script
    #[arg(long, value_name = "PATH", num_args = 0..)]
    watch: Option<Vec<PathBuf>>,
    /// Socket for other commands; set by `ropeway up`
    #[arg(long, value_name = "SOCKET", hide = true, conflicts_with_all = ["over_stdio", "profile", "listen", "watch"])]
    background: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

impl Serve {
    /// Returns `true` if standard output carries the protocol.
    pub(super) fn is_stdio(&self) -> bool {
        self.over_stdio
    }

    pub(super) async fn run(self, context: CommandContext) -> Result<Exit, Failure> {
        if self.over_stdio && context.json {
            return Err(Failure::usage("`--json` cannot be used with `--stdio`: standard output carries the protocol"));
        }
        let mut signals = StopSignals::install(self.background.is_some())?;
        let change = ConfigChange {
            era: self.server.era.map(Into::into),
            is_plain: self.background.is_some(),
            is_http: !self.over_stdio && self.background.is_none(),
        };
        let mut servers = self.servers(&context)?;
        servers.config = change.apply(servers.config);
        if change.is_plain
            && let Some(locked) = lockfile::load(&servers)?
        {
            locked.refuse_servers(&mut servers.config);
        }
        self.check_profile(&servers)?;
        let drain = servers.config.gateway.drain;
        let has_page = servers.config.gateway.page;
        let endpoint = self.endpoint(&servers.config.gateway)?;
        let manager = ServiceManager::from_env();
        let background = self.background.as_deref().map(|socket| Background::listen(socket, &servers)).transpose()?;
        let is_ephemeral = endpoint.is_none();
        let gateway = setup::build(&servers, &context, is_ephemeral, self.background.is_some())?;
        signals.reopen_logs_of(&gateway, &servers.config.gateway);
        let report = Report::new(&gateway, context.verbose, servers.source.clone());
        let watch = self.watch.as_ref().map(|given| SourceWatch::new(&servers.config, given)).transpose()?;
        prepare::watch(
            &gateway,
            &servers,
            &context,
            change,
            background.as_ref().map(Background::accepted),
            watch.clone(),
        );
        let url = endpoint.as_ref().map(|endpoint| endpoint.url(self.profile.as_deref()));
        if let Some(background) = &background {
            background.publish()?;
        }
        let mut serving = self.serving(&gateway, endpoint, background.as_ref())?;
        if let Some(url) = url.as_ref().filter(|_| context.json) {
            print_json_line(&json!({ "url": url }))?;
        }
        manager.ready(url.as_deref());
        let done = tokio::select! {
            ended = serving.ended() => ended.map(|()| StopSignal::AtOnce),
            failure = start(&gateway) => Err(failure),
            never = report.follow(url.as_deref(), has_page, self.over_stdio) => match never {},
            never = background::follow(background.as_ref(), gateway.bridge().events()) => match never {},
            never = manager.keep_alive() => match never {},
            never = source_watch::follow(watch.as_ref(), &gateway) => match never {},
            signal = signals.next() => Ok(signal),
            () = gateway.stop_requested() => Ok(StopSignal::AtOnce),
            () = background::lost(background.as_ref()) => Ok(StopSignal::AtOnce),
            // Reaching `--timeout` is success.
            () = deadline(&context) => Ok(StopSignal::AtOnce),
        };
        // Commands that start now use their own servers.
        drop(background);
        manager.stopping();
        // Only a service manager has a load balancer that needs time.
        let delay = if matches!(done, Ok(StopSignal::Terminate)) { drain.delay } else { Duration::ZERO };
        let ended = async {
            gateway.announce_drain();
            tokio::time::sleep(delay).await;
            serving.drain(&gateway, drain.timeout).await;
        };
        tokio::select! {
            () = ended => done.map(|_| Exit::Done),
            never = manager.keep_alive() => match never {},
            _ = signals.next() => Ok(Exit::Interrupted),
        }
    }

    fn servers(&self, context: &CommandContext) -> Result<Servers, Failure> {
        let file = self.server.config_file()?;
        let file = file.map(|file| {
            let origin = if self.require_trust { Origin::Project } else { file.origin };
            ConfigFile { origin, ..file }
        });
        self.server.servers_of(file, context)
    }

    fn check_profile(&self, servers: &Servers) -> Result<(), Failure> {
        match &self.profile {
            Some(name) => known_profile(name, servers),
            None => Ok(()),
        }
    }

    /// Binds the address for HTTP clients, unless clients use standard input and output or the socket.
    fn endpoint(&self, settings: &GatewaySettings) -> Result<Option<Endpoint>, Failure> {
        if self.over_stdio || self.background.is_some() {
            return Ok(None);
        }
        Endpoint::bind(self.listen.as_ref().unwrap_or(&settings.listen), settings).map(Some)
    }

    fn serving(
        &self,
        gateway: &Gateway,
        endpoint: Option<Endpoint>,
        background: Option<&Background>,
    ) -> Result<Serving, Failure> {
        let mut serving = Serving::default();
        if self.over_stdio {
            serving.stdio(gateway, self.profile.clone());
        }
        if let Some(endpoint) = endpoint {
            serving.http(gateway, endpoint)?;
        }
        if let Some(background) = background {
            serving.lines(gateway, background.listener()?);
        }
        Ok(serving)
    }
}

/// Returns a failure unless a configuration has this profile or server.
pub(super) fn known_profile(name: &str, servers: &Servers) -> Result<(), Failure> {
    let profiles = servers.config.gateway.profiles.iter().map(|profile| profile.name.as_str());
    let names: Vec<&str> = profiles.chain(servers.names().into_iter().map(|alias| alias.as_str())).collect();
    if name == "default" || names.contains(&name) {
        return Ok(());
    }
    let failure = Failure::usage(format!("unknown profile or server `{name}`"));
    Err(match suggest::did_you_mean(name, names.iter().copied()) {
        Some(question) => failure.hint(question),
        None => failure.hint(format!("profiles and servers: {}", names.join(", "))),
    })
}

/// Starts the servers. Returns only if a required server fails.
async fn start(gateway: &Gateway) -> Failure {
    match gateway.start().await {
        Ok(_) => std::future::pending().await,
        Err(error) => Failure::start(error),
    }
}

async fn deadline(context: &CommandContext) {
    match &context.deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
        None => std::future::pending().await,
    }
}
