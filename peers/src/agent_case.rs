//! A case in the agent benchmark, and its report.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::meter::{cpu_time, micros, peak_kib, resident_kib};
use crate::script::{Script, final_text};

/// The system prompt for every turn.
pub const SYSTEM: &str = "Be brief.";

/// The user message in every turn.
pub const PROMPT: &str = "Go on until it is done.";

/// A case in the agent benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCase {
    /// The contestant's name.
    pub contestant: String,
    /// The model's URL, without `/chat/completions`.
    pub url: String,
    /// The model's name, which selects its script.
    pub model: String,
    /// The path of the file with the tools.
    pub tools: String,
    /// Number of measured turns.
    pub turns: usize,
    /// Number of turns before the measured ones.
    pub warm_up: usize,
    /// Whether to use a multi-thread runtime.
    pub multi_thread: bool,
}

/// A tool in the file.
#[derive(Debug, Deserialize)]
pub struct ListedTool {
    /// The tool's name.
    pub name: String,
    /// The tool's description.
    pub description: String,
    /// The tool's input schema.
    pub parameters: Box<RawValue>,
}

/// A turn's cost; printed as one line of JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Number of measured turns.
    pub turns: usize,
    /// The median turn's duration.
    pub turn_us: f64,
    /// Average CPU time per turn.
    pub cpu_us: f64,
    /// Memory before the first measured turn.
    pub idle_kib: u64,
    /// Peak memory.
    pub peak_kib: u64,
}

/// A turn's result.
#[derive(Debug, PartialEq, Eq)]
pub struct TurnResult {
    /// The final reply's text.
    pub text: String,
    /// Number of calls.
    pub calls: usize,
}

impl AgentCase {
    /// Parses `--contestant NAME [--url URL] [--model NAME] --tools FILE [--turns N] [--warm-up N] [--multi-thread]`.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let text = String::new;
        let mut case = Self {
            contestant: text(),
            url: text(),
            model: "steps-20".to_owned(),
            tools: text(),
            turns: 1,
            warm_up: 0,
            multi_thread: false,
        };
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            if flag == "--multi-thread" {
                case.multi_thread = true;
                continue;
            }
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse().with_context(|| format!("`{value}` is not a number"));
            match flag.as_str() {
                "--turns" => case.turns = number()?,
                "--warm-up" => case.warm_up = number()?,
                "--contestant" => case.contestant = value,
                "--url" => case.url = value,
                "--model" => case.model = value,
                "--tools" => case.tools = value,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        Ok(case)
    }

    /// Returns its model's script.
    pub fn script(&self) -> Result<Script> {
        Script::from_model(&self.model)
    }

    /// Returns its file's tools.
    pub fn listed(&self) -> Result<Vec<ListedTool>> {
        let unreadable = || format!("could not read the tools in `{}`", self.tools);
        let text = std::fs::read_to_string(Path::new(&self.tools)).with_context(unreadable)?;
        serde_json::from_str(&text).with_context(unreadable)
    }

    /// Returns the result expected from every turn, given how many tools the contestant adds: one that loses calls or tools
    /// must not win.
    pub fn expected(&self, own_tools: usize) -> Result<TurnResult> {
        let calls = self.script()?.calls();
        Ok(TurnResult { text: final_text(calls, self.listed()?.len() + own_tools), calls })
    }
}

impl TurnResult {
    /// Fails if the result is not the expected one.
    pub fn check(&self, expected: &Self) -> Result<()> {
        if self != expected {
            bail!("unexpected reply `{}` after {} calls", self.text, self.calls);
        }
        Ok(())
    }
}

/// Measures turns.
#[derive(Debug)]
pub struct TurnMeter {
    laps: Vec<Duration>,
    idle_kib: u64,
    cpu: Duration,
}

impl TurnMeter {
    /// Starts the meter.
    pub fn start(turns: usize) -> Self {
        Self { laps: Vec::with_capacity(turns), idle_kib: resident_kib(), cpu: Duration::ZERO }
    }

    /// Starts a turn's clocks.
    pub fn begin(&self) -> (Instant, Duration) {
        (Instant::now(), cpu_time())
    }

    /// Stops a turn's clocks. The time between turns does not count.
    pub fn end(&mut self, (started, cpu): (Instant, Duration)) {
        self.laps.push(started.elapsed());
        self.cpu += cpu_time() - cpu;
    }

    /// Returns the report.
    pub fn finish(mut self) -> Report {
        self.laps.sort_unstable();
        let turns = self.laps.len();
        let middle = self.laps.get(turns.saturating_sub(1) / 2).copied().unwrap_or_default();
        Report {
            turns,
            turn_us: micros(middle),
            cpu_us: micros(self.cpu) / turns.max(1) as f64,
            idle_kib: self.idle_kib,
            peak_kib: peak_kib(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_case() {
        let args = ["--contestant", "baseline", "--url", "http://h/v1", "--model", "parallel-32", "--tools", "t.json"];
        let args = args.into_iter().chain(["--turns", "5", "--warm-up", "2", "--multi-thread"]).map(String::from);
        let expected = AgentCase {
            contestant: "baseline".to_owned(),
            url: "http://h/v1".to_owned(),
            model: "parallel-32".to_owned(),
            tools: "t.json".to_owned(),
            turns: 5,
            warm_up: 2,
            multi_thread: true,
        };
        assert_eq!(AgentCase::from_args(args).expect("a case"), expected);
        assert!(AgentCase::from_args(["--turns".to_owned(), "many".to_owned()]).is_err());
    }

    #[test]
    fn a_turn_that_lost_a_call_is_an_error() {
        let expected = TurnResult { text: "done".to_owned(), calls: 2 };
        assert!(TurnResult { text: "done".to_owned(), calls: 2 }.check(&expected).is_ok());
        let error = TurnResult { text: "done".to_owned(), calls: 1 }.check(&expected).expect_err("one is lost");
        assert_eq!(error.to_string(), "unexpected reply `done` after 1 calls");
    }
}
