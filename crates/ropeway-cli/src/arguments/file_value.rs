//! Argument values from files: `key=@FILE`.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use ropeway_config::read_regular;

use crate::failure::Failure;
use crate::terminal::text::{clean_line, cut};

/// Maximum size in bytes, for a file or standard input.
const LARGEST: usize = 10 << 20;

/// Maximum path width in an error, in columns.
const LONGEST_PATH: usize = 200;

/// Returns an argument's value: a file's text for `@FILE`, standard input for `@-`, the rest for `@@…`, and any other
/// text unchanged.
pub(crate) fn read_value(name: &str, text: String) -> Result<String, Failure> {
    match text.strip_prefix('@') {
        None | Some("") => Ok(text),
        Some(literal) if literal.starts_with('@') => Ok(literal.to_owned()),
        Some("-") => read_stdin(&format!("argument `{name}`")),
        Some(path) => {
            let shown = cut(&clean_line(path), LONGEST_PATH);
            read_file(path, &format!("argument `{name}`"), |kind| match kind {
                ErrorKind::NotFound => Some(format!("to send the text itself, use `{name}=@@{shown}`")),
                ErrorKind::InvalidInput => Some(format!("`{name}=@-` reads standard input")),
                ErrorKind::InvalidData => Some("expected a text file".to_owned()),
                _ => None,
            })
        }
    }
}

/// Reads a text file with a size limit; `what` names its purpose.
pub(super) fn read_file(
    path: &str,
    what: &str,
    hint: impl FnOnce(ErrorKind) -> Option<String>,
) -> Result<String, Failure> {
    read_regular(Path::new(path), LARGEST).map_err(|error| {
        let shown = cut(&clean_line(path), LONGEST_PATH);
        let failure = Failure::usage(format!("could not read `{shown}` for {what}")).caused_by(&error);
        match hint(error.kind()) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// Returns `true` if a value reads standard input.
pub(crate) fn is_stdin(text: &str) -> bool {
    text == "@-"
}

/// Reads standard input up to a limited size; `what` it is for.
pub(super) fn read_stdin(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let failed = || format!("could not read standard input for {what}");
    std::io::stdin()
        .take(LARGEST as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(failed()).caused_by(&error))?;
    if text.len() > LARGEST {
        return Err(Failure::usage(failed()).hint(format!("it has more than {} MiB", LARGEST >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let failure = |failure: Failure| anstream::adapter::strip_str(&failure.render()).to_string();
        read_value("body", text.to_owned()).map_err(failure)
    }

    #[test]
    fn a_value_behind_an_at_sign_is_the_text_of_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.txt");
        std::fs::write(&file, "one\r\ntwo\n").expect("a file");
        assert_eq!(read(&format!("@{}", file.display())).as_deref(), Ok("one\r\ntwo\n"));
        for (text, literal) in [("", ""), ("a@b", "a@b"), ("@", "@"), ("@@ada", "@ada"), ("@@@", "@@")] {
            assert_eq!(read(text).as_deref(), Ok(literal), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_with_its_path_and_argument() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("binary"), [0xff, 0xfe, 0]).expect("a file");
        std::fs::File::create(at("huge")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        let mkfifo = std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo");
        assert!(mkfifo.success());
        let pipe = "not a regular file\n  `body=@-` reads standard input\n";
        for (name, problem) in [
            ("binary", "file is not valid UTF-8\n  expected a text file\n"),
            ("huge", "file is larger than 10 MiB\n"),
            ("pipe", pipe),
            ("", "path is a directory\n"),
        ] {
            let path = at(name);
            let text = read(&format!("@{}", path.display())).expect_err(name);
            let expected = format!("error: could not read `{}` for argument `body`\n", path.display());
            assert!(text.starts_with(&expected) && text.ends_with(problem), "{text}");
        }
        let missing = read("@ada").expect_err("no such file");
        assert!(missing.starts_with("error: could not read `ada` for argument `body`\n"), "{missing}");
        assert!(missing.ends_with("  to send the text itself, use `body=@@ada`\n"), "{missing}");
    }
}
