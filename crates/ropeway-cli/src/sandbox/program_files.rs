//! A program's files and its interpreter's, which a server may read.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::links::resolve;
use super::script::{Interpreter, interpreter};

/// Maximum interpreter chain length, as in the kernel.
const MAX_INTERPRETERS: usize = 4;

/// Parts of a Python or Node.js installation. Its other files may belong to a project.
const PARTS: [&str; 6] = ["bin", "include", "lib", "lib64", "pyvenv.cfg", "share"];

/// Where a program is searched, and what it must not open.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramContext {
    /// The server's `PATH`.
    pub(super) path: Option<OsString>,
    /// The home directory, without links.
    pub(super) home: Option<PathBuf>,
    /// Paths without links that the server may use anyway.
    pub(super) covered: Vec<PathBuf>,
    /// Paths without links that the server may change.
    pub(super) changeable: Vec<PathBuf>,
}

/// Returns a program's files, its interpreters' files, and the Python and Node.js installations that they belong to, without
/// links.
///
/// # Errors
///
/// Returns the reason if the program is not certain, or if the server itself could choose it.
pub(super) fn program_paths(program: &OsStr, context: &ProgramContext) -> Result<BTreeSet<PathBuf>, String> {
    let mut paths = BTreeSet::new();
    let mut next = find(program, context.path.as_deref());
    let mut is_chosen_by_server = false;
    for _ in 0..MAX_INTERPRETERS {
        // A program that does not exist is reported by `exec`.
        let Some(file) = next.and_then(|file| resolve(&file).ok()) else { break };
        let may_change = |path: &Path| context.changeable.iter().any(|folder| path.starts_with(folder));
        is_chosen_by_server |= file.links.iter().any(|link| may_change(link));
        if !is_chosen_by_server {
            let ends = file.links.iter().chain([&file.target]);
            paths.extend(ends.flat_map(|end| installation(end, context.home.as_deref())));
            paths.extend(Some(&file.target).filter(|target| is_executable(target)).cloned());
            paths.extend(companion(&file.target));
        } else if !context.covered.iter().any(|folder| file.target.starts_with(folder)) {
            let target = file.target.display();
            return Err(format!(
                "the server could change which program is run: `{target}`; add that path to `sandbox.read`"
            ));
        }
        is_chosen_by_server |= may_change(&file.target);
        next = match interpreter(&file.target) {
            Some(Interpreter::Path(path)) => Some(path),
            Some(Interpreter::Name(name)) => find(OsStr::new(&name), context.path.as_deref()),
            Some(Interpreter::Unknown(line)) => return Err(unknown_interpreter(&file.target, &line)),
            None => break,
        };
    }
    Ok(paths)
}

fn unknown_interpreter(script: &Path, line: &str) -> String {
    let script = script.display();
    format!(
        "could not determine the interpreter from the first line of `{script}`: `{line}`; set `command` to the interpreter, \
         pass the script in `args`, and add `{script}` to `sandbox.read`"
    )
}

/// Returns a program's file, as `exec` finds it.
pub(super) fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return std::path::absolute(program).ok();
    }
    let found = std::env::split_paths(path?).map(|folder| folder.join(program)).find(|file| is_executable(file));
    found.and_then(|file| std::path::absolute(file).ok())
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Returns the program that `uvx` executes: `uv` beside it.
fn companion(file: &Path) -> Option<PathBuf> {
    let uv = file.with_file_name("uv");
    let is_file = || uv.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    (file.file_name().is_some_and(|name| name == "uvx") && is_file()).then_some(uv)
}

/// Returns the directories in the installation that a program belongs to: all Node.js packages around it, or a Node.js or Python
/// version, or a Python environment.
fn installation(file: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let folders = file.ancestors().skip(1);
    if let Some(packages) = folders.filter(|folder| folder.ends_with("node_modules")).last() {
        return Some(packages.to_owned()).filter(|packages| !is_shared(packages, home)).into_iter().collect();
    }
    let bin = file.parent().filter(|folder| folder.ends_with("bin"));
    let prefix = bin.and_then(Path::parent).filter(|prefix| !is_shared(prefix, home) && is_installation(prefix));
    let parts = prefix.into_iter().flat_map(|prefix| {
        let resolved = PARTS.iter().filter_map(|part| prefix.join(part).canonicalize().ok());
        // A link must not lead out.
        resolved.filter(move |part| part.starts_with(prefix))
    });
    parts.collect()
}

/// Returns `true` for a Python or Node.js prefix.
fn is_installation(prefix: &Path) -> bool {
    let has_python = || {
        let libraries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
        libraries.into_iter().any(|entry| entry.file_name().as_bytes().starts_with(b"python3"))
    };
    prefix.join("pyvenv.cfg").is_file() || prefix.join("lib/node_modules").is_dir() || has_python()
}

