//! Command lines from exec to exit: ropeway and others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::rounds::Rounds;
use super::trial;
use crate::{paths, servers};

/// A command line's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// Lists one server's tools.
    ListOne,
    /// Lists the tools from ten servers in a file.
    ListTen,
    /// Calls one tool on one server.
    Call,
}

impl Task {
    pub(super) const ALL: [Self; 3] = [Self::ListOne, Self::ListTen, Self::Call];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ListOne => "list1",
            Self::ListTen => "list10",
            Self::Call => "call",
        }
    }

    /// Returns words that the output must contain.
    fn words(self) -> Vec<String> {
        match self {
            Self::ListOne => ["echo", "text", "image", "structured"].map(str::to_owned).to_vec(),
            Self::ListTen => aliases().collect(),
            Self::Call => vec![MESSAGE.to_owned()],
        }
    }
}

/// Number of servers in the file.
const TEN: usize = 10;

const MESSAGE: &str = "hello over there";

fn aliases() -> impl Iterator<Item = String> {
    (0..TEN).map(|number| format!("peer{number}"))
}

/// A command line in the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contestant {
    Ropeway,
    Mcporter,
    Inspector,
    FastMcp,
}

impl Contestant {
    /// In round order.
    pub(super) const ALL: [Self; 4] = [Self::Ropeway, Self::Mcporter, Self::Inspector, Self::FastMcp];
    pub(super) const OTHERS: [Self; 3] = [Self::Mcporter, Self::Inspector, Self::FastMcp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway",
            Self::Mcporter => "mcporter",
            Self::Inspector => "inspector",
            Self::FastMcp => "fastmcp",
        }
    }

    /// Returns the arguments for a task; `None` if it is not supported.
    fn args(self, task: Task, server: &str, file: &str) -> Option<Vec<String>> {
        let (message, object) = (format!("message={MESSAGE}"), json!({"message": MESSAGE}).to_string());
        let args: &[&str] = match (self, task) {
            (Self::Ropeway, Task::ListOne) => &["tools", "--stdio", server],
            (Self::Ropeway, Task::ListTen) => &["tools", "--config", file],
            (Self::Ropeway, Task::Call) => &["call", "echo", &message, "--stdio", server],
            (Self::Mcporter, Task::ListOne) => &["list", "--stdio", server, "--name", "peer"],
            (Self::Mcporter, Task::ListTen) => &["list", "--config", file],
            (Self::Mcporter, Task::Call) => &["call", "--stdio", server, "--name", "peer", "echo", &message],
            (Self::Inspector, Task::ListOne) => &["--cli", server, "--method", "tools/list"],
            // Supports one server at a time.
            (Self::Inspector, Task::ListTen) => return None,
            (Self::Inspector, Task::Call) => {
                &["--cli", server, "--method", "tools/call", "--tool-name", "echo", "--tool-arg", &message]
            }
            (Self::FastMcp, Task::ListOne) => &["list", "--command", server],
            (Self::FastMcp, Task::ListTen) => &["list", file],
            // Positional arguments would be parsed as a server.
            (Self::FastMcp, Task::Call) => &["call", "--command", server, "--target", "echo", "--input-json", &object],
        };
        Some(args.iter().map(|arg| (*arg).to_owned()).collect())
    }
}

/// The installed command lines and their server.
pub(super) struct CommandLines {
    programs: Vec<(Contestant, Vec<PathBuf>)>,
    /// Contestants that could not be installed, with the reason.
    pub(super) absent: Vec<(Contestant, String)>,
    server: PathBuf,
    file: PathBuf,
    /// An empty home folder, without other clients' settings.
    home: PathBuf,
}

impl CommandLines {
    /// Installs the other command lines. Ropeway and the server are built already.
    pub(super) fn new(built: &Path) -> Result<Self> {
        let theirs = servers::command_lines()?;
        let mut programs = vec![(Contestant::Ropeway, vec![built.join("ropeway")])];
        let mut absent = Vec::new();
        let others = [
            (Contestant::Mcporter, theirs.mcporter),
            (Contestant::Inspector, theirs.inspector),
            (Contestant::FastMcp, theirs.fastmcp),
        ];
        for (contestant, there) in others {
            match there {
                Ok(program) => programs.push((contestant, program)),
                Err(why) => absent.push((contestant, why)),
            }
        }
        let home = paths::target().join("bench-home");
        fs::create_dir_all(&home).with_context(|| format!("could not create `{}`", home.display()))?;
        let (server, file) = (built.join("echo-server"), home.join("servers.json"));
        fs::write(&file, serde_json::to_string_pretty(&ten(&server))?)?;
        Ok(Self { programs, absent, server, file, home })
    }

    /// Runs each task once with each command line.
    pub(super) fn round(&self, rounds: &mut Rounds<(Task, Contestant)>) -> Result<()> {
        for task in Task::ALL {
            for (contestant, program) in &self.programs {
                if let Some(mut command) = self.command(*contestant, program, task) {
                    rounds.add((task, *contestant), trial::timed(&mut command, &task.words())?);
                }
            }
        }
        Ok(())
    }

    fn command(&self, contestant: Contestant, program: &[PathBuf], task: Task) -> Option<Command> {
        let (program, first) = program.split_first()?;
        let args = contestant.args(task, &self.server.to_string_lossy(), &self.file.to_string_lossy())?;
        let mut command = Command::new(program);
        command.args(first).args(args).current_dir(&self.home).env("HOME", &self.home).env("NO_COLOR", "1");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        // No update checks.
        for (name, value) in [
            ("NO_UPDATE_NOTIFIER", "1"),
            ("DO_NOT_TRACK", "1"),
            ("FASTMCP_CHECK_FOR_UPDATES", "off"),
            ("FASTMCP_SHOW_CLI_BANNER", "false"),
        ] {
            command.env(name, value);
        }
        Some(command)
    }
}

/// Returns a file with ten servers, in the format that they all read.
fn ten(server: &Path) -> Value {
    let entry = |alias: String| {
        let args = ["--name", &alias];
        let entry = json!({"command": server, "args": args});
        (alias, entry)
    };
    json!({"mcpServers": aliases().map(entry).collect::<Map<_, _>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_ten_different_servers() {
        let file = ten(Path::new("/bin/echo-server"));
        let servers = file["mcpServers"].as_object().expect("an object");
        assert_eq!(servers.len(), 10);
        assert_eq!(servers["peer9"], json!({"command": "/bin/echo-server", "args": ["--name", "peer9"]}));
    }

    #[test]
    fn unsupported_tasks_have_no_arguments() {
        let can = |contestant: Contestant| Task::ALL.map(|task| contestant.args(task, "server", "file").is_some());
        assert_eq!(
            Contestant::ALL.map(can),
            [[true, true, true], [true, true, true], [true, false, true], [true, true, true]]
        );
    }
}
