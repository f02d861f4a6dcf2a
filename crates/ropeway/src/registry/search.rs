//! Search: an index of tools by the words of their names, arguments and descriptions, ranked by BM25.

use std::collections::{BTreeMap, HashMap};

use super::filter::own_name;
use super::visible;
use crate::checked::CheckedTool;
use crate::tool::{Origin, ToolDefinition};

/// How much a word counts by where it stands. A name says what a tool is; a description says much else besides.
const IN_NAME: f64 = 5.0;
const IN_TITLE: f64 = 3.0;
const IN_ARGUMENT: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;

/// How soon more of the same word stops to count, and how much long texts are held against it: the usual values.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;

/// How much a word counts that only begins like the one that was asked for.
const ALIKE: f64 = 0.5;

/// How many words of a question are looked at.
const MAX_WORDS: usize = 64;

/// A tool that was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hit<'a> {
    /// The tool.
    pub tool: &'a CheckedTool,
    /// How well it fits; only to be compared with others of the same search.
    pub score: f64,
}

/// An index of tools by their words.
#[derive(Debug)]
pub(super) struct Index {
    /// For each word the places of the tools that have it, and how much it counts there. Sorted, so that scores are
    /// always added up in the same order.
    words: BTreeMap<String, Vec<(usize, f64)>>,
    /// How many words each tool has, by how much they count.
    lengths: Vec<f64>,
    mean: f64,
}

impl Index {
    pub(super) fn new<'a>(definitions: impl Iterator<Item = &'a ToolDefinition>) -> Self {
        let mut index = Self { words: BTreeMap::new(), lengths: Vec::new(), mean: 0.0 };
        for definition in definitions {
            let at = index.lengths.len();
            let counts = counts(definition);
            index.lengths.push(counts.values().sum());
            for (word, count) in counts {
                index.words.entry(word).or_default().push((at, count));
            }
        }
        index.mean = index.lengths.iter().sum::<f64>() / index.lengths.len().max(1) as f64;
        index
    }

    /// The places of the tools that fit best, with their scores.
    pub(super) fn search(&self, question: &str, limit: usize) -> Vec<(usize, f64)> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        let mut asked = words(question);
        asked.truncate(MAX_WORDS);
        for word in asked {
            match self.words.get(&word) {
                Some(found) => self.count(found, 1.0, &mut scores),
                None => {
                    for found in self.alike(&word) {
                        self.count(found, ALIKE, &mut scores);
                    }
                }
            }
        }
        let mut ranked: Vec<(usize, f64)> = scores.into_iter().collect();
        ranked.sort_by(|(at, score), (other_at, other)| other.total_cmp(score).then(at.cmp(other_at)));
        ranked.truncate(limit);
        ranked
    }

    fn count(&self, found: &[(usize, f64)], weight: f64, scores: &mut HashMap<usize, f64>) {
        let (all, having) = (self.lengths.len() as f64, found.len() as f64);
        let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
        for &(at, count) in found {
            let length = 1.0 - LENGTH + LENGTH * self.lengths[at] / self.mean;
            let score = rarity * count * (SATURATION + 1.0) / (count + SATURATION * length);
            *scores.entry(at).or_default() += weight * score;
        }
    }

    /// The words that begin like one that no tool has: `repo` finds `repository`, and `creating` finds `create`.
    fn alike(&self, word: &str) -> impl Iterator<Item = &[(usize, f64)]> {
        let stem = ["ing", "ed"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned();
        let long_enough = |word: &str| word.chars().count() >= 3;
        let alike = move |known: &str| {
            (long_enough(&stem) && known.starts_with(&stem)) || (known.len() > 3 && stem.starts_with(known))
        };
        self.words.iter().filter(move |(known, _)| alike(known)).map(|(_, found)| found.as_slice())
    }
}

/// How much each word of a definition counts.
fn counts(definition: &ToolDefinition) -> HashMap<String, f64> {
    let mut counts = HashMap::new();
    let mut add = |words: Vec<String>, weight: f64| {
        for word in words {
            *counts.entry(word).or_insert(0.0) += weight;
        }
    };
    // Our name holds the words of the server's own, but for what was cut or replaced.
    let mut name = words(&definition.name);
    name.extend(words(own_name(definition)));
    if let Origin::Server { server, .. } = &definition.origin {
        name.extend(words(server.as_str()));
    }
    name.sort();
    name.dedup();
    add(name, IN_NAME);
    add(definition.title.as_deref().map(words).unwrap_or_default(), IN_TITLE);
    for argument in visible::arguments(&definition.input_schema) {
        add(words(argument), IN_ARGUMENT);
    }
    add(definition.description.as_deref().map(words).unwrap_or_default(), IN_DESCRIPTION);
    counts
}

/// The words of a text, in lower case and without the ends of plurals: `listOpenIssues` is `list`, `open`, `issue`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let begins = c.is_uppercase()
            && (before.is_lowercase()
                || (before.is_uppercase() && rest.peek().is_some_and(|next| next.is_lowercase())));
        if begins || !c.is_alphanumeric() || is_ideograph(c) || is_ideograph(before) {
            end(&mut word, &mut words);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    end(&mut word, &mut words);
    words
}

fn end(word: &mut String, words: &mut Vec<String>) {
    if !word.is_empty() {
        words.push(singular(std::mem::take(word)));
    }
}

/// Scripts that put no space between words: each sign counts as one.
fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Cuts the end of an English plural, roughly: the same word must only come out the same each time.
fn singular(mut word: String) -> String {
    let ends = |end: &str| word.ends_with(end);
    if word.len() <= 3 || !ends("s") || ends("ss") || ends("us") || ends("is") {
        return word;
    }
    if ends("ies") && word.len() > 4 {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["ches", "shes", "sses", "xes"].into_iter().any(ends) {
        word.truncate(word.len() - 2);
    } else {
        word.truncate(word.len() - 1);
    }
    word
}
