//! Reviewed files' summaries, and their differences.

use serde::{Deserialize, Serialize};

use super::digest::sha256;

/// Maximum stored fact length in characters.
const MAX_FACT: usize = 2000;

/// Maximum stored facts per file.
const MAX_FACTS: usize = 2000;

/// Maximum stored summary size in bytes, as JSON.
const MAX_BYTES: usize = 256 << 10;

/// Bytes that the store's layout adds to a section or a fact.
const LAYOUT_BYTES: usize = 128;

/// The section title that replaces the facts beyond the limits.
const REST: &str = "the rest";

/// The file review that the user saw. It contains no literal secrets, since it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TrustSummary(pub(crate) Vec<Section>);

/// One part of a file: a server, the chat, the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Section {
    /// Names the part: "server `files`".
    pub(crate) title: String,
    pub(crate) facts: Vec<Fact>,
}

/// One statement about a part of a file. Several facts in a section may have the same label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    /// A verb or a key: "runs".
    pub(crate) label: String,
    pub(crate) text: String,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), facts: Vec::new() }
    }

    pub(crate) fn add(&mut self, label: impl Into<String>, text: impl Into<String>) {
        self.facts.push(Fact { label: label.into(), text: text.into() });
    }

    fn texts<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a str> {
        self.facts.iter().filter(move |fact| fact.label == label).map(|fact| fact.text.as_str())
    }
}

impl TrustSummary {
    /// Returns the summary in its stored form: long texts are shortened, and facts beyond the limits are replaced by their
    /// number. Both include a digest, so that hidden changes are still detected.
    pub(crate) fn bounded(self) -> Self {
        let (mut kept, mut rest) = (Vec::new(), Vec::new());
        let (mut count, mut bytes) = (0, 0);
        let mut fits = |size: usize| {
            count += 1;
            bytes += size + LAYOUT_BYTES;
            count <= MAX_FACTS && bytes <= MAX_BYTES
        };
        for mut section in self.0 {
            let mut stored = Section::new(shortened(&section.title));
            let is_stored = fits(size(&stored.title));
            let facts = section.facts.iter().map(Fact::shortened);
            stored.facts = facts.take_while(|fact| fits(size(&fact.label) + size(&fact.text))).collect();
            let is_whole = stored.facts.len() == section.facts.len();
            section.facts.drain(..stored.facts.len());
            if is_stored {
                kept.push(stored);
            }
            if !is_stored || !is_whole {
                rest.push(section);
            }
        }
        if !rest.is_empty() {
            let facts: usize = rest.iter().map(|section| section.facts.len().max(1)).sum();
            let mut section = Section::new(REST);
            section.add("has", format!("{facts} more facts (#{})", digest(&format!("{rest:?}"))));
            kept.push(section);
        }
        Self(kept)
    }

    /// Describes the facts that `new` adds and removes.
    pub(crate) fn changes(&self, new: &Self) -> Vec<String> {
        let new = new.clone().bounded();
        let mut changes = Vec::new();
        for section in &new.0 {
            match self.0.iter().find(|old| old.title == section.title) {
                None => {
                    let facts: Vec<String> =
                        section.facts.iter().map(|fact| format!("{} {}", fact.label, fact.text)).collect();
                    let end = if facts.is_empty() { String::new() } else { format!(": {}", facts.join("; ")) };
                    changes.push(format!("{} added{end}", section.title));
                }
                Some(old) => differences(old, section, &mut changes),
            }
        }
        let gone = self.0.iter().filter(|old| new.0.iter().all(|section| section.title != old.title));
        changes.extend(gone.map(|old| format!("{} removed", old.title)));
        changes
    }
}

impl Fact {
    fn shortened(&self) -> Self {
        Self { label: shortened(&self.label), text: shortened(&self.text) }
    }
}

