//! `cargo xtask clients`: real MCP clients, directly against servers and through the gateway.

mod baseline;
mod command_lines;
mod endpoint;
mod outcome;
mod program;
mod report;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};

use self::baseline::Baseline;
use self::endpoint::Endpoint;
use self::outcome::Outcome;
use self::program::{Client, Named, SHORT, Task};
use self::report::{Report, Run};
use self::ways::{Open, Server, Way};
use crate::process;
use crate::{paths, servers};

/// Ways that are tested at the same time: the checks wait most of the time.
const PARALLEL: usize = 3;

const USAGE: &str = "usage: cargo xtask clients [--short] [--client NAME] [--way NAME] [--server NAME] [--only CHECK]\n\
    or: cargo xtask clients [--tool NAME] [--arguments JSON] URL | --stdio COMMAND [ARGUMENT...]";

/// What is run.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    /// The comparison, or its named parts.
    Compare(Selection),
    /// The clients against one endpoint.
    Visit { endpoint: Endpoint, tool: String, arguments: Value },
}

/// The comparison parts that run; empty lists stand for all.
#[derive(Clone, Debug, Default, PartialEq)]
struct Selection {
    is_short: bool,
    clients: Vec<String>,
    ways: Vec<String>,
    servers: Vec<String>,
    checks: Vec<String>,
}

/// Runs the comparison, or the clients against one endpoint.
pub fn run(args: &[String]) -> Result<()> {
    let plan = parse(args)?;
    servers::run()?;
    process::build(&["ropeway", "rmcp-client"])?;
    match plan {
        Plan::Compare(selection) => compare(&selection).map(drop),
        Plan::Visit { endpoint, tool, arguments } => visit(&endpoint, &tool, &arguments),
    }
}

/// Runs the comparison's short form and returns how many checks passed. The programs must be built.
pub fn short() -> Result<u32> {
    let report = compare(&Selection { is_short: true, ..Selection::default() })?;
    Ok(u32::try_from(report.passed()).unwrap_or(u32::MAX))
}

fn parse(args: &[String]) -> Result<Plan> {
    let mut selection = Selection::default();
    let (mut tool, mut arguments) = ("echo".to_owned(), json!({ "message": "hello" }));
    let mut endpoint = None;
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().context(USAGE);
        match word.as_str() {
            "--short" => selection.is_short = true,
            "--client" => selection.clients.push(value()?),
            "--way" => selection.ways.push(value()?),
            "--server" => selection.servers.push(value()?),
            "--only" => selection.checks.push(value()?),
            "--tool" => tool = value()?,
            "--arguments" => arguments = serde_json::from_str(&value()?).context("`--arguments` is not JSON")?,
            "--stdio" => endpoint = Some(Endpoint::Command(rest.by_ref().cloned().collect())),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                endpoint = Some(Endpoint::Url { url: url.to_owned(), key: None });
            }
            _ => bail!(USAGE),
        }
    }
    match endpoint {
        None => Ok(Plan::Compare(selection)),
        Some(endpoint) if endpoint == Endpoint::Command(Vec::new()) => bail!(USAGE),
        Some(endpoint) => Ok(Plan::Visit { endpoint, tool, arguments }),
    }
}

impl Selection {
    fn has(names: &[String], name: &str) -> bool {
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    }

    fn clients(&self) -> Result<Vec<Named>> {
        let needs_lines = !self.is_short && ["inspector", "mcporter"].iter().any(|name| Self::has(&self.clients, name));
        let mut clients = if needs_lines { program::all()? } else { program::sdks()? };
        clients.retain(|named| Self::has(&self.clients, named.name) && (!self.is_short || SHORT.contains(&named.name)));
        if clients.is_empty() {
            bail!("no client is called {:?}", self.clients);
        }
        Ok(clients)
    }

    /// Returns the ways, with those that the selected ones are compared with.
    fn ways(&self) -> Result<Vec<Way>> {
        let of_short = [Way::DirectStdio, Way::Http, Way::Stdio, Way::Nested];
        let fits = |way: &Way| Self::has(&self.ways, way.name()) && (!self.is_short || of_short.contains(way));
        let selected: Vec<Way> = Way::ALL.into_iter().filter(fits).collect();
        if selected.is_empty() {
            bail!("no way is called {:?}", self.ways);
        }
        let is_needed = |way: Way| {
            let references = selected.iter().flat_map(|way| [way.reference("tools"), way.reference("terminate")]);
            selected.contains(&way) || (!self.is_short && references.into_iter().any(|other| other == way))
        };
        Ok(Way::ALL.into_iter().filter(|way| is_needed(*way)).collect())
    }

