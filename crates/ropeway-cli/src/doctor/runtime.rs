//! Checks a server's runtime: Node.js, Python, Docker and their arguments.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ropeway_config::StdioServer;
use tokio::process::Command;

use super::environment::{Environment, Search};
use super::finding::Finding;
use super::node::{self, Version};
use super::{package, program};
use crate::failure::Exit;

/// Time limit for a command such as `node --version`.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum Python version for the Python MCP SDK.
const MIN_PYTHON: [u32; 2] = [3, 10];

/// Checks a program's requirements.
pub(super) async fn check(server: &StdioServer, path: &Path, environment: &Environment) -> Vec<Finding> {
    let name = program::name(&server.command);
    match name {
        "node" | "npx" | "npm" | "pnpm" | "yarn" | "tsx" => {
            let own = if name == "node" { Search::Found(path.to_owned()) } else { environment.find("node", None) };
            let mut findings = vec![check_node(server, own, environment).await];
            findings.extend(check_npx(name, server));
            findings
        }
        "docker" | "podman" => {
            let mut findings: Vec<Finding> = check_run(name, server).into_iter().collect();
            findings.push(check_daemon(name, path, environment).await);
            findings
        }
        name if name.starts_with("python") => vec![check_python(path, environment).await],
        _ => Vec::new(),
    }
}

async fn check_node(server: &StdioServer, found: Search, environment: &Environment) -> Finding {
    let problem = |found: String| Finding::problem("node", Exit::Unreachable, found);
    let Search::Found(path) = found else {
        let finding = problem(format!("`{}` requires `node`, which was not found on PATH", server.command));
        return finding.fix(package::advice("node").unwrap_or_default());
    };
    let said = match run_command(&path, &["--version"], environment).await {
        Ok(said) => said,
        Err(why) => return problem(format!("`{} --version` failed: {why}", path.display())),
    };
    let Some(version) = Version::parse(&said) else {
        return Finding::note(
            "node",
            format!("`{} --version` printed `{said}`, which is not a version", path.display()),
        );
    };
    let wanted = package_of(server).and_then(|file| node::engines(&file));
    let shown = path.display();
    match wanted {
        Some(range) if !version.is_in(&range) => {
            let found = format!("`{shown}` is Node.js {version}, but the server requires `{range}`");
            problem(found).fix(install_advice(Some(&range)))
        }
        _ if version < node::MIN_VERSION => {
            let found =
                format!("`{shown}` is Node.js {version}, but MCP servers require {} or newer", node::MIN_VERSION);
            problem(found).fix(install_advice(None))
        }
        _ => Finding::good("node", format!("Node.js {version} at `{shown}`")),
    }
}

fn install_advice(range: Option<&str>) -> String {
    let which = range.map_or_else(String::new, |range| format!(" in the range `{range}`"));
    format!("install Node.js{which}, for example with `nvm install --lts`, and put it first on PATH")
}

/// Returns a file from the server's package, if it is installed locally.
fn package_of(server: &StdioServer) -> Option<PathBuf> {
    let folder = server.working_dir().map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
    if let Some(script) = program::script(server) {
        return std::fs::canonicalize(script).ok();
    }
    let package = server.args.iter().find(|word| !word.starts_with('-'))?;
    let name = match package.rfind('@') {
        Some(at) if at > 0 => &package[..at],
        _ => package.as_str(),
    };
    // A parent package would be a different one.
    let installed = folder.join("node_modules").join(name).join("package.json");
    installed.is_file().then_some(installed)
}

/// Checks that `npx` installs packages without asking.
fn check_npx(name: &str, server: &StdioServer) -> Option<Finding> {
    let agreed = |word: &String| matches!(word.as_str(), "-y" | "--yes" | "--no" | "--no-install" | "--offline");
    (name == "npx" && !server.args.iter().any(agreed)).then(|| {
        Finding::note("npx", "without `-y`, npx may ask before it installs a package and wait forever")
            .fix("use `npx -y …`")
    })
}

