//! A course: what one contestant has to run, as its command line says.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// From starting the server to being ready to call.
    Connect,
    /// Small calls, one after the other.
    Sequential,
    /// Small calls, 32 at a time.
    InFlight32,
    /// 1 MiB of text.
    Text1M,
    /// An image of 4 MiB.
    Image4M,
    /// 776 KB of structured content.
    Structured776K,
    /// A list of 200 tools, fetched anew each time.
    List200,
}

/// How many calls [`Scenario::InFlight32`] keeps in flight.
pub const IN_FLIGHT: usize = 32;

impl Scenario {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "connect" => Self::Connect,
            "sequential" => Self::Sequential,
            "inflight32" => Self::InFlight32,
            "text1m" => Self::Text1M,
            "image4m" => Self::Image4M,
            "structured776k" => Self::Structured776K,
            "list200" => Self::List200,
            _ => bail!("unknown scenario `{name}`"),
        })
    }

    /// The big call that this scenario makes, if it makes one: tool, arguments, and the size that must come back.
    pub fn big_call(self) -> Option<BigCall> {
        let (tool, bytes, size) = match self {
            Self::Text1M => ("text", 1 << 20, 1 << 20),
            Self::Image4M => ("image", 4 << 20, 4 << 20),
            Self::Structured776K => ("structured", 0, crate::offer::ROWS),
            _ => return None,
        };
        let mut arguments = Map::new();
        if bytes > 0 {
            arguments.insert("bytes".into(), json!(bytes));
        }
        Some(BigCall { tool, arguments, size })
    }
}

/// A call with a big answer.
#[derive(Clone, Debug)]
pub struct BigCall {
    /// The tool.
    pub tool: &'static str,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// What must come back: bytes of text or base64, or rows.
    pub size: usize,
}

/// What one contestant has to run.
#[derive(Clone, Debug)]
pub struct Course {
    /// What is measured.
    pub scenario: Scenario,
    /// The server's program and its arguments.
    pub server: Vec<String>,
    /// How many calls are measured.
    pub rounds: usize,
    /// Run on a multi-thread runtime instead of a current-thread one.
    pub multi_thread: bool,
}

impl Course {
    /// Reads `--scenario NAME --server "CMD…" --rounds N [--multi-thread]`.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self> {
        let (mut scenario, mut server, mut rounds, mut multi_thread) = (None, Vec::new(), 1000, false);
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            if flag == "--multi-thread" {
                multi_thread = true;
                continue;
            }
            let value = args.next().with_context(|| format!("`{flag}` needs a value"))?;
            match flag.as_str() {
                "--scenario" => scenario = Some(Scenario::parse(&value)?),
                "--server" => server = value.split_whitespace().map(String::from).collect(),
                "--rounds" => rounds = value.parse().with_context(|| format!("`{value}` is not a number"))?,
                _ => bail!("unknown flag `{flag}`"),
            }
        }
        if server.is_empty() {
            bail!("`--server` is missing");
        }
        Ok(Self { scenario: scenario.context("`--scenario` is missing")?, server, rounds, multi_thread })
    }

    /// How many calls are made before the measured ones.
    pub fn warm_up(&self) -> usize {
        (self.rounds / 10).clamp(1, 1000)
    }
}

/// The message that the small call of this number carries.
pub fn message(number: usize) -> String {
    format!("hello {number}")
}

/// Fails when the answer is not the one that was asked for: a contestant that drops bytes must not win.
pub fn check(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { bail!("`{what}` came back with size {got} instead of {expected}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_course() {
        let args = ["--scenario", "image4m", "--server", "echo-server --tools 9", "--rounds", "50"];
        let course = Course::from_args(args.map(String::from)).expect("a course");
        assert_eq!(course.scenario, Scenario::Image4M);
        assert_eq!(course.server, ["echo-server", "--tools", "9"]);
        assert_eq!((course.rounds, course.warm_up(), course.multi_thread), (50, 5, false));
    }

    #[test]
    fn a_course_without_a_server_is_refused() {
        assert!(Course::from_args(["--scenario", "connect"].map(String::from)).is_err());
    }
}
