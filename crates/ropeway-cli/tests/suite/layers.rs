//! The layers of the binary: imports between top-level modules point down.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The top-level modules, each with its layer. A module uses lower layers only.
const LAYERS: &[(&str, u8)] = &[
    ("terminal", 1),
    ("describe", 2),
    ("secrets", 2),
    ("failure", 3),
    ("arguments", 4),
    ("clients", 4),
    ("files", 4),
    ("output", 4),
    ("demo", 5),
    ("doctor", 5),
    ("trust", 5),
    ("config", 6),
    ("connect", 7),
    ("model", 7),
    ("catalog", 8),
    ("completion", 8),
    ("chat", 9),
    ("command", 10),
];

#[test]
fn imports_between_top_level_modules_point_down() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let module = module_of(&path);
        for (line, target) in imports(&code(&text)) {
            if let Some(objection) = objection(&module, &target) {
                problems.push(format!("{}:{line}: {objection}", path.display()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_layers_name_exactly_the_modules_of_the_binary() {
    let named: BTreeSet<String> = LAYERS.iter().map(|(module, _)| (*module).to_owned()).collect();
    let present: BTreeSet<String> = sources().iter().map(|(path, _)| module_of(path)).collect();
    assert_eq!(named, present);
}

/// Every source file below a top-level module, without tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(&root).expect("a path below src").to_owned();
            let is_test = matches!(below.to_str(), Some("main.rs" | "fuzz.rs")) || below.ends_with("tests.rs");
            if below.extension().is_some_and(|extension| extension == "rs") && !is_test {
                sources.push((below, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    sources.sort();
    sources
}

fn module_of(path: &Path) -> String {
    let path = path.with_extension("");
    path.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the text without comments and without the unit tests at its end. Lines keep their numbers.
fn code(text: &str) -> String {
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

/// Returns the top-level modules that code names after `crate::`, each with its line.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut imports = Vec::new();
    for (at, root) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':')) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let path = &code[at + root.len()..];
        let names = path.strip_prefix('{').map_or_else(|| vec![word(path)], group);
        imports.extend(names.into_iter().map(|name| (line, name)));
    }
    imports
}

/// Returns the first names of the members of a group in braces.
fn group(members: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut expects_name = true;
    for (at, c) in members.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            c if expects_name && c.is_alphabetic() => {
                names.push(word(&members[at..]));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns why a module may not use another.
fn objection(from: &str, to: &str) -> Option<String> {
    let layer = |name: &str| LAYERS.iter().find(|(module, _)| *module == name).map(|(_, layer)| *layer);
    match (layer(from), layer(to)) {
        (None, _) => Some(format!("`{from}` has no layer")),
        (_, None) => Some(format!("`{to}` has no layer")),
        (Some(_), Some(_)) if from == to => None,
        (Some(above), Some(below)) if below < above => None,
        (Some(above), Some(below)) => Some(format!("`{from}` (layer {above}) uses `{to}` (layer {below})")),
    }
}

#[test]
fn every_form_of_import_is_seen() {
    let code = "use crate::chat::line;\nuse crate::{config::{a, b}, connect};\nfn f() -> crate::failure::Exit { $crate::no!() }";
    let expected = [(1, "chat"), (2, "config"), (2, "connect"), (3, "failure")];
    assert_eq!(imports(code), expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn comments_and_unit_tests_are_not_imports() {
    let text =
        "//! [`crate::chat`]\nlet url = \"http://x\"; // crate::chat\n#[cfg(test)]\nmod tests {\n use crate::chat;\n}";
    assert_eq!(imports(&code(text)), []);
}

#[test]
fn an_import_upward_or_sideways_is_refused() {
    assert_eq!(objection("chat", "connect"), None);
    assert_eq!(objection("connect", "connect"), None);
    assert_eq!(objection("connect", "chat").as_deref(), Some("`connect` (layer 7) uses `chat` (layer 9)"));
    assert_eq!(objection("trust", "doctor").as_deref(), Some("`trust` (layer 5) uses `doctor` (layer 5)"));
    assert_eq!(objection("chat", "misc").as_deref(), Some("`misc` has no layer"));
}
