//! Many servers: the time until they are all ready with their tools, and the memory for it.
//!
//! `bench-bridge --contestant ropeway|baseline --server PROGRAM [--servers N] [--tools N] [--delay-ms N]`
//! starts the benchmark's server N times. The baseline is a minimal hand-written client.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerConfig, StdioServer};
use ropeway_peers::baseline::Client;
use ropeway_peers::bench_case::check;
use ropeway_peers::meter::{micros, peak_kib, resident_kib};
use serde::Serialize;

/// The servers to start, and the contestant that starts them.
#[derive(Debug, PartialEq)]
struct ServerGroup {
    contestant: Contestant,
    program: String,
    servers: usize,
    /// Tools per server.
    tools: usize,
    delay_ms: usize,
}

#[derive(Debug, PartialEq)]
enum Contestant {
    Ropeway,
    Baseline,
}

/// The measurements; printed as one JSON line.
#[derive(Debug, Serialize)]
struct Report {
    servers: usize,
    tools: usize,
    /// Time until all tools are known.
    ready_us: f64,
    /// Time until the last process was started, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    spawned_us: Option<f64>,
    /// Memory before the start.
    before_kib: u64,
    /// Memory with all connections open.
    held_kib: u64,
    peak_kib: u64,
}

impl ServerGroup {
    fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut group =
            Self { contestant: Contestant::Ropeway, program: String::new(), servers: 1, tools: 4, delay_ms: 0 };
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse().with_context(|| format!("`{value}` is not a number"));
            match (flag.as_str(), value.as_str()) {
                ("--contestant", "ropeway") => group.contestant = Contestant::Ropeway,
                ("--contestant", "baseline") => group.contestant = Contestant::Baseline,
                ("--contestant", _) => bail!("unknown contestant `{value}`"),
                ("--server", _) => group.program = value,
                ("--servers", _) => group.servers = number()?,
                ("--tools", _) => group.tools = number()?,
                ("--delay-ms", _) => group.delay_ms = number()?,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        if group.program.is_empty() {
            bail!("`--server` is missing");
        }
        Ok(group)
    }

    /// Returns one server's arguments, which differ between servers.
    fn args(&self, name: &str) -> [String; 6] {
        let (tools, delay) = (self.tools.to_string(), self.delay_ms.to_string());
        ["--tools", &tools, "--delay-ms", &delay, "--name", name].map(str::to_owned)
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.servers).map(|number| format!("s{number}"))
    }

    /// Fails if tools are missing: a contestant that loses some must not win.
    fn report(&self, started: Instant, before_kib: u64, tools: usize) -> Result<Report> {
        let ready = started.elapsed();
        check("the list of all tools", self.servers * self.tools, tools)?;
        let (held_kib, peak_kib) = (resident_kib(), peak_kib());
        Ok(Report {
            servers: self.servers,
            tools,
            ready_us: micros(ready),
            spawned_us: None,
            before_kib,
            held_kib,
            peak_kib,
        })
    }
}

fn main() -> Result<()> {
    let group = ServerGroup::from_args(std::env::args().skip(1))?;
    let report = match group.contestant {
        Contestant::Baseline => by_hand(&group)?,
        Contestant::Ropeway => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(by_bridge(&group))?
        }
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn by_bridge(group: &ServerGroup) -> Result<Report> {
    let servers = group.names().map(|name| {
        let server = StdioServer::new(&group.program, group.args(&name));
        ServerConfig::new(name, server)
    });
    let config = Config::new(servers);
    let before = resident_kib();
    let started = Instant::now();
    let bridge = Bridge::new(config)?;
    bridge.start().await?;
    let registry = bridge.tools().registry;
    let report = group.report(started, before, registry.len());
    bridge.stop().await;
    report
}

/// Starts all servers before it waits for the first one, so that they start concurrently.
fn by_hand(group: &ServerGroup) -> Result<Report> {
    let commands: Vec<Vec<String>> =
        group.names().map(|name| [vec![group.program.clone()], group.args(&name).to_vec()].concat()).collect();
    let before = resident_kib();
    let started = Instant::now();
    let mut clients = commands.iter().map(|command| Client::start(command)).collect::<Result<Vec<_>>>()?;
    let spawned = started.elapsed();
    for client in &mut clients {
        client.greet()?;
        client.ask_list()?;
    }
    let mut tools = 0;
    for client in &mut clients {
        tools += client.take_list()?;
    }
    let report = group.report(started, before, tools)?;
    clients.into_iter().try_for_each(Client::close)?;
    Ok(Report { spawned_us: Some(micros(spawned)), ..report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_group_of_different_servers() {
        let args = ["--contestant", "baseline", "--server", "echo-server", "--servers", "2", "--tools", "32"];
        let group = ServerGroup::from_args(args.map(String::from)).expect("a group");
        let expected = ServerGroup {
            contestant: Contestant::Baseline,
            program: "echo-server".to_owned(),
            servers: 2,
            tools: 32,
            delay_ms: 0,
        };
        assert_eq!(group, expected);
        let args: Vec<_> = group.names().map(|name| group.args(&name).join(" ")).collect();
        assert_eq!(args, ["--tools 32 --delay-ms 0 --name s0", "--tools 32 --delay-ms 0 --name s1"]);
    }

    #[test]
    fn a_group_that_lost_tools_is_an_error() {
        let group = ServerGroup::from_args(["--server", "x", "--tools", "5"].map(String::from)).expect("a group");
        assert!(group.report(Instant::now(), 0, 4).is_err());
        assert_eq!(group.report(Instant::now(), 7, 5).expect("a report").before_kib, 7);
    }
}