async fn check_python(path: &Path, environment: &Environment) -> Finding {
    let shown = path.display();
    let said = match run_command(path, &["--version"], environment).await {
        Ok(said) => said,
        Err(why) => {
            let found = format!("`{shown} --version` failed: {why}");
            return Finding::problem("python", Exit::Unreachable, found);
        }
    };
    let version: Vec<u32> = said.trim_start_matches("Python ").split('.').map_while(|part| part.parse().ok()).collect();
    match version.get(..2) {
        Some(known) if known < MIN_PYTHON.as_slice() => {
            Finding::note("python", format!("`{shown}` is {said}, but most servers require Python 3.10 or newer"))
                .fix("run `uv python install 3.13`, or start the server with `uvx`, which installs its own Python")
        }
        _ => Finding::good("python", format!("{said} at `{shown}`")),
    }
}

/// Checks that a container has standard input and no terminal.
fn check_run(name: &str, server: &StdioServer) -> Option<Finding> {
    if !server.args.iter().any(|word| word == "run") {
        return None;
    }
    // Short flags may be combined: `-it`.
    let short = |letter: char| {
        server.args.iter().any(|word| {
            word.strip_prefix('-').is_some_and(|flags| {
                flags.contains(letter) && flags.len() <= 4 && flags.chars().all(|c| c.is_ascii_alphabetic())
            })
        })
    };
    let long = |flag: &str| server.args.iter().any(|word| word.trim_end_matches("=true") == flag);
    if !short('i') && !long("--interactive") {
        let found = format!("`{name} run` without `-i` does not connect standard input");
        return Some(
            Finding::problem("container", Exit::Unreachable, found).fix(format!("use `{name} run -i --rm …`")),
        );
    }
    (short('t') || long("--tty")).then(|| {
        Finding::problem(
            "container",
            Exit::Unreachable,
            format!("`{name} run -t` allocates a terminal, which corrupts messages"),
        )
        .fix(format!("use `{name} run -i --rm …` without `-t`"))
    })
}

async fn check_daemon(name: &str, path: &Path, environment: &Environment) -> Finding {
    match run_command(path, &["info", "--format", "{{.ServerVersion}}"], environment).await {
        // Podman has no daemon and no such field.
        Ok(version) if !version.is_empty() && !version.starts_with('<') => {
            Finding::good(name_of(name), format!("{name} {version} is running"))
        }
        Ok(_) => Finding::good(name_of(name), format!("{name} is running")),
        Err(why) if name == "podman" => Finding::problem("podman", Exit::Unreachable, format!("`podman info`: {why}")),
        Err(why) => {
            let fix = if why.contains("permission denied") {
                "run `sudo usermod -aG docker $USER`, then log in again"
            } else {
                "run `sudo systemctl start docker`, or start Docker Desktop"
            };
            Finding::problem("docker", Exit::Unreachable, format!("could not connect to the Docker daemon: {why}"))
                .fix(fix)
        }
    }
}

fn name_of(name: &str) -> &'static str {
    if name == "podman" { "podman" } else { "docker" }
}

