//! Golden files: values that are compared with JSON files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns a folder beside the tests.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Returns all files with an extension in the subfolders of a folder, by relative path.
pub(crate) fn files(folder: &Path, ending: &str) -> BTreeSet<String> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let below = entries(folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| entries(&path));
    let found = below.filter(|path| path.extension().is_some_and(|extension| extension == ending));
    found.map(|path| path.strip_prefix(folder).expect("below").to_string_lossy().into_owned()).collect()
}

/// Compares values with the JSON files of a folder. `UPDATE_GOLDEN` overwrites the files.
pub(crate) fn compare(folder: &Path, made: &BTreeMap<String, Value>) {
    let kept = files(folder, "json");
    let mut differences = Vec::new();
    for (name, value) in made {
        let path = folder.join(name);
        let text = serde_json::to_string_pretty(value).expect("JSON") + "\n";
        let then = fs::read_to_string(&path).unwrap_or_default();
        if then != text {
            differences.push(format!("{name}: {}", first_difference(&then, &text)));
            if updating() {
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(&path, text).expect("a file");
            }
        }
    }
    for name in kept.iter().filter(|name| !made.contains_key(*name)) {
        differences.push(format!("{name}: nothing makes it any more"));
        if updating() {
            fs::remove_file(folder.join(name)).expect("a file");
        }
    }
    assert!(
        updating() || differences.is_empty(),
        "{} files in `{}` differ; `UPDATE_GOLDEN=1 cargo test -p ropeway --test suite provider` writes them anew\n{}",
        differences.len(),
        folder.display(),
        differences.join("\n"),
    );
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn first_difference(then: &str, now: &str) -> String {
    let at = then.lines().zip(now.lines()).take_while(|(then, now)| then == now).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("(its end)").trim().to_owned();
    format!("line {}: `{}` is now `{}`", at + 1, line(then), line(now))
}

#[test]
fn the_first_different_line_is_reported() {
    assert_eq!(first_difference("a\nb\n", "a\n c\n"), "line 2: `b` is now `c`");
    assert_eq!(first_difference("a\n", "a\nb\n"), "line 2: `(its end)` is now `b`");
}
