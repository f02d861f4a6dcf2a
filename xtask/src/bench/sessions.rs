//! Session benchmark: what starting, changing and ending a session costs, with few and with many sessions in memory.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::goal::Goal;
use super::rounds::Rounds;
use super::{cores, load};
use crate::background::Background;
use crate::paths;

/// Numbers of sessions in memory. The second one is the gateway's limit.
const FEW: usize = 100;
const MANY: usize = 100_000;

/// Number of measured requests per kind.
const SAMPLE: usize = 2_000;

/// Maximum time from start to readiness.
const START: Duration = Duration::from_secs(60);

/// The measured requests: the figure's key, its title, and the goal.
const REQUESTS: [(&str, &str, &str); 4] = [
    ("initialize_us", "initialize", "CPU of initialize with 100,000 sessions, of that with 100"),
    ("set_level_us", "setLevel", "CPU of setLevel with 100,000 sessions, of that with 100"),
    ("delete_us", "DELETE", "CPU of DELETE with 100,000 sessions, of that with 100"),
    ("evicting_us", "initialize at the limit", "CPU of initialize at the limit, of that with 100"),
];

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    load: [Option<f64>; 2],
    runs: Rounds<usize>,
}

impl Report {
    /// Runs everything, with its own gateway in each round.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 1 } else { 3 };
        let before = load();
        let mut runs = Rounds::new();
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            let mut bench = Bench::start(built)?;
            bench.fill(FEW)?;
            let few = bench.measure()?;
            // The last measured session takes the last place.
            bench.fill(MANY - SAMPLE)?;
            let mut many = bench.measure()?;
            bench.fill(MANY)?;
            many["evicting_us"] = bench.initialize()?.into();
            bench.program.stop()?;
            let mut few = few;
            // Below the limit, nothing is evicted.
            few["evicting_us"] = few["initialize_us"].clone();
            runs.add(FEW, Ok(few));
            runs.add(MANY, Ok(many));
        }
        Ok(Self { rounds, load: [before, load()], runs })
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |(key, _, what)| Goal::at_most("S13.12", what, self.runs.ratio(&MANY, &FEW, key), 1.5);
        REQUESTS.map(goal).into()
    }

    pub(super) fn to_json(&self) -> Value {
        let figures = [FEW, MANY].map(|sessions| {
            let mut entry = json!({ "sessions": sessions });
            for (key, ..) in REQUESTS {
                entry[key] = json!(self.runs.figure(&sessions, key));
            }
            entry
        });
        json!({
            "bench": "sessions",
            "rounds": self.rounds,
            "cores": cores(),
            "load": self.load,
            "figures": figures,
            "verdicts": self.goals().iter().map(Goal::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text =
            format!("{} cores, medians of {} rounds, CPU µs per request\n\n{:>8}", cores(), self.rounds, "sessions");
        text.extend(REQUESTS.map(|(_, title, _)| format!(" {title:>24}")));
        text.push('\n');
        for sessions in [FEW, MANY] {
            text += &format!("{sessions:>8}");
            for (key, ..) in REQUESTS {
                let figure = self.runs.figure(&sessions, key);
                text += &format!(" {:>24}", figure.map_or_else(|| "-".into(), |figure| format!("{figure:.1}")));
            }
            text.push('\n');
        }
        text.push('\n');
        text.extend(self.goals().iter().map(Goal::to_text));
        text
    }
}

/// A gateway and a connection to it.
struct Bench {
    program: Background,
    connection: BufReader<TcpStream>,
    sessions: usize,
}

impl Bench {
    fn start(built: &Path) -> Result<Self> {
        let home = paths::target().join("gateway/sessions");
        // An earlier run's journal would be read.
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        let config = home.join("ropeway.json");
        let settings = json!({ "servers": [], "gateway": { "limits": { "sessions": MANY } } });
        fs::write(&config, settings.to_string())?;
        let mut command = Command::new(built.join("ropeway"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).env("HOME", &home);
        command.env("XDG_STATE_HOME", home.join("state")).env("ROPEWAY_KEYRING", "off").env("NO_COLOR", "1");
        let program = Background::start(&mut command)?;
        let url = program.url(START)?;
        let address = url.trim_start_matches("http://").split('/').next().context("an address")?;
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(START))?;
        Ok(Self { program, connection: BufReader::new(connection), sessions: 0 })
    }

    /// Starts sessions until there are as many as wanted.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        while self.sessions < wanted {
            self.open()?;
        }
        Ok(())
    }

    /// Measures new sessions' requests, then ends the sessions.
    fn measure(&mut self) -> Result<Value> {
        let mut ids = Vec::with_capacity(SAMPLE);
        let before = self.cpu()?;
        for _ in 0..SAMPLE {
            ids.push(self.open()?);
        }
        let initialized = self.cpu()?;
        for id in &ids {
            let body = r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}"#;
            self.exchange("POST", Some(id), body, 200)?;
        }
        let set = self.cpu()?;
        for id in &ids {
            self.exchange("DELETE", Some(id), "", 204)?;
        }
        self.sessions -= SAMPLE;
        let per_request = |nanoseconds: u64| nanoseconds as f64 / SAMPLE as f64 / 1e3;
        Ok(json!({
            "initialize_us": per_request(initialized - before),
            "set_level_us": per_request(set - initialized),
            "delete_us": per_request(self.cpu()? - set),
        }))
    }

    /// Measures session starts only, in microseconds.
    fn initialize(&mut self) -> Result<f64> {
        let before = self.cpu()?;
        for _ in 0..SAMPLE {
            self.open()?;
        }
        Ok((self.cpu()? - before) as f64 / SAMPLE as f64 / 1e3)
    }

    /// Starts a session and returns its id.
    fn open(&mut self) -> Result<String> {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        self.sessions += 1;
        self.exchange("POST", None, body, 200)?.context("a session id")
    }

    /// Sends a request and reads the response. Returns the session id in its head.
    fn exchange(&mut self, method: &str, session: Option<&str>, body: &str, expected: u16) -> Result<Option<String>> {
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{session}\r\n{body}",
            body.len()
        );
        self.connection.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length, mut id) = (String::new(), 0, None);
        loop {
            let mut line = String::new();
            self.connection.read_line(&mut line)?;
            let line = line.trim_end();
            if status.is_empty() {
                status = line.to_owned();
            } else if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ") {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse()?,
                    "mcp-session-id" => id = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
        let mut content = vec![0; length];
        self.connection.read_exact(&mut content)?;
        let is_expected = status.split(' ').nth(1) == Some(expected.to_string().as_str());
        ensure!(is_expected, "{method}: {status}\n{}", String::from_utf8_lossy(&content));
        Ok(id)
    }

    /// Returns the CPU time that all gateway threads used, in nanoseconds.
    fn cpu(&self) -> Result<u64> {
        // The journal's writer finishes what the last request has queued.
        let end = Instant::now() + Duration::from_secs(1);
        let mut before = self.cpu_now()?;
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.cpu_now()?;
            if now - before < 1_000_000 || Instant::now() >= end {
                return Ok(now);
            }
            before = now;
        }
    }

    fn cpu_now(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.program.pid()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            sum += text.split_whitespace().next().context("a number")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_compare_many_sessions_with_few() {
        let mut runs = Rounds::new();
        let figures = |factor: f64| {
            Ok(
                json!({ "initialize_us": 60.0 * factor, "set_level_us": 30.0, "delete_us": 40.0 * factor, "evicting_us": 60.0 }),
            )
        };
        runs.add(FEW, figures(1.0));
        runs.add(MANY, figures(2.0));
        let report = Report { rounds: 1, load: [None, None], runs };
        let reached: Vec<_> = report.goals().iter().map(Goal::reached).collect();
        assert_eq!(reached, [Some(false), Some(true), Some(false), Some(true)]);
        assert!(report.to_text().contains("100000") && report.to_json()["figures"][1]["sessions"] == MANY);
    }
}
