//! One server's settings, and its transport.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::DuplexStream;

use super::alias;
use super::sandbox::Sandbox;
use super::server_auth::ServerAuth;
use super::server_limits::{ReconnectPolicy, ServerLimits, ServerTimeouts};
use ropeway_core::conversions::conversions;
use ropeway_core::secret::{Redactor, Secret};
use ropeway_core::setters::setters;
use ropeway_core::tool::Alias;

/// Settings for a connection to one server.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
#[doc(alias = "MCPConfig")]
pub struct ServerConfig {
    /// The server's name in this configuration.
    pub alias: Alias,
    /// The transport, with its command or URL.
    pub transport: Transport,
    /// The protocol era to use.
    pub era: EraChoice,
    /// Timeouts.
    pub timeouts: ServerTimeouts,
    /// Size limits.
    pub limits: ServerLimits,
    /// How a lost connection is reestablished.
    pub reconnect: ReconnectPolicy,
    /// Redacts further values in logs, events and errors, in addition to the transport's [`Secret`]s.
    pub redactor: Redactor,
}

impl ServerConfig {
    /// Creates a server's settings with this transport and defaults for the rest.
    ///
    /// [`StdioServer`] and [`HttpServer`] also convert into settings with an alias that is derived from the command or the URL.
    pub fn new(alias: impl Into<Alias>, transport: impl Into<Transport>) -> Self {
        Self {
            alias: alias.into(),
            transport: transport.into(),
            era: EraChoice::default(),
            timeouts: ServerTimeouts::default(),
            limits: ServerLimits::default(),
            reconnect: ReconnectPolicy::default(),
            redactor: Redactor::default(),
        }
    }

    /// Returns a digest for the server's command or URL, computed without secrets.
    pub fn endpoint(&self) -> ropeway_core::tool::Digest {
        let mut hasher = ropeway_core::tool::Hasher::new("ropeway server 1");
        match self.transport.original() {
            Transport::Stdio(server) => {
                hasher.field(b"stdio");
                hasher.field(server.command.as_bytes());
                server.args.iter().for_each(|word| hasher.field(self.redactor.redact(word).as_bytes()));
                hasher.field(server.cwd.as_deref().unwrap_or(std::path::Path::new("")).as_os_str().as_encoded_bytes());
            }
            Transport::Http(server) | Transport::Sse(server) => {
                hasher.field(b"http");
                hasher.field(self.redactor.redact(&server.url).as_bytes());
            }
            Transport::InProcess(_) => hasher.field(b"in process"),
            Transport::Socket(server) => {
                hasher.field(b"socket");
                hasher.field(server.path.as_os_str().as_encoded_bytes());
                hasher.field(server.server.as_deref().unwrap_or_default().as_bytes());
            }
        }
        hasher.finish()
    }
}

/// How to connect to a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A child process, over its standard input and output.
    Stdio(StdioServer),
    /// Streamable HTTP. A legacy HTTP+SSE server at the URL is detected
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#backwards-compatibility>).
    Http(HttpServer),
    /// Legacy HTTP+SSE (2024-11-05).
    Sse(HttpServer),
    /// A server in the same process.
    InProcess(#[doc(hidden)] InProcessServer),
    /// A running gateway, over its Unix socket.
    Socket(SocketServer),
}

impl Transport {
    /// Connects to a server in the same process. The function is called for every connection: it starts the server on one end of
    /// an in-memory pipe and returns the other end.
    ///
    /// # Examples
    ///
    /// ```
    /// use ropeway::config::{ServerConfig, Transport};
    ///
    /// # async fn serve(_pipe: tokio::io::DuplexStream) {}
    /// let server = ServerConfig::new("local", Transport::in_process(|| {
    ///     let (client, server) = tokio::io::duplex(64 * 1024);
    ///     tokio::spawn(serve(server));
    ///     client
    /// }));
    /// ```
    pub fn in_process(open: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self::InProcess(InProcessServer::new(open))
    }

    /// Returns the transport that identifies the server: for a server behind a gateway, the one that the gateway uses.
    pub fn original(&self) -> &Self {
        match self {
            Self::Socket(SocketServer { replaces: Some(original), .. }) => original.original(),
            transport => transport,
        }
    }
}

/// A server that runs as a child process.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "MCPStdioConfig")]
pub struct StdioServer {
    /// The program. It is executed directly, without a shell.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(String, Secret)>,
    /// The working directory. Defaults to [`base_dir`](Self::base_dir).
    pub cwd: Option<PathBuf>,
    /// The directory that contains the file that configures the server. Without it, the server runs in this process's directory.
    ///
    /// Tool approvals, which are kept for each file, do not depend on it.
    pub base_dir: Option<PathBuf>,
    /// Whether the program inherits the whole environment, rather than only variables such as `PATH` and `HOME`.
    pub inherit_env: bool,
    /// Restricts the program.
    pub sandbox: Option<Sandbox>,
}

