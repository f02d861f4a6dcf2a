//! The program of a server: is it there, may it be started, and is there what runs it?

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ropeway::config::StdioServer;

use super::finding::Finding;
use super::package;
use super::surroundings::{Search, Surroundings};
use crate::failure::Exit;

const CHECK: &str = "program";

/// The folder that the server is to run in.
pub(super) fn check_folder(folder: &Path) -> Option<Finding> {
    let shown = folder.display();
    let problem = |found: String| Finding::problem("folder", Exit::Unreachable, found);
    match std::fs::metadata(folder) {
        Err(_) => Some(problem(format!("the folder `{shown}` does not exist")).fix(format!("`mkdir -p {shown}`"))),
        Ok(metadata) if !metadata.is_dir() => Some(problem(format!("`{shown}` is a file, and not a folder"))),
        Ok(_) => None,
    }
}

/// Looks for the program; its path, when there is one, comes with what was found.
pub(super) fn check(server: &StdioServer, around: &Surroundings) -> (Option<PathBuf>, Finding) {
    let command = server.command.as_str();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    match around.find(command, server.cwd.as_deref()) {
        Search::Found(path) => match check_shebang(&path, around) {
            Some(finding) => (None, finding),
            None => {
                let found = Finding::good(CHECK, format!("`{}`", path.display()));
                (Some(path), found)
            }
        },
        Search::NotExecutable(path) => {
            let path = path.display();
            (None, problem(format!("`{path}` may not be executed")).fix(format!("`chmod +x {path}`")))
        }
        Search::Folder(path) => (None, problem(format!("`{}` is a folder, and not a program", path.display()))),
        Search::Missing => (None, missing(command, around)),
    }
}

fn missing(command: &str, around: &Surroundings) -> Finding {
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    if let Some((program, arguments)) = command.split_once(' ')
        && matches!(around.find(program, None), Search::Found(_))
    {
        let fix = format!("the command is `{program}`; `{arguments}` belongs to its arguments");
        return problem(format!("there is no program named `{command}`")).fix(fix);
    }
    if command.contains('/') {
        return problem(format!("there is no file `{command}`")).fix("correct the path of the command");
    }
    let finding = problem(format!("`{command}` is not on PATH"));
    match (around.elsewhere(command), package::advice(command)) {
        (Some(path), _) => {
            let folder = path.parent().unwrap_or(&path).display();
            finding.fix(format!("it is at `{}`: give this as the command, or add `{folder}` to PATH", path.display()))
        }
        (None, Some(advice)) => finding.fix(advice),
        (None, None) => finding.fix(format!("install `{command}`, or give its whole path as the command")),
    }
}

/// What is wrong with the first line of a script.
fn check_shebang(path: &Path, around: &Surroundings) -> Option<Finding> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let shown = path.display();
    let problem = |found: String| Finding::problem(CHECK, Exit::Unreachable, found);
    if line.ends_with('\r') {
        let found = format!("the first line of `{shown}` ends as Windows ends lines, so its interpreter is not found");
        return Some(problem(found).fix(format!("`sed -i 's/\\r$//' {shown}`")));
    }
    let interpreter = interpreter(&line)?;
    match around.find(interpreter, None) {
        Search::Found(_) => None,
        _ => {
            let found = problem(format!("`{shown}` is to be run by `{interpreter}`, which is not there"));
            let name = interpreter.rsplit('/').next().unwrap_or(interpreter);
            let fix = package::advice(name).unwrap_or_else(|| {
                format!("install `{name}`, or correct the first line of `{shown}`, such as `#!/usr/bin/env {name}`")
            });
            Some(found.fix(fix))
        }
    }
}

/// Who runs a script with this first line, of which `#!` is gone: the program that `env` is told to look for.
fn interpreter(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let program = words.next()?;
    match program.rsplit('/').next() {
        Some("env") => words.find(|word| !word.starts_with('-') && !word.contains('=')).or(Some(program)),
        _ => Some(program),
    }
}

/// The name by which a command is known, without its folder and the version behind it.
pub(super) fn name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

