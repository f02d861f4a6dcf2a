//! Conversation files for `--save` and `/save`: JSON that `--resume` continues.

use std::path::{Path, PathBuf};

use ropeway_core::message::{Conversation, Message};
use serde::Deserialize;

use crate::failure::Failure;
use crate::files::file;
use crate::secrets::redaction;

/// Reads a conversation file.
pub(crate) fn read(path: &Path) -> Result<Conversation, Failure> {
    let shown = path.display();
    match file::read(path)? {
        Some(text) => parse(path, &text),
        None => Err(Failure::usage(format!("file `{shown}` does not exist"))),
    }
}

/// The file format. `messages` is required, so that other JSON files are rejected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedConversation {
    #[serde(default)]
    system: Option<String>,
    messages: Vec<Message>,
}

fn parse(path: &Path, text: &str) -> Result<Conversation, Failure> {
    parse_at(path, text, 0)
}

/// Parses a conversation. `lines` is how many lines precede it in the file.
pub(super) fn parse_at(path: &Path, text: &str, lines: usize) -> Result<Conversation, Failure> {
    let read = ropeway_core::json::from_str(text)
        .map(|SavedConversation { system, messages }| Conversation { system, messages });
    read.map_err(|error| {
        let place = format!("{}:{}:{}", path.display(), lines + error.line(), error.column());
        let problem = error.to_string();
        let problem = problem.split(" at line ").next().unwrap_or_default();
        Failure::usage(format!("{place}: not a ropeway conversation file: {problem}"))
    })
}

/// Writes a redacted conversation. Only replaces a conversation file or an empty file.
pub(crate) fn write(path: &Path, conversation: &Conversation) -> Result<(), Failure> {
    check_writable(path)?;
    let json = serde_json::to_value(conversation).and_then(|mut value| {
        redaction::redact_json(&mut value);
        serde_json::to_string_pretty(&value)
    });
    let json = json.map_err(|error| Failure::usage("could not write the conversation as JSON").caused_by(&error))?;
    file::put(path, &(json + "\n"), file::PRIVATE)
}

/// Returns a redacted conversation as one JSON line.
pub(super) fn to_line(conversation: &Conversation) -> Result<String, Failure> {
    let json = serde_json::to_value(conversation).and_then(|mut value| {
        redaction::redact_json(&mut value);
        serde_json::to_string(&value)
    });
    json.map_err(|error| Failure::usage("could not write the conversation as JSON").caused_by(&error))
}

/// Returns an error if the path holds anything other than a conversation.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    // Reading a pipe may block forever, and writing would replace it.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let failure = Failure::usage(format!("`{}` is not a regular file", path.display()));
        return Err(failure.hint("choose a file name"));
    }
    match file::read(path)? {
        Some(text) if !text.trim().is_empty() => parse(path, &text)
            .map(drop)
            .map_err(|failure| failure.hint("choose another file name, or remove this file first")),
        _ => Ok(()),
    }
}

/// Returns an error if the file holds a conversation other than the resumed one.
pub(crate) fn check_target(path: &Path, resumed: Option<&Path>) -> Result<(), Failure> {
    check_writable(path)?;
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if resumed.is_some_and(|resumed| real(resumed) == real(path)) {
        return Ok(());
    }
    match file::read(path)?.filter(|text| !text.trim().is_empty()).map(|text| parse(path, &text)).transpose()? {
        Some(conversation) if !conversation.messages.is_empty() => {
            let shown = path.display();
            let failure = Failure::usage(format!("`{shown}` contains another conversation"));
            Err(failure
                .hint(format!("use `--resume {shown} --save {shown}` to continue it, or choose another file name")))
        }
        _ => Ok(()),
    }
}

/// Expands `~/` in a typed path.
pub(crate) fn expand_home(path: &Path) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ropeway_core::secret::{Redactor, Secret};

    use super::*;

    #[test]
    fn a_conversation_round_trips_and_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/talk.json");
        let conversation = Conversation::new().with_system("Be brief.").with("hello");
        write(&path, &conversation).expect("written");
        write(&path, &conversation.clone().with("more")).expect("written again");
        assert_eq!(read(&path).expect("a conversation"), conversation.with("more"));
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn secrets_are_redacted_even_where_json_escapes_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("talk.json");
        redaction::add_secrets(&Redactor::new([&Secret::new("a \"quoted\" key of the record")]));
        write(&path, &Conversation::new().with("it is a \"quoted\" key of the record, is it?")).expect("written");
        assert_eq!(read(&path).expect("a conversation"), Conversation::new().with("it is ***, is it?"));
    }

    #[test]
    fn another_file_is_reported_with_its_position_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        let shown = path.display();
        for (text, place, words) in [
            ("{\n  \"messages\": [\n    oops", "3:5", "expected value"),
            ("{\"messages\": [{\"role\": \"nobody\"}]}", "1:31", "unknown variant `nobody`"),
            ("plain words", "1:1", "expected value"),
            ("{\"name\": \"a package\"}", "1:7", "unknown field `name`"),
            ("{\"system\": \"no messages\"}", "1:25", "missing field `messages`"),
            ("{\"messages\": [], \"model\": \"x\"}", "1:24", "unknown field `model`"),
        ] {
            std::fs::write(&path, text).expect("a file");
            let failure = read(&path).expect_err("no conversation");
            let message = failure.message();
            assert!(message.starts_with(&format!("{shown}:{place}: ")) && message.contains(words), "{message}");
            assert!(write(&path, &Conversation::new()).is_err());
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
        }
        let missing = read(&folder.path().join("nothing")).expect_err("no file");
        assert_eq!(missing.message(), format!("file `{}` does not exist", folder.path().join("nothing").display()));
    }

    #[test]
    fn only_regular_files_are_read_or_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        // Reading the pipe would block: it has no writer.
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [Path::new("/dev/null"), folder.path(), &pipe] {
            let failure = write(path, &Conversation::new()).expect_err("no file");
            assert_eq!(failure.message(), format!("`{}` is not a regular file", path.display()));
        }
        assert!(!std::fs::metadata(&pipe).expect("a pipe").is_file());
    }

    #[test]
    fn another_conversation_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("talk.json"), folder.path().join("other.json"));
        write(&path, &Conversation::new()).expect("written");
        check_target(&path, None).expect("nothing was said");
        write(&path, &Conversation::new().with("hi")).expect("written");
        write(&other, &Conversation::new().with("hi")).expect("written");
        check_target(&path, Some(&folder.path().join(".").join("talk.json"))).expect("the same");
        for resumed in [None, Some(other.as_path())] {
            let failure = check_target(&path, resumed).expect_err("another one");
            assert_eq!(failure.message(), format!("`{}` contains another conversation", path.display()));
        }
        check_target(&folder.path().join("new.json"), None).expect("nothing there");
    }
}
