//! The comparison's servers, and the ways to them: directly and through the gateway.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use crate::background::Background;
use crate::gateway::{self, Gateway};
use crate::{paths, servers};

/// Maximum time from a server's start to its port.
const START: Duration = Duration::from_secs(30);

/// A server in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The official server with one of everything, in the legacy era.
    Everything,
    /// A server for both eras, on the TypeScript SDK 2.
    Modern,
    /// The official filesystem server without folders: it asks for roots once, after `initialized`.
    Files,
}

impl Server {
    pub const ALL: [Self; 3] = [Self::Everything, Self::Modern, Self::Files];

    /// Returns its name in `fixtures/clients/checks.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Modern => "modern",
            Self::Files => "files",
        }
    }

    fn words(self) -> Vec<String> {
        let npm = paths::servers().join("npm");
        let package = |name: &str| npm.join("node_modules/@modelcontextprotocol").join(name).join("dist/index.js");
        let script = match self {
            Self::Everything => package("server-everything"),
            Self::Modern => npm.join("modern.mjs"),
            Self::Files => package("server-filesystem"),
        };
        [servers::node(), script].map(|path| path.to_string_lossy().into_owned()).into()
    }

    /// Starts the server over HTTP.
    fn over_http(self) -> Result<(Background, String)> {
        let port = free_port()?;
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        match self {
            Self::Everything => command.arg("streamableHttp").env("PORT", port.to_string()),
            Self::Modern => command.arg(port.to_string()),
            Self::Files => bail!("the filesystem server has no HTTP"),
        };
        let program = Background::start(&mut command)?;
        let end = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > end {
                bail!("`{}` did not open its port\n{}", self.name(), program.output().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok((program, format!("http://127.0.0.1:{port}/mcp")))
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A way from a client to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    DirectStdio,
    DirectHttp,
    /// `ropeway serve` in front of a child process.
    Http,
    /// `ropeway serve` in front of an HTTP server.
    Remote,
    /// `ropeway serve --stdio`.
    Stdio,
    /// `ropeway serve` with keys.
    Keys,
    /// A gateway in front of the same user's other gateway.
    Nested,
    /// The gateway is restarted after the client has connected.
    Restart,
    /// `ropeway serve --stdio` in front of a server that needs seven seconds to start.
    Slow,
}

impl Way {
    pub const ALL: [Self; 9] = [
        Self::DirectStdio,
        Self::DirectHttp,
        Self::Http,
        Self::Remote,
        Self::Stdio,
        Self::Keys,
        Self::Nested,
        Self::Restart,
        Self::Slow,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::DirectStdio => "direct-stdio",
            Self::DirectHttp => "direct-http",
            Self::Http => "http",
            Self::Remote => "remote",
            Self::Stdio => "stdio",
            Self::Keys => "keys",
            Self::Nested => "nested",
            Self::Restart => "restart",
            Self::Slow => "slow",
        }
    }

    pub fn is_direct(self) -> bool {
        matches!(self, Self::DirectStdio | Self::DirectHttp)
    }

    /// Returns the way without a gateway that this one is compared with.
    pub fn reference(self, check: &str) -> Self {
        // Only sessions over HTTP can be ended.
        let is_http = !matches!(self, Self::Stdio | Self::Slow);
        match self {
            Self::Remote => Self::DirectHttp,
            _ if check == "terminate" && is_http => Self::DirectHttp,
            _ => Self::DirectStdio,
        }
    }

    pub fn suits(self, server: Server) -> bool {
        match server {
            Server::Everything | Server::Modern => true,
            Server::Files => !matches!(self, Self::DirectHttp | Self::Remote | Self::Slow),
        }
    }
}

/// A way that is open, with the programs that it needs.
#[derive(Debug)]
pub struct Open {
    pub endpoint: Endpoint,
    way: Way,
    home: PathBuf,
    config: PathBuf,
    gateway: Option<Gateway>,
    /// In the order in which they end.
    _behind: Vec<Background>,
}

impl Open {
    /// Starts what the way needs.
    pub fn start(way: Way, server: Server) -> Result<Self> {
        let name = format!("clients-{}-{}", way.name(), server.name());
        let home = paths::target().join("gateway").join(format!("{name}.home"));
        // The last run's state.
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        let words = server.words();
        let mut open = Self {
            endpoint: Endpoint::Command(words.clone()),
            way,
            home,
            config: PathBuf::new(),
            gateway: None,
            _behind: Vec::new(),
        };
        let entry = json!({ "alias": server.name(), "command": words[0], "args": words[1..] });
        match way {
            Way::DirectStdio => {}
            Way::DirectHttp => {
                let (program, url) = server.over_http()?;
                open.endpoint = Endpoint::Url { url, key: None };
                open._behind.push(program);
            }
            Way::Http | Way::Restart => open.serve(&name, json!({ "servers": [entry] }), None)?,
            Way::Remote => {
                let (program, url) = server.over_http()?;
                open._behind.push(program);
                open.serve(&name, json!({ "servers": [{ "alias": server.name(), "url": url }] }), None)?;
            }
            Way::Stdio => open.serve_stdio(&name, &json!({ "servers": [entry] }))?,
            Way::Slow => {
                let script = "sleep 7; exec \"$0\" \"$@\"";
                let mut args = vec!["-c".to_owned(), script.to_owned()];
                args.extend(words);
                let entry = json!({ "alias": server.name(), "command": "sh", "args": args });
                open.serve_stdio(&name, &json!({ "servers": [entry] }))?;
            }
            Way::Keys => {
                let keys = open.home.join("keys.json");
                let key = gateway::new_key(&paths::program("ropeway"), &keys, &["alice"])?;
                let auth = json!({ "auth": { "keys_file": keys } });
                open.serve(&name, json!({ "gateway": auth, "servers": [entry] }), Some(key))?;
            }
            Way::Nested => {
                open.serve(&format!("{name}-inner"), json!({ "servers": [entry] }), None)?;
                let Endpoint::Url { url, .. } = &open.endpoint else { bail!("the inner gateway has no URL") };
                let outer = json!({ "servers": [{ "alias": server.name(), "url": url }] });
                let inner = open.gateway.take().map(|inner| inner.program);
                open.serve(&name, outer, None)?;
                open._behind.extend(inner);
            }
        }
        Ok(open)
    }

    /// Starts a gateway; gateways on one way share their state, as one user's gateways do.
    fn serve(&mut self, name: &str, config: Value, key: Option<String>) -> Result<()> {
        self.config = gateway::write_config(name, &config)?;
        let listen = format!("127.0.0.1:{}", free_port()?);
        let gateway = Gateway::start_in(&self.home, &paths::program("ropeway"), &self.config, &listen)?;
        self.endpoint = Endpoint::Url { url: gateway.url.clone(), key };
        self.gateway = Some(gateway);
        Ok(())
    }

    fn serve_stdio(&mut self, name: &str, config: &Value) -> Result<()> {
        self.config = gateway::write_config(name, config)?;
        let mut words = vec!["env".to_owned()];
        for (name, value) in gateway::environment(&self.home)? {
            words.push(format!("{name}={}", value.to_string_lossy()));
        }
        let ropeway = paths::program("ropeway");
        let program = [ropeway.as_os_str(), "serve".as_ref(), "--stdio".as_ref(), "--config".as_ref()];
        words.extend(program.map(|word| word.to_string_lossy().into_owned()));
        words.push(self.config.to_string_lossy().into_owned());
        self.endpoint = Endpoint::Command(words);
        Ok(())
    }

    /// Returns `true` if the gateway is restarted between connection and checks.
    pub fn restarts(&self) -> bool {
        self.way == Way::Restart
    }

    /// Ends the gateway and starts it again on the same port.
    pub fn restart(&mut self) -> Result<()> {
        let gateway = self.gateway.take().context("no gateway runs")?;
        let listen = gateway.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        gateway.program.stop()?;
        self.gateway = Some(Gateway::start_in(&self.home, &paths::program("ropeway"), &self.config, &listen)?);
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.home
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_compared_with_the_same_transport_behind_it() {
        assert_eq!(Way::Nested.reference("log"), Way::DirectStdio);
        assert_eq!(Way::Remote.reference("log"), Way::DirectHttp);
        assert_eq!(Way::Http.reference("terminate"), Way::DirectHttp);
        assert_eq!(Way::Stdio.reference("terminate"), Way::DirectStdio);
    }
}
