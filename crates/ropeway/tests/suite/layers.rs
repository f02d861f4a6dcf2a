//! What Cargo does not enforce: imports inside of crates point down, and types of hidden dependencies are not public.

use crate::sources::{code, imports, line_of, sources, word};

/// The picture of `ropeway-core` in ARCHITECTURE.md: each module, its layer, and the modules of the same layer that it may use.
const CORE: &[(&str, u8, &[&str])] = &[
    ("conversions", 0, &[]),
    ("error_chain", 0, &[]),
    ("invisible", 0, &[]),
    ("loose_json", 0, &[]),
    ("parse_error", 0, &[]),
    ("private_file", 0, &[]),
    ("replace_file", 0, &[]),
    ("rfc3339", 0, &[]),
    ("setters", 0, &[]),
    ("suggest", 0, &[]),
    ("sync", 0, &[]),
    ("user_folders", 0, &[]),
    ("content", 1, &[]),
    ("duration", 1, &[]),
    ("hash", 1, &[]),
    ("json", 1, &[]),
    ("secret", 1, &[]),
    ("message", 2, &[]),
    ("tool", 2, &[]),
    ("envelope", 3, &["schema"]),
    ("event", 3, &[]),
    ("schema", 3, &[]),
    ("checked", 4, &[]),
    ("lowering", 4, &[]),
];

/// Modules of other crates that could be crates of their own, and the modules of their crate that they may use.
const ROOMS: &[(&str, &str, &[&str])] = &[
    ("config", "settings", &["setters"]),
    ("mcp", "oauth", &["protocol"]),
    ("mcp", "protocol", &[]),
    ("bridge", "registry", &[]),
];

/// The crates whose types the facade exports.
const LIBRARIES: [&str; 7] = ["core", "config", "mcp", "providers", "bridge", "agent", "gateway"];

/// Dependencies that may change without a breaking change of this crate.
const HIDDEN: [&str; 10] = [
    "rmcp",
    "reqwest",
    "axum",
    "hyper",
    "hyper_util",
    "jsonschema",
    "globset",
    "jsonc_parser",
    "saphyr_parser",
    "toml",
];

#[test]
fn imports_between_modules_of_the_core_point_down() {
    let problems = problems("core", violation);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn rooms_of_other_crates_do_not_use_what_is_around_them() {
    for (library, room, allowed) in ROOMS {
        let problems = problems(library, |module, target| {
            let is_outside = module == *room && target != *room && !allowed.contains(&target);
            is_outside.then(|| format!("`{room}` uses `{target}`"))
        });
        assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    }
}

#[test]
fn no_type_of_a_hidden_library_is_in_a_public_signature() {
    let problems: Vec<String> = LIBRARIES
        .iter()
        .flat_map(|library| sources(library))
        .flat_map(|source| {
            let leaks = leaks(&source.code());
            leaks.into_iter().map(move |(line, name)| format!("{}:{line}: `{name}` is public", source.path.display()))
        })
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Returns the imports between top-level modules of a crate that the rule refuses.
fn problems(library: &str, rule: impl Fn(&str, &str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources(library) {
        let Some(module) = source.module() else { continue };
        for (line, target) in imports(&source.code(), source.depth()) {
            let problem = rule(&module, &target);
            problems.extend(problem.map(|problem| format!("{}:{line}: {problem}", source.path.display())));
        }
    }
    problems
}

/// Returns why an import is not allowed, or `None` if it is.
fn violation(from: &str, to: &str) -> Option<String> {
    let find = |name: &str| CORE.iter().find(|(module, ..)| *module == name);
    let Some((_, layer, siblings)) = find(from) else { return Some(format!("`{from}` is not in the picture")) };
    let Some((_, below, _)) = find(to) else { return Some(format!("`{to}` is not in the picture")) };
    let allowed = from == to || below < layer || siblings.contains(&to);
    let direction = if below == layer { "sideways" } else { "upward" };
    (!allowed).then(|| format!("`{from}` (layer {layer}) uses `{to}` (layer {below}): {direction}"))
}

/// Returns the names of hidden types in public signatures, each with the line of the signature.
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

/// Returns the hidden dependencies, and the names imported from them.
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

/// Returns the public signature of each item, as far as text analysis can tell, and its position.
fn public_signatures(code: &str) -> Vec<(usize, String)> {
    let mut signatures = Vec::new();
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let item = line.trim_start();
        let at = start + (line.len() - item.len());
        start += line.len();
        let rest = &code[at..];
        let signature = if item.starts_with("pub enum ") || item.starts_with("pub trait ") {
            // Variants and methods are public with the item; bodies of methods are not.
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

/// Returns the end of a signature: the body of a function, or the comma behind a field outside of brackets.
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

/// Returns a block up to its closing brace. Nested blocks are included only if they contain fields.
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
    imports(code, depth).into_iter().map(|(_, target)| target).collect()
}

#[test]
fn every_form_of_import_is_found() {
    let code =
        "use crate::tool::Tool;\nuse crate::{config::{A, B}, event};\nfn f() -> crate::content::Text { $crate::no!() }";
    let expected = [(1, "tool"), (2, "config"), (2, "event"), (3, "content")];
    assert_eq!(imports(code, 1), expected.map(|(line, name)| (line, name.to_owned())));
    assert_eq!(targets("use super::super::agent::Turn;", 2), ["agent"]);
    assert_eq!(targets("use super::error::Bad;", 2), [""; 0]);
}

#[test]
fn comments_and_tests_are_ignored() {
    let text = "//! [`crate::agent`]\nlet url = \"http://x\"; // crate::agent\n#[cfg(test)]\nmod tests {\n use crate::agent;\n}";
    assert_eq!(targets(&code(text), 1), [""; 0]);
    assert!(code(text).contains("http://x"));
}

#[test]
fn only_imports_that_point_down_are_allowed() {
    assert_eq!(violation("checked", "event"), None);
    assert_eq!(violation("tool", "tool"), None);
    assert_eq!(violation("envelope", "schema"), None);
    assert_eq!(violation("tool", "checked").as_deref(), Some("`tool` (layer 2) uses `checked` (layer 4): upward"));
    assert_eq!(
        violation("schema", "envelope").as_deref(),
        Some("`schema` (layer 3) uses `envelope` (layer 3): sideways")
    );
    assert_eq!(violation("tool", "misc").as_deref(), Some("`misc` is not in the picture"));
}

#[test]
fn hidden_types_are_found_in_every_public_position() {
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
fn hidden_types_in_private_positions_are_allowed() {
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
