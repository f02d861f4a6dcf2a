//! Turns: what a contestant of the agents' benchmark has to run, and what it reports.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::meter::{cpu_time, micros, peak_kib, resident_kib};
use crate::script::{Script, last_words};

/// What every turn begins with.
pub const SYSTEM: &str = "Be brief.";

/// What every turn asks.
pub const PROMPT: &str = "Go on until it is done.";

/// What one contestant has to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Who runs it.
    pub contestant: String,
    /// Where the model is, without `/chat/completions`.
    pub url: String,
    /// The model, whose name says what it does.
    pub model: String,
    /// The file with the tools.
    pub tools: String,
    /// How many turns are measured.
    pub turns: usize,
    /// How many turns are run before them.
    pub warm_up: usize,
    /// Run on a multi-thread runtime instead of a current-thread one.
    pub multi_thread: bool,
}

/// A tool of the list.
#[derive(Debug, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The schema of its arguments.
    pub parameters: Box<RawValue>,
}

/// What a turn takes; printed as one line of JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many were measured.
    pub turns: usize,
    /// The median turn.
    pub turn_us: f64,
    /// The CPU time of a turn, on average.
    pub cpu_us: f64,
    /// Before the first measured turn.
    pub idle_kib: u64,
    /// At most.
    pub peak_kib: u64,
}

/// What came of a turn.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn {
    /// The last words.
    pub words: String,
    /// How many calls were made.
    pub calls: usize,
}

impl Course {
    /// Reads `--contestant NAME [--url URL] [--model NAME] --tools FILE [--turns N] [--warm-up N] [--multi-thread]`.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let text = String::new;
        let mut course = Self {
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
                course.multi_thread = true;
                continue;
            }
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            let number = || value.parse().with_context(|| format!("`{value}` is not a number"));
            match flag.as_str() {
                "--turns" => course.turns = number()?,
                "--warm-up" => course.warm_up = number()?,
                "--contestant" => course.contestant = value,
                "--url" => course.url = value,
                "--model" => course.model = value,
                "--tools" => course.tools = value,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        Ok(course)
    }

    /// What its model does.
    pub fn script(&self) -> Result<Script> {
        Script::of_model(&self.model)
    }

    /// The tools in its file.
    pub fn listed(&self) -> Result<Vec<Listed>> {
        let unreadable = || format!("could not read the tools in `{}`", self.tools);
        let text = std::fs::read_to_string(Path::new(&self.tools)).with_context(unreadable)?;
        serde_json::from_str(&text).with_context(unreadable)
    }

    /// What every turn must come to, with so many tools of the contestant's own: one that loses calls or tools must not win.
    pub fn expected(&self, own_tools: usize) -> Result<Turn> {
        let calls = self.script()?.calls();
        Ok(Turn { words: last_words(calls, self.listed()?.len() + own_tools), calls })
    }
}

impl Turn {
    /// Fails unless it came to what was expected.
    pub fn check(&self, expected: &Self) -> Result<()> {
        if self != expected {
            bail!("it said `{}` after {} calls", self.words, self.calls);
        }
        Ok(())
    }
}

/// Runs from the first measured turn to the last.
#[derive(Debug)]
pub struct Laps {
    laps: Vec<Duration>,
    idle_kib: u64,
    cpu: Duration,
}

impl Laps {
    /// Starts the clocks.
    pub fn start(turns: usize) -> Self {
        Self { laps: Vec::with_capacity(turns), idle_kib: resident_kib(), cpu: Duration::ZERO }
    }

    /// A turn begins.
    pub fn begin(&self) -> (Instant, Duration) {
        (Instant::now(), cpu_time())
    }

    /// The turn that began so is over. What is done between turns does not count.
    pub fn end(&mut self, (started, cpu): (Instant, Duration)) {
        self.laps.push(started.elapsed());
        self.cpu += cpu_time() - cpu;
    }

    /// The median turn.
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
    fn a_command_line_becomes_a_course() {
        let args = ["--contestant", "floor", "--url", "http://h/v1", "--model", "parallel-32", "--tools", "t.json"];
        let args = args.into_iter().chain(["--turns", "5", "--warm-up", "2", "--multi-thread"]).map(String::from);
        let expected = Course {
            contestant: "floor".to_owned(),
            url: "http://h/v1".to_owned(),
            model: "parallel-32".to_owned(),
            tools: "t.json".to_owned(),
            turns: 5,
            warm_up: 2,
            multi_thread: true,
        };
        assert_eq!(Course::from_args(args).expect("a course"), expected);
        assert!(Course::from_args(["--turns".to_owned(), "many".to_owned()]).is_err());
    }

    #[test]
    fn a_turn_that_lost_a_call_does_not_count() {
        let expected = Turn { words: "done".to_owned(), calls: 2 };
        assert!(Turn { words: "done".to_owned(), calls: 2 }.check(&expected).is_ok());
        let error = Turn { words: "done".to_owned(), calls: 1 }.check(&expected).expect_err("one is lost");
        assert_eq!(error.to_string(), "it said `done` after 1 calls");
    }
}
