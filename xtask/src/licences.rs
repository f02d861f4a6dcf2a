//! Checks that every dependency of the published crates has a licence that permits shipping it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process::{self, cargo};

/// Licences for code that may be part of the binary, by SPDX identifier.
const ACCEPTED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// The crates that users build.
const SHIPPED: [&str; 2] = ["ropeway", "ropeway-cli"];

/// Checks the licence for everything that the shipped crates depend on, and returns the package count.
pub fn check() -> Result<u32> {
    let output = process::output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    if !output.status.success() {
        bail!("`cargo metadata` failed\n{}", process::output_text(&output));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("the output of `cargo metadata`")?;
    let shipped = shipped(&metadata);
    let packages = array(&metadata, "packages").filter(|package| shipped.contains(text(package, "id")));
    let (mut count, mut refused) = (0, Vec::new());
    for package in packages {
        count += 1;
        let licence = text(package, "license");
        if !is_accepted(licence) {
            refused.push(format!("{} {}: {licence:?}", text(package, "name"), text(package, "version")));
        }
    }
    match refused.is_empty() {
        _ if count == 0 => bail!("found no packages"),
        true => Ok(count),
        false => bail!("licences that are not in the list of xtask/src/licences.rs:\n{}", refused.join("\n")),
    }
}

/// Returns the ids for the shipped crates and their dependencies, without those that only tests or build scripts need.
fn shipped(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"], "nodes").map(|node| (text(node, "id"), node)).collect();
    let is_shipped = |package: &&Value| SHIPPED.contains(&text(package, "name")) && package["source"].is_null();
    let mut open: Vec<&str> =
        array(metadata, "packages").filter(is_shipped).map(|package| text(package, "id")).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let dependencies = nodes.get(id).into_iter().flat_map(|node| array(node, "deps"));
            let is_normal = |dependency: &&Value| array(dependency, "dep_kinds").any(|kind| kind["kind"].is_null());
            open.extend(dependencies.filter(is_normal).map(|dependency| text(dependency, "pkg")));
        }
    }
    found
}

/// Returns `true` if an SPDX expression can be satisfied by accepted licences alone.
fn is_accepted(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let words = expression.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let (accepted, rest) = any_of(&words);
    accepted && rest.is_empty()
}

/// Reads `all_of OR all_of …` and returns the words behind it.
fn any_of<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    let (mut accepted, mut rest) = all_of(words);
    while let ["OR", more @ ..] = rest {
        let (also, behind) = all_of(more);
        accepted |= also;
        rest = behind;
    }
    (accepted, rest)
}

/// Reads `licence AND licence …` and returns the words behind it.
fn all_of<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    let (mut accepted, mut rest) = licence(words);
    while let ["AND", more @ ..] = rest {
        let (also, behind) = licence(more);
        accepted &= also;
        rest = behind;
    }
    (accepted, rest)
}

fn licence<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    match words {
        ["(", inner @ ..] => match any_of(inner) {
            (accepted, [")", rest @ ..]) => (accepted, rest),
            (_, rest) => (false, rest),
        },
        [name, "WITH", exception, rest @ ..] => (ACCEPTED.contains(&format!("{name} WITH {exception}").as_str()), rest),
        [name, rest @ ..] => (ACCEPTED.contains(name), rest),
        [] => (false, words),
    }
}

fn array<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_accepted_if_one_choice_is() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_accepted(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "LGPL-2.1-or-later"] {
            assert!(!is_accepted(bad), "{bad}");
        }
    }

    #[test]
    fn every_dependency_of_the_shipped_crates_has_an_accepted_licence() {
        let count = check().unwrap_or_else(|error| panic!("{error:#}"));
        assert!(count > 50, "{count}");
    }
}