    /// Returns a server's checks.
    fn checks(&self, server: Server, root: &Path) -> Result<Value> {
        let path = paths::client_fixtures().join("checks.json");
        let text = fs::read_to_string(&path).with_context(|| format!("could not read `{}`", path.display()))?;
        let folder = root.to_string_lossy();
        let text = text.replace("{ROOT_PATH}", &folder).replace("{ROOT}", &format!("file://{folder}"));
        let mut all: Value = serde_json::from_str(&text).with_context(|| format!("`{}` is invalid", path.display()))?;
        let mut checks = all[server.name()].take();
        if let Some(checks) = checks.as_object_mut() {
            checks.retain(|check, _| Self::has(&self.checks, check));
        }
        Ok(checks)
    }
}

/// Runs the comparison, prints it, and fails if a check is worse through the gateway.
fn compare(selection: &Selection) -> Result<Report> {
    let started = Instant::now();
    let baseline = Baseline::load()?;
    let root = root()?;
    fs::copy(paths::client_fixtures().join("modern.mjs"), paths::servers().join("npm/modern.mjs"))?;
    let clients = selection.clients()?;
    let mut groups = Vec::new();
    for server in Server::ALL {
        let checks = selection.checks(server, &root)?;
        let is_empty = checks.as_object().is_none_or(serde_json::Map::is_empty);
        if is_empty || !Selection::has(&selection.servers, server.name()) {
            continue;
        }
        let ways = selection.ways()?.into_iter().filter(|way| way.suits(server));
        groups.extend(ways.map(|way| Group { way, server, checks: checks.clone() }));
    }
    let runs = run_groups(groups, &clients, &root)?;
    let report = Report::new(runs, &baseline);
    print!("{}", report.text());
    println!("{} checks passed, {} are worse ({:.1?})", report.passed(), report.failures(), started.elapsed());
    if report.failures() > 0 {
        bail!("{} checks are worse through the gateway than directly", report.failures());
    }
    Ok(report)
}

/// All clients' runs on one way to one server.
#[derive(Debug)]
struct Group {
    way: Way,
    server: Server,
    checks: Value,
}

/// Runs groups in parallel, and a group's clients one after another.
fn run_groups(mut groups: Vec<Group>, clients: &[Named], root: &Path) -> Result<Vec<Run>> {
    groups.reverse();
    let waiting = Mutex::new(groups);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = waiting.lock().map_err(|_| anyhow!("a thread panicked"))?.pop();
                let Some(group) = next else { return Ok(()) };
                let runs = group.run(clients, root)?;
                done.lock().map_err(|_| anyhow!("a thread panicked"))?.extend(runs);
            }
        };
        let threads: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(anyhow!("a thread panicked"))))
    })?;
    let mut runs = done.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    runs.sort_by_key(|run| clients.iter().position(|named| named.name == run.client));
    Ok(runs)
}

impl Group {
    fn run(&self, clients: &[Named], root: &Path) -> Result<Vec<Run>> {
        let (way, server) = (self.way, self.server);
        let mut open = Open::start(way, server).with_context(|| format!("{} of {}", way.name(), server.name()))?;
        let mut runs = Vec::new();
        for named in clients {
            let client = named.client.as_ref().map_err(|reason| anyhow!("{}: {reason}", named.name))?;
            if open.restarts() && !client.keeps_connection() {
                continue;
            }
            let started = Instant::now();
            let (endpoint, folder) = (open.endpoint.clone(), open.folder().to_owned());
            let task = Task { endpoint: &endpoint, checks: &self.checks, root, folder: &folder };
            let outcomes =
                if open.restarts() { client.run(&task, Some(&mut || open.restart())) } else { client.run(&task, None) };
            let failed = outcomes.iter().filter(|(_, seen)| seen.outcome == Outcome::Failed);
            let failed: Vec<&str> = failed.map(|(check, _)| check.as_str()).collect();
            let (place, time) = (format!("{} {} {}", named.name, way.name(), server.name()), started.elapsed());
            println!("{place:<36} {} checks, failed: {failed:?} ({time:.1?})", outcomes.len());
            runs.push(Run { client: named.name, way, server, outcomes });
        }
        Ok(runs)
    }
}

