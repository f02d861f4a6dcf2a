//! A benchmark case: one scenario against one server, from a contestant's command line.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// From starting the server until it is ready for calls.
    Connect,
    /// Small calls in sequence.
    Sequential,
    /// Small calls, 32 at a time.
    InFlight32,
    /// 1 MiB text.
    Text1M,
    /// A 4 MiB image.
    Image4M,
    /// 776 KB structured content.
    Structured776K,
    /// A 200-tool list, fetched each time.
    List200,
}

/// Number of concurrent calls in [`Scenario::InFlight32`].
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

    /// Returns the call for a scenario with a large result.
    pub fn big_call(self) -> Option<BigCall> {
        let (tool, bytes, size) = match self {
            Self::Text1M => ("text", 1 << 20, 1 << 20),
            Self::Image4M => ("image", 4 << 20, 4 << 20),
            Self::Structured776K => ("structured", 0, crate::payloads::ROWS),
            _ => return None,
        };
        let mut arguments = Map::new();
        if bytes > 0 {
            arguments.insert("bytes".into(), json!(bytes));
        }
        Some(BigCall { tool, arguments, size })
    }
}

/// A call with a large result.
#[derive(Clone, Debug)]
pub struct BigCall {
    /// The tool's name.
    pub tool: &'static str,
    /// The call's arguments.
    pub arguments: Map<String, Value>,
    /// Expected result size: text or base64 bytes, or rows.
    pub size: usize,
}

/// A case in the engine benchmark.
#[derive(Clone, Debug)]
pub struct BenchCase {
    /// The scenario.
    pub scenario: Scenario,
    /// The server's program and its arguments.
    pub server: Vec<String>,
    /// Number of measured calls.
    pub rounds: usize,
    /// Whether to use a multi-thread runtime.
    pub multi_thread: bool,
}

impl BenchCase {
    /// Parses `--scenario NAME --server "CMD…" --rounds N [--multi-thread]`.
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

    /// Returns how many calls come before the measured ones.
    pub fn warm_up(&self) -> usize {
        (self.rounds / 10).clamp(1, 1000)
    }
}

/// Returns a small call's message.
pub fn message(number: usize) -> String {
    format!("hello {number}")
}

/// Fails if a result does not have its expected size: a contestant that drops bytes must not win.
pub fn check(what: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { bail!("`{what}` returned size {got} instead of {expected}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_case() {
        let args = ["--scenario", "image4m", "--server", "echo-server --tools 9", "--rounds", "50"];
        let case = BenchCase::from_args(args.map(String::from)).expect("a case");
        assert_eq!(case.scenario, Scenario::Image4M);
        assert_eq!(case.server, ["echo-server", "--tools", "9"]);
        assert_eq!((case.rounds, case.warm_up(), case.multi_thread), (50, 5, false));
    }

    #[test]
    fn a_case_without_a_server_is_refused() {
        assert!(BenchCase::from_args(["--scenario", "connect"].map(String::from)).is_err());
    }
}
