//! Options that select a command's servers.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ropeway_config::{EraChoice, HttpServer, Secret, ServerConfig, StdioServer, Transport};

use crate::failure::Failure;

/// The built-in demo server's name.
pub(crate) const DEMO: &str = "demo";

/// The variable that makes commands start their own servers.
const DIRECT: &str = "ROPEWAY_DIRECT";

/// Options that select a server instead of the configured ones.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// Configuration file: a ropeway.yaml, or the file of another client
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["stdio", "url"])]
    pub(crate) config: Option<PathBuf>,
    /// Run COMMAND as a stdio server, without a shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "url")]
    pub(crate) stdio: Option<String>,
    /// Connect to the server at URL
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Transport for --url
    #[arg(long, value_name = "TRANSPORT", default_value = "auto", hide_default_value = true,
        requires = "url", conflicts_with_all = ["stdio", "config"])]
    pub(crate) transport: TransportChoice,
    /// HTTP header to send with every request (repeatable)
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url", conflicts_with_all = ["stdio", "config"])]
    pub(crate) headers: Vec<String>,
    /// Bearer token to send with every request; @FILE reads it from a file
    #[arg(long, value_name = "TOKEN", requires = "url", conflicts_with_all = ["stdio", "config"])]
    pub(crate) bearer: Option<String>,
    /// Environment variable for the stdio server (repeatable), in addition to a minimal environment
    #[arg(long = "env", value_name = "NAME=VALUE", requires = "stdio", conflicts_with_all = ["url", "config"])]
    pub(crate) env: Vec<String>,
    /// Working directory of the stdio server
    #[arg(long, value_name = "DIR", requires = "stdio", conflicts_with_all = ["url", "config"])]
    pub(crate) cwd: Option<PathBuf>,
    /// Pass the whole environment to the stdio server
    #[arg(long, requires = "stdio", conflicts_with_all = ["url", "config"])]
    pub(crate) inherit_env: bool,
    /// Protocol era to use
    #[arg(long, value_name = "ERA")]
    pub(crate) era: Option<EraOption>,
    /// Start the servers for this command, even if `ropeway up` keeps them running
    #[arg(long)]
    pub(crate) direct: bool,
}

/// The transport for `--url`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportChoice {
    /// Streamable HTTP, falling back to legacy HTTP+SSE
    #[default]
    Auto,
    /// Streamable HTTP
    Http,
    /// Legacy HTTP+SSE
    Sse,
}

/// The protocol era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraOption {
    /// Detect the era
    Auto,
    /// `initialize`, up to 2025-11-25
    Legacy,
    /// Stateless, 2026-07-28
    Modern,
}

impl From<EraOption> for EraChoice {
    fn from(era: EraOption) -> Self {
        match era {
            EraOption::Auto => Self::Auto,
            EraOption::Legacy => Self::Legacy,
            EraOption::Modern => Self::Modern,
        }
    }
}

impl ServerOptions {
    /// Returns `true` if a running gateway's servers must not be used. The gateway has chosen an era for each
    /// server.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct || self.era.is_some() || std::env::var_os(DIRECT).is_some_and(|value| value == "1")
    }

    /// Returns the selected server's settings.
    pub(crate) fn config(&self) -> Result<ServerConfig, Failure> {
        match (&self.stdio, &self.url) {
            (Some(command), _) => self.stdio_config(command),
            (None, Some(url)) => self.http_config(url),
            (None, None) => demo_config(),
        }
    }

    fn stdio_config(&self, command: &str) -> Result<ServerConfig, Failure> {
        let words = shlex::split(command)
            .ok_or_else(|| Failure::usage(format!("`{command}` has a quote that is not closed")))?;
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Failure::usage("the command of --stdio is empty"))?;
        let arguments: Vec<String> = words.collect();
        let name = command_name(&program, &arguments);
        let mut server = StdioServer::new(program, arguments);
        for pair in &self.env {
            let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                // The value may be a secret and is not shown.
                Failure::usage("--env must be NAME=VALUE")
            })?;
            server = server.with_env(name, value);
        }
        if let Some(folder) = &self.cwd {
            if !folder.is_dir() {
                return Err(Failure::usage(format!("`{}` is not a directory", folder.display())));
            }
            server.cwd = Some(folder.clone());
        }
        server.inherit_env = self.inherit_env;
        Ok(ServerConfig::new(name, server))
    }

    fn http_config(&self, url: &str) -> Result<ServerConfig, Failure> {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| Failure::usage(format!("`{url}` is not an http:// or https:// URL")))?;
        // The part before `@` may contain a password.
        let name = host.rsplit('@').next().unwrap_or(host).to_owned();
        let mut server = HttpServer::new(url);
        for header in &self.headers {
            let (name, value) = header
                .split_once(':')
                .map(|(name, value)| (name.trim(), value.trim()))
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| Failure::usage("--header must be \"Name: value\""))?;
            server = server.with_header(name, value);
        }
        if let Some(token) = &self.bearer {
            server = server.with_bearer(read_token(token)?);
        }
        let transport = match self.transport {
            TransportChoice::Auto => Transport::Http(server),
            TransportChoice::Http => {
                server.sse_fallback = false;
                Transport::Http(server)
            }
            TransportChoice::Sse => Transport::Sse(server),
        };
        Ok(ServerConfig::new(name, transport))
    }
}

