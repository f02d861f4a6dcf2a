//! A summary of a reviewed file: what was shown to the person, and how two of them differ.

use serde::{Deserialize, Serialize};

/// The longest fact that is stored, in characters.
const LONGEST_FACT: usize = 2000;

/// The most facts that are stored for one file.
const MOST_FACTS: usize = 2000;

/// What a person was shown of a file. Holds no literal secrets, since it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Summary(pub(crate) Vec<Section>);

/// One part of a file: a server, the chat, the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Section {
    /// Names the part: "server `files`".
    pub(crate) title: String,
    pub(crate) facts: Vec<Fact>,
}

/// One statement about a part of a file. Several facts of a section may have the same label.
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

impl Summary {
    /// Returns the summary with long texts shortened, for storing.
    pub(crate) fn bounded(mut self) -> Self {
        let mut left = MOST_FACTS;
        for section in &mut self.0 {
            section.facts.truncate(left);
            left -= section.facts.len();
            section.facts.iter_mut().for_each(|fact| fact.text = shortened(&fact.text));
            section.title = shortened(&section.title);
        }
        self.0.truncate(MOST_FACTS);
        self
    }

    /// Describes what `new` has that this summary did not, and the other way round.
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

/// Describes how two versions of one section differ.
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

/// Returns the text, or its beginning and the number of characters that are left out.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_FACT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} more characters)", &text[..end], text[end..].chars().count()),
    }
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
    fn changes_name_what_was_added_removed_and_replaced() {
        let old = Summary(vec![
            section("server `a`", &[("runs", "one"), ("env", "A=1"), ("env", "B=2")]),
            section("server `b`", &[("runs", "two")]),
        ]);
        let new = Summary(vec![
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
        let huge = Summary(vec![section("server `a`", &[("runs", &"x".repeat(LONGEST_FACT + 5))]); 3 * MOST_FACTS]);
        let stored = huge.clone().bounded();
        assert_eq!((stored.0.len(), stored.0.iter().map(|section| section.facts.len()).sum::<usize>()), (2000, 2000));
        assert!(stored.0[0].facts[0].text.ends_with("x… (5 more characters)"));
        assert_eq!(stored.changes(&huge), [""; 0]);
    }
}
