//! What a server runs on: Node, Python, Docker, and how they are told to run it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ropeway::config::StdioServer;
use tokio::process::Command;

use super::finding::Finding;
use super::node::{self, Version};
use super::surroundings::{Search, Surroundings};
use super::{package, program};
use crate::failure::Exit;

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// The oldest Python that the SDK for servers runs on.
const OLDEST_PYTHON: [u32; 2] = [3, 10];

/// Checks what the program, which is there, needs besides itself.
pub(super) async fn check(server: &StdioServer, path: &Path, around: &Surroundings) -> Vec<Finding> {
    let name = program::name(&server.command);
    match name {
        "node" | "npx" | "npm" | "pnpm" | "yarn" | "tsx" => {
            let own = if name == "node" { Search::Found(path.to_owned()) } else { around.find("node", None) };
            let mut findings = vec![check_node(server, own, around).await];
            findings.extend(check_npx(name, server));
            findings
        }
        "docker" | "podman" => {
            let mut findings: Vec<Finding> = check_run(name, server).into_iter().collect();
            findings.push(check_daemon(name, path, around).await);
            findings
        }
        name if name.starts_with("python") => vec![check_python(path, around).await],
        _ => Vec::new(),
    }
}

async fn check_node(server: &StdioServer, found: Search, around: &Surroundings) -> Finding {
    let problem = |found: String| Finding::problem("node", Exit::Unreachable, found);
    let Search::Found(path) = found else {
        let finding = problem(format!("`{}` needs `node`, which is not on PATH", server.command));
        return finding.fix(package::advice("node").unwrap_or_default());
    };
    let said = match ask(&path, &["--version"], around).await {
        Ok(said) => said,
        Err(why) => return problem(format!("`{} --version` does not work: {why}", path.display())),
    };
    let Some(version) = Version::parse(&said) else {
        return Finding::note("node", format!("`{}` says it is `{said}`, which is no version", path.display()));
    };
    let wanted = package_of(server).and_then(|file| node::engines(&file));
    let shown = path.display();
    match wanted {
        Some(range) if !version.is_in(&range) => {
            let found = format!("`{shown}` is Node {version}, and the server wants `{range}`");
            problem(found).fix(newer(Some(&range)))
        }
        _ if version < node::OLDEST => {
            let found = format!("`{shown}` is Node {version}, and servers need {} or newer", node::OLDEST);
            problem(found).fix(newer(None))
        }
        _ => Finding::good("node", format!("Node {version} at `{shown}`")),
    }
}

fn newer(range: Option<&str>) -> String {
    let which = range.map_or_else(String::new, |range| format!(" that fits `{range}`"));
    format!("install a Node{which}, such as with `nvm install --lts`, and put it first on PATH")
}

/// A file of the package that the server is, when it lies on this machine.
fn package_of(server: &StdioServer) -> Option<PathBuf> {
    let folder = server.cwd.clone().or_else(|| std::env::current_dir().ok())?;
    if let Some(script) = program::script(server) {
        return std::fs::canonicalize(script).ok();
    }
    let package = server.args.iter().find(|word| !word.starts_with('-'))?;
    let name = match package.rfind('@') {
        Some(at) if at > 0 => &package[..at],
        _ => package.as_str(),
    };
    // A package that is not there says nothing; one above it would be another.
    let installed = folder.join("node_modules").join(name).join("package.json");
    installed.is_file().then_some(installed)
}

/// Only an `npx` that asks nobody can be sure to start.
fn check_npx(name: &str, server: &StdioServer) -> Option<Finding> {
    let agreed = |word: &String| matches!(word.as_str(), "-y" | "--yes" | "--no" | "--no-install" | "--offline");
    (name == "npx" && !server.args.iter().any(agreed)).then(|| {
        Finding::note("npx", "without `-y`, npx may ask before it installs a package, and nobody can answer")
            .fix("`npx -y …`")
    })
}

