//! The settings of one server: how to reach it, how long to wait, how much to take.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;

use crate::secret::{Redactor, Secret};
use crate::tool::Alias;

/// Everything that one connection needs to know about its server.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Our name for the server.
    pub alias: Alias,
    /// How the server is reached.
    pub transport: Transport,
    /// Which era of the protocol to speak.
    pub era: EraChoice,
    /// How long to wait.
    pub timeouts: ServerTimeouts,
    /// How much to take.
    pub limits: ServerLimits,
    /// What to do when the server is lost.
    pub reconnect: ReconnectPolicy,
    /// What must not be seen in logs, events and errors, besides what is a [`Secret`] anyway.
    pub mask: Redactor,
}

impl ServerConfig {
    /// A server over the given transport, with the usual settings.
    pub fn new(alias: impl Into<Alias>, transport: impl Into<Transport>) -> Self {
        Self {
            alias: alias.into(),
            transport: transport.into(),
            era: EraChoice::default(),
            timeouts: ServerTimeouts::default(),
            limits: ServerLimits::default(),
            reconnect: ReconnectPolicy::default(),
            mask: Redactor::default(),
        }
    }

    /// Returns a digest of the command or URL that the server is reached by. Secrets take no part in it.
    #[cfg(feature = "bridge")]
    pub(crate) fn endpoint(&self) -> crate::tool::Digest {
        let mut hasher = crate::tool::Hasher::new("ropeway server 1");
        match &self.transport {
            Transport::Stdio(server) => {
                hasher.field(b"stdio");
                hasher.field(server.command.as_bytes());
                server.args.iter().for_each(|word| hasher.field(self.mask.hide(word).as_bytes()));
                hasher.field(server.cwd.as_deref().unwrap_or(std::path::Path::new("")).as_os_str().as_encoded_bytes());
            }
            Transport::Http(server) | Transport::Sse(server) => {
                hasher.field(b"http");
                hasher.field(self.mask.hide(&server.url).as_bytes());
            }
            Transport::InProcess(_) => hasher.field(b"in process"),
        }
        hasher.finish()
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transport {
    /// A child process that speaks on its standard input and output.
    Stdio(StdioServer),
    /// Streamable HTTP; a URL that turns out to be a legacy HTTP+SSE server is found out.
    Http(HttpServer),
    /// Legacy HTTP+SSE (2024-11-05).
    Sse(HttpServer),
    /// A server inside this process.
    InProcess(InProcessServer),
}

/// A server that is a child process.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StdioServer {
    /// The program, run as it is: no shell looks at it.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it gets besides the minimal environment.
    pub env: Vec<(String, Secret)>,
    /// The folder that it runs in; ours when absent.
    pub cwd: Option<PathBuf>,
    /// Give it our whole environment instead of the minimal one.
    pub inherit_env: bool,
}

impl StdioServer {
    /// A command with its arguments.
    pub fn new<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            inherit_env: false,
        }
    }

    /// Returns true if the command is a package or container runner such as `npx`, `uvx` or `docker`, which may have to download the
    /// server before it runs it.
    pub fn is_package_runner(&self) -> bool {
        const RUNNERS: [&str; 16] = [
            "bun", "bunx", "cargo", "deno", "docker", "go", "nix", "npm", "npx", "pipx", "pnpm", "pnpx", "podman",
            "uv", "uvx", "yarn",
        ];
        let name = std::path::Path::new(&self.command).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| RUNNERS.contains(&name))
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// A server behind a URL.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpServer {
    /// Where it listens.
    pub url: String,
    /// Headers that go with every request.
    pub headers: Vec<(String, Secret)>,
    /// A token for `Authorization: Bearer`.
    pub bearer: Option<Secret>,
    /// Over streamable HTTP: try legacy HTTP+SSE when the server refuses the handshake.
    pub sse_fallback: bool,
}

