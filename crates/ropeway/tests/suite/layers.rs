//! The layers of the library: arrows point down, and no foreign type shows.

use std::fs;
use std::path::{Path, PathBuf};

/// The picture in ARCHITECTURE.md: each module, its layer, and the siblings that it may use all the same.
const PICTURE: &[(&str, u8, &[&str])] = &[
    ("error_chain", 0, &[]),
    ("sync", 0, &[]),
    ("content", 1, &[]),
    ("duration", 1, &[]),
    ("hash", 1, &[]),
    ("json", 1, &[]),
    ("secret", 1, &[]),
    ("message", 2, &[]),
    ("tool", 2, &[]),
    ("web", 2, &[]),
    ("config", 3, &[]),
    ("envelope", 3, &["schema"]),
    ("event", 3, &[]),
    ("protocol", 3, &[]),
    ("schema", 3, &[]),
    ("checked", 4, &[]),
    ("lowering", 4, &[]),
    ("lock", 4, &[]),
    ("mcp", 4, &[]),
    ("provider", 5, &[]),
    ("registry", 5, &[]),
    ("agent", 6, &[]),
    ("bridge", 6, &[]),
    ("testing", 6, &["bridge"]),
];

/// Libraries that may change under us without our users noticing.
const HIDDEN: [&str; 8] = ["rmcp", "reqwest", "axum", "jsonschema", "globset", "jsonc_parser", "saphyr_parser", "toml"];

#[test]
fn arrows_between_modules_point_down() {
    let problems: Vec<String> = sources()
        .iter()
        .filter_map(|source| Some((source, source.module()?)))
        .flat_map(|(source, module)| {
            let arrows = arrows(&source.code(), source.depth());
            let wrong = arrows.into_iter().filter_map(move |(line, target)| Some((line, objection(&module, &target)?)));
            wrong.map(|(line, objection)| format!("{}:{line}: {objection}", source.path.display()))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn no_type_of_a_hidden_library_is_in_a_public_signature() {
    let problems: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            let leaks = leaks(&source.code());
            leaks.into_iter().map(|(line, name)| format!("{}:{line}: `{name}` is public", source.path.display()))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// One file of the library.
struct Source {
    /// Its path below `src`.
    path: PathBuf,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
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
    // Tests may look wherever they want.
    sources.retain(|source| {
        !source.path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
    });
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!sources.is_empty(), "there are no sources in `{}`", root.display());
    sources
}

impl Source {
    /// The names of the modules that lead to the file; empty for the root.
    fn modules(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let mut modules: Vec<String> = parts.collect();
        if modules.last().is_some_and(|last| last == "mod" || last == "lib") {
            modules.pop();
        }
        modules
    }

    /// The top-level module that the file belongs to; none for the root, which knows everybody.
    fn module(&self) -> Option<String> {
        self.modules().into_iter().next()
    }

    /// How many `super::` lead to the root.
    fn depth(&self) -> usize {
        self.modules().len()
    }

    fn code(&self) -> String {
        code(&self.text)
    }
}

/// The text without comments and without the tests at its end; lines keep their numbers.
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

/// The top-level modules that code names, each with its line. `depth` times `super::` is the root as well.
fn arrows(code: &str, depth: usize) -> Vec<(usize, String)> {
    let root_by_super = "super::".repeat(depth);
    let roots = ["crate::", root_by_super.as_str()].into_iter().filter(|root| !root.is_empty());
    let mut arrows = Vec::new();
    for root in roots {
        for (at, _) in code.match_indices(root) {
            let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':');
            if code[..at].ends_with(goes_on) || code[at + root.len()..].starts_with("super::") {
                continue;
            }
            for (offset, name) in first_names(&code[at + root.len()..]) {
                arrows.push((line_of(code, at + root.len() + offset), name));
            }
        }
    }
    arrows.sort();
    arrows.dedup();
    arrows
}

/// The names that a path can go on with: one, or one for each member of a group in braces.
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

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// What is wrong with an arrow, if anything.
fn objection(from: &str, to: &str) -> Option<String> {
    let find = |name: &str| PICTURE.iter().find(|(module, ..)| *module == name);
    let Some((_, layer, siblings)) = find(from) else { return Some(format!("`{from}` is not in the picture")) };
    let Some((_, below, _)) = find(to) else { return Some(format!("`{to}` is not in the picture")) };
    let allowed = from == to || below < layer || siblings.contains(&to);
    let direction = if below == layer { "sideways" } else { "upward" };
    (!allowed).then(|| format!("`{from}` (layer {layer}) uses `{to}` (layer {below}): {direction}"))
}

/// The names of hidden libraries' types in public signatures, each with the line where the signature begins.
fn leaks(code: &str) -> Vec<(usize, String)> {
    let hidden = hidden_names(code);
    let mut leaks = Vec::new();
    for (at, signature) in public_signatures(code) {
        let mut words = signature.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let leak = words.find(|word| hidden.iter().any(|name| name == word));
        leaks.extend(leak.map(|name| (line_of(code, at), name.to_owned())));
    }
    leaks
}

/// The hidden libraries themselves, and what the code imports from them.
fn hidden_names(code: &str) -> Vec<String> {
    let mut names: Vec<String> = HIDDEN.map(str::to_owned).to_vec();
    for statement in code.split(';') {
        let Some((_, import)) = statement.rsplit_once("use ") else { continue };
        let import = import.trim_start().trim_start_matches("::");
        if HIDDEN.contains(&word(import).as_str()) && import.contains("::") {
            let last = |member: &str| member.rsplit([':', ' ', '{']).next().map(str::to_owned);
            let members = import.split(['{', '}', ',']).map(str::trim).filter(|member| !member.ends_with("::"));
            names.extend(members.filter_map(last).filter(|name| !matches!(name.as_str(), "" | "_" | "self")));
        }
    }
    names
}

/// What the outside sees of each item, as far as text can tell, and where it begins.
fn public_signatures(code: &str) -> Vec<(usize, String)> {
    let mut signatures = Vec::new();
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let item = line.trim_start();
        let at = start + (line.len() - item.len());
        start += line.len();
        let rest = &code[at..];
        let signature = if item.starts_with("pub enum ") || item.starts_with("pub trait ") {
            // All variants and methods are as public as the whole; bodies of methods are not.
            rest.find('{').map(|open| flat_block(&rest[open + 1..]))
        } else if item.starts_with("pub struct ") {
            // Named fields are lines of their own.
            let end = rest.find(['{', ';']).unwrap_or(rest.len());
            let (head, fields) = rest[..end].split_once('(').unwrap_or((&rest[..end], ""));
            let fields = fields.split(',').filter(|field| field.trim_start().starts_with("pub "));
            Some(std::iter::once(head).chain(fields).collect())
        } else if item.starts_with("pub use ") || item.starts_with("pub type ") || item.starts_with("pub const ") {
            rest.find(';').map(|end| rest[..end].to_owned())
        } else if item.starts_with("pub ") || item.starts_with("impl From<") || item.starts_with("impl TryFrom<") {
            Some(rest[..signature_end(rest)].to_owned())
        } else {
            None
        };
        signatures.extend(signature.map(|signature| (at, signature)));
    }
    signatures
}

/// A function ends at its body, a field at its comma; a comma inside brackets belongs to the signature.
fn signature_end(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            '{' | ';' => return at,
            ',' if depth <= 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// A block up to its closing brace, where nested blocks count only as far as they hold fields.
fn flat_block(text: &str) -> String {
    let mut depth = 0;
    let mut bodies = 0;
    let mut flat = String::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => {
                depth += 1;
                let opener = text[..at].rsplit([';', '}']).next().unwrap_or_default();
                if bodies > 0 || opener.contains("fn ") {
                    bodies += 1;
                }
            }
            '}' if depth == 0 => break,
            '}' => {
                depth -= 1;
                bodies = usize::max(bodies, 1) - 1;
            }
            _ => {}
        }
        if bodies == 0 {
            flat.push(c);
        }
    }
    flat
}

