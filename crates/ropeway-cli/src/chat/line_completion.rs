//! Completion in messages: commands, `@FILE` and tool names.

use std::fs::{self, DirEntry};
use std::path::Path;

use ropeway_core::invisible::hides_text;
use rustyline::completion::Pair;

use super::attachment::begins_mention;
use super::save_file::expand_home;
use super::slash_parser;

/// Maximum directory entries that are read.
const MAX_ENTRIES: usize = 10_000;

/// Maximum candidates.
const MAX_CANDIDATES: usize = 200;

/// A tool by the names that people type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolWord {
    /// `SERVER.TOOL`, which is inserted.
    pub(crate) dotted: String,
    /// The tool's own name on its server.
    pub(crate) own: String,
}

/// Returns the candidates for the text before the cursor, and the position that they replace.
pub(super) fn complete(typed: &str, tools: impl FnOnce() -> Vec<ToolWord>) -> (usize, Vec<Pair>) {
    let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    match typed.split_once(' ') {
        None if typed.starts_with('/') => {
            let names = slash_parser::names().filter(|name| name.starts_with(typed));
            (0, names.map(|name| pair(name, format!("{name} "))).collect())
        }
        Some((command, _)) if command.starts_with('/') && command != "/tools" => (typed.len(), Vec::new()),
        _ => match mention(typed) {
            Some(Mention { at, path, quote }) => (at, files(path, quote)),
            None => (start, matching_tools(&typed[start..], tools)),
        },
    }
}

fn pair(display: &str, replacement: String) -> Pair {
    Pair { display: display.to_owned(), replacement }
}

fn matching_tools(word: &str, tools: impl FnOnce() -> Vec<ToolWord>) -> Vec<Pair> {
    if word.is_empty() {
        return Vec::new();
    }
    // Names with other characters cannot be typed as they are shown.
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    let mut names: Vec<String> = tools()
        .into_iter()
        .filter(|tool| tool.dotted.starts_with(word) || tool.own.starts_with(word))
        .map(|tool| tool.dotted)
        .filter(|name| is_plain(name))
        .collect();
    names.sort();
    names.dedup();
    names.truncate(MAX_CANDIDATES);
    names.into_iter().map(|name| pair(&name, name.clone())).collect()
}

/// The unfinished `@FILE` before the cursor.
struct Mention<'a> {
    /// The position behind the `@`.
    at: usize,
    path: &'a str,
    quote: Option<char>,
}

fn mention(typed: &str) -> Option<Mention<'_>> {
    let is_start = |at: &usize| begins_mention(typed[..*at].chars().next_back());
    let at = 1 + typed.rmatch_indices('@').map(|(at, _)| at).find(is_start)?;
    let rest = &typed[at..];
    match rest.chars().next().filter(|quote| matches!(quote, '"' | '\'')) {
        Some(quote) if rest[1..].contains([quote, '\n']) => None,
        Some(quote) => Some(Mention { at, path: &rest[1..], quote: Some(quote) }),
        None if rest.contains(char::is_whitespace) => None,
        None => Some(Mention { at, path: rest, quote: None }),
    }
}

/// Returns the files and directories that start with a path.
fn files(path: &str, quote: Option<char>) -> Vec<Pair> {
    let (folder, start) = path.rfind('/').map_or(("", path), |at| path.split_at(at + 1));
    let place = if folder.is_empty() { Path::new(".").to_owned() } else { expand_home(Path::new(folder)) };
    let entries = fs::read_dir(place).into_iter().flatten().take(MAX_ENTRIES).flatten();
    let mut names: Vec<(String, bool)> = entries.filter_map(|entry| candidate(&entry, start)).collect();
    names.sort();
    names.truncate(MAX_CANDIDATES);
    // All candidates are quoted in the same way, so that their common start can be inserted.
    let has_space = |text: &str| text.contains(char::is_whitespace);
    let quote = quote.or_else(|| (has_space(folder) || names.iter().any(|(name, _)| has_space(name))).then_some('"'));
    names.retain(|(name, _)| quote.is_none_or(|quote| !name.contains(quote)));
    let is_single = names.len() == 1;
    let files = names.into_iter().map(|(name, is_folder)| {
        let slash = if is_folder { "/" } else { "" };
        let open = quote.map(String::from).unwrap_or_default();
        let close = if is_folder || !is_single { "" } else { open.as_str() };
        pair(&format!("{name}{slash}"), format!("{open}{folder}{name}{slash}{close}"))
    });
    files.collect()
}

