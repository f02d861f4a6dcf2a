//! Checks a server's program: the file, its permissions and its interpreter.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ropeway_config::StdioServer;

use super::environment::{Environment, Search};
use super::finding::Finding;
use super::package;
use crate::failure::Exit;

const CHECK: &str = "program";

/// Checks the working directory.
pub(super) fn check_folder(folder: &Path) -> Finding {
    let shown = folder.display();
    let problem = |found: String| Finding::problem("folder", Exit::Unreachable, found);
    match std::fs::metadata(folder) {
        Err(_) => problem(format!("directory `{shown}` does not exist")).fix(format!("run `mkdir -p {shown}`")),
        Ok(metadata) if !metadata.is_dir() => {
            problem(format!("`{shown}` is a file, not a directory")).fix("set `cwd` to a directory")
        }
        Ok(_) => Finding::good("folder", format!("runs in `{shown}`")),
    }
}

/// Searches for the program. Also returns its path, if it can be started.
pub(super) fn check(server: &StdioServer, environment: &Environment) -> (Option<PathBuf>, Finding) {
    let command = server.command.as_str();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    match environment.find(command, server.working_dir()) {
        Search::Found(path) => match check_shebang(&path, environment) {
            Some(finding) => (None, finding),
            None => {
                let found = Finding::good(CHECK, format!("`{}`", path.display()));
                (Some(path), found)
            }
        },
        Search::NotExecutable(path) => {
            let path = path.display();
            (None, problem(format!("`{path}` is not executable")).fix(format!("run `chmod +x {path}`")))
        }
        Search::Folder(path) => (None, problem(format!("`{}` is a directory, not a program", path.display()))),
        Search::Missing => (None, missing(command, environment)),
    }
}

fn missing(command: &str, environment: &Environment) -> Finding {
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    if let Some((program, arguments)) = command.split_once(' ')
        && matches!(environment.find(program, None), Search::Found(_))
    {
        let fix = format!("set the command to `{program}` and pass `{arguments}` as arguments");
        return problem(format!("command `{command}` not found")).fix(fix);
    }
    if command.contains('/') {
        return problem(format!("file `{command}` does not exist")).fix("correct the path of the command");
    }
    let finding = problem(format!("command `{command}` not found on PATH"));
    match (environment.find_outside_path(command), package::advice(command)) {
        (Some(path), _) => {
            let folder = path.parent().unwrap_or(&path).display();
            finding.fix(format!("set the command to `{}`, or add `{folder}` to PATH", path.display()))
        }
        (None, Some(advice)) => finding.fix(advice),
        (None, None) => finding.fix(format!("install `{command}`, or set the command to an absolute path")),
    }
}

/// Checks a script's `#!` line.
fn check_shebang(path: &Path, environment: &Environment) -> Option<Finding> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let shown = path.display();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    if line.ends_with('\r') {
        let found = format!("the `#!` line of `{shown}` ends in CRLF, so its interpreter is not found");
        return Some(problem(found).fix(format!("run `sed -i 's/\\r$//' {shown}`")));
    }
    let interpreter = interpreter(&line)?;
    match environment.find(interpreter, None) {
        Search::Found(_) => None,
        _ => {
            let found = problem(format!("interpreter `{interpreter}` of `{shown}` not found"));
            let name = interpreter.rsplit('/').next().unwrap_or(interpreter);
            let fix = package::advice(name).unwrap_or_else(|| {
                format!("install `{name}`, or correct the first line of `{shown}`, such as `#!/usr/bin/env {name}`")
            });
            Some(found.fix(fix))
        }
    }
}

/// Returns the interpreter in a `#!` line, or the program that `env` runs.
fn interpreter(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let program = words.next()?;
    match program.rsplit('/').next() {
        Some("env") => words.find(|word| !word.starts_with('-') && !word.contains('=')).or(Some(program)),
        _ => Some(program),
    }
}

/// Returns a command's file name.
pub(super) fn name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