/// Describes how two section versions differ.
fn differences(old: &Section, new: &Section, changes: &mut Vec<String>) {
    let title = &new.title;
    let mut labels: Vec<&str> = old.facts.iter().chain(&new.facts).map(|fact| fact.label.as_str()).collect();
    let mut seen = Vec::new();
    labels.retain(|label| {
        let is_new = !seen.contains(label);
        seen.push(*label);
        is_new
    });
    for label in labels {
        let lost: Vec<&str> = old.texts(label).filter(|text| new.texts(label).all(|other| other != *text)).collect();
        let gained: Vec<&str> = new.texts(label).filter(|text| old.texts(label).all(|other| other != *text)).collect();
        match (&lost[..], &gained[..]) {
            ([from], [to]) => changes.push(format!("{title}: {label} {to} (before: {from})")),
            _ => {
                changes.extend(gained.iter().map(|text| format!("{title}: now {label} {text}")));
                changes.extend(lost.iter().map(|text| format!("{title}: no longer {label} {text}")));
            }
        }
    }
}

/// Shortens a text and adds the hidden character count and a digest for the whole text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_FACT) {
        None => text.to_owned(),
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}… ({more} more characters, #{})", &text[..end], digest(text))
        }
    }
}

/// Returns half of a text's SHA-256, in hexadecimal digits.
fn digest(text: &str) -> String {
    let mut digest = sha256(text);
    digest.truncate(32);
    digest
}

/// Returns how many bytes a text takes in JSON.
fn size(text: &str) -> usize {
    let escaped = |c: char| match c {
        '"' | '\\' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    text.chars().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, facts: &[(&str, &str)]) -> Section {
        let mut section = Section::new(title);
        facts.iter().for_each(|(label, text)| section.add(*label, *text));
        section
    }

    #[test]
    fn changes_list_additions_removals_and_replacements() {
        let old = TrustSummary(vec![
            section("server `a`", &[("runs", "one"), ("env", "A=1"), ("env", "B=2")]),
            section("server `b`", &[("runs", "two")]),
        ]);
        let new = TrustSummary(vec![
            section("server `a`", &[("runs", "other"), ("env", "A=1"), ("env", "C=3"), ("env", "D=4")]),
            section("server `c`", &[("connects to", "http://h")]),
        ]);
        let expected = [
            "server `a`: runs other (before: one)",
            "server `a`: now env C=3",
            "server `a`: now env D=4",
            "server `a`: no longer env B=2",
            "server `c` added: connects to http://h",
            "server `b` removed",
        ];
        assert_eq!(old.changes(&new), expected);
        assert_eq!(old.changes(&old), [""; 0]);
    }

    #[test]
    fn a_stored_summary_is_bounded_and_compares_equal_to_its_source() {
        let long = "x".repeat(MAX_FACT + 5);
        for text in [long.as_str(), "short", &"\u{1}".repeat(MAX_FACT), &"日".repeat(MAX_FACT)] {
            let count = if text == "short" { 3 * MAX_FACTS } else { 300 };
            let sections = (0..count).map(|number| section(&format!("server `{number}`"), &[("runs", text)]));
            let huge = TrustSummary(sections.collect());
            let stored = huge.clone().bounded();
            let facts: usize = stored.0.iter().map(|section| section.facts.len()).sum();
            assert!(facts <= MAX_FACTS + 1);
            assert!(serde_json::to_string_pretty(&stored).expect("JSON").len() <= MAX_BYTES + 1000);
            assert_eq!(stored.changes(&huge), [""; 0]);
        }
        let text = shortened(&long);
        assert!(text.contains("x… (5 more characters, #") && text.ends_with(')'), "{text}");
    }

    #[test]
    fn changes_beyond_the_stored_limits_are_detected() {
        let long = |end: &str| TrustSummary(vec![section("server `a`", &[("runs", &("x".repeat(MAX_FACT) + end))])]);
        let changes = long("one").bounded().changes(&long("two"));
        assert!(changes.len() == 1 && changes[0].starts_with("server `a`: runs xxx"), "{changes:?}");
        let many = |last: &str| {
            let mut many = section("server `a`", &[]);
            (0..2 * MAX_FACTS).for_each(|number| many.add("sets", format!("N{number}=1")));
            many.add("sets", last);
            TrustSummary(vec![many])
        };
        let changes = many("LAST=1").bounded().changes(&many("LAST=2"));
        assert!(changes.len() == 1 && changes[0].starts_with("the rest: has "), "{changes:?}");
    }
}