impl HttpServer {
    /// A server at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new(), bearer: None, sse_fallback: true }
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends a bearer token with every request.
    #[must_use]
    pub fn with_bearer(mut self, token: impl Into<Secret>) -> Self {
        self.bearer = Some(token.into());
        self
    }
}

/// A server inside this process, reached through a pipe that is made anew for each connection.
#[derive(Clone)]
pub struct InProcessServer(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl InProcessServer {
    /// `open` starts the server on one end of a pipe and returns the other.
    pub fn new(open: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// A new pipe to the server.
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

impl From<StdioServer> for Transport {
    fn from(server: StdioServer) -> Self {
        Self::Stdio(server)
    }
}

impl From<HttpServer> for Transport {
    fn from(server: HttpServer) -> Self {
        Self::Http(server)
    }
}

impl From<InProcessServer> for Transport {
    fn from(server: InProcessServer) -> Self {
        Self::InProcess(server)
    }
}

/// Which era of the protocol to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Ask the server, and remember what it said.
    #[default]
    Auto,
    /// `initialize`, up to 2025-11-25.
    Legacy,
    /// Stateless, 2026-07-28.
    Modern,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTimeouts {
    /// From start to ready.
    pub connect: Duration,
    /// From start to ready for a package runner such as `npx` or `uvx`, as long as it makes progress: it may have to download first.
    /// Has no effect if it is shorter than `connect`.
    pub download: Duration,
    /// How long a server may leave the era probe unanswered before `initialize` is sent beside it.
    pub probe: Duration,
    /// How long nothing may be heard of a call; progress starts this clock anew.
    pub idle: Duration,
    /// How long a call may take as a whole.
    pub total: Duration,
    /// How long a server has to end by itself before it is made to.
    pub close: Duration,
    /// How long a call waits for a server that is being connected again.
    pub grace: Duration,
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(60),
            download: Duration::from_secs(10 * 60),
            probe: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(30 * 60),
            close: Duration::from_secs(3),
            grace: Duration::from_secs(5),
        }
    }
}

#[cfg(feature = "mcp")]
impl ServerTimeouts {
    /// The same, with nothing longer than a year: the clocks cannot tell times that are further away.
    pub(crate) fn bounded(self) -> Self {
        let Self { connect, download, probe, idle, total, close, grace } = self;
        Self {
            connect: connect.min(A_YEAR),
            download: download.min(A_YEAR),
            probe: probe.min(A_YEAR),
            idle: idle.min(A_YEAR),
            total: total.min(A_YEAR),
            close: close.min(A_YEAR),
            grace: grace.min(A_YEAR),
        }
    }
}

/// As good as for ever.
#[cfg(feature = "mcp")]
pub(crate) const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How much to take from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// The largest message, in bytes: a line, an event or a body.
    pub message_bytes: usize,
    /// The most pages of one list.
    pub pages: usize,
    /// Maximum entries of one list, over all of its pages. What comes before is used, with a warning.
    pub list_entries: usize,
    /// Maximum bytes of one list, over all of its pages. A single entry may take an eighth of them.
    pub list_bytes: usize,
    /// The most rounds in which a call may ask for more input.
    pub input_rounds: usize,
    /// The most questions that the server may ask the user during one call.
    pub questions: usize,
    /// How many bytes of the child's stderr are kept.
    pub stderr_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            pages: 1000,
            list_entries: 10_000,
            list_bytes: 32 << 20,
            input_rounds: 10,
            questions: 10,
            stderr_bytes: 64 << 10,
        }
    }
}

/// What to do when a server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconnectPolicy {
    /// Connect again by itself.
    pub enabled: bool,
    /// The wait before the second try, at least 20 ms; it doubles from there.
    pub first: Duration,
    /// The longest wait between two tries.
    pub longest: Duration,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self { enabled: true, first: Duration::from_millis(250), longest: Duration::from_secs(30) }
    }
}