/// Returns the name of a file or directory that starts with `start`. Hidden ones need a dot; names that could change the
/// terminal are left out, and so are files other than regular ones.
fn candidate(entry: &DirEntry, start: &str) -> Option<(String, bool)> {
    let name = entry.file_name().into_string().ok()?;
    let is_wanted = name.starts_with(start) && (start.starts_with('.') || !name.starts_with('.'));
    if !is_wanted || name.chars().any(hides_text) {
        return None;
    }
    let kind = entry.file_type().ok()?;
    let kind = if kind.is_symlink() { fs::metadata(entry.path()).ok()?.file_type() } else { kind };
    (kind.is_file() || kind.is_dir()).then(|| (name, kind.is_dir()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolWord> {
        let names = [("time", "get_current_time"), ("files", "get"), ("files", "read"), ("files", "a\u{1b}[2J")];
        names.map(|(server, own)| ToolWord { dotted: format!("{server}.{own}"), own: own.to_owned() }).to_vec()
    }

    fn completed(typed: &str) -> (usize, Vec<String>) {
        let (at, pairs) = complete(typed, tools);
        (at, pairs.into_iter().map(|pair| pair.replacement).collect())
    }

    #[test]
    fn commands_and_tool_names_are_completed() {
        let found = |at: usize, names: &[&str]| (at, names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(completed("/un"), found(0, &["/undo "]));
        assert_eq!(completed("use get_c"), found(4, &["time.get_current_time"]));
        assert_eq!(completed("get"), found(0, &["files.get", "time.get_current_time"]));
        assert_eq!(completed("/tools files."), found(7, &["files.get", "files.read"]));
        for typed in ["", "use ", "/model f", "nothing"] {
            assert_eq!(completed(typed).1, [""; 0], "{typed}");
        }
    }

    #[test]
    fn files_are_completed_behind_an_at_sign() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().to_str().expect("a path").to_owned();
        fs::create_dir_all(folder.path().join("data")).expect("a folder");
        for name in ["data/a.txt", "data/my file.txt", "data/.hidden", "data/a\u{1b}[2J", "date"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let made =
            std::process::Command::new("mkfifo").arg(folder.path().join("data/a-pipe")).status().expect("mkfifo");
        assert!(made.success());
        let names = |typed: &str| {
            let (at, names) = completed(&typed.replace("PLACE", &place));
            let names: Vec<String> = names.iter().map(|name| name.replace(&place, "PLACE")).collect();
            (at, names)
        };
        assert_eq!(names("see @PLACE/dat"), (5, vec!["PLACE/data/".to_owned(), "PLACE/date".to_owned()]));
        assert_eq!(names("@PLACE/data/a"), (1, vec!["PLACE/data/a.txt".to_owned()]));
        assert_eq!(names("@PLACE/data/my"), (1, vec!["\"PLACE/data/my file.txt\"".to_owned()]));
        assert_eq!(names("(@\"PLACE/data/my f"), (2, vec!["\"PLACE/data/my file.txt\"".to_owned()]));
        assert_eq!(names("@PLACE/data/.h"), (1, vec!["PLACE/data/.hidden".to_owned()]));
        for typed in ["@PLACE/missing/", "mail@PLACE/dat", "@PLACE/data/a x"] {
            assert_eq!(names(typed).1, [""; 0], "{typed}");
        }
    }
}