/// Runs a program and returns its last output line, or why it failed.
async fn run_command(path: &Path, arguments: &[&str], environment: &Environment) -> Result<String, String> {
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // The program searches the same PATH as the server.
    if let Some(path) = environment.variable("PATH") {
        command.env("PATH", path);
    }
    let output = match tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await {
        Err(_) => return Err(format!("timed out after {COMMAND_TIMEOUT:?}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(output)) => output,
    };
    let line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        line.unwrap_or_default().to_owned()
    };
    if output.status.success() {
        return Ok(line(&output.stdout));
    }
    let error = line(&output.stderr);
    Err(if error.is_empty() { output.status.to_string() } else { error })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns a directory with shell scripts, and an environment with only that directory on PATH.
    fn place(programs: &[(&str, &str)]) -> (tempfile::TempDir, Environment) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, script) in programs {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        let environment = Environment::default().with("PATH", &folder.path().display().to_string());
        (folder, environment)
    }

    async fn findings(
        folder: &tempfile::TempDir,
        environment: &Environment,
        words: &[&str],
    ) -> Vec<(String, Option<String>)> {
        let mut server = StdioServer::new(words[0], words[1..].iter().copied());
        server.cwd = Some(folder.path().to_owned());
        let findings = check(&server, &folder.path().join(words[0]), environment).await;
        let place = folder.path().display().to_string();
        findings.into_iter().map(|finding| (finding.message.replace(&place, "HERE"), finding.fix)).collect()
    }

    #[tokio::test]
    async fn an_old_node_is_a_problem_for_node_and_npx() {
        let (folder, environment) = place(&[("node", "echo v12.22.9"), ("npx", "")]);
        for words in [&["node", "-e", "1"][..], &["npx", "-y", "server"]] {
            let found = "`HERE/node` is Node.js 12.22.9, but MCP servers require 18.0.0 or newer".to_owned();
            let fix = "install Node.js, for example with `nvm install --lts`, and put it first on PATH".to_owned();
            assert_eq!(findings(&folder, &environment, words).await, [(found, Some(fix))]);
        }
    }

    #[tokio::test]
    async fn a_node_outside_the_engines_range_is_a_problem() {
        let (folder, environment) = place(&[("node", "echo v18.1.0"), ("npx", "")]);
        let package = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            std::fs::write(path, r#"{"engines": {"node": ">=20.19"}}"#).expect("a file");
        };
        package("package.json");
        package("node_modules/@scope/server/package.json");
        std::fs::write(folder.path().join("index.js"), "").expect("a file");
        for words in [&["node", "index.js"][..], &["npx", "-y", "@scope/server@1.2"]] {
            let found = findings(&folder, &environment, words).await;
            assert_eq!(found[0].0, "`HERE/node` is Node.js 18.1.0, but the server requires `>=20.19`", "{words:?}");
        }
    }

    #[tokio::test]
    async fn npx_without_node_or_without_yes_is_reported() {
        let (folder, environment) = place(&[("npx", "")]);
        let found = findings(&folder, &environment, &["npx", "server"]).await;
        assert_eq!(found[0].0, "`npx` requires `node`, which was not found on PATH");
        assert_eq!(found[1].1.as_deref(), Some("use `npx -y …`"));
    }

    #[tokio::test]
    async fn a_stopped_docker_daemon_is_reported() {
        let (folder, environment) = place(&[("docker", "echo 'ERROR: Cannot connect' >&2; exit 1")]);
        let found = findings(&folder, &environment, &["docker", "run", "-i", "--rm", "mcp/time"]).await;
        let fix = "run `sudo systemctl start docker`, or start Docker Desktop".to_owned();
        assert_eq!(found, [("could not connect to the Docker daemon: ERROR: Cannot connect".to_owned(), Some(fix))]);
        let (folder, environment) = place(&[("docker", "echo 27.1.1")]);
        let found = findings(&folder, &environment, &["docker", "run", "-i", "mcp/time"]).await;
        assert_eq!(found, [("docker 27.1.1 is running".to_owned(), None)]);
    }

    #[test]
    fn a_container_needs_input_and_no_terminal() {
        let found = |arguments: &[&str]| {
            check_run("docker", &StdioServer::new("docker", arguments.iter().copied())).map(|finding| finding.message)
        };
        let deaf = Some("`docker run` without `-i` does not connect standard input".to_owned());
        let terminal = Some("`docker run -t` allocates a terminal, which corrupts messages".to_owned());
        assert_eq!(found(&["run", "--rm", "image"]), deaf);
        assert_eq!(found(&["run", "-it", "image"]), terminal);
        assert_eq!(found(&["run", "-i", "--tty", "image"]), terminal);
        for fine in [&["run", "-i", "--rm", "image"][..], &["run", "--interactive", "image"], &["mcp", "gateway"]] {
            assert_eq!(found(fine), None, "{fine:?}");
        }
    }

    #[tokio::test]
    async fn an_old_python_gets_a_note() {
        let (folder, environment) = place(&[("python3", "echo Python 3.8.10")]);
        let found = findings(&folder, &environment, &["python3", "server.py"]).await;
        assert_eq!(found[0].0, "`HERE/python3` is Python 3.8.10, but most servers require Python 3.10 or newer");
        let (folder, environment) = place(&[("python3", "echo Python 3.13.1")]);
        let found = findings(&folder, &environment, &["python3", "server.py"]).await;
        assert_eq!(found, [("Python 3.13.1 at `HERE/python3`".to_owned(), None)]);
    }
}