fn targets(code: &str, depth: usize) -> Vec<String> {
    arrows(code, depth).into_iter().map(|(_, target)| target).collect()
}

#[test]
fn every_way_to_name_a_module_is_seen() {
    let code =
        "use crate::tool::Tool;\nuse crate::{config::{A, B}, event};\nfn f() -> crate::content::Text { $crate::no!() }";
    let expected = [(1, "tool"), (2, "config"), (2, "event"), (3, "content")];
    assert_eq!(arrows(code, 1), expected.map(|(line, name)| (line, name.to_owned())));
    assert_eq!(targets("use super::super::agent::Turn;", 2), ["agent"]);
    assert_eq!(targets("use super::error::Bad;", 2), [""; 0]);
}

#[test]
fn comments_and_tests_do_not_count() {
    let text = "//! [`crate::agent`]\nlet url = \"http://x\"; // crate::agent\n#[cfg(test)]\nmod tests {\n use crate::agent;\n}";
    assert_eq!(targets(&code(text), 1), [""; 0]);
    assert!(code(text).contains("http://x"));
}

#[test]
fn only_arrows_that_point_down_are_without_objection() {
    assert_eq!(objection("mcp", "event"), None);
    assert_eq!(objection("mcp", "mcp"), None);
    assert_eq!(objection("envelope", "schema"), None);
    assert_eq!(objection("tool", "mcp").as_deref(), Some("`tool` (layer 2) uses `mcp` (layer 4): upward"));
    assert_eq!(
        objection("schema", "envelope").as_deref(),
        Some("`schema` (layer 3) uses `envelope` (layer 3): sideways")
    );
    assert_eq!(objection("mcp", "misc").as_deref(), Some("`misc` is not in the picture"));
}

#[test]
fn a_hidden_type_is_found_wherever_the_outside_sees_it() {
    for leak in [
        "pub fn f(client: reqwest::Client) {}",
        "use reqwest::{Client, Url as Address};\nimpl A {\n    pub fn f(\n        &self,\n    ) -> Client {}\n}",
        "use reqwest::{Client, Url as Address};\npub fn f(a: HashMap<u8, Address>) {}",
        "pub struct A(pub reqwest::Client);",
        "pub struct A {\n    pub a: Vec<(u8, reqwest::Client)>,\n}",
        "pub enum A {\n    B { source: jsonschema::Error },\n}",
        "pub trait A {\n    fn f(&self) { x() }\n    fn g(&self) -> axum::Router;\n}",
        "impl From<reqwest::Error> for A {}",
        "pub use rmcp::model::Tool;",
        "pub type A = rmcp::model::Tool;",
    ] {
        assert_eq!(leaks(leak).len(), 1, "{leak}");
    }
}

#[test]
fn a_hidden_type_that_the_outside_cannot_see_is_no_leak() {
    for fine in [
        "pub(crate) fn f(client: reqwest::Client) {}",
        "pub fn f() { let client = reqwest::Client::new(); }",
        "pub struct A(reqwest::Client);",
        "pub struct A {\n    a: reqwest::Client,\n    pub b: u8,\n}",
        "pub trait A {\n    fn f(&self) { reqwest::get() }\n}",
        "impl From<std::io::Error> for A {}",
    ] {
        assert_eq!(leaks(fine), [], "{fine}");
    }
}
