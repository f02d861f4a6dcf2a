//! Turns over one scripted model: our agent beside those of others, and beside a loop written by hand.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::rounds::Rounds;
use super::trial;
use crate::process::output;
use crate::{place, servers};

/// How many tools every request has.
pub(super) const TOOLS: usize = 200;

/// What a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Script {
    /// One call after the other.
    Steps,
    /// All calls at once, of a second each.
    Parallel,
}

impl Script {
    pub(super) const ALL: [Self; 2] = [Self::Steps, Self::Parallel];

    /// The model that does it.
    pub(super) fn model(self) -> &'static str {
        match self {
            Self::Steps => "steps-20",
            Self::Parallel => "parallel-32",
        }
    }

    /// How many calls it has.
    pub(super) fn calls(self) -> usize {
        match self {
            Self::Steps => 20,
            Self::Parallel => 32,
        }
    }
}

/// How an agent asks its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Manner {
    /// For a stream of events.
    Streamed,
    /// For one piece of JSON.
    Whole,
}

impl Manner {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Streamed => "streamed",
            Self::Whole => "whole",
        }
    }
}

/// Whose agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contestant {
    Floor,
    Ropeway,
    /// Ours on a runtime of several threads.
    RopewayThreads,
    AiSdk,
    OpenAiAgents,
    PydanticAi,
}

impl Contestant {
    /// In the order in which they run within a round.
    pub(super) const ALL: [Self; 6] =
        [Self::Floor, Self::Ropeway, Self::RopewayThreads, Self::AiSdk, Self::OpenAiAgents, Self::PydanticAi];
    pub(super) const OTHERS: [Self; 3] = [Self::AiSdk, Self::OpenAiAgents, Self::PydanticAi];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ropeway => "ropeway",
            Self::RopewayThreads => "ropeway, threads",
            Self::AiSdk => "ai sdk",
            Self::OpenAiAgents => "openai-agents",
            Self::PydanticAi => "pydantic-ai",
        }
    }

    /// How it can ask. Ours always streams; of others, whichever is faster counts.
    pub(super) fn manners(self) -> &'static [Manner] {
        match Self::OTHERS.contains(&self) {
            true => &[Manner::Streamed, Manner::Whole],
            false => &[Manner::Streamed],
        }
    }

    /// How many turns come first, and how many count: those of slow ones take long enough to be measured.
    fn turns(self, script: Script) -> [usize; 2] {
        match (script, self) {
            (Script::Parallel, _) => [1, 1],
            (Script::Steps, Self::Floor | Self::Ropeway | Self::RopewayThreads) => [20, 100],
            (Script::Steps, Self::AiSdk) => [10, 10],
            (Script::Steps, Self::OpenAiAgents | Self::PydanticAi) => [1, 3],
        }
    }
}

/// What was run.
pub(super) type Key = (Script, Contestant, Manner);

/// The agents that are there, and what they are tried on.
pub(super) struct Agents {
    programs: Vec<(Contestant, Vec<PathBuf>)>,
    /// Who could not be installed, and why.
    pub(super) absent: Vec<(Contestant, String)>,
    model: Model,
    pub(super) tools: PathBuf,
}

impl Agents {
    /// Installs those of others and starts the model. Ours and the floor are among the built programs.
    pub(super) fn new(built: &Path) -> Result<Self> {
        let theirs = servers::agents()?;
        let ours = vec![built.join("bench-agent")];
        let mut programs: Vec<_> = [Contestant::Floor, Contestant::Ropeway, Contestant::RopewayThreads]
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
        let tools = place::target().join("bench-tools.json");
        let offer = output(Command::new(built.join("bench-agent")).args(["--offer", &TOOLS.to_string()]))?;
        fs::write(&tools, offer.stdout).with_context(|| format!("could not write `{}`", tools.display()))?;
        Ok(Self { programs, absent, model: Model::start(&built.join("model-server"))?, tools })
    }

    /// Lets each run each script once.
    pub(super) fn round(&self, rounds: &mut Rounds<Key>) -> Result<()> {
        for script in Script::ALL {
            for (contestant, program) in &self.programs {
                for manner in contestant.manners() {
                    if let Some(mut command) = self.command(*contestant, program, script, *manner) {
                        rounds.add((script, *contestant, *manner), trial::report(&mut command)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn command(&self, contestant: Contestant, program: &[PathBuf], script: Script, manner: Manner) -> Option<Command> {
        let (program, first) = program.split_first()?;
        let [warm_up, turns] = contestant.turns(script).map(|turns| turns.to_string());
        let mut command = Command::new(program);
        command.args(first).args(["--url", &self.model.url, "--model", script.model(), "--tools"]).arg(&self.tools);
        command.args(["--warm-up", &warm_up, "--turns", &turns]);
        match (contestant, manner) {
            (Contestant::Floor, _) => command.args(["--contestant", "floor"]),
            (Contestant::Ropeway, _) => command.args(["--contestant", "ropeway"]),
            (Contestant::RopewayThreads, _) => command.args(["--contestant", "ropeway", "--multi-thread"]),
            (_, Manner::Streamed) => command.arg("--stream"),
            (_, Manner::Whole) => &mut command,
        };
        // Nobody asks the network for news, nor leaves files beside the scripts.
        command.env("DO_NOT_TRACK", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        Some(command)
    }
}

/// The scripted model; it ends when this is dropped.
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
        let said = model.child.stdout.take().context("the model's output is not ours")?;
        BufReader::new(said).read_line(&mut port)?;
        let port: u16 = port.trim().parse().context("the model did not say its port")?;
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
    fn a_models_name_says_how_many_calls_it_makes() {
        for script in Script::ALL {
            assert!(script.model().ends_with(&format!("-{}", script.calls())), "{script:?}");
        }
    }
}
