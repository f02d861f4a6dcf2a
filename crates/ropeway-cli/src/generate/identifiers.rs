//! Identifiers from server names: ASCII letters, digits and underscores, unique, and never a reserved word.

use std::collections::HashMap;

/// Maximum identifier length in characters, without a number that makes it unique.
const MAX_LENGTH: usize = 80;

/// The number for the second identifier with a name.
const FIRST_NUMBER: usize = 2;

/// Identifiers in one scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Each used identifier, with the next number for this name.
    used: HashMap<String, usize>,
}

impl Scope {
    /// Creates a scope in which some words are used already.
    pub(super) fn with_reserved(words: &[&str]) -> Self {
        Self { used: words.iter().map(|word| ((*word).to_owned(), FIRST_NUMBER)).collect() }
    }

    /// Returns an identifier that is not used yet: the given one, or one with a number.
    pub(super) fn claim(&mut self, wanted: &str) -> String {
        self.claim_joined(wanted, "")
    }

    /// Like [`claim`](Self::claim), with a separator before the number.
    pub(super) fn claim_joined(&mut self, wanted: &str, separator: &str) -> String {
        // Nested types' names grow with their depth.
        let wanted: String = wanted.chars().take(2 * MAX_LENGTH).collect();
        let mut number = self.used.get(&wanted).copied();
        let mut name = wanted.clone();
        while self.used.contains_key(&name) {
            let next = number.unwrap_or(FIRST_NUMBER);
            name = format!("{wanted}{separator}{next}");
            number = Some(next + 1);
        }
        if let Some(number) = number {
            self.used.insert(wanted, number);
        }
        self.used.insert(name.clone(), FIRST_NUMBER);
        name
    }
}

/// Returns `listFiles`.
pub(super) fn camel_case(name: &str, fallback: &str) -> String {
    let pascal = pascal_case(name, fallback);
    let mut letters = pascal.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// Returns `ListFiles`.
pub(super) fn pascal_case(name: &str, fallback: &str) -> String {
    let words: String = words(name).map(|word| capitalized(&word)).collect();
    valid(words, fallback)
}

/// Returns `list_files`.
pub(super) fn snake_case(name: &str, fallback: &str) -> String {
    valid(words(name).collect::<Vec<_>>().join("_"), fallback)
}

/// Returns `list-files`, which may begin with a digit.
pub(super) fn kebab_case(name: &str, fallback: &str) -> String {
    let words: String = words(name).collect::<Vec<_>>().join("-").chars().take(MAX_LENGTH).collect();
    if words.is_empty() { fallback.to_owned() } else { words }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// Cuts a long identifier, and makes it begin with a letter.
fn valid(words: String, fallback: &str) -> String {
    let words: String = words.chars().take(MAX_LENGTH).collect();
    match words.chars().next() {
        None => fallback.to_owned(),
        Some(first) if first.is_ascii_digit() => format!("{fallback}{words}"),
        Some(_) => words,
    }
}

/// Returns a name's words, in lower case: those of `maxItems2`, `max_items_2` and `Max items 2` are equal.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    let mut before: Option<char> = None;
    for c in name.chars().take(4 * MAX_LENGTH) {
        if !c.is_ascii_alphanumeric() {
            before = None;
            continue;
        }
        let is_start = match before {
            None => true,
            Some(before) => c.is_ascii_uppercase() && !before.is_ascii_uppercase(),
        };
        if is_start {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
        before = Some(c);
    }
    words.into_iter()
}
