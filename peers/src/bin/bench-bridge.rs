//! A crowd of servers: how soon all of them are ready with their tools, and what that takes in memory.
//!
//! `bench-bridge --contestant ropeway|floor --server PROGRAM [--servers N] [--tools N] [--delay-ms N]`
//! starts the benchmark's server N times. The floor does by hand what has to be done at the least.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ropeway::bridge::Bridge;
use ropeway::config::{Config, ServerConfig, StdioServer};
use ropeway_peers::course::check;
use ropeway_peers::floor::Client;
use ropeway_peers::meter::{micros, peak_kib, resident_kib};
use serde::Serialize;

/// What has to be started, and by whom.
#[derive(Debug, PartialEq)]
struct Crowd {
    contestant: Contestant,
    program: String,
    servers: usize,
    /// Of each server.
    tools: usize,
    delay_ms: usize,
}

#[derive(Debug, PartialEq)]
enum Contestant {
    Ropeway,
    Floor,
}

/// What it took; printed as one line of JSON.
#[derive(Debug, Serialize)]
struct Report {
    servers: usize,
    tools: usize,
    /// From the first thing done to the last tool known.
    ready_us: f64,
    /// How much of that went by until the last process was started, where that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    spawned_us: Option<f64>,
    /// Before the first thing done.
    before_kib: u64,
    /// While all connections are held.
    held_kib: u64,
    peak_kib: u64,
}

impl Crowd {
    fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut crowd =
            Self { contestant: Contestant::Ropeway, program: String::new(), servers: 1, tools: 4, delay_ms: 0 };
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse().with_context(|| format!("`{value}` is not a number"));
            match (flag.as_str(), value.as_str()) {
                ("--contestant", "ropeway") => crowd.contestant = Contestant::Ropeway,
                ("--contestant", "floor") => crowd.contestant = Contestant::Floor,
                ("--contestant", _) => bail!("unknown contestant `{value}`"),
                ("--server", _) => crowd.program = value,
                ("--servers", _) => crowd.servers = number()?,
                ("--tools", _) => crowd.tools = number()?,
                ("--delay-ms", _) => crowd.delay_ms = number()?,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        if crowd.program.is_empty() {
            bail!("`--server` is missing");
        }
        Ok(crowd)
    }

    /// The arguments of one server; no two have the same.
    fn args(&self, name: &str) -> [String; 6] {
        let (tools, delay) = (self.tools.to_string(), self.delay_ms.to_string());
        ["--tools", &tools, "--delay-ms", &delay, "--name", name].map(str::to_owned)
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.servers).map(|number| format!("s{number}"))
    }

    /// Fails when tools are missing: a contestant that forgets some must not win.
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
    let crowd = Crowd::from_args(std::env::args().skip(1))?;
    let report = match crowd.contestant {
        Contestant::Floor => by_hand(&crowd)?,
        Contestant::Ropeway => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(by_bridge(&crowd))?
        }
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn by_bridge(crowd: &Crowd) -> Result<Report> {
    let servers = crowd.names().map(|name| {
        let server = StdioServer::new(&crowd.program, crowd.args(&name));
        ServerConfig::new(name, server)
    });
    let config = Config::new(servers);
    let before = resident_kib();
    let started = Instant::now();
    let bridge = Bridge::new(config)?;
    bridge.start().await?;
    let registry = bridge.tools().registry;
    let report = crowd.report(started, before, registry.len());
    bridge.stop().await;
    report
}

/// All servers are started before the first answer is waited for, so they start up side by side.
fn by_hand(crowd: &Crowd) -> Result<Report> {
    let commands: Vec<Vec<String>> =
        crowd.names().map(|name| [vec![crowd.program.clone()], crowd.args(&name).to_vec()].concat()).collect();
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
    let report = crowd.report(started, before, tools)?;
    clients.into_iter().try_for_each(Client::close)?;
    Ok(Report { spawned_us: Some(micros(spawned)), ..report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_crowd_of_which_no_two_servers_are_equal() {
        let args = ["--contestant", "floor", "--server", "echo-server", "--servers", "2", "--tools", "32"];
        let crowd = Crowd::from_args(args.map(String::from)).expect("a crowd");
        let expected = Crowd {
            contestant: Contestant::Floor,
            program: "echo-server".to_owned(),
            servers: 2,
            tools: 32,
            delay_ms: 0,
        };
        assert_eq!(crowd, expected);
        let args: Vec<_> = crowd.names().map(|name| crowd.args(&name).join(" ")).collect();
        assert_eq!(args, ["--tools 32 --delay-ms 0 --name s0", "--tools 32 --delay-ms 0 --name s1"]);
    }

    #[test]
    fn a_crowd_that_lost_tools_has_no_report() {
        let crowd = Crowd::from_args(["--server", "x", "--tools", "5"].map(String::from)).expect("a crowd");
        assert!(crowd.report(Instant::now(), 0, 4).is_err());
        assert_eq!(crowd.report(Instant::now(), 7, 5).expect("a report").before_kib, 7);
    }
}