/// The file that an interpreter is told to run, when its arguments name one.
pub(super) fn script(server: &StdioServer) -> Option<PathBuf> {
    let name = name(&server.command);
    if !(matches!(name, "node" | "bun" | "deno" | "tsx" | "ruby" | "php") || name.starts_with("python")) {
        return None;
    }
    let code = |word: &String| matches!(word.as_str(), "-c" | "-e" | "-p" | "-m" | "--eval" | "--print");
    let word =
        server.args.iter().take_while(|word| !code(word)).find(|word| !word.starts_with('-') && *word != "run")?;
    let known = [".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".php"].iter().any(|end| word.ends_with(end));
    let path = server.cwd.as_deref().unwrap_or(Path::new("")).join(word);
    (known && !word.contains(':')).then_some(path)
}

/// Is the file there that the interpreter is told to run?
pub(super) fn check_script(server: &StdioServer) -> Option<Finding> {
    let script = script(server)?;
    if script.exists() {
        return None;
    }
    let found = format!("`{}` is told to run `{}`, which does not exist", server.command, script.display());
    let fix = match server.cwd.is_none() && script.is_relative() {
        true => "give its whole path, or the folder that the server runs in",
        false => "correct the path; a server in TypeScript has to be built first, such as with `npm run build`",
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

    /// A folder with one executable file, and surroundings in which only that folder is on PATH.
    fn place(name: &str, text: &str) -> (tempfile::TempDir, PathBuf, Surroundings) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let around = Surroundings::default().with("PATH", &folder.path().display().to_string());
        (folder, path, around)
    }

    #[test]
    fn a_command_that_is_nowhere_says_what_provides_it() {
        let around = Surroundings::default().with("HOME", "/no/such/home");
        let (_, finding) = check(&server("bunx", &[]), &around);
        let expected = Finding::problem(CHECK, Exit::Unreachable, "`bunx` is not on PATH")
            .fix("`bunx` comes with Bun: `curl -fsSL https://bun.sh/install | bash`");
        assert_eq!(finding, expected);
    }

    #[test]
    fn a_command_beside_the_path_says_where_it_is() {
        let (home, path, _) = place("x", "");
        std::fs::create_dir_all(home.path().join(".local/bin")).expect("a folder");
        let there = home.path().join(".local/bin/my-server-x");
        std::fs::rename(path, &there).expect("a move");
        let around = Surroundings::default().with("HOME", &home.path().display().to_string()).with("PATH", "/none");
        let (_, finding) = check(&server("my-server-x", &[]), &around);
        let folder = home.path().join(".local/bin");
        let fix =
            format!("it is at `{}`: give this as the command, or add `{}` to PATH", there.display(), folder.display());
        assert_eq!(finding.fix, Some(fix));
    }

    #[test]
    fn a_command_with_its_arguments_inside_is_taken_apart() {
        let (_folder, _, around) = place("npx", "");
        let (_, finding) = check(&server("npx -y server", &[]), &around);
        assert_eq!(finding.fix.as_deref(), Some("the command is `npx`; `-y server` belongs to its arguments"));
    }

    #[test]
    fn a_file_that_nobody_may_execute_says_how_to_change_that() {
        let (folder, path, around) = place("server", "");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("permissions");
        let mut server = server("./server", &[]);
        server.cwd = Some(folder.path().to_owned());
        let (found, finding) = check(&server, &around);
        let shown = folder.path().join("./server");
        assert_eq!(found, None);
        assert_eq!(finding.found, format!("`{}` may not be executed", shown.display()));
        assert_eq!(finding.fix, Some(format!("`chmod +x {}`", shown.display())));
    }

    #[test]
    fn a_script_whose_interpreter_is_missing_names_it() {
        for (first_line, interpreter, fix) in [
            ("#!/no/such/python3 -u\n", "/no/such/python3", "`python3` comes with Python"),
            ("#!/usr/bin/env -S node --quiet\n", "node", "`node` comes with Node.js"),
            ("#!/usr/bin/env A=b odd-one\n", "odd-one", "install `odd-one`"),
        ] {
            let (_folder, path, around) = place("server", first_line);
            let (_, finding) = check(&server("server", &[]), &around);
            let found = format!("`{}` is to be run by `{interpreter}`, which is not there", path.display());
            assert_eq!(finding.found, found);
            assert!(finding.fix.as_ref().is_some_and(|text| text.starts_with(fix)), "{finding:?}");
        }
        let (_folder, _, around) = place("server", "#!/bin/sh\r\n");
        let (_, finding) = check(&server("server", &[]), &around);
        assert!(finding.found.contains("as Windows ends lines"), "{finding:?}");
    }

    #[test]
    fn a_script_that_can_run_is_found() {
        let (_folder, path, around) = place("server", "#!/bin/sh\n");
        assert_eq!(
            check(&server("server", &[]), &around),
            (Some(path.clone()), Finding::good(CHECK, format!("`{}`", path.display())))
        );
    }

    #[test]
    fn a_folder_that_is_missing_is_a_problem_of_the_settings() {
        let finding = check_folder(Path::new("/no/such/folder")).expect("a problem");
        assert_eq!(
            finding,
            Finding::problem("folder", Exit::Unreachable, "the folder `/no/such/folder` does not exist")
                .fix("`mkdir -p /no/such/folder`")
        );
        assert_eq!(check_folder(Path::new("/")), None);
    }

    #[test]
    fn the_script_of_an_interpreter_is_told_from_its_flags_and_code() {
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
        assert_eq!(finding.found, "`node` is told to run `/no/such/index.js`, which does not exist");
    }
}
