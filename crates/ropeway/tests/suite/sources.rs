//! The source files of a crate and their imports, as text. The suites of the library and of the binary share this file.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file of the crate under test.
pub(crate) struct Source {
    /// Path relative to `src`.
    pub(crate) path: PathBuf,
    text: String,
}

/// Returns the sources of a crate, such as `core`.
pub(crate) fn sources(library: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../ropeway-{library}/src"));
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).expect("a source file");
                let path = entry.strip_prefix(&root).expect("a path below src").to_owned();
                sources.push(Source { path, text });
            }
        }
    }
    // Tests may import everything.
    sources.retain(|source| {
        !source.path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
    });
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!sources.is_empty(), "there are no sources in `{}`", root.display());
    sources
}

impl Source {
    /// Returns the module path of the file; empty for the root.
    fn modules(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let mut modules: Vec<String> = parts.collect();
        if modules.last().is_some_and(|last| last == "mod" || last == "lib") {
            modules.pop();
        }
        modules
    }

    /// Returns the top-level module of the file; `None` for the root, which imports everything.
    pub(crate) fn module(&self) -> Option<String> {
        self.modules().into_iter().next()
    }

    /// Returns the number of `super::` that lead to the root.
    pub(crate) fn depth(&self) -> usize {
        self.modules().len()
    }

    pub(crate) fn code(&self) -> String {
        code(&self.text)
    }
}

/// Returns the text without comments and without the test module at its end. Line numbers are kept.
pub(crate) fn code(text: &str) -> String {
    let mut lines = Vec::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        if line == "#[cfg(test)]" && rest.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            break;
        }
        let comment = line.match_indices("//").map(|(at, _)| at).find(|at| !line[..*at].ends_with(':'));
        lines.push(comment.map_or(line, |at| &line[..at]));
    }
    lines.join("\n")
}

/// Returns the top-level modules that the code imports, each with its line. `super::`, repeated `depth` times, is also the root.
pub(crate) fn imports(code: &str, depth: usize) -> Vec<(usize, String)> {
    let root_by_super = "super::".repeat(depth);
    let roots = ["crate::", root_by_super.as_str()].into_iter().filter(|root| !root.is_empty());
    let mut imports = Vec::new();
    for root in roots {
        for (at, _) in code.match_indices(root) {
            let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':');
            if code[..at].ends_with(goes_on) || code[at + root.len()..].starts_with("super::") {
                continue;
            }
            for (offset, name) in first_names(&code[at + root.len()..]) {
                imports.push((line_of(code, at + root.len() + offset), name));
            }
        }
    }
    imports.sort();
    imports.dedup();
    imports
}

/// Returns the first segments of a path: one, or one per member of a group in braces.
fn first_names(path: &str) -> Vec<(usize, String)> {
    let Some(group) = path.strip_prefix('{') else {
        return Some((0, word(path))).filter(|(_, name)| !name.is_empty()).into_iter().collect();
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut expects_name = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            c if expects_name && (c.is_alphabetic() || c == '_') => {
                names.push((at + 1, word(&group[at..])));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

pub(crate) fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}