impl StdioServer {
    /// Creates a server from a program and its arguments.
    pub fn new<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            base_dir: None,
            inherit_env: false,
            sandbox: None,
        }
    }

    /// Creates settings for a server that is started as a child process, without arguments.
    ///
    /// The command is executed directly, without a shell. The child gets a minimal environment; see [`with_env`](Self::with_env).
    ///
    /// ```
    /// use ropeway::config::StdioServer;
    ///
    /// let server = StdioServer::command("npx")
    ///     .with_args(["-y", "@modelcontextprotocol/server-filesystem", "."])
    ///     .with_env("LOG_LEVEL", "info");
    /// ```
    pub fn command(command: impl Into<String>) -> Self {
        Self::new(command, [""; 0])
    }

    /// Returns the directory that the server runs in, unless it is this process's directory.
    pub fn working_dir(&self) -> Option<&std::path::Path> {
        self.cwd.as_deref().or(self.base_dir.as_deref())
    }

    /// Appends command arguments.
    #[must_use]
    pub fn with_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Returns `true` if the command is a package or container runner such as `npx`, `uvx` or `docker`, which may download
    /// the server before running it.
    pub fn is_package_runner(&self) -> bool {
        const RUNNERS: [&str; 16] = [
            "bun", "bunx", "cargo", "deno", "docker", "go", "nix", "npm", "npx", "pipx", "pnpm", "pnpx", "podman",
            "uv", "uvx", "yarn",
        ];
        let name = std::path::Path::new(&self.command).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| RUNNERS.contains(&name))
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// A server at a URL.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "MCPHttpConfig")]
pub struct HttpServer {
    /// MCP endpoint URL.
    pub url: String,
    /// Headers for every request.
    pub headers: Vec<(String, Secret)>,
    /// Token for the `Authorization: Bearer` header.
    pub bearer: Option<Secret>,
    /// How access tokens are obtained. `None` uses the tokens from an earlier sign-in, unless `bearer` or an `Authorization`
    /// header is set.
    pub auth: Option<ServerAuth>,
    /// Whether a server that rejects the Streamable HTTP handshake is tried as a legacy HTTP+SSE server.
    pub sse_fallback: bool,
    /// Set by [`HttpServer::sse`] until the server becomes a [`Transport`].
    is_sse: bool,
}

impl HttpServer {
    /// Creates a server from its URL, with `sse_fallback` enabled. Strings also convert into one.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new(), bearer: None, auth: None, sse_fallback: true, is_sse: false }
    }

    /// Creates settings for a server that uses the HTTP+SSE transport from protocol version 2024-11-05.
    ///
    /// [`new`](Self::new) also detects these servers, at the cost of one rejected request.
    pub fn sse(url: impl Into<String>) -> Self {
        Self { is_sse: true, ..Self::new(url) }
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Returns `true` if `bearer` or a header is an `Authorization` header.
    pub fn has_fixed_credentials(&self) -> bool {
        self.bearer.is_some() || self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }
}

setters!(HttpServer {
    /// Sends a bearer token with every request.
    with_bearer(token: impl Into<Secret>) => bearer = Some(token.into());
    /// Sets how access tokens are obtained.
    with_auth(auth: impl Into<ServerAuth>) => auth = Some(auth.into());
});

/// A server in the same process. Every connection uses a new in-memory pipe.
#[derive(Clone)]
pub struct InProcessServer(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl InProcessServer {
    /// Creates a server from a function that starts it on one end of a pipe and returns the other end.
    pub fn new(open: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Starts the server and returns the pipe's client end.
    pub fn open(&self) -> DuplexStream {
        (self.0)()
    }
}

impl PartialEq for InProcessServer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for InProcessServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcessServer")
    }
}

/// A running gateway on this machine, or one server behind it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SocketServer {
    /// Path to the gateway's Unix socket.
    pub path: PathBuf,
    /// One server's alias in the gateway's configuration. `None` connects to all its servers.
    pub server: Option<String>,
    /// The transport that the gateway uses instead. The server's approvals and caches depend on it, not on the socket.
    pub replaces: Option<Box<Transport>>,
}

impl SocketServer {
    /// Creates settings for the gateway at this socket.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), server: None, replaces: None }
    }
}

setters!(SocketServer {
    /// Selects one server from the gateway.
    with_server(alias: impl Into<String>) => server = Some(alias.into());
    /// Sets the transport that the gateway uses for the server.
    replacing(transport: Transport) => replaces = Some(Box::new(transport));
});

conversions!(HttpServer {
    url: &str => Self::new(url);
    url: String => Self::new(url);
});

/// Derives the alias from the command.
impl From<StdioServer> for ServerConfig {
    fn from(server: StdioServer) -> Self {
        let alias = alias::of_command(&server.command, &server.args, server.is_package_runner());
        Self::new(alias, server)
    }
}

/// Derives the alias from the URL's host.
impl From<HttpServer> for ServerConfig {
    fn from(server: HttpServer) -> Self {
        Self::new(alias::of_url(&server.url), server)
    }
}

conversions!(Transport {
    server: SocketServer => Self::Socket(server);
    server: StdioServer => Self::Stdio(server);
    server: InProcessServer => Self::InProcess(server);
});

impl From<HttpServer> for Transport {
    fn from(mut server: HttpServer) -> Self {
        if std::mem::take(&mut server.is_sse) { Self::Sse(server) } else { Self::Http(server) }
    }
}

/// The era of the MCP protocol to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Era")]
pub enum EraChoice {
    /// Probe the server and remember the result.
    #[schemars(description = "Detect the era by probing the server.")]
    #[default]
    Auto,
    /// Versions up to 2025-11-25, with an `initialize` handshake.
    Legacy,
    /// Version 2026-07-28, without sessions.
    Modern,
}