/// Returns the settings for the demo server, which is this binary.
fn demo_config() -> Result<ServerConfig, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::usage("could not determine the path of the ropeway executable").caused_by(&error))?;
    let program = program.into_os_string().into_string().map_err(|program| {
        Failure::usage(format!("the path of this program is not UTF-8: `{}`", program.to_string_lossy()))
    })?;
    Ok(ServerConfig::new(DEMO, StdioServer::new(program, ["demo-server"])))
}

fn read_token(text: &str) -> Result<Secret, Failure> {
    match text.strip_prefix('@') {
        None => Ok(Secret::new(text)),
        Some(path) => {
            let token = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("could not read `{path}`")).caused_by(&error))?;
            Ok(Secret::new(token.trim()))
        }
    }
}

/// Returns a stdio server's name: the program, or the package that a package runner starts.
fn command_name(program: &str, arguments: &[String]) -> String {
    let last_part = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned();
    let program = last_part(program);
    let package = match program.as_str() {
        "npx" | "bunx" | "uvx" | "pipx" | "docker" => {
            arguments.iter().find(|word| !word.starts_with('-') && *word != "run")
        }
        "node" | "python" | "python3" => arguments.iter().find(|word| !word.starts_with('-')),
        _ => None,
    };
    match package.map(|package| last_part(package)) {
        Some(package) => package.split('@').find(|part| !part.is_empty()).unwrap_or(&program).to_owned(),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: ServerOptions) -> Result<ServerConfig, String> {
        options.config().map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn a_command_is_split_without_a_shell() {
        let options = ServerOptions {
            stdio: Some("npx -y '@scope/server everything' $HOME".into()),
            env: vec!["A=b=c".into()],
            inherit_env: true,
            ..ServerOptions::default()
        };
        let Ok(ServerConfig { transport: Transport::Stdio(server), alias, .. }) = config(options) else {
            panic!("a stdio server")
        };
        let mut expected = StdioServer::new("npx", ["-y", "@scope/server everything", "$HOME"]).with_env("A", "b=c");
        expected.inherit_env = true;
        assert_eq!(server, expected);
        assert_eq!(alias.as_str(), "server everything");
    }

    #[test]
    fn a_url_carries_headers_and_a_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").expect("a file");
        let options = ServerOptions {
            url: Some("https://user:pass@example.com:8080/mcp?x".into()),
            headers: vec!["X-Key:  value: more ".into()],
            bearer: Some(format!("@{}", file.display())),
            transport: TransportChoice::Sse,
            ..ServerOptions::default()
        };
        let Ok(ServerConfig { transport: Transport::Sse(server), alias, .. }) = config(options) else {
            panic!("an SSE server")
        };
        let expected = HttpServer::new("https://user:pass@example.com:8080/mcp?x")
            .with_header("X-Key", "value: more")
            .with_bearer("secret");
        assert_eq!(server, expected);
        assert_eq!(alias.as_str(), "example.com:8080");
    }

    #[test]
    fn invalid_options_are_refused() {
        let stdio = |command: &str| ServerOptions { stdio: Some(command.into()), ..ServerOptions::default() };
        let url = |url: &str| ServerOptions { url: Some(url.into()), ..ServerOptions::default() };
        for options in [
            stdio(""),
            stdio("a 'b"),
            url("example.com"),
            url("https://"),
            url("file:///a"),
            ServerOptions { env: vec!["NAME".into()], ..stdio("a") },
            ServerOptions { cwd: Some("/no/such/folder".into()), ..stdio("a") },
            ServerOptions { headers: vec!["no colon".into()], ..url("http://a") },
        ] {
            assert!(config(options.clone()).is_err(), "{options:?}");
        }
    }

    #[test]
    fn a_server_is_named_after_its_package() {
        let name = |command: &str| {
            let words = shlex::split(command).expect("words");
            command_name(&words[0], &words[1..])
        };
        assert_eq!(name("/usr/bin/my-server --fast"), "my-server");
        assert_eq!(name("npx -y @modelcontextprotocol/server-everything@1.2"), "server-everything");
        assert_eq!(name("uvx mcp-server-time"), "mcp-server-time");
        assert_eq!(name("docker run -i --rm mcp/time"), "time");
        assert_eq!(name("npx"), "npx");
    }
}
