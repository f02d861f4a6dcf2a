//! The benchmark's gateways: how each is installed, and started in front of one stdio server.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::collector::Collector;
use crate::background::Background;
use crate::{paths, process, servers};

/// The mcp-proxy crate's version.
const MCP_PROXY: &str = "0.6.0";

/// The file with the clients' keys.
const KEYS: &str = "keys.json";

/// Maximum time from start to the first call.
const START: Duration = Duration::from_secs(90);

/// A server or gateway under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contestant {
    /// A server on the official Rust SDK over HTTP, without a gateway.
    Direct,
    /// `ropeway serve`, with legacy clients.
    Ropeway,
    /// `ropeway serve`, with modern clients.
    RopewayModern,
    /// `ropeway serve` with keys, limits, an audit log and metrics.
    RopewayOperated,
    /// The same with metrics and spans over OTLP, the latter for one call in ten.
    RopewayTraced,
    McpProxy,
    McpHub,
    FastMcp,
    Supergateway,
}

impl Contestant {
    /// In round order.
    pub(super) const ALL: [Self; 9] = [
        Self::Direct,
        Self::Ropeway,
        Self::RopewayModern,
        Self::RopewayOperated,
        Self::RopewayTraced,
        Self::McpProxy,
        Self::McpHub,
        Self::FastMcp,
        Self::Supergateway,
    ];
    /// The gateways on Node and Python.
    pub(super) const SCRIPTS: [Self; 3] = [Self::McpHub, Self::FastMcp, Self::Supergateway];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "no gateway (rmcp)",
            Self::Ropeway => "ropeway",
            Self::RopewayModern => "ropeway (modern)",
            Self::RopewayOperated => "ropeway (operated)",
            Self::RopewayTraced => "ropeway (traced)",
            Self::McpProxy => "mcp-proxy (crate)",
            Self::McpHub => "mcp-hub",
            Self::FastMcp => "fastmcp",
            Self::Supergateway => "supergateway",
        }
    }

    /// Returns the name under which clients see the server's tool `echo`.
    fn tool(self) -> &'static str {
        match self {
            Self::McpProxy => "echo/echo",
            Self::McpHub => "echo__echo",
            _ => "echo",
        }
    }

    fn era(self) -> &'static str {
        match self {
            Self::RopewayModern => "modern",
            // It has no Streamable HTTP.
            Self::McpHub => "legacy-sse",
            _ => "legacy",
        }
    }

    /// Returns how many calls a run makes, so that all runs take about as long.
    fn calls(self, quick: bool) -> usize {
        let calls = if Self::SCRIPTS.contains(&self) { 1_000 } else { 10_000 };
        if quick { calls / 5 } else { calls }
    }
}

/// The installed gateways.
pub(super) struct Gateways {
    built: PathBuf,
    home: PathBuf,
    node: Result<PathBuf, String>,
    mcp_proxy: Result<PathBuf, String>,
    fastmcp: Result<PathBuf, String>,
}

impl Gateways {
    /// Installs the other gateways, as far as possible. Ours is built already.
    pub(super) fn install(built: &Path) -> Result<Self> {
        let home = paths::target().join("gateways");
        let fixtures = paths::root().join("fixtures").join("gateways");
        let proof = ["mcp-hub/dist/cli.js", "supergateway/dist/index.js"];
        let node = servers::npm_packages(&home.join("node"), &fixtures, &proof)?;
        let fastmcp = servers::command_lines()?.fastmcp;
        let fastmcp = fastmcp.and_then(|program| program.into_iter().next().ok_or_else(|| "no program".to_owned()));
        Ok(Self { built: built.to_owned(), mcp_proxy: install_mcp_proxy(&home), home, node, fastmcp })
    }

    /// Returns why a contestant is missing.
    pub(super) fn absent(&self, contestant: Contestant) -> Option<&str> {
        match contestant {
            Contestant::Direct
            | Contestant::Ropeway
            | Contestant::RopewayModern
            | Contestant::RopewayOperated
            | Contestant::RopewayTraced => None,
            Contestant::McpProxy => self.mcp_proxy.as_ref().err().map(String::as_str),
            Contestant::McpHub | Contestant::Supergateway => self.node.as_ref().err().map(String::as_str),
            Contestant::FastMcp => self.fastmcp.as_ref().err().map(String::as_str),
        }
    }

