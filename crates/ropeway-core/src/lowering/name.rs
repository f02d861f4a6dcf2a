//! Rules for tool and argument names.

use std::collections::{HashMap, HashSet};

use crate::hash;
use crate::message::Dialect;

/// The rules for names in a dialect.
#[derive(Debug)]
pub struct NameRules {
    /// Maximum number of characters.
    pub most: usize,
    /// Allowed characters, in addition to ASCII letters, digits and `_`.
    extra_chars: &'static str,
    /// Whether the first character may be other than a letter or `_`.
    any_first_char: bool,
    /// The replacement for an empty name.
    fallback: &'static str,
}

/// The rules for names in registries.
pub const EVERYWHERE: NameRules = NameRules { most: 64, extra_chars: "-", any_first_char: true, fallback: "tool" };

/// The rules that every dialect shares.
const PLAIN: NameRules = NameRules { any_first_char: false, ..EVERYWHERE };

impl NameRules {
    /// Returns the rules for tool names.
    pub(super) fn of_tools(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Anthropic => &Self { most: 128, ..EVERYWHERE },
            Dialect::Responses | Dialect::Chat => &EVERYWHERE,
            Dialect::Gemini => &Self { most: 128, extra_chars: "-.:", any_first_char: false, fallback: "tool" },
        }
    }

    /// Returns the rules for argument names, if the dialect has any.
    pub(super) fn of_arguments(dialect: Dialect) -> Option<&'static Self> {
        match dialect {
            Dialect::Anthropic => Some(&Self { most: 64, extra_chars: "-.", any_first_char: true, fallback: "_" }),
            Dialect::Responses | Dialect::Chat => None,
            // Documented only for the older schema format. Names that satisfy it are valid in both.
            Dialect::Gemini => Some(&Self { most: 64, extra_chars: "", any_first_char: false, fallback: "_" }),
        }
    }

    /// Returns `true` if the name is valid.
    pub(super) fn accepts(&self, name: &str) -> bool {
        (1..=self.most).contains(&name.len())
            && name.chars().all(|c| self.has(c))
            && (self.any_first_char || self.begins(name))
    }

    /// Replaces invalid characters. A truncated name ends with a hash.
    pub fn legal(&self, raw: &str) -> String {
        let mut name: String = raw.chars().map(|c| if self.has(c) { c } else { '_' }).collect();
        if name.is_empty() {
            return self.fallback.to_owned();
        }
        if !self.any_first_char && !self.begins(&name) {
            name.insert(0, '_');
        }
        if name.len() > self.most { hashed(&name, raw, self.most) } else { name }
    }

    fn has(&self, c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '_' || self.extra_chars.contains(c)
    }

    fn begins(&self, name: &str) -> bool {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// Truncates a name and appends a hash of `raw`. Conversations contain such names, so the hash must never change.
pub fn hashed(name: &str, raw: &str, most: usize) -> String {
    ending(name, &format!("_{:08x}", hash::short(raw)), most)
}

/// Truncates a name at a character boundary and appends a suffix.
pub fn ending(name: &str, end: &str, most: usize) -> String {
    let room = name.floor_char_boundary(most - end.len());
    format!("{}{end}", &name[..room])
}

/// Returns a name that every dialect accepts.
pub(super) fn plain(name: &str) -> String {
    PLAIN.legal(name)
}

/// Returns distinct valid names.
///
/// A valid name is kept. The result for a name does not depend on the order of the others.
pub(super) fn legal_names<'a>(names: &[&'a str], name_rules: &NameRules) -> HashMap<&'a str, String> {
    let mut legal: HashMap<&str, String> = HashMap::with_capacity(names.len());
    let mut taken: HashSet<String> = HashSet::new();
    let mut changed: Vec<(&str, String)> = Vec::new();
    for &name in names {
        if name_rules.accepts(name) {
            legal.insert(name, name.to_owned());
        } else {
            changed.push((name, name_rules.legal(name)));
        }
    }
    let mut wanted: HashMap<&str, usize> = HashMap::new();
    for (_, name) in &changed {
        *wanted.entry(name).or_default() += 1;
    }
    let doubled: HashSet<String> = wanted
        .into_iter()
        .filter(|(name, times)| *times > 1 || legal.contains_key(name))
        .map(|(n, _)| n.to_owned())
        .collect();
    changed.sort_unstable();
    changed.dedup();
    for (raw, mut name) in changed {
        if doubled.contains(&name) {
            name = hashed(&name, raw, name_rules.most);
        }
        // Two hashes may collide with each other, or with an existing name.
        let mut numbers = 2_u32..;
        while taken.contains(&name) || legal.contains_key(&*name) {
            name = ending(&name, &format!("_{}", numbers.next().unwrap_or_default()), name_rules.most);
        }
        taken.insert(name.clone());
        legal.insert(raw, name);
    }
    legal
}
