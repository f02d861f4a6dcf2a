//! A script's first line, which names its interpreter.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum bytes of a `#!` line, as in the kernel.
const MAX_SHEBANG: u64 = 256;

/// Characters that `env -S` interprets.
const SPECIAL: [char; 7] = ['\'', '"', '\\', '$', '#', '%', '='];

/// A script's interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Interpreter {
    /// An absolute path.
    Path(PathBuf),
    /// A program that `env` searches on the `PATH`.
    Name(String),
    /// Another form, whose program is not certain.
    Unknown(String),
}

/// Returns a script's interpreter, or `None` for other files.
///
/// Only `#!/path`, `#!/usr/bin/env NAME` and `#!/usr/bin/env -S NAME …` are recognized: the script must not choose what else its
/// sandbox allows.
pub(super) fn interpreter(script: &Path) -> Option<Interpreter> {
    let mut start = Vec::new();
    File::open(script).ok()?.take(MAX_SHEBANG).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(parse(&String::from_utf8_lossy(line)))
}

fn parse(line: &str) -> Interpreter {
    let mut words = line.split([' ', '\t', '\r']).filter(|word| !word.is_empty());
    let unknown = || Interpreter::Unknown(format!("#!{}", line.trim()));
    let Some(first) = words.next().filter(|first| first.starts_with('/') && !first.contains('\u{fffd}')) else {
        return unknown();
    };
    if !["/usr/bin/env", "/bin/env"].contains(&first) {
        // A program that is called `env` and is not the system's could run anything.
        let is_env = Path::new(first).file_name().is_some_and(|name| name == "env");
        return if is_env { unknown() } else { Interpreter::Path(first.into()) };
    }
    let name = match words.next() {
        Some("-S") => words.next(),
        // Without `-S`, everything after `env` is one word.
        Some(name) if words.next().is_none() => Some(name),
        _ => None,
    };
    match name.filter(|name| !name.starts_with('-') && !name.contains(SPECIAL) && !name.contains('\u{fffd}')) {
        Some(name) if name.starts_with('/') => Interpreter::Path(name.into()),
        Some(name) if !name.contains('/') => Interpreter::Name(name.to_owned()),
        _ => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_found() {
        let path = |path: &str| Interpreter::Path(path.into());
        let name = |name: &str| Interpreter::Name(name.to_owned());
        for (line, expected) in [
            ("/bin/sh -e", path("/bin/sh")),
            (" /srv/venv/bin/python\t-u", path("/srv/venv/bin/python")),
            ("/usr/bin/env node", name("node")),
            ("/bin/env -S node --no-warnings", name("node")),
            ("/usr/bin/env /usr/bin/python3", path("/usr/bin/python3")),
            ("/bin/sh\r", path("/bin/sh")),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("script");
        for (content, is_script) in [("#!/bin/sh\nexit", true), ("echo", false), ("", false)] {
            std::fs::write(&file, content).expect("a file");
            assert_eq!(interpreter(&file).is_some(), is_script, "{content}");
        }
    }

    #[test]
    fn first_lines_that_could_run_anything_are_not_recognized() {
        for line in [
            "",
            "sh",
            "./sh",
            "/usr/bin/env",
            "/usr/bin/env -S",
            "/usr/bin/env -S -u /usr/../x /usr/bin/python3",
            "/usr/bin/env -u x python3",
            "/usr/bin/env -S A=b python3",
            "/usr/bin/env -i",
            "/usr/bin/env python3 -u",
            "/usr/bin/env -S ./python3",
            "/usr/bin/env -S ${HOME}/x",
            "/usr/bin/env -S '/a b'",
            "/own/dir/env /root/.config/../x",
        ] {
            let found = parse(line);
            assert!(matches!(found, Interpreter::Unknown(_)), "{line}: {found:?}");
        }
    }
}