/// Returns the folder that the clients have as their root.
fn root() -> Result<PathBuf> {
    let folder = paths::target().join("clients").join("root");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("hello.txt"), "hello\n")?;
    Ok(folder)
}

/// Lists the tools, calls one, reads a resource and gets a prompt with each client.
fn visit(endpoint: &Endpoint, tool: &str, arguments: &Value) -> Result<()> {
    let checks = json!({ "tools": { "tool": tool, "arguments": arguments }, "resources": {}, "prompts": {} });
    let root = root()?;
    let folder = paths::target().join("clients");
    let mut clients = program::all()?;
    clients.push(Named { name: "ropeway", client: Ok(Client::Ropeway(paths::program("ropeway"))) });
    let mut failed = 0;
    for named in clients {
        let started = Instant::now();
        let task = Task { endpoint, checks: &checks, root: &root, folder: &folder };
        match named.client.map(|client| client.run(&task, None)) {
            Err(reason) => {
                println!("{:<12} FAILED {reason}", named.name);
                failed += 1;
            }
            Ok(outcomes) => {
                let has_failed = outcomes.values().any(|seen| seen.outcome == Outcome::Failed);
                failed += u32::from(has_failed);
                print!("{:<12} {:<6}", named.name, if has_failed { "FAILED" } else { "ok" });
                for (check, seen) in &outcomes {
                    print!(" {check}: {} {:.80}", seen.outcome, seen.detail);
                }
                println!(" ({:.1?})", started.elapsed());
            }
        }
    }
    if failed > 0 {
        bail!("{failed} clients failed");
    }
    Ok(())
}

/// Returns a configuration with five servers: three on Node, one on Python, one native.
pub fn five_servers(ropeway: &Path, folder: &Path) -> Value {
    let node = servers::node();
    let package = |name: &str| {
        let modules = paths::servers().join("npm/node_modules/@modelcontextprotocol");
        modules.join(name).join("dist/index.js")
    };
    let time = paths::servers().join("mcp2/bin/mcp-server-time");
    json!({ "servers": [
        { "alias": "everything", "command": node, "args": [package("server-everything")] },
        { "alias": "files", "command": node, "args": [package("server-filesystem"), folder] },
        { "alias": "memory", "command": node, "args": [package("server-memory")],
            "env": { "MEMORY_FILE_PATH": folder.with_file_name("clients-memory.json") } },
        { "alias": "time", "command": time, "args": ["--local-timezone", "UTC"] },
        { "alias": "demo", "command": ropeway, "args": ["demo-server"] },
    ] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_endpoint_is_a_url_or_a_command() {
        let plan = parse(&words("--tool a --arguments {} http://127.0.0.1:1/mcp")).expect("a plan");
        let endpoint = Endpoint::Url { url: "http://127.0.0.1:1/mcp".to_owned(), key: None };
        assert_eq!(plan, Plan::Visit { endpoint, tool: "a".to_owned(), arguments: json!({}) });
        let plan = parse(&words("--stdio node server.js --flag")).expect("a plan");
        let Plan::Visit { endpoint, .. } = plan else { panic!("{plan:?}") };
        assert_eq!(endpoint, Endpoint::Command(words("node server.js --flag")));
        assert!(parse(&words("--stdio")).is_err() && parse(&words("x")).is_err());
    }

    #[test]
    fn a_selected_way_comes_with_what_it_is_compared_with() {
        let Plan::Compare(selection) = parse(&words("--way remote --client ts1")).expect("a plan") else {
            panic!("a comparison")
        };
        assert_eq!(selection.ways().expect("ways"), [Way::DirectHttp, Way::Remote]);
        assert_eq!(parse(&[]).expect("a plan"), Plan::Compare(Selection::default()));
    }

    #[test]
    fn every_server_has_checks() {
        for server in Server::ALL {
            let checks = Selection::default().checks(server, Path::new("/r")).expect("checks");
            assert!(!checks.as_object().expect("an object").is_empty(), "{}", server.name());
        }
    }
}
