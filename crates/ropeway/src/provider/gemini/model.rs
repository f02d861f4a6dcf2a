//! A model, as far as its name tells what it takes.

use std::fmt::Write as _;

use serde::Serialize;

use crate::provider::ReasoningEffort;

/// A model of Gemini's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    /// What stands between the version of the API and the method: `models` or `tunedModels`.
    collection: &'static str,
    id: &'a str,
    /// Its own name, without what a gateway has put before it.
    name: &'a str,
    version: Option<(u32, u32)>,
}

/// How much a model thinks.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thinking {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(flatten)]
    amount: Amount,
}

/// One of two: a model refuses both together.
#[derive(Debug, PartialEq, Eq, Serialize)]
enum Amount {
    #[serde(rename = "thinkingLevel")]
    Level(&'static str),
    #[serde(rename = "thinkingBudget")]
    Budget(u32),
}

impl<'a> Model<'a> {
    pub(super) fn new(model: &'a str) -> Self {
        let (collection, id) = match model.split_once('/') {
            Some(("models", id)) => ("models", id),
            Some(("tunedModels", id)) => ("tunedModels", id),
            _ => ("models", model),
        };
        let name = id.rsplit('/').next().unwrap_or(id);
        Self { collection, id, name, version: version(name) }
    }

    /// Where it is asked, behind the version of the API.
    pub(super) fn path(&self) -> String {
        format!("/{}/{}:streamGenerateContent?alt=sse", self.collection, segment(self.id))
    }

    /// Is it from before version 3? A name that does not say so is of a newer one.
    pub(super) fn is_older(&self) -> bool {
        self.version.is_some_and(|(major, _)| major < 3)
    }

    /// How an effort is said; `None` for a model that does not think.
    pub(super) fn thinking(&self, effort: ReasoningEffort) -> Option<Thinking> {
        let amount = match self.version {
            Some((2, 5)) => Amount::Budget(self.budget(effort)),
            _ if self.is_older() => return None,
            _ => Amount::Level(self.level(effort)),
        };
        Some(Thinking { include_thoughts: effort != ReasoningEffort::Off, amount })
    }

    fn level(&self, effort: ReasoningEffort) -> &'static str {
        // Not every model takes the least level, but every one takes the second.
        let takes_minimal =
            self.name.contains("flash") && self.version.is_some_and(|(major, minor)| major == 3 && minor < 7);
        match effort {
            ReasoningEffort::Off | ReasoningEffort::Minimal if takes_minimal => "MINIMAL",
            ReasoningEffort::Off | ReasoningEffort::Minimal | ReasoningEffort::Low => "LOW",
            ReasoningEffort::Medium => "MEDIUM",
            ReasoningEffort::High | ReasoningEffort::Max => "HIGH",
        }
    }

    fn budget(&self, effort: ReasoningEffort) -> u32 {
        let is_pro = self.name.contains("pro");
        match effort {
            // Pro thinks always, if only a little.
            ReasoningEffort::Off if is_pro => 128,
            ReasoningEffort::Off => 0,
            ReasoningEffort::Minimal => 512,
            ReasoningEffort::Low => 1024,
            ReasoningEffort::Medium => 8192,
            ReasoningEffort::Max if is_pro => 32_768,
            ReasoningEffort::High | ReasoningEffort::Max => 24_576,
        }
    }
}

/// `(2, 5)` of `gemini-2.5-pro`.
fn version(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix("gemini-")?;
    let end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (major, rest) = rest.split_at(end(rest));
    let minor = rest.strip_prefix('.').map(|rest| &rest[..end(rest)]);
    Some((major.parse().ok()?, minor.and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

/// A name as one segment of a path: nothing in it leads out of its place.
pub(super) fn segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => segment.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => _ = write!(segment, "%{byte:02X}"),
        }
    }
    segment
}