/// Returns `true` for directories with much more than one program.
pub(super) fn is_shared(folder: &Path, home: Option<&Path>) -> bool {
    folder.parent().is_none()
        || home.is_some_and(|home| {
            home.starts_with(folder) || folder == home.join(".local") || folder == home.join(".config")
        })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates files; those with a content are executable.
    fn files(root: &Path, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(&path, content).expect("a file");
            let mode = if content.is_empty() { 0o644 } else { 0o755 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
        }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a folder");
        (folder, root)
    }

    #[test]
    fn only_the_program_and_its_installation_are_readable() {
        let (_folder, home) = place();
        files(
            &home,
            &[
                (".venv/pyvenv.cfg", ""),
                (".venv/.env", ""),
                (".venv/lib/python3.11/os.py", ""),
                (".local/bin/uvx", "x"),
                (".local/bin/uv", "x"),
                (".local/lib/python3.11/os.py", ""),
                ("python/bin/python3", "x"),
                ("python/lib/python3.11/os.py", ""),
                ("bin/server", "x"),
                ("lib/python3.11/os.py", ""),
                ("app/server", "x"),
                ("app/.env", ""),
                ("app/bin/tool", "x"),
                ("app/lib/data", ""),
                ("app/node_modules/a/node_modules/b/cli.js", "x"),
                ("data", ""),
            ],
        );
        fs::create_dir(home.join(".venv/bin")).expect("a folder");
        symlink(home.join("python/bin/python3"), home.join(".venv/bin/python")).expect("a link");
        symlink("/", home.join(".venv/share")).expect("a link");
        let context = ProgramContext { home: Some(home.clone()), ..ProgramContext::default() };
        let found = |name: &str| {
            let paths = program_paths(home.join(name).as_os_str(), &context).expect("a program");
            let relative = |path: &PathBuf| path.strip_prefix(&home).expect("in the home").display().to_string();
            paths.iter().map(relative).collect::<Vec<_>>()
        };
        assert_eq!(
            found(".venv/bin/python"),
            [".venv/bin", ".venv/lib", ".venv/pyvenv.cfg", "python/bin", "python/bin/python3", "python/lib"]
        );
        assert_eq!(
            found("app/node_modules/a/node_modules/b/cli.js"),
            ["app/node_modules", "app/node_modules/a/node_modules/b/cli.js"]
        );
        assert_eq!(found(".local/bin/uvx"), [".local/bin/uv", ".local/bin/uvx"]);
        for name in ["bin/server", "app/server", "app/bin/tool"] {
            assert_eq!(found(name), [name]);
        }
        for name in ["data", "none", "app", "app/../../x"] {
            assert_eq!(found(name), [""; 0], "{name}");
        }
    }

    #[test]
    fn a_script_cannot_choose_what_its_sandbox_reads() {
        let (_folder, root) = place();
        let home = root.join("home");
        files(&root, &[("home/.config/secret", ""), ("home/tool", "x"), ("app/run", "#!/bin/sh\n")]);
        let context = ProgramContext { home: Some(home.clone()), ..ProgramContext::default() };
        let script = root.join("app/server");
        for (line, expected) in [
            ("#!/usr/bin/env -S -u /usr/../x /usr/bin/python3".to_owned(), None),
            (format!("#!{}/env {}/.config/../x", root.display(), home.display()), None),
            (format!("#!{}/.config/secret", home.display()), Some(vec![script.clone()])),
            (format!("#!{}", home.display()), Some(vec![script.clone()])),
            (format!("#!{}/app/../home/tool", root.display()), Some(vec![script.clone(), home.join("tool")])),
        ] {
            files(&root, &[("app/server", &format!("{line}\n"))]);
            let found = program_paths(script.as_os_str(), &context);
            match expected {
                Some(paths) => assert_eq!(found, Ok(paths.into_iter().collect()), "{line}"),
                None => {
                    let reason = found.expect_err(&line);
                    assert!(reason.contains(&line) && reason.contains("to `sandbox.read`"), "{reason}");
                }
            }
        }
    }

    #[test]
    fn a_program_that_the_server_may_change_opens_nothing() {
        let (_folder, root) = place();
        files(&root, &[("app/plain", "x"), ("other/python/bin/python3", "x"), ("other/python/lib/python3.11/x", "")]);
        let python = root.join("other/python/bin/python3");
        files(&root, &[("app/server", &format!("#!{}\n", python.display())), ("app/sh", "#!/bin/sh\n")]);
        symlink(&python, root.join("app/link")).expect("a link");
        let app = vec![root.join("app")];
        let mut context = ProgramContext { covered: app.clone(), changeable: app, ..ProgramContext::default() };
        context.covered.push("/usr".into());
        let paths =
            |name: &str, context: &ProgramContext| program_paths(root.join("app").join(name).as_os_str(), context);
        for name in ["server", "link"] {
            let reason = paths(name, &context).expect_err("an error");
            assert!(reason.contains(&format!("`{}`; add that path to `sandbox.read`", python.display())), "{reason}");
        }
        for name in ["plain", "sh"] {
            assert!(
                paths(name, &context).is_ok_and(|paths| paths.iter().all(|path| path.starts_with(&root))),
                "{name}"
            );
        }
        context.covered.push(root.join("other"));
        assert!(paths("server", &context).is_ok() && paths("link", &context).is_ok());
    }
}
