//! Turns over one scripted model: ropeway, other agents, and a hand-written loop.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::rounds::Rounds;
use super::trial;
use crate::process::output;
use crate::{paths, servers};

/// Number of tools in every request.
pub(super) const TOOLS: usize = 200;

/// A turn's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Script {
    /// One call after another.
    Steps,
    /// Concurrent calls that take one second each.
    Parallel,
}

impl Script {
    pub(super) const ALL: [Self; 2] = [Self::Steps, Self::Parallel];

    /// Returns the scripted model's name.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::Steps => "steps-20",
            Self::Parallel => "parallel-32",
        }
    }

    /// Returns how many calls the script makes.
    pub(super) fn calls(self) -> usize {
        match self {
            Self::Steps => 20,
            Self::Parallel => 32,
        }
    }
}

/// How an agent requests replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReplyMode {
    /// As an event stream.
    Streamed,
    /// As one JSON document.
    Whole,
}

impl ReplyMode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Streamed => "streamed",
            Self::Whole => "whole",
        }
    }
}

/// An agent in the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contestant {
    Baseline,
    Ropeway,
    /// Ropeway on a multi-thread runtime.
    RopewayThreads,
    AiSdk,
    OpenAiAgents,
    PydanticAi,
}

impl Contestant {
    /// In round order.
    pub(super) const ALL: [Self; 6] =
        [Self::Baseline, Self::Ropeway, Self::RopewayThreads, Self::AiSdk, Self::OpenAiAgents, Self::PydanticAi];
    pub(super) const OTHERS: [Self; 3] = [Self::AiSdk, Self::OpenAiAgents, Self::PydanticAi];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Ropeway => "ropeway",
            Self::RopewayThreads => "ropeway, threads",
            Self::AiSdk => "ai sdk",
            Self::OpenAiAgents => "openai-agents",
            Self::PydanticAi => "pydantic-ai",
        }
    }

    /// Returns its supported modes. Ropeway always streams; for others, the faster mode counts.
    pub(super) fn modes(self) -> &'static [ReplyMode] {
        if Self::OTHERS.contains(&self) { &[ReplyMode::Streamed, ReplyMode::Whole] } else { &[ReplyMode::Streamed] }
    }

    /// Returns the warm-up and measured turn counts. Slow agents need fewer.
    fn turns(self, script: Script) -> [usize; 2] {
        match (script, self) {
            (Script::Parallel, _) => [1, 1],
            (Script::Steps, Self::Baseline | Self::Ropeway | Self::RopewayThreads) => [20, 100],
            (Script::Steps, Self::AiSdk) => [10, 10],
            (Script::Steps, Self::OpenAiAgents | Self::PydanticAi) => [1, 3],
        }
    }
}

/// Identifies a run.
pub(super) type Key = (Script, Contestant, ReplyMode);

/// The installed agents and their scripted model.
pub(super) struct Agents {
    programs: Vec<(Contestant, Vec<PathBuf>)>,
    /// Contestants that could not be installed, with the reason.
    pub(super) absent: Vec<(Contestant, String)>,
    model: Model,
    pub(super) tools: PathBuf,
}

impl Agents {
    /// Installs the other agents and starts the model. Ropeway and the baseline are built already.
    pub(super) fn new(built: &Path) -> Result<Self> {
        let theirs = servers::agents()?;
        let ours = vec![built.join("bench-agent")];
        let mut programs: Vec<_> = [Contestant::Baseline, Contestant::Ropeway, Contestant::RopewayThreads]
            .map(|contestant| (contestant, ours.clone()))
            .into();
        let mut absent = Vec::new();
        let others = [
            (Contestant::AiSdk, theirs.ai_sdk),
            (Contestant::OpenAiAgents, theirs.openai_agents),
            (Contestant::PydanticAi, theirs.pydantic_ai),
        ];
        for (contestant, there) in others {
            match there {
                Ok(program) => programs.push((contestant, program)),
                Err(why) => absent.push((contestant, why)),
            }
        }
        let tools = paths::target().join("bench-tools.json");
        let definitions = output(Command::new(built.join("bench-agent")).args(["--print-tools", &TOOLS.to_string()]))?;
        fs::write(&tools, definitions.stdout).with_context(|| format!("could not write `{}`", tools.display()))?;
        Ok(Self { programs, absent, model: Model::start(&built.join("model-server"))?, tools })
    }

    /// Runs each script once with each agent.
    pub(super) fn round(&self, rounds: &mut Rounds<Key>) -> Result<()> {
        for script in Script::ALL {
            for (contestant, program) in &self.programs {
                for mode in contestant.modes() {
                    if let Some(mut command) = self.command(*contestant, program, script, *mode) {
                        rounds.add((script, *contestant, *mode), trial::report(&mut command)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn command(&self, contestant: Contestant, program: &[PathBuf], script: Script, mode: ReplyMode) -> Option<Command> {
        let (program, first) = program.split_first()?;
        let [warm_up, turns] = contestant.turns(script).map(|turns| turns.to_string());
        let mut command = Command::new(program);
        command.args(first).args(["--url", &self.model.url, "--model", script.model(), "--tools"]).arg(&self.tools);
        command.args(["--warm-up", &warm_up, "--turns", &turns]);
        match (contestant, mode) {
            (Contestant::Baseline, _) => command.args(["--contestant", "baseline"]),
            (Contestant::Ropeway, _) => command.args(["--contestant", "ropeway"]),
            (Contestant::RopewayThreads, _) => command.args(["--contestant", "ropeway", "--multi-thread"]),
            (_, ReplyMode::Streamed) => command.arg("--stream"),
            (_, ReplyMode::Whole) => &mut command,
        };
        // No update checks, and no bytecode files next to the scripts.
        command.env("DO_NOT_TRACK", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        Some(command)
    }
}

/// The scripted model's process; killed on drop.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("could not start `{}`", program.display()))?;
        let mut model = Self { child, url: String::new() };
        let mut port = String::new();
        let said = model.child.stdout.take().context("the output of the model is not captured")?;
        BufReader::new(said).read_line(&mut port)?;
        let port: u16 = port.trim().parse().context("the model printed no port")?;
        model.url = format!("http://127.0.0.1:{port}/v1");
        Ok(model)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_ends_with_its_number_of_calls() {
        for script in Script::ALL {
            assert!(script.model().ends_with(&format!("-{}", script.calls())), "{script:?}");
        }
    }
}
