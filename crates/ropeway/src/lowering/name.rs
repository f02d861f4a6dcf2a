//! Names: what a dialect lets tools and arguments be called.

use std::collections::{HashMap, HashSet};

use crate::hash;
use crate::message::Dialect;

/// What a name may be made of.
#[derive(Debug)]
pub(crate) struct Alphabet {
    /// How many characters at most.
    pub(crate) most: usize,
    /// Which ones, beside letters, digits and `_`.
    others: &'static str,
    /// May it begin with anything but a letter or `_`?
    begins_anyhow: bool,
    /// What stands for a name that is empty.
    nameless: &'static str,
}

/// What every registry makes its names of.
pub(crate) const EVERYWHERE: Alphabet = Alphabet { most: 64, others: "-", begins_anyhow: true, nameless: "tool" };

/// What every dialect understands.
#[cfg(feature = "providers")]
const PLAIN: Alphabet = Alphabet { begins_anyhow: false, ..EVERYWHERE };

impl Alphabet {
    /// What a dialect wants tools to be called by.
    pub(super) fn of_tools(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Anthropic => &Self { most: 128, ..EVERYWHERE },
            Dialect::Responses | Dialect::Chat => &EVERYWHERE,
            Dialect::Gemini => &Self { most: 128, others: "-.:", begins_anyhow: false, nameless: "tool" },
        }
    }

    /// What a dialect wants arguments to be called by, if it cares.
    pub(super) fn of_arguments(dialect: Dialect) -> Option<&'static Self> {
        match dialect {
            Dialect::Anthropic => Some(&Self { most: 64, others: "-.", begins_anyhow: true, nameless: "_" }),
            Dialect::Responses | Dialect::Chat => None,
            // Said of the older form of schema only, but names that both take cannot be wrong.
            Dialect::Gemini => Some(&Self { most: 64, others: "", begins_anyhow: false, nameless: "_" }),
        }
    }

    /// Is it a name as it stands?
    pub(super) fn takes(&self, name: &str) -> bool {
        (1..=self.most).contains(&name.len())
            && name.chars().all(|c| self.has(c))
            && (self.begins_anyhow || self.begins(name))
    }

    /// The name that is nearest. One that has to be cut ends in a hash.
    pub(crate) fn legal(&self, raw: &str) -> String {
        let mut name: String = raw.chars().map(|c| if self.has(c) { c } else { '_' }).collect();
        if name.is_empty() {
            return self.nameless.to_owned();
        }
        if !self.begins_anyhow && !self.begins(&name) {
            name.insert(0, '_');
        }
        if name.len() > self.most { hashed(&name, raw, self.most) } else { name }
    }

    fn has(&self, c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '_' || self.others.contains(c)
    }

    fn begins(&self, name: &str) -> bool {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// A name, cut where it must be, that ends in a hash of `raw`. Models remember names, so it must never change.
pub(crate) fn hashed(name: &str, raw: &str, most: usize) -> String {
    ending(name, &format!("_{:08x}", hash::short(raw)), most)
}

/// A name, cut where it must be, with an ending. One that is not ASCII is cut between two characters.
pub(crate) fn ending(name: &str, end: &str, most: usize) -> String {
    let room = name.floor_char_boundary(most - end.len());
    format!("{}{end}", &name[..room])
}

/// A name that every dialect takes.
#[cfg(feature = "providers")]
pub(super) fn plain(name: &str) -> String {
    PLAIN.legal(name)
}

/// Names of an alphabet for other names, all different.
///
/// One that is legal is kept. What a name becomes does not depend on the order of the others.
pub(super) fn legal_names<'a>(names: &[&'a str], alphabet: &Alphabet) -> HashMap<&'a str, String> {
    let mut legal: HashMap<&str, String> = HashMap::with_capacity(names.len());
    let mut taken: HashSet<String> = HashSet::new();
    let mut changed: Vec<(&str, String)> = Vec::new();
    for &name in names {
        if alphabet.takes(name) {
            legal.insert(name, name.to_owned());
        } else {
            changed.push((name, alphabet.legal(name)));
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
            name = hashed(&name, raw, alphabet.most);
        }
        // Two hashes may be the same, or somebody's own name.
        let mut numbers = 2_u32..;
        while taken.contains(&name) || legal.contains_key(&*name) {
            name = ending(&name, &format!("_{}", numbers.next().unwrap_or_default()), alphabet.most);
        }
        taken.insert(name.clone());
        legal.insert(raw, name);
    }
    legal
}
