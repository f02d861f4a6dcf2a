//! The clients' programs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::command_lines::{self, Inspector, Mcporter, Ropeway};
use super::endpoint::Endpoint;
use super::outcome::{self, Outcome, Outcomes, Seen};
use crate::process;
use crate::{paths, servers};

/// Maximum time for a check in a client.
const CHECK: Duration = Duration::from_secs(20);
/// Maximum time for a program.
const PROGRAM: Duration = Duration::from_secs(420);

/// A client, and how it is run.
#[derive(Debug)]
pub enum Client {
    /// A program that runs all checks in one connection; the variables select the era.
    Script { program: Vec<PathBuf>, variables: Vec<(&'static str, &'static str)> },
    /// The Inspector's command line: one process per request.
    Inspector(Vec<PathBuf>),
    /// mcporter's command line.
    Mcporter(Vec<PathBuf>),
    /// This workspace's own command line.
    Ropeway(PathBuf),
}

/// A client with its name, or the reason why it is missing.
#[derive(Debug)]
pub struct Named {
    pub name: &'static str,
    pub client: Result<Client, String>,
}

/// The short form's client names.
pub const SHORT: [&str; 6] = ["ts1", "ts2", "ts2-legacy", "py1", "py2", "py2-legacy"];

/// Returns all clients.
pub fn all() -> Result<Vec<Named>> {
    let mut clients = sdks()?;
    let lines = servers::command_lines()?;
    clients.push(Named { name: "inspector", client: lines.inspector.map(Client::Inspector) });
    clients.push(Named { name: "mcporter", client: lines.mcporter.map(Client::Mcporter) });
    Ok(clients)
}

/// Returns the clients that are SDKs.
pub fn sdks() -> Result<Vec<Named>> {
    let fixtures = paths::client_fixtures();
    let folder = paths::target().join("clients").join("node");
    let proof = ["@modelcontextprotocol/sdk/package.json", "@modelcontextprotocol/client/package.json"];
    let node = servers::npm_packages(&folder, &fixtures, &proof)?;
    if node.is_ok() {
        // Node resolves imports from the script's folder, so it must be next to its `node_modules`.
        for script in ["checks.mjs", "typescript1.mjs", "typescript2.mjs"] {
            fs::copy(fixtures.join(script), folder.join(script))?;
        }
    }
    let era = |era: &'static str| vec![("MCP_ERA", era)];
    let typescript = |name: &str, era| {
        let client = |node| Client::Script { program: vec![node, folder.join(name)], variables: era };
        node.clone().map(client)
    };
    let python = |venv: &str, name: &str, variables| {
        let program = vec![paths::servers().join(venv).join("bin/python"), fixtures.join(name)];
        Ok(Client::Script { program, variables })
    };
    let rmcp = |variables| Ok(Client::Script { program: vec![paths::program("rmcp-client")], variables });
    Ok([
        ("ts1", typescript("typescript1.mjs", Vec::new())),
        ("ts2", typescript("typescript2.mjs", era("modern"))),
        ("ts2-legacy", typescript("typescript2.mjs", era("legacy"))),
        ("py1", python("mcp1", "python1.py", Vec::new())),
        ("py2", python("mcp2", "python2.py", era("modern"))),
        ("py2-legacy", python("mcp2", "python2.py", era("legacy"))),
        ("fastmcp", python("fastmcp", "fastmcp_client.py", era("modern"))),
        ("rmcp", rmcp(era("modern"))),
        ("rmcp-legacy", rmcp(era("legacy"))),
    ]
    .map(|(name, client)| Named { name, client })
    .into())
}

/// What a client is run with.
#[derive(Debug)]
pub struct Task<'a> {
    pub endpoint: &'a Endpoint,
    pub checks: &'a Value,
    /// The folder that clients have as their root.
    pub root: &'a Path,
    /// A folder for this run's files.
    pub folder: &'a Path,
}

impl Client {
    /// Returns `true` if it keeps a connection, which a gateway restart could break.
    pub fn keeps_connection(&self) -> bool {
        matches!(self, Self::Script { .. })
    }

    /// Runs the checks. `disturb` is called between connection and checks.
    pub fn run(&self, task: &Task<'_>, disturb: Option<&mut dyn FnMut() -> Result<()>>) -> Outcomes {
        let outcomes = match self {
            Self::Script { program, variables } => self::script(program, variables, task, disturb),
            Self::Inspector(program) => {
                let line = Inspector::new(program, task.endpoint, task.folder);
                line.map(|line| command_lines::run(&line, task.checks))
            }
            Self::Mcporter(program) => {
                let line = Mcporter::new(program, task.endpoint, task.folder);
                line.map(|line| command_lines::run(&line, task.checks))
            }
            Self::Ropeway(program) => {
                Ok(command_lines::run(&Ropeway { program, endpoint: task.endpoint }, task.checks))
            }
        };
        outcomes.unwrap_or_else(|reason| {
            let checks = task.checks.as_object().into_iter().flatten();
            checks.map(|(name, _)| (name.clone(), Seen::new(Outcome::Failed, reason.clone()))).collect()
        })
    }
}

fn script(
    program: &[PathBuf],
    variables: &[(&'static str, &'static str)],
    task: &Task<'_>,
    disturb: Option<&mut dyn FnMut() -> Result<()>>,
) -> Result<Outcomes, String> {
    let root = format!("file://{}", task.root.display());
    let time = u64::try_from(CHECK.as_millis()).unwrap_or_default();
    let spec = json!({ "checks": task.checks, "root": root, "timeout": time, "wait": disturb.is_some() });
    let mut command = command(program)?;
    command.envs(variables.iter().copied()).args([task.endpoint.to_json().to_string(), spec.to_string()]);
    let mut child = timed(&command, PROGRAM)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut stdout = BufReader::new(stdout.ok_or("no standard output")?);
    let mut said = String::new();
    if let Some(disturb) = disturb {
        // The first line says that it is connected, or why it is not.
        stdout.read_line(&mut said).map_err(|error| error.to_string())?;
        if said.contains("\"ready\"") {
            disturb().map_err(|error| format!("{error:#}"))?;
            let line = stdin.as_mut().map(|stdin| stdin.write_all(b"\n"));
            line.transpose().map_err(|error| error.to_string())?;
        }
    }
    stdout.read_to_string(&mut said).map_err(|error| error.to_string())?;
    let status = child.wait().map_err(|error| error.to_string())?;
    let mut outcomes = outcome::parse(&said, task.checks);
    if !status.success() {
        for seen in outcomes.values_mut().filter(|seen| seen.detail.starts_with("the client ended")) {
            seen.detail = format!("{} ({status})", seen.detail);
        }
    }
    Ok(outcomes)
}

/// Returns a command with an empty home folder and without update checks.
pub fn command(program: &[PathBuf]) -> Result<Command, String> {
    let (program, first) = program.split_first().ok_or("no program")?;
    let home = paths::target().join("clients").join("home");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(first).env("HOME", &home).env("NO_COLOR", "1").env("NO_UPDATE_NOTIFIER", "1");
    command.env("FASTMCP_CHECK_FOR_UPDATES", "off").env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

/// Returns the command with a bound on its time.
fn timed(command: &Command, time: Duration) -> Command {
    let mut timed = Command::new("timeout");
    timed.arg(time.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    timed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    timed
}

/// Runs a command and returns its standard output.
pub fn output(command: &Command) -> Result<String, String> {
    let output = process::output(&mut timed(command, CHECK)).map_err(|error| format!("{error:#}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = process::output_text(&output);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(format!("{}: {}", output.status, lines[lines.len().saturating_sub(6)..].join(" | ")))
}