    /// Starts a contestant, waits for its first call, and returns it with a run's load.
    pub(super) fn start(&self, contestant: Contestant, quick: bool) -> Result<Running> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let token = self.token(contestant)?;
        let mut command = self.command(contestant, port)?;
        let is_traced = contestant == Contestant::RopewayTraced;
        let collector = is_traced.then(|| Collector::start(&mut command)).transpose()?;
        command.current_dir(&self.home).env("HOME", &self.home).env("XDG_STATE_HOME", self.home.join("state"));
        command.env("ROPEWAY_CACHE_DIR", self.home.join("cache")).env("NO_COLOR", "1");
        command.env("FASTMCP_CHECK_FOR_UPDATES", "off");
        let program = Background::start(&mut command)?;
        let path = if contestant == Contestant::McpProxy { "" } else { "mcp" };
        let running = Running {
            load: self.built.join("bench-gateway"),
            url: format!("http://127.0.0.1:{port}/{path}"),
            contestant,
            calls: contestant.calls(quick),
            token,
            program,
            _collector: collector,
        };
        running.wait()?;
        Ok(running)
    }

    fn command(&self, contestant: Contestant, port: u16) -> Result<Command> {
        let server = self.built.join("echo-server");
        let entry = json!({ "mcpServers": { "echo": { "command": server, "args": [] } } });
        let missing = |why: &String| anyhow::anyhow!("{}: {why}", contestant.name());
        let modules = self.home.join("node/node_modules");
        let port_text = port.to_string();
        Ok(match contestant {
            Contestant::Direct => {
                let mut command = Command::new(self.built.join("rmcp-server"));
                command.args(["--http", &port_text]);
                command
            }
            Contestant::Ropeway | Contestant::RopewayModern => {
                let config =
                    self.file("ropeway.json", &json!({ "servers": [{ "alias": "echo", "command": server }] }))?;
                let mut command = Command::new(self.built.join("ropeway"));
                command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]).arg(config);
                command
            }
            Contestant::RopewayOperated | Contestant::RopewayTraced => {
                let limits = json!({ "rate": "1000000/s", "calls_per_principal": 1_000, "result": "64M" });
                let auth = json!({ "keys_file": self.home.join(KEYS) });
                let gateway =
                    json!({ "auth": auth, "limits": limits, "audit": { "file": self.home.join("audit.jsonl") } });
                let servers = json!([{ "alias": "echo", "command": server }]);
                let config = self.file("operated.json", &json!({ "gateway": gateway, "servers": servers }))?;
                let mut command = Command::new(self.built.join("ropeway"));
                command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]).arg(config);
                command
            }
            Contestant::McpProxy => {
                let path = self.home.join("mcp-proxy.toml");
                let text = format!(
                    "[proxy]\nname = \"bench\"\nseparator = \"/\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\
                     [[backends]]\nname = \"echo\"\ntransport = \"stdio\"\ncommand = {server:?}\nargs = []\n"
                );
                fs::write(&path, text)?;
                let mut command = Command::new(self.mcp_proxy.as_ref().map_err(missing)?);
                command.arg("--config").arg(path);
                command
            }
            Contestant::McpHub => {
                let config = self.file("mcp-hub.json", &entry)?;
                let mut command = Command::new(self.node.as_ref().map_err(missing)?);
                command.arg(modules.join("mcp-hub/dist/cli.js")).args(["--port", &port_text, "--config"]).arg(config);
                command
            }
            Contestant::FastMcp => {
                let config = self.file("fastmcp.json", &entry)?;
                let mut command = Command::new(self.fastmcp.as_ref().map_err(missing)?);
                command.arg("run").arg(config).args(["--transport", "http", "--port", &port_text, "--no-banner"]);
                command.args(["--log-level", "ERROR"]);
                command
            }
            Contestant::Supergateway => {
                let mut command = Command::new(self.node.as_ref().map_err(missing)?);
                command.arg(modules.join("supergateway/dist/index.js")).arg("--stdio").arg(server);
                command.args(["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]);
                command.args(["--port", &port_text]);
                command
            }
        })
    }

    /// Makes the clients' key for a gateway that requires one.
    fn token(&self, contestant: Contestant) -> Result<Option<String>> {
        if !matches!(contestant, Contestant::RopewayOperated | Contestant::RopewayTraced) {
            return Ok(None);
        }
        let keys = self.home.join(KEYS);
        let _ = fs::remove_file(&keys);
        let mut make = Command::new(self.built.join("ropeway"));
        make.args(["key", "new", "bench", "--file"]).arg(keys).env("HOME", &self.home);
        let output = process::output(&mut make)?;
        if !output.status.success() {
            anyhow::bail!("could not make a key\n{}", process::output_text(&output));
        }
        Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    fn file(&self, name: &str, value: &serde_json::Value) -> Result<PathBuf> {
        let path = self.home.join(name);
        fs::write(&path, value.to_string()).with_context(|| format!("could not write `{}`", path.display()))?;
        Ok(path)
    }
}

