//! The layers of the binary: imports between top-level modules point down.

use std::collections::BTreeSet;

use crate::sources::{Source, code, imports, sources};

/// The top-level modules, each with its layer. A module uses lower layers only.
const LAYERS: &[(&str, u8)] = &[
    ("terminal", 1),
    ("describe", 2),
    ("secrets", 2),
    ("failure", 3),
    ("generate", 3),
    ("arguments", 4),
    ("clients", 4),
    ("files", 4),
    ("output", 4),
    ("sandbox", 4),
    ("demo", 5),
    ("doctor", 5),
    ("trust", 5),
    ("config", 6),
    ("connect", 7),
    ("model", 7),
    ("catalog", 8),
    ("completion", 8),
    ("sign_in", 8),
    ("chat", 9),
    ("command", 10),
];

#[test]
fn imports_between_top_level_modules_point_down() {
    let mut problems = Vec::new();
    for (module, source) in module_sources() {
        for (line, target) in imports(&source.code(), source.depth()) {
            if let Some(objection) = objection(&module, &target) {
                problems.push(format!("{}:{line}: {objection}", source.path.display()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_layers_name_exactly_the_modules_of_the_binary() {
    let named: BTreeSet<String> = LAYERS.iter().map(|(module, _)| (*module).to_owned()).collect();
    let present: BTreeSet<String> = module_sources().map(|(module, _)| module).collect();
    assert_eq!(named, present);
}

/// Every source file below a top-level module, without tests.
fn module_sources() -> impl Iterator<Item = (String, Source)> {
    let modules = sources("cli").into_iter().filter_map(|source| Some((source.module()?, source)));
    modules.filter(|(module, _)| !matches!(module.as_str(), "lib" | "main" | "fuzz"))
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
    assert_eq!(imports(code, 1), expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn comments_and_unit_tests_are_not_imports() {
    let text =
        "//! [`crate::chat`]\nlet url = \"http://x\"; // crate::chat\n#[cfg(test)]\nmod tests {\n use crate::chat;\n}";
    assert_eq!(imports(&code(text), 1), []);
}

#[test]
fn an_import_upward_or_sideways_is_refused() {
    assert_eq!(objection("chat", "connect"), None);
    assert_eq!(objection("connect", "connect"), None);
    assert_eq!(objection("connect", "chat").as_deref(), Some("`connect` (layer 7) uses `chat` (layer 9)"));
    assert_eq!(objection("trust", "doctor").as_deref(), Some("`trust` (layer 5) uses `doctor` (layer 5)"));
    assert_eq!(objection("chat", "misc").as_deref(), Some("`misc` has no layer"));
}