async fn check_python(path: &Path, around: &Surroundings) -> Finding {
    let shown = path.display();
    let said = match ask(path, &["--version"], around).await {
        Ok(said) => said,
        Err(why) => {
            let found = format!("`{shown} --version` does not work: {why}");
            return Finding::problem("python", Exit::Unreachable, found);
        }
    };
    let version: Vec<u32> = said.trim_start_matches("Python ").split('.').map_while(|part| part.parse().ok()).collect();
    match version.get(..2) {
        Some(known) if known < OLDEST_PYTHON.as_slice() => {
            Finding::note("python", format!("`{shown}` is {said}, and most servers need Python 3.10 or newer"))
                .fix("`uv python install 3.13`, or run the server with `uvx`, which brings a Python of its own")
        }
        _ => Finding::good("python", format!("{said} at `{shown}`")),
    }
}

/// A container that has no standard input is a server that hears nothing.
fn check_run(name: &str, server: &StdioServer) -> Option<Finding> {
    if !server.args.iter().any(|word| word == "run") {
        return None;
    }
    // Flags of one letter may stand together: `-it`.
    let short = |letter: char| {
        server.args.iter().any(|word| {
            word.strip_prefix('-').is_some_and(|flags| {
                flags.contains(letter) && flags.len() <= 4 && flags.chars().all(|c| c.is_ascii_alphabetic())
            })
        })
    };
    let long = |flag: &str| server.args.iter().any(|word| word.trim_end_matches("=true") == flag);
    if !short('i') && !long("--interactive") {
        let found = format!("`{name} run` without `-i` gives the server no standard input");
        return Some(Finding::problem("container", Exit::Unreachable, found).fix(format!("`{name} run -i --rm …`")));
    }
    (short('t') || long("--tty")).then(|| {
        Finding::problem(
            "container",
            Exit::Unreachable,
            format!("`{name} run -t` makes a terminal, which spoils messages"),
        )
        .fix(format!("`{name} run -i --rm …`, without `-t`"))
    })
}

async fn check_daemon(name: &str, path: &Path, around: &Surroundings) -> Finding {
    match ask(path, &["info", "--format", "{{.ServerVersion}}"], around).await {
        // With podman there is no daemon, and no such field.
        Ok(version) if !version.is_empty() && !version.starts_with('<') => {
            Finding::good(name_of(name), format!("{name} {version} answers"))
        }
        Ok(_) => Finding::good(name_of(name), format!("{name} answers")),
        Err(why) if name == "podman" => Finding::problem("podman", Exit::Unreachable, format!("`podman info`: {why}")),
        Err(why) => {
            let fix = match why.contains("permission denied") {
                true => "`sudo usermod -aG docker $USER`, then log in again",
                false => "start it: `sudo systemctl start docker`, or Docker Desktop",
            };
            Finding::problem("docker", Exit::Unreachable, format!("the Docker daemon does not answer: {why}")).fix(fix)
        }
    }
}

fn name_of(name: &str) -> &'static str {
    if name == "podman" { "podman" } else { "docker" }
}