/// A running contestant.
pub(super) struct Running {
    load: PathBuf,
    url: String,
    contestant: Contestant,
    calls: usize,
    token: Option<String>,
    program: Background,
    _collector: Option<Collector>,
}

impl Running {
    /// Returns the load with this many sessions.
    pub(super) fn load(&self, sessions: usize) -> Command {
        self.load_of(sessions, self.calls)
    }

    fn load_of(&self, sessions: usize, calls: usize) -> Command {
        let mut command = Command::new(&self.load);
        command.args(["--url", &self.url, "--pid", &self.program.pid().to_string()]);
        command.args(["--era", self.contestant.era(), "--tool", self.contestant.tool()]);
        command.args(["--sessions", &sessions.to_string(), "--calls", &calls.to_string()]);
        if let Some(token) = &self.token {
            command.args(["--token", token]);
        }
        command
    }

    /// Waits until a call succeeds.
    fn wait(&self) -> Result<()> {
        let end = Instant::now() + START;
        loop {
            let output = process::output(&mut self.load_of(1, 1))?;
            if output.status.success() {
                return Ok(());
            }
            if Instant::now() > end {
                let said = self.program.output().join("\n");
                let said = format!("{}\n{said}", process::output_text(&output));
                anyhow::bail!("{} did not become ready in {START:?}\n{said}", self.contestant.name());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

/// Builds the crate mcp-proxy, once.
fn install_mcp_proxy(home: &Path) -> Result<PathBuf, String> {
    let root = home.join("cargo");
    let (program, stamp) = (root.join("bin/mcp-proxy"), root.join(format!("{MCP_PROXY}.stamp")));
    if program.exists() && stamp.exists() {
        return Ok(program);
    }
    eprintln!("building mcp-proxy {MCP_PROXY}");
    let version = format!("={MCP_PROXY}");
    let mut install = process::cargo(&["install", "mcp-proxy", "--version", &version, "--locked", "--quiet", "--root"]);
    install.arg(&root).env("CARGO_TARGET_DIR", home.join("cargo-build"));
    process::run_quietly(&mut install).map_err(|error| format!("{error:#}"))?;
    fs::write(&stamp, "").map_err(|error| error.to_string())?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_gateways_have_a_reason() {
        let why = || Err::<PathBuf, _>("no npm".to_owned());
        let here = PathBuf::from("x");
        let gateways = Gateways { built: here.clone(), home: here, node: why(), mcp_proxy: why(), fastmcp: why() };
        let absent = Contestant::ALL.map(|contestant| gateways.absent(contestant).is_some());
        assert_eq!(absent, [false, false, false, false, false, true, true, true, true]);
        assert!(gateways.command(Contestant::Supergateway, 1).is_err());
    }
}
