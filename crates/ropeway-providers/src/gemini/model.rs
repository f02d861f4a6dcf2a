//! A Gemini model's capabilities, derived from its name.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use ropeway_core::message::ReasoningEffort;

/// Bytes that are encoded in a path segment (<https://www.rfc-editor.org/rfc/rfc3986#section-2.3>).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A model name, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct GeminiModel<'a> {
    /// The collection in the path: `models` or `tunedModels`.
    collection: &'static str,
    id: &'a str,
    /// The name without a gateway's prefix.
    name: &'a str,
    version: Option<(u32, u32)>,
}

/// A request's `thinkingConfig` (<https://ai.google.dev/gemini-api/docs/thinking>).
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfig {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(flatten)]
    amount: ThinkingAmount,
}

/// A level since Gemini 3, a budget before. Models reject both together.
#[derive(Debug, PartialEq, Eq, Serialize)]
enum ThinkingAmount {
    #[serde(rename = "thinkingLevel")]
    Level(&'static str),
    #[serde(rename = "thinkingBudget")]
    Budget(u32),
}

impl<'a> GeminiModel<'a> {
    pub(super) fn new(model: &'a str) -> Self {
        let (collection, id) = match model.split_once('/') {
            Some(("models", id)) => ("models", id),
            Some(("tunedModels", id)) => ("tunedModels", id),
            _ => ("models", model),
        };
        let name = id.rsplit('/').next().unwrap_or(id);
        Self { collection, id, name, version: version(name) }
    }

    /// Returns the path for the model's method, after the API version.
    pub(super) fn path(&self) -> String {
        format!("/{}/{}:streamGenerateContent?alt=sse", self.collection, encode_segment(self.id))
    }

    /// Returns `true` for models before version 3. A name without a version counts as newer.
    pub(super) fn is_older(&self) -> bool {
        self.version.is_some_and(|(major, _)| major < 3)
    }

    /// Returns the configuration for an effort; `None` for a model without thinking.
    pub(super) fn thinking(&self, effort: ReasoningEffort) -> Option<ThinkingConfig> {
        let amount = match self.version {
            Some((2, 5)) => ThinkingAmount::Budget(self.budget(effort)),
            _ if self.is_older() => return None,
            _ => ThinkingAmount::Level(self.level(effort)),
        };
        Some(ThinkingConfig { include_thoughts: effort != ReasoningEffort::Off, amount })
    }

    fn level(&self, effort: ReasoningEffort) -> &'static str {
        // Not every model supports `MINIMAL`, but all support `LOW`.
        let supports_minimal =
            self.name.contains("flash") && self.version.is_some_and(|(major, minor)| major == 3 && minor < 7);
        match effort {
            ReasoningEffort::Off | ReasoningEffort::Minimal if supports_minimal => "MINIMAL",
            ReasoningEffort::Off | ReasoningEffort::Minimal | ReasoningEffort::Low => "LOW",
            ReasoningEffort::Medium => "MEDIUM",
            ReasoningEffort::High | ReasoningEffort::Max => "HIGH",
        }
    }

    fn budget(&self, effort: ReasoningEffort) -> u32 {
        let is_pro = self.name.contains("pro");
        match effort {
            // Thinking cannot be disabled in Pro.
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

/// Parses a name's version: `(2, 5)` for `gemini-2.5-pro`.
fn version(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix("gemini-")?;
    let end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (major, rest) = rest.split_at(end(rest));
    let minor = rest.strip_prefix('.').map(|rest| &rest[..end(rest)]);
    Some((major.parse().ok()?, minor.and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

/// Percent-encodes a name as one path segment.
pub(super) fn encode_segment(name: &str) -> impl fmt::Display {
    utf8_percent_encode(name, ENCODED)
}