/// What a program prints in one line, or why it prints nothing.
async fn ask(path: &Path, arguments: &[&str], around: &Surroundings) -> Result<String, String> {
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // A program that looks for its parts looks where the server will.
    if let Some(path) = around.variable("PATH") {
        command.env("PATH", path);
    }
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => return Err(format!("it did not end within {PATIENCE:?}")),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(output)) => output,
    };
    let line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        line.unwrap_or_default().to_owned()
    };
    match output.status.success() {
        true => Ok(line(&output.stdout)),
        false => Err(match line(&output.stderr) {
            said if said.is_empty() => output.status.to_string(),
            said => said,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A folder with programs that are shell scripts, the only folder on PATH besides the system's own.
    fn place(programs: &[(&str, &str)]) -> (tempfile::TempDir, Surroundings) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, script) in programs {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        let around = Surroundings::default().with("PATH", &folder.path().display().to_string());
        (folder, around)
    }

    async fn findings(
        folder: &tempfile::TempDir,
        around: &Surroundings,
        words: &[&str],
    ) -> Vec<(String, Option<String>)> {
        let mut server = StdioServer::new(words[0], words[1..].iter().copied());
        server.cwd = Some(folder.path().to_owned());
        let findings = check(&server, &folder.path().join(words[0]), around).await;
        let place = folder.path().display().to_string();
        findings.into_iter().map(|finding| (finding.found.replace(&place, "HERE"), finding.fix)).collect()
    }

    #[tokio::test]
    async fn a_node_that_is_too_old_is_a_problem_for_npx_too() {
        let (folder, around) = place(&[("node", "echo v12.22.9"), ("npx", "")]);
        for words in [&["node", "-e", "1"][..], &["npx", "-y", "server"]] {
            let found = "`HERE/node` is Node 12.22.9, and servers need 18.0.0 or newer".to_owned();
            let fix = "install a Node, such as with `nvm install --lts`, and put it first on PATH".to_owned();
            assert_eq!(findings(&folder, &around, words).await, [(found, Some(fix))]);
        }
    }

    #[tokio::test]
    async fn a_node_that_the_package_does_not_want_is_a_problem() {
        let (folder, around) = place(&[("node", "echo v18.1.0"), ("npx", "")]);
        let package = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            std::fs::write(path, r#"{"engines": {"node": ">=20.19"}}"#).expect("a file");
        };
        package("package.json");
        package("node_modules/@scope/server/package.json");
        std::fs::write(folder.path().join("index.js"), "").expect("a file");
        for words in [&["node", "index.js"][..], &["npx", "-y", "@scope/server@1.2"]] {
            let found = findings(&folder, &around, words).await;
            assert_eq!(found[0].0, "`HERE/node` is Node 18.1.0, and the server wants `>=20.19`", "{words:?}");
        }
    }

    #[tokio::test]
    async fn npx_without_node_or_without_an_answer_is_told() {
        let (folder, around) = place(&[("npx", "")]);
        let found = findings(&folder, &around, &["npx", "server"]).await;
        assert_eq!(found[0].0, "`npx` needs `node`, which is not on PATH");
        assert_eq!(found[1].1.as_deref(), Some("`npx -y …`"));
    }

    #[tokio::test]
    async fn a_docker_that_does_not_answer_says_how_to_start_it() {
        let (folder, around) = place(&[("docker", "echo 'ERROR: Cannot connect' >&2; exit 1")]);
        let found = findings(&folder, &around, &["docker", "run", "-i", "--rm", "mcp/time"]).await;
        let fix = "start it: `sudo systemctl start docker`, or Docker Desktop".to_owned();
        assert_eq!(found, [("the Docker daemon does not answer: ERROR: Cannot connect".to_owned(), Some(fix))]);
        let (folder, around) = place(&[("docker", "echo 27.1.1")]);
        let found = findings(&folder, &around, &["docker", "run", "-i", "mcp/time"]).await;
        assert_eq!(found, [("docker 27.1.1 answers".to_owned(), None)]);
    }

    #[test]
    fn a_container_needs_input_and_no_terminal() {
        let found = |arguments: &[&str]| {
            check_run("docker", &StdioServer::new("docker", arguments.iter().copied())).map(|finding| finding.found)
        };
        let deaf = Some("`docker run` without `-i` gives the server no standard input".to_owned());
        let terminal = Some("`docker run -t` makes a terminal, which spoils messages".to_owned());
        assert_eq!(found(&["run", "--rm", "image"]), deaf);
        assert_eq!(found(&["run", "-it", "image"]), terminal);
        assert_eq!(found(&["run", "-i", "--tty", "image"]), terminal);
        for fine in [&["run", "-i", "--rm", "image"][..], &["run", "--interactive", "image"], &["mcp", "gateway"]] {
            assert_eq!(found(fine), None, "{fine:?}");
        }
    }

    #[tokio::test]
    async fn an_old_python_is_worth_a_note() {
        let (folder, around) = place(&[("python3", "echo Python 3.8.10")]);
        let found = findings(&folder, &around, &["python3", "server.py"]).await;
        assert_eq!(found[0].0, "`HERE/python3` is Python 3.8.10, and most servers need Python 3.10 or newer");
        let (folder, around) = place(&[("python3", "echo Python 3.13.1")]);
        let found = findings(&folder, &around, &["python3", "server.py"]).await;
        assert_eq!(found, [("Python 3.13.1 at `HERE/python3`".to_owned(), None)]);
    }
}