/// Returns the script in an interpreter's arguments.
pub(super) fn script(server: &StdioServer) -> Option<PathBuf> {
    let name = name(&server.command);
    if !(matches!(name, "node" | "bun" | "deno" | "tsx" | "ruby" | "php") || name.starts_with("python")) {
        return None;
    }
    let code = |word: &String| matches!(word.as_str(), "-c" | "-e" | "-p" | "-m" | "--eval" | "--print");
    let word =
        server.args.iter().take_while(|word| !code(word)).find(|word| !word.starts_with('-') && *word != "run")?;
    let known = [".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".php"].iter().any(|end| word.ends_with(end));
    let path = server.working_dir().unwrap_or(Path::new("")).join(word);
    (known && !word.contains(':')).then_some(path)
}

/// Checks that an interpreter's script exists.
pub(super) fn check_script(server: &StdioServer) -> Option<Finding> {
    let script = script(server)?;
    if script.exists() {
        return None;
    }
    let found = format!("script `{}` of `{}` does not exist", script.display(), server.command);
    let fix = if server.working_dir().is_none() && script.is_relative() {
        "use an absolute path, or set the working directory of the server"
    } else {
        "correct the path; build a TypeScript server first, for example with `npm run build`"
    };
    Some(Finding::problem("script", Exit::Unreachable, found).fix(fix))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn server(command: &str, arguments: &[&str]) -> StdioServer {
        StdioServer::new(command, arguments.iter().copied())
    }

    /// Returns a directory with one executable file, and an environment with only that directory on PATH.
    fn place(name: &str, text: &str) -> (tempfile::TempDir, PathBuf, Environment) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let environment = Environment::default().with("PATH", &folder.path().display().to_string());
        (folder, path, environment)
    }

    #[test]
    fn a_missing_command_suggests_what_to_install() {
        let environment = Environment::default().with("HOME", "/no/such/home");
        let (_, finding) = check(&server("bunx", &[]), &environment);
        let expected = Finding::problem(CHECK, Exit::Unreachable, "command `bunx` not found on PATH")
            .fix("install Bun: `curl -fsSL https://bun.sh/install | bash`");
        assert_eq!(finding, expected);
    }

    #[test]
    fn a_command_outside_path_is_located() {
        let (home, path, _) = place("x", "");
        std::fs::create_dir_all(home.path().join(".local/bin")).expect("a folder");
        let there = home.path().join(".local/bin/my-server-x");
        std::fs::rename(path, &there).expect("a move");
        let environment = Environment::default().with("HOME", &home.path().display().to_string()).with("PATH", "/none");
        let (_, finding) = check(&server("my-server-x", &[]), &environment);
        let folder = home.path().join(".local/bin");
        let fix = format!("set the command to `{}`, or add `{}` to PATH", there.display(), folder.display());
        assert_eq!(finding.fix, Some(fix));
    }

    #[test]
    fn arguments_inside_the_command_are_detected() {
        let (_folder, _, environment) = place("npx", "");
        let (_, finding) = check(&server("npx -y server", &[]), &environment);
        assert_eq!(finding.fix.as_deref(), Some("set the command to `npx` and pass `-y server` as arguments"));
    }

    #[test]
    fn a_file_without_execute_permission_suggests_chmod() {
        let (folder, path, environment) = place("server", "");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("permissions");
        let mut server = server("./server", &[]);
        server.cwd = Some(folder.path().to_owned());
        let (found, finding) = check(&server, &environment);
        let shown = folder.path().join("./server");
        assert_eq!(found, None);
        assert_eq!(finding.message, format!("`{}` is not executable", shown.display()));
        assert_eq!(finding.fix, Some(format!("run `chmod +x {}`", shown.display())));
    }

    #[test]
    fn a_missing_interpreter_is_reported() {
        for (first_line, interpreter, fix) in [
            ("#!/no/such/python3 -u\n", "/no/such/python3", "install Python"),
            ("#!/usr/bin/env -S node --quiet\n", "node", "install Node.js"),
            ("#!/usr/bin/env A=b odd-one\n", "odd-one", "install `odd-one`"),
        ] {
            let (_folder, path, environment) = place("server", first_line);
            let (_, finding) = check(&server("server", &[]), &environment);
            let found = format!("interpreter `{interpreter}` of `{}` not found", path.display());
            assert_eq!(finding.message, found);
            assert!(finding.fix.as_ref().is_some_and(|text| text.starts_with(fix)), "{finding:?}");
        }
        let (_folder, _, environment) = place("server", "#!/bin/sh\r\n");
        let (_, finding) = check(&server("server", &[]), &environment);
        assert!(finding.message.contains("ends in CRLF"), "{finding:?}");
    }

    #[test]
    fn a_script_that_can_run_is_found() {
        let (_folder, path, environment) = place("server", "#!/bin/sh\n");
        assert_eq!(
            check(&server("server", &[]), &environment),
            (Some(path.clone()), Finding::good(CHECK, format!("`{}`", path.display())))
        );
    }

    #[test]
    fn a_working_directory_that_is_missing_or_a_file_is_a_problem() {
        assert_eq!(
            check_folder(Path::new("/no/such/folder")),
            Finding::problem("folder", Exit::Unreachable, "directory `/no/such/folder` does not exist")
                .fix("run `mkdir -p /no/such/folder`")
        );
        assert_eq!(
            check_folder(Path::new("/etc/passwd")),
            Finding::problem("folder", Exit::Unreachable, "`/etc/passwd` is a file, not a directory")
                .fix("set `cwd` to a directory")
        );
        assert_eq!(check_folder(Path::new("/")), Finding::good("folder", "runs in `/`"));
    }

    #[test]
    fn the_script_of_an_interpreter_is_found_behind_its_flags() {
        let path = |command: &str, arguments: &[&str]| script(&server(command, arguments));
        assert_eq!(path("node", &["--inspect", "dist/index.js", "a.js"]), Some("dist/index.js".into()));
        assert_eq!(path("/usr/bin/python3.12", &["-u", "server.py"]), Some("server.py".into()));
        assert_eq!(path("deno", &["run", "-A", "main.ts"]), Some("main.ts".into()));
        for (command, arguments) in [
            ("python3", &["-m", "server.py"][..]),
            ("node", &["-e", "a.js"]),
            ("deno", &["run", "https://example.com/main.ts"]),
            ("npx", &["server.js"]),
            ("node", &[]),
        ] {
            assert_eq!(path(command, arguments), None, "{command} {arguments:?}");
        }
        let finding = check_script(&server("node", &["/no/such/index.js"])).expect("a problem");
        assert_eq!(finding.message, "script `/no/such/index.js` of `node` does not exist");
    }
}
