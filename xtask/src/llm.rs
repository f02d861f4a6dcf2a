//! A real local model: downloaded once, started, and tested over every dialect that its server has.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::paths;
use crate::process::{build, run};
use crate::servers;

/// Maximum time to load the model.
const LOAD_TIMEOUT: Duration = Duration::from_secs(180);

/// Downloads the model, starts it and runs `llm-client` with the further arguments.
pub fn ask(arguments: &[String]) -> Result<()> {
    let home = paths::target().join("llm");
    let fixtures = paths::root().join("fixtures/llm");
    run(Command::new("python3").arg(fixtures.join("fetch.py")).arg(&home))?;
    servers::run()?;
    build(&["llm-client"])?;
    let server = Server::start(&home, &fixtures.join("tools.jinja"))?;
    println!("llama-server is ready after {:.1?}", server.took);
    let mut client = Command::new(paths::program("llm-client"));
    client.env("RUST_BACKTRACE", "0").arg(server.address()).args(arguments);
    client.arg("--servers").arg(paths::servers().join("servers.json"));
    let corpus = paths::corpus();
    if corpus.is_dir() {
        client.arg("--corpus").arg(corpus);
    }
    run(&mut client)
}

/// The llama-server process. Dropping it kills the process.
struct Server {
    child: Child,
    port: u16,
    took: Duration,
}

impl Server {
    fn start(home: &std::path::Path, template: &std::path::Path) -> Result<Self> {
        let program = fs::canonicalize(home.join("llama-server")).context("llama-server was not found")?;
        let libraries = program.parent().map(PathBuf::from).unwrap_or_default();
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = home.join("server.log");
        let output = File::create(&log)?;
        let started = Instant::now();
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", libraries).arg("--model").arg(home.join("model.gguf"));
        command.args(["--alias", "local", "--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--ctx-size", "8192", "--parallel", "1", "--jinja", "--offline", "--no-webui"]);
        command.arg("--chat-template-file").arg(template);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("could not start llama-server")?;
        let mut server = Self { child, port, took: Duration::ZERO };
        while !server.is_ready() {
            if let Some(status) = server.child.try_wait()? {
                bail!("llama-server ended with {status}; see `{}`", log.display());
            }
            if started.elapsed() > LOAD_TIMEOUT {
                bail!("llama-server not ready after {LOAD_TIMEOUT:?}; see `{}`", log.display());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        server.took = started.elapsed();
        Ok(server)
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns `true` once the model is loaded. The server answers 503 until then.
    fn is_ready(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
            let mut start = [0; 12];
            stream.read_exact(&mut start)?;
            Ok(start.ends_with(b" 200"))
        };
        ask().unwrap_or(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
